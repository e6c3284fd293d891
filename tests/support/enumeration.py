"""Walks every outcome of the engine's real rounds on a table model and adds up the exact law of a text.

Only the source of uniforms is replaced. It sees the law each uniform will be applied to, puts the uniform in the middle
of the cell a row was told to take, and keeps that cell's exact weight; each outcome of a round is one row of a batch.
Rows whose committed text is the same go on as one: that their caches are equal then is checked after every round.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import islice, product

import numpy as np
from mtplxd.engine.batch import Batch
from mtplxd.engine.request import BLOCK, COUPLED, SamplerSettings
from mtplxd.engine.round import Flight, Landing, commit, land, launch
from mtplxd.engine.row import Pending, Row
from mtplxd.engine.sampling import Law
from mtplxd.engine.shaping import make_shaper
from mtplxd.families.caches import RowCache
from mtplxd.platform.mlx import Array, mx
from support.reference_laws import Text, draft_sampler, reference_law, shaped_logits, supports
from support.table_matcher import LanguageMatcher, TableLanguage
from support.table_model import TableHead, TableTarget

ANY = -1
"""A choice that does not matter: some cell is taken, and its weight is not counted."""
FAILS, PASSES = 0, 1

BATCH_ROWS = 6000
SLOTS = 32


class CellSource:
    """Uniforms that steer each row into its outcome: cells of the drafts, what passes, the cell of the last token.

    `passing` [B, k] holds PASSES, FAILS, or ANY where it does not matter.
    """

    def __init__(self, drafts: np.ndarray, passing: np.ndarray, final: np.ndarray) -> None:
        self._drafts, self._passing, self._final = drafts, passing, final
        self._weights: dict[object, np.ndarray] = {}
        self._whole: tuple[CellSource, Sequence[int] | slice] = (self, slice(None))

    @property
    def weights(self) -> np.ndarray:
        """The probability of each row's outcome, [B]."""
        return np.prod([np.ones(len(self._final)), *self._weights.values()], axis=0)

    def draft(self, step: int, law: Law) -> Array:
        return self._draw(step, law, self._drafts[:, step])

    def accept(self, chances: Array) -> Array:
        given = np.nan_to_num(np.array(chances).astype(np.float64))
        passing = self._passing[:, : given.shape[1]]
        conditions = [passing == PASSES, passing == FAILS]
        self._weigh("accept", np.prod(np.select(conditions, [given, 1 - given], 1.0), axis=1))
        return mx.array(np.select(conditions, [given / 2, (1 + given) / 2], 0.5), chances.dtype)

    def final(self, law: Law) -> Array:
        return self._draw("final", law, self._final)

    def races(self, begin: int, count: int, size: int) -> Array:
        """Of rows whose law is not enumerated, that run races beside those whose is: the same at any width."""
        return mx.array(
            np.stack([race_times(place, len(self._final), size) for place in range(begin, begin + count)], 1)
        )

    def of(self, places: Sequence[int]) -> CellSource:
        """These rows alone; what they are given counts here."""
        part = CellSource(self._drafts[places], self._passing[places], self._final[places])
        part._whole = (self, places)
        return part

    def _draw(self, what: object, law: Law, cells: np.ndarray) -> Array:
        uniforms, weights = middle_of_cells(np.array(law.weights), cells, law.ids)
        self._weigh(what, weights)
        return mx.array(uniforms, law.dtype)

    def _weigh(self, what: object, weights: np.ndarray) -> None:
        source, places = self._whole
        source._weights.setdefault(what, np.ones(len(source._final)))[places] = weights


def race_times(place: int, rows: int, size: int) -> np.ndarray:
    """Exponential times [rows, size] of a position of the round, all above 0."""
    return np.random.default_rng(place).exponential(size=(rows, size)).astype(np.float32) + 1e-6


def middle_of_cells(
    law: np.ndarray, cells: np.ndarray, ids: Array | None = None
) -> tuple[np.ndarray, np.ndarray]:
    """The uniform [B] in the middle of each row's cell of `law` [B, c], and the cell's share of the mass.

    A cell is a place of the law; with `ids` [B, c] it is that id's, and one that is not among them has no mass.
    """
    law = np.nan_to_num(law.astype(np.float64))  # behind a head's last sound number nothing counts
    total = np.maximum(law.sum(axis=1), 1e-300)
    places = np.arange(law.shape[1]) if ids is None else np.array(ids)
    found = places == cells[:, None]
    chosen = np.where(cells == ANY, law.argmax(axis=1), found.argmax(axis=1))
    mass = np.take_along_axis(law, chosen[:, None], axis=1)[:, 0]
    mass = np.where((cells == ANY) | found.any(axis=1), mass, 0.0)
    upto = np.take_along_axis(np.cumsum(law, axis=1), chosen[:, None], axis=1)[:, 0]
    return (upto - mass / 2) / total, np.where(cells == ANY, 1.0, mass / total)


