"""A verification as asked for and as answered: checks of a client's words, the record a pack keeps, the messages.

Nothing is measured here; the engine is taken by `tuning`.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from mtplx_proto.v1 import common_pb2, tuning_pb2

from mtplxd import __version__
from mtplxd.errors import DataLoss, FailedPrecondition, InvalidArgument, MtplxError
from mtplxd.packs.detector import detect_head
from mtplxd.packs.manifest import read_manifest
from mtplxd.packs.pack import Pack, read_pack
from mtplxd.packs.tiers import judge, settings_of_head
from mtplxd.packs.verified import fingerprint_of, save_verification
from mtplxd.residency.wishes import check_depth
from mtplxd.rpc import messages
from mtplxd.rpc.measurements import machine_message
from mtplxd.rpc.status import BlasFacts
from mtplxd.tune.facts import Place
from mtplxd.tune.identity import Identity
from mtplxd.tune.measure import Progress
from mtplxd.tune.prompts import Suite, load_suite, render_prompts
from mtplxd.tune.verification import (
    DEFAULT_PROMPTS,
    DEFAULT_SAMPLES,
    DEFAULT_TOKENS,
    LEAST_SAMPLES,
    Plan,
    Verification,
    incompleteness,
    record_of,
)

if TYPE_CHECKING:
    from mtplxd.families.load import LoadedModel

log = logging.getLogger(__name__)

REASON = "verifying"
"""What others wait for meanwhile."""
_MOST_SAMPLES = 1_000_000


@dataclass(frozen=True)
class Asked:
    """A verification as asked, checked as far as it can be without its model; no depths means all there are."""

    depths: tuple[int, ...]
    tokens: int
    samples: int
    suite: Suite
    dry_run: bool


@dataclass(frozen=True)
class Ready:
    """What the engine is to do with a model in memory, the files it was loaded from, and its longest prompt."""

    plan: Plan
    fingerprint: dict[str, str]

    @property
    def longest(self) -> int:
        return max(map(len, self.plan.prompts))


@dataclass(frozen=True)
class Kept:
    """Whether the record was written, what hindered it where it should have been, or what it would have lacked.

    `withdrawn` = what vouched for these files before does so no longer.
    """

    recorded: bool = False
    hindrance: str = ""
    incomplete: str = ""
    withdrawn: bool = False


def read_verify(request: Any) -> Asked:
    """A VerifyRequest, checked; reads the suite. Raises InvalidArgument naming the field."""
    samples, tokens = request.samples or DEFAULT_SAMPLES, request.max_tokens or DEFAULT_TOKENS
    if not LEAST_SAMPLES <= samples <= _MOST_SAMPLES:
        fix = f"give {LEAST_SAMPLES} to {_MOST_SAMPLES}"
        raise InvalidArgument("samples are out of range", samples, fix, field="samples")
    depths = tuple(sorted({0, *request.depths})) if request.depths else ()
    if depths == (0,):
        raise InvalidArgument("nothing to compare", "depth 0", "give a depth above 0", field="depths")
    suite = load_suite("", request.prompts or DEFAULT_PROMPTS)
    return Asked(depths, tokens, samples, suite, request.dry_run)


def prepare(asked: Asked, model: LoadedModel) -> Ready:
    """Settles what depends on the model; reads its weights once.

    Raises FailedPrecondition, InvalidArgument, and DataLoss for a contract file that no record can be put into.
    """
    if model.head is None:
        raise FailedPrecondition("model is without an MTP head", model.name, "there is nothing to verify")
    if not asked.dry_run:
        read_manifest(
            model.pack.path
        )  # the record goes there: what is damaged now is not found out at the end
    for depth in asked.depths:
        check_depth(depth, model.depth_max, model.name)
    if changed := model.pack.changed_files:
        fix = f"`mtplx unload {model.name}`, then verify again"
        raise FailedPrecondition("the pack changed after it was loaded", changed[0], fix)
    plan = Plan(
        prompts=tuple(map(tuple, render_prompts(asked.suite, model.tokenizer))),
        seeds=tuple(prompt.seed for prompt in asked.suite.prompts),
        depths=asked.depths or tuple(range(model.depth_max + 1)),
        tokens=asked.tokens,
        samples=asked.samples,
    )
    return Ready(plan, fingerprint_of(model.pack))


def keep(
    found: Verification,
    asked: Asked,
    pack: Pack,
    depth_max: int,
    fingerprint: dict[str, str],
    place: Place,
    blas: BlasFacts,
) -> Kept:
    """Writes the record of a verification that passed and left nothing open; no finding is lost where it cannot.

    One that failed is written where something else vouches for these files: it goes before that.
    """
    if asked.dry_run or not (found.passed or _is_vouched_for(pack)):
        return Kept()
    if found.passed and (incomplete := incompleteness(found, depth_max)):
        return Kept(incomplete=incomplete)
    if pack.changed_files:
        return Kept(hindrance=f"the pack changed while it was verified ({pack.changed_files[0]})")
    day = datetime.now(UTC).date().isoformat()
    record = record_of(found, fingerprint, day, __version__, _machine_fields(place, blas))
    record["head_settings"] = settings_of_head(pack, detect_head(pack))
    try:
        save_verification(pack, record)
    except OSError as error:
        log.warning("the verification of %s was not recorded: %s", pack.name, error.strerror)
        return Kept(hindrance=f"cannot write into the pack ({pack.path}): {error.strerror}")
    except DataLoss as error:
        return Kept(hindrance=str(error))
    return Kept(recorded=found.passed, withdrawn=not found.passed)


def _is_vouched_for(pack: Pack) -> bool:
    """Whether its files as they are now count as verified."""
    try:
        return judge(read_pack(pack.path))[0] == "verified"
    except MtplxError:
        return False


def load_event(done: int, total: int) -> tuning_pb2.VerifyEvent:
    return tuning_pb2.VerifyEvent(progress=messages.progress("load", done, total))


def progress_event(step: Progress) -> tuning_pb2.VerifyEvent:
    progress = common_pb2.Progress(
        stage="verify", done=step.done, total=step.total, unit="tokens", eta_s=step.eta_s
    )
    return tuning_pb2.VerifyEvent(progress=progress)


def verification_message(
    found: Verification, model: str, fingerprint: dict[str, str], kept: Kept, place: Place, blas: BlasFacts
) -> tuning_pb2.Verification:
    law = found.law
    return tuning_pb2.Verification(
        model=model,
        shape_noise=found.shape_noise,
        greedy=_identity_message(found.greedy),
        coupled=_identity_message(found.coupled),
        law=tuning_pb2.LawTest(
            test=law.test,
            tokens=law.tokens,
            statistic=law.statistic,
            p_value=law.p_value,
            power=law.power,
            alternative=law.alternative,
        ),
        passed=found.passed,
        failures=found.failures,
        recorded=kept.recorded,
        unrecorded=kept.hindrance,
        incomplete=kept.incomplete,
        depths=found.depths,
        fingerprint_body=fingerprint["body"],
        fingerprint_head=fingerprint["head"],
        machine=machine_message(place, blas),
    )


def _identity_message(found: Identity) -> tuning_pb2.Identity:
    return tuning_pb2.Identity(
        tokens=found.tokens,
        divergences=found.divergences,
        near_ties=found.near_ties,
        found=[
            tuning_pb2.Divergence(
                prompt=one.prompt,
                depth=one.depth,
                position=one.position,
                margin=one.margin,
                near_tie=one.near_tie,
            )
            for one in found.found
        ],
    )


def _machine_fields(place: Place, blas: BlasFacts) -> dict[str, Any]:
    """The machine as the record names it."""
    machine = place.machine
    return {"chip": machine.chip, "os": machine.os, "mlx": place.mlx, "blas": blas.name}
