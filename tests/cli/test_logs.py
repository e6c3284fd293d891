"""The log: its end, what is added, rotation."""

from __future__ import annotations

from pathlib import Path

from mtplx_client.cli.tail import read_lines


def test_the_last_lines(mtplx, home: Path) -> None:
    (home / "logs").mkdir()
    (home / "logs" / "mtplxd.log").write_text("".join(f"line {at}\n" for at in range(300)))
    assert mtplx("logs", "-n", "2").out == "line 298\nline 299\n"
    assert mtplx("logs").out.count("\n") == 200
    assert mtplx("logs", "-n", "0").out == ""


def test_with_json_a_line_an_event(mtplx, home: Path) -> None:
    (home / "logs").mkdir()
    (home / "logs" / "mtplxd.log").write_text("one\n")
    first, last = mtplx("logs", "--json").events
    assert first == {"final": False, "line": "one"}
    assert last == {"path": str(home / "logs" / "mtplxd.log"), "final": True}


def test_before_the_first_start_there_is_no_log(mtplx, home: Path) -> None:
    result = mtplx("logs")
    assert result.code == 1
    assert result.err.startswith(f"error: no log yet ({home}/logs/mtplxd.log)")


def test_no_daemon_is_needed(mtplx, daemon, home: Path) -> None:
    daemon.stop()
    (home / "logs").mkdir()
    (home / "logs" / "mtplxd.log").write_text("one\n")
    assert mtplx("logs").code == 0


def test_added_lines_come_whole_and_across_rotation(tmp_path: Path) -> None:
    file = tmp_path / "d.log"
    file.write_text("old\nold too\nbeg")
    steps = iter(
        [
            lambda: _append(file, "un\nhalf"),
            lambda: _append(file, "way\n"),
            lambda: _append(file, "last words\n"),
            lambda: file.rename(tmp_path / "d.log.1"),
            lambda: file.write_text("after rotation\n"),
            lambda: file.write_text("cut\n"),
        ]
    )
    lines = read_lines(file, 1, follow=True, wait=lambda: next(steps)())
    seen = [next(lines) for _ in range(6)]
    assert seen == ["old too", "begun", "halfway", "last words", "after rotation", "cut"]


def test_a_last_line_without_its_end_is_shown_too(tmp_path: Path) -> None:
    file = tmp_path / "d.log"
    file.write_text("a\nb")
    assert list(read_lines(file, 5, follow=False)) == ["a", "b"]


def test_bytes_that_are_no_text_do_not_end_the_log(tmp_path: Path) -> None:
    file = tmp_path / "d.log"
    file.write_bytes(b"a\xff\nb\n")
    assert list(read_lines(file, 5, follow=False)) == ["a\ufffd", "b"]


def _append(file: Path, text: str) -> None:
    with file.open("a") as writer:
        writer.write(text)
