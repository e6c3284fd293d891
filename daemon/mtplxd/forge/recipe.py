"""What a build is asked for, checked: one frozen record that is written into its run and never changes.

It knows values, no files and no models; what of it a step depends on, the step says.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields
from typing import Any

from mtplxd.errors import DataLoss, InvalidArgument
from mtplxd.forge.train_plan import TrainPlan
from mtplxd.forge.widths import GROUP_SIZE, check_body, check_head_width, wrong
from mtplxd.packs.catalogue import SOURCES
from mtplxd.packs.resolver import is_pack_name

QUALITY_FLOOR = 0.85
"""Share of positions whose most likely token must be the source's."""
DEEPEST = 99


@dataclass(frozen=True)
class TrainOptions:
    """How a head is trained. `prompts` is a file of the user's, absolute; empty takes the built-in suite. `tokens` of
    data and `steps` 0 are as many as fit.
    """

    method: str = "auto"
    prompts: str = ""
    tokens: int = 0
    steps: int = 0
    seed: int = 0

    def document(self) -> dict[str, Any]:
        """As JSON."""
        return asdict(self)


@dataclass(frozen=True)
class BuildRecipe:
    """Everything a build depends on besides its source's bytes.

    `body_bits`: 16 leaves a body unquantised, None keeps what the source has. `overrides` are bits by a pattern of
    layer paths. `depths` and `auto` are what to measure, none meaning tune's own. `on_battery` goes on whatever the
    battery has, `accept_throttled` decides though the machine changed its speed, `no_fans` leaves fans to the
    system while it measures.
    """

    source: str
    name: str
    body_bits: int | None = None
    group_size: int = GROUP_SIZE
    dtype: str = "auto"
    overrides: Mapping[str, int] = field(default_factory=dict)
    train: bool = False
    training: TrainOptions = field(default_factory=TrainOptions)
    quick: bool = False
    depths: tuple[int, ...] = ()
    auto: bool = False
    head_bits: int | None = None
    allow_degraded_head: bool = False
    quality_floor: float = QUALITY_FLOOR
    on_battery: bool = False
    accept_throttled: bool = False
    no_fans: bool = False

    def __post_init__(self) -> None:
        """Raises InvalidArgument naming the field that no build can have."""
        _check_names(self)
        check_body(self.body_bits, self.group_size, self.dtype, self.overrides)
        check_head_width(self.head_bits, allowed=self.allow_degraded_head)
        _check_measures(self)
        _check_training(self)

    def document(self) -> dict[str, Any]:
        """As JSON."""
        return {**asdict(self), "overrides": dict(self.overrides), "depths": list(self.depths)}


def read_recipe(document: Mapping[str, Any]) -> BuildRecipe:
    """The recipe that a document holds. Raises DataLoss for one that was damaged, InvalidArgument."""
    known = {spec.name for spec in fields(BuildRecipe)}
    try:
        values = {name: value for name, value in document.items() if name in known}
        values["training"] = TrainOptions(**document.get("training", {}))
        values["depths"] = tuple(document.get("depths", ()))
        return BuildRecipe(**values)
    except (TypeError, AttributeError):
        raise DataLoss("damaged recipe of a build", None, "cancel the run and build again") from None


def _check_names(recipe: BuildRecipe) -> None:
    if not recipe.source.strip():
        raise wrong("source", "no source named", None, "give org/name or a folder")
    if not is_pack_name(recipe.name):
        fix = "use letters, digits, points, dashes and underscores"
        raise wrong("name", "no pack can have this name", ascii(recipe.name)[:100], fix)
    if recipe.name in SOURCES:
        raise wrong("name", "this name means other weights", recipe.name, "give another --name")


def _check_measures(recipe: BuildRecipe) -> None:
    floor = recipe.quality_floor
    if not (math.isfinite(floor) and 0 <= floor <= 1):
        raise wrong("quality_floor", "no share", floor, "give a number from 0 to 1")
    for depth in recipe.depths:
        if type(depth) is not int or not 1 <= depth <= DEEPEST:
            raise wrong("depths", "no depth to measure", depth, f"give whole numbers from 1 to {DEEPEST}")


def _check_training(recipe: BuildRecipe) -> None:
    asked = recipe.training
    if not recipe.train and asked != TrainOptions():
        raise wrong("train", "how to train is said, and nothing is trained", None, "add --train")
    try:
        TrainPlan(
            method=asked.method, tokens=asked.tokens or None, steps=asked.steps or None, seed=asked.seed
        )
    except InvalidArgument as error:
        raise wrong(f"training.{error.field}", error.what, error.value, error.fix) from None
