"""The benchmark prompts' recorded token ids are what the real tokenizer makes of them."""

from __future__ import annotations

import json
from pathlib import Path

from mtplxd.families.tokenizer import Tokenizer
from mtplxd.packs.pack import Pack

ROOT = Path(__file__).parents[2]


def test_recorded_ids_are_the_tokenizers(real_pack: Pack) -> None:
    tokenizer = Tokenizer(real_pack.path)
    recorded = json.loads((ROOT / "tests/data/suite_ids.json").read_text())["ids"]
    suite = json.loads((ROOT / "daemon/mtplxd/tune/suites/mixed.json").read_text())
    found = {prompt["id"]: tokenizer.encode(prompt["messages"][-1]["content"]) for prompt in suite["prompts"]}
    assert found == recorded
