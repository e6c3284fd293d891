"""The one place that imports MLX, after the BLAS is loaded. Everything else takes `mx`, `nn` and `optim` from here."""

from __future__ import annotations

import time
from typing import Any

from mtplxd.platform.blas import load_blas
from mtplxd.platform.device import bound_cache
from mtplxd.platform.open_files import keep_open_files

blas = load_blas()
keep_open_files()

import mlx.core  # noqa: E402
import mlx.nn  # noqa: E402
import mlx.optimizers  # noqa: E402
import mlx.utils  # noqa: E402

mx: Any = mlx.core
nn: Any = mlx.nn
optim: Any = mlx.optimizers
tree: Any = mlx.utils
Array = mlx.core.array
"""The type of every tensor; `Any` to the type checker, which does not see MLX's compiled module."""


CACHE_MOST = 1 << 30
"""Bytes that the allocator may keep for the next arrays, whoever imports it: left alone it keeps most of a Mac."""
bound_cache(mx, CACHE_MOST)


def _on_cpu() -> bool:
    return bool(mx.default_device().type == mx.DeviceType.cpu)


if _on_cpu():
    # The CPU backend compiles by running g++ where there is one, and keeps the result in thread-local storage whose
    # destructor needs an interpreter that may already be gone. A comparison with mlx-lm must enable it for mlx-lm.
    mx.disable_compile()


def compute_dtype() -> Any:
    """The dtype weights compute in: None keeps the file's; the CPU backend casts to float32.

    MLX's CPU gathered product takes float32 only, and its half-precision products do not use the BLAS.
    """
    return mx.float32 if _on_cpu() else None


def launches_compute() -> bool:
    """Whether launching work does most of it: the CPU backend waits once a few operations are under way, so that what
    is launched early keeps the host from whatever else it has to do."""
    return _on_cpu()


def measure_gflops(size: int = 512, seconds: float = 0.02) -> float:
    """Speed of a [size, size] float32 product in GFLOP/s, best of as many runs as fit in `seconds`."""
    a, b = mx.random.normal((size, size)), mx.random.normal((size, size))
    mx.eval(a, b, a @ b)
    best, spent = float("inf"), 0.0
    while spent < seconds:
        begin = time.perf_counter()
        mx.eval(a @ b)
        took = time.perf_counter() - begin
        best, spent = min(best, took), spent + took
    return 2 * size**3 / best / 1e9
