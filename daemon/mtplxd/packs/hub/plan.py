"""Which files of a repository a pack needs: what is judged and loaded, and what its licence asks to keep.

It decides on names, config and index alone; code, pickles and other formats' weights are never among them.
"""

from __future__ import annotations

from collections.abc import Collection
from fnmatch import fnmatchcase

from mtplxd.errors import DataLoss, UnsupportedSource
from mtplxd.packs.contents import CONFIG, INDEX, choose_files
from mtplxd.packs.folder import Folder
from mtplxd.packs.manifest import FILE_NAME as MANIFEST
from mtplxd.packs.pack import ASSISTANT, PAIR, TARGET, read_table

_BESIDE = (
    CONFIG, INDEX, MANIFEST, PAIR, "generation_config.json",
    "tokenizer*.json", "special_tokens_map.json", "added_tokens.json", "vocab.json", "vocab.txt", "merges.txt",
    "*.tiktoken", "tokenizer*.model", "spiece.model", "sentencepiece*.model",
    "chat_template.json", "*.jinja",
)  # fmt: skip
_PAPERS = ("licen[cs]e*", "copying*", "notice*", "use_policy*")
_CARD = "readme.md"
_PAPER_ENDS = ("", ".md", ".txt")


def choose_wanted(folder: Folder, names: Collection[str]) -> list[str]:
    """Names of the files to fetch, of a folder whose files, in folders below too, are `names`.

    Raises UnsupportedSource for a repository that holds no model this project reads, DataLoss for a damaged one.
    """
    if PAIR not in names:
        return sorted(_of_one(folder, names))
    wanted = {name for name in names if _is_beside(name)}
    for part in (TARGET, ASSISTANT):
        inside = {name.removeprefix(f"{part}/") for name in names if name.startswith(f"{part}/")}
        wanted |= {f"{part}/{name}" for name in _of_one(folder.below(part), inside)}
    return sorted(wanted)


def choose_carried(names: Collection[str]) -> list[str]:
    """Of a model's files those that go with its weights however they are stored: tokenizer, templates and licence.

    Not what a conversion writes anew: config, index, contract and card.
    """
    anew = {CONFIG, INDEX, MANIFEST, PAIR}
    return sorted(name for name in names if _is_beside(name) and name not in anew and name.lower() != _CARD)


def choose_papers(names: Collection[str]) -> list[str]:
    """Of a model's files those that say what may be done with it, its card aside."""
    return sorted(name for name in names if _is_paper(name))


def _of_one(folder: Folder, names: Collection[str]) -> set[str]:
    where = str(folder.path)
    if CONFIG not in names:
        fix = f"it has no {CONFIG}: give a repository of safetensors weights"
        raise UnsupportedSource("no model in this repository", where, fix)
    config = read_table(folder, CONFIG)
    index = read_table(folder, INDEX) if INDEX in names and folder.has(INDEX) else None
    # of an index too large to be read from afar the names of files say which are its parts
    weights = set(names) & folder.names() if index is None and INDEX in names else set(names)
    try:
        body, sidecar = choose_files(weights, config, index, where)
    except DataLoss as error:
        fix = "the repository is not whole or of another kind, choose another one"
        raise UnsupportedSource(error.what, error.value, fix) from None
    return {*body, *([sidecar] if sidecar else []), *(name for name in names if _is_beside(name))}


def _is_beside(name: str) -> bool:
    named = "/" not in name and any(fnmatchcase(name, pattern) for pattern in _BESIDE)
    return named or name.lower() == _CARD or _is_paper(name)


def _is_paper(name: str) -> bool:
    low = name.lower()
    end = low[low.rfind(".") :] if "." in low else ""
    return "/" not in name and end in _PAPER_ENDS and any(fnmatchcase(low, pattern) for pattern in _PAPERS)
