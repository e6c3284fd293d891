"""The depth of a request: its own wish, else what its model was loaded with, else chosen as the text goes."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest
from mtplx_proto.v1 import common_pb2, models_pb2
from mtplxd.errors import FailedPrecondition, InvalidArgument
from mtplxd.rpc.settling import ChosenDepth, settle_depth
from mtplxd.rpc.validate import AUTO_DEPTH
from support.rpc_rig import Wire, wired


def settled(
    depth: int | None = None, *, plain: bool = False, default: int = 1, auto: bool = True, head: bool = True
) -> ChosenDepth:
    model = SimpleNamespace(name="a", depth_max=4, head=object() if head else None)
    asked: Any = SimpleNamespace(depth=depth, plain=plain)
    lease: Any = SimpleNamespace(model=model, depth=default, auto=auto)
    return settle_depth(asked, lease)


def test_without_a_wish_it_is_chosen_as_the_text_goes_up_to_the_heads_limit() -> None:
    assert settled() == ChosenDepth(4, auto=True)
    assert settled(default=3) == ChosenDepth(4, auto=True)


def test_a_model_loaded_with_a_depth_keeps_to_it() -> None:
    assert settled(default=2, auto=False) == ChosenDepth(2)
    assert settled(default=0, auto=False) == ChosenDepth(0)


@pytest.mark.parametrize("auto", [True, False])
def test_a_wish_of_its_own_comes_first(auto: bool) -> None:
    assert settled(3, auto=auto) == ChosenDepth(3)
    assert settled(0, auto=auto) == ChosenDepth(0)
    assert settled(AUTO_DEPTH, default=2, auto=auto) == ChosenDepth(4, auto=True)


def test_plain_drafts_nothing_whatever_the_model_does() -> None:
    assert settled(plain=True) == ChosenDepth(0)
    assert settled(2, plain=True) == ChosenDepth(0)


def test_without_a_head_there_is_nothing_to_choose() -> None:
    assert settled(head=False) == ChosenDepth(0)
    assert settled(AUTO_DEPTH, head=False) == ChosenDepth(0)
    assert settled(0, head=False) == ChosenDepth(0)


def test_what_the_head_cannot_draft_is_refused() -> None:
    with pytest.raises(InvalidArgument, match="above the head's limit"):
        settled(5)
    with pytest.raises(FailedPrecondition, match="without an MTP head"):
        settled(1, head=False)


def test_a_load_sets_and_lifts_the_depth_of_requests_without_one() -> None:
    """A load that says nothing of depth changes nothing of it."""

    async def load(wire: Wire, **fields: Any) -> None:
        async for _ in wire.packs.Load(models_pb2.LoadRequest(name="a", **fields)):
            pass

    async def ask(wire: Wire) -> tuple[int, bool]:
        async for _ in wire.generation.Generate(wire.ask()):
            pass
        return wire.engine.jobs[-1].request.depth, wire.engine.jobs[-1].request.auto

    async def scenario() -> None:
        async with asyncio.timeout(60), wired() as wire:
            await load(wire)
            assert await ask(wire) == (8, True)
            await load(wire, depth=common_pb2.Depth(fixed=2))
            assert await ask(wire) == (2, False)
            await load(wire, keep_alive_s=60)
            assert await ask(wire) == (2, False)
            await load(wire, depth=common_pb2.Depth(auto=True))
            assert await ask(wire) == (8, True)

    asyncio.run(scenario())