@dataclass(frozen=True)
class Problem:
    """What is enumerated: a prompt, a sampler, how many drafts a round makes after a text, and what a text may be.

    A `plain` row has no history with the head.
    """

    prompt: Text
    sampler: SamplerSettings
    length_after: Callable[[Text], int]
    grammar: TableLanguage | None = None
    plain: bool = False

    def allowed(self, generated: Text) -> frozenset[int] | None:
        """The ids that may follow; None where all may, as they may behind a text that has left the grammar."""
        state = self.grammar.state(generated) if self.grammar else None
        return None if self.grammar is None or state is None else frozenset(self.grammar.moves[state])


@dataclass(frozen=True)
class Outcome:
    """One row of a batch: where it starts, how many drafts it asks for, the cells it takes, what passes of them."""

    problem: Problem
    text: Text
    wanted: int
    drafts: Text
    passing: Text
    accepted: int
    final: int


def patterns(rule: str, length: int, *, every: bool) -> Iterator[tuple[Text, int]]:
    """What may pass of so many drafts, and how many are accepted then. `every` leaves nothing open.

    `token` accepts what is before the first failure; `block` what is up to the last that passes.
    """
    if every:
        for passing in product((FAILS, PASSES), repeat=length):
            first = (*passing, FAILS).index(FAILS)
            last = length - (*reversed(passing), PASSES).index(PASSES)
            yield passing, last if rule == BLOCK else first
    elif rule == BLOCK:
        for count in range(length + 1):
            open_ones = (ANY,) * (count - 1) + (PASSES,) * (count > 0)
            yield (*open_ones, *(FAILS,) * (length - count)), count
    else:
        for count in range(length + 1):
            yield ((PASSES,) * count + (FAILS,) * (count < length) + (ANY,) * (length - count - 1)), count


