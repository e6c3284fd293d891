"""The step *convert*: a checkpoint's body becomes a pack's, file by file, with everything that goes with its weights.

It decides how and in what order; how layers are packed is `families.conversion`'s, how files are written `arrays`'.
The head is none of its business, what was lost by packing is `quality`'s.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from mtplxd.errors import DataLoss, ResourceExhausted
from mtplxd.families.conversion import StoredBody, cast, open_stored, quantise, unpack
from mtplxd.files import write_atomically
from mtplxd.forge.arrays import Progress, nbytes_of, write_file
from mtplxd.forge.body_plan import BodyPlan
from mtplxd.forge.converted_config import converted_config
from mtplxd.forge.pacing import IsCancelled, Tell
from mtplxd.forge.weights_files import index_of, shard_names, split_into_shards
from mtplxd.packs.contents import CONFIG, INDEX
from mtplxd.packs.fetch import hash_file
from mtplxd.packs.hub.plan import choose_carried
from mtplxd.packs.landing import check_space, disk_errors
from mtplxd.packs.pack import PAIR, TARGET, Pack, read_pack
from mtplxd.packs.senses import say_left_out
from mtplxd.platform.mlx import mx

STAGE = "convert"
_FLOATS = {"bf16": mx.bfloat16, "f16": mx.float16, "f32": mx.float32}
_WORKING = 3
"""Floats of the largest layer that are in memory at once: as read, as joined, as cast or packed."""


@dataclass(frozen=True)
class Conversion:
    """What a body became. `source` is how it was stored (float, fp8 or packed), `packed` counts its packed layers,
    `bits_per_weight` is over all of it. `lossless` says that it computes what the source's does. `files` are hashes by
    name, `left_out` bytes by the name of each tensor that a text model has no use for. `notes` are for the user.
    """

    source: str
    packing: Mapping[str, Any]
    packed: int
    lossless: bool
    tensors: int
    bytes_source: int
    bytes: int
    bits_per_weight: float
    files: Mapping[str, str]
    left_out: Mapping[str, int] = field(default_factory=dict)
    notes: tuple[str, ...] = ()

    def document(self) -> dict[str, Any]:
        """As JSON."""
        return {
            "source": self.source,
            "packing": dict(self.packing),
            "packed": self.packed,
            "lossless": self.lossless,
            "tensors": self.tensors,
            "bytes_source": self.bytes_source,
            "bytes": self.bytes,
            "bits_per_weight": self.bits_per_weight,
            "files": dict(self.files),
            "left_out": dict(self.left_out),
            "notes": list(self.notes),
        }


def convert_body(source: Path, out: Path, plan: BodyPlan, tell: Tell, cancelled: IsCancelled) -> Conversion:
    """Writes the body of the checkpoint in `source` into the folder `out`; in a pair, into the target's place there.

    What lies in `out` under the same names is replaced, so that it may simply be run again. Raises DataLoss for damaged
    files, FailedPrecondition for a body this build cannot run, ResourceExhausted without memory or disk, Cancelled.
    """
    pack = read_pack(source)
    home = out / TARGET if pack.assistant else out
    home.mkdir(parents=True, exist_ok=True)
    body = open_stored(pack)
    _check_memory(body, plan)
    weights, stored, changed = body.weights, _source_form(pack), _shape(body, plan)
    with disk_errors(home):
        check_space(nbytes_of(body.parameters), home)
        packing, packed = body.packing, len(body.packed_layers)
        files, written = _write(body, home, Progress(STAGE, nbytes_of(body.parameters), tell, cancelled))
        files |= _carry(pack, home, converted_config(pack.config, packing, plan.dtype))
        if pack.assistant:
            shutil.copyfile(pack.path / PAIR, out / PAIR)
    _read_back(home, written)
    total = sum(written.values())
    return Conversion(
        source=stored,
        packing=packing,
        packed=packed,
        lossless=not changed,
        tensors=len(written),
        bytes_source=pack.bytes_body,
        bytes=total,
        bits_per_weight=round(8 * total / max(weights, 1), 3),
        files=dict(sorted(files.items())),
        left_out={name: info.nbytes for name, (_, info) in sorted(body.left_out.items())},
        notes=(*changed, *say_left_out(body.left_out)),
    )


def _source_form(pack: Pack) -> str:
    dtypes = {info.dtype for _, info in pack.body_tensors.values()}
    if any(name.endswith(".scales") for name in pack.body_tensors):
        return "packed"
    return "fp8" if any(dtype.startswith("F8") for dtype in dtypes) else "float"


def _shape(body: StoredBody, plan: BodyPlan) -> tuple[str, ...]:
    """Makes the body what the plan asks for; says what of that changes its weights' values, nothing where none."""
    changes = []
    if body.packing and plan.bits is not None and not _packed_alike(body, plan):
        unpack(body)
        changes.append("its packed layers were unpacked, what their packing had lost stays lost")
    if plan.dtype != "auto" and (count := cast(body, _FLOATS[plan.dtype])):
        changes.append(f"{count} tensors were cast to {plan.dtype}")
    if plan.packs and not body.packing:
        assert plan.bits is not None
        overrides = {pattern: None if bits == 16 else bits for pattern, bits in plan.overrides.items()}
        count = quantise(body, plan.bits, plan.group_size, overrides)
        changes.append(f"{count} layers were packed, {plan.bits} bits in groups of {plan.group_size}")
    return tuple(changes)


