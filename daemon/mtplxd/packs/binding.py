"""The check before a head is loaded: it is complete, belongs to this body, and its values can be used.

Reads the head's small tensors and, once, all bytes of the body. What follows from a refusal is the caller's.
"""

from __future__ import annotations

from pathlib import Path

from mtplxd.errors import DataLoss, FailedPrecondition
from mtplxd.packs.detector import HeadReport, detect_head
from mtplxd.packs.fingerprint import body_fingerprint
from mtplxd.packs.headers import TensorInfo, read_tensor
from mtplxd.packs.pack import Located, Pack

_PIECE = 4 << 20
WAYS_ON = "build the head again, or load it with --plain"
_MASKS = {"BF16": (0x7F80, 0x7FFF), "F16": (0x7C00, 0x7FFF), "F32": (0x7F800000, 0x7FFFFFFF)}
"""Exponent bits, and all bits but the sign, by dtype; the detector has refused other ones."""


def check_head(pack: Pack, report: HeadReport | None = None) -> HeadReport:
    """The report of a head that may be bound to this pack's body, or of none.

    Raises FailedPrecondition with every reason: tensors missing, unused or misshapen, a head trained for
    another body, norms that are all zero or not finite, a draft vocabulary that is not rising token ids.
    """
    report = report or detect_head(pack)
    if not report.present:
        return report
    problems = [*report.problems] or _value_problems(pack, report.located) or _body_problems(pack, report)
    if problems:
        raise FailedPrecondition(f"the head of {pack.name} does not bind", "; ".join(problems), WAYS_ON)
    return report


def _body_problems(pack: Pack, report: HeadReport) -> list[str]:
    named = report.metadata.get("body_fingerprint")
    if (named or report.layout == "adapter") and named != body_fingerprint(pack):
        return ["it was trained for another body"]
    return []


def differing_copies(report: HeadReport, body: Located) -> tuple[str, ...]:
    """Those of the head's own embedding and output matrix that are not, byte for byte, the body's they repeat.

    The others need not be loaded: the body's stand in. Reads both sides in pieces. Raises DataLoss.
    """
    pairs = [(name, report.located[name], body[other]) for name, other in sorted(report.copies.items())]
    return tuple(name for name, copy, original in pairs if not _same_bytes(copy, original))


def _same_bytes(one: tuple[Path, TensorInfo], other: tuple[Path, TensorInfo]) -> bool:
    (path, info), (other_path, other_info) = one, other
    if (info.dtype, info.shape) != (other_info.dtype, other_info.shape):
        return False
    try:
        with path.open("rb") as first, other_path.open("rb") as second:
            first.seek(info.begin)
            second.seek(other_info.begin)
            pieces = (min(_PIECE, info.nbytes - at) for at in range(0, info.nbytes, _PIECE))
            return all(first.read(length) == second.read(length) for length in pieces)
    except OSError as error:
        raise DataLoss("cannot read a weights file", path, error.strerror or "check the disk") from error


def _value_problems(pack: Pack, located: Located) -> list[str]:
    problems = []
    for name, (file, info) in sorted(located.items()):
        if name.endswith("draft_vocab"):
            problems += _vocab_problems(name, file, info, pack.text_config.get("vocab_size", 0))
        elif name.endswith("token_ordering"):
            problems += _ordering_problems(name, file, info)
        elif len(info.shape) == 1 and "norm" in name and name.endswith(".weight"):
            problems += _norm_problems(name, file, info)
    return problems


def _norm_problems(name: str, file: Path, info: TensorInfo) -> list[str]:
    import numpy as np

    exponent, magnitude = _MASKS[info.dtype]
    bits = np.frombuffer(read_tensor(file, info), "<u4" if info.dtype == "F32" else "<u2")
    if ((bits & exponent) == exponent).any():
        return [f"{name} is not finite"]
    return [] if (bits & magnitude).any() else [f"{name} is all zero"]


def _vocab_problems(name: str, file: Path, info: TensorInfo, vocab: int) -> list[str]:
    import numpy as np

    ids = np.frombuffer(read_tensor(file, info), "<i4")
    rising = ids.size > 0 and ids[0] >= 0 and ids[-1] < vocab and bool((np.diff(ids) > 0).all())
    return [] if rising else [f"{name} is not rising token ids below {vocab}"]


def _ordering_problems(name: str, file: Path, info: TensorInfo) -> list[str]:
    import numpy as np

    ids = np.frombuffer(read_tensor(file, info), {"I64": "<i8", "I32": "<i4", "U32": "<u4"}[info.dtype])
    whole = bool((np.sort(ids) == np.arange(ids.size)).all())
    return [] if whole else [f"{name} is not an ordering of all token ids"]
