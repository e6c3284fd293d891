"""Turns a pack into a model in memory: body through mlx-lm, head bound strictly, weights in the compute dtype.

Runs on the engine thread, which owns every array. Residency decides whether and when; the plan is not made here.
"""

from __future__ import annotations

import importlib.util
import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from mtplxd.errors import Cancelled, DataLoss, FailedPrecondition
from mtplxd.families.adapter import AdapterHead, AdapterModule, build_module
from mtplxd.families.body import Body
from mtplxd.families.protocols import Head, Target
from mtplxd.families.tokenizer import Tokenizer
from mtplxd.packs.binding import check_head
from mtplxd.packs.contents import AGAIN
from mtplxd.packs.detector import HeadReport, detect_head
from mtplxd.packs.headers import read_metadata
from mtplxd.packs.pack import Pack
from mtplxd.platform.mlx import Array, compute_dtype, mx, tree

OnProgress = Callable[[int, int], None]
"""Takes tensors done and tensors in all."""


@dataclass(slots=True)
class LoadedModel:
    """A model in memory. Bytes are those of the compute dtype; `head` is None when it decodes plainly.

    `fixed_width` is how many positions every forward of a reproducible answer has: the pack's own, head or no head in
    memory. `shape_stable` says whether such forwards give the same bits wherever they begin, None while unknown.
    """

    name: str
    pack: Pack
    target: Target
    head: Head | None
    tokenizer: Tokenizer
    bytes_body: int
    bytes_head: int
    depth_max: int
    context: int
    eos_ids: frozenset[int]
    degraded: list[str] = field(default_factory=list)
    fixed_width: int = 1
    shape_stable: bool | None = None
    _answers: dict[str, int] = field(default_factory=dict)

    def note_degraded(self, reasons: Sequence[str]) -> None:
        """Counts an answer that turned to plain decoding, for each reason it names. On the engine thread."""
        for reason in reasons:
            self._answers[reason] = self._answers.get(reason, 0) + 1

    @property
    def troubles(self) -> tuple[str, ...]:
        """What is wrong with the model, and how many answers since it was loaded lost their head for which reason."""
        answers = sorted(self._answers.copy().items())
        unstable = () if self.shape_stable is not False else ("shape_unstable",)
        return (*self.degraded, *unstable, *(f"{reason} ({count} answers)" for reason, count in answers))


def load_model(
    pack: Pack,
    *,
    plain: bool = False,
    depth_max: int | None = None,
    progress: OnProgress | None = None,
    cancelled: Callable[[], bool] | None = None,
) -> LoadedModel:
    """Loads body, head (unless `plain` or absent) and tokenizer.

    Raises DataLoss for damaged files, FailedPrecondition for a body or head this build cannot run, Cancelled.
    """
    found = detect_head(pack) if plain else check_head(pack)
    report = HeadReport(present=False) if plain else found
    with_head = report.present
    if with_head and report.layout != "adapter":
        raise FailedPrecondition("this head's layout is not supported", report.layout, "load it with --plain")
    sidecar = mx.load(str(report.file)) if with_head else {}
    taps = _taps_of(report.file) if with_head and report.file else ()
    model = _load_body(pack)
    tensors = tree.tree_flatten(model.parameters())
    watch = _Watch(len(tensors) + len(sidecar), progress, cancelled)
    _settle_all(model, tensors, watch)
    bytes_body = sum(array.nbytes for _, array in tree.tree_flatten(model.parameters()))
    body = Body(model, taps)
    head = _bind_head(sidecar, report, model, body, watch, depth_max) if with_head else None
    return LoadedModel(
        name=pack.name,
        pack=pack,
        target=body,
        head=head,
        tokenizer=Tokenizer(pack.model_path),
        bytes_body=bytes_body,
        bytes_head=head.nbytes if head else 0,
        depth_max=head.depth_max if head else 0,
        context=pack.context,
        eos_ids=_eos_ids(pack),
        fixed_width=1 + max(found.depth_max, depth_max or 0),
    )


