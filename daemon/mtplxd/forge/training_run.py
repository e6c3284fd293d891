"""One training run in a folder: data, beginning, training, measurement, sidecar. Killed anywhere, it goes on.

Owns the order of the steps and what is on disk for each; each step's work is its own module's.
"""

from __future__ import annotations

import io
import json
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field, replace
from itertools import chain, repeat
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from mtplxd.errors import FailedPrecondition
from mtplxd.families.adapter import AdapterModule
from mtplxd.families.body import Body
from mtplxd.families.load import LoadedModel
from mtplxd.files import write_atomically
from mtplxd.forge.batches import RowSource, draft_index_of
from mtplxd.forge.beginning import begin_module, regress_fc
from mtplxd.forge.held_out import Acceptance, measure
from mtplxd.forge.prompts import draw_prompt
from mtplxd.forge.questions import HELD_OUT
from mtplxd.forge.rollout import Plan, Rng, Turns, roll
from mtplxd.forge.shards import list_shards, read_shard, write_shard
from mtplxd.forge.sidecar import write_sidecar
from mtplxd.forge.stepping import TargetStepper
from mtplxd.forge.trainer import Report, Schedule, Trainer
from mtplxd.forge.turns import find_turns
from mtplxd.forge.vocabulary import choose_vocabulary, token_mass
from mtplxd.packs.fingerprint import body_fingerprint
from mtplxd.platform.mlx import mx, tree

BEGIN_SHARDS = 6
CHECK_EVERY = 200
HELD_OUT_SEED = 11
SHARPER = (1.0, 1.2, 1.45, 1.7)
Ints = npt.NDArray[np.int32]
Tell = Callable[[str, int, int, str], None]
"""Takes stage, done, total and a line of detail."""


@dataclass(frozen=True)
class Recipe:
    """Everything a head depends on besides the model. Written to the folder; a resumed run must agree with it."""

    tokens: int
    schedule: Schedule
    taps: tuple[int, ...]
    mlp_width: int
    draft_vocab: int = 6144
    rows: int = 64
    plan: Plan = field(default_factory=Plan)
    seed: int = 0


