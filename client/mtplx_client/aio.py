"""The asynchronous client: the same calls as the blocking one, on grpc.aio.

Owns a channel and how calls run on it. One client belongs to one event loop.
"""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import AsyncGenerator, AsyncIterator, Iterable, Sequence
from typing import Any, TypeVar, Unpack

import grpc

from mtplx_client import calls, measurements, replies, tunings, verifications
from mtplx_client.builds import (
    BuildOptions,
    BuildOutcome,
    BuildRun,
    BuildStep,
    Probed,
    Published,
    RunCancelled,
)
from mtplx_client.calls import Call
from mtplx_client.client import OnProgress, OnSilence
from mtplx_client.connection import (
    OPTIONS,
    POLL_S,
    Peer,
    attempt_s,
    ended_early,
    left_s,
    not_ready,
    resolve_socket,
)
from mtplx_client.errors import DeadlineExceeded, Unavailable
from mtplx_client.events import Choices, Event, Progress, Reply, Sampler
from mtplx_client.fans import Thermal
from mtplx_client.generation import GenerateOptions, SamplerOptions, choices_of
from mtplx_client.opening import is_connected_aio
from mtplx_client.sessions import Session, SessionRemoved, SessionShown
from mtplx_client.store import StoreFreed, StoreStats, StoreVerified

T = TypeVar("T")