@dataclass
class Enumeration:
    """The real round on one model.

    `prune` leaves out cells the reference gives no mass (that nothing is missed is checked by the sum of the weights);
    `checked` is off for mutants, whose rounds need not do what they were steered to: every pattern is walked then.
    """

    target: TableTarget
    head: TableHead
    horizon: int
    prune: bool = True
    checked: bool = True
    mask_drafts: bool = True
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
                if not share:
                    continue
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
        wanted = problem.length_after(text) if len(committed) > 1 and not problem.plain else 0
        found = []
        for cells in self._draft_tuples(problem, text, wanted):
            drafts = tuple(self.head.ids[cell] for cell in cells)
            for passing, accepted in patterns(problem.sampler.rule, len(cells), every=not self.checked):
                for final in self._finals(problem, text + drafts[:accepted]):
                    found.append(Outcome(problem, text, wanted, cells, passing, accepted, final))
        return found

    def _draft_tuples(self, problem: Problem, text: Text, wanted: int) -> list[Text]:
        """Cells of up to `wanted` drafts, fewer where the head's numbers end."""
        found: list[Text] = []
        grown: list[tuple[Text, list[int]]] = [((), self.head.pairs_of(problem.prompt + text))]
        while grown:
            cells, pairs = grown.pop()
            state = self.head.state_after(pairs)
            if len(cells) == wanted or np.isnan(self.head.table[state]).any():
                found.append(cells)
                continue
            drafted = tuple(self.head.ids[cell] for cell in cells)
            choices = (
                self._head_support(problem, state, text + drafted)
                if self.prune
                else range(len(self.head.ids))
            )
            grown += [((*cells, cell), self.head.extended(pairs, self.head.ids[cell])) for cell in choices]
        return found

    def _finals(self, problem: Problem, generated: Text) -> list[int]:
        if len(generated) >= self.horizon:
            return [ANY]
        if not self.prune:
            return list(range(self.target.vocab_size))
        state = self.target.state_after(problem.prompt + generated)
        return self._support(self.target.table[state], problem, generated, problem.sampler, None)

    def _head_support(self, problem: Problem, state: int, generated: Text) -> list[int]:
        sampler = draft_sampler(problem.sampler)
        if not self.mask_drafts:
            problem = replace(problem, grammar=None)
        return self._support(self.head.table[state], problem, generated, sampler, self.head.ids)

    def _support(
        self,
        logits: np.ndarray,
        problem: Problem,
        generated: Text,
        sampler: SamplerSettings,
        ids: Sequence[int] | None,
    ) -> list[int]:
        allowed = problem.allowed(generated)
        said = tuple(sorted(generated)) if sampler.penalised else ()
        key = (logits.tobytes(), problem.prompt, said, sampler, allowed, ids is None)
        if key not in self._supports:
            shaped = shaped_logits(logits, sampler, problem.prompt, generated, allowed, ids)
            self._supports[key] = supports(reference_law(shaped, sampler))
        return self._supports[key]

    def _round(self, outcomes: Sequence[Outcome]) -> tuple[list[Text], np.ndarray]:
        """Runs one real round over the outcomes; gives the text each row has afterwards, and its weight."""
        depth = max(outcome.wanted for outcome in outcomes)
        cells, passing = (np.full((len(outcomes), depth), ANY) for _ in range(2))
        for b, outcome in enumerate(outcomes):
            cells[b, : len(outcome.drafts)] = outcome.drafts
            passing[b, : len(outcome.passing)] = outcome.passing
        source = CellSource(cells, passing, np.array([outcome.final for outcome in outcomes]))
        batch = self._open_rows(outcomes)
        flight = launch(batch, source, [outcome.wanted for outcome in outcomes])
        landings = land(batch, flight)
        self.rows += len(outcomes)
        commit(batch, flight, landings, [len(landing.tokens) for landing in landings])
        if self.checked:
            check_steered(self.head, outcomes, landings, flight, source.weights)
            check_settled(self.head, batch)
            check_histories(outcomes, batch)
        return [
            tuple(row.tokens[len(outcome.problem.prompt) :])
            for row, outcome in zip(batch.rows, outcomes, strict=True)
        ], source.weights

    def _open_rows(self, outcomes: Sequence[Outcome]) -> Batch:
        """A batch whose caches hold what their texts say; how many pairs are still pending differs from row to row."""
        known: dict[Text, tuple[list[int], Pending | None]] = {}
        body, pairs, rows = [], [], []
        for outcome in outcomes:
            problem = outcome.problem
            committed = problem.prompt + outcome.text
            if committed not in known:
                known[committed] = _split_pairs(self.target, self.head, committed)
            absorbed, pending = ([], None) if problem.plain else known[committed]
            body.append(committed[:-1])
            pairs.append(absorbed)
            own = (
                replace(pending, tokens=list(pending.tokens), parts=list(pending.parts)) if pending else None
            )
            row = Row(list(committed), problem.sampler, outcome.wanted, problem.plain, pending=own)
            row.shaper = make_shaper(problem.sampler, problem.prompt)
            if row.shaper:
                row.shaper.commit(outcome.text)
            if problem.grammar:
                matcher = problem.grammar.start()
                followed = all(matcher.advance(token) for token in outcome.text)
                assert followed or not self.checked
                row.matcher = matcher  # type: ignore[assignment]
            rows.append(row)
        caches = [filled_cache(body)], [filled_cache(pairs)]
        return Batch(self.target, self.head, rows, *caches, mask_drafts=self.mask_drafts)


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
        if weights[b] <= 1e-7 or outcome.problem.sampler.rule == COUPLED:
            continue
        assert landing.accepted == outcome.accepted
        assert landing.drafted == len(outcome.drafts)
        assert outcome.final in (ANY, landing.tokens[-1])
        assert [head.ids[cell] for cell in outcome.drafts] == list(ids[b, : landing.drafted])


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
        assert absorbed + len(pending) == (0 if row.plain else len(row.tokens) - 1)
        assert list(pairs[b, :absorbed]) == expected[committed][:absorbed]
        assert pending == row.tokens[len(row.tokens) - len(pending) :]


def check_histories(outcomes: Sequence[Outcome], batch: Batch) -> None:
    """Penalties have counted exactly what is committed, and matchers stand where their rows began the round."""
    for outcome, row in zip(outcomes, batch.rows, strict=True):
        if row.shaper and row.sampler.penalised:
            prompt = outcome.problem.prompt
            made = row.tokens[len(prompt) :]
            expected = {(token, token in prompt, made.count(token)) for token in row.tokens}
            assert set(zip(*row.shaper.history().tolist(), strict=True)) == expected
        if isinstance(row.matcher, LanguageMatcher):
            assert tuple(row.matcher.consumed) == outcome.text
