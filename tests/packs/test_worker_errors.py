"""What a worker raised comes back from its process with all that it says: words, sizes, the field that was wrong."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from mtplxd.errors import MtplxError
from mtplxd.packs.workers import run_worker
from support.failing_worker import ERRORS


@pytest.fixture
def lock(tmp_path: Path) -> Iterator[int]:
    descriptor = os.open(tmp_path, os.O_RDONLY)
    yield descriptor
    os.close(descriptor)


@pytest.mark.parametrize("name", ERRORS)
def test_an_error_is_what_it_was_in_the_worker(lock: int, name: str) -> None:
    raised = ERRORS[name]
    with pytest.raises(MtplxError) as caught:
        run_worker(
            "support.failing_worker",
            (name,),
            what="the work",
            lock=lock,
            on_message=lambda _: None,
            cancelled=lambda: False,
        )
    found = caught.value
    assert type(found) is type(raised)
    assert (str(found), vars(found)) == (str(raised), vars(raised))
