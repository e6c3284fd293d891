"""Every setting of the daemon and its clients, resolved once: flag > environment > config.toml > default.

Each value keeps its source. Nobody else reads MTPLXD_* variables or config.toml. What a setting does is not
known here.
"""

from __future__ import annotations

import math
import os
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal

from mtplxd.errors import FailedPrecondition, InvalidArgument, MtplxError
from mtplxd.files import locked, write_atomically
from mtplxd.paths import Home, absolute, make_private

Source = Literal["flag", "env", "config", "default"]

FOREVER = -1.0
"""Keep-alive of a model that stays until its memory is needed."""

NOTHING = "none"
"""The text of an empty list."""

_DURATION = re.compile(r"(\d+(?:\.\d+)?)(ms|s|m|h|d)?")
_SECONDS = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0, None: 1.0}
_BYTES = re.compile(r"(\d+(?:\.\d+)?)\s*([kmgt]?)(i?b)?", re.IGNORECASE)
_ENV_PREFIX = "MTPLXD_"
_NO_DEFAULT = ("socket", "store")
_ENV_ELSEWHERE = {"MTPLXD_HOME"}


@dataclass(frozen=True)
class Key:
    """One setting: how its text is read, what is accepted (in words) and its default as text ('' = none)."""

    name: str
    read: Callable[[str], Any]
    accepts: str
    default: str = ""

    @property
    def env(self) -> str:
        return _ENV_PREFIX + self.name.upper()


@dataclass(frozen=True)
class Setting:
    """An effective value as text, and where it came from."""

    key: str
    value: str
    source: Source


@dataclass(frozen=True)
class Settings:
    """All effective values; units: seconds, bytes, tokens, places. `shown` keeps text and source of each."""

    socket: Path
    model: str | None
    keep_alive: float
    memory_budget: int | None
    drain_s: float
    log_level: str
    max_rows: int
    queue_limit: int
    client_limit: int
    prefill_chunk: int
    prefix_cache: int
    store: str
    store_size: int
    store_free_floor: int
    store_write_budget: int
    store_queue: int
    store_block: int
    stall_s: float
    blas: str
    preload: tuple[str, ...]
    fans: str
    fan_lease: float
    fan_socket: Path
    shown: tuple[Setting, ...] = ()
    warnings: tuple[str, ...] = field(default=(), compare=False)

    def source(self, key: str) -> Source:
        """Where the value of a key came from."""
        return next(setting.source for setting in self.shown if setting.key == key)


def parse_keep_alive(text: str) -> float:
    """Seconds of `10m`, `90`, `0` or `-1` (for ever). Raises ValueError for anything else."""
    return FOREVER if text.strip() in ("-1", "-1s", "-1m") else parse_duration(text)


def parse_duration(text: str) -> float:
    """Seconds of `90`, `1.5s`, `10m`, `2h`. Raises ValueError for anything else."""
    match = _DURATION.fullmatch(text.strip())
    if match is None:
        raise ValueError(text)
    return _finite(float(match[1]) * _SECONDS[match[2]])


def parse_bytes(text: str) -> int:
    """Bytes of `16G`, `512M`, `1.5GiB` or a plain number; units are powers of 1024. Raises ValueError."""
    match = _BYTES.fullmatch(text.strip())
    if match is None:
        raise ValueError(text)
    size = int(_finite(float(match[1])) * 1024 ** " kmgt".index(match[2].lower() or " "))
    if size <= 0:
        raise ValueError(text)
    return size


def _bytes_or_none(text: str) -> int:
    return 0 if text.strip() == "0" else parse_bytes(text)


def _store_size(text: str) -> int:
    """In less than the index and some blocks take nothing would stay, though the store is on."""
    size = parse_bytes(text)
    if size < 4 << 20:
        raise ValueError(text)
    return size


def _finite(number: float) -> float:
    if not math.isfinite(number):
        raise ValueError(number)
    return number


def _whole(low: int, high: int) -> Callable[[str], int]:
    def read(text: str) -> int:
        number = int(text)
        if not low <= number <= high:
            raise ValueError(text)
        return number

    return read


def _one_of(*choices: str) -> Callable[[str], str]:
    def read(text: str) -> str:
        if text not in choices:
            raise ValueError(text)
        return text

    return read


def _name(text: str) -> str:
    if not text.strip():
        raise ValueError(text)
    return text


def _names(text: str) -> tuple[str, ...]:
    names = tuple(name.strip() for name in text.split(",")) if text != NOTHING else ()
    if "" in names:
        raise ValueError(text)
    return names


def _socket(text: str) -> Path:
    """A path of this machine; a client reaches another one's by its own option."""
    if "://" in text:
        raise ValueError(text)
    return absolute(_name(text))