class TrainingRun:
    """A run of `recipe` for a loaded model, in `folder`."""

    def __init__(self, folder: Path, model: LoadedModel, recipe: Recipe, tell: Tell) -> None:
        self.folder, self.recipe, self._tell = folder, recipe, tell
        self._model = model
        self._body = Body(model.target.model, recipe.taps)  # type: ignore[attr-defined]
        self._turns = find_turns(model.tokenizer)
        folder.mkdir(parents=True, exist_ok=True)
        self._agree()

    def execute(self) -> Path:
        """Runs what is not yet done; gives the sidecar. Its record is beside it as `.json`."""
        self._make_rows(self.folder / "held-out", 1, self._held_out_roll)
        shards = max(1, round(self.recipe.tokens / (self.recipe.rows * self.recipe.plan.length)))
        self._make_rows(self.folder / "data", shards, self._roll)
        draft_vocab = self._draft_vocab()
        module = self._begin()
        trainer = self._train(module, draft_vocab, shards)
        return self._emit(trainer, draft_vocab, self._sharpen(trainer, draft_vocab))

    def _agree(self) -> None:
        path = self.folder / "recipe.json"
        wanted = json.dumps(asdict(self.recipe), indent=1)
        if not path.is_file():
            write_atomically(path, wanted.encode())
        elif path.read_text() != wanted:
            raise FailedPrecondition(
                "this folder holds a run with other settings",
                self.folder,
                "use its settings or another --run folder",
            )

    def _make_rows(self, folder: Path, count: int, make: Callable[[Path, int], None]) -> None:
        folder.mkdir(exist_ok=True)
        done = set(list_shards(folder))
        begin = time.monotonic()
        for made, index in enumerate(sorted(set(range(count)) - done)):
            make(folder, index)
            rate = (made + 1) / (time.monotonic() - begin)
            self._tell("data", len(done) + made + 1, count, f"{rate * self._shard_tokens:.0f} tokens/s")

    @property
    def _shard_tokens(self) -> int:
        return self.recipe.rows * self.recipe.plan.length

    def _roll(self, folder: Path, index: int) -> None:
        stepper = TargetStepper(self._body, self.recipe.rows)
        rng = np.random.default_rng([self.recipe.seed, index])
        write_shard(folder, index, roll(stepper, self._turns, draw_prompt, self.recipe.plan, rng))

    def _held_out_roll(self, folder: Path, index: int) -> None:
        write_shard(
            folder, index, roll_held_out(self._body, self._turns, self.recipe.plan, HELD_OUT_SEED + index)
        )

    def _draft_vocab(self) -> Ints:
        data = self.folder / "data"

        def choose() -> Ints:
            mass = token_mass(data, list_shards(data), self._body.vocab_size)
            return choose_vocabulary(mass, self.recipe.draft_vocab, {self._turns.end, *self._model.eos_ids})

        return _kept(self.folder / "draft-vocab.npy", choose)

    def _begin(self) -> AdapterModule:
        data, norm = self.folder / "data", _numpy(self._body.model.model.norm.weight)

        def regress() -> npt.NDArray[np.float32]:
            rows = (read_shard(data, index) for index in list_shards(data)[:BEGIN_SHARDS])
            return regress_fc(rows, lambda ids: _numpy(self._body.embedding(mx.array(ids))), norm)

        fc = _kept(self.folder / "fc.npy", regress)
        return begin_module(self._body.model, len(self.recipe.taps), self.recipe.mlp_width, fc)

    def _train(self, module: AdapterModule, draft_vocab: Ints, shards: int) -> Trainer:
        recipe, output = self.recipe, self._body.output_weight[mx.array(draft_vocab)]
        trainer = Trainer(module, self._body.embedding, mx.contiguous(output), recipe.schedule)
        trainer.restore(self.folder)
        index = draft_index_of(draft_vocab, self._body.vocab_size)
        source = RowSource(self.folder / "data", list(range(shards)), index, recipe.plan.top_p, recipe.seed)
        begin, first = time.monotonic(), trainer.step

        def report(found: Report) -> None:
            left = (
                (recipe.schedule.steps - trainer.step) * (time.monotonic() - begin) / (trainer.step - first)
            )
            detail = f"loss {found.loss:.3f}, acceptance {found.acceptance[0]:.3f}, {left / 60:.0f} min left"
            self._tell("train", trainer.step, recipe.schedule.steps, detail)

        while trainer.step < recipe.schedule.steps:
            until = min(recipe.schedule.steps, (trainer.step // CHECK_EVERY + 1) * CHECK_EVERY)
            trainer.run(source, until, report)
            trainer.save(self.folder)
            self._note(trainer, draft_vocab)
        return trainer

    def _note(self, trainer: Trainer, draft_vocab: Ints) -> None:
        found = self._measure(trainer, draft_vocab)
        curve = [point for point in self._curve() if point["step"] < trainer.step]
        curve.append({"step": trainer.step, **_rounded(found)})
        write_atomically(self.folder / "curve.json", json.dumps(curve).encode())
        shown = ", ".join(f"{value:.3f}" for value in found.overlap)
        self._tell("measure", trainer.step, self.recipe.schedule.steps, f"held-out acceptance {shown}")

    def _measure(self, trainer: Trainer, draft_vocab: Ints) -> Acceptance:
        shard = read_shard(self.folder / "held-out", 0)
        depths = len(self.recipe.schedule.depth_weights)
        return measure(trainer, draft_vocab, shard, depths, self.recipe.plan.top_p)

    def _curve(self) -> list[dict[str, Any]]:
        path = self.folder / "curve.json"
        return json.loads(path.read_text()) if path.is_file() else []

    def _sharpen(self, trainer: Trainer, draft_vocab: Ints) -> dict[str, Any]:
        """Scales the output norm, hence the logits, by the factor that the held-out questions accept most of.

        What recursion feeds back does not change: it is normed again.
        """
        norm = trainer.module.norm
        trained, found = norm.weight, {}
        for factor in SHARPER:
            norm.weight = trained * factor
            found[factor] = self._measure(trainer, draft_vocab)
        best = max(SHARPER, key=lambda factor: found[factor].overlap[0])
        norm.weight = trained * best
        return {"sharpened": best, "acceptance": _rounded(found[best])}

    def _emit(self, trainer: Trainer, draft_vocab: Ints, chosen: dict[str, Any]) -> Path:
        path = self.folder / f"{self._model.name}.safetensors"
        parameters = dict(tree.tree_flatten(trainer.module.parameters()))
        write_sidecar(path, parameters, draft_vocab, self.recipe.taps, body_fingerprint(self._model.pack))
        record = {
            "model": self._model.name,
            "parameters": sum(array.size for array in parameters.values()),
            "recipe": asdict(self.recipe),
            **chosen,
            "curve": self._curve(),
        }
        write_atomically(path.with_suffix(".json"), (json.dumps(record, indent=1) + "\n").encode(), 0o644)
        return path


def roll_held_out(body: Body, turns: Turns, plan: Plan, seed: int) -> Any:
    """One row a held-out question: one answer at temperature 0.6, then whatever follows when a stop is ignored."""
    questions = chain(HELD_OUT, repeat(HELD_OUT[0]))

    def draw(_: Rng) -> str:
        return next(questions)

    alone = replace(plan, temperatures=((0.6, 1.0),), ask_first=0.0, ask_again=0.0, run_free=1.0)
    return roll(TargetStepper(body, len(HELD_OUT)), turns, draw, alone, np.random.default_rng(seed))


def _kept(path: Path, make: Callable[[], npt.NDArray[Any]]) -> npt.NDArray[Any]:
    """What the file holds; made and written first where there is none."""
    if not path.is_file():
        content = io.BytesIO()
        np.save(content, make())
        write_atomically(path, content.getvalue())
    loaded: npt.NDArray[Any] = np.load(path)
    return loaded


def _numpy(array: Any) -> npt.NDArray[np.float32]:
    return np.array(array.astype(mx.float32))


def _rounded(found: Acceptance) -> dict[str, Sequence[Any]]:
    return {
        "overlap": [round(value, 4) for value in found.overlap],
        "rounds": [[round(value, 4) for value in row] for row in found.rounds],
    }
