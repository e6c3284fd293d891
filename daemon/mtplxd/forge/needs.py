"""What a build takes of this machine, from headers alone: arithmetic over sizes in bytes.

An estimate for whoever has to decide whether to begin; nothing is refused by it.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import asdict, dataclass
from typing import Any

from mtplxd.packs.memory import RUNTIME_BYTES, need_of_pack, tensor_bytes
from mtplxd.packs.pack import Pack


@dataclass(frozen=True)
class Needs:
    """Memory of the two hungriest steps and disk, bytes.

    `convert`: one weights file as it is read and as it is written. `run`: the source whole in memory, as the comparison
    with it and the measurement need it. `disk`: what is fetched and a pack as large as the source.
    """

    convert: int
    run: int
    disk: int

    @property
    def memory(self) -> int:
        """The peak."""
        return max(self.convert, self.run)

    def document(self) -> dict[str, Any]:
        """The JSON form."""
        return {**asdict(self), "peak": self.memory}


def needs_of(pack: Pack, *, headless: bool, widen: bool, download: int) -> Needs:
    """Of a build from this source. `widen`: halves compute in float32; `download`: bytes that must be fetched."""
    run = need_of_pack(pack, headless=headless, widen=widen).total
    return Needs(
        convert=RUNTIME_BYTES + 2 * _largest_file(pack),
        run=RUNTIME_BYTES + run,
        disk=download + pack.bytes_body + pack.bytes_head,
    )


def _largest_file(pack: Pack) -> int:
    """Bytes in memory of the tensors of the largest weights file, FP8 unpacked."""
    sizes: Counter[object] = Counter()
    for path, info in (*pack.body_tensors.values(), *pack.head_tensors.values()):
        sizes[path] += tensor_bytes([info], widen=False)
    return max(sizes.values(), default=0)