def _stall(text: str) -> float:
    """A forward of a large model takes seconds; less would call health a stall."""
    seconds = parse_duration(text)
    if seconds < 5:
        raise ValueError(text)
    return seconds


def _lease(text: str) -> float:
    seconds = parse_duration(text)
    if not 0.5 <= seconds <= 30:
        raise ValueError(text)
    return seconds


KEYS: tuple[Key, ...] = (
    Key("socket", _socket, "a path"),
    Key("model", _name, "a pack's name, a folder's path or org/name"),
    Key("keep_alive", parse_keep_alive, "a time such as 10m, 0 (unload at once) or -1 (for ever)", "-1"),
    Key("memory_budget", parse_bytes, "a size such as 16G"),
    Key("drain_s", parse_duration, "seconds, such as 30", "30"),
    Key("log_level", _one_of("debug", "info", "warning", "error"), "debug, info, warning or error", "info"),
    Key("max_rows", _whole(1, 256), "a whole number from 1 to 256", "16"),
    Key("queue_limit", _whole(1, 100_000), "a whole number from 1 to 100000", "64"),
    Key("client_limit", _whole(1, 100_000), "a whole number from 1 to 100000", "32"),
    Key("prefill_chunk", _whole(1, 65_536), "a whole number of tokens from 1 to 65536", "512"),
    Key("prefix_cache", _bytes_or_none, "a size such as 512M, or 0 to keep nothing of prompts", "512M"),
    Key("store", _one_of("on", "write-only", "off"), "on, write-only or off", "on"),
    Key("store_size", _store_size, "a size from 4M, such as 16G", "16G"),
    Key("store_free_floor", _bytes_or_none, "a size such as 10G, or 0 to fill the disk", "10G"),
    Key("store_write_budget", parse_bytes, "a size an hour such as 128G", "128G"),
    Key("store_queue", parse_bytes, "a size such as 512M", "512M"),
    Key("store_block", _whole(8, 4096), "a whole number of tokens from 8 to 4096", "64"),
    Key("stall_s", _stall, "seconds from 5, such as 120", "120"),
    Key("blas", _name, "the path of a BLAS library, auto or none", "auto"),
    Key("preload", _names, "names with commas between, such as smollm2-135m", NOTHING),
    Key("fans", _one_of("auto", "smart", "max"), "auto, smart or max", "auto"),
    Key("fan_lease", _lease, "seconds from 0.5 to 30, such as 10", "10"),
    Key("fan_socket", lambda text: absolute(_name(text)), "a path", "/var/run/mtplxd-fand/fand.sock"),
)


def resolve_settings(
    home: Home, flags: Mapping[str, object] | None = None, env: Mapping[str, str] | None = None
) -> Settings:
    """The one settings path. A flag that is None was not given; an empty variable is not set.

    Unknown keys become one warning each. Raises InvalidArgument naming key, source and what is accepted.
    """
    settings, bad = survey_settings(home, flags, env)
    if bad:
        raise bad[0]
    return settings


def settle_settings(
    home: Home, flags: Mapping[str, object] | None = None, env: Mapping[str, str] | None = None
) -> Settings:
    """`resolve_settings` for a daemon that must come up: a bad value is one warning, its default is in force.

    Raises for a flag, for a file that cannot be read at all, and for what decides where it serves and what it keeps.
    """
    settings, bad = survey_settings(home, flags, env)
    given = {name for name, value in (flags or {}).items() if value is not None}
    for error in bad:
        if (name := getattr(error, "field", "")) in ("", *_NO_DEFAULT) or name in given:
            raise error
    warnings = tuple(f"{error}; the default is in force" for error in bad)
    return replace(settings, warnings=settings.warnings + warnings)


def survey_settings(
    home: Home, flags: Mapping[str, object] | None = None, env: Mapping[str, str] | None = None
) -> tuple[Settings, list[MtplxError]]:
    """`resolve_settings` for whoever goes on without bad values: defaults in their place, an error for each.

    An InvalidArgument among them names its key as `field`; no field means that all of config.toml is unread.
    """
    env = os.environ if env is None else env
    given = {name: value for name, value in (flags or {}).items() if value is not None}
    for name in given:
        find_key(name)
    bad: list[MtplxError] = []
    try:
        written = read_config(home)
    except MtplxError as error:
        written = {}
        bad.append(error)
    values: dict[str, Any] = {}
    shown: list[Setting] = []
    for key in KEYS:
        try:
            text, source, where = _choose(key, given, env, written, home)
            values[key.name] = _read(key, text, where) if text else None
        except InvalidArgument as error:
            bad.append(error)
            text, source, where = _choose(key, {}, {}, {}, home)
            values[key.name] = _read(key, text, where) if text else None
        shown.append(Setting(key.name, text, source))
    settings = Settings(**values, shown=tuple(shown), warnings=tuple(_unknown(written, env, home)))
    return settings, bad


