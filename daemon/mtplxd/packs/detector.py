"""THE detector of heads: whether a pack has one, in which layout, and what is missing from it or left over.

The tensors decide, never the config alone. It reads headers only; values are checked by `binding`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from mtplxd.packs.headers import TensorInfo
from mtplxd.packs.layouts import DRIVEN, LAYOUTS
from mtplxd.packs.layouts.find import Found, body_layers, find_layout, unwrap
from mtplxd.packs.layouts.gemma import TARGETS, joint_faults
from mtplxd.packs.layouts.row import Config, Layout, Seen, Shapes
from mtplxd.packs.layouts.stored import FLOATS, ID_DTYPES, as_stored, dtype_faults, is_ids
from mtplxd.packs.pack import PAIR, Located, Pack

DECLARATIONS = ("num_nextn_predict_layers", "mtp_num_hidden_layers", "num_mtp_modules", "num_mtp_layers")
"""Fields by which a config says that there is a head; conversions keep them and drop the tensors."""
DEPTH_LIMIT = 99
TRAINED_HERE = "trained"
"""What a head's metadata states as its `origin` where forge made or changed it."""
TRAINED = "trained, not shipped"
"""How such a head is called wherever one shows: it did not come with its checkpoint."""
_ENDS = {
    "embed_tokens": ("embed_tokens.weight", "embeddings.weight"),
    "lm_head": ("lm_head.weight", "embed_tokens.weight", "embeddings.weight"),
}


@dataclass(frozen=True)
class HeadReport:
    """What was found. A head that is `present` binds only if `problems` is empty.

    `layout` is how it is stored, `scheme` the row of the table. `prefix` stands before its names in the files,
    `wrap` is the part of it that the published names lack. `tensors` counts those of the head, `layers` the
    blocks that draft, `located` says where each tensor lies, by stored name; `file` is the head's own, None where
    its tensors lie in the body's files.
    `aliases` names the body's tensor for each part of which the head has none or maybe a copy; `copies` are its
    tensors that may repeat the body's, with the body's. `metadata` is the sidecar's. `missing`, `extra` and
    `misshapen` are parts of `problems`; `notes` are worth telling and stop nothing.
    """

    present: bool
    layout: str = ""
    scheme: str = ""
    prefix: str = ""
    wrap: str = ""
    tensors: int = 0
    layers: int = 0
    depth_max: int = 0
    missing: tuple[str, ...] = ()
    extra: tuple[str, ...] = ()
    misshapen: tuple[str, ...] = ()
    aliases: dict[str, str] = field(default_factory=dict)
    copies: dict[str, str] = field(default_factory=dict)
    file: Path | None = None
    located: Located = field(default_factory=dict)
    metadata: Mapping[str, str] = field(default_factory=dict)
    faults: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()

    @property
    def driven(self) -> bool:
        """Whether this build has a module for it."""
        return self.scheme in DRIVEN

    @property
    def obstacles(self) -> list[str]:
        """Why a head that is there cannot be run: what is wrong with it, else that nothing here drives its kind."""
        if self.problems or not self.present or self.driven:
            return list(self.problems)
        return [f"no module here drives a head of its layout ({self.layout}, {self.scheme})"]

    @property
    def trained(self) -> bool:
        """Whether forge made it, or changed the one that came with the checkpoint."""
        return self.metadata.get("origin") == TRAINED_HERE

    @property
    def depth_limit(self) -> int:
        """How far a user may raise `depth_max`: a single layer is fed on at will, several draft one position each."""
        return self.depth_max if self.layers > 1 else DEPTH_LIMIT

    @property
    def problems(self) -> tuple[str, ...]:
        """Every reason why this head cannot be bound, in words."""
        lists = (("missing", self.missing), ("unused", self.extra), ("wrong shape", self.misshapen))
        return (*self.faults, *(f"{word}: {_some(names)}" for word, names in lists if names))


def detect_head(pack: Pack) -> HeadReport:
    """The head of a pack, from what was read of it; no file is opened."""
    located = pack.head_tensors
    if not located:
        return HeadReport(present=False, notes=_declared(pack))
    owner = pack.assistant or pack
    found = find_layout(located.keys(), owner.family, owner.text_config, pack.metadata.get("layout"))
    if found is None or found.layout is None:
        return _unknown(pack, pack.metadata)
    return _report(pack, found, found.layout, pack.metadata)


