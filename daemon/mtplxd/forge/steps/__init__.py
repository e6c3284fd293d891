"""The steps of a build, each a thin adapter from a run to the functions that do its work; the table of all of them."""

from __future__ import annotations

from mtplxd.forge.steps.calibrate import CALIBRATE
from mtplxd.forge.steps.convert import CONVERT
from mtplxd.forge.steps.extract import EXTRACT
from mtplxd.forge.steps.fetch import FETCH
from mtplxd.forge.steps.inspect import INSPECT
from mtplxd.forge.steps.measure import MEASURE, VERIFY
from mtplxd.forge.steps.seal import SEAL
from mtplxd.forge.steps.train import TRAIN

BUILDING = (FETCH, INSPECT, CONVERT, EXTRACT, CALIBRATE, TRAIN)
"""In a worker."""
JUDGING = (MEASURE, VERIFY)
"""In the daemon."""
ENDING = (SEAL,)
"""In a worker again."""
PHASES = {"building": BUILDING, "ending": ENDING}
"""What a worker can be asked for."""
