"""A measurement of prompts that were brought back, for programs and for people."""

from __future__ import annotations

import os
import platform
from typing import Any

from mtplx_client.bench_fans import labels
from mtplx_client.bench_restore import Restored
from mtplx_client.cli.render import fans
from mtplx_client.cli.render.words import duration, ratio
from mtplx_client.fans import Thermal


def document(found: Restored, place: Thermal) -> dict[str, Any]:
    """The JSON document, with the field names that programs rely on."""
    return {
        "model": found.model,
        "tokens": found.prompt_tokens,
        "cold_ttft_s": found.cold_ttft_s,
        "ram_ttft_s": found.ram_ttft_s,
        "ssd_ttft_s": found.ssd_ttft_s,
        "ram_restore_s": found.ram_restore_s,
        "ssd_restore_s": found.ssd_restore_s,
        "ratio_ram": found.ratio_ram,
        "ratio_ssd": found.ratio_ssd,
        "bytes_raw": found.bytes_raw,
        "bytes_stored": found.bytes_stored,
        "cached_tokens": found.cached_tokens,
        "same_text": found.same_text,
        "mb_s": found.mb_s,
        "acceptance": found.acceptance,
        **labels(place),
        "machine": {"cores": os.cpu_count(), "os": platform.platform()},
    }


def view(found: Restored, place: Thermal) -> str:
    """A few lines."""
    share = found.bytes_stored / found.bytes_raw if found.bytes_raw else 0.0
    text = "the same text" if found.same_text else "another text"
    return "\n".join(
        [
            f"{found.model}, {found.prompt_tokens} tokens, time to the first token",
            f"  read       {duration(found.cold_ttft_s)}",
            f"  memory     {duration(found.ram_ttft_s)}  {ratio(found.ratio_ram)}",
            f"  disk       {duration(found.ssd_ttft_s)}  {ratio(found.ratio_ssd)}, in place at {found.mb_s:.0f} MB/s",
            f"  {found.cached_tokens} tokens came from the disk, stored in {share:.2f} of their size; {text}",
            f"  {fans.label(place)}",
        ]
    )
