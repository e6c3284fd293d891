"""Publishing puts a pack's own files on the Hub in one commit, or nothing at all, and looks whether they are there."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from mtplxd.errors import (
    Cancelled,
    DataLoss,
    FailedPrecondition,
    InvalidArgument,
    MtplxError,
    NotFound,
    Unavailable,
)
from mtplxd.files import locked
from mtplxd.forge import publishing
from mtplxd.forge.publishing import Published, files_to_publish, publish
from mtplxd.forge.uploading import Job, upload
from mtplxd.packs.manifest import FILE_NAME
from mtplxd.packs.pack import Pack
from mtplxd.packs.pull import pull
from mtplxd.paths import Home, HuggingFace
from mtplxd.platform.machine import read_machine
from support.hub_server import HubServer
from support.publishing import make_publishable
from support.tls_hub import CERTIFICATE, tls_hub

REPO = "me/tiny-mtp"
TOKEN = "hf_" + "D" * 34
Send = Callable[..., Published]


@pytest.fixture
def hub(hub_environment: None) -> Iterator[HubServer]:  # noqa: ARG001
    with HubServer() as hub:
        yield hub


@pytest.fixture
def pack(home: Home) -> Pack:
    return make_publishable(home.packs / "tiny-mtp", chip=read_machine().chip)


@pytest.fixture
def send(pack: Pack, home: Home, hugging_face: HuggingFace) -> Send:
    def run(
        repo: str = REPO,
        *,
        dry_run: bool = False,
        hugging_face: HuggingFace = hugging_face,
        tell: Callable[[str, int, int, str], None] = lambda *_: None,
        cancelled: Callable[[], bool] = lambda: False,
    ) -> Published:
        return publish(pack, repo, hugging_face, dry_run, tell, cancelled, home=home)

    return run


def on_the_hub(hub: HubServer, repo: str = REPO) -> dict[str, bytes]:
    files = hub.repositories[repo].revisions["main"].files
    return {
        name: content.read(0, content.size) for name, content in files.items() if name != ".gitattributes"
    }


def own_files(pack: Pack) -> dict[str, bytes]:
    return {name: (pack.path / name).read_bytes() for name in files_to_publish(pack)}


def refused(send: Send, kind: type[MtplxError], **options: object) -> str:
    with pytest.raises(kind) as raised:
        send(**options)
    assert "\n" not in str(raised.value)
    assert raised.value.fix
    return str(raised.value)


def test_its_files_are_there_byte_for_byte_in_one_commit(hub: HubServer, send: Send, pack: Pack) -> None:
    told: list[tuple[str, int, int, str]] = []
    published = send(tell=lambda *step: told.append(step))
    assert on_the_hub(hub) == own_files(pack)
    assert hub.uploads.summaries == ["Publish tiny-mtp"]
    assert published.commit == hub.repositories[REPO].revisions["main"].sha
    assert published.url == f"{hub.url}/{REPO}"
    assert published.bytes == sum(map(len, own_files(pack).values()))
    assert json.loads(json.dumps(published.document()))["files"] == published.files
    assert told[0] == ("check", 0, 1, "tiny-mtp")
    assert [step[3] for step in told[1:]] == ["model.safetensors", "mtp.safetensors"]
    assert [step[1] for step in told] == sorted(step[1] for step in told)
    assert hub.repositories[REPO].revisions["main"].in_lfs("mtp.safetensors")


def test_what_was_published_is_pulled_as_the_same_pack(
    hub: HubServer, send: Send, pack: Pack, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    send()
    monkeypatch.setenv("HF_ENDPOINT", hub.url)
    other = Home(tmp_path / "other")
    pulled = pull(REPO, other)
    assert own_files(pulled) == own_files(pack)


def test_a_dry_run_asks_nobody_and_shows_every_reason(hub: HubServer, send: Send, pack: Pack) -> None:
    clean = send(dry_run=True)
    assert (clean.dry_run, clean.commit, clean.refusals) == (True, None, ())
    assert sorted(clean.files) == files_to_publish(pack)
    (pack.path / "README.md").write_text("# made in /home/ada/forge")
    (pack.path / "LICENSE").unlink()
    found = send(dry_run=True)
    assert len(found.refusals) == len(found.document()["refusals"]) == 2
    assert hub.asked == []


def test_a_password_in_the_address_is_not_told(hub: HubServer, send: Send, hugging_face: HuggingFace) -> None:
    endpoint = hub.url.replace("http://", "http://ada:secret@")
    said = send(dry_run=True, hugging_face=replace(hugging_face, endpoint=endpoint)).document()
    assert said["url"] == f"{hub.url}/{REPO}"
    assert "secret" not in json.dumps(said)


def test_a_pack_that_may_not_be_published_reaches_nobody(hub: HubServer, send: Send, pack: Pack) -> None:
    (pack.path / "README.md").write_text("# made in /home/ada/forge")
    (pack.path / "LICENSE").unlink()
    said = refused(send, FailedPrecondition)
    assert "neither its card nor a file states a licence, and 1 more reasons (--dry-run shows them): " in said
    assert hub.asked == []


def test_published_again_nothing_is_sent_twice(hub: HubServer, send: Send, pack: Pack) -> None:
    first = send()
    hub.uploads.steps.clear()
    assert send().commit == first.commit
    assert not {"put", "commit"} & set(hub.uploads.steps)
    with (pack.path / "README.md").open("a") as card:
        card.write("\nmore\n")
    hub.uploads.steps.clear()
    assert send().commit != first.commit
    assert "put" not in hub.uploads.steps
    assert on_the_hub(hub) == own_files(pack)


def test_weights_that_only_the_repository_has_are_removed_and_other_files_stay(
    hub: HubServer, send: Send, pack: Pack
) -> None:
    old = {
        "model-00001-of-00002.safetensors": b"a",
        "model-00002-of-00002.safetensors": b"b",
        "model.safetensors.index.json": b"{}",
        "mtp/weights.safetensors": b"c",
        "target/model.safetensors": b"d",
    }
    others = {"picture.png": b"mine", "lora/adapter.safetensors": b"mine"}
    hub.add(REPO, old | others)
    published = send()
    assert published.removed == tuple(sorted(old))
    assert on_the_hub(hub) == {**own_files(pack), **others}


def test_somebody_elses_push_meanwhile_is_not_overwritten(hub: HubServer, send: Send) -> None:
    hub.add(REPO, {"README.md": b"# first"})
    hub.uploads.before_commit = lambda: hub.add(REPO, {"README.md": b"# theirs"}) and None
    assert "the repository was changed meanwhile (me/tiny-mtp)" in refused(send, FailedPrecondition)
    assert on_the_hub(hub) == {"README.md": b"# theirs"}


def test_a_file_that_the_repository_leaves_out_is_missed(hub: HubServer, send: Send) -> None:
    hub.uploads.ignored = {"mtp.safetensors"}
    assert "does not have a file as it was sent (mtp.safetensors of me/tiny-mtp" in refused(send, DataLoss)


def test_other_bytes_on_the_hub_than_were_sent_are_seen(
    hub: HubServer, pack: Pack, hugging_face: HuggingFace, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HF_HUB_DISABLE_XET", "1")
    right = {name: publishing._sha256(pack.path / name) for name in files_to_publish(pack)}
    wrong = {**right, "config.json": "0" * 64}
    with pytest.raises(DataLoss, match="changed while it was published"):
        upload(Job(REPO, pack.path, wrong, "Publish"), hugging_face, lambda *_: None)
    assert hub.uploads.summaries == []


def test_an_upload_that_fails_once_is_tried_again(hub: HubServer, send: Send, pack: Pack) -> None:
    hub.uploads.refuses = {"put": [503]}
    send()
    assert on_the_hub(hub) == own_files(pack)


@pytest.mark.parametrize(
    ("step", "status", "kind"),
    [
        ("create", 500, Unavailable),
        ("create", 429, Unavailable),
        ("preupload", 403, FailedPrecondition),
        ("batch", 403, FailedPrecondition),
        ("put", 403, FailedPrecondition),
        ("verify", 403, FailedPrecondition),
        ("commit", 403, FailedPrecondition),
        ("commit", 500, Unavailable),
    ],
)
def test_a_step_that_the_hub_refuses_is_one_line_and_nothing_is_seen(
    hub: HubServer, send: Send, step: str, status: int, kind: type[MtplxError]
) -> None:
    hub.add(REPO, {"README.md": b"# before"})
    hub.uploads.refuses = {step: [status]}
    refused(send, kind)
    assert on_the_hub(hub) == {"README.md": b"# before"}


def test_an_account_that_may_not_write_there(hub: HubServer, send: Send) -> None:
    hub.uploads.forbidden = {"somebody"}
    assert "the Hub refuses access" in refused(send, FailedPrecondition, repo="somebody/tiny")
    assert "somebody/tiny" not in hub.repositories


def test_a_cancel_ends_the_upload_and_nothing_is_seen(hub: HubServer, send: Send) -> None:
    hub.uploads.hold = threading.Event()
    try:
        with pytest.raises(Cancelled):
            send(cancelled=hub.uploads.held.is_set)
    finally:
        hub.uploads.hold.set()
    assert hub.uploads.summaries == []
    assert on_the_hub(hub) == {}


def test_an_upload_ends_with_whoever_began_it(
    hub: HubServer, pack: Pack, hugging_face: HuggingFace, home: Home
) -> None:
    hub.uploads.hold = threading.Event()
    line = (
        "from pathlib import Path; from mtplxd.forge.publishing import publish\n"
        "from mtplxd.packs.pack import read_pack; from mtplxd.paths import Home, HuggingFace\n"
        f"hub = HuggingFace(Path({str(hugging_face.cache)!r}), None, {hub.url!r}, False)\n"
        f"home = Home(Path({str(home.root)!r}))\n"
        f"publish(read_pack(Path({str(pack.path)!r})), {REPO!r}, hub, False, lambda *_: None, lambda: False, home=home)"
    )
    process = subprocess.Popen([sys.executable, "-c", line])
    assert hub.uploads.held.wait(60)
    process.send_signal(signal.SIGKILL)
    process.wait()
    with locked(home.run / "publish-tiny-mtp.lock"):  # which its orphan holds until it has ended
        hub.uploads.hold.set()
    assert hub.uploads.summaries == []


def test_names_that_are_no_place_to_publish_to(send: Send) -> None:
    for repo in ("tiny", "a/b/c", "../x", ""):
        refused(send, InvalidArgument, repo=repo)
    assert "give me/tiny" in refused(send, InvalidArgument, repo="me/tiny@v2")


def test_without_a_network_nothing_is_sent(hub: HubServer, send: Send, hugging_face: HuggingFace) -> None:
    offline = replace(hugging_face, offline=True)
    assert "HF_HUB_OFFLINE" in refused(send, Unavailable, hugging_face=offline)
    assert hub.asked == []
    nowhere = replace(hugging_face, endpoint="http://127.0.0.1:1")
    assert "cannot reach" in refused(send, Unavailable, hugging_face=nowhere)


@pytest.fixture
def itself(
    hub: HubServer, hugging_face: HuggingFace, monkeypatch: pytest.MonkeyPatch
) -> Iterator[HuggingFace]:
    """The same server as https://huggingface.co, to which only that token may write."""
    hub.uploads.token = TOKEN
    with tls_hub(hub.url) as proxy:
        monkeypatch.setenv("HTTPS_PROXY", proxy.url)
        monkeypatch.setenv("SSL_CERT_FILE", str(CERTIFICATE))
        yield replace(hugging_face, endpoint=None, token=TOKEN)


