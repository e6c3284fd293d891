"""Opens a checkpoint's head beside a bare embedding and output matrix, so that a head is tested without its body."""

from __future__ import annotations

import copy
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
from mtplxd.families.heads.driver import PublishedHead
from mtplxd.families.heads.opening import bind_published, read_published
from mtplxd.families.settling import Settler
from mtplxd.packs.binding import check_head
from mtplxd.packs.pack import read_pack
from mtplxd.platform.mlx import Array, mx, nn
from support.checkpoint_files import read_tensors

Floats = np.ndarray[Any, Any]
_EMBEDDING = ("embed_tokens.weight", "backbone.embeddings.weight")


class BareBody:
    """What a head takes of its body: embedding [V, H], output matrix [V, H], arguments of mlx-lm's text model."""

    def __init__(self, embedding: Floats, output: Floats, args: Any) -> None:
        self.embedding = nn.Embedding(*embedding.shape)
        self.embedding.weight = mx.array(embedding)
        self._output = mx.array(output)
        self.model = SimpleNamespace(args=args, layers=[])

    def logits(self, hidden: Array) -> Array:
        return hidden @ self._output.T


@dataclass
class Opened:
    """A head with the tensors of its checkpoint, floats by published name."""

    head: PublishedHead
    body: BareBody
    tensors: dict[str, Floats]
    config: dict[str, Any]
    embedding: Floats
    output: Floats


def open_head(folder: Path, depth_max: int | None = None) -> Opened:
    """The head of a checkpoint, bound as `load` binds it."""
    pack = read_pack(folder)
    tensors, config = read_tensors(folder), {**pack.config, **pack.text_config}
    own = pack.head_tensors
    embedding = next(v for n, v in tensors.items() if n.endswith(_EMBEDDING) and n not in own)
    output = next((v for n, v in tensors.items() if n.endswith("lm_head.weight") and n not in own), embedding)
    body = BareBody(embedding, output, text_args(pack.config))
    weights = read_published(pack, check_head(pack))
    head, _ = bind_published(weights, body, Settler(len(weights.tensors), None, None), depth_max)
    return Opened(head, body, tensors, config, embedding, output)


def text_args(config: dict[str, Any]) -> Any:
    """mlx-lm's arguments of the text model a config describes."""
    from mlx_lm.utils import _get_classes

    model, args = _get_classes(copy.deepcopy(config))
    made = model(args.from_dict(copy.deepcopy(config)))
    return getattr(made, "language_model", made).args


def draft_logits(head: Any, tokens: list[int], hidden: Floats, drafts: list[int], cuts: list[int]) -> Floats:
    """Logits [1 + drafts, V] after all true pairs, then after each of these drafts; pairs absorbed in parts of `cuts`.

    `tokens` are those after each of the hidden states [L, H].
    """
    cache = head.make_cache(1, [])
    begin, state = 0, None
    for length in cuts:
        part = mx.array(hidden[None, begin : begin + length].astype(np.float32))
        state = head.absorb(mx.array([tokens[begin : begin + length]]), (part,), cache)[:, -1:]
        begin += length
    assert begin == len(tokens)
    made = [head.logits(state)]
    for draft in drafts:
        state = head.extend(mx.array([[draft]]), state, cache)
        made.append(head.logits(state))
    return np.array(mx.concatenate(made, axis=1)[0])
