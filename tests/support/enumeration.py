"""Walks every outcome of the engine's real rounds on a table model and adds up the exact law of a text.

Only the source of uniforms is replaced. It sees the law each uniform will be applied to, puts the uniform in the middle
of the cell a row was told to take, and keeps that cell's exact weight; each outcome of a round is one row of a batch.
Rows whose committed text is the same go on as one: that their caches are equal then is checked after every round.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from itertools import islice, product

import numpy as np
from mtplxd.engine.request import SamplerSettings
from mtplxd.engine.round import Batch, Flight, Landing, commit, land, launch
from mtplxd.engine.row import Pending, Row
from mtplxd.families.kv import RowCache
from mtplxd.platform.mlx import Array, mx
from support.reference_laws import Text, reference_law, supports
from support.table_model import TableHead, TableTarget

ANY = -1
"""A choice that does not matter: some cell is taken, and its weight is not counted."""

BATCH_ROWS = 6000
SLOTS = 32


class CellSource:
    """Uniforms that steer each row into its outcome: cells of the drafts, how many pass, the cell of the last token."""

    def __init__(
        self, drafts: np.ndarray, passing: np.ndarray, lengths: np.ndarray, final: np.ndarray
    ) -> None:
        self._drafts, self._passing, self._lengths, self._final = drafts, passing, lengths, final
        self._weights: dict[object, np.ndarray] = {}

    @property
    def weights(self) -> np.ndarray:
        """The probability of each row's outcome, [B]."""
        return np.prod([np.ones(len(self._lengths)), *self._weights.values()], axis=0)

    def draft(self, step: int, law: Array) -> Array:
        uniforms, self._weights[step] = middle_of_cells(np.array(law), self._drafts[:, step])
        return mx.array(uniforms, law.dtype)

    def accept(self, chances: Array) -> Array:
        given = np.array(chances).astype(np.float64)
        places = np.arange(given.shape[1])
        passing = places < self._passing[:, None]
        failing = (places == self._passing[:, None]) & (places < self._lengths[:, None])
        self._weights["accept"] = np.prod(np.where(passing, given, np.where(failing, 1 - given, 1)), axis=1)
        uniforms = np.where(passing, given / 2, np.where(failing, (1 + given) / 2, 0.5))
        return mx.array(uniforms, chances.dtype)

    def final(self, law: Array) -> Array:
        uniforms, self._weights["final"] = middle_of_cells(np.array(law), self._final)
        return mx.array(uniforms, law.dtype)