def _unknown(pack: Pack, metadata: Mapping[str, str]) -> HeadReport:
    claim, rows = metadata.get("layout"), {row.name: row for row in LAYOUTS}
    if claim in rows:
        fault = f"its metadata names the layout {claim}, its tensors show none of {rows[claim].prefix}*"
    elif claim:
        fault = f"its layout ({claim}) is not one this build knows"
    else:
        fault = f"the layout of its tensors is not one this build knows for the family {pack.family}"
    return HeadReport(
        present=True,
        layout="unknown",
        tensors=len(pack.head_tensors),
        extra=tuple(sorted(pack.head_tensors)),
        file=_own_file(pack),
        located=pack.head_tensors,
        metadata=metadata,
        faults=(fault,),
        notes=_notes(pack),
    )


def _report(pack: Pack, found: Found, layout: Layout, metadata: Mapping[str, str]) -> HeadReport:
    owner = pack.assistant or pack
    located, config = pack.head_tensors, {**owner.config, **owner.text_config}
    tensors = {bare: located[name][1] for bare, name in unwrap(found, located).items()}
    seen = Seen(config, tensors, metadata)
    faults, plain = _expected(pack, layout, seen)
    expected = {found.wrap + name: shape for name, shape in as_stored(plain, tensors, config).items()}
    aliases, layers = _aliases(pack, layout), layout.layers(seen)
    return HeadReport(
        present=True,
        layout=_kind(layout, found.wrap),
        scheme=layout.name,
        prefix=_prefix(pack, layout, found.wrap),
        wrap=found.wrap.removesuffix(layout.home),
        tensors=len(located),
        layers=layers,
        depth_max=_depth(pack, layout, seen),
        missing=tuple(sorted(expected.keys() - located.keys())),
        extra=tuple(sorted(located.keys() - expected.keys())) if plain else (),
        misshapen=_misshapen(expected, located),
        aliases=aliases,
        copies=_copies(layout, found, tensors, aliases),
        file=_own_file(pack),
        located=located,
        metadata=metadata,
        faults=tuple(faults),
        notes=(*_notes(pack), *_fewer(config, layers), *_origin(metadata)),
    )


def _expected(pack: Pack, layout: Layout, seen: Seen) -> tuple[list[str], Shapes]:
    """What is wrong whatever the shapes are, and the plain shapes where the family is one the layout is for."""
    owner = pack.assistant or pack
    faults = [
        *_layout_faults(layout, seen.metadata),
        *_family_faults(owner, layout, seen),
        *_pair_faults(pack, layout, seen.config),
    ]
    if layout.unsupported:
        return faults, {}
    plain: Shapes = {}
    if owner.family in layout.families or layout.any_family(seen):
        try:
            plain = layout.expected(seen)
            faults += layout.problems(seen)
        except (KeyError, TypeError, ValueError) as error:
            faults.append(f"the config does not fit its family, {error}")
    faults += _owner_faults(pack, layout, seen.metadata)
    return [*faults, *_dtype_faults(pack, plain, seen.tensors)], plain


def _family_faults(pack: Pack, layout: Layout, seen: Seen) -> list[str]:
    if layout.unsupported:
        return [layout.unsupported]
    if pack.family in layout.families or layout.any_family(seen):
        return []
    return [f"no {layout.name} head is known for the family {pack.family}"]


def _pair_faults(pack: Pack, layout: Layout, config: Config) -> list[str]:
    """An assistant has no body of its own, and drafts for one target's hidden size and vocabulary."""
    if layout.name != "gemma4_assistant":
        return []
    if pack.assistant is None:
        return [f"it is a drafter without a body: put it into a pair with its target ({PAIR})"]
    if pack.family not in TARGETS:
        return [f"its target is of the family {pack.family}, it drafts for {', '.join(sorted(TARGETS))}"]
    return joint_faults(config, {**pack.config, **pack.text_config})


def _misshapen(expected: Shapes, located: Located) -> tuple[str, ...]:
    return tuple(
        f"{name} {list(located[name][1].shape)} not {list(shape)}"
        for name, shape in sorted(expected.items())
        if name in located and located[name][1].shape != shape
    )


