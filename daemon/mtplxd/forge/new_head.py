"""Trains a head for a body that has none, and keeps it only if held-out text gains more than by guessing.

Owns sizes and the result; the run itself is `adapter_run`'s.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from mtplxd.families.adapter import hidden_size_of
from mtplxd.families.load import LoadedModel
from mtplxd.forge.adapter_run import AdapterRun
from mtplxd.forge.course import rounded
from mtplxd.forge.generating import Asker
from mtplxd.forge.pacing import Pace
from mtplxd.forge.sizing import QUICK_NEW, WHOLE_NEW, Recipe, Sizes, settle_new, settle_sizes
from mtplxd.forge.train_plan import TrainPlan
from mtplxd.forge.training import ORIGIN, SIDECAR, WORK, Training, keep_training, read_training
from mtplxd.forge.training_verdict import judge_training
from mtplxd.packs.fingerprint import body_fingerprint, head_fingerprint
from mtplxd.packs.headers import read_headers

CHECKS = 4
"""How often a training is saved and measured on its way."""


class NewHead:
    """A run for a model that was loaded plainly; `prompts` is the digest of a user's own, empty for the built-in."""

    def __init__(
        self,
        run_folder: Path,
        model: LoadedModel,
        plan: TrainPlan,
        asker: Asker,
        prompts: str,
        pace: Pace,
    ) -> None:
        self._run, self._model, self._plan = run_folder, model, plan
        sizes = settle_sizes(plan, QUICK_NEW, WHOLE_NEW, model.context, model.apart)
        self._recipe = _recipe(model, plan, sizes)
        self._adapter = AdapterRun(
            run_folder / WORK,
            model,
            self._recipe,
            pace,
            replace(asker, held_out=asker.held_out[: sizes.held_out]),
            raw=plan.raw,
            check_every=max(1, -(-sizes.steps // CHECKS)),
            asked={"prompts": prompts, "raw": str(plan.raw)},
        )

    def execute(self) -> Training:
        """Runs what is not yet done."""
        if (done := read_training(self._run)) is not None:
            return done
        sidecar = self._adapter.execute(self._run / SIDECAR, origin=ORIGIN)
        before, guess = self._adapter.measure_beginning(), self._adapter.guess()
        after = self._adapter.read_back(sidecar)
        reason = judge_training(before, after, guess)
        recipe = self._recipe
        training = Training(
            method="new",
            reason=reason,
            sidecar="" if reason else SIDECAR,
            body_fingerprint=body_fingerprint(self._model.pack),
            head_fingerprint="" if reason else head_fingerprint(sidecar),
            parent_fingerprint="",
            before=rounded(before),
            after=rounded(after),
            guess=round(guess, 4),
            tokens=recipe.tokens,
            steps=recipe.schedule.steps,
            parameters=sum(info.size for info in read_headers(sidecar).values() if info.dtype != "I32"),
            settings=self._plan.document(),
        )
        if reason:
            sidecar.unlink()
        keep_training(self._run, training)
        return training


def _recipe(model: LoadedModel, plan: TrainPlan, sizes: Sizes) -> Recipe:
    config = model.pack.text_config
    return settle_new(
        plan,
        sizes,
        layers=int(config["num_hidden_layers"]),
        hidden=hidden_size_of(model.target.model),  # type: ignore[attr-defined]
        mlp=config.get("intermediate_size"),
        vocab=model.target.vocab_size,
    )
