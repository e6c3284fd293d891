"""An OpenBLAS that does not know the processor computes with kernels that fit it all the same, unless told not to."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from mtplxd.platform.kernels import VARIABLE, better_kernels, read_flags

AVX2 = {"sse3", "avx", "avx2", "fma"}
AVX512 = AVX2 | {"avx512f", "avx512cd", "avx512bw", "avx512dq", "avx512vl"}

STAND_IN = r"""
#include <stdlib.h>
static const char *core = "Prescott";
__attribute__((constructor)) static void choose(void) {
    const char *told = getenv("OPENBLAS_CORETYPE");
    if (told && *told) core = told;
}
char *openblas_get_corename(void) { return (char *)core; }
char *openblas_get_config(void) { return "OpenBLAS 0.3.21 DYNAMIC_ARCH Prescott"; }
int openblas_get_num_threads(void) { return 2; }
"""


@pytest.mark.parametrize(
    ("chosen", "flags", "better"),
    [
        ("Prescott", AVX512, "SkylakeX"),
        ("Prescott", AVX2, "Haswell"),
        ("Prescott", AVX512 - {"avx512vl"}, "Haswell"),
        ("Nehalem", AVX2, "Haswell"),
        ("prescott", AVX2, "Haswell"),
        ("Prescott", AVX2 - {"fma"}, None),
        ("Prescott", set(), None),
        ("Haswell", AVX512, None),
        ("Zen", AVX512, None),
        ("SapphireRapids", AVX512, None),
        ("armv8", AVX512, None),
        ("", AVX512, None),
    ],
)
def test_only_a_choice_that_the_processor_has_outgrown_is_bettered(
    chosen: str, flags: set[str], better: str | None
) -> None:
    assert better_kernels(chosen, flags) == better


def test_flags_are_those_of_the_first_processor(tmp_path: Path) -> None:
    cpuinfo = tmp_path / "cpuinfo"
    cpuinfo.write_text("processor\t: 0\nflags\t\t: fpu avx2 fma\n\nprocessor\t: 1\nflags\t\t: fpu\n")
    assert read_flags(cpuinfo) == {"fpu", "avx2", "fma"}


def test_no_flags_are_told_on_other_systems(tmp_path: Path) -> None:
    (tmp_path / "cpuinfo").write_text("processor : 0\nFeatures : fp asimd\n")
    assert read_flags(tmp_path / "cpuinfo") == read_flags(tmp_path / "missing") == set()


@pytest.fixture(scope="module")
def stand_in(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A library that takes every processor for an old one, unless its variable says otherwise as it is loaded."""
    compiler = shutil.which("cc") or shutil.which("gcc")
    if compiler is None:
        pytest.skip("no C compiler")
    folder = tmp_path_factory.mktemp("blas")
    (folder / "blas.c").write_text(STAND_IN)
    library = folder / "libstandin.so"
    subprocess.run([compiler, "-shared", "-fPIC", "-o", library, folder / "blas.c"], check=True)
    return library


def loaded(library: Path, flags: set[str], **environ: str) -> list[str]:
    """The name of what a new process has loaded, and what the variable is for those that it starts."""
    code = (
        "import os; from mtplxd.platform import blas\n"
        f"blas.read_flags = lambda: {flags!r}\n"
        f"blas.request_blas({str(library)!r})\n"
        f"print(blas.load_blas().name); print(os.environ.get({VARIABLE!r}))"
    )
    environment = {name: value for name, value in os.environ.items() if name != VARIABLE} | environ
    told = subprocess.run([sys.executable, "-c", code], env=environment, check=True, capture_output=True)
    return told.stdout.decode().splitlines()


def test_the_library_is_loaded_again_with_kernels_that_fit(stand_in: Path) -> None:
    assert loaded(stand_in, AVX512) == ["OpenBLAS 0.3.21 SkylakeX", "None"]


def test_on_an_old_processor_its_own_choice_stands(stand_in: Path) -> None:
    assert loaded(stand_in, {"sse3"}) == ["OpenBLAS 0.3.21 Prescott", "None"]


def test_what_a_user_asks_for_is_left_alone(stand_in: Path) -> None:
    asked = loaded(stand_in, AVX512, **{VARIABLE: "Nehalem"})
    assert asked == ["OpenBLAS 0.3.21 Nehalem", "Nehalem"]
