"""The `adapter` head: a block trained for a body that ships no head of its own. Algebra only; training is `forge`.

DeepSeek-V3's multi-token-prediction module (arXiv 2412.19437, section 2.2) with several taps of the body joined, as
EAGLE-3 (arXiv 2503.01840) does. For a pair (taps of t_i, t_{i+1}):

    x = fc · [ enorm(E[t_{i+1}]) ; hnorm_0(tap_0) ; … ; hnorm_{T-1}(tap_{T-1}) ]
    y = block(x)            one block of the body's own kind, with keys and values of its own
    z = norm(y)             logits = z · O[draft vocabulary]ᵀ

A recursion pair (z, draft) puts z in the last tap's place and learned vectors `absent` in the places before it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from mtplxd.families.anatomy import find_anatomy
from mtplxd.families.caches import RowCache
from mtplxd.families.protocols import LayerCache, Taps
from mtplxd.packs.layouts.adapter import BlockSizes
from mtplxd.platform.mlx import Array, mx, nn, tree


class AdapterModule(nn.Module):  # type: ignore[misc]
    """The trainable parameters. `block` is a block of the body's own kind; sizes: H hidden, T taps."""

    def __init__(self, block: Any, hidden: int, taps: int, eps: float) -> None:
        super().__init__()
        self.enorm = nn.RMSNorm(hidden, eps=eps)
        self.hnorm = [nn.RMSNorm(hidden, eps=eps) for _ in range(taps)]
        self.absent = [mx.zeros((hidden,)) for _ in range(taps - 1)]
        self.fc = nn.Linear((1 + taps) * hidden, hidden, bias=False)
        self.layers = [block]
        self.norm = nn.RMSNorm(hidden, eps=eps)

    def join_taps(self, embedded: Array, taps: Taps) -> Array:
        """True pairs: embedded [B, L, H] and T taps [B, L, H] to the block's input [B, L, H]."""
        normed = [norm(tap) for norm, tap in zip(self.hnorm, taps, strict=True)]
        return self.fc(mx.concatenate([self.enorm(embedded), *normed], axis=-1))

    def join_state(self, embedded: Array, state: Array) -> Array:
        """Recursion pairs: embedded and z, both [B, L, H], to the block's input [B, L, H]."""
        absent = [mx.broadcast_to(vector, embedded.shape) for vector in self.absent]
        return self.fc(mx.concatenate([self.enorm(embedded), *absent, self.hnorm[-1](state)], axis=-1))

    def run_block(self, joined: Array, mask: Any, cache: Any) -> Array:
        """The block and the output norm: z [B, L, H]."""
        return self.norm(self.layers[0](joined, mask, cache))


class AdapterHead:
    """Drives an AdapterModule behind the engine's `Head`."""

    def __init__(self, module: AdapterModule, body: Any, draft_vocab: Array | None, depth_max: int) -> None:
        self.module = module
        self.depth_max = depth_max
        self.draft_vocab = draft_vocab
        self._embed = body.embedding
        rows = body.output_weight if draft_vocab is None else body.output_weight[draft_vocab]
        self._output = mx.contiguous(rows)
        mx.eval(self._output)

    def make_cache(self, rows: int, body_cache: Sequence[LayerCache]) -> list[LayerCache]:  # noqa: ARG002
        """Empty caches, one for the one block; the body's are of no use to it."""
        return [RowCache(rows)]

    def absorb(self, tokens: Array, taps: Taps, cache: list[LayerCache]) -> Array:
        """Runs true pairs; gives z [B, L, H]."""
        return self._block(self.module.join_taps(self._embed(tokens), taps), cache)

    def extend(self, tokens: Array, state: Array, cache: list[LayerCache]) -> Array:
        """Runs recursion pairs; gives z [B, 1, H]."""
        return self._block(self.module.join_state(self._embed(tokens), state), cache)

    def logits(self, state: Array) -> Array:
        """z [..., H] to logits over the draft vocabulary [..., D]."""
        return state @ self._output.T

    def _block(self, joined: Array, cache: list[LayerCache]) -> Array:
        layer: Any = cache[0]
        return self.module.run_block(joined, layer.make_mask(joined.shape[1]), layer)

    @property
    def nbytes(self) -> int:
        """Bytes of the parameters and of the copied rows of the output matrix."""
        parameters = tree.tree_flatten(self.module.parameters())
        copied = self._output.nbytes if self.draft_vocab is not None else 0
        return int(sum(array.nbytes for _, array in parameters) + copied)


def build_module(model: Any, taps: int, mlp_width: int, sizes: BlockSizes | None = None) -> AdapterModule:
    """An untrained module with an MLP of `mlp_width`. Its block is of the kind of the body's last one, with `sizes` a
    plain one of the llama family."""
    if sizes is None:
        args = replace(model.args, intermediate_size=mlp_width)
        return AdapterModule(type(model.layers[-1])(args), args.hidden_size, taps, args.rms_norm_eps)
    hidden = hidden_size_of(model)
    return AdapterModule(_plain_block(hidden, mlp_width, sizes), hidden, taps, sizes.eps)


def sizes_beside(model: Any, config: Mapping[str, Any]) -> BlockSizes | None:
    """The sizes of a block for a body, None where its own kind of block will do; `config` is the language model's."""
    if type(model.layers[-1]).__module__ == "mlx_lm.models.llama":
        return None
    hidden = hidden_size_of(model)
    head_dim = next(size for size in (64, 32, 16, 8, 4, 2, 1) if hidden % size == 0 and hidden // size > 1)
    heads = hidden // head_dim
    return BlockSizes(
        heads=heads,
        kv_heads=next(share for share in (heads // 4, heads // 2, heads) if share and heads % share == 0),
        head_dim=head_dim,
        rope_theta=_positive(config.get("rope_theta"), 10000.0),
        eps=_positive(config.get("rms_norm_eps"), 1e-5),
    )


def hidden_size_of(model: Any) -> int:
    """The width of a body's hidden states, whatever its arguments call it."""
    anatomy = find_anatomy(model)
    return int(getattr(anatomy.inner, anatomy.norm_name).weight.shape[0])


def _plain_block(hidden: int, mlp_width: int, sizes: BlockSizes) -> Any:
    from mlx_lm.models.llama import ModelArgs, TransformerBlock

    return TransformerBlock(
        ModelArgs(
            model_type="llama",
            hidden_size=hidden,
            num_hidden_layers=1,
            intermediate_size=mlp_width,
            num_attention_heads=sizes.heads,
            num_key_value_heads=sizes.kv_heads,
            head_dim=sizes.head_dim,
            rms_norm_eps=sizes.eps,
            rope_theta=sizes.rope_theta,
            vocab_size=1,
        )
    )


def _positive(value: Any, otherwise: float) -> float:
    return float(value) if type(value) in (int, float) and value > 0 else otherwise
