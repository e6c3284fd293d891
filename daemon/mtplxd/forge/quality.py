"""What a conversion cost: how far the packed body's next token is from the source's, along text neither has written.

Both bodies read the same tokens, one after the other, so that never more than one of them is in memory; what the first
one said waits on disk. Whether the cost is too high is one comparison, without exceptions of its own.
"""

from __future__ import annotations

import math
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from mtplxd.errors import Cancelled, InvalidArgument
from mtplxd.families.load import LoadedModel, load_model
from mtplxd.forge.divergence import Divergence, Floats
from mtplxd.forge.pacing import IsCancelled, Tell
from mtplxd.packs.landing import check_space, disk_errors
from mtplxd.packs.pack import read_pack
from mtplxd.platform.mlx import mx
from mtplxd.tune.prompts import LONG_SUITE, load_suite

STAGE = "quality"
WINDOW = 128
"""Tokens of a text that are read, from its beginning."""
_FLOAT_BYTES = 4


@dataclass(frozen=True)
class Quality:
    """`kl` is the mean of KL(source ‖ packed) in nats a token, `top1` the share of positions with the same most likely
    token, `tokens` how many positions that is of."""

    kl: float
    top1: float
    tokens: int

    def document(self) -> dict[str, Any]:
        """As JSON; a divergence that is no number is null."""
        return {**asdict(self), "kl": self.kl if math.isfinite(self.kl) else None}


def held_out_texts() -> list[str]:
    """Code and prose that no conversion is fitted to."""
    asked = ["\n".join(prompt.text for prompt in load_suite(name).prompts) for name in ("prose", "chat")]
    return [*asked, *(prompt.text for prompt in load_suite(LONG_SUITE).prompts)]


def measure_quality(
    source: Path, out: Path, texts: Sequence[str], tell: Tell, cancelled: IsCancelled
) -> Quality:
    """Compares the body in `out` with the one in `source` along `texts`, teacher-forced.

    Raises InvalidArgument without a text of two tokens, ResourceExhausted without room for what the source says,
    DataLoss and FailedPrecondition as loading does, Cancelled.
    """
    first = _load(source, cancelled)
    windows = [tokens for text in texts if len(tokens := first.tokenizer.encode(text)[:WINDOW]) > 1]
    if not windows:
        raise InvalidArgument("no text to compare on", len(texts), "give texts of some words", field="texts")
    vocab = first.target.vocab_size
    shapes = [(len(tokens), vocab) for tokens in windows]
    with disk_errors(out), tempfile.TemporaryFile(dir=out.parent) as kept:
        check_space(_FLOAT_BYTES * sum(rows * width for rows, width in shapes), out.parent)
        for place, logits in enumerate(_read_all(first, windows, cancelled)):
            kept.write(logits.tobytes())
            tell(STAGE, place + 1, 2 * len(windows), "source")
        del first
        mx.clear_cache()
        kept.seek(0)
        found = Divergence()
        for place, logits in enumerate(_read_all(_load(out, cancelled), windows, cancelled)):
            rows, width = shapes[place]
            said = np.frombuffer(kept.read(_FLOAT_BYTES * rows * width), np.float32).reshape(rows, width)
            found.add(said, logits)
            tell(STAGE, len(windows) + place + 1, 2 * len(windows), "packed")
    return Quality(kl=found.kl / found.positions, top1=found.same / found.positions, tokens=found.positions)


def judge_quality(quality: Quality | None, floor: float, lossless: bool) -> str | None:
    """Why a body is not good enough, None where it is. One whose weights nobody changed needs no measurement."""
    if lossless:
        return None
    if quality is None:
        return "quality_failed: what the conversion cost was not measured"
    if not math.isfinite(quality.kl):
        return "quality_failed: the converted body's logits are no numbers"
    if quality.top1 < floor:
        share = f"{quality.top1:.1%} of positions, below {floor:.0%}"
        return f"quality_failed: its most likely token is the source's at {share}"
    return None


def _load(folder: Path, cancelled: IsCancelled) -> LoadedModel:
    return load_model(read_pack(folder), plain=True, cancelled=cancelled)


def _read_all(
    model: LoadedModel, windows: Sequence[Sequence[int]], cancelled: IsCancelled
) -> Iterator[Floats]:
    """The logits [L, V] behind every token of each text."""
    for tokens in windows:
        if cancelled():
            raise Cancelled("the build was cancelled while its quality was measured")
        hidden, _ = model.target.run(mx.array([tokens], mx.int32), model.target.make_cache(1))
        yield np.array(model.target.logits(hidden)[0].astype(mx.float32))
