"""The socket's path, folder and locks are checked before anything binds."""

from __future__ import annotations

import errno
import os
import socket as sockets
import stat
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from mtplxd.errors import FailedPrecondition, InvalidArgument
from mtplxd.rpc.sockets import PATH_LIMIT, SocketClaim, check_path, prepare_folder, remove_stale
from support.daemon_process import short_folder


@pytest.fixture
def folder() -> Iterator[Path]:
    with short_folder() as path:
        yield path


def test_a_path_of_the_limit_is_good_and_one_byte_more_names_both_lengths() -> None:
    check_path(Path("/" + "a" * (PATH_LIMIT - 1)))
    with pytest.raises(InvalidArgument, match=f"{PATH_LIMIT + 1} bytes, the limit is {PATH_LIMIT}"):
        check_path(Path("/" + "a" * PATH_LIMIT))


def test_bytes_count_not_characters() -> None:
    with pytest.raises(InvalidArgument):
        check_path(Path("/" + "ü" * 60))


def test_relative_paths_are_refused() -> None:
    with pytest.raises(InvalidArgument, match="not absolute"):
        check_path(Path("run/mtplxd.sock"))


@pytest.mark.parametrize("name", ["a,b", "a\nb"])
def test_paths_that_no_client_could_dial_are_refused(name: str) -> None:
    with pytest.raises(InvalidArgument, match="comma"):
        check_path(Path("/tmp") / name)


def test_a_missing_folder_is_made_for_the_owner_alone(folder: Path) -> None:
    prepare_folder(folder / "run")
    assert stat.S_IMODE((folder / "run").stat().st_mode) == 0o700


def test_a_folder_open_to_others_is_refused(folder: Path) -> None:
    (folder / "run").mkdir()
    (folder / "run").chmod(0o750)
    with pytest.raises(FailedPrecondition, match="chmod 700"):
        prepare_folder(folder / "run")


def test_nobody_is_told_to_close_a_folder_that_all_share(folder: Path) -> None:
    (folder / "run").mkdir()
    (folder / "run").chmod(0o1777)
    with pytest.raises(FailedPrecondition, match="choose another") as caught:
        prepare_folder(folder / "run")
    assert "chmod" not in str(caught.value)


def test_a_symlinked_folder_is_refused(folder: Path) -> None:
    (folder / "real").mkdir(mode=0o700)
    (folder / "run").symlink_to(folder / "real")
    with pytest.raises(FailedPrecondition, match="symlink"):
        prepare_folder(folder / "run")


def test_another_users_folder_is_refused(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: os.getuid() + 1)
    with pytest.raises(FailedPrecondition, match="another user"):
        prepare_folder(folder)


HOLDER = """
import sys
from pathlib import Path
from mtplxd.rpc.sockets import SocketClaim
claim = SocketClaim(Path(sys.argv[2]), Path(sys.argv[1]))
print("held", flush=True)
sys.stdin.read()
claim.release()
"""


@pytest.mark.parametrize("shared", ["home", "socket"])
def test_a_second_process_on_either_is_refused_with_pid_and_socket(folder: Path, shared: str) -> None:
    homes = [folder / "one", folder / "two"]
    for home in homes:
        home.mkdir(mode=0o700)
    mine = folder / "one" / "run" / "d.sock"
    command = [sys.executable, "-c", HOLDER, str(homes[0]), str(mine)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as other:
        assert other.stdout is not None
        assert other.stdout.readline() == b"held\n"
        home, socket = (homes[0], folder / "b" / "d.sock") if shared == "home" else (homes[1], mine)
        with pytest.raises(FailedPrecondition) as refused:
            SocketClaim(socket, home)
        assert f"pid {other.pid}" in str(refused.value)
        assert str(mine) in str(refused.value)
        other.communicate(timeout=60)
    SocketClaim(mine, homes[0]).release()


def test_a_refused_claim_leaves_the_other_lock_free(folder: Path) -> None:
    first = SocketClaim(folder / "a" / "d.sock", folder)
    other_home = folder / "other"
    other_home.mkdir(mode=0o700)
    with pytest.raises(FailedPrecondition):
        SocketClaim(folder / "a" / "d.sock", other_home)
    SocketClaim(folder / "b" / "d.sock", other_home).release()
    first.release()


def test_a_full_disk_is_told_and_frees_the_lock(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object) -> int:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with monkeypatch.context() as broken:
        broken.setattr(os, "pwrite", full)
        with pytest.raises(FailedPrecondition, match=r"cannot write a lock file.*No space left"):
            SocketClaim(folder / "a" / "d.sock", folder)
    SocketClaim(folder / "a" / "d.sock", folder).release()


def listen(path: Path) -> sockets.socket:
    server = sockets.socket(sockets.AF_UNIX)
    server.bind(str(path))
    server.listen()
    return server


def test_a_live_socket_without_our_lock_is_left_alone(folder: Path) -> None:
    path = folder / "d.sock"
    with listen(path):
        with pytest.raises(FailedPrecondition, match=f"pid {os.getpid()}"):
            remove_stale(path)
        assert path.exists()


def test_a_dead_socket_is_removed(folder: Path) -> None:
    path = folder / "d.sock"
    listen(path).close()
    assert path.exists()
    remove_stale(path)
    assert not path.exists()


def test_a_file_that_is_no_socket_is_left_alone(folder: Path) -> None:
    path = folder / "d.sock"
    path.write_text("precious")
    with pytest.raises(FailedPrecondition):
        remove_stale(path)
    assert path.read_text() == "precious"


def test_only_our_own_socket_is_removed_at_the_end(folder: Path) -> None:
    path = folder / "d.sock"
    claim = SocketClaim(path, folder)
    listen(path).close()
    claim.bound()
    path.rename(folder / "moved")
    with listen(path):
        claim.release()
        assert path.exists()
    claim = SocketClaim(path, folder)
    listen(path).close()
    claim.bound()
    claim.release()
    assert not path.exists()
