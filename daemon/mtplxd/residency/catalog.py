"""What residency and rpc ask about packs on disk: name to pack, verdict, memory need, defaults.

Every answer comes from `packs`; no rule about packs is made here.
"""

from __future__ import annotations

import contextlib
import json
from dataclasses import dataclass
from typing import Any, TypeGuard

from mtplxd.errors import MtplxError
from mtplxd.packs.detector import detect_head
from mtplxd.packs.fingerprint import body_fingerprint, own_head_fingerprint
from mtplxd.packs.memory import need_of_pack
from mtplxd.packs.pack import Pack
from mtplxd.packs.resolver import resolve, scan_packs
from mtplxd.packs.tiers import judge
from mtplxd.paths import Home
from mtplxd.residency.collaborators import Verdict
from mtplxd.residency.plan import Need


class PackCatalog:
    """The packs of one home, and whatever else a name may mean. Reads headers; the weights of verified packs, once."""

    def __init__(self, home: Home) -> None:
        self._home = home

    def resolve(self, name: str) -> Pack:
        """The pack of a name, path or repository. Raises NotFound, DataLoss."""
        return resolve(name, self._home)

    def scan(self) -> tuple[list[Pack], dict[str, MtplxError]]:
        """The whole packs, and what is wrong with each other folder by its name."""
        return scan_packs(self._home)

    def verdict(self, pack: Pack) -> Verdict:
        """Tier, reasons, and whether the head can be bound and driven."""
        head = detect_head(pack)
        tier, reasons = judge(pack, head)
        whole = head.present and head.driven and not head.problems
        depth_max = head.depth_max if whole else None if head.present else 0
        return Verdict(str(tier), tuple(reasons), whole, depth_max, head.depth_limit if whole else None)

    def need(self, pack: Pack, *, headless: bool, widen: bool) -> Need:
        """Its part of the memory plan, bytes."""
        return need_of_pack(pack, headless=headless, widen=widen)

    def fingerprint(self, pack: Pack) -> None:
        """Reads the weights where nobody did: what is kept of prompts goes by them. A load says what cannot be read."""
        with contextlib.suppress(MtplxError, OSError):
            body_fingerprint(pack)
            own_head_fingerprint(pack)


@dataclass(frozen=True)
class SamplerDefaults:
    """What a pack's publisher recommends; None where nothing is said."""

    temperature: float | None = None
    top_p: float | None = None
    top_k: int | None = None
    min_p: float | None = None
    repetition_penalty: float | None = None
    presence_penalty: float | None = None
    frequency_penalty: float | None = None
    draft_temperature: float | None = None
    draft_top_k: int | None = None


def sampler_defaults(pack: Pack) -> SamplerDefaults:
    """The contract file's sampler, then generation_config.json's. What is no number counts as unsaid.

    The draft's own is our block's `draft_sampler`, else the field's `recommended_draft_sampler`.
    """
    fields = pack.manifest.fields if pack.manifest else {}
    ours = pack.manifest.ours if pack.manifest else {}
    sources = _tables(fields.get("sampler"), _generation_config(pack))
    draft = _tables(ours.get("draft_sampler"), fields.get("recommended_draft_sampler"))
    return SamplerDefaults(
        temperature=_number(sources, "temperature"),
        top_p=_number(sources, "top_p"),
        top_k=_whole(sources, "top_k"),
        min_p=_number(sources, "min_p"),
        repetition_penalty=_number(sources, "repetition_penalty"),
        presence_penalty=_number(sources, "presence_penalty"),
        frequency_penalty=_number(sources, "frequency_penalty"),
        draft_temperature=_number(draft, "temperature"),
        draft_top_k=_whole(draft, "top_k"),
    )


def recommended_depth(pack: Pack) -> int | None:
    """The contract file's depth, None where it names none; 0 where its publisher found plain decoding faster."""
    fields = pack.manifest.fields if pack.manifest else {}
    if fields.get("recommended_generation_mode") == "ar":
        return 0
    value = fields.get("recommended_mtp_depth")
    return value if type(value) is int and value >= 0 else None


def _generation_config(pack: Pack) -> object:
    try:
        return json.loads((pack.model_path / "generation_config.json").read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None


def _tables(*values: object) -> list[dict[str, Any]]:
    return [value for value in values if isinstance(value, dict)]


def _number(sources: list[dict[str, Any]], name: str) -> float | None:
    found = (source.get(name) for source in sources)
    return next((float(value) for value in found if _is_number(value)), None)


def _is_number(value: Any) -> TypeGuard[float]:
    """JSON's true is no number, nor is a whole one that floats cannot hold."""
    return type(value) is float or (type(value) is int and abs(value) < 1 << 64)


def _whole(sources: list[dict[str, Any]], name: str) -> int | None:
    found = (source.get(name) for source in sources)
    return next((value for value in found if type(value) is int and 0 <= value < 1 << 31), None)