def middle_of_cells(law: np.ndarray, cells: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The uniform [B] in the middle of each row's cell of `law` [B, V], and the cell's share of the mass."""
    law = law.astype(np.float64)
    total = law.sum(axis=1)
    chosen = np.where(cells == ANY, law.argmax(axis=1), cells)
    mass = np.take_along_axis(law, chosen[:, None], axis=1)[:, 0]
    upto = np.take_along_axis(np.cumsum(law, axis=1), chosen[:, None], axis=1)[:, 0]
    return (upto - mass / 2) / total, np.where(cells == ANY, 1.0, mass / total)


@dataclass(frozen=True)
class Problem:
    """What is enumerated: a prompt, a sampler, and how many drafts a round makes after a committed text."""

    prompt: Text
    sampler: SamplerSettings
    length_after: Callable[[Text], int]


@dataclass(frozen=True)
class Outcome:
    """One row of a batch: where it starts, the cells it takes."""

    problem: Problem
    text: Text
    length: int
    drafts: Text
    passing: int
    final: int


@dataclass
class Enumeration:
    """The real round on one model.

    `prune` leaves out cells the reference gives no mass (that nothing is missed is checked by the sum of the weights);
    `checked` is off for mutants, whose rounds need not do what they were steered to.
    """

    target: TableTarget
    head: TableHead
    horizon: int
    prune: bool = True
    checked: bool = True
    rows: int = 0
    _supports: dict[object, list[int]] = field(default_factory=dict)

    def text_laws(self, problems: Sequence[Problem]) -> list[np.ndarray]:
        """The exact law of the next `horizon` tokens of each problem; their rows share batches."""
        size = self.target.vocab_size
        laws = [np.zeros((size,) * self.horizon) for _ in problems]
        reached = [{(): 1.0}, *({} for _ in range(self.horizon - 1))]
        waiting = [[defaultdict(float, texts) for texts in reached] for _ in problems]
        for made in range(self.horizon):
            starts = [
                (problem, text) for problem, by in zip(problems, waiting, strict=True) for text in by[made]
            ]
            for problem, text, after, share in self._rounds(starts):
                place = problems.index(problem)
                mass = waiting[place][made][text] * share
                if len(after) >= self.horizon:
                    laws[place][after[: self.horizon]] += mass
                else:
                    waiting[place][len(after)][after] += mass
        return laws

    def _rounds(self, starts: Sequence[tuple[Problem, Text]]) -> list[tuple[Problem, Text, Text, float]]:
        outcomes = (outcome for problem, text in starts for outcome in self._outcomes(problem, text))
        ends: dict[tuple[int, Text, Text], float] = defaultdict(float)
        whole: dict[tuple[int, Text], float] = defaultdict(float)
        by_id = {id(problem): problem for problem, _ in starts}
        while part := list(islice(outcomes, BATCH_ROWS)):
            for outcome, after, weight in zip(part, *self._round(part), strict=True):
                ends[id(outcome.problem), outcome.text, after] += weight
                whole[id(outcome.problem), outcome.text] += weight
        assert all(abs(mass - 1) < 1e-4 for mass in whole.values()), (
            "the outcomes of a round do not add up to 1"
        )
        return [(by_id[key], text, after, mass) for (key, text, after), mass in ends.items()]

    def _outcomes(self, problem: Problem, text: Text) -> list[Outcome]:
        committed = problem.prompt + text
        length = problem.length_after(text) if len(committed) > 1 else 0
        found = []
        for drafts in self._draft_tuples(problem, committed, length):
            for passing in range(length + 1):
                passed = tuple(self.head.ids[cell] for cell in drafts[:passing])
                for final in self._finals(problem, committed + passed, len(text) + passing):
                    found.append(Outcome(problem, text, length, drafts, passing, final))
        return found

    def _draft_tuples(self, problem: Problem, committed: Text, length: int) -> list[Text]:
        if not self.prune:
            return list(product(range(len(self.head.ids)), repeat=length))
        grown: list[tuple[Text, list[int]]] = [((), self.head.pairs_of(committed))]
        for _ in range(length):
            longer = []
            for cells, pairs in grown:
                for cell in self._support(self.head, self.head.state_after(pairs), problem.sampler):
                    longer.append(((*cells, cell), self.head.extended(pairs, self.head.ids[cell])))
            grown = longer
        return [cells for cells, _ in grown]

    def _finals(self, problem: Problem, prefix: Text, made: int) -> list[int]:
        if made >= self.horizon:
            return [ANY]
        if not self.prune:
            return list(range(self.target.vocab_size))
        return self._support(self.target, self.target.state_after(prefix), problem.sampler)

    def _support(self, model: TableTarget | TableHead, state: int, sampler: SamplerSettings) -> list[int]:
        key = (model is self.head, state, sampler)
        if key not in self._supports:
            self._supports[key] = supports(reference_law(model.table[state], sampler))
        return self._supports[key]

    def _round(self, outcomes: Sequence[Outcome]) -> tuple[list[Text], np.ndarray]:
        """Runs one real round over the outcomes; gives the text each row has afterwards, and its weight."""
        depth = max(outcome.length for outcome in outcomes)
        cells = np.full((len(outcomes), depth), ANY)
        for b, outcome in enumerate(outcomes):
            cells[b, : outcome.length] = outcome.drafts
        passing, lengths, final = (
            np.array([getattr(outcome, name) for outcome in outcomes])
            for name in ("passing", "length", "final")
        )
        source = CellSource(cells, passing, lengths, final)
        batch = open_rows(self.target, self.head, outcomes)
        flight = launch(batch, source, [outcome.length for outcome in outcomes])
        landings = land(batch, flight)
        self.rows += len(outcomes)
        commit(batch, flight, landings, [len(landing.tokens) for landing in landings])
        if self.checked:
            check_steered(self.head, outcomes, landings, flight, source.weights)
            check_settled(self.head, batch)
        return [
            tuple(row.tokens[len(outcome.problem.prompt) :])
            for row, outcome in zip(batch.rows, outcomes, strict=True)
        ], source.weights


def open_rows(target: TableTarget, head: TableHead, outcomes: Sequence[Outcome]) -> Batch:
    """A batch whose caches hold what their texts say; how many pairs are still pending differs from row to row."""
    known: dict[Text, tuple[list[int], Pending | None]] = {}
    body, pairs, rows = [], [], []
    for outcome in outcomes:
        committed = outcome.problem.prompt + outcome.text
        if committed not in known:
            known[committed] = _split_pairs(target, head, committed)
        absorbed, pending = known[committed]
        body.append(committed[:-1])
        pairs.append(absorbed)
        own = replace(pending, tokens=list(pending.tokens), parts=list(pending.parts)) if pending else None
        rows.append(Row(list(committed), outcome.problem.sampler, outcome.length, pending=own))
    return Batch(target, head, rows, [filled_cache(body)], [filled_cache(pairs)])


def _split_pairs(target: TableTarget, head: TableHead, committed: Text) -> tuple[list[int], Pending | None]:
    pairs = head.pairs_of(committed)
    count = min(len(pairs), 1 + target.state_after(committed) % 3)
    if not count:
        return [], None
    states = [pair // target.vocab_size for pair in pairs[-count:]]
    taps = (mx.array(states, mx.float32)[None, :, None],)
    return pairs[:-count], Pending(list(committed[-count:]), [taps])


def filled_cache(slots: Sequence[Sequence[int]]) -> RowCache:
    """A cache of one slot value a position; behind each row's length lies rubbish."""
    cache = RowCache(len(slots))
    held = np.full((len(slots), 1, SLOTS, 1), -77.0, np.float32)
    for b, row in enumerate(slots):
        held[b, 0, : len(row), 0] = row
    cache.keys, cache.values = mx.array(held), mx.array(-held)
    cache.lengths = [len(row) for row in slots]
    return cache


def check_steered(
    head: TableHead,
    outcomes: Sequence[Outcome],
    landings: Sequence[Landing],
    flight: Flight,
    weights: np.ndarray,
) -> None:
    """Every outcome that can happen is the one its row was steered into: cells are counted once, and none is missed."""
    ids = np.array(flight.drafts.ids)
    for b, (outcome, landing) in enumerate(zip(outcomes, landings, strict=True)):
        if weights[b] <= 1e-7:
            continue
        assert landing.accepted == outcome.passing
        assert outcome.final in (ANY, landing.tokens[-1])
        assert [head.ids[cell] for cell in outcome.drafts] == list(ids[b, : outcome.length])


def check_settled(head: TableHead, batch: Batch) -> None:
    """The invariant of a round: both caches hold exactly what the committed text says, pending pairs included."""
    body, pairs = np.array(batch.cache[0].keys)[:, 0, :, 0], np.array(batch.head_cache[0].keys)[:, 0, :, 0]
    expected: dict[Text, list[int]] = {}
    for b, row in enumerate(batch.rows):
        committed = tuple(row.tokens)
        if committed not in expected:
            expected[committed] = head.pairs_of(committed)
        length, absorbed = batch.cache[0].lengths[b], batch.head_cache[0].lengths[b]
        pending = row.pending.tokens if row.pending else []
        assert list(body[b, :length]) == row.tokens[:-1]
        assert absorbed + len(pending) == len(row.tokens) - 1
        assert list(pairs[b, :absorbed]) == expected[committed][:absorbed]
        assert pending == row.tokens[len(row.tokens) - len(pending) :]
