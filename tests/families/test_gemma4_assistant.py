"""A Gemma 4 assistant computes what its equations say, and reads what its target holds when it drafts."""

from __future__ import annotations

import gc
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from mtplxd.errors import FailedPrecondition
from mtplxd.families.heads.gemma4_assistant import AHEAD, AssistantHead
from mtplxd.families.load import LoadedModel, load_model
from mtplxd.packs.detector import detect_head
from mtplxd.packs.manifest import Manifest, write_manifest
from mtplxd.packs.pack import read_pack
from mtplxd.platform.mlx import Array, mx
from reference.gemma4_assistant import Assistant, KeysValues
from support.checkpoint_files import read_tensors
from support.gemma_pair import WINDOW, assistant_config, flat, write_beside, write_pair

SIZES = ("small", "large", "experts")
PROMPT = [5, 9, 11, 200, 31, 4, 8, 77, 3, 12, 90, 41, 7, 7, 250, 18, 63, 2, 120, 33]


@pytest.fixture(scope="module")
def pairs(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("pairs")
    return {size: write_pair(folder / size, size, seed=3) for size in SIZES}


@pytest.fixture(scope="module")
def models(pairs: dict[str, Path]) -> dict[str, LoadedModel]:
    return {size: load_model(read_pack(folder)) for size, folder in pairs.items()}


class Beside:
    """The reference beside a loaded pair, with keys and values that mlx-lm's own caches held."""

    def __init__(self, folder: Path, model: LoadedModel) -> None:
        self.config = flat(json.loads((folder / "assistant" / "config.json").read_text()))
        self.assistant = Assistant(read_tensors(folder / "assistant"), self.config)
        self.model: Any = model.target.model  # type: ignore[attr-defined]
        self.table = np.array(self.model.language_model.model.embed_tokens.weight)

    def draft(self, tokens: Sequence[int], drafts: Sequence[int], ahead: int) -> list[np.ndarray]:
        """Logits of a block behind `tokens`, fed `drafts` after its first step."""
        held, hidden = self._held(tokens[:-1])
        position, laws = len(tokens) - 2 + ahead, []
        for token in (tokens[-1], *drafts):
            logits, hidden = self.assistant.step(self.table[token], hidden, held, position)
            laws.append(logits)
        return laws

    def _held(self, tokens: Sequence[int]) -> tuple[Mapping[str, KeysValues], np.ndarray]:
        """All keys and values of the last layer of each kind that keeps any, and the last final-normed hidden."""
        from mlx_lm.models.cache import KVCache

        text = self.model.language_model
        cache: list[Any] = [KVCache() for _ in text.make_cache()]
        hidden = text.model(mx.array([list(tokens)]), cache=cache)
        held = {}
        for kind, layer in zip(text.args.layer_types, cache, strict=False):
            held[kind] = (
                np.array(layer.keys)[0, :, : len(tokens)],
                np.array(layer.values)[0, :, : len(tokens)],
            )
        return held, np.array(hidden)[0, -1]


def head_of(model: LoadedModel) -> AssistantHead:
    assert isinstance(model.head, AssistantHead)
    return model.head


def block(
    model: LoadedModel, head: AssistantHead, prompt: Sequence[int], drafts: Sequence[int]
) -> list[Array]:
    """The same from the loaded pair, on its own caches."""
    cache = model.target.make_cache(1)
    _, taps = model.target.run(mx.array([prompt[:-1]]), cache)
    lent = head.make_cache(1, cache)
    state = head.absorb(mx.array([prompt[1:]]), taps, lent)
    laws = [head.logits(state)]
    for draft in drafts:
        state = head.extend(mx.array([[draft]]), state, lent)
        laws.append(head.logits(state))
    return laws


@pytest.mark.parametrize("position", ["hidden", "token"])
@pytest.mark.parametrize("size", SIZES)
def test_a_block_of_drafts_is_what_the_equations_say(
    size: str, position: str, models: dict[str, LoadedModel], pairs: dict[str, Path]
) -> None:
    model, reference = models[size], Beside(pairs[size], models[size])
    bound = head_of(model)
    head = AssistantHead(bound.module, model.target.embedding, bound.sources, position, 8)  # type: ignore[attr-defined]
    for count in (2, 5, WINDOW, WINDOW + 1, WINDOW + 2, len(PROMPT)):
        ours = block(model, head, PROMPT[:count], [44, 7, 199])
        wanted = reference.draft(PROMPT[:count], [44, 7, 199], AHEAD[position])
        for law, other in zip(ours, wanted, strict=True):
            assert np.abs(np.array(law)[0, 0] - other).max() < 1e-4


def test_the_two_positions_are_not_the_same(models: dict[str, LoadedModel], pairs: dict[str, Path]) -> None:
    reference = Beside(pairs["large"], models["large"])
    laws = [reference.draft(PROMPT, [], ahead)[0] for ahead in (0, 1)]
    assert np.abs(laws[0] - laws[1]).max() > 1e-2


def test_pairs_at_once_and_one_by_one_draft_the_same(models: dict[str, LoadedModel]) -> None:
    model, head = models["small"], head_of(models["small"])
    cache = model.target.make_cache(1)
    _, taps = model.target.run(mx.array([PROMPT[:-1]]), cache)
    lent = [head.make_cache(1, cache) for _ in range(2)]
    at_once = head.absorb(mx.array([PROMPT[1:]]), taps, lent[0])
    for i, token in enumerate(PROMPT[1:]):
        single = head.absorb(mx.array([[token]]), tuple(tap[:, i : i + 1] for tap in taps), lent[1])
    assert mx.array_equal(head.logits(at_once), head.logits(single))
    assert lent[0][0].lengths == lent[1][0].lengths == [len(PROMPT) - 1]


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("begin", [3, WINDOW - 1, WINDOW + 4])
def test_it_reads_the_targets_slots_as_they_are_after_the_roll_back(
    size: str, begin: int, models: dict[str, LoadedModel], pairs: dict[str, Path]
) -> None:
    model, head, reference = models[size], head_of(models[size]), Beside(pairs[size], models[size])
    text, rejected = PROMPT[:begin], [111, 222, 133]
    cache = model.target.make_cache(1)
    model.target.run(mx.array([text[:-1]]), cache)
    _, taps = model.target.run(mx.array([[text[-1], *rejected]]), cache)
    committed = [*text, 45]
    newest = tuple(tap[:, :1] for tap in taps)

    def drafted() -> np.ndarray:
        lent = head.make_cache(1, cache)
        return np.array(head.logits(head.absorb(mx.array([[45]]), newest, lent)))[0, 0]

    before = drafted()
    for layer in cache:
        layer.roll_back([len(committed) - 1])
    wanted = reference.draft(committed, [], 0)[0]
    assert np.abs(drafted() - wanted).max() < 1e-4
    assert np.abs(before - wanted).max() > 1e-3, "what it reads before the roll-back must not pass"


def test_rows_of_unequal_length_draft_what_each_drafts_alone(models: dict[str, LoadedModel]) -> None:
    for model in models.values():
        head, prompts = head_of(model), [PROMPT[:4], PROMPT[:7], PROMPT]
        width = max(map(len, prompts))
        cache = model.target.make_cache(len(prompts))
        padded = mx.array([[*prompt, *[0] * (width - len(prompt))] for prompt in prompts])
        _, taps = model.target.run(padded[:, :-1], cache)
        for layer in cache:
            layer.roll_back([len(prompt) - 1 for prompt in prompts])
        lent = head.make_cache(len(prompts), cache)
        logits = np.array(head.logits(head.absorb(padded[:, 1:], taps, lent)))
        for b, prompt in enumerate(prompts):
            alone = np.array(block(model, head, prompt, [])[0])[0, 0]
            assert np.abs(logits[b, len(prompt) - 2] - alone).max() < 1e-4


def test_only_tokens_of_the_best_clusters_get_logits_of_their_own(
    models: dict[str, LoadedModel], pairs: dict[str, Path]
) -> None:
    config = flat(assistant_config("small"))
    ordering = read_tensors(pairs["small"] / "assistant")["masked_embedding.token_ordering"].reshape(20, -1)
    logits = np.array(block(models["small"], head_of(models["small"]), PROMPT, [])[0])[0, 0]
    rest = logits == logits.min()
    assert rest.sum() == (20 - config["centroid_intermediate_top_k"]) * ordering.shape[1]
    assert logits[~rest].min() == pytest.approx(logits.min() + 1)
    assert all(rest[cluster].all() or not rest[cluster].any() for cluster in ordering)
    assert not (block(models["large"], head_of(models["large"]), PROMPT, [])[0] == logits.min()).any()


@pytest.mark.parametrize("size", SIZES)
def test_it_adds_its_own_tensors_and_nothing_of_its_targets(
    size: str, models: dict[str, LoadedModel], pairs: dict[str, Path]
) -> None:
    model = models[size]
    own = sum(4 * array.size for array in read_tensors(pairs[size] / "assistant").values())
    assert model.bytes_head == own
    assert own * 0.98 < read_pack(pairs[size]).bytes_head
    plain = load_model(read_pack(pairs[size]), plain=True)
    assert (plain.head, plain.bytes_body, plain.bytes_head) == (None, model.bytes_body, 0)


def test_loading_it_takes_its_own_bytes_and_two_in_a_hundred(tmp_path: Path) -> None:
    wide = {"intermediate_size": 4096}
    pack = read_pack(write_pair(tmp_path / "pair", "large", assistant_text=wide))

    def taken(*, plain: bool) -> int:
        gc.collect()
        before = mx.get_active_memory()
        model = load_model(pack, plain=plain)
        used = int(mx.get_active_memory() - before)
        del model
        return used

    taken(plain=True)
    assert 0.98 < (taken(plain=False) - taken(plain=True)) / pack.bytes_head < 1.02


@pytest.mark.parametrize("size", SIZES)
def test_under_mtp_beside_its_target_it_is_the_same(
    size: str, models: dict[str, LoadedModel], pairs: dict[str, Path], tmp_path: Path
) -> None:
    pack = read_pack(write_beside(tmp_path / "pack", pairs[size]))
    assert detect_head(pack).scheme == "gemma4_assistant_beside"
    beside = load_model(pack)
    ours, theirs = (block(one, head_of(one), PROMPT, [44, 7]) for one in (beside, models[size]))
    assert all(mx.array_equal(one, other) for one, other in zip(ours, theirs, strict=True))


def test_the_position_is_a_setting_of_the_pack(tmp_path: Path) -> None:
    folder = write_pair(tmp_path / "pair", "large")
    assert head_of(load_model(read_pack(folder))).position == "hidden"
    write_manifest(folder, Manifest({"mtplxd": {"head": {"position": "token"}}}))
    assert head_of(load_model(read_pack(folder))).position == "token"
    write_manifest(folder, Manifest({"mtplxd": {"head": {"position": "absolute"}}}))
    with pytest.raises(FailedPrecondition, match=r"position 'absolute'.*hidden or token"):
        load_model(read_pack(folder))


def test_a_target_without_a_kind_of_layer_its_assistant_reads_is_refused(tmp_path: Path) -> None:
    pack = read_pack(
        write_pair(tmp_path / "pair", "large", target_text={"layer_types": ["full_attention"] * 6})
    )
    gc.collect()
    before = mx.get_active_memory()
    with pytest.raises(FailedPrecondition) as refused:
        load_model(pack)
    assert "sliding_attention" in str(refused.value)
    del refused
    gc.collect()
    assert mx.get_active_memory() <= before + 4096


def test_a_unified_pair_loads_and_drafts(tmp_path: Path) -> None:
    model = load_model(read_pack(write_pair(tmp_path / "unified", "small", unified=True)))
    assert model.pack.model_type == "gemma4_unified"
    assert np.isfinite(np.array(block(model, head_of(model), PROMPT, [1])[1])).all()


def pack_assistant(folder: Path) -> None:
    """Stores the assistant's matrices as MLX packs them, 8 bits in groups of 32."""
    file = folder / "assistant" / "model.safetensors"
    stored = dict(mx.load(str(file)))
    for name in [name for name, array in stored.items() if array.ndim == 2]:
        base = name.removesuffix(".weight")
        stored[name], stored[f"{base}.scales"], stored[f"{base}.biases"] = mx.quantize(
            stored[name], group_size=32, bits=8
        )
    mx.eval(stored)
    mx.save_safetensors(str(file), stored)


@pytest.mark.parametrize("size", ["small", "large"])
def test_a_packed_assistant_stays_packed_and_drafts_nearly_the_same(
    size: str, models: dict[str, LoadedModel], tmp_path: Path
) -> None:
    folder = write_pair(tmp_path / "pair", size, seed=3)
    pack_assistant(folder)
    packed, whole = load_model(read_pack(folder)), models[size]
    laws = [np.array(block(one, head_of(one), PROMPT, [])[0])[0, 0] for one in (packed, whole)]
    assert packed.bytes_head < 0.5 * whole.bytes_head
    assert np.corrcoef(*laws)[0, 1] > 0.99
