"""What a session may be called, what its forks are called, and how its ids are packed."""

from __future__ import annotations

from itertools import islice

import pytest
from hypothesis import given
from hypothesis import strategies as st
from mtplxd.errors import InvalidArgument
from mtplxd.store.conversation import LONGEST_NAME, check_name, fork_names, pack_ids, shared, unpack_ids


@pytest.mark.parametrize(
    "name", ["work", "Work-2", "a", "2026.11.30", "größe", "仕事", "x_y", "w" * LONGEST_NAME]
)
def test_names_that_can_be(name: str) -> None:
    assert check_name(f" {name} ") == name


@pytest.mark.parametrize(
    "name",
    [
        "",
        " ",
        "-x",
        ".hidden",
        "_x",
        "a b",
        "a/b",
        "..",
        "a\nb",
        "a\x00b",
        "w" * (LONGEST_NAME + 1),
        "😀",
        "a:b",
    ],
)
def test_names_that_cannot(name: str) -> None:
    with pytest.raises(InvalidArgument) as refused:
        check_name(name, "to")
    assert refused.value.field == "to"
    assert "letters, digits" in refused.value.fix
    assert len(str(refused.value)) < 300


def test_one_name_however_it_is_typed() -> None:
    assert check_name("gro\u0308\u00dfe") == check_name("gr\u00f6\u00dfe")


def test_forks_are_numbered_and_are_names_themselves() -> None:
    assert list(islice(fork_names("work"), 2)) == ["work-2", "work-3"]
    for name in islice(fork_names("w" * LONGEST_NAME), 12):
        assert check_name(name) == name


@given(st.lists(st.integers(0, 2**32 - 1), max_size=40))
def test_ids_are_packed_in_four_bytes_each_and_come_back(ids: list[int]) -> None:
    packed = pack_ids(ids)
    assert len(packed) == 4 * len(ids)
    assert unpack_ids(packed) == tuple(ids)


def test_ids_are_little_endian_on_every_machine() -> None:
    assert pack_ids([1, 2**24]) == b"\x01\0\0\0\0\0\0\x01"


@given(st.lists(st.integers(0, 2), max_size=8), st.lists(st.integers(0, 2), max_size=8))
def test_what_two_chains_share_is_their_longest_beginning(one: list[int], two: list[int]) -> None:
    count = shared(one, two)
    assert one[:count] == two[:count]
    assert count == min(len(one), len(two)) or one[count] != two[count]
