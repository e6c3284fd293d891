"""The table of head layouts: how each is recognised and exactly which tensors, in which shapes, it must have.

A further layout is a further row in a file of its group. Reading files is `pack`'s, judging is `detector`'s.
"""

from mtplxd.packs.layouts import adapter, appended, gemma, namespaces, nemotron, qwen, unsupported
from mtplxd.packs.layouts.adapter import llama_block, parse_taps
from mtplxd.packs.layouts.row import Layout

__all__ = ["DRIVEN", "LAYOUTS", "Layout", "llama_block", "parse_taps"]

LAYOUTS: tuple[Layout, ...] = (
    *adapter.ROWS,
    *qwen.ROWS,
    *nemotron.ROWS,
    *namespaces.ROWS,
    *gemma.ROWS,
    *unsupported.ROWS,
    *appended.ROWS,
)
"""In the order they are tried: explicit namespaces before layers appended after the body's."""

DRIVEN = frozenset(
    {
        "adapter",
        "ernie",
        "gemma4_assistant",
        "gemma4_assistant_beside",
        "grouped",
        "latent",
        "latent_sparse",
        "longcat",
        "mimo",
        "mimo_v2",
        "nemotron_h",
        "qwen",
        "step",
    }
)
"""Rows for which `families` has a module. A head of another row is described in full, and refused at load."""
