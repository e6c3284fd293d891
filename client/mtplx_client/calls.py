"""Every call a client can make, as data: method, request, how the answer is read, and whether it may be
repeated.

Owns request building, once, for the blocking and the asynchronous client. Opens no connection and judges no
value that the daemon judges; only what protobuf cannot carry is refused here.
"""

from __future__ import annotations

import functools
import importlib
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Generic, Literal, TypeVar

from mtplxd import PROTOCOL, __version__
from mtplxd.paths import absolute

from mtplx_client import measurements, replies, tunings, verifications
from mtplx_client.builds import (
    BuildOptions,
    BuildOutcome,
    BuildRun,
    BuildStep,
    Probed,
    Published,
    RunCancelled,
)
from mtplx_client.events import Event, Progress, Sampler
from mtplx_client.fans import Thermal
from mtplx_client.generation import (
    GenerateOptions,
    SamplerOptions,
    generate_request,
    read_event,
    sampler_request,
)
from mtplx_client.messages import decode, encode
from mtplx_client.names import model_ref
from mtplx_client.requests import AUTO, filled, put_depth
from mtplx_client.sessions import Session, SessionRemoved, SessionShown
from mtplx_client.store import StoreFreed, StoreStats, StoreVerified

T = TypeVar("T")
Repeat = Literal["never", "before_first", "always"]

QUICK_S = 30.0
"""Deadline of calls that answer at once, when the caller names none."""


@dataclass(frozen=True)
class Call(Generic[T]):
    """One call. `repeat` says when a lost connection may be followed by the same call on a new one."""

    service: str
    method: str
    request: Any
    read: Callable[[Any], T]
    repeat: Repeat = "before_first"
    deadline_s: float | None = QUICK_S

    @property
    def path(self) -> str:
        return f"/mtplx.v1.{self.service}/{self.method}"

    @property
    def reply_class(self) -> Any:
        return _message_class(self.service, _method(self.service, self.method).output_type)


def hello() -> Call[replies.Hello]:
    return _call("System", "Hello", replies.Hello, version=__version__, protocol=PROTOCOL)


def status() -> Call[replies.Status]:
    return _call("System", "Status", replies.Status)


def watch(interval_s: float) -> Call[replies.Status]:
    return _call("System", "Watch", replies.Status, repeat="always", deadline_s=None, interval_s=interval_s)


def shutdown() -> Call[replies.Stopped]:
    return _call("System", "Shutdown", replies.Stopped, repeat="never")


def cancel(request_id: str) -> Call[replies.CancelDone]:
    return _call("System", "Cancel", replies.CancelDone, id=request_id)


def fans() -> Call[Thermal]:
    return _call("System", "Fans", Thermal)


def set_fans(mode: str) -> Call[Thermal]:
    return _call("System", "SetFans", Thermal, mode=mode)


def hold_fans(reason: str) -> Call[Thermal]:
    return _call("System", "HoldFans", Thermal, repeat="never", deadline_s=None, reason=reason)


def generate(prompt: str | None, options: GenerateOptions) -> Call[Event]:
    request = generate_request(prompt, options)
    return Call("Generation", "Generate", request, read_event, repeat="never", deadline_s=None)


def pull(name: str) -> Call[Progress | replies.Pack]:
    return _work("Models", "Pull", replies.Pack, name=model_ref(name))


def ls() -> Call[replies.Listing]:
    return _call("Models", "List", replies.Listing)


def show(name: str) -> Call[replies.Shown]:
    return _call("Models", "Show", replies.Shown, name=model_ref(name))


def rm(name: str) -> Call[replies.Removed]:
    return _call("Models", "Remove", replies.Removed, repeat="never", name=model_ref(name))


