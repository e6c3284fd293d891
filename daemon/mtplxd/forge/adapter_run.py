"""One training run of a new head in a folder: data, beginning, training, measurement, sidecar. Killed anywhere, it
goes on.

Owns the order of the steps and what is on disk for each; each step's work is its own module's.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import asdict
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from mtplxd.families.adapter import AdapterHead, sizes_beside
from mtplxd.families.body import Body
from mtplxd.families.load import LoadedModel
from mtplxd.files import write_atomically
from mtplxd.forge.batches import RowSource, draft_index_of
from mtplxd.forge.beginning import begin_module, regress_fc
from mtplxd.forge.course import Course, read_curve, rounded
from mtplxd.forge.generating import Asker, RowMaker
from mtplxd.forge.held_out import Acceptance, measure
from mtplxd.forge.learner import Learner
from mtplxd.forge.pacing import Pace
from mtplxd.forge.prompts import draw_prompt
from mtplxd.forge.questions import HELD_OUT
from mtplxd.forge.reading_back import read_back
from mtplxd.forge.recorded import Recording, RowReader
from mtplxd.forge.run_folder import agree, kept
from mtplxd.forge.shards import (
    DRAWN,
    HELD_OUT_ROWS,
    WHOLE,
    Shard,
    Share,
    list_shards,
    read_shard,
    read_shards,
)
from mtplxd.forge.sidecar import write_sidecar
from mtplxd.forge.sizing import Recipe
from mtplxd.forge.trainer import Trainer
from mtplxd.forge.training_verdict import guess_acceptance
from mtplxd.forge.turns import choose_turns
from mtplxd.forge.vocabulary import choose_vocabulary, token_mass
from mtplxd.packs.fingerprint import body_fingerprint
from mtplxd.packs.layouts.adapter import BLOCK
from mtplxd.platform.mlx import mx, tree

BEGIN_TOKENS = 76_800
"""As many of the first rows as the head's beginning is computed from."""
CHECK_EVERY = 200
SHARPER = (1.0, 1.2, 1.45, 1.7)
Ints = npt.NDArray[np.int32]


