"""A child process never outlives its purpose, and a lock it inherited holds until it is gone."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest
from mtplxd.errors import Cancelled
from mtplxd.files import locked
from mtplxd.packs.children import run_child

WAIT_FOR_EVER = "import sys, threading; print('up', flush=True); threading.Event().wait()"


@pytest.fixture
def lock(tmp_path: Path) -> Path:
    return tmp_path / "lock"


def python(code: str, *arguments: str) -> list[str]:
    return [sys.executable, "-c", code, *arguments]


def is_free(lock: Path, within_s: float = 0.0) -> bool:
    end = time.monotonic() + within_s
    try:
        with locked(lock, lambda: time.monotonic() >= end):
            return True
    except Cancelled:
        return False


def test_lines_and_status_come_back(lock: Path) -> None:
    code = "import sys; print('a'); print('b', end=''); print('oops', file=sys.stderr); sys.exit(3)"
    lines: list[str] = []
    with locked(lock) as descriptor:
        ended = run_child(python(code), lock=descriptor, cancelled=lambda: False, on_line=lines.append)
    assert (lines, ended.status, ended.complaints) == (["a", "b"], 3, ("oops",))


def test_output_of_any_size_and_encoding_does_not_block(lock: Path) -> None:
    code = "import sys; sys.stderr.buffer.write(b'\\xff' * 300000); [print('x' * 1000) for _ in range(500)]"
    lines: list[str] = []
    with locked(lock) as descriptor:
        ended = run_child(python(code), lock=descriptor, cancelled=lambda: False, on_line=lines.append)
    assert ended.status == 0
    assert [len(line) for line in lines] == [1000] * 500


def test_cancel_kills_the_child_and_its_own_children(lock: Path) -> None:
    nested = (
        f"import subprocess, sys; subprocess.run([sys.executable, '-c', {WAIT_FOR_EVER!r}], close_fds=False)"
    )
    seen: list[str] = []
    with locked(lock) as descriptor, pytest.raises(Cancelled):
        run_child(python(nested), lock=descriptor, cancelled=lambda: bool(seen), on_line=seen.append)
    assert is_free(lock, within_s=20)  # the grandchild had the lock too, and would hold it for ever


def test_error_in_the_reader_kills_the_child(lock: Path) -> None:
    def fail(_line: str) -> None:
        raise ZeroDivisionError

    with locked(lock) as descriptor, pytest.raises(ZeroDivisionError):
        run_child(python(WAIT_FOR_EVER), lock=descriptor, cancelled=lambda: False, on_line=fail)
    assert is_free(lock)


def test_status_of_a_killed_child_is_its_signal(lock: Path) -> None:
    with locked(lock) as descriptor:
        ended = run_child(
            python("import os; os.kill(os.getpid(), 9)"), lock=descriptor, cancelled=lambda: False
        )
    assert ended.status == -9


def test_orphan_of_a_killed_process_keeps_the_lock_until_it_ends(lock: Path, tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    child = f"print('up', flush=True); open({str(pipe)!r}).read()"
    parent = (
        "import sys; from pathlib import Path\n"
        "from mtplxd.files import locked; from mtplxd.packs.children import run_child\n"
        f"with locked(Path({str(lock)!r})) as d:\n"
        f"    run_child([sys.executable, '-c', {child!r}], lock=d, cancelled=lambda: False,"
        " on_line=lambda line: print(line, flush=True))"
    )
    process = subprocess.Popen(python(parent), stdout=subprocess.PIPE)
    assert process.stdout is not None
    assert process.stdout.readline() == b"up\n"
    process.kill()
    process.wait()
    assert not is_free(lock)
    pipe.open("w").close()  # lets the orphan end
    with locked(lock):
        pass
    process.stdout.close()
