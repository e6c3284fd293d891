"""What a pack makes of text, by content: its body, its tokenizer and its chat template. Its head changes no text."""

from __future__ import annotations

import hashlib

from mtplxd.packs.fingerprint import body_fingerprint
from mtplxd.packs.pack import Pack

_FILES = (
    "tokenizer.json", "tokenizer.model", "tokenizer_config.json", "special_tokens_map.json", "chat_template.jinja",
    "chat_template.json",
)  # fmt: skip


def text_fingerprint(pack: Pack) -> str:
    """`sha256:…`. Reads all weights once, as `body_fingerprint` does. Raises OSError, DataLoss."""
    found = hashlib.sha256(body_fingerprint(pack).encode())
    for name in _FILES:
        if (path := pack.path / name).is_file():
            content = hashlib.sha256(path.read_bytes()).hexdigest()
            found.update(f"\n{name} {content}".encode())
    return f"sha256:{found.hexdigest()}"
