"""Which tensors of a checkpoint are of what sees or hears: text alone is driven here, and what is left out is said."""

from __future__ import annotations

import re

from mtplxd.packs.pack import Located

_SENSES = re.compile(
    r"(?:model\.)?(?:vision_tower|vision_model|vision_embedder|visual|multi_modal_projector|mm_projector"
    r"|audio_tower|embed_vision|embed_audio)\."
)


def is_of_senses(name: str) -> bool:
    """Whether a stored name is of what sees or hears."""
    return _SENSES.match(name) is not None


def senses_of(tensors: Located) -> Located:
    """Those of a body's tensors."""
    return {name: place for name, place in tensors.items() if is_of_senses(name)}


def say_left_out(left_out: Located) -> tuple[str, ...]:
    """What a pack of text lacks of its source, in a sentence; nothing where it lacks nothing."""
    if not left_out:
        return ()
    size = sum(info.nbytes for _, info in left_out.values())
    return (f"text only: {len(left_out)} tensors ({size} bytes) of what sees or hears are left out",)
