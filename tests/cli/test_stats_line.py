"""What the line of --stats says of the part of a prompt that was there already."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from mtplx_client.cli.render import views
from mtplx_client.events import Sampler, Stats, Usage


def line(cached: int, **stats: Any) -> str:
    reply: Any = SimpleNamespace(stats=Stats(**stats), usage=Usage(300, cached, 9), sampler=Sampler())
    return views.stats(reply, "")


@pytest.mark.parametrize(
    ("cached", "stats", "said"),
    [
        (0, {}, "300+9 tokens · depth"),
        (299, {"restore_s": 0.25}, "· 299 cached in 0.25 s ·"),
        (
            128,
            {"restore_s": 0.25, "cache_miss": "diverged at 140"},
            "· 128 cached in 0.25 s (diverged at 140) ·",
        ),
        (0, {"cache_miss": "store_off"}, "· 0 cached (store off) ·"),
    ],
)
def test_what_was_found_is_told_with_the_time_it_took(cached: int, stats: dict[str, Any], said: str) -> None:
    assert said in line(cached, **stats)
