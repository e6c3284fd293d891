"""What the tests of pulls publish: a small pack's files, as a repository on the Hub of `hub_server` holds them."""

from __future__ import annotations

from pathlib import Path

from support.hub_server import git_blob, sha256
from support.tiny_pack import make_tiny_pack

NAME = "org/name"
UNWANTED = {
    "pytorch_model.bin": b"\x80\x02pickle",
    "modeling_tiny.py": b"raise SystemExit('remote code ran')",
    "consolidated.pth": b"pickle",
    "onnx/model.onnx": b"another format",
    "images/card.png": b"a picture",
}
"""Files of a repository that no pull may fetch."""


def published_files(folder: Path, *, seed: int = 0, head: bool = True) -> dict[str, bytes]:
    """The files of a tiny pack with licence and card, made in `folder`."""
    pack = make_tiny_pack(folder, seed=seed, head=head)
    files = {path.name: path.read_bytes() for path in pack.iterdir()}
    return {**files, "LICENSE": b"do as you like", "README.md": b"# tiny", "mtplx_runtime.json": b"{}\n"}


def put_in_cache(
    cache: Path, files: dict[str, bytes], commit: str, *, name: str = NAME, in_lfs: str = ".safetensors"
) -> Path:
    """A snapshot in Hugging Face's cache, as its own library lays it out: links to blobs named by their hash."""
    repository = cache / f"models--{name.replace('/', '--')}"
    snapshot, blobs = repository / "snapshots" / commit, repository / "blobs"
    blobs.mkdir(parents=True, exist_ok=True)
    for file, content in files.items():
        blob = blobs / (sha256(content) if file.endswith(in_lfs) else git_blob(content))
        blob.write_bytes(content)
        place = snapshot / file
        place.parent.mkdir(parents=True, exist_ok=True)
        place.symlink_to(Path(*[".."] * (2 + file.count("/")), "blobs", blob.name))
    (repository / "refs").mkdir(exist_ok=True)
    (repository / "refs" / "main").write_text(commit)
    return snapshot