def _packed_alike(body: StoredBody, plan: BodyPlan) -> bool:
    """Whether the source is packed as the plan asks, so that packing it anew would only lose."""
    stated = (body.packing.get("bits"), body.packing.get("group_size"))
    return not plan.overrides and stated == (plan.bits, plan.group_size)


def _check_memory(body: StoredBody, plan: BodyPlan) -> None:
    name, largest = max(((n, a.nbytes) for n, a in body.parameters.items()), key=lambda one: one[1])
    if plan.memory and (needed := _WORKING * largest) > plan.memory:
        raise ResourceExhausted(
            "the largest layer does not fit into memory while it is converted",
            f"{name}, {needed >> 20} MiB of {plan.memory >> 20}",
            "unload models, or forge on a larger machine",
            needed=needed,
            available=plan.memory,
        )


def _write(body: StoredBody, home: Path, progress: Progress) -> tuple[dict[str, str], dict[str, int]]:
    """Hashes by file, and bytes by tensor."""
    arrays = body.give_up()
    sizes = {name: array.nbytes for name, array in arrays.items()}
    shards = split_into_shards(sizes)
    names = shard_names(len(shards))
    _sweep(home, names)
    files = {}
    for name, shard in zip(names, shards, strict=True):
        part = {tensor: arrays.pop(tensor) for tensor in shard}
        files[name] = write_file(home / name, part, progress, {"format": "mlx"})
        mx.clear_cache()
    files[INDEX] = _put_json(home / INDEX, index_of(shards, names, sum(sizes.values())))
    return files, sizes


def _sweep(home: Path, wanted: list[str]) -> None:
    """Removes shards of an earlier attempt that was to have another number of them."""
    for file in home.glob("model-*-of-*.safetensors"):
        if file.name not in wanted:
            file.unlink()


def _carry(pack: Pack, home: Path, config: dict[str, Any]) -> dict[str, str]:
    """Config and what goes with the weights, by hash."""
    files = {CONFIG: _put_json(home / CONFIG, config)}
    for name in choose_carried({path.name for path in pack.model_path.iterdir() if path.is_file()}):
        write_atomically(home / name, (pack.model_path / name).read_bytes(), 0o644)
        files[name] = hash_file(home / name)
    return files


def _put_json(path: Path, value: Mapping[str, Any]) -> str:
    write_atomically(path, json.dumps(value, indent=2, ensure_ascii=False).encode() + b"\n", 0o644)
    return hash_file(path)


def _read_back(home: Path, written: Mapping[str, int]) -> None:
    """Raises DataLoss where the folder is not the body that was written."""
    found = {name: info.nbytes for name, (_, info) in read_pack(home).body_tensors.items()}
    if found != dict(written):
        raise DataLoss(
            "the converted body reads back otherwise than it was written", home.name, "resume the build"
        )
