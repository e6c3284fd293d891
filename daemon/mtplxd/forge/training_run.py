"""The train step of a build: a new head for a pack that has none, or more training for the one it has.

Both load the pack, work below the run's folder alone and give a result; the pack itself is left as it is.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from mtplxd.errors import FailedPrecondition
from mtplxd.families.load import LoadedModel, load_model
from mtplxd.forge.fine_tuning import FineTuning, facts_of
from mtplxd.forge.generating import Asker
from mtplxd.forge.new_head import NewHead
from mtplxd.forge.pacing import IsCancelled, Pace, ShouldWait, Tell, at_once, never
from mtplxd.forge.prompt_file import ask_from, digest_of, read_prompts
from mtplxd.forge.prompts import draw_prompt
from mtplxd.forge.questions import HELD_OUT
from mtplxd.forge.rollout import Rng
from mtplxd.forge.sizing import settle_tuning
from mtplxd.forge.train_plan import TrainPlan
from mtplxd.forge.training import Training
from mtplxd.packs.pack import read_pack
from mtplxd.platform.mlx import mx


def train_new_head(
    pack_folder: Path,
    run_folder: Path,
    plan: TrainPlan,
    tell: Tell,
    cancelled: IsCancelled = never,
    should_wait: ShouldWait = at_once,
) -> Training:
    """A head for the body in a folder, trained on what that says itself.

    Goes on where an earlier call stopped, and gives the result of one that did not. Raises Cancelled, InvalidArgument
    for the prompts, what loading a pack raises, and FailedPrecondition where the run was begun with another plan.
    """
    asker, digest = _asker(plan)
    model = _load(pack_folder, tell, cancelled, plain=True)
    pace = Pace(tell, cancelled, should_wait)
    return NewHead(run_folder, model, plan, _cut(asker, model), digest, pace).execute()


def fine_tune_head(
    pack_folder: Path,
    run_folder: Path,
    plan: TrainPlan,
    tell: Tell,
    cancelled: IsCancelled = never,
    should_wait: ShouldWait = at_once,
) -> Training:
    """The same for the head that a pack has; also raises FailedPrecondition for a head that cannot be trained."""
    asker, digest = _asker(plan)
    model = _load(pack_folder, tell, cancelled, plain=False)
    if model.head is None:
        raise FailedPrecondition("this pack has no head to train", model.name, "train a new one")
    tuning = settle_tuning(plan, facts_of(model), digest)
    pace = Pace(tell, cancelled, should_wait)
    return FineTuning(run_folder, model, tuning, _cut(asker, model), pace).execute()


def _load(pack_folder: Path, tell: Tell, cancelled: IsCancelled, *, plain: bool) -> LoadedModel:
    pack = read_pack(pack_folder)
    tell("load", 0, 1, pack.name)
    model = load_model(pack, plain=plain, cancelled=cancelled)
    mx.clear_cache()
    tell("load", 1, 1, pack.name)
    return model


def _asker(plan: TrainPlan) -> tuple[Asker, str]:
    """What is asked, and the digest of a user's prompts, empty for the built-in ones."""
    if plan.prompts is None:
        return Asker(draw_prompt, HELD_OUT), ""
    prompts = read_prompts(plan.prompts)
    return ask_from(prompts), digest_of(prompts)


def _cut(asker: Asker, model: LoadedModel) -> Asker:
    """With questions of at most a fifth of the context, and no more than half of a row, so that answers have room."""
    most = max(1, min(64, model.context // 5))

    def shortened(text: str) -> str:
        ids = model.tokenizer.encode(text)
        return text if len(ids) <= most else model.tokenizer.decode(ids[:most])

    def draw(rng: Rng) -> str:
        return shortened(asker.draw(rng))

    return replace(asker, draw=draw, held_out=[shortened(text) for text in asker.held_out])
