"""Trains a head that is there on what its target says, the target frozen, and keeps it only if held-out text gains.

Owns the order of the steps and what is on disk for each. It writes below the run's folder alone: putting the head
into a pack is the caller's.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from mtplxd.families.adapter import AdapterHead
from mtplxd.families.heads.driver import PublishedHead
from mtplxd.families.heads.opening import read_published
from mtplxd.families.heads.unplace import unplace
from mtplxd.families.load import LoadedModel
from mtplxd.forge.batches import RowSource, draft_index_of
from mtplxd.forge.course import Course, rounded
from mtplxd.forge.generating import Asker, RowMaker
from mtplxd.forge.held_out import Acceptance, measure
from mtplxd.forge.learner import Learner
from mtplxd.forge.pacing import Pace
from mtplxd.forge.reading_back import read_back
from mtplxd.forge.run_folder import agree
from mtplxd.forge.shards import DRAWN, HELD_OUT_ROWS, list_shards, read_shards
from mtplxd.forge.sidecar import write_changed
from mtplxd.forge.sizing import HeadFacts, Tuning
from mtplxd.forge.trainable import changed_weights, prepare
from mtplxd.forge.trainer import Trainer
from mtplxd.forge.training import ORIGIN, SIDECAR, WORK, Training, keep_training, read_training
from mtplxd.forge.training_verdict import guess_acceptance, judge_training, refuse_start
from mtplxd.forge.turns import choose_turns
from mtplxd.forge.vocabulary import token_mass
from mtplxd.packs.detector import HeadReport, detect_head
from mtplxd.packs.fingerprint import body_fingerprint, head_fingerprint, own_head_fingerprint
from mtplxd.platform.mlx import Array, mx, tree

HELD_OUT_TOGETHER = 16
CHECKS = 4
"""How often a training is saved and measured on its way."""
Ints = npt.NDArray[np.int32]


class FineTuning:
    """A run for a model that was loaded with its head."""

    def __init__(
        self, run_folder: Path, model: LoadedModel, tuning: Tuning, asker: Asker, pace: Pace
    ) -> None:
        self._run, self.folder = run_folder, run_folder / WORK
        self._model, self._tuning, self._asker, self._pace = model, tuning, asker, pace
        self._head: Any = model.head
        self._report: HeadReport = detect_head(model.pack)
        self._draft_vocab = _draft_vocab_of(model)
        self.folder.mkdir(parents=True, exist_ok=True)
        agree(self.folder, {**tuning.document(), "head": own_head_fingerprint(model.pack)})

    def execute(self) -> Training:
        """Runs what is not yet done."""
        if (done := read_training(self._run)) is not None:
            return done
        shards = self._make_rows()
        guess = self._guess()
        before = self._measure(Learner(self._head))
        if reason := refuse_start(before, guess):
            return self._end(reason, before, before, guess)
        trainer = self._train(shards)
        self._write(changed_weights(trainer.module, self._tuning.method))
        made = read_back(self._model.pack, self._run / SIDECAR, self._model.target)  # type: ignore[arg-type]
        after = self._measure(Learner(made))
        reason = judge_training(before, after, guess)
        return self._end(reason, before, after, guess, steps=trainer.step, parameters=trainer.parameters)

    def _make_rows(self) -> int:
        tuning, sizes = self._tuning, self._tuning.sizes
        turns = choose_turns(self._model.tokenizer, raw=tuning.raw)
        maker = RowMaker(self._model.target, turns, tuning.plan, sizes.rows, tuning.seed, self._pace)
        asker = replace(self._asker, held_out=self._asker.held_out[: sizes.held_out])
        maker.make_held_out(self.folder / HELD_OUT_ROWS, asker, min(HELD_OUT_TOGETHER, sizes.rows))
        shards = max(1, round(sizes.tokens / (sizes.rows * sizes.length)))
        maker.make(self.folder / DRAWN, shards, asker)
        return shards

    def _guess(self) -> float:
        data = self.folder / DRAWN
        mass = token_mass(data, list_shards(data), self._model.target.vocab_size)
        return guess_acceptance(mass, read_shards(self.folder / HELD_OUT_ROWS), self._tuning.plan.top_p)

    def _train(self, shards: int) -> Trainer:
        tuning = self._tuning
        prepare(self._head.module, tuning.method, tuning.rank, tuning.seed)
        trainer = Trainer(Learner(self._head), tuning.schedule)
        index = draft_index_of(self._draft_vocab, self._model.target.vocab_size)
        source = RowSource(
            self.folder / DRAWN, list(range(shards)), index, tuning.plan.top_p, tuning.seed, tuning.places
        )
        every = max(1, -(-tuning.schedule.steps // CHECKS))
        Course(self.folder, trainer, lambda: self._measure(trainer.learner), every, self._pace).finish(source)
        return trainer

    def _measure(self, learner: Learner) -> Acceptance:
        shards, depths = read_shards(self.folder / HELD_OUT_ROWS), len(self._tuning.schedule.depth_weights)
        return measure(learner, self._draft_vocab, shards, depths, self._tuning.plan.top_p)

    def _write(self, changed: dict[str, Array]) -> None:
        report, pack = self._report, self._model.pack
        metadata = {
            **report.metadata,
            "body_fingerprint": body_fingerprint(pack),
            "origin": ORIGIN,
            "trained_from": own_head_fingerprint(pack),
        }
        write_changed(self._run / SIDECAR, report.located, self._published(changed), metadata)

    def _published(self, changed: dict[str, Array]) -> dict[str, Array]:
        """By stored name, in the dtype that each is stored in."""
        if isinstance(self._head, AdapterHead):
            return {f"mtp.{name}": array.astype(mx.bfloat16) for name, array in changed.items()}
        head: PublishedHead = self._head
        weights = read_published(self._model.pack, self._report)
        made = unplace(changed, weights.tensors, head.family, head.settings, head.args, weights.body_layers)
        located = self._report.located
        return {
            next(stored for stored in (weights.wrap + name, name) if stored in located): array
            for name, array in made.items()
        }

    def _end(
        self,
        reason: str,
        before: Acceptance,
        after: Acceptance,
        guess: float,
        *,
        steps: int = 0,
        parameters: int = 0,
    ) -> Training:
        tuning, sidecar = self._tuning, self._run / SIDECAR
        if reason:
            sidecar.unlink(missing_ok=True)
        training = Training(
            method=tuning.method,
            reason=reason,
            sidecar="" if reason else SIDECAR,
            body_fingerprint=body_fingerprint(self._model.pack),
            head_fingerprint="" if reason else head_fingerprint(sidecar),
            parent_fingerprint=own_head_fingerprint(self._model.pack),
            before=rounded(before),
            after=rounded(after),
            guess=round(guess, 4),
            tokens=tuning.sizes.tokens,
            steps=steps,
            parameters=parameters,
            settings=tuning.document(),
        )
        keep_training(self._run, training)
        return training


def facts_of(model: LoadedModel) -> HeadFacts:
    """What a head's sizes are decided from."""
    head: Any = model.head
    parameters = tree.tree_flatten(head.module.parameters())
    vocab = head.draft_vocab
    return HeadFacts(
        parameters=sum(array.size for _, array in parameters),
        packed=any(name.endswith(".scales") for name, _ in parameters),
        draft_vocab=model.target.vocab_size if vocab is None else vocab.size,
        depths=Learner(head).depths,
        context=model.context,
        apart=model.apart,
    )


def _draft_vocab_of(model: LoadedModel) -> Ints:
    """Ids of the tokens that a model's head can draft."""
    head: Any = model.head
    found = head.draft_vocab
    return np.arange(model.target.vocab_size, dtype=np.int32) if found is None else np.array(found)
