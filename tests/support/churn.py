"""A batch of unlike rows on a table model whose rows come and go: each row's settings, uniforms and real rounds.

What a row would say alone is what it must say among any others.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from mtplxd.engine.batch import Batch
from mtplxd.engine.request import COUPLED, SamplerSettings
from mtplxd.engine.round import Flight, Landing, commit, land, launch
from mtplxd.engine.row import Row
from mtplxd.engine.shaping import make_shaper
from mtplxd.engine.uniforms import RoundUniforms, UniformSupply
from mtplxd.families.protocols import Head, Target
from mtplxd.platform.mlx import Array
from support.ragged import open_ragged


@dataclass(frozen=True)
class Spec:
    """One row: what it begins with and how it is decoded. `grammar` makes its matcher."""

    prompt: tuple[int, ...]
    sampler: SamplerSettings
    depth: int
    grammar: Callable[[], Any] | None = None
    plain: bool = False
    pending: int = 1


@dataclass
class Crowd:
    """Rows of specs in one batch, in the order of the batch's rows."""

    target: Target
    head: Head
    batch: Batch | None = None
    supplies: list[UniformSupply] = field(default_factory=list)

    @property
    def rows(self) -> list[Row]:
        return self.batch.rows if self.batch else []

    def join(self, spec: Spec) -> Row:
        """One more row, its prompt behind it."""
        one = open_ragged(self.target, self.head, [spec.prompt], spec.sampler, spec.pending)
        [bare] = one.rows
        row = Row(list(spec.prompt), spec.sampler, spec.depth, plain=spec.plain, pending=bare.pending)
        row.shaper = make_shaper(spec.sampler, spec.prompt)
        row.matcher = spec.grammar() if spec.grammar else None
        if spec.plain:
            row.pending = None
            for layer in one.head_cache:
                layer.roll_back([0])
        one.rows[0] = row
        racing = spec.sampler.rule == COUPLED
        self.supplies.append(UniformSupply(spec.sampler.seed, racing=racing))
        if self.batch is None:
            self.batch = one
        else:
            self.batch.join(one)
        return row

    def leave(self, place: int, flight: Flight | None = None) -> Row:
        """A row goes, out of a round in flight too."""
        assert self.batch is not None
        row = self.batch.leave(place)
        last = self.supplies.pop()
        if place < len(self.supplies):
            self.supplies[place] = last
        if flight:
            flight.leave(place)
        return row

    def launch(self, lengths: Sequence[int] | None = None, last: Array | None = None) -> Flight:
        """Starts a round of all rows, each as deep as it may."""
        assert self.batch is not None
        ahead = last is not None
        source = RoundUniforms(
            self.supplies,
            [row.round for row in self.rows],
            [len(row.tokens) + ahead for row in self.rows],
        )
        for row in self.rows:
            row.round += 1
        depths = [row.depth for row in self.rows]
        return launch(self.batch, source, depths if lengths is None else lengths, last)

    def finish(self, flight: Flight, ahead: int = 0, keep: Sequence[int] | None = None) -> list[Landing]:
        """Lands and commits a round; a broken row keeps nothing."""
        assert self.batch is not None
        landings = land(self.batch, flight)
        counts = [0 if landing.broken else len(landing.tokens) for landing in landings]
        counts = [min(count, most) for count, most in zip(counts, keep or counts, strict=True)]
        for row, landing, count in zip(self.rows, landings, counts, strict=True):
            if row.matcher and not landing.broken:
                assert all(row.matcher.advance(token) for token in landing.tokens[:count])
        commit(self.batch, flight, landings, counts, ahead)
        return landings

    def play(self, lengths: Sequence[int] | None = None) -> list[Landing]:
        """One whole round."""
        return self.finish(self.launch(lengths))


def solo_text(target: Target, head: Head, spec: Spec, count: int) -> list[int]:
    """The first tokens that a row makes alone."""
    crowd = Crowd(target, head)
    row = crowd.join(spec)
    while len(row.tokens) < len(spec.prompt) + count:
        crowd.play()
    return row.tokens[len(spec.prompt) :][:count]
