"""What computes a prompt, as the store's names take it: by content, so that it means the same in every process."""

from __future__ import annotations

from functools import cache
from importlib.metadata import version

from mtplxd.engine.prefill import FIXED_CHUNK
from mtplxd.errors import MtplxError
from mtplxd.families.load import LoadedModel
from mtplxd.families.pieces_form import FORM
from mtplxd.packs.fingerprint import body_fingerprint, own_head_fingerprint
from mtplxd.platform.mlx import blas, compute_dtype, mx

FREE, FIXED = "free", f"fixed {FIXED_CHUNK}"
"""How prompts are cut: as the load has it, or at fixed places."""


def facts_of(model: LoadedModel, partition: str) -> dict[str, str]:
    """The facts that `store.keys` makes an identity of. Hashes the model's files where that was never done."""
    if model.content is None:
        model.content = _content_of(model)
    body, head = model.content
    return {
        "body": body,
        "head": head,
        "dtype": str(compute_dtype() or "as stored"),
        "backend": _backend(),
        "partition": partition,
    }


@cache
def _backend() -> str:
    """What computes here; the same as long as the process lives."""
    return f"{mx.default_device()} mlx {version('mlx')} {blas.name} {blas.threads} form {FORM}"


def _content_of(model: LoadedModel) -> tuple[str, str]:
    """The body and the head with how it is fed. Where the files are not those that were loaded: this load."""
    body, weights = f"load {model.number}", f"load {model.number}"
    if model.pack is not None:
        try:
            if not model.pack.changed_files:
                body, weights = body_fingerprint(model.pack), own_head_fingerprint(model.pack)
        except (MtplxError, OSError):  # they went since: what is in memory is nobody else's
            pass
    if model.head is None:
        return body, "none"
    layers = len(model.head.make_cache(1, model.target.make_cache(1)))
    return body, f"{weights} of {layers} layers, {model.head_settings}"
