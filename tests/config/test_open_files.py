"""A process may open as many files as its service asked for, whatever a library sets when it is imported."""

from __future__ import annotations

import subprocess
import sys

import pytest

LIMIT = "import resource; resource.setrlimit(resource.RLIMIT_NOFILE, ({soft}, {hard}));"
SAYS = "print(*resource.getrlimit(resource.RLIMIT_NOFILE))"
RAISE = "from mtplxd.platform.open_files import allow_open_files; print(allow_open_files());"


def limits_of(*steps: str, soft: int = 512, hard: int = 1024) -> list[int]:
    """What a process prints that begins with these limits."""
    code = LIMIT.format(soft=soft, hard=hard) + "".join(steps)
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    return [int(word) for word in done.stdout.split()]


def test_mlx_lm_leaves_a_small_limit_alone() -> None:
    assert limits_of("import mtplxd.platform.mlx, mlx_lm.utils;", SAYS) == [512, 1024]


def test_mlx_lm_does_not_take_away_what_a_service_asked_for() -> None:
    assert limits_of("import mtplxd.platform.mlx, mlx_lm.utils;", SAYS, soft=4100, hard=4200) == [4100, 4200]


def test_other_limits_stay_anyones() -> None:
    step = "import mtplxd.platform.mlx; resource.setrlimit(resource.RLIMIT_CORE, (0, 0));"
    assert limits_of(step, "print(*resource.getrlimit(resource.RLIMIT_CORE))") == [0, 0]


@pytest.mark.parametrize(
    ("soft", "hard", "raised"),
    [(256, 9000, [8192, 8192, 9000]), (256, 300, [300, 300, 300]), (8300, 9000, [8300, 8300, 9000])],
)
def test_a_terminals_few_become_what_the_system_lets_it_have(soft: int, hard: int, raised: list[int]) -> None:
    assert limits_of(RAISE, SAYS, soft=soft, hard=hard) == raised
