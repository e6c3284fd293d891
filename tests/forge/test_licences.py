"""A checkpoint's licence is what its card says, else what the licence's text shows, and never guessed."""

from __future__ import annotations

from pathlib import Path

import mtplxd.packs.assemble as assemble
import pytest
from mtplxd.forge.licence import front_matter, licence_of
from mtplxd.packs.folder import LocalFolder

APACHE = (Path(assemble.__file__).parent / "licences" / "Apache-2.0.txt").read_text(encoding="utf-8")
MIT = "MIT License\n\nCopyright (c) 2026\n\nPermission is hereby granted, free of charge, to any person"
BSD = (
    "Redistribution and use in source …\nNeither the name of the copyright holder nor\n"
    "the names of its contributors may be used to endorse"
)


def licence(folder: Path, files: dict[str, str]) -> str | None:
    for name, text in files.items():
        (folder / name).write_text(text, encoding="utf-8")
    return licence_of(LocalFolder(folder))


@pytest.mark.parametrize(
    ("files", "stated"),
    [
        ({"README.md": "---\nlicense: apache-2.0\ntags:\n- x\n---\n# a"}, "apache-2.0"),
        ({"README.md": "---\r\ntags: []\r\nlicense: 'MIT'\r\n---\r\n# a"}, "mit"),
        ({"README.md": "---\nlicense: [gemma]\n---"}, "gemma"),
        ({"README.md": "---\nlicense: other\nlicense_name: modified-mit\n---\n"}, "modified-mit"),
        ({"README.md": "---\nlicense: other\n---\n", "LICENSE": MIT}, "other"),
        ({"README.md": "---\nlicense: mit\n---\n", "LICENSE": APACHE}, "mit"),
        ({"README.md": "# license: mit\nno head\n---\nlicense: mit\n---\n"}, None),
        ({"README.md": "# a", "LICENSE": APACHE}, "apache-2.0"),
        ({"LICENSE.txt": MIT}, "mit"),
        ({"licence.md": BSD}, "bsd-3-clause"),
        ({"LICENSE": "GNU AFFERO GENERAL PUBLIC LICENSE\n   Version 3, 19 November 2007"}, "agpl-3.0"),
        ({"LICENSE": "GNU GENERAL PUBLIC LICENSE\n   Version 3, 29 June 2007"}, "gpl-3.0"),
        ({"COPYING": "GNU GENERAL PUBLIC LICENSE\n   Version 3, 29 June 2007"}, "gpl-3.0"),
        ({"LICENSE": "do as you like"}, "other"),
        ({"LICENSES.json": "{}", "config.json": "{}"}, None),
        ({}, None),
    ],
)
def test_what_a_checkpoint_states(tmp_path: Path, files: dict[str, str], stated: str | None) -> None:
    assert licence(tmp_path, files) == stated


def test_the_head_of_a_card_ends_where_it_ends() -> None:
    assert front_matter('---\na: 1\nb: "two"\nlist:\n- x\n---\nc: 3\n---\n') == {"a": "1", "b": "two"}
    assert front_matter("---\na: 1\n") == {}
    assert front_matter("") == {}
