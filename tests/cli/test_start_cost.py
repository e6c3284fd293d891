"""What a command imports before it does anything: help pays for nothing but click."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from support.tiny_pack import make_tiny_pack

_RUN = """
import sys
from mtplx_client.cli import main
code = main(sys.argv[1:])
heavy = ["grpc", "google.protobuf", "rich", "numpy", "mlx", "mlx_lm", "transformers", "huggingface_hub",
         "mtplxd.packs.resolver", "mtplx_client.client", "asyncio", "tomllib"]
print("loaded", *[name for name in heavy if name in sys.modules])
"""


def loaded(environment: dict[str, str], *argv: str) -> set[str]:
    child = subprocess.run(
        [sys.executable, "-c", _RUN, *argv], env={**os.environ, **environment}, capture_output=True, text=True
    )
    return set(child.stdout.splitlines()[-1].split()[1:])


@pytest.mark.parametrize(
    "argv",
    [
        [],
        ["--help"],
        ["--version"],
        ["generate", "--help"],
        ["status", "--help"],
        ["bench", "decode", "--help"],
        ["nope"],
    ],
    ids=" ".join,
)
def test_help_and_usage_errors_import_nothing_heavy(environment: dict[str, str], argv: list[str]) -> None:
    assert loaded(environment, *argv) == set()


def test_status_needs_grpc_and_little_else(environment: dict[str, str]) -> None:
    for argv in (["status"], ["status", "--json"]):
        assert not loaded(environment, *argv) & {"rich", "numpy", "mlx", "mtplxd.packs.resolver"}


def test_config_needs_no_grpc(environment: dict[str, str]) -> None:
    assert not loaded(environment, "config", "get") & {"grpc", "rich", "numpy", "mlx"}


def test_what_is_on_the_disk_is_judged_without_the_hubs_library(
    environment: dict[str, str], tmp_path: Path
) -> None:
    pack = make_tiny_pack(tmp_path / "tiny")
    for argv in (["inspect", str(pack)], ["inspect", "org/none"], ["ls"], ["doctor"]):
        assert not loaded(environment | {"HF_HUB_OFFLINE": "1"}, *argv) & {"huggingface_hub", "mlx"}
