"""A head that is broken or useless, through a real daemon: the text is plain decoding's, and everybody is told why."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from mtplx_client import Client
from support.daemon_process import running_daemon, short_folder
from support.spoiling import NEGATIVE, OVERFLOWING, fill_tensor
from support.tiny_pack import make_tiny_pack

TOKENS = 70


@pytest.fixture
def client() -> Iterator[Client]:
    with short_folder() as home:
        for name, bits in (("broken", OVERFLOWING), ("useless", NEGATIVE)):
            fill_tensor(make_tiny_pack(home / "packs" / name) / "mtp.safetensors", "mtp.norm.weight", bits)
        with running_daemon(home) as daemon, Client(daemon.socket) as connected:
            yield connected


@pytest.mark.parametrize(
    ("name", "reason"),
    [("broken", "head_non_finite"), ("useless", "head_collapsed")],
    ids=["broken", "useless"],
)
def test_a_bad_head_costs_no_text_and_is_named(client: Client, name: str, reason: str) -> None:
    plain, drafted = (
        client.complete(
            "the other",
            model=name,
            temperature=0,
            depth=depth,
            max_tokens=TOKENS,
            ignore_eos=True,
            force=True,
        )
        for depth in (0, 2)
    )
    assert drafted.tokens == plain.tokens
    assert plain.stats.degraded == ()
    assert drafted.stats.degraded == (reason,)
    assert drafted.stats.drafted < 2 * TOKENS
    (model,) = client.status().models
    assert any(found.startswith(reason) for found in model.degraded)
