"""The head's half of loading: its tensors found, bound strictly both ways, and put behind the engine's `Head`.

Says nothing of the body's own weights; composing both is `load`'s.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from mtplxd.errors import DataLoss, FailedPrecondition
from mtplxd.families.adapter import AdapterHead, AdapterModule, build_module
from mtplxd.families.body import Body
from mtplxd.families.foreign import blamed_on_config
from mtplxd.families.heads.gemma4_opening import SCHEMES, AssistantWeights, bind_assistant, read_assistant
from mtplxd.families.heads.opening import PublishedWeights, bind_published, read_published
from mtplxd.families.heads.row import HeadSettings
from mtplxd.families.protocols import Head, Tap
from mtplxd.families.settling import Settler
from mtplxd.packs.detector import HeadReport
from mtplxd.packs.headers import read_metadata
from mtplxd.packs.layouts.adapter import BlockSizes, parse_block
from mtplxd.packs.pack import Pack
from mtplxd.platform.mlx import Array, mx, tree


@dataclass(slots=True)
class AdapterWeights:
    """An adapter's tensors by stored name, not yet read from disk, the hidden states of the body that it takes, and the
    sizes of its block where that is not of the body's kind."""

    tensors: dict[str, Array]
    taps: tuple[Tap, ...]
    block: BlockSizes | None = None


@dataclass(slots=True)
class BoundHead:
    """A head that can be driven, the bytes it adds to its body, how a published one is fed, what is slow about it.

    `apart` says why its rows cannot share forwards, "" where they can.
    """

    head: Head
    nbytes: int
    settings: HeadSettings | None = None
    troubles: list[str] = field(default_factory=list)
    apart: str = ""


HeadWeights = AdapterWeights | PublishedWeights | AssistantWeights


def read_head(pack: Pack, report: HeadReport) -> HeadWeights:
    """The weights of a head that was found whole. Raises FailedPrecondition for one this build has no module for."""
    if report.layout == "adapter" and report.file is not None:
        sizes = parse_block(report.metadata)  # the detector has refused what are none
        return AdapterWeights(mx.load(str(report.file)), _taps_of(report.file), sizes)
    if report.scheme in SCHEMES:
        return read_assistant(pack, report)
    return read_published(pack, report)


def bind_head(
    weights: HeadWeights,
    report: HeadReport,
    body: Body,
    settler: Settler,
    depth_max: int | None,
) -> BoundHead:
    """Fills the head's module to the last tensor. `depth_max` raises or lowers the family's own.

    Raises FailedPrecondition with both lists where tensors are missing or left over, DataLoss where the config makes
    no module.
    """
    with blamed_on_config("the head cannot be built as its config says"):
        return _bind(weights, report, body, settler, depth_max)


def _bind(
    weights: HeadWeights, report: HeadReport, body: Body, settler: Settler, depth_max: int | None
) -> BoundHead:
    if isinstance(weights, PublishedWeights):
        published, slow = bind_published(weights, body, settler, depth_max)
        return BoundHead(published, published.nbytes, published.settings, slow, published.apart)
    if isinstance(weights, AssistantWeights):
        assistant = bind_assistant(weights, body, settler, depth_max)
        return BoundHead(assistant, assistant.nbytes)
    named = {name.removeprefix("mtp."): settler.settle(array) for name, array in weights.tensors.items()}
    draft_vocab = named.pop("draft_vocab", None)
    module = _fill_module(body.model, named, weights.block)
    head = AdapterHead(module, body, draft_vocab, depth_max or report.depth_max)
    return BoundHead(head, head.nbytes)


def _fill_module(model: Any, weights: dict[str, Array], sizes: BlockSizes | None) -> AdapterModule:
    """Strict both ways: each parameter is filled and each tensor used, else the load is refused with both lists."""
    taps = sum(name.startswith("hnorm.") for name in weights)
    module = build_module(model, taps, weights["layers.0.mlp.gate_proj.weight"].shape[0], sizes)
    wanted = {name for name, _ in tree.tree_flatten(module.parameters())}
    missing, extra = sorted(wanted - weights.keys()), sorted(weights.keys() - wanted)
    if missing or extra:
        raise FailedPrecondition(
            "the head does not bind", f"missing {missing}, unused {extra}", "forge it again"
        )
    module.load_weights(list(weights.items()), strict=True)
    return module


def _taps_of(sidecar: Path) -> tuple[int, ...]:
    text = read_metadata(sidecar).get("taps", "")
    try:
        return tuple(int(tap) for tap in text.split(","))
    except ValueError as error:
        raise DataLoss(
            "the head does not say its taps", f"{sidecar.name}: {text!r}", "forge it again"
        ) from error
