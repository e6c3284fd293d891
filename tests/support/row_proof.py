"""The law of one row among two or three: its randomness is enumerated in full while its neighbours do one thing each.

Why that suffices. Rows share the forwards of a round and nothing random: each has uniforms of its own. What is
compared with a row's plain law is its law *given* what its neighbours drew. Where the two are equal whatever the
neighbours drew, the row's text is independent of them, and the joint law of all rows is the product of their plain
laws. A neighbour's draws reach a row only through what shares arrays with it: the neighbour's length, its draft length
and with it the round's, what it holds in its caches and histories, what of its drafts pass. So the neighbours of every
round are drawn anew, seeded by the row's text and a number: texts of any length, each accepted length equally often.
They may thus follow the row's own text, which is more than independence needs. `joint_law` leaves nothing out: it walks
all outcomes of both rows of small pairs.

Each outcome is a round of its own, in a batch of just these rows: nothing proved of two rows takes more to hold.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import product

import numpy as np
from mtplxd.engine.request import COUPLED
from support.enumeration import Enumeration, Outcome, Problem, race_times
from support.reference_laws import Text, reference_law, shaped_logits


@dataclass
class Company(Enumeration):
    """Enumerates the row at `place` beside the other `problems`, which behave as number `turn` says."""

    problems: Sequence[Problem] = ()
    place: int = 0
    turn: int = 0
    seen: set[tuple[int, int, int]] = field(default_factory=set)
    """Of the neighbours of all rounds: place, drafts, accepted drafts."""
    _around: dict[Text, list[Outcome]] = field(default_factory=dict)

    def law(self) -> np.ndarray:
        """The exact law of the row's next `horizon` tokens."""
        return self.text_laws([self.problems[self.place]])[0]

    def _round(self, outcomes: Sequence[Outcome]) -> tuple[list[Text], np.ndarray]:
        texts, weights = [], []
        for outcome in outcomes:
            rows = list(self._neighbours(outcome.text))
            rows.insert(self.place, outcome)
            after, shares = super()._round(rows)
            self._check_raced(rows, after)
            texts.append(after[self.place])
            weights.append(shares[self.place])
        return texts, np.array(weights)

    def _neighbours(self, text: Text) -> list[Outcome]:
        if text not in self._around:
            rng = np.random.default_rng([self.turn, len(text), *text])
            others = [(b, one) for b, one in enumerate(self.problems) if b != self.place]
            self._around[text] = [self._behave(b, problem, rng) for b, problem in others]
        return self._around[text]

    def _behave(self, place: int, problem: Problem, rng: np.random.Generator) -> Outcome:
        """What a neighbour does in one round, behind any text it may have said."""
        said: Text = ()
        for _ in range(int(rng.integers(self.horizon))):
            said = (*said, int(rng.choice(self._finals(problem, said))))
        possible = self._outcomes(problem, said)
        accepted = int(rng.choice(sorted({outcome.accepted for outcome in possible})))
        chosen = [outcome for outcome in possible if outcome.accepted == accepted]
        outcome = chosen[int(rng.integers(len(chosen)))]
        self.seen.add((place, len(outcome.drafts), accepted))
        return outcome

    def _check_raced(self, rows: Sequence[Outcome], after: Sequence[Text]) -> None:
        """A `coupled` neighbour says what the equations and its own times make of its own text."""
        if not self.checked:
            return
        for b, (outcome, text) in enumerate(zip(rows, after, strict=True)):
            problem = outcome.problem
            if problem.sampler.rule != COUPLED:
                continue
            for place in range(len(outcome.text), len(text)):
                before = text[:place]
                logits = self.target.logits_after(problem.prompt + before)
                law = reference_law(
                    shaped_logits(logits, problem.sampler, problem.prompt, before, problem.allowed(before)),
                    problem.sampler,
                )
                times = race_times(place - len(outcome.text), len(rows), len(law))[b]
                assert text[place] == int(np.argmax(law / times))


def joint_law(model: Enumeration, problems: Sequence[Problem]) -> np.ndarray:
    """The law of the next tokens of two rows together, [V]*horizon of the first, then of the second; every outcome of
    both is a round of two rows."""
    size, horizon = model.target.vocab_size, model.horizon
    law = np.zeros((size,) * (2 * horizon))
    waiting: dict[tuple[Text, ...], float] = {((), ()): 1.0}
    while waiting:
        reached: defaultdict[tuple[Text, ...], float] = defaultdict(float)
        for texts, mass in waiting.items():
            if all(len(text) == horizon for text in texts):
                law[texts[0] + texts[1]] += mass
                continue
            for ends, share in _rounds_of_both(model, problems, texts):
                reached[ends] += mass * share
        waiting = dict(reached)
    return law


def _rounds_of_both(
    model: Enumeration, problems: Sequence[Problem], texts: tuple[Text, ...]
) -> list[tuple[tuple[Text, ...], float]]:
    """Where each pair of outcomes leads; a row that has said enough does one thing and stays."""
    done = [len(text) == model.horizon for text in texts]
    choices = [
        outcomes[:1] if full else outcomes
        for full, outcomes in zip(
            done, (model._outcomes(*start) for start in zip(problems, texts, strict=True)), strict=True
        )
    ]
    found = []
    for rows in product(*choices):
        after, weights = model._round(rows)
        share = float(np.prod([1.0 if full else weight for full, weight in zip(done, weights, strict=True)]))
        found.append((tuple(text[: model.horizon] for text in after), share))
    assert abs(sum(share for _, share in found) - 1) < 1e-4, "the outcomes of a round do not add up to 1"
    return found
