"""`mtplx_runtime.json`: the contract file of a pack. The field's names are kept, ours are in block `mtplxd`.

It reads and writes the file and never judges it: that is `tiers`.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from mtplxd.errors import DataLoss
from mtplxd.files import write_atomically

FILE_NAME = "mtplx_runtime.json"
FORMAT = 1
"""Newest version of our block that this build reads."""
HEAD_SETTINGS: Mapping[str, tuple[str, ...]] = {
    "tap": ("post", "pre"),
    "recursion": ("post", "pre"),
    "concat": ("embed_first", "hidden_first"),
    "norm_convention": ("as_stored", "zero_centred"),
    "position": ("hidden", "token"),
}
"""What a pack may say of how its published head is fed, and the values there are. `position` is that of a drafter
which has one for a whole block: that of the hidden state it begins with, or of the token behind it."""

_HIDDEN = {"post_norm": "post", "pre_norm": "pre", "post": "post", "pre": "pre"}
_ORDER = {"embedding_hidden": "embed_first", "hidden_embedding": "hidden_first"}
_SWITCHES: Mapping[str, tuple[str, Mapping[str, str]]] = {
    "base_hidden_variant": ("tap", _HIDDEN),
    "hidden_variant": ("recursion", _HIDDEN),
    "concat_order": ("concat", {**_ORDER, **{name: name for name in _ORDER.values()}}),
}
"""By the name in the field's `mtp_contract`: ours for the same switch, and ours for each value."""
_POSITIONS = (None, "cache")


@dataclass(frozen=True)
class Manifest:
    """The whole document; fields nobody here knows are kept when it is written again."""

    fields: dict[str, Any]

    @property
    def ours(self) -> dict[str, Any]:
        """The block `mtplxd`; empty in a pack published for MTPLX alone."""
        return table(self.fields, "mtplxd")

    @property
    def format(self) -> int:
        """Version of our block, 0 without one."""
        return int(self.ours.get("format", 0))

    @property
    def body_fingerprint(self) -> str | None:
        """As recorded when the pack was made; the files may have changed since."""
        return _text(table(self.ours, "fingerprint"), "body")

    @property
    def head_fingerprint(self) -> str | None:
        """As recorded when the head was put in; the files may have changed since."""
        return _text(table(self.ours, "fingerprint"), "head")

    @property
    def verification(self) -> dict[str, Any]:
        """The record of the last verification that counted, empty without one. What it is worth is `tiers`'."""
        return table(self.ours, "verification")

    @property
    def training(self) -> dict[str, Any]:
        return table(self.ours, "training")

    @property
    def depth_max(self) -> int | None:
        """The field's `mtp_depth_max`."""
        value = self.fields.get("mtp_depth_max")
        return value if type(value) is int and value > 0 else None

    @property
    def head_settings(self) -> dict[str, Any]:
        """How the head is to be fed, under our names; our own block goes before the field's `mtp_contract`.

        A value that nobody here knows stays as it is, so that whoever drives the head can name it.
        """
        contract, ours = table(self.fields, "mtp_contract"), table(self.ours, "head")
        stated = {
            name: values.get(str(contract[field]), contract[field])
            for field, (name, values) in _SWITCHES.items()
            if contract.get(field) is not None
        }
        return {**stated, **{name: value for name, value in ours.items() if value is not None}}

    @property
    def strange_settings(self) -> tuple[str, ...]:
        """What is asked of a published head that no module here does, as `name value`."""
        stated = self.head_settings
        position = table(self.fields, "mtp_contract").get("mtp_position_mode")
        strange = [
            f"{name} {stated[name]!r}"
            for name, known in HEAD_SETTINGS.items()
            if stated.get(name) is not None and stated[name] not in known
        ]
        return (*strange, *([] if position in _POSITIONS else [f"mtp_position_mode {position!r}"]))

    def with_head_settings(self, settings: Mapping[str, str]) -> Manifest:
        """With how the head is fed, under our names and under the field's."""
        contract = dict(table(self.fields, "mtp_contract"))
        for field, (name, values) in _SWITCHES.items():
            if name in settings:
                contract[field] = next(word for word, ours in values.items() if ours == settings[name])
        changed = self.with_ours(head={**table(self.ours, "head"), **settings})
        return Manifest({**changed.fields, **({"mtp_contract": contract} if contract else {})})

    def with_ours(self, **changed: Any) -> Manifest:
        """With fields of the block `mtplxd` set."""
        return Manifest({**self.fields, "mtplxd": {**self.ours, **changed}})


def read_manifest(folder: Path) -> Manifest | None:
    """The manifest of a pack's folder, None without one. Raises DataLoss when it cannot be read."""
    path = folder / FILE_NAME
    try:
        content = path.read_bytes()
    except FileNotFoundError:
        return None
    except OSError:
        raise _damaged(path) from None
    return parse_manifest(content, path)


def parse_manifest(content: bytes, path: Path) -> Manifest:
    """The manifest that a file holds; `path` is how an error names it. Raises DataLoss."""
    try:
        fields = json.loads(content.decode("utf-8"))
    except (ValueError, RecursionError):
        raise _damaged(path) from None
    if not isinstance(fields, dict) or type(Manifest(fields).ours.get("format", 0)) is not int:
        raise _damaged(path)
    return Manifest(fields)


def _damaged(path: Path) -> DataLoss:
    return DataLoss("damaged contract file", path, "pull or build the pack again")


def write_manifest(folder: Path, manifest: Manifest) -> None:
    """Replaces the manifest of a folder atomically. Raises OSError and leaves the old one.

    A link is replaced and what it leads to left alone: in Hugging Face's cache that is named by its content.
    """
    text = json.dumps(manifest.fields, ensure_ascii=False, indent=2)
    write_atomically(folder / FILE_NAME, text.encode() + b"\n", through_link=False)


def table(fields: Mapping[str, Any], name: str) -> dict[str, Any]:
    """A field that holds a table, empty where it does not."""
    value = fields.get(name)
    return value if isinstance(value, dict) else {}


def _text(fields: Mapping[str, Any], name: str) -> str | None:
    """A field that holds text, None where it does not."""
    value = fields.get(name)
    return value if isinstance(value, str) else None
