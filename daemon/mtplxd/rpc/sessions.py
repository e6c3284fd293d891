"""The Sessions service: named conversations shown, renamed and removed. How they are kept is the store's."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Sequence
from concurrent.futures import Executor, Future
from typing import Any, TypeVar

from mtplx_proto.v1 import common_pb2, sessions_pb2, sessions_pb2_grpc

from mtplxd.errors import FailedPrecondition, InvalidArgument, MtplxError, NotFound
from mtplxd.packs.pack import Pack
from mtplxd.rpc.conversing import Desk, way_back
from mtplxd.store.belongings import Ledger, own_blocks, own_endings
from mtplxd.store.claims import Claim
from mtplxd.store.conversation import Conversation, Past, Summary, check_name
from mtplxd.store.disk import DiskStore
from mtplxd.store.sessions import no_session

T = TypeVar("T")
Texts = Sequence[tuple[Sequence[int], int]]
"""Ids of conversations, and how many of them are not their own alone."""
FLUSH_S = 5.0
"""What a removal waits for blocks that are on their way to the disk."""
READ = 32
"""Sessions whose ids are read at a time."""


class Sessions(sessions_pb2_grpc.SessionsServicer):
    """`disk` is None where no blocks are kept; `resolve` finds a pack by its name and reads files for it. `forget`
    drops what is kept in memory of these texts, on whichever thread owns that."""

    def __init__(
        self,
        desk: Desk,
        disk: DiskStore | None,
        block: int,
        resolve: Callable[[str], Pack],
        files: Executor,
        forget: Callable[[Texts], Future[int]],
    ) -> None:
        self._desk, self._disk, self._block, self._forget = desk, disk, block, forget
        self._resolve, self._files = resolve, files
        self._ledger = Ledger(block)

    async def List(self, request: Any, context: Any) -> Any:  # noqa: ARG002
        found = await self._desk.run(self._desk.sessions.summaries)
        sizes = await self._block_bytes(found)
        notices = await self._on_disk(self._notices, found)
        sessions = [self._message(one, sizes.get(one.name, 0), notices[one.model]) for one in found]
        return sessions_pb2.SessionListReply(sessions=sessions)

    async def Show(self, request: Any, context: Any) -> Any:  # noqa: ARG002
        conversation = await self._read(_named(request.name))
        sizes = await self._block_bytes()
        notices = await self._on_disk(self._notices, [conversation.summary])
        summary = conversation.summary
        return sessions_pb2.SessionShown(
            session=self._message(summary, sizes.get(summary.name, 0), notices[summary.model]),
            messages=[
                sessions_pb2.SessionMessage(
                    role=message.role, content=message.content, turn=message.turn, tokens=message.tokens
                )
                for message in conversation.messages
            ],
            turns=[_turn_message(number, turn) for number, turn in enumerate(conversation.turns, 1)],
        )

    async def Rename(self, request: Any, context: Any) -> Any:  # noqa: ARG002
        name, to = _named(request.name), check_name(request.to, "to")
        with contextlib.ExitStack() as claims:
            for one in dict.fromkeys((name, to)):
                claims.callback(self._claim(one).release)
            renamed = await self._desk.run(self._desk.sessions.rename, name, to)
        sizes = await self._block_bytes()
        return self._message(renamed, sizes.get(to, 0), ())

    async def Remove(self, request: Any, context: Any) -> Any:  # noqa: ARG002
        name = _named(request.name)
        claim = self._claim(name)
        try:
            summary = (await self._read(name)).summary
            freed = await self._discard(name)
            await self._desk.run(self._desk.sessions.remove, name)
        finally:
            claim.release()
        session = self._message(summary, freed, ())
        return sessions_pb2.SessionRemoved(session=session, bytes_freed=session.bytes)

    def _claim(self, name: str) -> Claim:
        claim = self._desk.claims.take(name)
        if claim is None:
            raise FailedPrecondition(
                "the session answers somebody", name, "wait for it, or `mtplx cancel ID`"
            )
        return claim

    async def _read(self, name: str) -> Conversation:
        found = await self._desk.run(self._desk.sessions.read, name)
        if found is None:
            raise no_session(name)
        return found

    async def _discard(self, name: str) -> int:
        """Removes the blocks that are a session's alone, from memory first and before its record: nothing is written
        any more then, and what is left by a kill can be removed again."""
        disk = self._disk
        chains = await self._desk.run(self._desk.sessions.chains)
        own = await self._on_disk(own_endings, chains, name)
        await asyncio.wrap_future(self._forget(own))
        if disk is None:
            return 0
        await self._on_disk(disk.flush, FLUSH_S)

        def discard() -> int:
            return disk.discard(own_blocks(disk, chains, self._block).get(name, ()))

        return await self._on_disk(discard)

    async def _block_bytes(self, found: Sequence[Summary] | None = None) -> dict[str, int]:
        """By session, the bytes of the blocks that are its own."""
        disk = self._disk
        if disk is None:
            return {}
        if found is None:
            found = await self._desk.run(self._desk.sessions.summaries)
        stamps = {one.name: (one.created, one.turns) for one in found}
        unread = self._ledger.unread(stamps)
        for begin in range(0, len(unread), READ):
            chains = await self._desk.run(self._desk.sessions.chains, unread[begin : begin + READ])
            for name, ids in chains.items():
                self._ledger.learn(name, stamps[name], ids)

        def weigh() -> dict[str, int]:
            own = self._ledger.own(disk)
            return {name: sum(kept.stored_bytes for kept in blocks.values()) for name, blocks in own.items()}

        return await self._on_disk(weigh)

    def _notices(self, sessions: list[Summary]) -> dict[str, tuple[str, ...]]:
        """By model, what the next turn of its sessions would meet."""
        found: dict[str, tuple[str, ...]] = {}
        for model in {summary.model for summary in sessions}:
            try:
                self._resolve(model)
                found[model] = ()
            except NotFound:
                found[model] = (f"its model is gone: {way_back(model)}, or go on with --model NAME",)
            except MtplxError as error:
                found[model] = (f"its model cannot be read: {error}",)
        return found

    def _message(self, summary: Summary, blocks: int, notices: tuple[str, ...]) -> sessions_pb2.Session:
        return sessions_pb2.Session(
            name=summary.name,
            model=summary.model,
            tokens=summary.tokens,
            bytes=summary.nbytes + blocks,
            created_unix_s=summary.created,
            updated_unix_s=summary.updated,
            turns=summary.turns,
            messages=summary.messages,
            busy=self._desk.claims.busy(summary.name),
            forked_from=summary.forked_from,
            notices=notices,
        )

    async def _on_disk(self, work: Callable[..., T], *args: object) -> T:
        return await asyncio.get_running_loop().run_in_executor(self._files, work, *args)


def _named(name: str) -> str:
    if not name.strip():
        raise InvalidArgument("no session named", None, "give a name", field="name")
    return check_name(name, "name")


def _turn_message(number: int, turn: Past) -> sessions_pb2.SessionTurn:
    numbers = turn.numbers
    return sessions_pb2.SessionTurn(
        turn=number,
        model=numbers.model,
        at_unix_s=numbers.at,
        finish_reason=numbers.finish_reason,
        stop_origin=numbers.stop_origin,
        usage=common_pb2.Usage(
            prompt_tokens=turn.prompt_tokens,
            cached_tokens=numbers.cached_tokens,
            completion_tokens=turn.completion_tokens,
        ),
        sampler_json=numbers.sampler,
    )
