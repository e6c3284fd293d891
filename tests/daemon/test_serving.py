"""A real daemon with a real model, spoken to over its socket."""

from __future__ import annotations

import shutil
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import grpc
import pytest
from mtplx_client import Client
from mtplx_client.errors import DataLoss, FailedPrecondition, InvalidArgument, ResourceExhausted
from mtplx_proto.v1 import system_pb2, system_pb2_grpc
from support.daemon_process import DaemonProcess, running_daemon, short_folder


@pytest.fixture(scope="module")
def daemon() -> Iterator[DaemonProcess]:
    with short_folder() as folder, running_daemon(folder / "home") as process:
        yield process


@pytest.fixture
def client(daemon: DaemonProcess) -> Iterator[Client]:
    with Client(socket=daemon.socket) as connected:
        yield connected


def test_a_model_is_loaded_by_its_first_request_and_answers(client: Client, tiny: Path) -> None:
    reply = client.complete("hello", model=str(tiny), force=True, max_tokens=32, ignore_eos=True, depth=1)
    assert len(reply.tokens) == reply.usage.completion_tokens == 32
    assert reply.stats.depth == 1
    assert reply.stats.drafted > 0
    resident = client.status().models[0]
    assert (resident.state, resident.tier, resident.in_use) == ("ready", "unverified", 0)
    assert resident.bytes_body > 0
    assert resident.bytes_head > 0


def test_a_greedy_text_is_the_same_at_every_depth(client: Client, tiny: Path) -> None:
    texts = {
        tuple(
            client.complete(
                "hello there",
                model=str(tiny),
                force=True,
                temperature=0,
                max_tokens=64,
                depth=depth,
                ignore_eos=True,
            ).tokens
        )
        for depth in (0, 1, 3)
    }
    assert len(texts) == 1


def test_a_seed_gives_one_text(client: Client, tiny: Path) -> None:
    texts = {
        client.complete(
            "hello", model=str(tiny), force=True, max_tokens=32, seed=7, depth=2, ignore_eos=True
        ).text
        for _ in range(2)
    }
    assert len(texts) == 1


def test_a_pack_without_a_head_decodes_plainly(client: Client, headless: Path) -> None:
    reply = client.complete("hello", model=str(headless), max_tokens=8, plain=True, ignore_eos=True)
    assert (reply.stats.depth, reply.stats.drafted) == (0, 0)
    with pytest.raises(FailedPrecondition):
        client.complete("hello", model=str(headless), max_tokens=8, depth=1)


def test_two_clients_are_served_and_each_gets_its_own(daemon: DaemonProcess, tiny: Path) -> None:
    def ask(seed: int) -> list[int]:
        with Client(socket=daemon.socket) as own:
            return own.complete(
                "hello", model=str(tiny), force=True, max_tokens=64, seed=seed, ignore_eos=True
            ).tokens

    alone = [ask(seed) for seed in (1, 2)]
    with ThreadPoolExecutor(2) as pool:
        together = list(pool.map(ask, (1, 2)))
    assert together == alone


def test_a_prompt_longer_than_the_context_is_refused_with_both_lengths(client: Client, tiny: Path) -> None:
    with pytest.raises(InvalidArgument, match=r"5000 tokens, the context holds 2048"):
        client.complete("q" * 5000, model=str(tiny), force=True, raw=True)


def test_a_text_may_fill_the_context_and_says_so(client: Client, tiny: Path) -> None:
    reply = client.complete("q" * 2040, model=str(tiny), force=True, raw=True, ignore_eos=True)
    assert (reply.finish_reason, reply.stop_origin) == ("length", "context")


def test_a_client_that_leaves_frees_the_engine_for_the_next(client: Client, tiny: Path) -> None:
    for _ in range(5):
        stream = client.generate("hello", model=str(tiny), force=True, ignore_eos=True)
        next(stream)
        stream.close()
    reply = client.complete("hello", model=str(tiny), force=True, max_tokens=4, ignore_eos=True)
    assert reply.finish_reason == "length"
    assert client.status().queue.running == 0


def test_an_unloaded_model_gives_its_memory_back_and_loads_again(client: Client, tiny: Path) -> None:
    client.load(str(tiny), force=True)
    client.unload(str(tiny))
    assert str(tiny) not in [resident.path for resident in client.status().models]
    assert client.complete("hello", model=str(tiny), force=True, max_tokens=4).usage.prompt_tokens > 0


