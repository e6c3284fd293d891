"""A verification for programs and for people."""

from __future__ import annotations

from typing import Any

from mtplx_client.cli.render.table import Column, table
from mtplx_client.verifications import Identity, Verification

_TEXTS = (Column("TEXTS"), Column("TOKENS", True), Column("DIVERGENCES", True), Column("NEAR-TIES", True))


def document(found: Verification) -> dict[str, Any]:
    """The JSON document, with the field names that programs rely on."""
    law = found.law
    return {
        "model": found.model,
        "shape_noise": found.shape_noise,
        "greedy": _identity(found.greedy),
        "coupled": _identity(found.coupled),
        "law": {
            "test": law.test,
            "tokens": law.tokens,
            "statistic": law.statistic,
            "p_value": law.p_value,
            "power": law.power,
            "alternative": law.alternative,
        },
        "passed": found.passed,
        "failures": list(found.failures),
        "recorded": found.recorded,
        "depths": list(found.depths),
        "fingerprint": {"body": found.fingerprint_body or None, "head": found.fingerprint_head or None},
    }


def view(found: Verification, color: bool, *, dry_run: bool = False) -> str:
    """The table of compared texts, the test of the law, and the verdict, with what was made of it."""
    law = found.law
    texts = [
        (name, str(part.tokens), str(part.divergences), str(part.near_ties))
        for name, part in (("greedy", found.greedy), ("coupled", found.coupled))
    ]
    verdict = "passed" if found.passed else "failed"
    facts = [
        ("noise", f"{found.shape_noise:.2g} between shapes of forwards"),
        ("law", f"{law.tokens} tokens, p {law.p_value:.3g}, {law.test}"),
        ("power", f"{law.power:.3f} against {law.alternative}"),
        ("depths", " ".join(map(str, found.depths))),
        ("verdict", f"{found.model} {verdict}, {_record(found, dry_run)}"),
    ]
    return "\n".join([table(_TEXTS, texts, color), "", *(f"{name:<10}{value}" for name, value in facts)])


def _record(found: Verification, dry_run: bool) -> str:
    """Whether there is a record, and why there is none where nothing went wrong."""
    if found.recorded:
        return "recorded in its pack"
    if dry_run:
        return "not recorded: a dry run"
    return f"not recorded: {found.incomplete}" if found.incomplete else "not recorded"


def _identity(found: Identity) -> dict[str, Any]:
    return {
        "tokens": found.tokens,
        "divergences": found.divergences,
        "near_ties": found.near_ties,
        "found": [
            {
                "prompt": one.prompt,
                "depth": one.depth,
                "position": one.position,
                "margin": one.margin,
                "near_tie": one.near_tie,
            }
            for one in found.found
        ],
    }
