"""Which of OpenBLAS's kernels fit this processor, where the library itself does not know the processor. Loads nothing.

An OpenBLAS that is older than the processor falls back to kernels of 2004 (SSE3): five times slower where Debian 12's
0.3.21 runs on an Emerald Rapids. The processor's own flags say what it can run.
"""

from __future__ import annotations

from collections.abc import Set
from pathlib import Path

VARIABLE = "OPENBLAS_CORETYPE"
"""Read by OpenBLAS once, as it is loaded; https://github.com/OpenMathLib/OpenBLAS, "DYNAMIC_ARCH"."""

_BEFORE_AVX = {
    *("katmai", "coppermine", "northwood", "prescott", "banias", "atom", "core2", "penryn", "dunnington"),
    *("nehalem", "athlon", "opteron", "opteron_sse3", "barcelona", "nano", "bobcat", "generic", "unknown"),
}
_NEEDS = {
    "SkylakeX": {"avx512f", "avx512cd", "avx512bw", "avx512dq", "avx512vl"},
    "Haswell": {"avx2", "fma"},
}


def better_kernels(chosen: str, flags: Set[str]) -> str | None:
    """The name of the kernels that should be asked for, where the library has `chosen` some that the processor's
    `flags` have long outgrown; None where its choice stands."""
    if chosen.lower() not in _BEFORE_AVX:
        return None
    return next((name for name, needed in _NEEDS.items() if needed <= flags), None)


def read_flags(cpuinfo: Path = Path("/proc/cpuinfo")) -> set[str]:
    """What the processor can do, in Linux's words; none where that is not told, or not an x86."""
    try:
        with cpuinfo.open(encoding="utf-8") as lines:
            first = next((line for line in lines if line.startswith("flags")), "")  # of hundreds, perhaps
    except OSError:
        return set()
    return set(first.partition(":")[2].split())
