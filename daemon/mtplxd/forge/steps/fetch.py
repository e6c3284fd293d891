"""Step `fetch`: the source's files, from the Hub into the run, or in place where a folder was named."""

from __future__ import annotations

from pathlib import Path

from mtplxd.errors import UnsupportedSource
from mtplxd.forge.assembling import LAYERS
from mtplxd.forge.marks import unchanged
from mtplxd.forge.work import Json, Lost, Made, Step, Work


def _inputs(work: Work) -> Json:
    return {"source": work.recipe.source}


def _make(work: Work, layer: Path) -> Made:
    try:
        source = work.parts.fetch(
            work.recipe.source, layer, work.home, work.hugging_face, work.tell, work.cancelled
        )
    except UnsupportedSource as error:
        raise Lost("unsupported_source", [f"{error.what} ({error.value})"]) from None
    return Made(source.document(), place=Path(source.path), names=sorted(source.files), known=source.files)


def _spent(work: Work) -> bool:
    """What was brought here for this build alone is not needed again while the pack that was measured stands."""
    record = work.state.record("fetch")
    if record is None or work.state.record("measure") is None:
        return False
    if not Path(record.place).is_relative_to(work.run.folder):
        return False
    made = [found for step in LAYERS if (found := work.state.record(step))]
    return all(found.done and unchanged(Path(found.place), found.files) for found in made)


FETCH = Step("fetch", _inputs, _make, resumes=True, spent=_spent)
