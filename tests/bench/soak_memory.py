"""Whether the soak's daemon keeps its size; what is kept of prompts is filled to its bound before sizes are compared.

What is bounded by design grows to its bound; only what grows beyond is a leak. So what the contexts of rows hold, which
comes and goes with who is there, and what waits for the disk, are taken off first. It judges nothing else.
"""

from __future__ import annotations

import random
from statistics import median
from typing import Any

from crowd import Ask, Stage, check, listen
from mtplx_client import AsyncClient

WARM_SHARE = 0.25
"""Of the time, before memory is compared: until then shapes and prompts are new to the daemon."""
FILL_TOKENS, FILL_MOST = 1000, 40
"""Positions of a prompt that is there to fill, and how many of them at most: a tiny model never fills it."""
SMALLEST_VOCAB = 200
FULL_SHARE = 0.9
"""Of its bound, from where it counts as full: the next prompt makes something go."""


async def fill_prefixes(stage: Stage, context: int, most: int = FILL_MOST) -> bool:
    """Asks for up to `most` prompts that nobody asked for, until what is kept has reached its bound; whether it has."""
    rng = random.Random("fill")
    async with stage.client() as client:
        for _ in range(most):
            if await _is_full(client):
                return True
            ids = [rng.randrange(SMALLEST_VOCAB) for _ in range(min(FILL_TOKENS, context // 2))]
            check(
                await listen(client, Ask(None, {**stage.ask(None).options, "tokens": ids, "max_tokens": 1}))
            )
        return await _is_full(client)


async def _is_full(client: AsyncClient) -> bool:
    kept = (await client.status()).engine.prefixes
    return kept.bytes >= FULL_SHARE * kept.limit


def weigh_memory(watched: list[dict[str, float]]) -> dict[str, Any]:
    """How far the resident size moved after the warm-up, without contexts and what waits for the disk: the last third's
    median over the first third's."""
    last = watched[-1]["s"] if watched else 0.0
    warm = [one for one in watched if one["s"] >= WARM_SHARE * last]
    third = max(1, len(warm) // 3)
    own = [{"own": one["rss"] - one["contexts"] - one["waiting"]} for one in warm]
    begin, end = _middle("own", own[:third]), _middle("own", own[-third:])
    return {
        "rss_mb": _middle("rss", warm[-third:]) / 1e6,
        "own_mb": [begin / 1e6, end / 1e6],
        "rss_peak_mb": max((one["rss"] for one in warm), default=0.0) / 1e6,
        "rss_drift": end / begin - 1.0 if begin else 0.0,
        "prefixes_mb": [_middle("prefixes", part) / 1e6 for part in (warm[:third], warm[-third:])],
        "contexts_mb": [_middle("contexts", part) / 1e6 for part in (warm[:third], warm[-third:])],
        "waiting_mb": [_middle("waiting", part) / 1e6 for part in (warm[:third], warm[-third:])],
    }


def _middle(name: str, watched: list[dict[str, float]]) -> float:
    return median([one[name] for one in watched] or [0.0])
