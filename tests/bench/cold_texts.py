"""What prompts and conversations say to a daemon that keeps nothing: the texts that everybody else's must be.

Greedy texts in which two tokens were as good as equally likely are left out, so that a text that differs is a wrong
one; of a conversation the turns before are kept. A reproducible text is kept whatever it is.
"""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from branching import ZOO, Branch, Talk, grow, read_ids, talks
from harness import Sample
from mtplx_client import Client
from mtplx_client.events import Reply, TokenLogprob
from support.daemon_process import running_daemon, short_folder

CLEAR = 1e-3
"""Between the two likeliest tokens' log-probabilities; rounding moves them by 1e-5."""
DEPTH_MAX = 2
KEEPS_NOTHING = {"MTPLXD_STORE": "off", "MTPLXD_PREFIX_CACHE": "0"}


@dataclass(frozen=True)
class Cold:
    """A prompt and its text."""

    branch: Branch
    tokens: list[int]


@dataclass(frozen=True)
class ColdTalk:
    """A conversation and the answers, as ids."""

    talk: Talk
    answers: list[list[int]]


@dataclass(frozen=True)
class Texts:
    """All that is known of one model."""

    pack: Path
    branches: list[Cold]
    talks: list[ColdTalk]

    def ask(self, client: Client, cold: Cold, **options: Any) -> Reply:
        """The prompt's reply."""
        given = {**common(self.pack), **cold.branch.options, **options}
        return client.complete(tokens=list(cold.branch.tokens), **given)


def common(pack: Path) -> dict[str, Any]:
    """Options of every request of a model."""
    return {"model": str(pack), "force": True, "timeout": 600.0}


def load(client: Client, pack: Path, depth_max: int = DEPTH_MAX) -> None:
    """Brings the model into memory, with as many drafts as are asked for here."""
    client.load(str(pack), force=True, depth_max=depth_max, timeout=600)


def copy_pack(name: str, folder: Path) -> Path:
    """A checkpoint of the zoo where a daemon may write beside it; the same place for the same folder."""
    pack = folder / name
    if not pack.is_dir():
        shutil.copytree(ZOO / name, pack)
    return pack


def collect(pack: Path, families: int, each: int, conversations: int, turns: int = 4) -> Sample:
    """All cold texts of a checkpoint, asked one after the other of a daemon of its own."""
    branches = grow(read_ids(pack.name), families, each)
    with short_folder() as home, running_daemon(home, **KEEPS_NOTHING) as daemon:
        with Client(socket=daemon.socket) as client:
            load(client, pack)
            found = {
                "branches": [_say(client, pack, branch) for branch in branches],
                "talks": [
                    _converse(client, pack, talk, f"talk-{number}")
                    for number, talk in enumerate(talks(conversations, turns))
                ],
            }
        daemon.stop()
    return found


def restore(
    pack: Path, sample: Sample, families: int, each: int, conversations: int, turns: int = 4
) -> Texts:
    """The texts of `collect`'s sample, which was made with the same numbers."""
    branches = zip(grow(read_ids(pack.name), families, each), sample["branches"], strict=True)
    told = zip(talks(conversations, turns), sample["talks"], strict=True)
    return Texts(
        pack,
        [Cold(branch, tokens) for branch, tokens in branches if tokens],
        [ColdTalk(talk, answers) for talk, answers in told if answers],
    )


def is_clear(entries: Sequence[TokenLogprob]) -> bool:
    """Whether at every position one token was likelier than all others by more than rounding could turn."""
    return all(entry.top[0].logprob - entry.top[1].logprob >= CLEAR for entry in entries)


def _say(client: Client, pack: Path, branch: Branch) -> list[int]:
    """The text; nothing where it is not clear."""
    more = {} if branch.exact else {"logprobs": 2}
    reply = client.complete(tokens=list(branch.tokens), **{**common(pack), **branch.options, **more})
    return reply.tokens if branch.exact or is_clear(reply.logprobs or []) else []


def _converse(client: Client, pack: Path, talk: Talk, name: str) -> list[list[int]]:
    answers: list[list[int]] = []
    more = {} if talk.exact else {"logprobs": 2}
    for question in talk.questions:
        reply = client.complete(question, session=name, **{**common(pack), **talk.options, **more})
        if not (talk.exact or is_clear(reply.logprobs or [])):
            break
        answers.append(reply.tokens)
    return answers