def test_a_truncated_weights_file_is_data_loss_and_names_the_file(
    client: Client, tiny: Path, tmp_path: Path
) -> None:
    broken = Path(shutil.copytree(tiny, tmp_path / "broken"))
    weights = broken / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:-1000])
    with pytest.raises(DataLoss, match=r"model\.safetensors"):
        client.load(str(broken))
    assert str(broken) not in [resident.path for resident in client.status().models]


def test_a_hundred_idle_watchers_leave_status_answering(daemon: DaemonProcess, client: Client) -> None:
    with grpc.insecure_channel(f"unix:{daemon.socket}") as channel:
        stub = system_pb2_grpc.SystemStub(channel)
        watchers = [stub.Watch(system_pb2.WatchRequest(interval_s=3600)) for _ in range(100)]
        for watcher in watchers:
            assert next(watcher).pid == daemon.pid
        for _ in range(20):
            assert client.status().pid == daemon.pid
        for watcher in watchers:
            watcher.cancel()


def test_no_word_of_a_prompt_or_an_answer_is_in_the_logs(
    daemon: DaemonProcess, client: Client, tiny: Path
) -> None:
    secret = "xylophonequartz"
    text = client.complete(secret, model=str(tiny), force=True, max_tokens=64, ignore_eos=True).text
    with pytest.raises(InvalidArgument):
        client.complete(messages=[{"role": secret, "content": secret}], model=str(tiny), force=True)
    assert secret not in daemon.log()
    assert text not in daemon.log()
    assert "Traceback" not in daemon.log()


def test_a_model_larger_than_the_budget_is_refused_before_it_is_read(tiny: Path) -> None:
    with (
        short_folder() as folder,
        running_daemon(folder / "home", "--memory-budget", "204M") as small,
        Client(socket=small.socket) as asking,
        pytest.raises(ResourceExhausted) as refused,
    ):
        asking.load(str(tiny), force=True)
    assert refused.value.needed > refused.value.available > 0


def test_a_preloaded_model_is_there_without_a_request(tiny: Path) -> None:
    with (
        short_folder() as folder,
        running_daemon(folder / "home", "--preload", str(tiny)) as process,
        Client(socket=process.socket) as watching,
    ):
        states = (status.models[0].state for status in watching.watch(0.1) if status.models)
        assert next(state for state in states if state != "loading") == "ready"
        found = watching.status()
        assert found.models[0].pinned
        assert found.memory.level in ("normal", "warn")
        assert found.memory.device.cache_limit > 0
        assert found.memory.device.wired
        assert found.power.by or found.power.trouble


def test_a_preload_that_fails_is_shown_and_the_daemon_serves(home: Path) -> None:
    with (
        running_daemon(home, "--preload", "nowhere") as process,
        Client(socket=process.socket) as watching,
    ):
        assert next(status for status in watching.watch(0.1) if status.degraded).state == "serving"
        assert "nowhere" in " ".join(watching.status().degraded)


def test_the_log_rotates_within_its_bound(home: Path) -> None:
    from mtplxd import logs

    home.mkdir(mode=0o700)
    handler = logs.PrivateRotatingFile(home / "x.log", maxBytes=1000, backupCount=2)
    writers = [
        threading.Thread(target=lambda: [handler.emit(record()) for _ in range(200)]) for _ in range(2)
    ]
    for writer in writers:
        writer.start()
    for writer in writers:
        writer.join()
    handler.close()
    files = sorted(home.iterdir())
    assert len(files) == 3
    assert sum(path.stat().st_size for path in files) <= 3 * 1000
    assert {path.stat().st_mode & 0o777 for path in files} == {0o600}


def record() -> object:
    import logging

    return logging.LogRecord("test", logging.INFO, __file__, 1, "a line of a log", None, None)


def test_what_libraries_say_of_a_model_goes_to_the_log_and_not_to_the_terminal(tmp_path: Path) -> None:
    """This one's config makes them warn, each in a way of its own."""
    pack = shutil.copytree(Path(__file__).parents[1] / "data" / "zoo" / "mimo", tmp_path / "mimo")
    with short_folder() as folder, running_daemon(folder / "home") as process:
        with Client(socket=process.socket) as client:
            client.load(str(pack), force=True)
        assert process.stop() == (0, "", "")
