"""Steps `measure` and `verify` of a build: the same work as `mtplx tune` and `mtplx verify`, asked for from its thread.

It carries words over and waits; measuring, deciding and checking are `tuning`'s.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Coroutine
from concurrent.futures import CancelledError, wait
from pathlib import Path
from typing import Any

from google.protobuf import json_format
from mtplx_proto.v1 import tuning_pb2

from mtplxd.errors import Cancelled, FailedPrecondition, MtplxError
from mtplxd.forge.pacing import IsCancelled, Tell
from mtplxd.forge.recipe import BuildRecipe
from mtplxd.packs.manifest import read_manifest
from mtplxd.residency.manager import Residency
from mtplxd.rpc.tuning import Tuning

POLL_S = 0.1
RELEASE_S = 30.0


class Judge:
    """`forge.work.EngineSteps` of a daemon. Made on its event loop; the methods run in other threads and block."""

    def __init__(self, tuning: Tuning, residency: Residency) -> None:
        self._tuning, self._residency = tuning, residency
        self._loop = asyncio.get_running_loop()

    def measure(self, pack: Path, recipe: BuildRecipe, tell: Tell, cancelled: IsCancelled) -> dict[str, Any]:
        """A tuning of the pack, never one that was made before; a winner is kept for its content."""
        request = tuning_pb2.TuneRequest(
            model=str(pack),
            depths=recipe.depths,
            auto=recipe.auto,
            quick=recipe.quick,
            accept_throttled=recipe.accept_throttled,
            retune=True,
            no_fans=recipe.no_fans,
        )
        return measured_document(self._wait(self._tuning.run_tune(request, _writer(tell)), cancelled))

    def verify(self, pack: Path, recipe: BuildRecipe, tell: Tell, cancelled: IsCancelled) -> dict[str, Any]:  # noqa: ARG002
        """A verification of the pack; the record is the one that it put into the manifest."""
        request = tuning_pb2.VerifyRequest(model=str(pack))
        found = self._wait(self._tuning.run_verify(request, _writer(tell)), cancelled)
        document = json_format.MessageToDict(found, preserving_proto_field_name=True)
        manifest = read_manifest(pack) if found.recorded else None
        return {
            **document,
            "passed": found.passed,
            "failures": list(found.failures),
            "record": manifest.verification if manifest else None,
        }

    def release(self, pack: Path) -> None:
        end = time.monotonic() + RELEASE_S
        while time.monotonic() < end:
            try:
                self._residency.unload(str(pack)).result(RELEASE_S)
                return
            except FailedPrecondition:  # whoever measured it has yet to give it back
                time.sleep(POLL_S)
            except (MtplxError, CancelledError, TimeoutError, RuntimeError):  # not there, or the daemon stops
                return

    def _wait(self, work: Coroutine[Any, Any, Any], cancelled: IsCancelled) -> Any:
        future = asyncio.run_coroutine_threadsafe(work, self._loop)
        while not wait([future], POLL_S).done:
            if cancelled():
                future.cancel()
                raise Cancelled("stopped before it was done", "measuring")
        return future.result()


def measured_document(reply: Any) -> dict[str, Any]:
    """A TuneReply as a build keeps it: decision, rows and all that is needed to judge them, but for the order."""
    document = json_format.MessageToDict(
        reply, preserving_proto_field_name=True, always_print_fields_with_no_presence=True
    )
    document["machine"]["memory"] = reply.machine.memory  # the JSON of protobuf has its 64 bits as a text
    document["sampler"]["seed"] = reply.sampler.seed
    decision = reply.decision
    depth: int | str | None = (
        "auto" if decision.auto else decision.depth if decision.HasField("depth") else None
    )
    return {
        "verdict": decision.verdict,
        "message": decision.message,
        "depth": depth,
        **{name: document[name] for name in ("rows", "machine", "drift", "sampler", "suite", "notes")},
        "max_tokens": reply.max_tokens,
        "measured_at": reply.measured_at,
    }


def _writer(tell: Tell) -> Callable[[Any], Any]:
    """Tells a build's thread of events that a client would be written."""

    async def write(event: Any) -> None:
        step = event.progress
        tell(step.stage, step.done, step.total, step.message)

    return write