class AdapterRun:
    """A run of `recipe` for a loaded model, in `folder`; every `check_every` steps it is saved and measured.

    It is trained on what the target says to an `asker`, or on a `recording` of what it said. `asked` says what a
    resumed run must agree with besides the recipe.
    """

    def __init__(
        self,
        folder: Path,
        model: LoadedModel,
        recipe: Recipe,
        pace: Pace,
        asker: Asker | None = None,
        *,
        raw: bool = False,
        check_every: int = CHECK_EVERY,
        asked: Mapping[str, str] | None = None,
        recording: Recording | None = None,
    ) -> None:
        self.folder, self.recipe, self._recording = folder, recipe, recording
        self._pace, self._check_every = pace, check_every
        self._model = model
        self._body = Body(model.target.model, recipe.taps)  # type: ignore[attr-defined]
        self._sizes = sizes_beside(self._body.model, model.pack.text_config)
        self._turns = choose_turns(model.tokenizer, raw=raw)
        self._asker = asker or Asker(draw_prompt, HELD_OUT)
        folder.mkdir(parents=True, exist_ok=True)
        recorded = {"recorded": recording.digest} if recording else {}
        agree(folder, {**asdict(recipe), **recorded, **(asked or {})})

    def execute(self, sidecar: Path | None = None, **metadata: str) -> Path:
        """Runs what is not yet done; gives the sidecar, whose record is beside it as `.json`. Unless it is said where,
        it is named after the model; `metadata` goes into it."""
        self._make_rows()
        learner = self._train()
        chosen = self._sharpen(learner)
        return self._emit(
            learner, chosen, sidecar or self.folder / f"{self._model.name}.safetensors", metadata
        )

    def begin(self, until: int) -> None:
        """The first `until` updates alone: `execute` goes on from there."""
        self._make_rows()
        self._train(until)

    def read(self, share: Share) -> None:
        """A share of the recorded rows alone: `execute` goes on from there."""
        assert self._recording is not None
        RowReader(self._body, self._turns, self._pace).make(self.folder / DRAWN, self._recording, share)

    def measure_beginning(self) -> Acceptance:
        """What held-out text accepts of the head before its first update."""
        return self._measure(self._begin())

    def read_back(self, sidecar: Path) -> Acceptance:
        """What held-out text accepts of the head that was written."""
        return self._measure(Learner(read_back(self._model.pack, sidecar, self._body)))

    def guess(self) -> float:
        """What held-out text would accept of one constant draft."""
        return guess_acceptance(self._token_mass(), self._held_out, self.recipe.plan.top_p)

    def _make_rows(self) -> None:
        recipe = self.recipe
        maker = RowMaker(self._body, self._turns, recipe.plan, recipe.rows, recipe.seed, self._pace)
        together = 1 if self._model.apart else len(self._asker.held_out)
        maker.make_held_out(self.folder / HELD_OUT_ROWS, self._asker, together)
        if self._recording is None:
            maker.make(self.folder / DRAWN, self._shards, self._asker)
        else:
            self.read(WHOLE)

    @property
    def _shards(self) -> int:
        recipe = self.recipe
        if self._recording is not None:
            return len(self._recording.pieces)
        return max(1, round(recipe.tokens / (recipe.rows * recipe.plan.length)))

    @cached_property
    def _draft_vocab(self) -> Ints:
        def choose() -> Ints:
            ends = {*self._model.eos_ids, *self._turns.close[:1]}
            return choose_vocabulary(self._token_mass(), self.recipe.draft_vocab, ends)

        return kept(self.folder / "draft-vocab.npy", choose)

    def _token_mass(self) -> npt.NDArray[np.float64]:
        data = self.folder / DRAWN
        return token_mass(data, list_shards(data), self._body.vocab_size)

    def _begin(self) -> Learner:
        recipe, data, norm = self.recipe, self.folder / DRAWN, _numpy(self._body.norm_scale)

        def regress() -> npt.NDArray[np.float32]:
            return regress_fc(
                _first_rows(data, BEGIN_TOKENS), lambda ids: _numpy(self._body.embedding(mx.array(ids))), norm
            )

        fc = kept(self.folder / "fc.npy", regress)
        module = begin_module(
            self._body, len(recipe.taps), recipe.mlp_width, fc, self._sizes, self.recipe.seed
        )
        depths = len(recipe.schedule.depth_weights)
        return Learner(AdapterHead(module, self._body, mx.array(self._draft_vocab), depths))

    def _train(self, until: int | None = None) -> Learner:
        recipe, trainer = self.recipe, Trainer(self._begin(), self.recipe.schedule)
        index = draft_index_of(self._draft_vocab, self._body.vocab_size)
        shards = list(range(self._shards))
        source = RowSource(self.folder / DRAWN, shards, index, recipe.plan.top_p, recipe.seed)
        Course(
            self.folder, trainer, lambda: self._measure(trainer.learner), self._check_every, self._pace
        ).finish(source, until)
        return trainer.learner

    def _measure(self, learner: Learner) -> Acceptance:
        depths = len(self.recipe.schedule.depth_weights)
        return measure(learner, self._draft_vocab, self._held_out, depths, self.recipe.plan.top_p)

    @property
    def _held_out(self) -> list[Shard]:
        return read_shards(self.folder / HELD_OUT_ROWS)

    def _sharpen(self, learner: Learner) -> dict[str, Any]:
        """Scales the output norm, hence the logits, by the factor that the held-out questions accept most of.

        What recursion feeds back does not change: it is normed again.
        """
        norm = learner.module.norm
        trained, found = norm.weight, {}
        for factor in SHARPER:
            norm.weight = trained * factor
            found[factor] = self._measure(learner)
        best = max(SHARPER, key=lambda factor: found[factor].overlap[0])
        norm.weight = trained * best
        return {"sharpened": best, "acceptance": rounded(found[best])}

    def _emit(
        self, learner: Learner, chosen: dict[str, Any], path: Path, metadata: Mapping[str, str]
    ) -> Path:
        parameters = dict(tree.tree_flatten(learner.module.parameters()))
        more = {BLOCK: self._sizes.text()} if self._sizes else {}
        owner = body_fingerprint(self._model.pack)
        write_sidecar(path, parameters, self._draft_vocab, self.recipe.taps, owner, **more, **metadata)
        record = {
            "model": self._model.name,
            "parameters": sum(array.size for array in parameters.values()),
            "recipe": asdict(self.recipe),
            **({"recorded": self._recording.digest} if self._recording else {}),
            **chosen,
            "curve": read_curve(self.folder),
        }
        write_atomically(path.with_suffix(".json"), (json.dumps(record, indent=1) + "\n").encode(), 0o644)
        return path


def _first_rows(folder: Path, tokens: int) -> Iterator[Shard]:
    """The first shards that together have so many tokens."""
    for index in list_shards(folder):
        if tokens <= 0:
            return
        shard = read_shard(folder, index)
        yield shard
        tokens -= shard.tokens.size


def _numpy(array: Any) -> npt.NDArray[np.float32]:
    return np.array(array.astype(mx.float32))
