"""Which texts name a repository, and which folder each gets."""

from __future__ import annotations

import pytest
from mtplxd.errors import InvalidArgument
from mtplxd.packs.hub.names import RepositoryName, find_repository, parse_repository
from mtplxd.packs.resolver import is_pack_name

COMMIT = "0123456789abcdef0123456789abcdef01234567"


@pytest.mark.parametrize(
    ("written", "meant"),
    [
        ("org/name", RepositoryName("org/name")),
        ("org/name@main", RepositoryName("org/name")),
        ("zai-org/GLM-4.7-Flash", RepositoryName("zai-org/GLM-4.7-Flash")),
        ("a_b/C.d_e-f@v1.0", RepositoryName("a_b/C.d_e-f", "v1.0")),
        ("org/name@refs/pr/1", RepositoryName("org/name", "refs/pr/1")),
        (f"org/name@{COMMIT}", RepositoryName("org/name", COMMIT)),
    ],
)
def test_a_repository_is_read_from_its_name(written: str, meant: RepositoryName) -> None:
    assert find_repository(written) == meant
    assert find_repository(str(meant)) == meant
    assert is_pack_name(meant.folder)
    assert meant.commit == (COMMIT if COMMIT in written else None)


@pytest.mark.parametrize(
    "text",
    [
        "", "name", "/org/name", "./org/name", "../name", "org/name/more", "org//name", "org/", "/name", "org/..",
        "o rg/name", "org/na--me", "org/name@", "org/name@../x", "org/name@a//b", "org/name@a--b", "org/name@a/",
        "org/.name", "org/name.", "-org/name", "org/name\n", "org/na\0me", "https://huggingface.co/org/name",
        "org/" + "a" * 97, "org/name@" + "a" * 101, "org/name.git",
    ],
)  # fmt: skip
def test_other_texts_are_none(text: str) -> None:
    assert find_repository(text) is None
    with pytest.raises(InvalidArgument) as raised:
        parse_repository(text)
    assert "\n" not in str(raised.value)


def test_no_two_repositories_share_a_folder() -> None:
    names = ["org/name", "org/name@a", "org/name@a/b", "org/name@a-b", "org-name/a", "org/name-a"]
    assert len({parse_repository(name).folder for name in names}) == len(names)
