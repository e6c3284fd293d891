"""One settings path: flag, environment, config file, default; each value knows its source, each fault its key."""

from __future__ import annotations

import os
import threading
from pathlib import Path

import pytest
from mtplxd.config import (
    FOREVER,
    KEYS,
    parse_bytes,
    parse_duration,
    parse_keep_alive,
    read_config,
    resolve_settings,
    set_value,
)
from mtplxd.errors import FailedPrecondition, InvalidArgument
from mtplxd.paths import Home


@pytest.fixture
def home(tmp_path: Path) -> Home:
    return Home(tmp_path)


def write(home: Home, text: str) -> None:
    home.config_file.write_text(text, encoding="utf-8")


def test_defaults(home: Home) -> None:
    settings = resolve_settings(home, env={})
    assert (settings.socket, settings.model, settings.keep_alive) == (home.socket, None, FOREVER)
    assert (settings.memory_budget, settings.drain_s, settings.log_level) == (None, 30.0, "info")
    assert (settings.queue_limit, settings.prefill_chunk, settings.blas) == (64, 512, "auto")
    assert settings.warnings == ()
    assert {setting.source for setting in settings.shown} == {"default"}
    assert [setting.key for setting in settings.shown] == [key.name for key in KEYS]


def test_each_layer_beats_the_next(home: Home) -> None:
    write(home, 'drain_s = 1\nmodel = "from-config"\nlog_level = "debug"\n')
    env = {"MTPLXD_DRAIN_S": "2", "MTPLXD_MODEL": "from-env", "MTPLXD_LOG_LEVEL": ""}
    settings = resolve_settings(home, {"drain_s": 3, "model": None}, env)
    assert (settings.drain_s, settings.source("drain_s")) == (3.0, "flag")
    assert (settings.model, settings.source("model")) == ("from-env", "env")
    assert (settings.log_level, settings.source("log_level")) == ("debug", "config")
    assert settings.source("queue_limit") == "default"


@pytest.mark.parametrize("key", [key.name for key in KEYS])
def test_every_key_has_its_variable(home: Home, key: str) -> None:
    good = {"socket": "/tmp/s", "keep_alive": "10m", "memory_budget": "16G", "log_level": "error"}
    good |= {"store": "off", "store_block": "16", "store_size": "8M", "fans": "smart"}
    settings = resolve_settings(home, env={f"MTPLXD_{key.upper()}": good.get(key, "7")})
    assert settings.source(key) == "env"
    assert settings.warnings == ()


@pytest.mark.parametrize(
    ("text", "nbytes"), [("0", 0), (" 0 ", 0), ("1", 1), ("64M", 1 << 26), ("2G", 1 << 31), ("", 1 << 29)]
)
def test_what_is_kept_of_prompts_has_a_size_which_may_be_none(home: Home, text: str, nbytes: int) -> None:
    assert resolve_settings(home, env={"MTPLXD_PREFIX_CACHE": text}).prefix_cache == nbytes


def test_unknown_keys_are_one_warning_each(home: Home) -> None:
    write(home, 'modle = "x"\n[table]\ndrain_s = 1\n')
    settings = resolve_settings(home, env={"MTPLXD_DRIAN_S": "1", "MTPLXD_HOME": "/x", "OTHER": "1"})
    assert len(settings.warnings) == 3
    for name, warning in zip(("modle", "table", "MTPLXD_DRIAN_S"), settings.warnings, strict=True):
        assert f"({name})" in warning
    assert settings.drain_s == 30.0


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("keep_alive", "soon"), ("keep_alive", "-2"), ("keep_alive", "10 m"), ("memory_budget", "lots"),
        ("memory_budget", "0"), ("memory_budget", "-1G"), ("drain_s", "-1"), ("drain_s", "nan"), ("drain_s", "1e999"),
        ("log_level", "loud"), ("queue_limit", "0"), ("queue_limit", "2.5"), ("prefill_chunk", "x"), ("stall_s", "4.9"),
        ("prefix_cache", "some"), ("prefix_cache", "-1"),
        ("store", "yes"), ("store", "writeonly"), ("store_size", "0"), ("store_size", "-1"), ("store_size", "3.9M"),
        ("store_free_floor", "-1"),
        ("store_write_budget", "0"), ("store_queue", "none"), ("store_block", "7"), ("store_block", "4097"),
        ("model", " "), ("drain_s", "9" * 400),
    ],
)  # fmt: skip
def test_bad_value_names_key_source_and_what_is_accepted(home: Home, key: str, value: str) -> None:
    accepts = next(known.accepts for known in KEYS if known.name == key)
    with pytest.raises(InvalidArgument) as raised:
        resolve_settings(home, env={f"MTPLXD_{key.upper()}": value})
    assert raised.value.field == key
    assert f"MTPLXD_{key.upper()} ({value})" in str(raised.value)
    assert accepts in str(raised.value)
    with pytest.raises(InvalidArgument, match=f"--{key.replace('_', '-')}"):
        resolve_settings(home, {key: value}, {})


@pytest.mark.parametrize("value", ["true", "[1]", "{a = 1}", "1979-05-27"])
def test_value_of_a_wrong_kind_in_the_file_is_refused(home: Home, value: str) -> None:
    write(home, f"drain_s = {value}\n")
    with pytest.raises(InvalidArgument, match="drain_s in"):
        resolve_settings(home, env={})


