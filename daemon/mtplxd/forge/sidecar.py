"""Writes a trained head as a sidecar: an adapter in bf16, a published head as it was stored but for what was trained;
and in the metadata what it is for."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from mtplxd.forge.arrays import DTYPES, bytes_of, replace_file
from mtplxd.packs.headers import read_tensor
from mtplxd.packs.pack import Located
from mtplxd.platform.mlx import mx

FORMAT = "1"
DEPTH_MAX = "8"


def write_sidecar(
    path: Path,
    parameters: Mapping[str, Any],
    draft_vocab: npt.NDArray[np.int32],
    taps: Sequence[int],
    body_fingerprint: str,
    **more: str,
) -> None:
    """An AdapterModule's parameters by name, the sorted draft vocabulary and the body they belong to; `more` goes into
    the metadata as well."""
    tensors = {f"mtp.{name}": mx.array(array).astype(mx.bfloat16) for name, array in parameters.items()}
    tensors["mtp.draft_vocab"] = mx.array(draft_vocab)
    metadata = {
        "format": FORMAT,
        "layout": "adapter",
        "taps": ",".join(map(str, taps)),
        "recursion": "post",
        "concat": "embed_first",
        "depth_max": DEPTH_MAX,
        "body_fingerprint": body_fingerprint,
        **more,
    }
    write_arrays(path, tensors, metadata)


def write_arrays(path: Path, arrays: Mapping[str, Any], metadata: Mapping[str, str]) -> None:
    """A safetensors file, replaced atomically; the same arrays give the same bytes."""
    ordered = dict(sorted(arrays.items()))
    layout = {name: (DTYPES[array.dtype], tuple(array.shape)) for name, array in ordered.items()}
    contents = ((name, bytes_of(array)) for name, array in ordered.items())
    replace_file(path, layout, contents, metadata, lambda _: None)


def write_changed(
    path: Path, located: Located, changed: Mapping[str, Any], metadata: Mapping[str, str]
) -> None:
    """A head's tensors as they are stored, but for the `changed` ones, by stored name.

    What comes back as a whole matrix was packed maybe: its scales are left out.
    """
    whole = {
        f"{name.removesuffix('weight')}{part}"
        for name in changed
        if tuple(changed[name].shape) != located[name][1].shape
        for part in ("scales", "biases")
    }
    kept = {name: place for name, place in sorted(located.items()) if name not in whole}
    layout = {
        name: (DTYPES[changed[name].dtype], tuple(changed[name].shape))
        if name in changed
        else (info.dtype, info.shape)
        for name, (_, info) in kept.items()
    }
    contents = (
        (name, bytes_of(changed[name]) if name in changed else read_tensor(*place))
        for name, place in kept.items()
    )
    replace_file(path, layout, contents, metadata, lambda _: None)
