"""The check before a head is loaded: it is complete, belongs to this body, and its values can be used.

Reads the head's small tensors and, once, all bytes of the body. What follows from a refusal is the caller's.
"""

from __future__ import annotations

from pathlib import Path

from mtplxd.errors import FailedPrecondition
from mtplxd.packs.detector import HeadReport, detect_head
from mtplxd.packs.fingerprint import body_fingerprint
from mtplxd.packs.headers import TensorInfo
from mtplxd.packs.pack import Pack

WAYS_ON = "build the head again, or load it with --plain"
_MASKS = {"BF16": (0x7F80, 0x7FFF), "F16": (0x7C00, 0x7FFF), "F32": (0x7F800000, 0x7FFFFFFF)}
"""Exponent bits, and all bits but the sign, by dtype; the detector has refused other ones."""


def check_head(pack: Pack, report: HeadReport | None = None) -> HeadReport:
    """The report of a head that may be bound to this pack's body, or of none.

    Raises FailedPrecondition with every reason: tensors missing, unused or misshapen, a head trained for
    another body, norms that are all zero or not finite, a draft vocabulary that is not rising token ids.
    """
    report = report or detect_head(pack)
    if not report.present or report.file is None:
        return report
    problems = [*report.problems] or [*_value_problems(pack, report.file)] or _body_problems(pack, report)
    if problems:
        raise FailedPrecondition(f"the head of {pack.name} does not bind", "; ".join(problems), WAYS_ON)
    return report


def _body_problems(pack: Pack, report: HeadReport) -> list[str]:
    named = report.metadata.get("body_fingerprint")
    if report.layout == "adapter" and named != body_fingerprint(pack):
        return ["it was trained for another body"]
    return []


def _value_problems(pack: Pack, file: Path) -> list[str]:
    problems = []
    for name, info in sorted(pack.headers[file].items()):
        if name.endswith("draft_vocab"):
            problems += _vocab_problems(name, file, info, pack.text_config.get("vocab_size", 0))
        elif len(info.shape) == 1 and "norm" in name and name.endswith(".weight"):
            problems += _norm_problems(name, file, info)
    return problems


def _norm_problems(name: str, file: Path, info: TensorInfo) -> list[str]:
    import numpy as np

    exponent, magnitude = _MASKS[info.dtype]
    bits = np.frombuffer(_read(file, info), "<u4" if info.dtype == "F32" else "<u2")
    if ((bits & exponent) == exponent).any():
        return [f"{name} is not finite"]
    return [] if (bits & magnitude).any() else [f"{name} is all zero"]


def _vocab_problems(name: str, file: Path, info: TensorInfo, vocab: int) -> list[str]:
    import numpy as np

    ids = np.frombuffer(_read(file, info), "<i4")
    rising = ids.size > 0 and ids[0] >= 0 and ids[-1] < vocab and bool((np.diff(ids) > 0).all())
    return [] if rising else [f"{name} is not rising token ids below {vocab}"]


def _read(file: Path, info: TensorInfo) -> bytes:
    with file.open("rb") as stream:
        stream.seek(info.begin)
        return stream.read(info.nbytes)
