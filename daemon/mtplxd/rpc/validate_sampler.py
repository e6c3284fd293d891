"""What a client's words about sampling mean: each value checked, contradictions refused, the sampler in force settled.

No model is known here; what depends on one (its vocabulary, its defaults) is handed in.
"""

from __future__ import annotations

import math
import secrets
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, TypeVar

from mtplxd.engine.request import (
    BLOCK,
    COUPLED,
    DEFAULT_RULE,
    DRAFT_CANDIDATES,
    TOKEN,
    DraftSampler,
    SamplerSettings,
)
from mtplxd.errors import InvalidArgument
from mtplxd.residency.catalog import SamplerDefaults

N = TypeVar("N", int, float)

TEMPERATURE_LOW, TEMPERATURE_HIGH = 1e-3, 100.0
"""Range of a temperature that is not 0; below it, quotients of logits leave float32."""
PENALTY_LIMIT = 2.0
REPETITION_LOW, REPETITION_HIGH = 0.01, 10.0
"""Below it, quotients of logits by penalty and temperature leave float32."""
BIAS_LIMIT, MOST_BIASES = 100.0, 1 << 18
SEED_BITS = 32
RULES = (TOKEN, BLOCK, COUPLED)
_LIKE_THE_TARGET = DraftSampler()


@dataclass(frozen=True)
class AskedSampler:
    """A sampler as asked: None, and no bias, where the client said nothing."""

    temperature: float | None = None
    top_p: float | None = None
    top_k: int | None = None
    min_p: float | None = None
    seed: int | None = None
    repetition_penalty: float | None = None
    presence_penalty: float | None = None
    frequency_penalty: float | None = None
    logit_bias: tuple[tuple[int, float], ...] = ()
    acceptance: str | None = None
    reproducible: bool = False
    draft: DraftSampler = _LIKE_THE_TARGET


def read_sampler(message: Any) -> AskedSampler:
    """A SamplerRequest, checked. Raises InvalidArgument naming the field."""
    asked = AskedSampler(
        temperature=_given(message, "temperature", check_temperature),
        top_p=_given(message, "top_p", check_top_p),
        top_k=_given(message, "top_k", check_top_k),
        min_p=_given(message, "min_p", check_min_p),
        seed=_given(message, "seed", int),
        repetition_penalty=_given(message, "repetition_penalty", check_repetition_penalty),
        presence_penalty=_given(message, "presence_penalty", check_presence_penalty),
        frequency_penalty=_given(message, "frequency_penalty", check_frequency_penalty),
        logit_bias=_read_bias(message.logit_bias),
        acceptance=_given(message, "acceptance", check_acceptance),
        reproducible=message.reproducible,
        draft=DraftSampler(
            _given(message, "draft_temperature", check_draft_temperature),
            _given(message, "draft_top_k", check_draft_top_k),
        ),
    )
    if asked.reproducible and asked.acceptance not in (None, COUPLED):
        raise InvalidArgument(
            "a reproducible text needs the coupled rule",
            asked.acceptance,
            "leave out acceptance or reproducible",
            field="acceptance",
        )
    if asked.draft.temperature == 0 and asked.draft.top_k:
        raise InvalidArgument(
            "a greedy draft chooses from no top-k",
            asked.draft.top_k,
            "leave out draft_top_k or draft_temperature",
            field="draft_top_k",
        )
    if asked.temperature == 0:
        refuse_draft(asked.draft, "greedy decoding drafts greedily")
    return asked


def settle_sampler(asked: AskedSampler, defaults: SamplerDefaults, vocab_size: int) -> SamplerSettings:
    """The sampler in force: the request, else the pack, else plain sampling; a seed is drawn if absent.

    Raises InvalidArgument for a bias of an id that the model has not, and for a draft's settings where the pack
    makes decoding greedy.
    """
    for token, _ in asked.logit_bias:
        if token >= vocab_size:
            fix = f"the model has {vocab_size} tokens"
            raise InvalidArgument("logit_bias names an unknown token id", token, fix, field="logit_bias")
    settled = SamplerSettings(
        temperature=_settle(asked.temperature, defaults.temperature, check_temperature, 1.0),
        top_p=_settle(asked.top_p, defaults.top_p, check_top_p, 1.0),
        top_k=_settle(asked.top_k, defaults.top_k, check_top_k, 0),
        min_p=_settle(asked.min_p, defaults.min_p, check_min_p, 0.0),
        seed=secrets.randbits(SEED_BITS) if asked.seed is None else asked.seed,
        repetition_penalty=_settle(
            asked.repetition_penalty, defaults.repetition_penalty, check_repetition_penalty, 1.0
        ),
        presence_penalty=_settle(
            asked.presence_penalty, defaults.presence_penalty, check_presence_penalty, 0.0
        ),
        frequency_penalty=_settle(
            asked.frequency_penalty, defaults.frequency_penalty, check_frequency_penalty, 0.0
        ),
        logit_bias=asked.logit_bias,
        acceptance=_settle_rule(asked),
        reproducible=asked.reproducible,
    )
    if settled.greedy:
        refuse_draft(asked.draft, "this model decodes greedily unless a temperature is asked for")
        return settled
    return replace(settled, draft=_settle_draft(asked.draft, defaults))


