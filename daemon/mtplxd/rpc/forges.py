"""The Forge service: builds begun, followed, taken up again, cancelled and listed; probes and publications.

A build belongs to nobody: who began it may leave, who comes later may follow it.
"""

from __future__ import annotations

import asyncio
import secrets
import threading
import time
from collections.abc import Callable
from concurrent.futures import Executor
from pathlib import Path
from typing import Any, TypeVar

from mtplx_proto.v1 import forge_pb2, forge_pb2_grpc

from mtplxd.errors import InvalidArgument, MtplxError
from mtplxd.forge.foreman import Foreman, check_resumable
from mtplxd.forge.leavings import bytes_of, settle_runs
from mtplxd.forge.news import Told
from mtplxd.forge.outcome import Summary, summarise
from mtplxd.forge.prompt_file import read_prompts
from mtplxd.forge.recipe import BuildRecipe
from mtplxd.forge.runs import Run, create_run, find_run, list_runs, remove_run, sweep
from mtplxd.forge.sealing import check_name_free
from mtplxd.packs.landing import disk_errors
from mtplxd.paths import Home
from mtplxd.rpc import builds
from mtplxd.rpc.bridge import Bridge
from mtplxd.rpc.building import Builds, LiveBuild

T = TypeVar("T")


class Forge(forge_pb2_grpc.ForgeServicer):
    """`files` runs what reads files, `waits` what waits for a worker. Made on the event loop."""

    def __init__(self, home: Home, foreman: Foreman, files: Executor, waits: Executor) -> None:
        self._home, self._foreman, self._files, self._waits = home, foreman, files, waits
        self._builds = Builds(foreman)
        self._stopping = threading.Event()

    @property
    def worker_bytes(self) -> int:
        """What a worker takes of the machine's memory."""
        return self._builds.worker_bytes

    @property
    def working(self) -> bool:
        """Whether a build is in hand, followed or not."""
        return self._builds.any

    def prepare(self) -> None:
        """Clears away what kills left, when the daemon starts; in any thread."""
        sweep(self._home)
        settle_runs(self._home)

    def stop(self) -> None:
        """Ends every worker; builds can be resumed by the next daemon."""
        self._stopping.set()
        self._builds.stop()

    async def Probe(self, request: Any, context: Any) -> Any:  # noqa: ARG002
        found = await self._ask("probe", _named(request.name, "name"), hear=lambda _told: None)
        return builds.probe_reply(found)

    async def Build(self, request: Any, context: Any) -> None:
        recipe = builds.read_request(request)
        self._builds.check_name(recipe.name)
        run = await self._in_files(self._create, recipe)
        try:
            live = self._builds.begin(run, recipe.name)
        except MtplxError:  # somebody else took the name meanwhile, or the daemon stops
            await self._in_files(self._remove, run)
            raise
        await self._follow(live, request.detach, context)

    async def Follow(self, request: Any, context: Any) -> None:
        wanted = request.run.strip()
        live = self._builds.find(wanted) if wanted else self._builds.working()
        if live is not None:
            await self._follow(live, False, context)
            return
        run = await self._in_files(find_run, self._home, wanted)
        await context.write(await self._in_files(builds.last_event, run))

    async def Runs(self, request: Any, context: Any) -> Any:  # noqa: ARG002
        found = await self._in_files(self._summaries)
        return forge_pb2.RunsReply(runs=[self._run_message(one) for one in found])

    async def Resume(self, request: Any, context: Any) -> None:
        wanted = _named(request.run, "run")
        live = self._builds.find(wanted)
        if live is None:
            run = await self._in_files(find_run, self._home, wanted)
            await self._in_files(check_resumable, run)
            name = (await self._in_files(run.recipe)).name
            live = self._builds.find(run.id) or self._builds.begin(run, name)
        await self._follow(live, request.detach, context)

    async def Cancel(self, request: Any, context: Any) -> Any:  # noqa: ARG002
        wanted = _named(request.run, "run")
        live = self._builds.find(wanted)
        run = live.run if live else await self._in_files(find_run, self._home, wanted)
        freed = await asyncio.shield(self._end(run, live))  # who asked may leave, it goes all the same
        return forge_pb2.CancelRunReply(run=run.id, stopped=live is not None, bytes_freed=freed)

    async def Publish(self, request: Any, context: Any) -> None:
        name, repo = _named(request.name, "name"), _named(request.repo, "repo")
        steps: Bridge[Told | None] = Bridge(16)
        arguments = (name, repo, *(["--dry-run"] if request.dry_run else []))
        gone = threading.Event()
        asked = asyncio.ensure_future(self._ask("publish", *arguments, hear=steps.put, gone=gone))

        def end(done: asyncio.Future[Any]) -> None:
            steps.finish(None)
            if not done.cancelled():
                done.exception()  # heard, though whoever asked may have left

        asked.add_done_callback(end)
        try:
            while (told := await steps.get()) is not None:
                await context.write(builds.publish_progress(told))
            await context.write(builds.published_event(await asked))
        finally:
            gone.set()
            steps.close()

    async def _end(self, run: Run, live: LiveBuild | None) -> int:
        """Stops a run that is in hand and deletes it; the bytes freed."""
        if live is not None:
            self._builds.cancel(live)
            await asyncio.wait([live.ended])
        return await self._in_files(self._remove, run)

    async def _follow(self, live: LiveBuild, detach: bool, context: Any) -> None:
        """Writes news until the build ends; then its outcome, or its error ends the call."""
        with live.followed() as news:
            while (told := await news.get()) is not None:
                await context.write(builds.step_event(live.run.id, told))
                if detach:
                    return
            await context.write(builds.outcome_event(await asyncio.shield(live.ended)))

    def _create(self, recipe: BuildRecipe) -> Run:
        """Refuses a name that is taken, and prompts that are none, before anything is fetched."""
        self._home.create()
        check_name_free(self._home, recipe.name)
        if recipe.training.prompts:
            read_prompts(Path(recipe.training.prompts))
        with disk_errors(self._home.runs):
            return create_run(self._home, recipe, time.time(), secrets.token_hex(3))

    def _remove(self, run: Run) -> int:
        with disk_errors(self._home.runs):
            freed = bytes_of(run.folder)
            remove_run(self._home, run)
        return freed

    def _summaries(self) -> list[Summary]:
        found = []
        for run in list_runs(self._home):
            live = self._builds.find(run.id)
            now = {"live": live.status, "step": live.latest.step} if live else {}
            size = bytes_of(run.folder)
            try:
                found.append(summarise(run.id, run.recipe(), run.state(), size=size, **now))
            except MtplxError as error:
                found.append(Summary(run.id, "", "", "failed", error=str(error), bytes=size))
        return found

    def _run_message(self, found: Summary) -> Any:
        live = self._builds.find(found.run)
        return builds.run_message(found, live.latest if live else Told(""))

    async def _ask(
        self,
        job: str,
        *arguments: str,
        hear: Callable[[Told], None],
        gone: threading.Event | None = None,
    ) -> Any:
        gone = gone or threading.Event()

        def ask() -> Any:
            return self._foreman.ask(
                job, *arguments, hear=hear, cancelled=lambda: gone.is_set() or self._stopping.is_set()
            )

        try:
            return await asyncio.get_running_loop().run_in_executor(self._waits, ask)
        finally:
            gone.set()

    async def _in_files(self, work: Callable[..., T], *args: Any) -> T:
        return await asyncio.get_running_loop().run_in_executor(self._files, work, *args)


def _named(value: str, field: str) -> str:
    if not value.strip():
        raise InvalidArgument(f"no {field} given", None, f"give a {field}", field=field)
    return value.strip()
