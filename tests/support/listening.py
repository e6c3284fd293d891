"""What a request's owner heard, collected; and requests with everything but what matters filled in."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from mtplxd.engine.decode import Decoder
from mtplxd.engine.events import Event, Finished, Progress, Text
from mtplxd.engine.request import Request, SamplerSettings
from mtplxd.families.load import LoadedModel

GREEDY = SamplerSettings(temperature=0.0)
PATIENCE_S = 60.0

_ids = itertools.count()


def ask(model: LoadedModel, prompt: list[int], **others: Any) -> Request:
    """A greedy request for 32 tokens unless told otherwise."""
    given = {"sampler": GREEDY, "max_tokens": 32, "client": "someone", "id": f"request-{next(_ids)}"}
    return Request(model=model, prompt=prompt, **(given | others))


@dataclass
class Listener:
    """A sink that remembers, and does `reaction` to each event while it is being told."""

    reaction: Callable[[Event], None] = lambda _: None
    events: list[Event] = field(default_factory=list)
    done: threading.Event = field(default_factory=threading.Event)

    def __call__(self, event: Event) -> None:
        self.events.append(event)
        if isinstance(event, Finished):
            self.done.set()
        self.reaction(event)

    @property
    def text(self) -> str:
        return "".join(event.text for event in self.events if isinstance(event, Text))

    @property
    def tokens(self) -> list[int]:
        return [token for event in self.events if isinstance(event, Text) for token in event.tokens]

    @property
    def progress(self) -> list[Progress]:
        return [event for event in self.events if isinstance(event, Progress)]

    @property
    def finished(self) -> Finished:
        """The one terminal event, which is the last."""
        [finished] = [event for event in self.events if isinstance(event, Finished)]
        assert self.events[-1] is finished
        return finished

    def wait(self) -> Finished:
        assert self.done.wait(PATIENCE_S), "no Finished came"
        return self.finished


def decode(request: Request, listener: Listener | None = None, **others: Any) -> tuple[Decoder, Listener]:
    """Decodes on this thread; checks what must hold for every answer."""
    listener = listener or Listener()
    poll = others.pop("poll", lambda: None)
    decoder = Decoder(request, listener, poll, 0.0, **others)
    finished = decoder.run()
    assert listener.finished is finished
    assert decoder.row.tokens == [*request.prompt, *listener.tokens]
    assert finished.completion_tokens == len(listener.tokens)
    assert finished.prompt_tokens == len(request.prompt)
    if listener.tokens or finished.finish_reason != "cancelled":
        assert_ended_with_its_text(decoder)
    return decoder, listener


def assert_ended_with_its_text(decoder: Decoder) -> None:
    """Body slots, and head slots with pending pairs, are one fewer than the tokens."""
    batch, row = decoder.batch, decoder.row
    count = len(row.tokens) - 1
    assert {tuple(layer.lengths) for layer in batch.cache} == {(count,)}
    if batch.head is not None:
        waiting = len(row.pending.tokens) if row.pending else 0
        absorbed = {layer.lengths[0] for layer in batch.head_cache}
        assert absorbed == {0 if row.plain else count - waiting - row.dropped_pairs}