def load(
    name: str,
    keep_alive_s: float | None,
    depth: int | str | None,
    depth_max: int | None,
    force: bool,
    plain: bool,
    store: str | None = None,
) -> Call[Progress | replies.Resident]:
    call = _work(
        "Models",
        "Load",
        replies.Resident,
        name=model_ref(name),
        keep_alive_s=keep_alive_s,
        depth_max=depth_max,
        force=force,
        plain=plain,
        store=store,
    )
    put_depth(call.request, depth)
    return call


def unload(name: str) -> Call[replies.Unloaded]:
    """No deadline: an idle model leaves between two requests, and the one in work may be long."""
    return _call("Models", "Unload", replies.Unloaded, deadline_s=None, name=model_ref(name))


def measure(
    model: str,
    depths: Sequence[int | str],
    max_tokens: int,
    prompts: int,
    suite: str,
    options: SamplerOptions,
    no_fans: bool = False,
) -> Call[Progress | measurements.Measurement]:
    call = _work(
        "Tuning",
        "Measure",
        measurements.Measurement,
        model=model_ref(model),
        depths=[depth for depth in depths if depth != AUTO],
        auto=AUTO in depths,
        max_tokens=max_tokens,
        prompts=prompts,
        suite=suite,
        no_fans=no_fans,
    )
    sampler_request(call.request.sampler, options)
    return call


def verify(
    model: str, samples: int, prompts: int, max_tokens: int, depths: Sequence[int], dry_run: bool
) -> Call[Progress | verifications.Verification]:
    return _work(
        "Tuning",
        "Verify",
        verifications.Verification,
        model=model_ref(model),
        samples=samples,
        prompts=prompts,
        max_tokens=max_tokens,
        depths=list(depths),
        dry_run=dry_run,
    )


def tune(
    model: str,
    depths: Sequence[int | str],
    options: SamplerOptions,
    **wishes: str | int | bool,
) -> Call[Progress | tunings.Tuning]:
    call = _work(
        "Tuning",
        "Tune",
        tunings.Tuning,
        model=model_ref(model),
        depths=[depth for depth in depths if depth != AUTO],
        auto=AUTO in depths,
        **wishes,
    )
    sampler_request(call.request.sampler, options)
    return call


def suite(name: str, prompts: int, seed: int | None) -> Call[measurements.Suite]:
    return _call("Tuning", "Suite", measurements.Suite, suite=name, prompts=prompts, seed=seed)


def summarise(
    model: str, runs: Iterable[measurements.Run], sampler: Sampler, suite: str, max_tokens: int
) -> Call[measurements.Measurement]:
    call = _call(
        "Tuning",
        "Summarise",
        measurements.Measurement,
        model=model_ref(model),
        suite=suite,
        max_tokens=max_tokens,
    )
    encode(sampler, call.request.sampler)
    for run in runs:
        encode(run, call.request.runs.add())
    return call


def probe(name: str) -> Call[Probed]:
    """No deadline: a far repository's headers are read."""
    return _call("Forge", "Probe", Probed, deadline_s=None, name=model_ref(name))


def build(source: str, name: str, options: BuildOptions, detach: bool) -> Call[BuildStep | BuildOutcome]:
    """Never repeated: it may have begun."""
    request = filled(
        _request("Forge", "Build"),
        source=model_ref(source),
        name=name,
        body_bits=options.body_bits,
        group_size=options.group_size,
        dtype=options.dtype,
        train=options.train,
        quick=options.quick,
        depths=[depth for depth in options.depths if depth != AUTO],
        auto=AUTO in options.depths,
        head_bits=options.head_bits,
        allow_degraded_head=options.allow_degraded_head,
        quality_floor=options.quality_floor,
        on_battery=options.on_battery,
        accept_throttled=options.accept_throttled,
        no_fans=options.no_fans,
        detach=detach,
    )
    for layers, bits in options.overrides.items():
        filled(request.overrides.add(), layers=layers, bits=bits)
    training = options.training
    filled(
        request.training,
        method=training.method,
        prompts=str(absolute(training.prompts)) if training.prompts else "",
        tokens=training.tokens,
        steps=training.steps,
        seed=training.seed,
    )
    return Call("Forge", "Build", request, _read_build, repeat="never", deadline_s=None)