def test_the_token_reaches_the_hub_alone_and_no_argument(
    hub: HubServer, send: Send, pack: Pack, itself: HuggingFace
) -> None:
    hub.uploads.hold = threading.Event()
    seen: list[bytes] = []

    def look() -> bool:
        if hub.uploads.held.is_set() and not seen:
            children = Path(f"/proc/{os.getpid()}/task").glob("*/children")
            pids = [pid for path in children for pid in path.read_text().split()]
            seen.extend(Path(f"/proc/{pid}/cmdline").read_bytes() for pid in pids)
            assert hub.uploads.hold
            hub.uploads.hold.set()
        return False

    if not Path("/proc/self/cmdline").exists():
        pytest.skip("this system shows no arguments under /proc")
    assert send(hugging_face=itself, cancelled=look).url == f"https://huggingface.co/{REPO}"
    assert on_the_hub(hub) == own_files(pack)
    assert any(b"forge.uploading" in line for line in seen)
    assert not [line for line in seen if TOKEN.encode() in line]
    assert {asked.token for asked in hub.asked if not asked.storage} == {f"Bearer {TOKEN}"}
    assert {asked.token for asked in hub.asked if asked.storage} == {None}


def test_a_token_is_asked_for_before_anything_is_sent(
    hub: HubServer, send: Send, itself: HuggingFace
) -> None:
    assert "HF_TOKEN" in refused(send, FailedPrecondition, hugging_face=replace(itself, token=None))
    assert hub.asked == []
    said = refused(send, (FailedPrecondition, NotFound), hugging_face=replace(itself, token="hf_wrong"))  # type: ignore[arg-type]
    assert "hf_wrong" not in said
    assert hub.uploads.summaries == []


def test_a_mirror_gets_no_token(
    hub: HubServer, send: Send, hugging_face: HuggingFace, tmp_path: Path
) -> None:
    (tmp_path / "hf").mkdir()
    (tmp_path / "hf" / "token").write_text(TOKEN)  # of a login, which the library finds by itself
    send(hugging_face=replace(hugging_face, token=TOKEN))
    assert not [value for asked in hub.asked for value in asked.headers.values() if TOKEN in value]


def test_a_token_in_a_file_is_found_by_its_value(send: Send, pack: Pack, hugging_face: HuggingFace) -> None:
    contract = json.loads((pack.path / FILE_NAME).read_text())
    (pack.path / FILE_NAME).write_text(json.dumps({**contract, "note": "strange-token-1"}))
    said = refused(send, FailedPrecondition, hugging_face=replace(hugging_face, token="strange-token-1"))
    assert "secret" in said
    assert "strange-token-1" not in said
