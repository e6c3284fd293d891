"""The draft of a pack's model card: where it comes from, how it was made and what was measured, from facts alone.

It reads nothing; a path of this machine among the facts does not come into the text. Publishing asks of the card what
is written here: the licence, the machine of the measurements, and that a trained head was trained.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from mtplxd import __version__
from mtplxd.forge.leaks import find_leaks
from mtplxd.forge.licence import OTHER
from mtplxd.packs.detector import TRAINED
from mtplxd.packs.hub.names import find_repository

TAGS = ("mtplx", "mtp", "speculative-decoding")
_LICENCES = """
afl-3.0 agpl-3.0 apache-2.0 artistic-2.0 bigcode-openrail-m bigscience-bloom-rail-1.0 bigscience-openrail-m bsd
bsd-2-clause bsd-3-clause bsd-3-clause-clear bsl-1.0 cc cc-by-2.0 cc-by-3.0 cc-by-4.0 cc-by-nc-4.0 cc-by-nc-nd-4.0
cc-by-nc-sa-4.0 cc-by-nd-4.0 cc-by-sa-3.0 cc-by-sa-4.0 cc0-1.0 cdla-permissive-2.0 ecl-2.0 epl-2.0 etalab-2.0 eupl-1.1
gemma gfdl gpl gpl-2.0 gpl-3.0 isc lgpl lgpl-2.1 lgpl-3.0 llama2 llama3 llama3.1 llama3.2 llama3.3 llama4 mit mpl-2.0
ms-pl ncsa ofl-1.1 openrail openrail++ osl-3.0 postgresql unlicense wtfpl zlib
"""
"""Those that the Hub has a name for; others are written as `other` with their name beside it."""


@dataclass(frozen=True)
class CardFacts:
    """What the card says. Tables are JSON: `recipe` as it was asked for, `rows`, `machine` and `decision` as a
    measurement gives them, `quality`, `calibration` and `training` as their steps do, None without such a step.

    `source` is a repository or another place that publishes, None for a folder of the builder's own. `licence_file` is
    the name of the licence's text in the pack.
    """

    name: str
    family: str
    source: str | None
    revision: str | None
    licence: str | None
    verdict: str
    depth_max: int
    recipe: Mapping[str, Any]
    rows: Sequence[Mapping[str, Any]] = ()
    machine: Mapping[str, Any] | None = None
    decision: Mapping[str, Any] | None = None
    quality: Mapping[str, Any] | None = None
    calibration: Mapping[str, Any] | None = None
    training: Mapping[str, Any] | None = None
    licence_file: str | None = None
    notes: tuple[str, ...] = ()
    version: str = field(default=__version__)


def draft_card(facts: CardFacts) -> str:
    """The card as Markdown, with the head that the Hub reads. The same facts give the same text."""
    parts = [
        _front(facts),
        f"# {_line(facts.name)}",
        _opening(facts),
        *([_training(facts.training)] if facts.training else []),
        "## How it was made",
        _pairs(_recipe(facts)),
        "## What was measured",
        _measured(facts),
        *([_pairs(facts.quality.items())] if facts.quality else []),
        *([_bullets(facts.notes)] if facts.notes else []),
        "## Licence",
        _licence(facts),
    ]
    return "\n\n".join(parts) + "\n"


def _front(facts: CardFacts) -> str:
    """YAML; every text in it is written as JSON, which YAML reads."""
    lines = ["---", *_front_licence(facts)]
    if facts.source and find_repository(facts.source):
        lines.append(f"base_model: {_quoted(facts.source)}")
    lines += [
        "library_name: mlx",
        "pipeline_tag: text-generation",
        "tags:",
        *(f"- {tag}" for tag in TAGS),
        "---",
    ]
    return "\n".join(lines)


def _front_licence(facts: CardFacts) -> Iterator[str]:
    if not facts.licence:
        return
    known = facts.licence in _LICENCES.split()
    yield f"license: {facts.licence if known else OTHER}"
    if not known and facts.licence != OTHER:
        yield f"license_name: {_quoted(facts.licence)}"
    if not known and facts.licence_file:
        yield f"license_link: {_quoted(facts.licence_file)}"


def _opening(facts: CardFacts) -> str:
    at = f" at commit `{_line(facts.revision)}`" if facts.revision else ""
    source = f"`{_line(facts.source)}`{at}" if facts.source else "a checkpoint of its builder's own"
    head = "a head that was trained for it" if facts.training else "the head that it ships"
    return (
        f"{source}, made into a pack for `mtplxd` {_line(facts.version)} (family `{_line(facts.family)}`), which"
        f" decodes it with {head}, up to {facts.depth_max} tokens ahead. `mtplx pull` fetches it, `mtplx verify`"
        " checks it, `mtplx tune` measures what it gains on your machine."
    )


def _training(training: Mapping[str, Any]) -> str:
    shown = {name: value for name, value in training.items() if not isinstance(value, Mapping | list | tuple)}
    said = (
        f"**Its multi-token-prediction head is {TRAINED}**: `mtplxd` made it for exactly these weights, on text that"
        " they wrote themselves. It is not the work of the checkpoint's publisher."
    )
    return f"{said}\n\n{_pairs(shown.items())}" if shown else said


def _recipe(facts: CardFacts) -> list[tuple[str, Any]]:
    shown = [(name, value) for name, value in sorted(facts.recipe.items()) if value is not None]
    calibration = (facts.calibration or {}).get("verdict")
    return [*shown, *([("calibration", calibration)] if calibration else [])]


def _measured(facts: CardFacts) -> str:
    if not facts.rows:
        return f"Nothing yet ({_line(facts.verdict)})."
    where = ", ".join(
        f"{name}: {_cell(value)}" for name, value in sorted((facts.machine or {}).items()) if value
    )
    depth = (facts.decision or {}).get("depth")
    verdict = f"Verdict: {_line(facts.verdict)}" + (f", depth {depth}." if depth else ".")
    rows = [
        (
            row.get("depth"),
            _number(row.get("tok_s")),
            _number(row.get("ratio")),
            " to ".join(_number(end) for end in row.get("ci95") or ()),
            ", ".join(_number(share) for share in row.get("acceptance_by_position") or ()),
            row.get("suite"),
        )
        for row in facts.rows
    ]
    names = ("depth", "tokens/s", "ratio to plain", "95 % interval", "acceptance by position", "suite")
    return f"On {where or 'a machine that was not named'}.\n\n{_table(names, rows)}\n\n{verdict}"


def _licence(facts: CardFacts) -> str:
    if not facts.licence:
        return "Its source states none. Ask its author before you pass it on."
    text = f" (`{_line(facts.licence_file)}`)" if facts.licence_file else ""
    return f"{_line(facts.licence)}{text}, its source's; it holds for this pack too."


def _pairs(pairs: Iterable[tuple[str, Any]]) -> str:
    return _table(("", ""), list(pairs))


def _bullets(texts: Iterable[str]) -> str:
    return "\n".join(f"- {_line(text)}" for text in texts)


def _table(names: Sequence[str], rows: Sequence[Sequence[Any]]) -> str:
    lines = [names, ["---"] * len(names), *rows]
    return "\n".join("| " + " | ".join(_cell(cell) for cell in line) + " |" for line in lines)


def _number(value: Any) -> str:
    return f"{value:.3g}" if isinstance(value, int | float) else ""


def _cell(value: Any) -> str:
    if isinstance(value, float):
        return f"{value:.6g}"
    text = value if isinstance(value, str) else json.dumps(value, sort_keys=True, default=str)
    return "" if value is None else _line(text).replace("|", "\\|")


def _line(value: Any) -> str:
    """In one line; what names a place on this machine is left out."""
    text = " ".join(str(value).split())
    return "(a local file)" if find_leaks(text) else text


def _quoted(text: str) -> str:
    return json.dumps(_line(text), ensure_ascii=False)
