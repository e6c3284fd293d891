"""Turns a loaded model's latent attentions into ones that absorb where it pays, after each kind was tried.

An instance is moved into a subclass of its own class: its parameters keep their names and their place in the model's
tree. Everything the absorbed forward is not meant for goes through the class's own forward unchanged.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache as remember
from typing import Any

from mtplxd.families.latent.check import find_difference
from mtplxd.families.latent.crossover import absorbing_pays
from mtplxd.families.latent.forms import Form, form_of, keeps_latents
from mtplxd.families.latent.forward import attend_absorbed
from mtplxd.platform.mlx import Array


class _Absorbing:
    """What all the subclasses have in common: nothing but being them."""


def absorb_latent(model: Any) -> list[str]:
    """Installs the absorbed path in every latent attention under `model`, a body or a head's blocks with its weights.

    Gives a reason for every kind of attention that was left as it is, to be listed among the model's troubles; none
    where there is no such attention. Must run before layers are recorded, which leaves them out of the tree.
    """
    verdicts: dict[tuple[Any, ...], str | None] = {}
    for _, module in model.named_modules():
        if not keeps_latents(module) or isinstance(module, _Absorbing):
            continue
        kind = _kind_of(module)
        if kind not in verdicts:
            verdicts[kind] = _refuse(module)
        stock: Any = type(module)
        form = form_of(stock)
        if form is not None and verdicts[kind] is None:
            module.__class__ = _absorbing(stock, form)
    return [reason for reason in verdicts.values() if reason is not None]


def _kind_of(attention: Any) -> tuple[Any, ...]:
    """Instances that differ in this may compute differently."""
    if form_of(type(attention)) is None:
        return (type(attention),)
    parts = (attention.embed_q, attention.unembed_out)
    return (type(attention), *((type(part), part.weight.shape, part.weight.dtype) for part in parts))


def _refuse(attention: Any) -> str | None:
    """Why this attention keeps mlx-lm's forward, None where it need not."""
    name = type(attention).__name__
    form = form_of(type(attention))
    if form is None:
        return f"slow verify: {name} is not known"
    difference = find_difference(attention, form)
    return None if difference is None else f"slow verify: {name} {difference}"


@remember
def _absorbing(stock: type, form: Form) -> type:
    """The subclass of one of mlx-lm's classes, made once."""
    forward = _with_factor(stock, form) if form.query_factor else _plain(stock, form)
    return type(f"Absorbing{stock.__name__}", (_Absorbing, stock), {"__call__": forward})


def _plain(stock: Any, form: Form) -> Callable[..., Array]:
    def forward(self: Any, x: Array, mask: Any = None, cache: Any = None) -> Array:
        if _pays(self, form, x, mask, cache):
            return attend_absorbed(self, form, x, mask, cache)
        return stock.__call__(self, x, mask, cache)

    return forward


def _with_factor(stock: Any, form: Form) -> Callable[..., Array]:
    def forward(self: Any, x: Array, factor: Array, mask: Any = None, cache: Any = None) -> Array:
        if _pays(self, form, x, mask, cache):
            return attend_absorbed(self, form, x, mask, cache, factor)
        return stock.__call__(self, x, factor, mask, cache)

    return forward


def _pays(attention: Any, form: Form, x: Array, mask: Any, cache: Any) -> bool:
    if cache is None:
        return False
    length = x.shape[1]
    slots = mask.shape[-1] if isinstance(mask, Array) else _filled(cache, form) + length
    width = attention.qk_nope_head_dim + attention.v_head_dim
    return absorbing_pays(length, slots, attention.kv_lora_rank, width)


def _filled(cache: Any, form: Form) -> int:
    """Slots before this forward's own. Several rows, whose offset is an array, always come with a mask."""
    return int((cache[0] if form.sparse else cache).offset)
