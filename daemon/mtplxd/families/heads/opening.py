"""Opens a published head: finds its tensors and settings in a pack, then binds and drives it beside its body.

Copies of the body's embedding and output matrix are dropped here where they are the body's bytes.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

from mtplxd.errors import DataLoss, FailedPrecondition
from mtplxd.families.heads import find_family
from mtplxd.families.heads.bind import build_module, fill_module, norms_of, place_tensors
from mtplxd.families.heads.chain import ChainHead
from mtplxd.families.heads.driver import PublishedHead
from mtplxd.families.heads.norms import convention_of_body, decide_convention
from mtplxd.families.heads.row import HeadFamily, HeadSettings
from mtplxd.families.latent import absorb_latent
from mtplxd.families.protocols import Tap
from mtplxd.families.settling import Settler
from mtplxd.packs.binding import differing_copies
from mtplxd.packs.contents import AGAIN
from mtplxd.packs.detector import HeadReport
from mtplxd.packs.layouts import LAYOUTS
from mtplxd.packs.layouts.find import body_layers
from mtplxd.packs.layouts.stored import scale_block
from mtplxd.packs.pack import Located, Pack
from mtplxd.platform.mlx import Array, mx

_BODY_NORM = re.compile(r"(?:^|\.)layers\.(\d{1,6})\.input_layernorm\.weight$")


@dataclass(slots=True)
class PublishedWeights:
    """A head's tensors by published name, not yet read from disk, and what the pack says of how they are used.

    `wrap` stood before the names in the files. `body_layers` is the body's count, `layers` the head's; `body_norms`
    are some of the body's norms as stored, by layer.
    """

    tensors: dict[str, Array]
    wrap: str
    taps: tuple[Tap, ...]
    family: HeadFamily
    settings: HeadSettings
    config: dict[str, Any]
    body_layers: int
    layers: int
    depth_max: int
    scale_block: tuple[int, int]
    body_norms: dict[int, Array]


def read_published(pack: Pack, report: HeadReport) -> PublishedWeights:
    """The weights of a head that was found whole.

    Raises FailedPrecondition for a family or a setting this build does not know, DataLoss for damaged files.
    """
    family = find_family(pack.family, report.scheme)
    if family is None:
        raise FailedPrecondition(
            "this head's layout is not supported",
            f"{report.layout} of {pack.name}",
            "load it with --plain",
        )
    stated = pack.manifest.head_settings if pack.manifest else {}
    settings = family.settings.overridden(stated, pack.name)
    config, layers = {**pack.config, **pack.text_config}, body_layers(pack.text_config)
    wrap = _wrap_of(report, layers)
    return PublishedWeights(
        tensors=_own_tensors(pack, report, wrap),
        wrap=wrap,
        taps=(settings.tap,),
        family=family,
        settings=settings,
        config=config,
        body_layers=layers,
        layers=report.layers,
        depth_max=report.depth_max,
        scale_block=scale_block(config),
        body_norms=_body_norms(pack) if settings.norm_convention == "decide" else {},
    )


def bind_published(
    weights: PublishedWeights, body: Any, settler: Settler, depth_max: int | None
) -> tuple[PublishedHead, list[str]]:
    """The head, driven beside `body`, and what is slow about it. Raises FailedPrecondition where it does not bind."""
    family, args = weights.family, text_args(body.model)
    chained = family.chained or weights.layers > 1
    if depth_max and chained and depth_max > weights.layers:
        raise FailedPrecondition(
            "this head drafts one token a layer", f"depth {depth_max}", f"use at most {weights.layers}"
        )
    named, weights.tensors = weights.tensors, {}
    placed = place_tensors(named, family, args, weights.body_layers, weights.scale_block)
    named.clear()
    settings = decide_settings(weights, placed, body.model)
    module = build_module(placed, family, settings, args, weights.layers)
    fill_module(module, placed, settings, dtype_of(body.embedding), settler)
    slow = absorb_latent(module)
    driver = ChainHead if chained else family.driver(weights.config) or PublishedHead
    return driver(module, family, settings, body, args, depth_max or weights.depth_max), slow


def decide_settings(weights: PublishedWeights, placed: Mapping[str, Array], model: Any) -> HeadSettings:
    """How a head is fed, its norms' convention decided where neither family nor pack says it. `placed` are its tensors
    by path, `model` its body's. Raises FailedPrecondition where nothing decides."""
    if weights.settings.norm_convention != "decide":
        return weights.settings
    of_body = convention_of_body(_norm_pairs(weights.body_norms, model))
    return replace(weights.settings, norm_convention=decide_convention(norms_of(placed), of_body))


def text_args(model: Any) -> Any:
    """The arguments of the language model, which may be wrapped."""
    return getattr(model, "language_model", model).args


def _wrap_of(report: HeadReport, layers: int) -> str:
    row = next(row for row in LAYOUTS if row.name == report.scheme)
    return report.prefix.removesuffix(row.prefix.replace("{N}", str(layers)))


def _own_tensors(pack: Pack, report: HeadReport, wrap: str) -> dict[str, Array]:
    """By published name, without the body's embedding and output matrix where they only repeat it."""
    repeated = report.copies.keys() - set(differing_copies(report, pack.body_tensors))
    wanted = {name: place for name, place in report.located.items() if name not in repeated}
    return {name.removeprefix(wrap): array for name, array in read_lazily(wanted)}


def _body_norms(pack: Pack) -> dict[int, Array]:
    """By layer, of the language model: a vision tower may have layers named alike."""
    names = {
        name: int(match[1])
        for name in pack.body_tensors
        if (match := _BODY_NORM.search(name)) and "vision" not in name and "visual" not in name
    }
    located = {name: pack.body_tensors[name] for name in names}
    return {names[name]: array for name, array in read_lazily(located)}


def _norm_pairs(stored: dict[int, Array], model: Any) -> Iterator[tuple[Array, Array]]:
    layers = model.layers
    return (
        (array, layers[number].input_layernorm.weight)
        for number, array in sorted(stored.items())
        if number < len(layers)
    )


def read_lazily(located: Located) -> Iterator[tuple[str, Array]]:
    """Tensors of several files; MLX reads each when it is first used."""
    for path in sorted({path for path, _ in located.values()}):
        try:
            tensors = mx.load(str(path))
        except RuntimeError as error:
            raise DataLoss("damaged weights file", path, AGAIN) from error
        yield from ((name, tensors[name]) for name, (file, _) in located.items() if file == path)


def dtype_of(embedding: Any) -> Any:
    """The dtype the body computes in."""
    return getattr(embedding, "scales", embedding.weight).dtype
