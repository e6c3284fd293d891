"""What one family says of its published head: where its tensors go, how it is fed, what it may draft.

The rows are in the files beside it, one a family. Nothing is bound or run here.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Literal

from mtplxd.errors import FailedPrecondition
from mtplxd.families.protocols import LayerCache
from mtplxd.packs.manifest import HEAD_SETTINGS
from mtplxd.platform.mlx import Array

Weights = dict[str, Array]
"""Tensors of one drafting layer, by their path in `module.HeadLayer`."""
KeyMap = Callable[[str, int], tuple[int, str]]
"""Takes a published name without its wrap, and the body's layer count; gives the drafting layer and the path in it."""
Convert = Callable[[Weights, Any], Weights]
"""Changes tensors as published into those of mlx-lm's classes; takes the body's arguments too."""

SWITCHES = {name: HEAD_SETTINGS[name] for name in ("tap", "recursion", "concat", "norm_convention")}
"""What a pack may say of a head that has keys and values of its own, with the values there are."""


@dataclass(frozen=True)
class HeadSettings:
    """How a head is fed: the body's hidden after or before its final norm, its own state after or before the output
    norm, which half of the joined input comes first, and whether stored norm weights lack a 1."""

    tap: str = "post"
    recursion: str = "post"
    concat: str = "embed_first"
    norm_convention: str = "as_stored"

    def overridden(self, stated: Mapping[str, Any], where: str) -> HeadSettings:
        """With the switches that a pack states. Raises FailedPrecondition for a value that there is none of."""
        found = {name: stated[name] for name in SWITCHES if stated.get(name) is not None}
        for name, value in found.items():
            if value not in SWITCHES[name]:
                allowed = " or ".join(SWITCHES[name])
                raise FailedPrecondition(
                    "a setting of this pack's head is not known",
                    f"{name} {value!r} of {where}",
                    f"write {allowed}",
                )
        return replace(self, **found)


@dataclass(frozen=True)
class HeadFamily:
    """One family's head. `scheme` is the row of `packs.layouts` that its tensors follow, `types` the model types.

    `block(args, j)` builds drafting layer j's block from mlx-lm's classes, `cache(args, j, rows)` what it remembers,
    `mask(args, cache, L)` what its L new positions see. `args` are the text model's arguments, `eps` names their
    field of the norms' epsilon. An embedding or output matrix of `own` must be among the tensors; one of the body's
    may be there as a copy. `settings.norm_convention` may be `decide`: from the values. Where there are several layers
    each drafts one token, and takes as hidden what `chained` says: the layer before's state (unsaid as well), or the
    target's. A family that says it never feeds a single layer on. `driver(config)` is the class that drives a single
    layer, None for the usual one.
    """

    name: str
    types: frozenset[str]
    scheme: str
    keys: KeyMap
    block: Callable[[Any, int], Any]
    cache: Callable[[Any, int, int], LayerCache]
    mask: Callable[[Any, Any, int], Any]
    convert: tuple[Convert, ...] = ()
    settings: HeadSettings = HeadSettings()
    eps: str = "rms_norm_eps"
    output_norm: bool = True
    embedding: Literal["body", "own"] = "body"
    output: Literal["body", "own"] = "body"
    chained: Literal["", "state", "target"] = ""
    driver: Callable[[Mapping[str, Any]], type[Any] | None] = lambda _config: None


def placed(pattern: str, parts: Mapping[str, str], *, appended: bool = False) -> KeyMap:
    """The key map of names that begin with `pattern`, whose one group is the layer's number (none for the first).

    `parts` maps how the rest may begin to a path; all else belongs to the block. `appended` numbers go on after the
    body's.
    """

    def place(name: str, layers: int) -> tuple[int, str]:
        found = re.match(pattern, name)
        if not found:
            return 0, name  # is none of the module's paths, so that binding names it
        rest, number = name[found.end() :], int(found[1] or 0)
        path = next((path + rest[len(part) :] for part, path in parts.items() if rest.startswith(part)), "")
        return number - (layers if appended else 0), path or f"block.{rest}"

    return place


def causal_mask(_args: Any, cache: Any, count: int) -> Any:
    """What grouped-query attention takes, over all positions or over the cache's window."""
    return cache.make_mask(count)


def array_mask(_args: Any, cache: Any, count: int) -> Any:
    """What latent attention takes: always an array."""
    return cache.make_mask(count, return_array=True)


def first_array_mask(_args: Any, cache: Any, count: int) -> Any:
    """Of a pair of caches, the first one's, as an array."""
    return cache[0].make_mask(count, return_array=True)
