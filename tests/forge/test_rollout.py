"""Rows: what the template forces is forced, what is sampled has the sampler's law, and a seed means one shard."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from mtplxd.families.body import Body
from mtplxd.families.load import LoadedModel
from mtplxd.forge.rollout import Plan, Step, Turns, roll, sample
from mtplxd.forge.shards import ASKED, FIELDS, FORCED, GENERATED
from mtplxd.forge.stepping import TargetStepper
from mtplxd.forge.turns import find_turns
from mtplxd.platform.mlx import mx

END = 9


class Scripted:
    """A stepper that always prefers one token, and ends its turns every so often."""

    rows = 3

    def __init__(self, every: int) -> None:
        self._every, self._count = every, 0

    def reset(self) -> None:
        self._count = 0

    def step(self, _: np.ndarray) -> Step:
        self._count += 1
        wanted = END if self._count % self._every == 0 else 7
        ids = np.tile(np.array([wanted, 8], np.int32), (self.rows, 1))
        logits = np.tile(np.array([50.0, 0.0], np.float32), (self.rows, 1))
        return Step(
            np.zeros((self.rows, 1, 4), np.float16), ids, logits, np.zeros((self.rows, 2), np.float32)
        )


TURNS = Turns(first=[1, 2], again=[END, 1, 2], close=[END, 3], encode=lambda text: [5] * len(text))


def roll_scripted(plan: Plan, every: int) -> tuple[list[int], list[int]]:
    shard = roll(Scripted(every), TURNS, lambda _: "abc", plan, np.random.default_rng(0))
    return shard.tokens[0].tolist(), shard.origin[0].tolist()


def test_an_answer_that_ends_is_followed_by_the_next_question() -> None:
    plan = Plan(length=20, ask_first=0.0, ask_again=0.0, run_free=0.0)
    tokens, origin = roll_scripted(plan, every=10)
    assert tokens == [1, 2, 5, 5, 5, END, 3, 7, 7, 7, END, 1, 2, 5, 5, 5, END, 3, 7, 7]
    assert origin == [FORCED] * 7 + [GENERATED] * 4 + [FORCED] * 7 + [GENERATED] * 2


def test_an_answer_that_is_too_long_is_cut_by_force() -> None:
    plan = Plan(length=16, ask_first=0.0, ask_again=0.0, run_free=0.0, answer=(3, 4))
    tokens, origin = roll_scripted(plan, every=1000)
    assert tokens[7:13] == [7, 7, END, 1, 2, 5]
    assert origin[7:13] == [GENERATED, GENERATED, FORCED, FORCED, FORCED, FORCED]


def test_a_question_the_target_makes_up_is_marked_as_asked() -> None:
    plan = Plan(length=12, ask_first=1.0, ask_again=0.0, run_free=0.0)
    tokens, origin = roll_scripted(plan, every=6)
    assert tokens[:8] == [1, 2, 7, 7, 7, 7, END, 3]
    assert origin[:8] == [FORCED, FORCED, ASKED, ASKED, ASKED, ASKED, ASKED, FORCED]


def test_a_free_row_goes_on_after_its_end_without_force() -> None:
    plan = Plan(length=14, ask_first=0.0, ask_again=0.0, run_free=1.0)
    tokens, origin = roll_scripted(plan, every=10)
    assert tokens[9:] == [7, END, 7, 7, 7]
    assert origin[7:] == [GENERATED] * 7


def test_sampling_has_the_law_of_temperature_then_top_p() -> None:
    count = 40_000
    logits = np.array([2.0, 1.5, 0.5, -1.0], np.float32)
    step = Step(
        np.zeros((count, 1, 1), np.float16),
        np.tile(np.array([11, 3, 5, 2], np.int32), (count, 1)),
        np.tile(logits, (count, 1)),
        np.zeros((count, 2), np.float32),
    )
    uniforms = (np.arange(count, dtype=np.float32) + 0.5) / count
    drawn = sample(step, np.full(count, 0.6, np.float32), 0.9, uniforms)
    weights = np.exp(logits / 0.6)
    weights /= weights.sum()
    kept = weights * (np.cumsum(weights) - weights < 0.9)
    kept /= kept.sum()
    assert 0 < (kept > 0).sum() < 4
    found = [(drawn == token).mean() for token in (11, 3, 5, 2)]
    np.testing.assert_allclose(found, kept, atol=1e-3)


def test_the_turns_found_rebuild_what_the_template_renders(tiny: LoadedModel) -> None:
    turns = find_turns(tiny.tokenizer)
    question, answer, again = "What is tea?", "Leaves.", "And coffee?"
    messages = [{"role": "user", "content": question}, {"role": "assistant", "content": answer}]
    messages.append({"role": "user", "content": again})
    built = [*turns.first, *turns.encode(question), *turns.close, *turns.encode(answer)]
    built += [*turns.again, *turns.encode(again), *turns.close]
    assert built == tiny.tokenizer.render_chat(messages)
    assert turns.end in tiny.eos_ids


def test_what_is_recorded_is_what_one_forward_over_the_text_says(tiny: LoadedModel) -> None:
    body = Body(tiny.target.model, (2, 4))  # type: ignore[attr-defined]
    plan = Plan(length=40, answer=(10, 20), question=8)
    turns = find_turns(tiny.tokenizer)
    shard = roll(TargetStepper(body, 3, top=16), turns, lambda _: "Why?", plan, np.random.default_rng(1))
    hidden, taps = body.run(mx.array(shard.tokens.astype(np.int32)), body.make_cache(3))
    logits = np.array(body.logits(hidden), np.float64)
    for place, tap in enumerate(taps):
        np.testing.assert_allclose(shard.taps[:, :, place], np.array(tap), rtol=2e-3, atol=2e-3)
    for column, temperature in ((0, 1.0), (1, 0.6)):
        wanted = np.log(np.exp(logits / temperature).sum(-1))
        np.testing.assert_allclose(shard.logsumexp[..., column], wanted, atol=1e-3)
    top = -np.sort(-logits, axis=-1)[..., :16] - shard.logsumexp[..., :1]
    np.testing.assert_allclose(shard.top_logprobs, top, atol=1e-2)
    chosen = np.take_along_axis(logits, shard.top_ids.astype(np.int64), axis=-1) - shard.logsumexp[..., :1]
    np.testing.assert_allclose(chosen, top, atol=1e-2)


def test_a_seed_means_one_shard_and_a_stepper_can_be_reused(
    tiny: LoadedModel, make_plan: Callable[[], Plan]
) -> None:
    body = Body(tiny.target.model, (2, 4))  # type: ignore[attr-defined]
    turns, stepper = find_turns(tiny.tokenizer), TargetStepper(body, 2, top=16)
    first = roll(stepper, turns, lambda _: "Why?", make_plan(), np.random.default_rng(1))
    again = roll(stepper, turns, lambda _: "Why?", make_plan(), np.random.default_rng(1))
    other = roll(stepper, turns, lambda _: "Why?", make_plan(), np.random.default_rng(2))
    assert all(np.array_equal(getattr(first, name), getattr(again, name)) for name in FIELDS)
    assert not np.array_equal(first.tokens, other.tokens)
