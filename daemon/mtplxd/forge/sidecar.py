"""Writes a trained head as an adapter sidecar: published tensor names, bf16, and in the metadata what it is for."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from mtplxd.files import sync_file, sync_folder
from mtplxd.platform.mlx import mx

FORMAT = "1"
DEPTH_MAX = "8"


def write_sidecar(
    path: Path,
    parameters: Mapping[str, Any],
    draft_vocab: npt.NDArray[np.int32],
    taps: Sequence[int],
    body_fingerprint: str,
) -> None:
    """An AdapterModule's parameters by name, the sorted draft vocabulary and the body they belong to.

    Replaced atomically; the same parameters give the same bytes.
    """
    tensors = {
        f"mtp.{name}": mx.array(array).astype(mx.bfloat16) for name, array in sorted(parameters.items())
    }
    tensors["mtp.draft_vocab"] = mx.array(draft_vocab)
    metadata = {
        "format": FORMAT,
        "layout": "adapter",
        "taps": ",".join(map(str, taps)),
        "recursion": "post",
        "concat": "embed_first",
        "depth_max": DEPTH_MAX,
        "body_fingerprint": body_fingerprint,
    }
    partial = path.with_name(f".{path.stem}.safetensors")
    mx.save_safetensors(str(partial), tensors, metadata)
    sync_file(partial)
    partial.rename(path)
    sync_folder(path.parent)
