"""A conversation goes on from what was said in it, in one process and the next, and says what it would cold."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from mtplxd.engine.engine import Engine
from mtplxd.engine.events import Event, Finished, Text
from mtplxd.engine.request import STORE_OFF, STORE_ON, Request, SamplerSettings
from mtplxd.families.load import LoadedModel, load_model
from mtplxd.packs.pack import read_pack
from mtplxd.store.disk import DiskStore
from mtplxd.store.prefixes import PrefixIndex
from mtplxd.store.tiers import Tiers
from support.disks import LIMITS, PATIENCE_S
from support.families import write_checkpoint
from support.prefixes import some

GREEDY = SamplerSettings(temperature=0.0)
FIXED = SamplerSettings(temperature=0.0, reproducible=True)
BLOCK = 16
ids = iter(range(1 << 30))
opened: list[Process] = []


@pytest.fixture(autouse=True)
def _no_process_outlives_its_test() -> Iterator[None]:
    yield
    for process in opened:
        process.engine.stop(PATIENCE_S)
    opened.clear()


class Process:
    """An engine over a folder, as one daemon after the other has it."""

    def __init__(self, folder: Path | None, model: LoadedModel, limit: int = 1 << 30) -> None:
        self.disk = None if folder is None else DiskStore(folder, LIMITS)
        self.index: PrefixIndex[Any] = PrefixIndex(limit, BLOCK)
        self.tiers: Tiers[Any] = Tiers(self.index, self.disk)
        self.engine = Engine(prefix_store=self.tiers)
        self.engine.start()
        self.model = model
        if folder is not None:
            opened.append(self)

    def send(
        self,
        prompt: list[int],
        count: int = 12,
        *,
        depth: int = 1,
        sampler: SamplerSettings = GREEDY,
        store: str = STORE_ON,
        cancel_after: int | None = None,
    ) -> Callable[[], tuple[list[int], Finished]]:
        """Asks, and gives what waits for the answer."""
        tokens: list[int] = []
        over: list[Finished] = []
        done = threading.Event()
        request = Request(
            f"turn-{next(ids)}", "test", self.model, list(prompt), sampler, count, ignore_eos=True,
            depth=min(depth, self.model.depth_max), store=store,
        )  # fmt: skip

        def hear(event: Event) -> None:
            if isinstance(event, Text):
                tokens.extend(event.tokens)
                if cancel_after is not None and len(tokens) >= cancel_after:
                    self.engine.cancel(request.id)
            elif isinstance(event, Finished):
                over.append(event)
                done.set()

        def wait() -> tuple[list[int], Finished]:
            assert done.wait(PATIENCE_S)
            return tokens, over[0]

        self.engine.submit(request, hear)
        return wait

    def ask(self, prompt: list[int], count: int = 12, **words: Any) -> tuple[list[int], Finished]:
        return self.send(prompt, count, **words)()

    def settle(self) -> None:
        prefixes = self.engine._prefixes
        assert prefixes is not None
        assert self.engine.call(lambda: prefixes.flush(PATIENCE_S), "settling").result(PATIENCE_S)
        assert self.disk is None or self.disk.flush(PATIENCE_S)

    def end(self) -> None:
        """All that was to be kept is, without anybody waiting for it before."""
        assert self.engine.stop(PATIENCE_S)
        self.tiers.close()
        assert self.disk is None or self.disk.close(PATIENCE_S)


@pytest.fixture(scope="module", params=["mimo", "qwen3_5", "step3p5"])
def model(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> LoadedModel:
    return load_model(
        read_pack(write_checkpoint(tmp_path_factory.mktemp(request.param) / "pack", request.param))
    )


@pytest.fixture(scope="module")
def alone(model: LoadedModel) -> Iterator[Process]:
    """One that keeps nothing."""
    process = Process(None, model, limit=0)
    yield process
    process.end()


def talk(process: Process, turns: int, **words: Any) -> tuple[list[list[int]], list[int], list[int]]:
    """A conversation of so many turns: what was said in each, and how much each got back; and all of it."""
    text = some(40, 1)
    said, back = [], []
    for turn in range(turns):
        answer, finished = process.ask(text, **words)
        said.append(answer)
        back.append(finished.cached_tokens)
        assert finished.prompt_tokens == len(text)
        text = [*text, *answer, *some(10, 50 + turn)]
    return said, back, text


@pytest.mark.parametrize("depth", [0, 2])
def test_each_turn_reads_only_what_is_new_in_it(
    model: LoadedModel, alone: Process, tmp_path: Path, depth: int
) -> None:
    cold, _, _ = talk(alone, 4, depth=depth)
    process = Process(tmp_path, model)
    warm, back, _ = talk(process, 4, depth=depth)
    assert warm == cold
    # all but the last token of the answer before, which no forward has seen
    assert back == [0, *(40 + turn * 22 + 12 - 1 for turn in range(3))]
    process.end()


def test_the_next_process_goes_on_where_the_last_one_was(
    model: LoadedModel, alone: Process, tmp_path: Path
) -> None:
    cold, _, _ = talk(alone, 3, depth=2)
    text = some(40, 1)
    for turn in range(3):
        process = Process(tmp_path, model)
        answer, finished = process.ask(text, depth=2)
        assert answer == cold[turn]
        assert finished.cached_tokens == (len(text) - 11 if turn else 0)
        process.end()
        text = [*text, *answer, *some(10, 50 + turn)]


def test_a_conversation_that_grows_is_not_written_again(model: LoadedModel, tmp_path: Path) -> None:
    """Tails that the next turn goes on behind are never written."""
    process = Process(tmp_path, model)
    _, _, text = talk(process, 12)
    process.settle()
    assert process.disk is not None
    whole = process.disk.counts()
    process.end()
    other = Process(tmp_path / "other", model)
    other.ask(text, 1)
    other.settle()
    assert other.disk is not None
    assert whole.bytes_written <= 1.5 * other.disk.counts().bytes_written
    other.end()


@pytest.mark.parametrize("keeps", [STORE_ON, STORE_OFF])
def test_one_who_goes_on_otherwise_changes_nothing_for_the_first(
    model: LoadedModel, alone: Process, tmp_path: Path, keeps: str
) -> None:
    """Stored or not, in memory and from disk."""
    first = some(90, 3)
    second = [*first[:70], *some(30, 4)]
    process = Process(tmp_path, model)
    expected, other = alone.ask(first)[0], alone.ask(second)[0]
    assert process.ask(first)[0] == expected
    for _ in range(2):
        assert process.ask(second, store=keeps)[0] == other
        again, finished = process.ask(first)
        assert again == expected
        assert finished.cached_tokens == len(first) - 1
        process.settle()
        process.engine.call(lambda: process.index.shrink(0), "forgetting").result(PATIENCE_S)
    process.end()


def test_one_that_is_stopped_leaves_what_it_said(model: LoadedModel, alone: Process, tmp_path: Path) -> None:
    process, prompt = Process(tmp_path, model), some(60, 6)
    said, finished = process.ask(prompt, 200, depth=2, cancel_after=30)
    assert finished.finish_reason == "cancelled"
    follow_up = [*prompt, *said, *some(8, 7)]
    again, finished = process.ask(follow_up, depth=2)
    assert finished.cached_tokens >= (len(prompt) + len(said) - 8) // BLOCK * BLOCK
    assert again == alone.ask(follow_up, depth=2)[0]
    process.end()


def test_reproducible_turns_are_the_same_bits_and_share_what_was_cut_alike_alone(
    model: LoadedModel, alone: Process, tmp_path: Path
) -> None:
    prompt = some(200, 8)
    expected = alone.ask(prompt, sampler=FIXED)[0]
    process = Process(tmp_path, model)
    process.ask(prompt)
    for back in (0, 192, 192):
        said, finished = process.ask(prompt, sampler=FIXED)
        assert (said, finished.cached_tokens) == (expected, back)
    process.end()
    process = Process(tmp_path, model)
    said, finished = process.ask(prompt, sampler=FIXED)
    assert (said, finished.cached_tokens) == (expected, 192)
    follow_up = [*prompt, *said, *some(60, 9)]
    said, finished = process.ask(follow_up, sampler=FIXED)
    assert finished.cached_tokens == 192  # what was said was made in other shapes than it would be read in
    assert said == alone.ask(follow_up, sampler=FIXED)[0]
    process.end()


def test_rows_that_share_rounds_are_kept_each_by_itself(
    model: LoadedModel, alone: Process, tmp_path: Path
) -> None:
    """They end in different rounds, of the first, the middle and the last row, while the others go on."""
    process = Process(tmp_path, model)
    prompts = [some(30 + 9 * n, 20 + n) for n in range(3)]
    counts = [9, 21, 40]
    waits = [process.send(prompt, count, depth=2) for prompt, count in zip(prompts, counts, strict=True)]
    said = [wait()[0] for wait in waits]
    process.settle()
    for forget in (False, True):
        if forget:
            process.settle()
            process.engine.call(lambda: process.index.shrink(0), "forgetting").result(PATIENCE_S)
        for prompt, text in zip(prompts, said, strict=True):
            follow_up = [*prompt, *text, *some(8, 30)]
            again, finished = process.ask(follow_up, depth=2)
            known = len(prompt) + len(text) - 1
            assert finished.cached_tokens == (len(follow_up) - 1 if forget else known)
            assert again == alone.ask(follow_up, depth=2)[0]
    process.end()
