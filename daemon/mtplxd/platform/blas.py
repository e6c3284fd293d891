"""Owns which BLAS MLX's CPU build computes with: finds it, loads it before MLX, says what it is. Not the import of MLX.

MLX's Linux wheel bundles the reference BLAS, some thirty times slower than OpenBLAS. Its symbols are looked up at
run time, so an OpenBLAS that is loaded globally before MLX takes their place. macOS has Accelerate: nothing to load.
One that does not know this processor is loaded a second time and told which kernels to use (`kernels`).
"""

from __future__ import annotations

import _ctypes
import ctypes
import importlib.util
import os
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from mtplxd.errors import InvalidArgument
from mtplxd.platform.kernels import VARIABLE, better_kernels, read_flags

AUTO = "auto"
NONE = "none"
_SYSTEM = ("libopenblas.so.0", "libopenblas.so")
_WHEEL = "cmeel.prefix/lib/libopenblas.so"
_WARNING = (
    "no OpenBLAS found (reference BLAS in use, about 30 times slower): "
    "install libopenblas0, or `pip install 'mtplxd[blas]'`, or set MTPLXD_BLAS to its path"
)


@dataclass(frozen=True, slots=True)
class Blas:
    """The library in force. `path` is empty where nothing was loaded; `threads` is 0 where unknown."""

    name: str
    path: str = ""
    threads: int = 0
    warning: str = ""


class _Choice:
    """What to load, and what was loaded. Set once, before MLX is imported."""

    requested: str = AUTO
    loaded: Blas | None = None


def request_blas(choice: str) -> None:
    """Asks for `auto`, `none` or the path of a library. Has no effect once MLX is imported."""
    _Choice.requested = choice or AUTO


def load_blas() -> Blas:
    """Loads the requested library once and tells which it is.

    Raises InvalidArgument when a path was asked for and cannot be loaded: a choice is never dropped silently.
    """
    if _Choice.loaded is None:
        _Choice.loaded = _load(_Choice.requested)
    return _Choice.loaded


def _load(choice: str) -> Blas:
    if choice == NONE:
        return Blas(name="reference")
    if choice != AUTO:
        return _load_named(choice)
    if sys.platform == "darwin":
        return Blas(name="accelerate")
    for candidate in _candidates():
        if (library := _open(candidate)) is not None:
            return _describe(library, candidate)
    return Blas(name="reference", warning=_WARNING)


def _load_named(path: str) -> Blas:
    library = _open(path)
    if library is None:
        raise InvalidArgument(
            "cannot load the BLAS", path, "set MTPLXD_BLAS to a shared library, or to `none`", field="blas"
        )
    return _describe(library, path)


def _candidates() -> Iterator[str]:
    yield from _SYSTEM
    spec = importlib.util.find_spec("cmeel")
    for place in spec.submodule_search_locations or [] if spec else []:
        yield str(Path(place).parent / _WHEEL)
    for place in sys.path:
        if (wheel := Path(place) / _WHEEL).is_file():
            yield str(wheel)


def _open(path: str) -> ctypes.CDLL | None:
    library = _link(path)
    if library is None or VARIABLE in os.environ:  # somebody has chosen
        return library
    wanted = better_kernels(_kernels_of(library), read_flags())
    return library if wanted is None else _open_anew(library, path, wanted)


def _link(path: str) -> ctypes.CDLL | None:
    try:
        return ctypes.CDLL(path, mode=ctypes.RTLD_GLOBAL)
    except OSError:
        return None


def _open_anew(library: ctypes.CDLL, path: str, kernels: str) -> ctypes.CDLL | None:
    """The library looks at its variable as it is loaded, and only then; what is started later chooses for itself."""
    _ctypes.dlclose(library._handle)
    os.environ[VARIABLE] = kernels
    try:
        return _link(path)
    finally:
        del os.environ[VARIABLE]


def _kernels_of(library: ctypes.CDLL) -> str:
    """The name of the kernels in use; empty where the library does not say."""
    try:
        library.openblas_get_corename.restype = ctypes.c_char_p
        return str(library.openblas_get_corename().decode("ascii", "replace"))
    except AttributeError:
        return ""


def _describe(library: ctypes.CDLL, path: str) -> Blas:
    try:
        library.openblas_get_config.restype = ctypes.c_char_p
        words = library.openblas_get_config().decode("ascii", "replace").split()
        threads = int(library.openblas_get_num_threads())
    except AttributeError:
        return Blas(name=Path(path).name, path=path)
    name = " ".join([*words[:2], _kernels_of(library)]).strip() or "openblas"
    return Blas(name=name, path=path, threads=threads)
