"""A head that is broken or useless, through a real daemon: the text is plain decoding's, and everybody is told why."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from mtplx_client import Client
from support.daemon_process import running_daemon, short_folder
from support.tiny_pack import make_tiny_pack

TOKENS = 70
OVERFLOWING, NEGATIVE = 0x7F7F, 0xBF80
"""bfloat16 bits: the largest number there is, whose products are infinite, and −1.

A head whose last norm is negative drafts what is least likely.
"""


@pytest.fixture
def client() -> Iterator[Client]:
    with short_folder() as home:
        for name, bits in (("broken", OVERFLOWING), ("useless", NEGATIVE)):
            _fill(make_tiny_pack(home / "packs" / name) / "mtp.safetensors", "mtp.norm.weight", bits)
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


def _fill(path: Path, tensor: str, bits: int) -> None:
    """Overwrites a bfloat16 tensor of a safetensors file with one value."""
    content = bytearray(path.read_bytes())
    size = int.from_bytes(content[:8], "little")
    begin, end = json.loads(content[8 : 8 + size])[tensor]["data_offsets"]
    content[8 + size + begin : 8 + size + end] = bits.to_bytes(2, "little") * ((end - begin) // 2)
    path.write_bytes(content)
