"""When absorbing the latent projections into the queries is less work than spreading the cache out. Pure arithmetic."""

from __future__ import annotations


def absorbing_pays(length: int, slots: int, rank: int, width: int) -> bool:
    """Whether `length` positions over `slots` slots, their own included, take fewer products absorbed.

    `rank` is the latent's size, `width` a head's key and value dimensions together, without the rotary part. Per head,
    absorbed takes length·rank·(width + 2·slots) products and spread out slots·width·(rank + length), so absorbed wins
    below length = rank·width / (rank·width / slots + 2·rank − width). A cold cache is spread out where the latent is
    more than half as large as what it holds.
    """
    return length * (rank * width / slots + 2 * rank - width) < rank * width