class AsyncClient:
    """As `Client`, for asyncio: methods are awaited, `generate` and `watch` are async generators."""

    def __init__(
        self,
        socket: str | os.PathLike[str] | None = None,
        *,
        home: str | os.PathLike[str] | None = None,
        timeout: float | None = None,
        reconnect_s: float = 5.0,
        on_silence: OnSilence | None = None,
    ) -> None:
        self._peer = Peer(resolve_socket(socket, home), timeout, reconnect_s, on_silence)
        self._channel: grpc.aio.Channel | None = None
        self._connected: grpc.aio.Channel | None = None

    async def __aenter__(self) -> AsyncClient:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def close(self) -> None:
        """Close the connection; open streams end as cancelled. A later call opens a new one."""
        channel, self._channel, self._connected = self._channel, None, None
        if channel is not None:
            await channel.close()

    def generate(
        self, prompt: str | None = None, *, timeout: float | None = None, **options: Unpack[GenerateOptions]
    ) -> AsyncGenerator[Event, None]:
        """Stream an answer: Progress and Text events, then one Final (with `n` answers, one each).

        Closing the generator cancels the request.
        """
        return self._stream(calls.generate(prompt, options), timeout)

    async def complete(
        self, prompt: str | None = None, *, timeout: float | None = None, **options: Unpack[GenerateOptions]
    ) -> Reply:
        """A whole answer.

        An answer that failed midway has finish_reason `error` and says why in `message`. With `n` the reply is the
        first answer, and its `choices` are all of them.
        """
        answer = Choices(choices_of(options))
        async for event in self._stream(calls.generate(prompt, options), timeout):
            answer.add(event)
        if not answer.complete:
            raise ended_early()
        return answer.reply()

    async def hello(self, timeout: float | None = None) -> replies.Hello:
        """The daemon's version, protocol and process id."""
        return await self._unary(calls.hello(), timeout)

    async def status(self, timeout: float | None = None) -> replies.Status:
        """The daemon's state."""
        return await self._unary(calls.status(), timeout)

    def watch(
        self, interval_s: float = 1.0, timeout: float | None = None
    ) -> AsyncGenerator[replies.Status, None]:
        """A status at once and then one an interval; goes on with a restarted daemon."""
        return self._stream(calls.watch(interval_s), timeout)

    async def wait_ready(self, timeout: float = 30.0) -> replies.Status:
        """Wait for a daemon that serves. Raises Unavailable after `timeout` seconds."""
        end = time.monotonic() + timeout
        while True:
            try:
                found = await self.status(timeout=attempt_s(end - time.monotonic()))
                if found.state == "serving":
                    return found
                state = found.state
            except (Unavailable, DeadlineExceeded) as error:
                state = error.what
            if time.monotonic() >= end:
                raise not_ready(state)
            await asyncio.sleep(POLL_S)

    async def stop(self, timeout: float | None = None) -> replies.Stopped:
        """Begin the daemon's drain; returns before it is over."""
        return await self._unary(calls.shutdown(), timeout)

    async def cancel(self, request_id: str, timeout: float | None = None) -> bool:
        """Cancel a request by its id in status; False when there is none."""
        return (await self._unary(calls.cancel(request_id), timeout)).found

    async def fans(self, timeout: float | None = None) -> Thermal:
        """Heat and fans."""
        return await self._unary(calls.fans(), timeout)

    async def set_fans(self, mode: str, timeout: float | None = None) -> Thermal:
        """Choose when fans are held: auto, smart or max."""
        return await self._unary(calls.set_fans(mode), timeout)

    def hold_fans(self, reason: str = "", timeout: float | None = None) -> AsyncGenerator[Thermal, None]:
        """Fans are held until the generator is closed, as far as a helper is there; it yields once how they are."""
        return self._stream(calls.hold_fans(reason), timeout)

    async def pull(
        self, name: str, *, on_progress: OnProgress | None = None, timeout: float | None = None
    ) -> replies.Pack:
        """Fetch and convert a model into a pack."""
        return await _result(self._stream(calls.pull(name), timeout), on_progress)

    async def load(
        self,
        name: str,
        *,
        keep_alive_s: float | None = None,
        depth: int | str | None = None,
        depth_max: int | None = None,
        force: bool = False,
        plain: bool = False,
        store: str | None = None,
        on_progress: OnProgress | None = None,
        timeout: float | None = None,
    ) -> replies.Resident:
        """Bring a model into memory; a resident one is returned at once."""
        call = calls.load(name, keep_alive_s, depth, depth_max, force, plain, store)
        return await _result(self._stream(call, timeout), on_progress)

    async def unload(self, name: str, timeout: float | None = None) -> replies.Unloaded:
        """Take a model out of memory."""
        return await self._unary(calls.unload(name), timeout)

    async def ls(self, timeout: float | None = None) -> tuple[replies.Pack, ...]:
        """The packs on disk."""
        return (await self.listing(timeout)).packs

    async def listing(self, timeout: float | None = None) -> replies.Listing:
        """The packs on disk, and what is damaged among them."""
        return await self._unary(calls.ls(), timeout)

    async def show(self, name: str, timeout: float | None = None) -> replies.Shown:
        """One pack and its manifest."""
        return await self._unary(calls.show(name), timeout)

    async def rm(self, name: str, timeout: float | None = None) -> replies.Removed:
        """Delete a pack from disk."""
        return await self._unary(calls.rm(name), timeout)

    async def ps(self, timeout: float | None = None) -> tuple[replies.Resident, ...]:
        """The models in memory."""
        return (await self.status(timeout)).models

    async def measure(
        self,
        model: str = "",
        *,
        depths: Sequence[int | str] = (),
        max_tokens: int = 0,
        prompts: int = 0,
        suite: str = "",
        no_fans: bool = False,
        on_progress: OnProgress | None = None,
        timeout: float | None = None,
        **sampler: Unpack[SamplerOptions],
    ) -> measurements.Measurement:
        """Measure a model at several depths, `auto` among them, inside the daemon; 0 and empty take its defaults."""
        call = calls.measure(model, depths, max_tokens, prompts, suite, sampler, no_fans)
        return await _result(self._stream(call, timeout), on_progress)

    async def tune(
        self,
        model: str = "",
        *,
        depths: Sequence[int | str] = (),
        suite: str = "",
        prompts: int = 0,
        max_tokens: int = 0,
        context: int = 0,
        quick: bool = False,
        accept_throttled: bool = False,
        no_save: bool = False,
        retune: bool = False,
        no_fans: bool = False,
        on_progress: OnProgress | None = None,
        timeout: float | None = None,
        **sampler: Unpack[SamplerOptions],
    ) -> tunings.Tuning:
        """Find the depth that pays and keep it for requests that name none; 0 and empty take the daemon's defaults."""
        call = calls.tune(
            model,
            depths,
            sampler,
            suite=suite,
            prompts=prompts,
            max_tokens=max_tokens,
            context=context,
            quick=quick,
            accept_throttled=accept_throttled,
            no_save=no_save,
            retune=retune,
            no_fans=no_fans,
        )
        return await _result(self._stream(call, timeout), on_progress)

    async def verify(
        self,
        model: str = "",
        *,
        samples: int = 0,
        prompts: int = 0,
        max_tokens: int = 0,
        depths: Sequence[int] = (),
        dry_run: bool = False,
        on_progress: OnProgress | None = None,
        timeout: float | None = None,
    ) -> verifications.Verification:
        """Compare a model with its plain decoding and record what passes; 0 and empty take the daemon's defaults."""
        call = calls.verify(model, samples, prompts, max_tokens, depths, dry_run)
        return await _result(self._stream(call, timeout), on_progress)

    async def suite(
        self, name: str = "", *, prompts: int = 0, seed: int | None = None, timeout: float | None = None
    ) -> measurements.Suite:
        """The prompts and seeds that `measure` would use."""
        return await self._unary(calls.suite(name, prompts, seed), timeout)

    async def summarise(
        self,
        model: str,
        runs: Iterable[measurements.Run],
        sampler: Sampler,
        *,
        suite: str = "",
        max_tokens: int = 0,
        timeout: float | None = None,
    ) -> measurements.Measurement:
        """Turn runs that the caller timed into the rows that `measure` would give."""
        return await self._unary(calls.summarise(model, runs, sampler, suite, max_tokens), timeout)

    async def probe(self, name: str, timeout: float | None = None) -> Probed:
        """What could be built of a model, by its headers alone."""
        return await self._unary(calls.probe(name), timeout)

    def build(
        self,
        source: str,
        name: str,
        options: BuildOptions | None = None,
        *,
        detach: bool = False,
        timeout: float | None = None,
    ) -> AsyncGenerator[BuildStep | BuildOutcome, None]:
        """Begin a build and follow it to its BuildOutcome. Closing the generator leaves the build at work."""
        return self._stream(calls.build(source, name, options or BuildOptions(), detach), timeout)

    def follow_build(
        self, run: str = "", timeout: float | None = None
    ) -> AsyncGenerator[BuildStep | BuildOutcome, None]:
        """Follow a build in work, by its id or its pack's name; empty for the one that is."""
        return self._stream(calls.follow(run), timeout)

    def resume_build(
        self, run: str, *, detach: bool = False, timeout: float | None = None
    ) -> AsyncGenerator[BuildStep | BuildOutcome, None]:
        """Take a build up again where it stopped, and follow it."""
        return self._stream(calls.resume(run, detach), timeout)

    async def builds(self, timeout: float | None = None) -> tuple[BuildRun, ...]:
        """Every build whose records are there, the latest last."""
        return await self._unary(calls.runs(), timeout)

    async def cancel_build(self, run: str, timeout: float | None = None) -> RunCancelled:
        """End a build if it is in work, and delete all that it holds."""
        return await self._unary(calls.cancel_run(run), timeout)

    async def publish(
        self,
        name: str,
        repo: str,
        *,
        dry_run: bool = False,
        on_progress: OnProgress | None = None,
        timeout: float | None = None,
    ) -> Published:
        """Put a verified pack on the Hub; a dry run only says what would be put there."""
        return await _result(self._stream(calls.publish(name, repo, dry_run), timeout), on_progress)

    async def sessions(self, timeout: float | None = None) -> tuple[Session, ...]:
        """The named conversations, the latest used first."""
        return await self._unary(calls.sessions(), timeout)

    async def session(self, name: str, timeout: float | None = None) -> SessionShown:
        """One named conversation with all that was said."""
        return await self._unary(calls.session(name), timeout)

    async def rename_session(self, name: str, to: str, timeout: float | None = None) -> Session:
        """Give a session another name."""
        return await self._unary(calls.rename_session(name, to), timeout)

    async def remove_session(self, name: str, timeout: float | None = None) -> SessionRemoved:
        """Delete a session and what the store keeps for it alone."""
        return await self._unary(calls.remove_session(name), timeout)

    async def cache_stats(self, timeout: float | None = None) -> StoreStats:
        """What is kept on disk of prompts, and what came of it."""
        return await self._unary(calls.cache_stats(), timeout)

    async def cache_verify(
        self, *, on_progress: OnProgress | None = None, timeout: float | None = None
    ) -> StoreVerified:
        """Read and check every block on disk; a bad one is set aside."""
        return await _result(self._stream(calls.cache_verify(), timeout), on_progress)

    async def cache_prune(self, timeout: float | None = None) -> StoreFreed:
        """Remove from disk what nobody can use and what is over the limits."""
        return await self._unary(calls.cache_prune(), timeout)

    async def cache_clear(self, *, sessions: bool = False, timeout: float | None = None) -> StoreFreed:
        """Remove everything that is kept of prompts, on disk and in memory, and on request every session."""
        return await self._unary(calls.cache_clear(sessions), timeout)

    async def _unary(self, call: Call[T], timeout: float | None) -> T:
        end = self._peer.end(call, timeout)
        repeated = False
        while True:
            channel = await self._open(call, end)
            rpc = channel.unary_unary(
                call.path, call.request.__class__.SerializeToString, call.reply_class.FromString
            )(call.request, timeout=left_s(end), metadata=self._peer.metadata)
            try:
                answer = await rpc
            except grpc.RpcError as failure:
                if repeated or not self._peer.may_repeat(call, failure, begun=False):
                    raise self._peer.error(failure, begun=False) from None
                repeated = True
                await self.close()
                continue
            self._peer.greet(await rpc.initial_metadata())
            return call.read(answer)

    async def _stream(self, call: Call[T], timeout: float | None) -> AsyncGenerator[T, None]:
        end = self._peer.end(call, timeout)
        repeated = begun = False
        while True:
            channel = await self._open(call, end)
            rpc = channel.unary_stream(
                call.path, call.request.__class__.SerializeToString, call.reply_class.FromString
            )(call.request, timeout=left_s(end), metadata=self._peer.metadata)
            try:
                async for message in rpc:
                    if not begun or repeated:
                        self._peer.greet(await rpc.initial_metadata())
                    begun, repeated = True, False
                    yield call.read(message)
                return
            except grpc.RpcError as failure:
                if repeated or not self._peer.may_repeat(call, failure, begun):
                    raise self._peer.error(failure, begun) from None
                repeated = True
            finally:
                rpc.cancel()
            await self.close()

    async def _open(self, call: Call[Any], end: float | None) -> grpc.aio.Channel:
        """A connection that is there, or was when it was last looked at. Raises NoDaemon and NotAnswering."""
        if not self._peer.is_there(call):
            await self.close()
        wait = self._peer.wait(call, end)
        while True:
            if self._channel is None:
                self._channel = grpc.aio.insecure_channel(self._peer.target, OPTIONS)
            channel = self._channel
            if channel is self._connected:
                return channel
            if await is_connected_aio(channel, self._peer, wait):
                self._connected = channel


async def _result(events: AsyncIterator[Progress | T], on_progress: OnProgress | None) -> T:
    """The one result at the end of a stream of progress."""
    async for event in events:
        if not isinstance(event, Progress):
            return event
        if on_progress is not None:
            on_progress(event)
    raise ended_early()
