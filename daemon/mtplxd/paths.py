"""Where everything lives: the daemon's home and Hugging Face's cache, resolved once. It opens no file."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from mtplxd.errors import FailedPrecondition, InvalidArgument

DEFAULT_HOME = "~/.mtplxd"
HUB = "https://huggingface.co"
_FALSE = ("", "0", "false", "no", "off")


@dataclass(frozen=True)
class Home:
    """The folder of one daemon: settings, packs, store, records, logs and its socket."""

    root: Path

    @property
    def config_file(self) -> Path:
        return self.root / "config.toml"

    @property
    def packs(self) -> Path:
        return self.root / "packs"

    @property
    def store(self) -> Path:
        return self.root / "store"

    @property
    def sessions_file(self) -> Path:
        return self.store / "sessions.db"

    @property
    def tuning_file(self) -> Path:
        return self.root / "tuning.json"

    @property
    def runs(self) -> Path:
        return self.root / "runs"

    @property
    def logs(self) -> Path:
        return self.root / "logs"

    @property
    def run(self) -> Path:
        return self.root / "run"

    @property
    def socket(self) -> Path:
        return self.run / "mtplxd.sock"

    def create(self) -> None:
        """Makes the folders that are missing, for the owner alone. Raises FailedPrecondition."""
        for folder in (self.root, self.packs, self.store, self.runs, self.logs, self.run):
            make_private(folder)


@dataclass(frozen=True)
class HuggingFace:
    """What the usual HF_* variables say. `token` is for the default endpoint alone, no mirror gets it."""

    cache: Path
    token: str | None
    endpoint: str | None
    offline: bool

    def environment(self, **changes: str) -> dict[str, str]:
        """This process' environment with some variables changed, for a child process that is to see the same of them
        as this says. The token goes that way and no other; before a mirror the library may not send it by itself.
        """
        mirror = (self.endpoint or HUB).rstrip("/") != HUB
        said = {
            "HF_HUB_CACHE": str(self.cache),
            "HF_TOKEN": None if mirror else self.token,
            "HF_ENDPOINT": self.endpoint,
            "HF_HUB_OFFLINE": "1" if self.offline else None,
        }
        if mirror:
            said["HF_HUB_DISABLE_IMPLICIT_TOKEN"] = "1"
        others = {name: value for name, value in os.environ.items() if name not in said}
        return others | {name: value for name, value in said.items() if value} | changes


def resolve_home(flag: str | Path | None = None, env: Mapping[str, str] | None = None) -> Home:
    """The home folder: flag, else MTPLXD_HOME, else ~/.mtplxd; always absolute, not made yet.

    Raises InvalidArgument when something that is not a folder is there.
    """
    env = os.environ if env is None else env
    chosen = flag or env.get("MTPLXD_HOME") or DEFAULT_HOME
    root = absolute(chosen)
    if root.exists() and not root.is_dir():
        raise InvalidArgument(
            "home is not a folder", root, "give a folder to --home or MTPLXD_HOME", field="home"
        )
    return Home(root)


def resolve_hugging_face(env: Mapping[str, str] | None = None) -> HuggingFace:
    """Cache folder, token, mirror and offline mode as the `huggingface_hub` library would see them."""
    env = os.environ if env is None else env
    base = env.get("HF_HOME") or str(Path(env.get("XDG_CACHE_HOME") or "~/.cache", "huggingface"))
    cache = env.get("HF_HUB_CACHE") or str(Path(base, "hub"))
    return HuggingFace(
        cache=absolute(cache),
        token=env.get("HF_TOKEN") or None,
        endpoint=env.get("HF_ENDPOINT") or None,
        offline=env.get("HF_HUB_OFFLINE", "").lower() not in _FALSE,
    )


def absolute(path: str | Path) -> Path:
    """A path as the user wrote it, with ~ expanded, made absolute; links are left as they are."""
    return Path(os.path.abspath(os.path.expanduser(path)))


def make_private(folder: Path) -> None:
    """Makes a folder with mode 0700 if it is missing. Raises FailedPrecondition naming the folder."""
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    except FileExistsError:
        raise FailedPrecondition("not a folder", folder, "move that file away") from None
    except OSError as error:
        raise FailedPrecondition(
            "cannot make a folder", folder, error.strerror or "check the disk"
        ) from error


def child_environment(**changes: str) -> dict[str, str]:
    """This process' environment with some variables changed, for a child process."""
    return {**os.environ, **changes}