def _aliases(pack: Pack, layout: Layout) -> dict[str, str]:
    """The body's tensor for each part the head has not of its own; a tied body's output is its embedding."""
    names = sorted(pack.body_tensors, key=len)
    found = {
        part: next((n for end in _ENDS[part] for n in names if n == end or n.endswith(f".{end}")), "")
        for part in layout.aliases
    }
    return {part: name for part, name in found.items() if name}


def _copies(
    layout: Layout, found: Found, tensors: Mapping[str, TensorInfo], aliases: Mapping[str, str]
) -> dict[str, str]:
    """By stored name, the head's tensors that may repeat the body's, with the body's name."""
    return {
        found.wrap + name: aliases[part]
        for end, part in layout.copies.items()
        for name in sorted(tensors)
        if name.endswith(f".{end}") and part in aliases
    }


def _kind(layout: Layout, wrap: str) -> str:
    return "language_model_prefix" if layout.kind == "prefix" and "language_model" in wrap else layout.kind


def _prefix(pack: Pack, layout: Layout, wrap: str) -> str:
    return wrap + layout.prefix.replace("{N}", str(body_layers(pack.text_config)))


def _depth(pack: Pack, layout: Layout, seen: Seen) -> int:
    """The family's; a pack may raise that of a single layer, since feeding it on costs nothing but acceptance."""
    if layout.unsupported:
        return 0
    depth = layout.depth(seen)
    raised = pack.manifest.depth_max if pack.manifest else None
    if raised and layout.layers(seen) == 1 and layout.kind != "adapter":
        return max(depth, min(raised, DEPTH_LIMIT))
    return depth


def _own_file(pack: Pack) -> Path | None:
    return pack.sidecar if {path for path, _ in pack.head_tensors.values()} == {pack.sidecar} else None


def _notes(pack: Pack) -> tuple[str, ...]:
    unused = sorted(pack.unused_head_tensors)
    if not unused:
        return ()
    return (f"a head in the body's own files is not used, the pack has another: {_some(tuple(unused))}",)


def _fewer(config: Config, layers: int) -> tuple[str, ...]:
    """A note where the config declares more layers than the files hold; those that are there draft."""
    name, declared = next(((n, config[n]) for n in DECLARATIONS if type(config.get(n)) is int), ("", 0))
    return (
        (f"its config declares {declared} layers ({name}), its files hold {layers}",)
        if declared > layers
        else ()
    )


def _declared(pack: Pack) -> tuple[str, ...]:
    """A note where the config declares a head that no file holds."""
    for name in DECLARATIONS:
        for table in (pack.text_config, pack.config):
            value = table.get(name)
            if type(value) is int and value > 0:
                return (f"its config declares a head ({name} {value}), but no file holds its tensors",)
    return ()


def _layout_faults(layout: Layout, metadata: Mapping[str, str]) -> list[str]:
    """The tensors decide; metadata that names a layout must name the one they show."""
    claimed = metadata.get("layout")
    prefixes = {"prefix", "language_model_prefix"}
    if claimed in (None, layout.name, layout.kind) or {claimed, layout.kind} <= prefixes:
        return []
    return [f"its metadata names the layout {claimed}, its tensors show {layout.kind}"]


def _dtype_faults(pack: Pack, plain: Shapes, tensors: Mapping[str, TensorInfo]) -> list[str]:
    """Weights are floats, or packed with their scales; token ids are as many as the body has at most."""
    wrong = dtype_faults(plain, tensors)
    faults = [f"not {', '.join(FLOATS)}: {_some(tuple(wrong))}"] if wrong else []
    vocab = pack.text_config.get("vocab_size", 0)
    for name, info in sorted(tensors.items()):
        if not is_ids(name):
            continue
        allowed = next(kinds for end, kinds in ID_DTYPES.items() if name.endswith(end))
        if info.dtype not in allowed:
            faults.append(f"{name} has dtype {info.dtype}, not {' or '.join(allowed)}")
        elif not 0 < info.size <= vocab:
            faults.append(f"{name} has {info.size} token ids, the body {vocab}")
    return faults


def _origin(metadata: Mapping[str, str]) -> list[str]:
    if metadata.get("origin") != TRAINED_HERE:
        return []
    return [f"its head is {TRAINED}: for exactly these weights, on what they say themselves"]


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
