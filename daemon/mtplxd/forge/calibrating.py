"""The step *calibrate*: every way of feeding a pack's head is tried along what its target says by itself.

It makes the texts, counts the rounds and says what came of it; what that means is `calibration_choice`'s. Nothing is
written: the contract is changed by whoever keeps the result (`contract.record_calibration`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal

from mtplxd.errors import Cancelled, InvalidArgument
from mtplxd.families.heads.driver import PublishedHead
from mtplxd.families.heads.feeding import choose_tap, fed, open_all_taps, ways_to_feed
from mtplxd.families.heads.row import HeadSettings
from mtplxd.families.load import LoadedModel, load_model
from mtplxd.forge.calibration_choice import Choice, Sample, Switch, choose, is_hopeless
from mtplxd.forge.contract import declared_settings
from mtplxd.forge.pacing import IsCancelled, Tell
from mtplxd.forge.spoken import Spoken, speak
from mtplxd.forge.walking import walk
from mtplxd.packs.pack import read_pack
from mtplxd.tune.prompts import load_suite

STAGE = "calibrate"
PROMPTS = 16
MIN_TEXTS = 8
TOKENS = 64
"""Tokens a text whose rounds are counted."""
PROMPT_TOKENS = 300
"""The end of a longer prompt is taken: how a head is fed shows in its newest pairs."""
DEPTH = 3
"""Drafts a round where a single layer is fed on; more layers draft one each."""


@dataclass(frozen=True)
class Tried:
    """One way of feeding and what it came to. Acceptance is by position, over all rounds."""

    settings: Mapping[str, str]
    prompts: int
    rounds: int
    tokens_per_round: float
    acceptance: tuple[float, ...]


@dataclass(frozen=True)
class Calibration:
    """`settings` are how the head is to be fed, `declared` how it was; both are empty for a head with nothing to choose
    (`fixed`). `calibration_failed` means that no way has drafts accepted. `message` says it in a sentence.
    """

    status: Literal["confirmed", "changed", "inconclusive", "calibration_failed", "fixed"]
    declared: Mapping[str, str]
    settings: Mapping[str, str]
    switches: tuple[Switch, ...]
    tried: tuple[Tried, ...]
    depth: int
    message: str

    @property
    def failure_reason(self) -> str | None:
        """Why the build cannot go on, None where it can."""
        return f"calibration_failed: {self.message}" if self.status == "calibration_failed" else None

    def document(self) -> dict[str, Any]:
        """As JSON."""
        return {
            "status": self.status,
            "declared": dict(self.declared),
            "settings": dict(self.settings),
            "switches": [asdict(switch) for switch in self.switches],
            "tried": [
                {**asdict(way), "settings": dict(way.settings), "acceptance": list(way.acceptance)}
                for way in self.tried
            ],
            "depth": self.depth,
            "message": self.message,
        }


def calibrate(
    folder: Path, tell: Tell, cancelled: IsCancelled, texts: Sequence[str] | None = None
) -> Calibration:
    """Tries the head of the pack in `folder` along `texts` (the built-in ones unless given, at least 8).

    Raises FailedPrecondition for a head that does not bind, DataLoss for damaged files, Cancelled.
    """
    if texts is not None and len(texts) < MIN_TEXTS:
        raise InvalidArgument("too few texts to calibrate on", len(texts), f"give at least {MIN_TEXTS}")
    pack = read_pack(folder)
    model = load_model(pack, cancelled=cancelled)
    head = model.head
    if not isinstance(head, PublishedHead):
        return _fixed("this head is fed in one way only")
    declared = head.settings.overridden(declared_settings(pack.manifest), pack.name)
    depth = len(head.module.layers) if len(head.module.layers) > 1 else DEPTH
    prompts = _prompts(model, depth, texts)
    said = _listen(head, prompts, depth, tell, cancelled)
    table = try_ways(head, declared, said, depth, tell, cancelled)
    return conclude(declared, table, depth)


def try_ways(
    head: PublishedHead,
    declared: HeadSettings,
    said: Sequence[Spoken],
    depth: int,
    tell: Tell,
    cancelled: IsCancelled,
) -> dict[HeadSettings, Sample]:
    """Every way's rounds along the texts, the declared one's first; a hopeless one is left before the last text."""
    ways = sorted(ways_to_feed(head), key=lambda way: way != declared)
    table: dict[HeadSettings, Sample] = {}
    for place, way in enumerate(ways):
        best = max(table.values(), key=lambda sample: sample.tokens_per_round, default=None)
        table[way] = Sample(())
        with fed(head, way) as trial:
            for text in said:
                rounds = _rounds(trial, way, text, depth, cancelled)
                table[way] = Sample((*table[way].rounds, rounds))
                if is_hopeless(table[way], best):
                    break
        tell(STAGE, place + 1, len(ways), _words(way))
    return table


def conclude(declared: HeadSettings, table: Mapping[HeadSettings, Sample], depth: int) -> Calibration:
    """What the counts mean, with all that was tried."""
    found = choose(declared, table)
    return Calibration(
        status=found.status,
        declared=_named(declared),
        settings=_named(found.settings),
        switches=found.switches,
        tried=tuple(_tried(way, sample, depth) for way, sample in table.items()),
        depth=depth,
        message=_message(found, table),
    )


def _fixed(message: str) -> Calibration:
    return Calibration("fixed", {}, {}, (), (), 0, message)


def _prompts(model: LoadedModel, depth: int, texts: Sequence[str] | None) -> list[list[int]]:
    if texts is None:
        texts = [prompt.text for prompt in load_suite(count=PROMPTS).prompts]
    most = min(PROMPT_TOKENS, model.context - TOKENS - depth) if model.context else PROMPT_TOKENS
    return [_tokens(model, text)[-max(most, 1) :] for text in texts]


def _tokens(model: LoadedModel, text: str) -> list[int]:
    """The text as a question, or as it is where the model was never made to answer any."""
    try:
        return model.tokenizer.render_chat([{"role": "user", "content": text}])
    except InvalidArgument:
        return model.tokenizer.encode(text)


def _listen(
    head: PublishedHead, prompts: Sequence[Sequence[int]], depth: int, tell: Tell, cancelled: IsCancelled
) -> list[Spoken]:
    body, said = open_all_taps(head.body), []
    for place, prompt in enumerate(prompts):
        said.append(speak(body, prompt, TOKENS + depth, cancelled))
        tell(STAGE, place + 1, len(prompts), "the target speaks")
    return said


def _rounds(
    head: PublishedHead, way: HeadSettings, text: Spoken, depth: int, cancelled: IsCancelled
) -> tuple[int, ...]:
    if cancelled():
        raise Cancelled("the build was cancelled while it was to calibrate")
    return tuple(walk(head, text, choose_tap(text.taps, way), depth))


def _tried(way: HeadSettings, sample: Sample, depth: int) -> Tried:
    acceptance = tuple(round(share, 4) for share in sample.acceptance(depth))
    return Tried(_named(way), len(sample.rounds), sample.count, round(sample.tokens_per_round, 3), acceptance)


def _named(way: HeadSettings) -> dict[str, str]:
    return {name: str(value) for name, value in asdict(way).items()}


def _words(way: HeadSettings) -> str:
    return ", ".join(f"{name} {value}" for name, value in _named(way).items())


def _message(found: Choice, table: Mapping[HeadSettings, Sample]) -> str:
    if found.status == "calibration_failed":
        return f"the head has no drafts accepted in any of {len(table)} ways of feeding it"
    changed = [
        f"{switch.name} {switch.chosen} instead of {switch.declared} ({switch.lead:+.2f} tokens a round)"
        for switch in found.switches
        if switch.verdict == "changed"
    ]
    unclear = [switch.name for switch in found.switches if switch.verdict == "inconclusive"]
    parts = [f"changed: {', '.join(changed)}"] if changed else []
    parts += [f"inconclusive, kept as declared: {', '.join(unclear)}"] if unclear else []
    return "; ".join(parts) or "every declared setting is clearly the better one"
