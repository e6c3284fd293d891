"""A home as a released version left it: sessions, blocks and their index, tuning records, settings.

`python tests/support/old_home.py` makes tests/data/homes/VERSION.zip with the version at hand, on Linux. It is run once
a release, before the next one changes anything; what is there is never made anew.
"""

from __future__ import annotations

import json
import shutil
import sys
import zipfile
from pathlib import Path

HOMES = Path(__file__).parents[1] / "data" / "homes"
PROMPT = "The lighthouse keeper counts the ships. " * 5
SESSION, SAID = "rivers", "Name three rivers."
RECORD = {"depth": 2, "ratio": 1.5}
_KEPT = ("config.toml", "tuning.json", "store")


def unpack(version: str, home: Path) -> dict[str, object]:
    """Lays the home of a version down; what its daemon had answered."""
    with zipfile.ZipFile(HOMES / f"{version}.zip") as archive:
        archive.extractall(home)
    home.chmod(0o700)
    for path in home.rglob("*"):
        path.chmod(0o700 if path.is_dir() else 0o600)
    answered: dict[str, object] = json.loads((home / "answered.json").read_text())
    (home / "answered.json").unlink()
    return answered


def ask(client, model: Path, **options):
    """The request that was made of the old version and is made of this one."""
    return client.complete(
        PROMPT,
        model=str(model),
        force=True,
        raw=True,
        temperature=0,
        max_tokens=8,
        ignore_eos=True,
        depth=1,
        **options,
    )


def make(home: Path, model: Path) -> Path:
    """Lives a little in a home and packs it."""
    from mtplx_client import Client
    from mtplxd import __version__
    from mtplxd.tune.records import TuningFile
    from support.daemon_process import running_daemon

    home.mkdir(mode=0o700)
    (home / "config.toml").write_text('store_free_floor = "0"\nstore_block = 16\nkeep_alive = "10m"\n')
    TuningFile(home / "tuning.json").write("tuned", "a-key", RECORD)
    with running_daemon(home) as daemon:
        with Client(daemon.socket) as client:
            reply = ask(client, model)
            said = client.complete(
                SAID, model=str(model), force=True, session=SESSION, max_tokens=8, ignore_eos=True
            )
        daemon.stop()
    answered = {"tokens": list(reply.tokens), "prompt_tokens": reply.usage.prompt_tokens, "said": said.text}
    target = HOMES / f"{__version__}.zip"
    HOMES.mkdir(exist_ok=True)
    with zipfile.ZipFile(target, "x", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("answered.json", json.dumps(answered))
        for path in sorted(home.rglob("*")):
            if path.is_file() and path.relative_to(home).parts[0] in _KEPT:
                archive.write(path, path.relative_to(home))
    return target


if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).parents[1]))
    from support.daemon_process import short_folder
    from support.tiny_pack import make_tiny_pack

    with short_folder() as folder:
        print(make(folder / "home", make_tiny_pack(folder / "tiny")))
        shutil.rmtree(folder / "tiny")