def read_config(home: Home) -> dict[str, Any]:
    """The content of config.toml, {} without one. Raises InvalidArgument when it is not TOML."""
    import tomllib  # kept out of the start of commands that only print help

    try:
        return tomllib.loads(home.config_file.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return {}
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise InvalidArgument(f"config file is not TOML, {error}", home.config_file, "correct it") from None
    except OSError as error:
        raise FailedPrecondition("cannot read config file", home.config_file, error.strerror or "") from error


def set_value(home: Home, key: str, value: str | None) -> None:
    """Writes one checked value to config.toml, or removes it (None); other lines stay as they are."""
    known = find_key(key)
    if value is not None:
        _read(known, value, key)
    make_private(home.root)
    try:
        with locked(home.root / ".config.lock"):
            _rewrite(home, key, value)
    except OSError as error:
        raise FailedPrecondition(
            "cannot write config file", home.config_file, error.strerror or ""
        ) from error


def _rewrite(home: Home, key: str, value: str | None) -> None:
    before = read_config(home)
    text = home.config_file.read_text(encoding="utf-8") if home.config_file.exists() else ""
    changed = _with_line(text, key, None if value is None else f"{key} = {_quoted(value)}")
    _check_edit(changed, before, key, value, home)
    write_atomically(home.config_file, changed.encode())


def find_key(name: str) -> Key:
    """The key of that name. Raises InvalidArgument with the known ones."""
    for key in KEYS:
        if key.name == name:
            return key
    raise InvalidArgument(
        "unknown setting", name, f"known: {', '.join(key.name for key in KEYS)}", field=name
    )


def _choose(
    key: Key, flags: Mapping[str, object], env: Mapping[str, str], written: Mapping[str, Any], home: Home
) -> tuple[str, Source, str]:
    if key.name in flags:
        return str(flags[key.name]), "flag", f"--{key.name.replace('_', '-')}"
    if env.get(key.env):
        return env[key.env], "env", key.env
    if key.name in written:
        value = written[key.name]
        if key.read is _names and isinstance(value, list) and all(isinstance(name, str) for name in value):
            value = ",".join(value) or NOTHING
        if isinstance(value, bool) or not isinstance(value, str | int | float):
            raise _bad(key, value, f"{key.name} in {home.config_file}")
        return str(value), "config", f"{key.name} in {home.config_file}"
    default = str(home.socket) if key.name == "socket" else key.default
    return default, "default", key.name


def _read(key: Key, text: str, where: str) -> Any:
    try:
        return key.read(text)
    except (ValueError, OverflowError):
        raise _bad(key, text, where) from None


def _bad(key: Key, value: object, where: str) -> InvalidArgument:
    return InvalidArgument(f"bad value for {where}", value, f"give {key.accepts}", field=key.name)


def _unknown(written: Mapping[str, Any], env: Mapping[str, str], home: Home) -> list[str]:
    known = {key.name for key in KEYS}
    in_env = {key.env for key in KEYS} | _ENV_ELSEWHERE
    return [
        f"unknown setting ({name}) in {home.config_file}: remove it, or see `mtplx config get`"
        for name in written
        if name not in known
    ] + [
        f"unknown variable ({name}): remove it, or see `mtplx config get`"
        for name in sorted(env)
        if name.startswith(_ENV_PREFIX) and name not in in_env
    ]


def _quoted(value: str) -> str:
    import json  # a JSON string of printable text is a TOML basic string

    return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")


def _with_line(text: str, key: str, line: str | None) -> str:
    lines = text.splitlines()
    end = next((at for at, old in enumerate(lines) if old.lstrip().startswith("[")), len(lines))
    assigns = re.compile(rf"\s*[\"']?{re.escape(key)}[\"']?\s*=")
    at = next((at for at in range(end) if assigns.match(lines[at])), None)
    if at is not None:
        lines[at : at + 1] = [] if line is None else [line]
    elif line is not None:
        lines.insert(end, line)
    return "".join(f"{line}\n" for line in lines)


def _check_edit(text: str, before: dict[str, Any], key: str, value: str | None, home: Home) -> None:
    import tomllib

    wanted = {name: old for name, old in before.items() if name != key}
    if value is not None:
        wanted[key] = value
    try:
        if tomllib.loads(text) == wanted:
            return
    except tomllib.TOMLDecodeError:
        pass
    raise FailedPrecondition("cannot change this config file safely", home.config_file, f"edit {key} by hand")
