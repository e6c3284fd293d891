"""How the loader would feed a pack's head, found without loading it: of its values only norms are read.

A conversion moves a body's own norms, and with them the hint that decides an open convention: whoever builds a pack
asks this of the source and writes the answer down.
"""

from __future__ import annotations

from mtplxd.families.heads.bind import place_tensors
from mtplxd.families.heads.gemma4_opening import SCHEMES
from mtplxd.families.heads.opening import decide_settings, read_published, text_args
from mtplxd.families.heads.row import HeadSettings
from mtplxd.families.load_body import load_body
from mtplxd.packs.detector import HeadReport
from mtplxd.packs.pack import Pack


def settings_in_force(pack: Pack, report: HeadReport) -> HeadSettings | None:
    """The switches of a published head that was found whole, None for a head that is fed in a way of its own.

    Raises FailedPrecondition for a family, a body or a setting this build does not know, DataLoss for damaged files.
    """
    if report.layout == "adapter" or report.scheme in SCHEMES:
        return None
    weights = read_published(pack, report)
    if weights.settings.norm_convention != "decide":
        return weights.settings
    model = load_body(pack)
    placed = place_tensors(
        weights.tensors, weights.family, text_args(model), weights.body_layers, weights.scale_block
    )
    return decide_settings(weights, placed, model)
