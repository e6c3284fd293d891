"""The fake daemon's sessions and store: what they hold is the test's to set, what was asked is noted with the rest."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from mtplx_proto.v1 import common_pb2, sessions_pb2, sessions_pb2_grpc, store_pb2, store_pb2_grpc

SAMPLER = '{"temperature": 0.6, "seed": 7, "acceptance": "block"}'


def rivers_session() -> sessions_pb2.SessionShown:
    """A session of one turn."""
    return sessions_pb2.SessionShown(
        session=sessions_pb2.Session(
            name="rivers",
            model="smollm2-135m",
            tokens=21,
            bytes=40_000,
            created_unix_s=1760000000,
            updated_unix_s=1760000060,
            turns=1,
            messages=3,
        ),
        messages=[
            sessions_pb2.SessionMessage(role="system", content="Be brief.", turn=1),
            sessions_pb2.SessionMessage(role="user", content="Name three rivers.", turn=1),
            sessions_pb2.SessionMessage(
                role="assistant", content="The Rhine, the Elbe.", turn=1, tokens=[11, 12, 13, 2]
            ),
        ],
        turns=[
            sessions_pb2.SessionTurn(
                turn=1,
                model="smollm2-135m",
                at_unix_s=1760000060,
                finish_reason="stop",
                stop_origin="eos",
                usage=common_pb2.Usage(prompt_tokens=17, completion_tokens=4),
                sampler_json=SAMPLER,
            )
        ],
    )


def kept() -> store_pb2.StoreStats:
    """A store with something in it."""
    return store_pb2.StoreStats(
        state="on",
        folder="/home/ada/.mtplxd/store",
        blocks=40,
        bytes=8_000_000,
        raw_bytes=10_000_000,
        hits=12,
        misses=3,
        miss_reasons=[store_pb2.Reason(name="evicted", count=1), store_pb2.Reason(name="new", count=2)],
        drop_reasons=[store_pb2.Reason(name="queue_full", count=1)],
        bytes_written=9_000_000,
        size_limit=16 << 30,
        free_floor=10 << 30,
        hourly_writes=128 << 30,
        queue_limit=512 << 20,
        block_tokens=64,
        sessions=1,
        session_bytes=40_000,
        tokens_found=2048,
        tokens_from_disk=1024,
        memory_bytes=3_000_000,
        block_reads=16,
        unread_reasons=[store_pb2.Reason(name="evicted", count=1)],
    )


class FakeSessions(sessions_pb2_grpc.SessionsServicer):
    """Answers from the fake daemon's `sessions`."""

    def __init__(self, daemon: Any) -> None:
        self._daemon = daemon

    def List(self, request: Any, context: Any) -> Any:
        self._daemon.enter("Sessions.List", request, context)
        return sessions_pb2.SessionListReply(sessions=[shown.session for shown in self._daemon.sessions])

    def Show(self, request: Any, context: Any) -> Any:
        self._daemon.enter("Sessions.Show", request, context)
        return self._find(request.name, context)

    def Rename(self, request: Any, context: Any) -> Any:
        self._daemon.enter("Sessions.Rename", request, context)
        session = self._find(request.name, context).session
        session.name = request.to
        return session

    def Remove(self, request: Any, context: Any) -> Any:
        self._daemon.enter("Sessions.Remove", request, context)
        shown = self._find(request.name, context)
        self._daemon.sessions.remove(shown)
        return sessions_pb2.SessionRemoved(session=shown.session, bytes_freed=shown.session.bytes)

    def _find(self, name: str, context: Any) -> sessions_pb2.SessionShown:
        for shown in self._daemon.sessions:
            if shown.session.name == name:
                return shown  # type: ignore[no-any-return]
        self._daemon.no_session(name).abort(context)
        raise AssertionError("abort returned")


class FakeStore(store_pb2_grpc.StoreServicer):
    """Answers from the fake daemon's `kept` and `verified`."""

    def __init__(self, daemon: Any) -> None:
        self._daemon = daemon

    def Stats(self, request: Any, context: Any) -> Any:
        self._daemon.enter("Store.Stats", request, context)
        return self._daemon.kept

    def Verify(self, request: Any, context: Any) -> Iterator[Any]:
        self._daemon.enter("Store.Verify", request, context)
        for step in self._daemon.progress:
            yield store_pb2.StoreVerifyEvent(progress=step)
        yield store_pb2.StoreVerifyEvent(verified=self._daemon.verified)

    def Prune(self, request: Any, context: Any) -> Any:
        self._daemon.enter("Store.Prune", request, context)
        return store_pb2.StoreFreed(bytes_freed=1_000_000)

    def Clear(self, request: Any, context: Any) -> Any:
        self._daemon.enter("Store.Clear", request, context)
        freed, count = self._daemon.kept.bytes, len(self._daemon.sessions) if request.sessions else 0
        self._daemon.kept = store_pb2.StoreStats(state="on", block_tokens=64)
        if request.sessions:
            self._daemon.sessions.clear()
        return store_pb2.StoreFreed(bytes_freed=freed, sessions=count)
