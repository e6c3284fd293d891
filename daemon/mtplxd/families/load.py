"""Turns a pack into a model in memory: body through mlx-lm, head bound strictly, weights in the compute dtype.

Runs on the engine thread, which owns every array. Residency decides whether and when; the plan is not made here.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import count

from mtplxd.errors import DataLoss
from mtplxd.families.heads.row import HeadSettings
from mtplxd.families.load_body import load_body, open_body, settle_body
from mtplxd.families.load_head import bind_head, read_head
from mtplxd.families.protocols import Head, Target
from mtplxd.families.settling import OnProgress, Settler
from mtplxd.families.tokenizer import Tokenizer
from mtplxd.packs.binding import check_head
from mtplxd.packs.contents import AGAIN
from mtplxd.packs.detector import HeadReport, detect_head
from mtplxd.packs.memory import Footprint
from mtplxd.packs.pack import Pack
from mtplxd.platform.mlx import tree


@dataclass(slots=True)
class LoadedModel:
    """A model in memory. Bytes are those of the compute dtype; `head` is None when it decodes plainly.

    `fixed_width` is how many positions every forward of a reproducible answer has: the pack's own, head or no head in
    memory. `head_settings` are how a published head is fed, as decided at load. `shape_stable` says whether such
    forwards give the same bits wherever they begin, None while unknown. `apart` says in a sentence why rows of this
    model take turns, "" where they share forwards. `footprint` is what a row takes, nothing where nobody measured it.
    `number` is of no other load of this process. `content` names body and head by what they are, once somebody asked.
    `depths` is the engine's own: what it has learnt of depths that pay.
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
    head_settings: HeadSettings | None = None
    shape_stable: bool | None = None
    apart: str = ""
    footprint: Footprint = field(default_factory=Footprint)
    depths: object = field(default=None, repr=False)
    content: tuple[str, str] | None = None
    number: int = field(default_factory=count(1).__next__, init=False)
    _answers: dict[str, int] = field(default_factory=dict)

    def note_degraded(self, reasons: Sequence[str]) -> None:
        """Counts an answer that lost its head or came to no end of its own, for each reason. On the engine thread."""
        for reason in reasons:
            self._answers[reason] = self._answers.get(reason, 0) + 1

    @property
    def troubles(self) -> tuple[str, ...]:
        """What is wrong with the model, and how many answers since it was loaded it was noted with, by reason."""
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
    weights = read_head(pack, report) if report.present else None
    eos_ids = _eos_ids(pack)
    model = load_body(pack)
    tokenizer = Tokenizer(pack.model_path)  # what can be refused is, before any weight is in memory
    tensors = tree.tree_flatten(model.parameters())
    settler = Settler(len(tensors) + len(weights.tensors if weights else ()), progress, cancelled)
    bytes_body = settle_body(model, tensors, settler)
    body, troubles = open_body(model, weights.taps if weights else ())
    bound = bind_head(weights, report, body, settler, depth_max) if weights else None
    return LoadedModel(
        name=pack.name,
        pack=pack,
        target=body,
        head=bound.head if bound else None,
        tokenizer=tokenizer,
        bytes_body=bytes_body,
        bytes_head=bound.nbytes if bound else 0,
        depth_max=bound.head.depth_max if bound else 0,
        context=pack.context,
        eos_ids=eos_ids,
        degraded=[*troubles, *(bound.troubles if bound else ())],
        fixed_width=1 + max(found.depth_max, depth_max or 0),
        head_settings=bound.settings if bound else None,
        apart=body.apart or (bound.apart if bound else ""),
    )


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