class _Watch:
    """Casts and evaluates one tensor at a time, so that the peak stays one tensor above the model."""

    def __init__(self, total: int, progress: OnProgress | None, cancelled: Callable[[], bool] | None) -> None:
        self._done, self._total = 0, total
        self._progress, self._cancelled = progress, cancelled
        self._dtype = compute_dtype()

    def settle(self, array: Array) -> Array:
        if self._cancelled and self._cancelled():
            raise Cancelled("loading was cancelled")
        if self._dtype is not None and mx.issubdtype(array.dtype, mx.floating):
            array = array.astype(self._dtype)
        mx.eval(array)
        self._done += 1
        if self._progress:
            self._progress(self._done, self._total)
        return array


def _settle_all(model: Any, tensors: list[tuple[str, Array]], watch: _Watch) -> None:
    """Empties the list into the model; a tensor as stored is gone before the next one is read."""
    while tensors:
        name, array = tensors.pop()
        model.load_weights([(name, watch.settle(array))], strict=False)


def _load_body(pack: Pack) -> Any:
    from mlx_lm.utils import load_model as load_body

    _check_class(pack)
    try:
        model, _ = load_body(pack.model_path, lazy=True, strict=True)
    except Exception as error:  # a config that makes no model makes foreign code raise what it likes
        reason = str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
        raise DataLoss(
            "cannot load the body", f"{pack.name}: {reason}", "pull or build the pack again"
        ) from error
    if not _is_driven(model):
        raise FailedPrecondition("this body's family is not supported", pack.model_type, "see `mtplx ls`")
    return model


def _is_driven(model: Any) -> bool:
    """Whether `Body` finds its parts, and every layer keeps plain keys and values: no state that cannot go back."""
    from mlx_lm.models.cache import KVCache, make_prompt_cache

    inner = getattr(model, "model", None)
    if not hasattr(inner, "embed_tokens") or not hasattr(model.args, "vocab_size"):
        return False
    return all(type(layer) is KVCache for layer in make_prompt_cache(model))


def _check_class(pack: Pack) -> None:
    """Refuses a body that mlx-lm has no class for, or that would run code from its own files."""
    from mlx_lm.utils import MODEL_REMAPPING

    name = MODEL_REMAPPING.get(pack.model_type, pack.model_type)
    if not name.isidentifier() or importlib.util.find_spec(f"mlx_lm.models.{name}") is None:
        raise FailedPrecondition("this body's family is not supported", pack.model_type, "see `mtplx ls`")
    if "model_file" in pack.config:
        raise FailedPrecondition(
            "this pack asks to run code of its own", pack.config["model_file"], "use one that does not"
        )


def _bind_head(
    sidecar: dict[str, Array],
    report: HeadReport,
    model: Any,
    body: Body,
    watch: _Watch,
    depth_max: int | None,
) -> AdapterHead:
    weights = {name.removeprefix("mtp."): watch.settle(array) for name, array in sidecar.items()}
    draft_vocab = weights.pop("draft_vocab", None)
    module = _fill_module(model, weights)
    return AdapterHead(module, body, draft_vocab, depth_max or report.depth_max)


def _fill_module(model: Any, weights: dict[str, Array]) -> AdapterModule:
    """Strict both ways: each parameter is filled and each tensor used, else the load is refused with both lists."""
    taps = sum(name.startswith("hnorm.") for name in weights)
    module = build_module(model, taps, weights["layers.0.mlp.gate_proj.weight"].shape[0])
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


def _eos_ids(pack: Pack) -> frozenset[int]:
    """Ids that end an answer: the generation config's where it names any, else the config's."""
    file = pack.model_path / "generation_config.json"
    try:
        found = json.loads(file.read_text(encoding="utf-8"))["eos_token_id"] if file.is_file() else None
    except KeyError:
        found = None
    except (OSError, ValueError, TypeError) as error:
        raise DataLoss("damaged file", file, AGAIN) from error
    if found is None:
        found = pack.config.get("eos_token_id")
    ids = [] if found is None else found if isinstance(found, list) else [found]
    if not all(type(token) is int for token in ids):
        raise DataLoss("eos_token_id is no token id", pack.path, AGAIN)
    return frozenset(ids)
