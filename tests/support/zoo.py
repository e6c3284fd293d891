"""The small trained checkpoints of `tests/data/zoo`, and the protocol by which their acceptance was stated.

Greedy: the prompt and one token by the body alone, then rounds of three drafts until 64 tokens are out, stop tokens
ignored, every round counted, the last one too.
"""

from __future__ import annotations

import json
import shutil
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from mtplxd.engine.batch import Batch
from mtplxd.engine.prefill import prefill
from mtplxd.engine.request import SamplerSettings
from mtplxd.engine.round import commit, land, launch
from mtplxd.engine.row import Row
from mtplxd.families.heads.row import SWITCHES
from mtplxd.families.load import LoadedModel, load_model
from mtplxd.packs.pack import read_pack
from support.ragged import counted

ZOO = Path(__file__).parents[1] / "data" / "zoo"
NAMES = ("qwen3_5", "mimo", "glm4_moe_lite")
DEPTH, TOKENS = 3, 64
TOLERANCE = 0.03
OTHER = {name: {one: other, other: one} for name, (one, other) in SWITCHES.items()}
STATED = {
    "tap": "wrong_tap",
    "recursion": "wrong_recursion",
    "concat": "swapped_concat",
    "norm_convention": "wrong_norm_convention",
}
"""What `expected.json` calls the wrong value of each switch."""


@dataclass
class Tally:
    """Rounds of three drafts, in how many of them the first 1, 2, 3 were accepted, and each prompt's tokens."""

    rounds: int = 0
    accepted: list[int] = field(default_factory=lambda: [0] * DEPTH)
    texts: list[list[int]] = field(default_factory=list)

    @property
    def acceptance(self) -> list[float]:
        return [count / self.rounds for count in self.accepted]

    @property
    def tokens_per_round(self) -> float:
        return 1 + sum(self.acceptance)


def expected_of(name: str) -> dict[str, Any]:
    """The checkpoint's `expected.json`."""
    return json.loads((ZOO / name / "expected.json").read_text(encoding="utf-8"))


def open_zoo(name: str, folder: Path, flipped: str | None = None, *, plain: bool = False) -> LoadedModel:
    """The checkpoint loaded by the real loader from a copy in `folder`, with one switch the other way or none."""
    copy = folder / f"{name}-{flipped or 'right'}"
    shutil.copytree(ZOO / name, copy)
    if flipped is not None:
        head = {flipped: OTHER[flipped][right_settings(name)[flipped]]}
        (copy / "mtplx_runtime.json").write_text(json.dumps({"mtplxd": {"format": 1, "head": head}}))
    return load_model(read_pack(copy), plain=plain, depth_max=None if plain else DEPTH)


def right_settings(name: str) -> dict[str, str]:
    """The switches as the checkpoint was trained."""
    stated = expected_of(name)["head"]
    return {
        "tap": stated["tap"].removesuffix("-norm"),
        "recursion": stated["recursion"].removesuffix("-norm"),
        "concat": "hidden_first" if stated["concat"].startswith("[hidden") else "embed_first",
        "norm_convention": "as_stored" if stated["norm_convention"] == "as stored" else "zero_centred",
    }


def measure(model: LoadedModel, prompts: list[list[int]]) -> Tally:
    """The protocol over these prompts."""
    tally = Tally()
    for prompt in prompts:
        tally.texts.append(_decode(model, prompt, tally))
    return tally


def decode_plainly(model: LoadedModel, prompt: list[int]) -> list[int]:
    """The first tokens of the greedy text without a head."""
    batch = _open(model, prompt)
    while len(batch.rows[0].tokens) < len(prompt) + TOKENS:
        _round(batch, 0)
    return batch.rows[0].tokens[len(prompt) :]


def _decode(model: LoadedModel, prompt: list[int], tally: Tally) -> list[int]:
    batch = _open(model, prompt)
    _round(batch, 0)
    while len(batch.rows[0].tokens) < len(prompt) + TOKENS:
        accepted = _round(batch, DEPTH)
        tally.rounds += 1
        for position in range(accepted):
            tally.accepted[position] += 1
    return batch.rows[0].tokens[len(prompt) : len(prompt) + TOKENS]


def _open(model: LoadedModel, prompt: list[int]) -> Batch:
    row = Row(list(prompt), SamplerSettings(temperature=0.0), DEPTH)
    cache = model.target.make_cache(1)
    head_cache = model.head.make_cache(1, cache) if model.head else []
    batch = Batch(model.target, model.head, [row], cache, head_cache)
    for _ in prefill(batch, prompt):
        pass
    return batch


def _round(batch: Batch, depth: int) -> int:
    """One round that keeps everything; gives how many drafts were accepted."""
    batch.rows[
        0
    ].auto = True  # a head that is of no use goes on drafting: how little it is, is what is counted
    flight = launch(batch, counted([0], [batch.rows[0].round]), [depth])
    [landing] = land(batch, flight)
    assert (landing.drafted, landing.fault) == (depth, "")
    commit(batch, flight, [landing], [len(landing.tokens)])
    return landing.accepted
