"""Requests that have little in common: chat, code and prose, other lengths, samplers, depths, penalties, structures.

Each names the promise its text must keep beside others: `greedy` and `coupled` up to near-ties, `reproducible` to the
last token, `sampled` none (its neighbours' promises are what it is there for).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from mtplxd.tune.prompts import load_suite

GREEDY, COUPLED, REPRODUCIBLE, SAMPLED = "greedy", "coupled", "reproducible", "sampled"
SUITES = ("chat", "code", "prose")
LENGTHS = (24, 40, 16, 56, 32)
"""Tokens of the answers, in turn; coprime to the number of settings, so that each gets every length."""
OPENINGS = (
    "",
    "Please be brief. ",
    "I have little time, my train leaves in ten minutes, and I would still like to know this. ",
    "Before I ask, some background. I live by the sea, work at night, read whatever I find and forget most of it. Last "
    "week a friend mentioned this over dinner. We could not agree, though both of us had read about it, he in a "
    "magazine at the dentist's and I in a book that I had borrowed and never finished. I promised to find out, and "
    "he promised to cook again if I was right; he cooks well, so there is something to win. I looked it up in two "
    "places which contradict each other, and a third one was written for people who know it already. So here it is, as "
    "plainly as I can put it, and I would be glad of an answer that I can read to him over the telephone tonight: ",
)
NAME_AND_AGE = {
    "type": "object",
    "properties": {"name": {"type": "string", "maxLength": 16}, "age": {"type": "integer"}},
    "required": ["name", "age"],
    "additionalProperties": False,
}
_OFF = {"top_p": 1.0, "top_k": 0, "min_p": 0.0}
_T0 = {"temperature": 0.0, **_OFF}


@dataclass(frozen=True)
class Setting:
    """How a text is asked for, and the promise that follows from it."""

    promise: str
    options: dict[str, Any]


SETTINGS = (
    Setting(GREEDY, {**_T0, "depth": 0}),
    Setting(GREEDY, {**_T0, "depth": 1}),
    Setting(COUPLED, {"temperature": 0.8, **_OFF, "top_p": 0.95, "depth": 2}),
    Setting(GREEDY, {**_T0, "depth": 3, "repetition_penalty": 1.2}),
    Setting(REPRODUCIBLE, {"temperature": 0.7, **_OFF, "top_p": 0.9, "depth": 2, "reproducible": True}),
    Setting(GREEDY, {**_T0, "depth": "auto", "presence_penalty": 0.5, "frequency_penalty": 0.3}),
    Setting(SAMPLED, {"temperature": 0.9, **_OFF, "top_k": 40, "depth": 3, "acceptance": "block"}),
    Setting(GREEDY, {**_T0, "depth": 2, "regex": "[A-Z][a-z ,]{12,60}[.]"}),
    Setting(COUPLED, {"temperature": 1.0, **_OFF, "depth": 3, "presence_penalty": 0.4}),
    Setting(REPRODUCIBLE, {"temperature": 1.0, **_OFF, "min_p": 0.05, "depth": 3, "reproducible": True}),
    Setting(GREEDY, {**_T0, "depth": 1, "json_schema": NAME_AND_AGE}),
    Setting(COUPLED, {"temperature": 0.6, **_OFF, "top_p": 0.95, "depth": 0}),
    Setting(GREEDY, {**_T0, "depth": 2, "logit_bias": {40: 2.0, 41: -4.0}, "stop": "\n\n"}),
    Setting(SAMPLED, {"temperature": 0.6, **_OFF, "top_p": 0.95, "depth": 1, "acceptance": "token"}),
    Setting(REPRODUCIBLE, {**_T0, "depth": 1, "reproducible": True}),
    Setting(GREEDY, {**_T0, "depth": 3}),
)


@dataclass(frozen=True)
class Mixed:
    """One request of the mix."""

    prompt: str
    promise: str
    options: dict[str, Any]


def mix(count: int, longest: int = max(LENGTHS), seed: int = 0) -> list[Mixed]:
    """The first `count` requests; the same for the same arguments. No answer is longer than `longest` tokens."""
    suites = [load_suite(name).prompts for name in SUITES]
    return [_make(at, suites, longest, seed) for at in range(count)]


def _make(at: int, suites: Sequence[Sequence[Any]], longest: int, seed: int) -> Mixed:
    suite = suites[at % len(suites)]
    prompt = suite[at // len(suites) % len(suite)].text
    setting = SETTINGS[at % len(SETTINGS)]
    # A structure and a stop string say where a text ends; all others run to their length.
    free = not {"regex", "json_schema", "stop"} & set(setting.options)
    options = {
        **setting.options,
        "max_tokens": min(LENGTHS[at % len(LENGTHS)], longest),
        "seed": seed + at,
        "ignore_eos": free,
    }
    opening = OPENINGS[(at // len(OPENINGS) + at // len(SETTINGS)) % len(OPENINGS)]
    return Mixed(opening + prompt, setting.promise, options)
