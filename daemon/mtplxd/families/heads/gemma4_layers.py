"""The parameters of a Gemma 4 assistant, and its forward over keys and values of the target that it is handed.

    x = pre_projection · [ E_target[token] · √Hb ; hidden ]     hidden of the target, or the last step fed back
    y = blocks(x)            queries only; every layer attends to the target's keys and values of its own kind
    r = norm(y)              logits = r · Eᵀ of the assistant's own table, fed back = post_projection · r

Which keys and values those are, and when they are read, is not decided here.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from mtplxd.platform.mlx import Array, mx, nn

SLIDING, FULL = "sliding_attention", "full_attention"
CLUSTERS_SCORED = 32
"""Clusters whose tokens get logits where the config does not say."""


class Seen(NamedTuple):
    """What queries of one kind of layer attend to: [B, heads, S, dim] twice, and a mask [B, 1, 1, S] or none."""

    keys: Array
    values: Array
    mask: Array | None


class AssistantModule(nn.Module):  # type: ignore[misc]
    """The whole assistant, its parameters named as published. h is its hidden size, Hb the target's."""

    def __init__(self, config: Mapping[str, Any]) -> None:
        super().__init__()
        args = _arguments(config)
        hidden, backbone = args.hidden_size, config["backbone_hidden_size"]
        self.window: int = args.sliding_window
        self._scale = backbone**0.5
        self.pre_projection = nn.Linear(2 * backbone, hidden, bias=False)
        self.post_projection = nn.Linear(hidden, backbone, bias=False)
        self.model = _Blocks(args)
        if config.get("use_ordered_embeddings"):
            top = config.get("centroid_intermediate_top_k") or CLUSTERS_SCORED
            self.masked_embedding = OrderedOutput(args.vocab_size, hidden, config["num_centroids"], top)

    def join(self, embedded: Array, hidden: Array) -> Array:
        """Rows of the target's table and hidden states, both [B, L, Hb], to the blocks' input [B, L, h]."""
        return self.pre_projection(mx.concatenate([embedded * self._scale, hidden], axis=-1))

    def run(self, x: Array, seen: Mapping[str, Seen], position: int | Array) -> Array:
        """The blocks at one position a row, the same for all of x [B, L, h]; gives y [B, L, h]."""
        for layer in self.model.layers:
            keys, values, mask = seen[layer.layer_type]
            x, _, _ = layer(x, mask, None, shared_kv=(keys, values), offset=position)
        return x

    def feed_back(self, y: Array) -> Array:
        """y [B, L, h] to what stands in the hidden state's place at the next step, [B, L, Hb]."""
        return self.post_projection(self.model.norm(y))

    def logits(self, y: Array) -> Array:
        """y [..., h] to logits over the whole vocabulary [..., V]."""
        r = self.model.norm(y)
        if "masked_embedding" in self:
            return self.masked_embedding(r, self.model.embed_tokens)
        return self.model.embed_tokens.as_linear(r)


class _Blocks(nn.Module):  # type: ignore[misc]
    def __init__(self, args: Any) -> None:
        from mlx_lm.models.gemma4_text import DecoderLayer

        super().__init__()
        self.embed_tokens = nn.Embedding(args.vocab_size, args.hidden_size)
        self.layers = [DecoderLayer(args, layer) for layer in range(args.num_hidden_layers)]
        self.norm = nn.RMSNorm(args.hidden_size, eps=args.rms_norm_eps)
        for layer in self.layers:
            layer.self_attn.rope = _OnePosition(layer.self_attn.rope)


class OrderedOutput(nn.Module):  # type: ignore[misc]
    """Logits for the tokens of the best clusters only; all others share one value below every one of those.

    `token_ordering` lists the tokens cluster by cluster, V / C each.
    """

    def __init__(self, vocab: int, hidden: int, clusters: int, top: int) -> None:
        super().__init__()
        self.centroids = nn.Linear(hidden, clusters, bias=False)
        self.token_ordering = mx.zeros((vocab,), mx.int32)
        self._clusters, self._top, self._vocab = clusters, min(top, clusters), vocab

    def __call__(self, r: Array, embedding: Any) -> Array:
        """Normed r [..., h] and the assistant's own table to logits [..., V]."""
        best = mx.argpartition(-self.centroids(r), kth=self._top - 1, axis=-1)[..., : self._top]
        ids = self.token_ordering.reshape(self._clusters, -1)[best].flatten(-2)
        scored = (embedding(ids) @ r[..., None]).squeeze(-1)
        rest = mx.broadcast_to(scored.min(axis=-1, keepdims=True) - 1, (*r.shape[:-1], self._vocab))
        return mx.put_along_axis(rest, ids, scored, axis=-1)


class _OnePosition:
    """Rotates all queries of a row as if they stood at one position. No module: it has no parameters."""

    def __init__(self, rope: Any) -> None:
        self._rope = rope

    def __call__(self, queries: Array, offset: int | Array) -> Array:
        rows, heads, count, dim = queries.shape
        return self._rope(queries.reshape(rows, heads * count, 1, dim), offset=offset).reshape(queries.shape)


def _arguments(config: Mapping[str, Any]) -> Any:
    """mlx-lm's settings of a Gemma 4 text model all of whose layers take their keys and values from elsewhere."""
    from mlx_lm.models.gemma4_text import ModelArgs

    layers = len(config["layer_types"])
    own = {
        "num_hidden_layers": layers,
        "num_kv_shared_layers": layers,
        "hidden_size_per_layer_input": 0,
        "use_double_wide_mlp": False,
        "enable_moe_block": False,
        "attention_k_eq_v": False,
    }
    return ModelArgs.from_dict({**config, **own})
