"""A service without a model, run by the engine's own policy: time, tokens and bytes are counted, nothing is decoded.

It checks at every step what must always hold; whoever drives it says who comes and who gives up.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from mtplxd.engine.scheduling.admission import Admit, Kept, Never, admit, judge_alone, row_need
from mtplxd.engine.scheduling.footprint import RowHold, bytes_of
from mtplxd.engine.scheduling.preemption import AsideView, Relief, RowView, make_room, make_way, next_back
from mtplxd.engine.scheduling.queue import BACKGROUND, FairQueue
from mtplxd.engine.scheduling.turns import BatchView, Chunk, PrefillView, Turns
from mtplxd.errors import ResourceExhausted
from mtplxd.packs.memory import Footprint

FOOT = Footprint(position=10, row=500)
CONTEXT = 4096
PREFILL_S, ROUND_S, ROW_S = 0.002, 0.08, 0.006
"""Seconds of a position that is read, of a round, and of each row in it."""
GROWTH = 4
"""Most tokens of a round."""


@dataclass(slots=True)
class Job:
    """A request and what has become of it. `tokens` is how many it makes if nobody cuts it short."""

    id: str
    client: str
    prompt: int
    tokens: int
    priority: str = "interactive"
    deadline: float | None = None
    solo: bool = False
    submitted: float = 0.0
    made: int = 0
    unread: int = 0
    came_in: int = 0
    owed: bool = False
    copied: bool = False
    out_since: float = 0.0
    times_aside: int = 0
    began: float | None = None
    ended: float | None = None
    end: str = ""

    @property
    def background(self) -> bool:
        return self.priority == BACKGROUND

    @property
    def length(self) -> int:
        return self.prompt + self.made

    @property
    def batch(self) -> str:
        return f"request {self.id}" if self.solo else "model"

    @property
    def hold(self) -> RowHold:
        most = row_need(self.prompt, self.tokens, CONTEXT).most
        return RowHold(self.id, self.batch, FOOT, self.length, max(most, self.length))

    @property
    def view(self) -> RowView:
        return RowView(self.hold, self.submitted, self.background, self.owed, self.made - self.came_in)


@dataclass(slots=True)
class Sim:
    """The service. `serving` rows have their place, `aside` gave it up; `log` has every job that ever ended."""

    budget: int
    max_rows: int = 4
    limit: int = 100_000
    client_limit: int | None = None
    now: float = 0.0
    serving: list[Job] = field(default_factory=list)
    aside: list[Job] = field(default_factory=list)
    log: list[Job] = field(default_factory=list)
    work: dict[str, float] = field(default_factory=dict)
    longest_gap: float = 0.0
    queue: FairQueue[Job] = field(init=False)
    turns: Turns = field(default_factory=Turns)
    _round_ended: float | None = None

    def __post_init__(self) -> None:
        self.queue = FairQueue(self.limit, self.client_limit)

    @property
    def idle(self) -> bool:
        return not (self.serving or self.aside or len(self.queue))

    @property
    def copies(self) -> int:
        return sum(FOOT.bytes(1, job.length) for job in self.aside if job.copied)

    def submit(self, job: Job) -> None:
        """Raises what the engine would raise."""
        need = row_need(job.prompt, job.tokens, CONTEXT)
        never = judge_alone(need, FOOT, self.budget)
        if never:
            raise never.error
        self.now += 1e-6  # no two come at once
        job.submitted, job.unread = self.now, job.prompt - 1
        self.queue.add(job, self.now)

    def cancel(self, name: str) -> None:
        """Whatever became of it."""
        if waiting := self.queue.remove(name):
            self._end(waiting, "cancelled")
        for place in (self.serving, self.aside):
            for job in [job for job in place if job.id == name]:
                place.remove(job)
                self._end(job, "cancelled")

    def step(self) -> None:
        """Who may comes in, who must goes, and one turn is played."""
        for job in self.queue.expire(self.now):
            self._end(job, "deadline")
        self._bring_back()
        self._take_in()
        self._relieve()
        self._check()
        turn = self.turns.choose(
            [PrefillView(job.id, job.unread, job.submitted, job.background) for job in self._reading],
            [BatchView(name, self._round_s(name)) for name in self._batches],
        )
        if isinstance(turn, Chunk):
            [job] = [job for job in self.serving if job.id == turn.id]
            self._read(job, turn.seconds)
        elif turn is not None:
            self._play(turn.id)  # type: ignore[union-attr]
        else:
            self.now += 0.01

    def run(self, until: Callable[[], bool] | None = None, most: int = 200_000) -> None:
        """Plays until everybody has ended, or until `until` says so."""
        for _ in range(most):
            if self.idle or (until and until()):
                return
            self.step()
        raise AssertionError(f"somebody never ended: {[job.id for job in (*self.serving, *self.aside)]}")

    @property
    def _reading(self) -> list[Job]:
        return [job for job in self.serving if job.unread]

    @property
    def _batches(self) -> list[str]:
        return sorted({job.batch for job in self.serving if not job.unread})

    def _rows(self, name: str) -> list[Job]:
        return [job for job in self.serving if job.batch == name and not job.unread]

    def _round_s(self, name: str) -> float:
        return ROUND_S + ROW_S * len(self._rows(name))

    def _bring_back(self) -> None:
        while self.aside and len(self.serving) < self.max_rows:
            waits = any(not job.background for job in self.queue)
            views = [AsideView(job.id, job.submitted, job.out_since, job.background) for job in self.aside]
            chosen = next_back(views, waits, self.now)
            if chosen is None:
                return
            [job] = [job for job in self.aside if job.id == chosen.id]
            others = Kept(copies=self.copies - (FOOT.bytes(1, job.length) if job.copied else 0))
            verdict = admit(job.hold, [one.hold for one in self.serving], self.budget, others)
            if not isinstance(verdict, Admit):
                return
            self.aside.remove(job)
            self._drop_copies(verdict.free)
            job.unread = 0 if job.copied else job.length - 1
            job.copied, job.owed, job.came_in = False, True, job.made
            self.serving.append(job)

    def _take_in(self) -> None:
        while True:
            reliefs: dict[str, Relief] = {}

            def fits(job: Job, reliefs: dict[str, Relief] = reliefs) -> bool:
                relief = self._judge(job)
                if relief is not None:
                    reliefs[job.id] = relief
                return relief is not None

            if any(not job.background for job in self.aside):
                return  # those whose streams have begun go before those who wait
            job = self.queue.take(fits, self.now)
            if job is None:
                return
            self._give(reliefs[job.id])
            job.began, job.owed = self.now, self.queue.owed(job.id)
            self.serving.append(job)

    def _judge(self, job: Job) -> Relief | None:
        rows, kept = [one.view for one in self.serving], Kept(copies=self.copies)
        if len(rows) < self.max_rows:
            verdict = admit(job.hold, [row.hold for row in rows], self.budget, kept)
            assert not isinstance(verdict, Never)
            if isinstance(verdict, Admit):
                return Relief(verdict.free)
        return None if job.background else make_way(job.hold, rows, self.max_rows, self.budget, kept)

    def _relieve(self) -> None:
        while True:
            relief = make_room(
                [job.view for job in self.serving], self.budget, Kept(copies=self.copies), GROWTH
            )
            if not relief.hopeless:
                self._give(relief)
                return
            [job] = [job for job in self.serving if job.id == relief.hopeless]
            self.serving.remove(job)
            self._end(job, "memory")

    def _give(self, relief: Relief) -> None:
        self._drop_copies(relief.free)
        for gone in relief.aside:
            [job] = [job for job in self.serving if job.id == gone.id]
            assert not (job.background and job.view.safe and len(self.serving) > self.max_rows)
            self.serving.remove(job)
            job.copied, job.out_since, job.times_aside = (
                gone.copy and not job.unread,
                self.now,
                job.times_aside + 1,
            )
            self.aside.append(job)

    def _drop_copies(self, free: Kept) -> None:
        assert free.snapshots == 0
        wanted = free.copies
        for job in sorted(self.aside, key=lambda job: -job.submitted):
            if wanted > 0 and job.copied:
                wanted -= FOOT.bytes(1, job.length)
                job.copied = False

    def _read(self, job: Job, seconds: float) -> None:
        count = min(job.unread, max(16, int(seconds / PREFILL_S)))
        job.unread -= count
        self._charge(job, count)
        self.now += count * PREFILL_S

    def _play(self, name: str) -> None:
        rows, seconds = self._rows(name), self._round_s(name)
        self.now += seconds
        self.turns.spent(name, seconds)
        for place, job in enumerate(rows):
            count = min(1 + (job.made + place) % GROWTH, job.tokens - job.made, CONTEXT - job.length)
            job.made += count
            self._charge(job, count)
            if job.made >= job.tokens or job.length >= CONTEXT:
                self.serving.remove(job)
                self._end(job, "length")
            elif job.deadline is not None and self.now >= job.deadline:
                self.serving.remove(job)
                self._end(job, "deadline")

    def _charge(self, job: Job, work: int) -> None:
        self.queue.charge(job.client, work)
        self.work[job.client] = self.work.get(job.client, 0.0) + work

    def _end(self, job: Job, end: str) -> None:
        assert not job.end
        job.end, job.ended = end, self.now
        self.queue.done(job.id)
        self.log.append(job)

    def _check(self) -> None:
        """What holds before every turn, whoever came and went."""
        assert len(self.serving) <= self.max_rows
        assert len(self.queue) <= self.limit
        names = [job.id for job in (*self.serving, *self.aside, *self.queue)]
        assert len(names) == len(set(names))
        held = bytes_of([job.hold for job in self.serving], GROWTH) + self.copies
        assert held <= self.budget, f"{held} bytes of {self.budget}"


def refused(sim: Sim, job: Job) -> bool:
    """Whether the service would not have it."""
    try:
        sim.submit(job)
    except ResourceExhausted:
        return True
    return False
