"""What a daemon must have of all that the one before it acknowledged when it was killed. Kills and loads nothing.

Acknowledged are the turns whose answers came with `kept`, the blocks whose files `cache stats` counted, and the prompts
that were wholly among them.
"""

from __future__ import annotations

import random
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from branching import GREEDY, LONGEST, SHORTEST, Branch
from cold_texts import Cold, Texts, common, is_clear
from kill_load import Book, Conversation
from mtplx_client import Client
from mtplx_client.store import StoreStats
from mtplxd.engine.blocks import RESTORES
from mtplxd.store import blockfile
from mtplxd.store.places import ENDING, UNFINISHED

LOOKS, LOOK_S = 3000, 0.02
"""How often is looked for what must come, and the pause between: a machine that stands still uses none of them up."""
SAMPLE = 4
HEADER = 1 << 16
IDS = range(32, 250)


@dataclass
class Acknowledged:
    """By one life of the daemon; `whole` says that nothing was to be evicted in it."""

    blocks: set[Path] = field(default_factory=set)
    witness: Cold | None = None
    witness_tokens: int = 0
    whole: bool = False


def until(there: Callable[[], Any]) -> bool:
    """Whether it came."""
    for _ in range(LOOKS):
        if there():
            return True
        time.sleep(LOOK_S)
    return False


def files_in(home: Path) -> set[Path]:
    """The files of blocks."""
    return set((home / "store" / "blocks").rglob(f"*{ENDING}"))


def whole_blocks(files: Iterable[Path]) -> set[Path]:
    """Those that are no tails: a tail goes when a block has all of it. Files that went meanwhile are none."""
    found = set()
    for path in files:
        try:
            with path.open("rb") as file:
                header = blockfile.read_header(file.read(HEADER))
        except FileNotFoundError:
            continue
        if not header.tail:
            found.add(path)
    return found


def witness(
    client: Client, home: Path, texts: Texts, draw: random.Random, block: int
) -> tuple[Cold, int, str]:
    """Asks for a prompt that nobody asked for and waits until every whole block of it is counted, the body's part and
    the head's: the prompt, behind how many of its tokens a row can stand then, and what was wrong. The text is left out
    where it is not clear.
    """
    prompt = [draw.choice(IDS) for _ in range(draw.randint(SHORTEST, LONGEST))]
    branch = Branch(0, tuple(prompt), {**GREEDY, "depth": 1, "max_tokens": 16, "ignore_eos": True})
    before, parts = files_in(home), defaultdict[tuple[int, ...], list[int]](list)
    reply = texts.ask(client, Cold(branch, []), store="on", logprobs=2)
    cold = Cold(branch, reply.tokens if is_clear(reply.logprobs or []) else [])
    wanted = [tuple(prompt[at : at + block]) for at in range(0, len(prompt) - block, block)]

    def all_there() -> bool:
        counted = client.cache_stats()
        for path in files_in(home) - before:
            header = _header_of(path)
            if header is not None:
                parts[header.tokens].append(header.grade)
            before.add(path)
        return counted.waiting == 0 and all(len(parts[tokens]) >= 2 for tokens in wanted)

    if reply.usage.cached_tokens:
        return cold, 0, f"{reply.usage.cached_tokens} tokens were kept of a prompt that nobody asked for"
    if not until(all_there):
        return cold, 0, f"an idle daemon did not keep all of a prompt: {client.cache_stats()}"
    return cold, block * behind([parts[tokens] for tokens in wanted]), ""


def behind(grades: Sequence[Sequence[int]]) -> int:
    """Behind how many blocks a row can stand, by the grades of their parts: a recurrent body only where the state of a
    true boundary came along, all others behind each."""
    return max((count for count, parts in enumerate(grades, 1) if min(parts) >= RESTORES), default=0)


def look(client: Client, home: Path, texts: Texts, book: Book, had: Acknowledged, draw: random.Random) -> str:
    """What is wrong with a daemon that was started after a kill, its model loaded; nothing where all is well."""
    until(lambda: client.cache_stats().state != "opening")
    return (
        look_at_store(client, home, had)
        or look_at_sessions(client, book)
        or look_at_witness(client, texts, had)
        or look_at_texts(client, texts, draw)
        or go_on(client, texts, book, draw)
    )


