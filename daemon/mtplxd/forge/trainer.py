"""Trains a head on recorded rows: optimiser, schedule, checkpoints. Same seed, same data, same bytes, killed or not.

A checkpoint holds parameters, optimiser state and step, and replaces the one before atomically; the data order is a
function of seed and step. The target is frozen; what else is, is the module's to say.
"""

from __future__ import annotations

import hashlib
import math
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from mtplxd.errors import DataLoss
from mtplxd.forge.batches import Batch, RowSource
from mtplxd.forge.learner import Learner
from mtplxd.forge.losses import head_loss
from mtplxd.forge.sidecar import write_arrays
from mtplxd.platform.mlx import Array, mx, nn, optim, tree


@dataclass(frozen=True)
class Schedule:
    """How a head is trained. `depth_weights` weigh the losses of depths 1, 2, …; deeper than 1 only every
    `deep_every`-th step, and recursion then behind one pair in `chain_share`. The share of the rejection loss rises
    linearly from 0 to `rejection` between the fractions `rejection_from` and `rejection_full` of all steps."""

    steps: int = 3000
    rows: int = 16
    peak: float = 1e-3
    floor: float = 0.02
    warmup: int = 100
    decay: float = 0.01
    clip: float = 1.0
    depth_weights: tuple[float, ...] = (1.0, 0.5, 0.25)
    deep_every: int = 2
    chain_share: int = 1
    rejection: float = 0.9
    rejection_from: float = 0.2
    rejection_full: float = 0.5
    seed: int = 0

    def rate(self, step: int) -> float:
        """Learning rate of a step: linear warm-up, then a cosine down to `floor` of the peak."""
        if step < self.warmup:
            return self.peak * (step + 1) / self.warmup
        along = min(1.0, (step - self.warmup) / max(1, self.steps - self.warmup))
        return self.peak * (self.floor + (1 - self.floor) * 0.5 * (1 + math.cos(math.pi * along)))

    def rejection_share(self, step: int) -> float:
        """Share of the rejection loss at a step."""
        along = step / max(1, self.steps)
        span = max(1e-9, self.rejection_full - self.rejection_from)
        return self.rejection * min(1.0, max(0.0, (along - self.rejection_from) / span))

    def depths(self, step: int) -> int:
        """How deep this step unrolls."""
        return len(self.depth_weights) if step % self.deep_every == 0 else 1


@dataclass
class Report:
    """One step's outcome: loss, expected acceptance by depth on the batch, seconds."""

    step: int
    loss: float
    acceptance: tuple[float, ...]
    seconds: float


class Trainer:
    """Updates the trainable parameters of a head's module, step by step of `schedule`."""

    def __init__(self, learner: Learner, schedule: Schedule) -> None:
        self.learner, self.schedule = learner, schedule
        self.module = module = learner.module
        self.step = 0
        self._optimizer = optim.AdamW(
            learning_rate=schedule.peak, betas=[0.9, 0.95], weight_decay=schedule.decay
        )
        self._optimizer.init(module.trainable_parameters())
        self._loss_and_grad = nn.value_and_grad(module, self._loss)

    def run(self, source: RowSource, until: int, report: Callable[[Report], None]) -> None:
        """Trains up to step `until` (exclusive), reporting each step."""
        while self.step < until:
            begin = time.perf_counter()
            depths = self.schedule.depths(self.step)
            share = self.schedule.chain_share if self.learner.recursive else 1
            batch = source.batch(self.step, self.schedule.rows, depths, share)
            loss, acceptance = self.train_step(batch)
            report(Report(self.step - 1, loss, acceptance, time.perf_counter() - begin))

    def train_step(self, batch: Batch) -> tuple[float, tuple[float, ...]]:
        """One update; gives the loss and the batch's expected acceptance by depth before it."""
        share = self.schedule.rejection_share(self.step)
        (loss, acceptance), grads = self._loss_and_grad(batch, share)
        grads, _ = optim.clip_grad_norm(grads, self.schedule.clip)
        self._optimizer.learning_rate = self.schedule.rate(self.step)
        self._optimizer.update(self.module, grads)
        mx.eval(self.module.parameters(), self._optimizer.state, loss, acceptance)
        self.step += 1
        return float(loss), tuple(float(value) for value in acceptance)

    def _loss(self, batch: Batch, share: float) -> tuple[Array, list[Array]]:
        states = self.learner.states(batch.tokens, batch.taps, len(batch.aims), batch.chains)
        total, found = mx.array(0.0), []
        parts = zip(states, batch.places, batch.aims, self.schedule.depth_weights, strict=False)
        for depth, (state, places, aim, weight) in enumerate(parts, 1):
            if not len(places):  # short rows may have nothing that counts
                found.append(mx.array(0.0))
                continue
            chosen = state.reshape(-1, state.shape[-1])[mx.array(places)]
            loss, acceptance = head_loss(self.learner.logits(chosen, depth), aim, share)
            total = total + weight * loss
            found.append(acceptance)
        return total, found

    def save(self, folder: Path) -> None:
        """Replaces the checkpoint atomically."""
        arrays = {f"module.{name}": array for name, array in self._trained()}
        arrays |= {f"optimizer.{name}": array for name, array in tree.tree_flatten(self._optimizer.state)}
        write_arrays(folder / "checkpoint.safetensors", arrays, {"step": str(self.step)})

    def restore(self, folder: Path) -> bool:
        """Continues from the folder's checkpoint; False where there is none."""
        path = folder / "checkpoint.safetensors"
        if not path.is_file():
            return False
        arrays, metadata = mx.load(str(path), return_metadata=True)
        weights = _under(arrays, "module.")
        if {name for name, _ in weights} != {name for name, _ in self._trained()}:
            raise DataLoss("the checkpoint is of another head", path, "remove the run and begin again")
        self.module.load_weights(weights, strict=False)
        self._optimizer.state = tree.tree_unflatten(_under(arrays, "optimizer."))
        self.step = int(metadata["step"])
        mx.eval(self.module.parameters(), self._optimizer.state)
        return True

    @property
    def digest(self) -> str:
        """Of all that is trained, to the bit."""
        found = hashlib.sha256()
        for name, array in sorted(self._trained()):
            found.update(name.encode() + np.array(array.astype(mx.float32)).tobytes())
        return found.hexdigest()

    @property
    def parameters(self) -> int:
        """How many numbers are trained."""
        return sum(array.size for _, array in self._trained())

    def _trained(self) -> list[tuple[str, Any]]:
        """The parameters that are trained, by path."""
        return list(tree.tree_flatten(self.module.trainable_parameters()))


def _under(arrays: dict[str, Any], prefix: str) -> list[tuple[str, Any]]:
    return [(name.removeprefix(prefix), array) for name, array in arrays.items() if name.startswith(prefix)]
