"""Decodes one request alone, from its prompt to its end: measurements and proofs do. Serving many is `service`'s."""

from __future__ import annotations

from mtplxd.engine.batch import Batch, open_batch
from mtplxd.engine.choosing import depths_of
from mtplxd.engine.events import Finished, Sink
from mtplxd.engine.player import Player
from mtplxd.engine.prefill import CHUNK, prefill
from mtplxd.engine.request import Request
from mtplxd.engine.row import Row
from mtplxd.engine.stopping import End
from mtplxd.engine.stream import Poll, Stream


class Decoder:
    """One request on its way. `run` ends with exactly one Finished; `batch` stays readable afterwards."""

    def __init__(
        self,
        request: Request,
        sink: Sink,
        poll: Poll,
        submitted: float,
        chunk: int = CHUNK,
    ) -> None:
        batch = open_batch(request)
        self.request, self._chunk, self._depths = request, chunk, depths_of(request.model)
        self.stream = Stream(request, batch.rows[0], sink, poll, submitted)
        self.player = Player(batch, [self.stream], self._depths)

    @property
    def batch(self) -> Batch:
        """The row's batch."""
        return self.player.batch

    @property
    def row(self) -> Row:
        """The row."""
        return self.stream.row

    def run(self) -> Finished:
        """Decodes to the end and reports it."""
        finished = self.stream.finish(self._prefill() or self._play())
        self._depths.forget(self.stream)
        return finished

    def _prefill(self) -> End | None:
        for done in prefill(self.batch, self.request.prompt, self._chunk):
            if end := self.stream.cancelled():
                return end
            self.stream.report_prefill(done)
        self.stream.begin_decoding()
        return None

    def _play(self) -> End:
        while not (ended := self.player.turn(go_on=True)):
            pass
        self.player.stop()
        return ended[0].end
