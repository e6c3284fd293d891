"""How much a training does where its plan leaves that open: pure arithmetic from sizes of the model.

The quick sizes are chosen so that SmolLM2 is done within twelve minutes on two slow cores; any other model takes in
proportion to its size.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field
from typing import Any

from mtplxd.forge.rollout import Plan
from mtplxd.forge.train_plan import MOST_DEPTHS, Method, TrainPlan
from mtplxd.forge.trainer import Schedule

DRAFT_VOCAB = 6144
"""Tokens that a new head can draft."""
WHOLE = 64_000_000
"""Parameters up to which a head is trained as a whole unless the plan says otherwise."""
LOGITS_A_STEP = 1 << 25
"""Logits that one update may make for each depth; places beyond are drawn."""


@dataclass(frozen=True)
class Sizes:
    """`rows` conversations of `length` tokens are generated at once; an update takes `batch` of them."""

    tokens: int
    steps: int
    rows: int
    length: int
    batch: int
    held_out: int
    """Held-out questions that are asked, at most."""


QUICK_NEW = Sizes(tokens=30_000, steps=120, rows=64, length=160, batch=8, held_out=24)
WHOLE_NEW = Sizes(tokens=1_300_000, steps=1200, rows=64, length=200, batch=16, held_out=64)
QUICK_TUNING = Sizes(tokens=32_000, steps=80, rows=32, length=160, batch=8, held_out=24)
WHOLE_TUNING = Sizes(tokens=300_000, steps=600, rows=64, length=200, batch=16, held_out=64)


@dataclass(frozen=True)
class Recipe:
    """Everything a new head depends on besides the model. Written to the folder; a resumed run must agree with it."""

    tokens: int
    schedule: Schedule
    taps: tuple[int, ...]
    mlp_width: int
    draft_vocab: int = 6144
    rows: int = 64
    plan: Plan = field(default_factory=Plan)
    seed: int = 0


@dataclass(frozen=True)
class Tuning:
    """Everything a fine-tuning depends on besides model, head and prompts."""

    method: Method
    sizes: Sizes
    schedule: Schedule
    plan: Plan
    rank: int
    places: int
    """Places of each depth that count in one update, at most."""
    seed: int = 0
    prompts: str = ""
    """Digest of the user's prompts, empty for the built-in ones."""
    raw: bool = False

    def document(self) -> dict[str, Any]:
        """As JSON, the way it reads back."""
        return dict(json.loads(json.dumps(asdict(self))))


@dataclass(frozen=True)
class HeadFacts:
    """What a head's sizes are decided from: parameters, whether they are packed, tokens it can draft, the deepest
    it can be unrolled, the context of its body, and why its body's rows cannot share forwards."""

    parameters: int
    packed: bool
    draft_vocab: int
    depths: int
    context: int
    apart: str = ""


def settle_sizes(plan: TrainPlan, quick: Sizes, whole: Sizes, context: int, apart: str = "") -> Sizes:
    """The sizes of a plan; a body whose rows cannot share forwards generates one at a time."""
    base = quick if plan.quick else whole
    return Sizes(
        tokens=plan.tokens or base.tokens,
        steps=plan.steps or base.steps,
        rows=1 if apart else base.rows,
        length=max(8, min(base.length, context)),
        batch=base.batch,
        held_out=base.held_out,
    )


def settle_rows(length: int) -> Plan:
    """How rows of that length are made: a question takes at most a third of one."""
    return Plan(length=length, question=min(64, length // 3))


def settle_schedule(plan: TrainPlan, sizes: Sizes, depths: int, **changed: Any) -> Schedule:
    """The schedule of a plan, as deep as the head goes."""
    weights = weights_for(min(plan.depths, depths))
    warmup = max(1, min(100, sizes.steps // 5))
    return Schedule(
        steps=sizes.steps, rows=sizes.batch, warmup=warmup, depth_weights=weights, seed=plan.seed, **changed
    )


def weights_for(depths: int) -> tuple[float, ...]:
    """Loss weights of depths 1 to `depths`: each half of the one before."""
    return tuple(0.5**depth for depth in range(depths))


def settle_tuning(plan: TrainPlan, facts: HeadFacts, prompts: str = "") -> Tuning:
    """What a fine-tuning does."""
    sizes = settle_sizes(plan, QUICK_TUNING, WHOLE_TUNING, facts.context, facts.apart)
    method = choose_method(plan.method, facts)
    peak = 3e-4 if method == "full" else 1e-3
    return Tuning(
        method=method,
        sizes=sizes,
        schedule=settle_schedule(plan, sizes, facts.depths, peak=peak, decay=0.0),
        plan=settle_rows(sizes.length),
        rank=plan.rank if method == "lora" else 0,
        places=max(64, LOGITS_A_STEP // facts.draft_vocab),
        seed=plan.seed,
        prompts=prompts,
        raw=plan.raw,
    )


def choose_method(asked: str, facts: HeadFacts) -> Method:
    """As a whole where that is asked for, or the head is small and not packed."""
    if asked == "auto":
        return "full" if facts.parameters <= WHOLE and not facts.packed else "lora"
    return "full" if asked == "full" else "lora"


def settle_new(plan: TrainPlan, sizes: Sizes, *, layers: int, hidden: int, mlp: Any, vocab: int) -> Recipe:
    """What training a new head does for a body of these sizes; `mlp` is its config's MLP width."""
    width = min(mlp, 4 * hidden) if type(mlp) is int else 4 * hidden
    return Recipe(
        tokens=sizes.tokens,
        schedule=settle_schedule(plan, sizes, MOST_DEPTHS),
        taps=tuple(sorted({max(1, layers // 3), max(1, 2 * layers // 3), layers})),
        mlp_width=width,
        draft_vocab=min(DRAFT_VOCAB, vocab),
        rows=sizes.rows,
        plan=settle_rows(sizes.length),
        seed=plan.seed,
    )