def look_at_store(client: Client, home: Path, had: Acknowledged) -> str:
    """All that is there verifies, and all that was acknowledged is there."""
    stats = client.cache_stats()
    if stats.state != "on" or stats.quarantined:
        return f"the store opened {stats.state} ({stats.reason}) with {stats.quarantined} damaged"
    verified, files = client.cache_verify(), files_in(home)
    if verified.bad:
        return f"{verified.bad} of {verified.blocks} blocks do not verify"
    if not until(lambda: _counted(client, home)):
        return f"{client.cache_stats().blocks} blocks of {len(files_in(home))} files are known"
    if had.whole and (lost := had.blocks - files):
        return f"{len(lost)} of {len(had.blocks)} acknowledged blocks are lost"
    left = [*(home / "store").rglob(f"*{UNFINISHED}")]
    return f"{len(left)} unfinished files are left" if left else ""


def _counted(client: Client, home: Path) -> bool:
    stats: StoreStats = client.cache_stats()
    return stats.blocks == len(files_in(home))


def look_at_sessions(client: Client, book: Book) -> str:
    """Every acknowledged turn is there, word for word, and of one that was not at most all; the book is set to that."""
    listed = {session.name: session.turns for session in client.sessions()}
    for name, one in book.sessions.items():
        if one.removed and name in listed:
            return f"session {name}, which was removed, is there again"
        one.removed = one.removed or (one.removing and name not in listed)
        if one.removed:
            continue
        one.removing = False  # the daemon was killed before it was removed
        turns = listed.get(name, 0)
        if turns not in ((one.turns, one.turns + 1) if name in book.touched else (one.turns,)):
            return f"session {name} has {turns} turns of {one.turns} acknowledged ones"
        one.turns = turns
        if name in book.touched and turns and (wrong := _read_session(client, name, one)):
            return wrong
    book.touched.clear()
    return ""


def _read_session(client: Client, name: str, one: Conversation) -> str:
    shown = client.session(name)
    questions = [message.content for message in shown.messages if message.role == "user"]
    answers = [[*message.tokens] for message in shown.messages if message.role == "assistant"]
    if len(shown.messages) != 2 * one.turns or len(shown.turns) != one.turns:
        return f"session {name} has {len(shown.messages)} messages and {len(shown.turns)} turns"
    if questions != [*one.talk.talk.questions[: one.turns]]:
        return f"session {name} has other questions"
    return "" if answers == one.talk.answers[: one.turns] else f"session {name} has other answers"


def look_at_witness(client: Client, texts: Texts, had: Acknowledged) -> str:
    """The prompt that was all there comes from the disk, as far as it was acknowledged, with the same text."""
    if had.witness is None:
        return ""
    reply = texts.ask(client, had.witness, store="on")
    if had.witness.tokens and reply.tokens != had.witness.tokens:
        return f"the witness's text differs after the restart, {reply.usage.cached_tokens} tokens were kept"
    if had.whole and reply.usage.cached_tokens < had.witness_tokens:
        return f"{reply.usage.cached_tokens} of {had.witness_tokens} tokens of the witness were kept"
    return ""


def look_at_texts(client: Client, texts: Texts, draw: random.Random) -> str:
    """Some prompts are answered as by a daemon that keeps nothing."""
    for cold in draw.sample(texts.branches, min(SAMPLE, len(texts.branches))):
        reply = texts.ask(client, cold, store="on")
        if reply.tokens != cold.tokens:
            kind = "reproducible" if cold.branch.exact else "greedy"
            kept = f"{reply.usage.cached_tokens} of {reply.usage.prompt_tokens} tokens were kept"
            return f"after the restart a {kind} text differs from the cold one, {kept}"
    return ""


def go_on(client: Client, texts: Texts, book: Book, draw: random.Random) -> str:
    """A session goes on as it does without the kill."""
    open_ones = [
        (name, one)
        for name, one in book.sessions.items()
        if one.texts is texts and not one.removing and 0 < one.turns < len(one.talk.answers)
    ]
    if not open_ones:
        return ""
    name, one = draw.choice(open_ones)
    options = {**common(texts.pack), **one.talk.talk.options, "session": name}
    reply = client.complete(one.talk.talk.questions[one.turns], **options)
    if reply.tokens != one.talk.answers[one.turns]:
        return f"session {name} goes on otherwise after the restart"
    one.turns += 1
    book.touched.add(name)
    return ""


def _header_of(path: Path) -> blockfile.Header | None:
    try:
        with path.open("rb") as file:
            return blockfile.read_header(file.read(HEADER))
    except FileNotFoundError:
        return None
