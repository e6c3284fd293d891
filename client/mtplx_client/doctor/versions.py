"""Which versions are installed, and whether they are those that this mtplxd was made for."""

from __future__ import annotations

from collections.abc import Iterator
from importlib.metadata import PackageNotFoundError, version

from mtplxd import __version__

from mtplx_client.doctor.situation import Situation
from mtplx_client.doctor.verdicts import Check

NEEDED = ("mlx", "mlx-lm", "transformers", "tokenizers", "grpcio", "protobuf", "huggingface_hub", "numpy")
_FIX = "install mtplxd again: pip install --force-reinstall mtplxd"


def check_versions(situation: Situation) -> Iterator[Check]:
    """Nothing is imported: what is broken inside is another check's."""
    del situation
    yield judge_versions({name: _version(name) for name in NEEDED})


def judge_versions(found: dict[str, str | None]) -> Check:
    """All of them; one that is not there is wrong."""
    missing = [name for name, number in found.items() if number is None]
    if missing:
        return Check("versions", False, f"not installed: {', '.join(missing)}", _FIX)
    shown = ", ".join(f"{name} {number}" for name, number in found.items())
    return Check("versions", True, f"mtplxd {__version__}, {shown}")


def _version(name: str) -> str | None:
    try:
        return version(name)
    except PackageNotFoundError:
        return None
