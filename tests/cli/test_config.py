"""Settings through the command line."""

from __future__ import annotations

from pathlib import Path


def test_set_then_get_tells_value_and_source(mtplx, home: Path) -> None:
    assert mtplx("config", "set", "keep_alive", "10m").code == 0
    assert mtplx("config", "get", "keep_alive").out == "10m\n"
    assert mtplx("config", "get", "--json").document["keep_alive"] == {"value": "10m", "source": "config"}
    assert 'keep_alive = "10m"' in (home / "config.toml").read_text()
    assert mtplx("config", "set", "keep_alive", "-1").code == 0
    assert mtplx("config", "get", "keep_alive").out == "-1\n"
    assert mtplx("config", "set", "keep_alive", "--default").code == 0
    assert mtplx("config", "get", "keep_alive", "--json").document == {
        "keep_alive": {"value": "-1", "source": "default"}
    }


def test_a_bad_value_changes_nothing_and_names_the_key(mtplx, home: Path) -> None:
    result = mtplx("config", "set", "keep_alive", "soon")
    assert result.code == 2
    assert "keep_alive" in result.err
    assert not (home / "config.toml").exists()


def test_an_unknown_key_lists_the_known(mtplx) -> None:
    for argv in (["config", "get", "keepalive"], ["config", "set", "keepalive", "1"]):
        result = mtplx(*argv)
        assert result.code == 2
        assert "keep_alive" in result.err


def test_set_needs_exactly_one_of_value_and_default(mtplx) -> None:
    assert mtplx("config", "set", "model").code == 2
    assert mtplx("config", "set", "model", "x", "--default").code == 2


def test_path(mtplx, home: Path) -> None:
    assert mtplx("config", "path").out == f"{home}/config.toml\n"
    assert mtplx("config", "path", "--json").document == {"path": f"{home}/config.toml"}


def test_a_flag_beats_the_environment(mtplx, daemon, home: Path) -> None:
    result = mtplx("config", "get", "--json", "--socket", "/elsewhere.sock")
    assert result.document["socket"] == {"value": "/elsewhere.sock", "source": "flag"}
    assert mtplx("config", "get", "socket").out == f"{daemon.socket}\n"
    assert mtplx("config", "path", "--home", f"{home}/other").out == f"{home}/other/config.toml\n"


def test_one_bad_value_hides_no_other(mtplx, home: Path) -> None:
    (home / "config.toml").write_text('keep_alive = "soon"\ndrain_s = 7\n')
    result = mtplx("config", "get")
    assert result.code == 2
    assert "drain_s             7  [config]" in result.out
    assert "keep_alive" not in result.out
    assert result.err.startswith("error: bad value for keep_alive in")
    document = mtplx("config", "get", "--json").document
    assert document["drain_s"] == {"value": "7", "source": "config"}
    assert "keep_alive" in document["error"]["message"]
    assert mtplx("config", "get", "drain_s").code == 0
    assert mtplx("config", "get", "keep_alive").code == 2
