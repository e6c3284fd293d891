"""A pack goes out only when it is verified, says where it comes from, and holds nothing of this machine."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
from mtplxd.forge.card import TRAINED, draft_card
from mtplxd.forge.publishing import Refusal, check_publishable, files_to_publish
from mtplxd.packs.manifest import FILE_NAME
from mtplxd.packs.pack import Pack, read_pack
from mtplxd.paths import Home
from support.publishing import CHIP, FACTS, make_publishable

TOKEN = "hf_" + "C" * 34


@pytest.fixture
def pack(home: Home) -> Pack:
    return make_publishable(home.packs / "tiny-mtp")


def refusals(pack: Pack, home: Home | None, chip: str = CHIP, token: str | None = None) -> list[Refusal]:
    return check_publishable(read_pack(pack.path), home, chip=chip, token=token)


def only(pack: Pack, home: Home | None, **options: str) -> Refusal:
    [refusal] = refusals(pack, home, **options)
    assert refusal.fix
    assert str(refusal).endswith(refusal.fix)
    return refusal


def append(pack: Pack, name: str, text: str) -> None:
    with (pack.path / name).open("a", encoding="utf-8") as file:
        file.write(text)


def test_a_verified_pack_with_card_and_licence_may(pack: Pack, home: Home) -> None:
    assert refusals(pack, home) == []
    assert refusals(pack, None) == []


def test_the_packs_files_go_and_what_lies_beside_them_stays(pack: Pack) -> None:
    for name in (".DS_Store", "notes.txt", "own.py", "mtplx_source.json", "old.bin", "events.log"):
        (pack.path / name).write_text("x")
    (pack.path / "deeper").mkdir()
    (pack.path / "deeper" / "model.safetensors").write_bytes(b"x")
    assert files_to_publish(pack) == [
        "LICENSE", "README.md", "config.json", "generation_config.json", "model.safetensors", "mtp.safetensors",
        FILE_NAME, "tokenizer.json", "tokenizer_config.json",
    ]  # fmt: skip


def test_an_unverified_pack_may_not(pack: Pack, home: Home) -> None:
    contract = json.loads((pack.path / FILE_NAME).read_text())
    contract["mtplxd"]["verification"]["passed"] = False
    (pack.path / FILE_NAME).write_text(json.dumps(contract))
    refusal = only(pack, home)
    assert refusal.what == "it is unverified, its verification did not pass"
    assert "mtplx verify tiny-mtp" in refusal.fix


@pytest.mark.parametrize("file", ["model.safetensors", "mtp.safetensors"])
def test_a_pack_whose_weights_are_not_those_that_were_verified_may_not(
    pack: Pack, home: Home, file: str
) -> None:
    content = bytearray((pack.path / file).read_bytes())
    content[-1] ^= 1
    (pack.path / file).write_bytes(content)
    assert "not the one that was verified" in only(pack, home).what


def test_a_pack_without_a_head_may_not(pack: Pack, home: Home) -> None:
    (pack.path / "mtp.safetensors").unlink()
    assert only(pack, home).what.startswith("it is no-mtp-head")


def test_a_card_is_asked_for(pack: Pack, home: Home) -> None:
    (pack.path / "README.md").unlink()
    assert only(pack, home).what == "it has no card"


def test_a_licence_is_asked_for(pack: Pack, home: Home) -> None:
    (pack.path / "LICENSE").unlink()
    assert refusals(pack, home) == [], "the card states it"
    (pack.path / "README.md").write_text("# tiny")
    assert only(pack, home).what == "neither its card nor a file states a licence"


def test_a_trained_head_is_called_that(home: Home) -> None:
    pack = make_publishable(home.packs / "tiny-mtp")
    contract = json.loads((pack.path / FILE_NAME).read_text())
    contract["mtplxd"]["training"] = {"origin": "trained"}
    (pack.path / FILE_NAME).write_text(json.dumps(contract))
    assert TRAINED in only(pack, home).fix
    card = draft_card(replace(FACTS, training={"origin": "trained"}))
    (pack.path / "README.md").write_text(card)
    assert refusals(pack, home) == []


def test_a_record_of_another_machine_is_named_in_the_card(pack: Pack, home: Home) -> None:
    refusal = only(pack, home, chip="Another chip")
    assert (refusal.what, refusal.where) == ("it holds a record of another machine", CHIP)
    append(pack, "README.md", f"\nMeasured on a {CHIP}.\n")
    assert refusals(pack, home, chip="Another chip") == []


@pytest.mark.parametrize(
    ("named", "published"),
    [
        ("an Apple M3", True),
        ("an Apple M3, 24 GB", True),
        ("an Apple M3 Max", False),
        ("an Apple M30", False),
    ],
)
def test_a_larger_chip_of_the_same_name_is_another_one(home: Home, named: str, published: bool) -> None:
    evidence = {"rows": [{"machine": {"chip": "Apple M3"}}]}
    pack = make_publishable(home.packs / "tiny-mtp", speed_evidence=evidence)
    append(pack, "README.md", f"\nMeasured on {named}.\n")
    assert [refusal.where for refusal in refusals(pack, home)] == ([] if published else ["Apple M3"])


@pytest.mark.parametrize(
    "contract",
    [
        {"speed_evidence": {"rows": [{"machine": {"chip": "Far away 1"}}]}},
        {"verified_on": {"hardware": "Far away 1"}},
    ],
)
def test_every_record_in_the_contract_counts(home: Home, contract: dict[str, object]) -> None:
    pack = make_publishable(home.packs / "tiny-mtp", **contract)
    assert only(pack, home).where == "Far away 1"


@pytest.mark.parametrize(
    ("file", "text"),
    [
        ("README.md", "see /Users/ada/models"),
        ("LICENSE", "/home/ada/x"),
        ("chat_template.jinja", "{# from /tmp/try #}"),
        ("README.md", "file:///models/x"),
        ("README.md", "C:\\Users\\ada\\x"),
        ("README.md", "cd ~/models"),
    ],
)
def test_a_place_on_a_machine_stays_there(pack: Pack, home: Home, file: str, text: str) -> None:
    append(pack, file, f"\n{text}\n")
    refusal = only(pack, home)
    assert refusal.what == "a file names a place on this machine"
    assert refusal.where.endswith(f" in {file}")


def test_the_path_in_a_tokenizers_config_is_found(pack: Pack, home: Home) -> None:
    config = json.loads((pack.path / "tokenizer_config.json").read_text())
    (pack.path / "tokenizer_config.json").write_text(json.dumps({**config, "name_or_path": str(pack.path)}))
    assert "tokenizer_config.json" in only(pack, home).where


def test_a_vocabulary_may_hold_what_models_write_but_not_this_home(pack: Pack, home: Home) -> None:
    content = (pack.path / "tokenizer.json").read_text(encoding="utf-8")
    (pack.path / "tokenizer.json").write_text(
        content + '\n["/home/user", "/tmp/x", "~/a"]\n', encoding="utf-8"
    )
    assert refusals(pack, home) == []
    (pack.path / "tokenizer.json").write_text(content + f'\n["{home.root}/x"]\n', encoding="utf-8")
    assert "tokenizer.json" in only(pack, home).where


def test_the_text_beside_tensors_is_looked_through(pack: Pack, home: Home) -> None:
    path = pack.path / "model.safetensors"
    raw = path.read_bytes()
    end = 8 + int.from_bytes(raw[:8], "little")
    header = json.loads(raw[8:end])
    header["__metadata__"] = {**header.get("__metadata__", {}), "made_from": "/home/ada/checkpoint"}
    text = json.dumps(header).encode()
    path.write_bytes(len(text).to_bytes(8, "little") + text + raw[end:])
    assert [one.where for one in refusals(pack, home)] == ["/home/ada in model.safetensors"]


@pytest.mark.parametrize(
    "secret",
    [TOKEN, "ghp_" + "a" * 36, "sk-proj-" + "a" * 30, "AKIA" + "A" * 16, "-----BEGIN RSA PRIVATE KEY-----"],
)
@pytest.mark.parametrize("file", ["README.md", "tokenizer.json"])
def test_a_secret_stays_and_is_not_shown(pack: Pack, home: Home, file: str, secret: str) -> None:
    append(pack, file, f"\n{secret}\n")
    refusal = only(pack, home)
    assert refusal.what == "a file holds what looks like a secret"
    assert secret not in str(refusal)


def test_the_users_own_token_is_found_whatever_it_looks_like(pack: Pack, home: Home) -> None:
    append(pack, "README.md", "\nmy-odd-token\n")
    assert refusals(pack, home) == []
    assert "README.md" in only(pack, home, token="my-odd-token").where


def test_all_reasons_are_told_at_once(pack: Pack, home: Home) -> None:
    (pack.path / "README.md").write_text(f"# tiny\n/Users/ada/x and {TOKEN}\n")
    (pack.path / "LICENSE").unlink()
    assert len(refusals(pack, home, chip="Another chip")) == 4