def without_seed(asked: AskedSampler) -> AskedSampler:
    """A measurement's wish: its seed chooses prompts and randomness, and leaves the rule alone."""
    return replace(asked, seed=None)


def refuse_draft(draft: DraftSampler, why: str) -> None:
    """Raises InvalidArgument where a draft's settings were asked for and would do nothing."""
    for field, value in (("draft_temperature", draft.temperature), ("draft_top_k", draft.top_k)):
        if value is not None:
            raise InvalidArgument(why, f"{field} {value:g}", f"leave out {field}", field=field)


def check_temperature(value: float, field: str = "temperature") -> float:
    """0 is greedy."""
    if value == 0 or TEMPERATURE_LOW <= value <= TEMPERATURE_HIGH:
        return abs(value)
    raise _out_of_range(field, value, f"give 0, or {TEMPERATURE_LOW} to {TEMPERATURE_HIGH:g}")


def check_top_p(value: float) -> float:
    """1 is off."""
    if 0 < value <= 1:
        return value
    raise _out_of_range("top_p", value, "give more than 0 and at most 1")


def check_top_k(value: int) -> int:
    """0 is off."""
    if value >= 0:
        return value
    raise _out_of_range("top_k", value, "give 0 (off) or more")


def check_min_p(value: float) -> float:
    """0 is off, 1 keeps the likeliest alone."""
    if 0 <= value <= 1:
        return value
    raise _out_of_range("min_p", value, "give 0 (off) to 1")


def check_repetition_penalty(value: float) -> float:
    """1 is off; below it, what was said becomes likelier."""
    if REPETITION_LOW <= value <= REPETITION_HIGH:
        return value
    raise _out_of_range("repetition_penalty", value, f"give {REPETITION_LOW:g} to {REPETITION_HIGH:g}")


def check_presence_penalty(value: float, field: str = "presence_penalty") -> float:
    """0 is off."""
    if -PENALTY_LIMIT <= value <= PENALTY_LIMIT:
        return value
    raise _out_of_range(field, value, f"give {-PENALTY_LIMIT:g} to {PENALTY_LIMIT:g}")


def check_frequency_penalty(value: float) -> float:
    """0 is off."""
    return check_presence_penalty(value, "frequency_penalty")


def check_draft_temperature(value: float) -> float:
    """0 drafts the likeliest token."""
    return check_temperature(value, "draft_temperature")


def check_draft_top_k(value: int) -> int:
    """0 is off; more than a draft's law ever keeps would not be followed."""
    if 0 <= value <= DRAFT_CANDIDATES:
        return value
    raise _out_of_range("draft_top_k", value, f"give 0 (off) to {DRAFT_CANDIDATES}")


def check_acceptance(value: str) -> str:
    """A rule's name."""
    if value in RULES:
        return value
    raise InvalidArgument("unknown acceptance rule", value, f"give {', '.join(RULES)}", field="acceptance")


def _read_bias(entries: Any) -> tuple[tuple[int, float], ...]:
    if len(entries) > MOST_BIASES:
        raise InvalidArgument(
            "too many biases", len(entries), f"give at most {MOST_BIASES}", field="logit_bias"
        )
    pairs = tuple((entry.token, entry.bias) for entry in entries)
    seen: set[int] = set()
    for token, bias in pairs:
        if token in seen:
            raise InvalidArgument("two biases for one token", token, "give one", field="logit_bias")
        if not (math.isfinite(bias) and abs(bias) <= BIAS_LIMIT):
            raise _out_of_range("logit_bias", bias, f"give {-BIAS_LIMIT:g} to {BIAS_LIMIT:g}")
        seen.add(token)
    return pairs


def _settle_rule(asked: AskedSampler) -> str:
    """A seed means one text, whatever is drafted, unless a rule is named."""
    if asked.acceptance:
        return asked.acceptance
    return COUPLED if asked.reproducible or asked.seed is not None else DEFAULT_RULE


def _settle_draft(asked: DraftSampler, defaults: SamplerDefaults) -> DraftSampler:
    """What is asked goes before the pack; a greedy draft has no top-k, so the one that was asked for wins."""
    packs = _usable(defaults.draft_temperature, check_draft_temperature)
    packs = None if packs == 0 and asked.top_k is not None else packs
    temperature = packs if asked.temperature is None else asked.temperature
    packs_top_k = None if temperature == 0 else _usable(defaults.draft_top_k, check_draft_top_k)
    return DraftSampler(temperature, packs_top_k if asked.top_k is None else asked.top_k)


def _settle(asked: N | None, pack: N | None, check: Callable[[N], N], otherwise: N) -> N:
    if asked is not None:
        return asked
    usable = _usable(pack, check)
    return otherwise if usable is None else usable


def _usable(value: N | None, check: Callable[[N], N]) -> N | None:
    """A pack's value, or None where it is out of range: its user cannot mend it."""
    try:
        return None if value is None else check(value)
    except InvalidArgument:
        return None


def _given(message: Any, name: str, check: Callable[[Any], Any]) -> Any:
    return check(getattr(message, name)) if message.HasField(name) else None


def _out_of_range(field: str, value: float, fix: str) -> InvalidArgument:
    return InvalidArgument(f"{field} is out of range", value, fix, field=field)
