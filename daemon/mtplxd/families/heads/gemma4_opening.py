"""Opens a Gemma 4 assistant, a checkpoint of its own or `mtp.*` beside its target, and binds it to that target.

An assistant takes no parameter from its target; it reads the target's table and, while drafting, its caches.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from mtplxd.errors import FailedPrecondition
from mtplxd.families.heads.bind import fill_module, pack_linears
from mtplxd.families.heads.gemma4_assistant import AssistantHead
from mtplxd.families.heads.gemma4_layers import AssistantModule
from mtplxd.families.heads.opening import dtype_of, read_lazily, text_args
from mtplxd.families.heads.row import HeadSettings
from mtplxd.families.heads.stored import dequantise_fp8
from mtplxd.families.protocols import Tap
from mtplxd.families.settling import Settler
from mtplxd.packs.detector import HeadReport
from mtplxd.packs.layouts.gemma import assistant_config
from mtplxd.packs.layouts.stored import scale_block
from mtplxd.packs.manifest import HEAD_SETTINGS
from mtplxd.packs.pack import Pack
from mtplxd.platform.mlx import Array, mx

SCHEMES = frozenset({"gemma4_assistant", "gemma4_assistant_beside"})


@dataclass(slots=True)
class AssistantWeights:
    """An assistant's tensors by the names of its own checkpoint, not yet read from disk, and what describes it."""

    tensors: dict[str, Array]
    taps: tuple[Tap, ...]
    config: dict[str, Any]
    position: str
    depth_max: int
    scale_block: tuple[int, int]


def read_assistant(pack: Pack, report: HeadReport) -> AssistantWeights:
    """The weights of an assistant that was found whole. Raises FailedPrecondition for a setting that there is not."""
    owner = pack.assistant or pack
    config = {**owner.config, **owner.text_config}
    infos = {name.removeprefix(report.prefix): info for name, (_, info) in report.located.items()}
    tensors = {name.removeprefix(report.prefix): array for name, array in read_lazily(report.located)}
    return AssistantWeights(
        tensors=tensors,
        taps=("post",),
        config=assistant_config(config, infos, own=pack.assistant is not None),
        position=_position(pack),
        depth_max=report.depth_max,
        scale_block=scale_block(config),
    )


def bind_assistant(
    weights: AssistantWeights, body: Any, settler: Settler, depth_max: int | None
) -> AssistantHead:
    """The assistant, driven beside `body`. Raises FailedPrecondition where it does not bind, or reads what the body
    does not keep."""
    sources = _sources(weights.config, text_args(body.model))
    named, weights.tensors = weights.tensors, {}
    tensors = dequantise_fp8(named, weights.scale_block)
    named.clear()
    module = AssistantModule(weights.config)
    pack_linears(module, tensors)
    _narrow_ids(tensors)
    fill_module(module, tensors, HeadSettings(), dtype_of(body.embedding), settler)
    return AssistantHead(module, body.embedding, sources, weights.position, depth_max or weights.depth_max)


def _position(pack: Pack) -> str:
    position = pack.manifest.head_settings.get("position", "hidden") if pack.manifest else "hidden"
    if position not in HEAD_SETTINGS["position"]:
        raise FailedPrecondition(
            "a setting of this pack's head is not known",
            f"position {position!r} of {pack.name}",
            f"write {' or '.join(HEAD_SETTINGS['position'])}",
        )
    return str(position)


def _sources(config: dict[str, Any], target: Any) -> dict[str, int]:
    """The last layer of each kind that keeps keys and values of its own."""
    kept = target.num_hidden_layers - target.num_kv_shared_layers
    last = {kind: layer for layer, kind in enumerate(target.layer_types[:kept])}
    if lacking := sorted(set(config["layer_types"]) - last.keys()):
        raise FailedPrecondition(
            "the target keeps no keys and values of a kind its assistant reads",
            ", ".join(lacking),
            "use the assistant that was made for it",
        )
    return {kind: last[kind] for kind in dict.fromkeys(config["layer_types"])}


def _narrow_ids(tensors: dict[str, Array]) -> None:
    """Token ids are published with 64 bits; half of that indexes any vocabulary."""
    for name in [name for name in tensors if name.endswith("token_ordering")]:
        tensors[name] = tensors[name].astype(mx.int32)
