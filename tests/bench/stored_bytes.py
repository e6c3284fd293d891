"""How many bytes the store takes of what a model keeps of text, as float32 and as bfloat16, at both levels.

    python tests/bench/stored_bytes.py --tokens 4096

A prompt of recorded conversations is read by the real engine; every block that it offers to the store is written as a
file's bytes would be. Kept as bfloat16 means the same numbers rounded to it, as a GPU would have them. Fails where
bfloat16 takes more than 0.86 of its raw bytes at the fast level, or more than 0.80 after packing tight.
"""

from __future__ import annotations

import tempfile
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from harness import Journal, find_pack, make_parser, report, run
from mtplxd.engine.batch import open_batch
from mtplxd.engine.prefill import Prefill
from mtplxd.engine.prefixes import Prefixes
from mtplxd.engine.request import Request, SamplerSettings
from mtplxd.store import blockfile, codec
from mtplxd.store.blocks import BlockBytes, Offered, Tensor
from mtplxd.store.disk import DiskStore
from mtplxd.store.limits import Limits
from mtplxd.store.prefixes import PrefixIndex
from mtplxd.store.tiers import Tiers
from workbench import Workbench

TALK = Path(__file__).parents[1] / "data" / "training_tokens.npz"
ROOM = 1 << 31
MOST = {"fast": 0.86, "tight": 0.80}
LEVELS = {"fast": codec.FAST, "tight": codec.TIGHT}
PATIENCE_S = 600.0


class Listening(DiskStore):
    """Remembers what it was offered."""

    def __init__(self, folder: Path) -> None:
        self.heard: list[Offered] = []
        super().__init__(folder, Limits(ROOM, 0, ROOM, ROOM))

    def offer(self, offered: Offered) -> bool:
        self.heard.append(offered)
        return super().offer(offered)


def offered_blocks(bench: Workbench, count: int) -> list[Offered]:
    """All blocks of a prompt of so many tokens."""
    with np.load(TALK) as arrays:
        tokens = arrays[min(arrays.files)].reshape(-1)[: count + 1].tolist()
    request = Request("bench", "bench", bench.model, tokens, SamplerSettings(temperature=0.0), 1, depth=1)
    with tempfile.TemporaryDirectory() as folder:
        disk = Listening(Path(folder) / "store")
        index: PrefixIndex[Any] = PrefixIndex(ROOM)
        tiers: Tiers[Any] = Tiers(index, disk)
        prefixes = Prefixes(tiers)
        prefill: Prefill = prefixes.seek(request).begin(open_batch(request))
        while not prefill.finished:
            prefill.step(128)
        assert prefixes.flush(PATIENCE_S)
        tiers.close()
        assert disk.close(PATIENCE_S)
    return [*{offered.name: offered for offered in disk.heard}.values()]  # the fullest of each


def halve(offered: Offered) -> Offered:
    """The same block with its float32 numbers rounded to bfloat16, to even where both are as near."""
    return replace(
        offered, content=BlockBytes(offered.content.meta, tuple(map(_halve, offered.content.tensors)))
    )


def _halve(tensor: Tensor) -> Tensor:
    if tensor.dtype != "float32":
        return tensor
    bits = np.frombuffer(tensor.data, np.uint32).astype(np.uint64)
    rounded = ((bits + 0x7FFF + ((bits >> 16) & 1)) >> 16).astype(np.uint16)
    return Tensor(tensor.name, "bfloat16", tensor.shape, rounded.tobytes())


def share(blocks: list[Offered], level: int) -> float:
    """Bytes of files over bytes of tensors."""
    written = sum(
        len(memoryview(piece).cast("B")) for block in blocks for piece in blockfile.write(block, level)
    )
    return written / sum(block.content.nbytes for block in blocks)


def main() -> None:
    parser = make_parser(__doc__ or "")
    parser.add_argument("--tokens", type=int, default=4096, help="tokens of the prompt")
    args = parser.parse_args()
    journal, bench = Journal("stored_bytes", args), Workbench(find_pack(args.model), plain=False)
    blocks = bench.call(lambda: offered_blocks(bench, args.tokens))
    kinds = {"float32": blocks, "bfloat16": [*map(halve, blocks)]}
    shares = {
        kind: {name: round(share(made, level), 4) for name, level in LEVELS.items()}
        for kind, made in kinds.items()
    }
    passed = all(shares["bfloat16"][name] <= most for name, most in MOST.items())
    summary = {
        "blocks": len(blocks),
        "mb_raw": {kind: sum(block.content.nbytes for block in made) / 1e6 for kind, made in kinds.items()},
        "shares": shares,
        "passed": passed,
    }
    report(summary, journal.finish(summary), failed=not passed)


if __name__ == "__main__":
    run(main)
