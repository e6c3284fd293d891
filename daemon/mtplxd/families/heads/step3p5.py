"""Step-3.5: three dense blocks appended after the body's, each with an output matrix of its own.

Layers hand their state on before its norm. The config's lists by layer go on over the head's layers.
"""

from __future__ import annotations

from typing import Any

from mtplxd.families.caches import RowCache, WindowCache
from mtplxd.families.heads.row import HeadFamily, HeadSettings, causal_mask, placed
from mtplxd.families.protocols import LayerCache

_PARTS = {
    "enorm.": "enorm.",
    "hnorm.": "hnorm.",
    "eh_proj.": "fc.",
    "transformer.shared_head.norm.": "norm.",
    "transformer.shared_head.output.": "output.",
}


def _block(args: Any, j: int) -> Any:
    from mlx_lm.models.step3p5 import Step3p5DecoderLayer

    return Step3p5DecoderLayer(args, args.num_hidden_layers + j)


def _cache(args: Any, j: int, rows: int) -> LayerCache:
    """Kinds of layers as mlx-lm reads them: by the config's list, else every other one slides."""
    index, kinds = args.num_hidden_layers + j, args.layer_types
    slides = kinds[index] == "sliding_attention" if kinds else index % 2 == 0
    return WindowCache(rows, args.sliding_window) if slides else RowCache(rows)


FAMILY = HeadFamily(
    name="step3p5",
    types=frozenset({"step3p5"}),
    scheme="step",
    keys=placed(r"layers\.(\d+)\.", _PARTS, appended=True),
    block=_block,
    cache=_cache,
    mask=causal_mask,
    settings=HeadSettings(tap="pre", recursion="pre", norm_convention="decide"),
    output="own",
    chained="state",
)