def follow(run: str) -> Call[BuildStep | BuildOutcome]:
    request = filled(_request("Forge", "Follow"), run=run)
    return Call("Forge", "Follow", request, _read_build, deadline_s=None)


def resume(run: str, detach: bool) -> Call[BuildStep | BuildOutcome]:
    request = filled(_request("Forge", "Resume"), run=run, detach=detach)
    return Call("Forge", "Resume", request, _read_build, deadline_s=None)


def runs() -> Call[tuple[BuildRun, ...]]:
    def read(message: Any) -> tuple[BuildRun, ...]:
        return tuple(decode(BuildRun, run) for run in message.runs)

    return Call("Forge", "Runs", _request("Forge", "Runs"), read)


def cancel_run(run: str) -> Call[RunCancelled]:
    return _call("Forge", "Cancel", RunCancelled, repeat="never", deadline_s=None, run=run)


def publish(name: str, repo: str, dry_run: bool) -> Call[Progress | Published]:
    call = _work("Forge", "Publish", Published, name=model_ref(name), repo=repo, dry_run=dry_run)
    return replace(call, repeat="never")


def _read_build(message: Any) -> BuildStep | BuildOutcome:
    if message.WhichOneof("event") == "step":
        return decode(BuildStep, message.step)
    return decode(BuildOutcome, message.outcome)


def sessions() -> Call[tuple[Session, ...]]:
    def read(message: Any) -> tuple[Session, ...]:
        return tuple(decode(Session, session) for session in message.sessions)

    return Call("Sessions", "List", _request("Sessions", "List"), read)


def session(name: str) -> Call[SessionShown]:
    return _call("Sessions", "Show", SessionShown, name=name)


def rename_session(name: str, to: str) -> Call[Session]:
    return _call("Sessions", "Rename", Session, repeat="never", name=name, to=to)


def remove_session(name: str) -> Call[SessionRemoved]:
    return _call("Sessions", "Remove", SessionRemoved, repeat="never", name=name)


def cache_stats() -> Call[StoreStats]:
    return _call("Store", "Stats", StoreStats)


def cache_verify() -> Call[Progress | StoreVerified]:
    return _work("Store", "Verify", StoreVerified)


def cache_prune() -> Call[StoreFreed]:
    return _call("Store", "Prune", StoreFreed, deadline_s=None)


def cache_clear(sessions: bool) -> Call[StoreFreed]:
    return _call("Store", "Clear", StoreFreed, deadline_s=None, sessions=sessions)


def _call(
    service: str,
    method: str,
    kind: type[T],
    repeat: Repeat = "before_first",
    deadline_s: float | None = QUICK_S,
    **fields: Any,
) -> Call[T]:
    """A call whose answers are each a `kind`."""
    request = filled(_request(service, method), **fields)
    return Call(service, method, request, functools.partial(decode, kind), repeat, deadline_s)


def _work(service: str, method: str, kind: type[T], **fields: Any) -> Call[Progress | T]:
    """A call that streams progress and then one result of `kind`."""

    def read(message: Any) -> Progress | T:
        chosen = message.WhichOneof("event")
        if chosen == "progress":
            return decode(Progress, message.progress)
        return decode(kind, getattr(message, chosen))

    return Call(service, method, filled(_request(service, method), **fields), read, deadline_s=None)


def _request(service: str, method: str) -> Any:
    return _message_class(service, _method(service, method).input_type)()


def _method(service: str, method: str) -> Any:
    return _module(service).DESCRIPTOR.services_by_name[service].methods_by_name[method]


def _message_class(service: str, kind: Any) -> Any:
    return getattr(_module(service), kind.name)


def _module(service: str) -> Any:
    return importlib.import_module(f"mtplx_proto.v1.{service.lower()}_pb2")
