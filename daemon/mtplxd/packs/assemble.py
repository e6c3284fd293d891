"""Makes a converted folder into a pack: checks the weights, adds licence, card, head and manifest.

It works inside one folder that it is given; fetching and the final rename are `pull`'s.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from mtplxd import __version__
from mtplxd.errors import DataLoss, NotFound
from mtplxd.packs.catalogue import Source
from mtplxd.packs.fetch import hash_file
from mtplxd.packs.fingerprint import body_fingerprint
from mtplxd.packs.manifest import FORMAT, Manifest, read_manifest, write_manifest
from mtplxd.packs.pack import Pack, read_pack
from mtplxd.packs.shipped import find_shipped, put_head
from mtplxd.packs.workers import run_worker

CONVERTER = "mtplxd.packs.gguf"
RECIPE = "gguf-dequantised-float16"
_LICENCES = Path(__file__).parent / "licences"
_MODEL_FILES = ("config.json", "generation_config.json", "tokenizer.json", "tokenizer_config.json")


def convert_apart(
    source_file: Path,
    folder: Path,
    *,
    lock: int,
    on_tensor: Callable[[int, int], None],
    cancelled: Callable[[], bool],
) -> None:
    """Converts a GGUF in a child process, whose memory goes with it. Raises what the child says."""
    run_worker(
        CONVERTER,
        (str(source_file), str(folder)),
        what="the conversion",
        lock=lock,
        on_message=lambda message: on_tensor(message["done"], message["total"]),
        cancelled=cancelled,
    )


def finish_pack(source: Source, folder: Path, heads: Path) -> None:
    """Adds what a converted folder lacks to be a pack. Raises DataLoss for weights that differ."""
    pack = read_pack(folder, source.name)
    found = body_fingerprint(pack)
    if found != source.body_fingerprint:
        raise DataLoss(
            "the conversion gave other weights than it must", found, "pull again, or update mtplxd"
        )
    licence = _LICENCES / f"{source.licence}.txt"
    (folder / "LICENSE").write_bytes(licence.read_bytes())
    (folder / "README.md").write_text(source.card, encoding="utf-8")
    manifest = put_head(folder, _new_manifest(source, pack), find_shipped(source.name, found, heads))
    write_manifest(folder, manifest)


def refresh_pack(source: Source, folder: Path, heads: Path) -> Pack | None:
    """The pack an earlier pull left in `folder`, with the newest shipped head; None if it is not whole.

    Reads every byte of the body. A head that is damaged or older is replaced, one that the user trained is
    kept.
    """
    try:
        pack = read_pack(folder, source.name)
        if not is_ours(source, folder) or not _is_whole(source, pack):
            return None
    except (NotFound, DataLoss):
        return None
    assert pack.manifest
    manifest = put_head(folder, pack.manifest, find_shipped(source.name, source.body_fingerprint, heads))
    if manifest != pack.manifest:
        write_manifest(folder, manifest)
    return read_pack(folder, source.name)


def is_ours(source: Source, folder: Path) -> bool:
    """Whether a pull of this name made the folder."""
    try:
        manifest = read_manifest(folder)
    except DataLoss:
        return False
    return manifest is not None and manifest.ours.get("name") == source.name


def _is_whole(source: Source, pack: Pack) -> bool:
    recorded = pack.manifest.ours.get("files", {}) if pack.manifest else {}
    files = {name: hash_file(pack.path / name) for name in recorded if (pack.path / name).is_file()}
    return bool(recorded) and files == recorded and body_fingerprint(pack) == source.body_fingerprint


def _new_manifest(source: Source, pack: Pack) -> Manifest:
    return Manifest(
        {
            "arch_id": pack.model_type,
            "public_model_id": source.name,
            "forge_provenance": {
                "source_repo": f"pypi:{source.project}",
                "source_sha": source.sha256,
                "source_format": Path(source.member).name,
                "forge_recipe": RECIPE,
                "version": __version__,
            },
            "mtplxd": {
                "format": FORMAT,
                "name": source.name,
                "family": pack.family,
                "head": None,
                "fingerprint": {"body": source.body_fingerprint, "head": None},
                "verification": None,
                "training": None,
                "files": {name: hash_file(pack.path / name) for name in _MODEL_FILES},
            },
        }
    )
