"""Step `inspect`: whether a build of this source can come to anything, by the one detector and its files' headers."""

from __future__ import annotations

from pathlib import Path

from mtplxd.errors import DataLoss, InvalidArgument
from mtplxd.forge.shipped import ships_head, why_none
from mtplxd.forge.work import Json, Lost, Made, Step, Work
from mtplxd.packs.bodies import body_faults
from mtplxd.packs.detector import HeadReport, detect_head
from mtplxd.packs.pack import Pack, read_pack


def _inputs(work: Work) -> Json:
    return {"source": work.product("fetch"), "train": work.recipe.train}


def _make(work: Work, layer: Path) -> Made:  # noqa: ARG001 - it makes no file
    work.tell("inspect", 0, 1, "")
    try:
        pack = read_pack(work.place("fetch"))
    except DataLoss as error:
        raise Lost("unsupported_source", [error.what]) from None
    head = detect_head(pack)
    found = describe_source(pack, head)
    if reasons := [*body_faults(pack.config), *work.parts.storage_faults(pack), *head.obstacles]:
        raise Lost("unsupported_source", reasons, found)
    if not ships_head(head) and not work.recipe.train:
        raise Lost("no_mtp_head", [*why_none(head), *head.notes, "--train makes one"], found)
    if not ships_head(head) and work.recipe.head_bits is not None:
        fix = "leave head_bits out"
        raise InvalidArgument("there is no head to pack", work.recipe.head_bits, fix, field="head_bits")
    return Made(found, names=())


def describe_source(pack: Pack, head: HeadReport) -> dict[str, Json]:
    """What was found, as JSON."""
    quantisation = pack.config.get("quantization") or pack.config.get("quantization_config")
    return {
        "family": pack.family,
        "model_type": pack.model_type,
        "source_format": "mlx" if "quantization" in pack.config else "safetensors",
        "quantisation": quantisation,
        "head": {
            "present": ships_head(head),
            "layout": head.layout,
            "scheme": head.scheme,
            "tensors": head.tensors,
            "layers": head.layers,
            "depth_max": head.depth_max,
        },
        "notes": list(head.notes),
    }


def has_head(work: Work) -> bool:
    """Whether the source ships one."""
    return bool(work.result("inspect").get("head", {}).get("present"))


INSPECT = Step("inspect", _inputs, _make)
