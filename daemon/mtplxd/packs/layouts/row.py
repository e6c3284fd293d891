"""What one row of the table of head layouts says. The rows are in the files beside it, reading files is not here."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from mtplxd.packs.headers import TensorInfo

Tensors = Mapping[str, TensorInfo]
Shapes = dict[str, tuple[int, ...]]
Config = Mapping[str, Any]
Kind = Literal["prefix", "language_model_prefix", "appended", "namespace", "assistant", "adapter"]

SINGLE_LAYER_DEPTH = 8
"""Depth a single layer may be fed to recursively when its file does not say."""
MAX_LAYERS = 16
"""More layers than any head has; a name with a higher number is left over, not counted up to."""
WRAPS = ("", "model.", "language_model.", "language_model.model.", "model.language_model.")
"""What may stand before a head's names, depending on what wraps the language model; tried in this order."""


@dataclass(frozen=True)
class Seen:
    """What a row's rules look at: the config that describes the head's body, the tensors by bare name, and the free
    text of the head's own file."""

    config: Config
    tensors: Tensors
    metadata: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Layout:
    """One way of storing a head. All names here are without the wrap before them; `{N}` is the body's layer count.

    `owns(name, N)` says which names lie in the head's namespace, `signature` are keys that only this layout has.
    `expected` gives every tensor with its shape, or raises KeyError or ValueError naming what the config lacks;
    `problems` says what is wrong with the metadata. `copies` are endings of tensors that may be there and repeat
    the body's part, `aliases` the parts it takes from the body. `any_family` says of a head that it brings all it needs
    to be driven beside a body of whichever family. A layout that is known but cannot be driven says
    why in `unsupported`.
    """

    name: str
    kind: Kind
    families: frozenset[str]
    owns: Callable[[str, int], bool]
    signature: tuple[str, ...] = ()
    home: str = ""
    expected: Callable[[Seen], Shapes] = lambda _: {}
    problems: Callable[[Seen], list[str]] = lambda _: []
    layers: Callable[[Seen], int] = lambda _: 1
    depth: Callable[[Seen], int] = lambda _: SINGLE_LAYER_DEPTH
    prefix: str = "mtp."
    aliases: tuple[str, ...] = ("embed_tokens", "lm_head")
    copies: Mapping[str, str] = field(default_factory=dict)
    unsupported: str = ""
    any_family: Callable[[Seen], bool] = lambda _: False


def under(*prefixes: str) -> Callable[[str, int], bool]:
    """Owns the names that start with one of these."""
    return lambda name, _layers: name.startswith(prefixes)


_LAYER = re.compile(r"layers\.(\d{1,6})\.")


def layer_of(name: str) -> int:
    """The number in `layers.3.mlp…`, -1 where the name has none."""
    found = _LAYER.match(name)
    return int(found[1]) if found else -1


def appended(name: str, layers: int) -> bool:
    """Whether a name lies in a layer after the body's last."""
    return 0 < layers <= layer_of(name)


def indexes(tensors: Tensors, pattern: str) -> list[int]:
    """0 to the highest number that `pattern`'s group finds; a hole shows as missing tensors. At least [0]."""
    found = {int(match[1]) for name in tensors if (match := re.match(pattern, name))}
    return list(range(min(max(found, default=0), MAX_LAYERS - 1) + 1))


def numbered(pattern: str) -> Callable[[Seen], int]:
    """Counts the layers whose number `pattern`'s group finds."""
    return lambda seen: len(indexes(seen.tensors, pattern))


def recursive_alone(layers: Callable[[Seen], int]) -> Callable[[Seen], int]:
    """As deep as there are layers where several draft one position each; a single one is fed recursively."""
    return lambda seen: layers(seen) if layers(seen) > 1 else SINGLE_LAYER_DEPTH
