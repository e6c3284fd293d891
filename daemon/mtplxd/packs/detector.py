"""THE detector of heads: whether a pack has one, in which layout, and what is missing from it or left over.

The tensors decide, never the config alone. It reads headers only; values are checked by `binding`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from mtplxd.packs.headers import read_metadata
from mtplxd.packs.layouts import LAYOUTS, Layout, Tensors
from mtplxd.packs.pack import Pack

FLOATS = ("F32", "F16", "BF16")
DRAFT_VOCAB = "draft_vocab"


@dataclass(frozen=True)
class HeadReport:
    """What was found. A head that is `present` binds only if `problems` is empty.

    `tensors` counts those of the head, `layers` its blocks; `aliases` names the body's tensors it uses.
    `metadata` is the sidecar's. `missing`, `extra` and `misshapen` are parts of `problems`.
    """

    present: bool
    layout: str = ""
    prefix: str = ""
    tensors: int = 0
    layers: int = 0
    depth_max: int = 0
    missing: tuple[str, ...] = ()
    extra: tuple[str, ...] = ()
    misshapen: tuple[str, ...] = ()
    aliases: dict[str, str] = field(default_factory=dict)
    file: Path | None = None
    metadata: Mapping[str, str] = field(default_factory=dict)
    faults: tuple[str, ...] = ()

    @property
    def problems(self) -> tuple[str, ...]:
        """Every reason why this head cannot be bound, in words."""
        lists = (("missing", self.missing), ("unused", self.extra), ("wrong shape", self.misshapen))
        return (*self.faults, *(f"{word}: {_some(names)}" for word, names in lists if names))


def detect_head(pack: Pack) -> HeadReport:
    """The head of a pack. Raises DataLoss when its file is damaged."""
    if pack.sidecar is None or not pack.headers[pack.sidecar]:
        return HeadReport(present=False)
    tensors, metadata = pack.headers[pack.sidecar], read_metadata(pack.sidecar)
    shown = next((row for row in LAYOUTS if row.recognise(tensors)), None)
    layout = shown or next((row for row in LAYOUTS if row.name == metadata.get("layout")), None)
    if layout is None:
        return HeadReport(
            present=True,
            layout="unknown",
            tensors=len(tensors),
            extra=tuple(sorted(tensors)),
            file=pack.sidecar,
            metadata=metadata,
            faults=(f"its layout{_claim(metadata)} is not one this build knows",),
        )
    return _report(pack, layout, tensors, metadata)


def _report(pack: Pack, layout: Layout, tensors: Tensors, metadata: Mapping[str, str]) -> HeadReport:
    faults = [
        *_layout_faults(layout, tensors, metadata),
        *_family_faults(pack, layout),
        *_owner_faults(pack, layout, metadata),
        *_dtype_faults(pack, tensors),
    ]
    expected = {}
    if pack.family in layout.families:
        try:
            expected = layout.expected(pack.text_config, tensors, metadata)
            faults += layout.problems(pack.text_config, metadata)
        except (KeyError, TypeError) as error:
            faults.append(f"the config does not fit its family, {error}")
    return HeadReport(
        present=True,
        layout=layout.name,
        prefix=layout.prefix,
        tensors=len(tensors),
        layers=layout.layers(tensors),
        depth_max=layout.depth_max(metadata),
        missing=tuple(sorted(expected.keys() - tensors.keys())),
        extra=tuple(sorted(tensors.keys() - expected.keys())),
        misshapen=tuple(
            f"{name} {list(tensors[name].shape)} not {list(shape)}"
            for name, shape in sorted(expected.items())
            if name in tensors and tensors[name].shape != shape
        ),
        aliases=_aliases(pack, layout),
        file=pack.sidecar,
        metadata=metadata,
        faults=tuple(faults),
    )


def _family_faults(pack: Pack, layout: Layout) -> list[str]:
    if pack.family in layout.families:
        return []
    return [f"no {layout.name} head is known for the family {pack.family}"]


def _aliases(pack: Pack, layout: Layout) -> dict[str, str]:
    """The body's tensor for each part the head has not of its own; a tied body's output is its embedding."""
    ends = {"embed_tokens": ("embed_tokens.weight",), "lm_head": ("lm_head.weight", "embed_tokens.weight")}
    names = pack.body_tensors
    found = {
        part: next((name for end in ends[part] for name in names if name.endswith(end)), "")
        for part in layout.aliases
    }
    return {part: name for part, name in found.items() if name}


def _claim(metadata: Mapping[str, str]) -> str:
    return f" ({metadata['layout']})" if metadata.get("layout") else ""


def _layout_faults(layout: Layout, tensors: Tensors, metadata: Mapping[str, str]) -> list[str]:
    """The tensors decide; metadata that names a layout must name the one they show."""
    claimed = metadata.get("layout")
    if claimed not in (None, layout.name):
        return [f"its metadata names the layout {claimed}, its tensors show {layout.name}"]
    if not any(name.startswith(layout.prefix) for name in tensors):
        return [f"its metadata names the layout {claimed}, its tensors show none of {layout.prefix}*"]
    return []


def _dtype_faults(pack: Pack, tensors: Tensors) -> list[str]:
    """Weights are floats as stored, a draft vocabulary is as many ids as the body has at most."""
    floats = {name: info for name, info in tensors.items() if not name.endswith(DRAFT_VOCAB)}
    wrong = [f"{name} {info.dtype}" for name, info in sorted(floats.items()) if info.dtype not in FLOATS]
    faults = [f"not {', '.join(FLOATS)}: {_some(tuple(wrong))}"] if wrong else []
    for name, info in sorted(tensors.items() - floats.items()):
        if info.dtype != "I32":
            faults.append(f"{name} has dtype {info.dtype}, not I32")
        elif not 0 < info.size <= pack.text_config.get("vocab_size", 0):
            faults.append(f"{name} has {info.size} token ids, the body {pack.text_config.get('vocab_size')}")
    return faults


def _owner_faults(pack: Pack, layout: Layout, metadata: Mapping[str, str]) -> list[str]:
    """A head names the body it was trained on; the pack's record is compared here, the bytes in `binding`."""
    if layout.name == "adapter" and not metadata.get("body_fingerprint"):
        return ["it does not say which body it was trained for"]
    named, recorded = metadata.get("body_fingerprint"), pack.manifest and pack.manifest.body_fingerprint
    if named and recorded and named != recorded:
        return ["it was trained for another body"]
    return []


def _some(names: tuple[str, ...], shown: int = 4) -> str:
    more = f" and {len(names) - shown} more" if len(names) > shown else ""
    return ", ".join(names[:shown]) + more
