"""The blocking client.

Owns a channel and how calls run on it; requests and answers are described in `calls`, repeated calls in
`connection`. A client may be shared by threads.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
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
from mtplx_client.opening import is_connected
from mtplx_client.sessions import Session, SessionRemoved, SessionShown
from mtplx_client.store import StoreFreed, StoreStats, StoreVerified

T = TypeVar("T")
OnProgress = Callable[[Progress], None]
OnSilence = Callable[[str], None]


class Client:
    """A connection to the daemon, opened by the first call.

    `socket` or `home` choose the daemon (default: as the `mtplx` command), `timeout` is seconds for every
    call that names none, `reconnect_s` how long calls that may be repeated wait for a daemon that restarts. One that is
    there and does not answer is waited for as long as the call may take; `on_silence` is told so once a wait.
    Errors are those of `mtplx_client.errors`.
    """

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
        self._lock = threading.Lock()
        self._channel: grpc.Channel | None = None
        self._connected: grpc.Channel | None = None

    def __enter__(self) -> Client:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the connection; open streams end as cancelled. A later call opens a new one."""
        with self._lock:
            channel, self._channel, self._connected = self._channel, None, None
        if channel is not None:
            channel.close()

    def generate(
        self, prompt: str | None = None, *, timeout: float | None = None, **options: Unpack[GenerateOptions]
    ) -> Generator[Event, None, None]:
        """Stream an answer: Progress and Text events, then one Final (with `n` answers, one each).

        Closing the generator cancels the request.
        """
        return self._stream(calls.generate(prompt, options), timeout)

    def complete(
        self, prompt: str | None = None, *, timeout: float | None = None, **options: Unpack[GenerateOptions]
    ) -> Reply:
        """A whole answer.

        An answer that failed midway has finish_reason `error` and says why in `message`. With `n` the reply is the
        first answer, and its `choices` are all of them.
        """
        answer = Choices(choices_of(options))
        for event in self._stream(calls.generate(prompt, options), timeout):
            answer.add(event)
        if not answer.complete:
            raise ended_early()
        return answer.reply()

    def hello(self, timeout: float | None = None) -> replies.Hello:
        """The daemon's version, protocol and process id."""
        return self._unary(calls.hello(), timeout)

    def status(self, timeout: float | None = None) -> replies.Status:
        """The daemon's state."""
        return self._unary(calls.status(), timeout)

    def watch(
        self, interval_s: float = 1.0, timeout: float | None = None
    ) -> Generator[replies.Status, None, None]:
        """A status at once and then one an interval; goes on with a restarted daemon."""
        return self._stream(calls.watch(interval_s), timeout)

    def wait_ready(self, timeout: float = 30.0) -> replies.Status:
        """Wait for a daemon that serves. Raises Unavailable after `timeout` seconds."""
        end = time.monotonic() + timeout
        while True:
            try:
                found = self.status(timeout=attempt_s(end - time.monotonic()))
                if found.state == "serving":
                    return found
                state = found.state
            except (Unavailable, DeadlineExceeded) as error:
                state = error.what
            if time.monotonic() >= end:
                raise not_ready(state)
            time.sleep(POLL_S)

    def stop(self, timeout: float | None = None) -> replies.Stopped:
        """Begin the daemon's drain; returns before it is over."""
        return self._unary(calls.shutdown(), timeout)

    def cancel(self, request_id: str, timeout: float | None = None) -> bool:
        """Cancel a request by its id in status; False when there is none."""
        return self._unary(calls.cancel(request_id), timeout).found

    def fans(self, timeout: float | None = None) -> Thermal:
        """Heat and fans."""
        return self._unary(calls.fans(), timeout)

    def set_fans(self, mode: str, timeout: float | None = None) -> Thermal:
        """Choose when fans are held: auto, smart or max."""
        return self._unary(calls.set_fans(mode), timeout)

    def hold_fans(self, reason: str = "", timeout: float | None = None) -> Generator[Thermal, None, None]:
        """Fans are held until the generator is closed, as far as a helper is there; it yields once how they are."""
        return self._stream(calls.hold_fans(reason), timeout)

    def pull(
        self, name: str, *, on_progress: OnProgress | None = None, timeout: float | None = None
    ) -> replies.Pack:
        """Fetch and convert a model into a pack."""
        return _result(self._stream(calls.pull(name), timeout), on_progress)

    def load(
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
        return _result(self._stream(call, timeout), on_progress)

    def unload(self, name: str, timeout: float | None = None) -> replies.Unloaded:
        """Take a model out of memory."""
        return self._unary(calls.unload(name), timeout)

    def ls(self, timeout: float | None = None) -> tuple[replies.Pack, ...]:
        """The packs on disk."""
        return self.listing(timeout).packs

    def listing(self, timeout: float | None = None) -> replies.Listing:
        """The packs on disk, and what is damaged among them."""
        return self._unary(calls.ls(), timeout)

    def show(self, name: str, timeout: float | None = None) -> replies.Shown:
        """One pack and its manifest."""
        return self._unary(calls.show(name), timeout)

    def rm(self, name: str, timeout: float | None = None) -> replies.Removed:
        """Delete a pack from disk."""
        return self._unary(calls.rm(name), timeout)

    def ps(self, timeout: float | None = None) -> tuple[replies.Resident, ...]:
        """The models in memory."""
        return self.status(timeout).models

    def measure(
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
        return _result(self._stream(call, timeout), on_progress)

    def tune(
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
        return _result(self._stream(call, timeout), on_progress)

    def verify(
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
        return _result(self._stream(call, timeout), on_progress)

    def suite(
        self, name: str = "", *, prompts: int = 0, seed: int | None = None, timeout: float | None = None
    ) -> measurements.Suite:
        """The prompts and seeds that `measure` would use."""
        return self._unary(calls.suite(name, prompts, seed), timeout)

    def summarise(
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
        return self._unary(calls.summarise(model, runs, sampler, suite, max_tokens), timeout)

    def probe(self, name: str, timeout: float | None = None) -> Probed:
        """What could be built of a model, by its headers alone."""
        return self._unary(calls.probe(name), timeout)

    def build(
        self,
        source: str,
        name: str,
        options: BuildOptions | None = None,
        *,
        detach: bool = False,
        timeout: float | None = None,
    ) -> Generator[BuildStep | BuildOutcome, None, None]:
        """Begin a build and follow it to its BuildOutcome. Closing the generator leaves the build at work."""
        return self._stream(calls.build(source, name, options or BuildOptions(), detach), timeout)

    def follow_build(
        self, run: str = "", timeout: float | None = None
    ) -> Generator[BuildStep | BuildOutcome, None, None]:
        """Follow a build in work, by its id or its pack's name; empty for the one that is."""
        return self._stream(calls.follow(run), timeout)

    def resume_build(
        self, run: str, *, detach: bool = False, timeout: float | None = None
    ) -> Generator[BuildStep | BuildOutcome, None, None]:
        """Take a build up again where it stopped, and follow it."""
        return self._stream(calls.resume(run, detach), timeout)

    def builds(self, timeout: float | None = None) -> tuple[BuildRun, ...]:
        """Every build whose records are there, the latest last."""
        return self._unary(calls.runs(), timeout)

    def cancel_build(self, run: str, timeout: float | None = None) -> RunCancelled:
        """End a build if it is in work, and delete all that it holds."""
        return self._unary(calls.cancel_run(run), timeout)

    def publish(
        self,
        name: str,
        repo: str,
        *,
        dry_run: bool = False,
        on_progress: OnProgress | None = None,
        timeout: float | None = None,
    ) -> Published:
        """Put a verified pack on the Hub; a dry run only says what would be put there."""
        return _result(self._stream(calls.publish(name, repo, dry_run), timeout), on_progress)

    def sessions(self, timeout: float | None = None) -> tuple[Session, ...]:
        """The named conversations, the latest used first."""
        return self._unary(calls.sessions(), timeout)

    def session(self, name: str, timeout: float | None = None) -> SessionShown:
        """One named conversation with all that was said."""
        return self._unary(calls.session(name), timeout)

    def rename_session(self, name: str, to: str, timeout: float | None = None) -> Session:
        """Give a session another name."""
        return self._unary(calls.rename_session(name, to), timeout)

    def remove_session(self, name: str, timeout: float | None = None) -> SessionRemoved:
        """Delete a session and what the store keeps for it alone."""
        return self._unary(calls.remove_session(name), timeout)

    def cache_stats(self, timeout: float | None = None) -> StoreStats:
        """What is kept on disk of prompts, and what came of it."""
        return self._unary(calls.cache_stats(), timeout)

    def cache_verify(
        self, *, on_progress: OnProgress | None = None, timeout: float | None = None
    ) -> StoreVerified:
        """Read and check every block on disk; a bad one is set aside."""
        return _result(self._stream(calls.cache_verify(), timeout), on_progress)

    def cache_prune(self, timeout: float | None = None) -> StoreFreed:
        """Remove from disk what nobody can use and what is over the limits."""
        return self._unary(calls.cache_prune(), timeout)

    def cache_clear(self, *, sessions: bool = False, timeout: float | None = None) -> StoreFreed:
        """Remove everything that is kept of prompts, on disk and in memory, and on request every session."""
        return self._unary(calls.cache_clear(sessions), timeout)

    def _unary(self, call: Call[T], timeout: float | None) -> T:
        end = self._peer.end(call, timeout)
        repeated = False
        while True:
            rpc = self._open(call, end).unary_unary(
                call.path, call.request.__class__.SerializeToString, call.reply_class.FromString
            )
            try:
                answer, info = rpc.with_call(call.request, timeout=left_s(end), metadata=self._peer.metadata)
            except grpc.RpcError as failure:
                if repeated or not self._peer.may_repeat(call, failure, begun=False):
                    raise self._peer.error(failure, begun=False) from None
                repeated = True
                self.close()
                continue
            self._peer.greet(info.initial_metadata())
            return call.read(answer)

    def _stream(self, call: Call[T], timeout: float | None) -> Generator[T, None, None]:
        end = self._peer.end(call, timeout)
        repeated = begun = False
        while True:
            rpc = self._open(call, end).unary_stream(
                call.path, call.request.__class__.SerializeToString, call.reply_class.FromString
            )(call.request, timeout=left_s(end), metadata=self._peer.metadata)
            try:
                for message in rpc:
                    if not begun or repeated:
                        self._peer.greet(rpc.initial_metadata())
                    begun, repeated = True, False
                    yield call.read(message)
                return
            except grpc.RpcError as failure:
                if repeated or not self._peer.may_repeat(call, failure, begun):
                    raise self._peer.error(failure, begun) from None
                repeated = True
            finally:
                rpc.cancel()
            self.close()

    def _open(self, call: Call[Any], end: float | None) -> grpc.Channel:
        """A connection that is there, or was when it was last looked at. Raises NoDaemon and NotAnswering."""
        if not self._peer.is_there(call):
            self.close()
        wait = self._peer.wait(call, end)
        while True:
            with self._lock:
                if self._channel is None:
                    self._channel = grpc.insecure_channel(self._peer.target, OPTIONS)
                channel = self._channel
                if channel is self._connected:
                    return channel
            if is_connected(channel, self._peer, wait):
                self._connected = channel


def _result(events: Iterator[Progress | T], on_progress: OnProgress | None) -> T:
    """The one result at the end of a stream of progress."""
    for event in events:
        if not isinstance(event, Progress):
            return event
        if on_progress is not None:
            on_progress(event)
    raise ended_early()