def test_file_that_is_not_toml_is_named_with_the_line(home: Home) -> None:
    write(home, "drain_s = \n")
    with pytest.raises(InvalidArgument, match=r"line 1.*config\.toml"):
        resolve_settings(home, env={})


def test_file_in_another_encoding_is_refused(home: Home) -> None:
    home.config_file.write_bytes(b'model = "\xff\xfe"\n')
    with pytest.raises(InvalidArgument, match=r"config\.toml"):
        resolve_settings(home, env={})


def test_flag_nobody_knows_is_a_fault(home: Home) -> None:
    with pytest.raises(InvalidArgument, match="unknown setting"):
        resolve_settings(home, {"colour": "red"}, {})


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("10m", 600.0),
        ("0", 0.0),
        ("-1", FOREVER),
        ("90", 90.0),
        ("1.5s", 1.5),
        ("2h", 7200.0),
        ("250ms", 0.25),
        ("1d", 86400.0),
    ],
)
def test_keep_alive_grammar(text: str, seconds: float) -> None:
    assert parse_keep_alive(text) == seconds


@pytest.mark.parametrize("text", ["", "m", "-5", "1y", "10 m", "1h30m", "inf"])
def test_durations_that_are_none(text: str) -> None:
    with pytest.raises(ValueError, match=r"^"):
        parse_duration(text)


@pytest.mark.parametrize(
    ("text", "size"),
    [
        ("16G", 16 << 30),
        ("512m", 512 << 20),
        ("1.5GiB", 3 << 29),
        ("2 TB", 2 << 40),
        ("4096", 4096),
        ("1kb", 1024),
        ("7B", 7),
    ],
)
def test_sizes(text: str, size: int) -> None:
    assert parse_bytes(text) == size


def test_set_value_changes_one_line_and_keeps_the_rest(home: Home) -> None:
    write(home, "# my settings\ndrain_s = 5  # short\n\n[other]\ndrain_s = 7\n")
    set_value(home, "drain_s", "12")
    set_value(home, "model", 'a "quoted" näme')
    assert home.config_file.read_text(encoding="utf-8") == (
        '# my settings\ndrain_s = "12"\n\nmodel = "a \\"quoted\\" näme"\n[other]\ndrain_s = 7\n'
    )
    settings = resolve_settings(home, env={})
    assert (settings.drain_s, settings.model) == (12.0, 'a "quoted" näme')


def test_unset_removes_the_line(home: Home) -> None:
    set_value(home, "drain_s", "12")
    set_value(home, "drain_s", None)
    set_value(home, "model", None)
    assert read_config(home) == {}


def test_set_value_makes_a_private_file_in_a_new_home(tmp_path: Path) -> None:
    home = Home(tmp_path / "new")
    set_value(home, "model", "x")
    assert home.config_file.stat().st_mode & 0o777 == 0o600
    assert resolve_settings(home, env={}).source("model") == "config"


@pytest.mark.parametrize(("key", "value"), [("drain_s", "soon"), ("nonsense", "1")])
def test_what_would_not_be_accepted_is_not_written(home: Home, key: str, value: str) -> None:
    write(home, "drain_s = 5\n")
    with pytest.raises(InvalidArgument, match=key):
        set_value(home, key, value)
    assert home.config_file.read_text() == "drain_s = 5\n"


def test_file_whose_layout_hides_the_key_is_left_alone(home: Home) -> None:
    text = 'model = """\ndrain_s = 5\n"""\n'
    write(home, text)
    with pytest.raises(FailedPrecondition, match="by hand"):
        set_value(home, "drain_s", "6")
    assert home.config_file.read_text() == text


def test_link_to_the_file_is_written_through(home: Home, tmp_path: Path) -> None:
    real = tmp_path / "dotfiles.toml"
    real.write_text("drain_s = 1\n")
    home.config_file.symlink_to(real)
    set_value(home, "drain_s", "2")
    assert home.config_file.is_symlink()
    assert real.read_text() == 'drain_s = "2"\n'


def test_failed_write_leaves_the_old_file(home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    write(home, "drain_s = 1\n")

    def fail(_descriptor: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", fail)
    with pytest.raises(FailedPrecondition, match="No space left"):
        set_value(home, "drain_s", "2")
    assert home.config_file.read_text() == "drain_s = 1\n"
    assert not list(home.root.glob(".config.toml.*"))


def test_concurrent_changes_are_all_kept(home: Home) -> None:
    changes = {"drain_s": "1", "model": "m", "queue_limit": "2", "prefill_chunk": "3", "log_level": "error"}
    threads = [threading.Thread(target=set_value, args=(home, *change)) for change in changes.items()]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert read_config(home) == changes


def test_the_store_is_on_with_room_for_16_gib_unless_told(home: Home) -> None:
    settings = resolve_settings(home, env={})
    assert (settings.store, settings.store_size, settings.store_block) == ("on", 16 << 30, 64)
    assert (settings.store_free_floor, settings.store_write_budget) == (10 << 30, 128 << 30)
    told = {"store": "write-only", "store_free_floor": "0", "store_size": "4M", "store_block": "16"}
    settings = resolve_settings(home, told, {})
    assert (settings.store, settings.store_size, settings.store_block) == ("write-only", 4 << 20, 16)
    assert settings.store_free_floor == 0
