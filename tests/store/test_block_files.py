"""A block's file gives back just what was written, or says that it does not: whatever happened to its bytes."""

from __future__ import annotations

import json
import random
from dataclasses import replace

import pytest
from mtplxd.store import blockfile, keys
from mtplxd.store.blockfile import FRAME, Damaged, Foreign
from mtplxd.store.blocks import BlockBytes, Data, Offered, Tensor
from support.block_store import chain_of, content_of, offered_of, same

CHAIN = chain_of(range(40))


def file_of(offered: Offered, packed: int = 0) -> bytes:
    return b"".join(bytes(piece) for piece in blockfile.write(offered, packed))


def with_tensors(*tensors: Tensor) -> Offered:
    return replace(offered_of(CHAIN, 0), content=BlockBytes({}, tensors))


def noise(name: str, dtype: str, *shape: int, seed: int = 0) -> Tensor:
    size = {"uint8": 1, "bfloat16": 2, "float32": 4}[dtype]
    for dimension in shape:
        size *= dimension
    return Tensor(name, dtype, shape, random.Random(seed).randbytes(size))


@pytest.mark.parametrize("packed", [0, 1])
def test_a_block_comes_back_with_all_that_is_known_of_it(packed: int) -> None:
    offered = offered_of(CHAIN, 2, 5, grade=3)
    header, content = blockfile.read(file_of(offered, packed))
    assert same(content, offered.content)
    assert header.offered(content) == replace(offered, content=content)
    assert header.kept(77) == offered.kept(77)
    assert header.packed == packed


def test_the_bytes_read_are_the_readers_own() -> None:
    data = bytearray(file_of(offered_of(CHAIN, 0)))
    _, content = blockfile.read(data)
    _, again = blockfile.read(data)
    memoryview(content.tensors[0].data)[:] = bytes(content.tensors[0].nbytes)
    data[:] = bytes(len(data))
    assert same(again, content_of(CHAIN.name(0)))


@pytest.mark.parametrize(
    "tensors",
    [
        (),
        (noise("a", "uint8", 0),),
        (noise("a", "uint8", 0), noise("b", "float32", 3), noise("c", "uint8", 0)),
        (noise("a", "float32", 2), noise("b", "uint8", 0), noise("c", "float32", 2)),
        (noise("a", "bfloat16", 3), noise("b", "uint8", 3), noise("c", "bfloat16", 5)),
        (noise("a", "float32", FRAME // 4), noise("b", "float32", 1)),
        (noise("a", "bfloat16", FRAME // 2 - 1), noise("b", "bfloat16", FRAME, seed=1), noise("c", "uint8", FRAME + 1)),
        tuple(noise(str(place), "bfloat16", 30001, seed=place) for place in range(40)),
        (noise("scalar", "float32"),),
    ],
)  # fmt: skip
def test_tensors_of_any_sizes_in_any_order_come_back(tensors: tuple[Tensor, ...]) -> None:
    offered = with_tensors(*tensors)
    header, content = blockfile.read(file_of(offered))
    assert same(content, offered.content)
    assert header.raw_bytes == offered.content.nbytes


def test_pieces_are_no_larger_than_a_frame_and_its_fields() -> None:
    offered = with_tensors(noise("a", "uint8", 5 * FRAME + 3))
    assert max(len(piece) for piece in blockfile.write(offered, 0)) <= FRAME


def test_it_breathes_after_each_frame() -> None:
    breaths: list[int] = []
    blockfile.read(file_of(with_tensors(noise("a", "uint8", 5 * FRAME))), lambda: breaths.append(1))
    assert len(breaths) == 5


@pytest.mark.parametrize("thorough", [True, False])
def test_any_flipped_bit_is_noticed(thorough: bool) -> None:
    data = bytearray(file_of(offered_of(CHAIN, 1)))
    for place in range(len(data)):
        data[place] ^= 1 << place % 8
        with pytest.raises((Damaged, Foreign)):
            blockfile.read(data, thorough=thorough)
        data[place] ^= 1 << place % 8
    assert same(blockfile.read(data)[1], content_of(CHAIN.name(1)))


def test_any_missing_end_and_any_addition_is_noticed() -> None:
    data = file_of(offered_of(CHAIN, 1))
    for length in range(len(data)):
        with pytest.raises((Damaged, Foreign)):
            blockfile.read(data[:length])
    for more in (b"\0", data, bytes(4096)):
        with pytest.raises(Damaged):
            blockfile.read(data + more)


def test_zeros_in_place_of_any_page_are_noticed() -> None:
    data = file_of(with_tensors(noise("a", "uint8", 20000)))
    for page in range(0, len(data), 512):
        torn = data[:page] + bytes(len(data[page : page + 512])) + data[page + 512 :]
        with pytest.raises((Damaged, Foreign)):
            blockfile.read(torn)


def test_a_frame_of_another_block_or_another_place_does_not_pass() -> None:
    shape = (noise("a", "uint8", FRAME), noise("b", "uint8", FRAME, seed=1))
    one, other = with_tensors(*shape), replace(offered_of(CHAIN, 1), content=BlockBytes({}, shape))
    first, second = file_of(one), file_of(other)
    begin, of_second = blockfile.read_header(first).begin, blockfile.read_header(second).begin
    with pytest.raises(Damaged, match="frame 0"):
        blockfile.read(first[:begin] + second[of_second:])
    size = (len(first) - begin) // 2
    with pytest.raises(Damaged, match="frame 0"):
        blockfile.read(first[:begin] + first[begin + size :] + first[begin : begin + size])


def test_another_header_before_the_same_frames_does_not_pass() -> None:
    first, second = (file_of(offered_of(CHAIN, 0)), file_of(replace(offered_of(CHAIN, 0), grade=1)))
    assert blockfile.read(first)[0] != blockfile.read(second)[0]
    longer = file_of(replace(offered_of(CHAIN, 1), content=offered_of(CHAIN, 0).content))
    with pytest.raises(Damaged):
        blockfile.read(
            longer[: blockfile.read_header(longer).begin] + first[blockfile.read_header(first).begin :]
        )


def test_numbers_that_come_out_otherwise_than_they_went_in_are_noticed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    data, real = file_of(offered_of(CHAIN, 0)), blockfile.codec.unpack

    def wrong(how: int, stored: Data, dtype: str, target: memoryview) -> None:
        real(how, stored, dtype, target)
        target[0] ^= 1

    monkeypatch.setattr(blockfile.codec, "unpack", wrong)
    with pytest.raises(Damaged, match="numbers"):
        blockfile.read(data)


@pytest.mark.parametrize(
    "data", [b"", b"MTPLX", b"MTPLXKW\n" + bytes(100), b"\x89PNG\r\n\x1a\n" * 40, bytes(5000)]
)
def test_a_file_of_somebody_else_is_foreign(data: bytes) -> None:
    with pytest.raises(Foreign):
        blockfile.read(data)


def test_another_version_is_foreign(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(blockfile, "VERSION", blockfile.VERSION + 1)
    newer = file_of(offered_of(CHAIN, 0))
    monkeypatch.undo()
    with pytest.raises(Foreign, match="version"):
        blockfile.read(newer)


def test_another_layout_is_foreign(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(blockfile, "LAYOUT", keys.LAYOUT + "0")
    other = file_of(offered_of(CHAIN, 0))
    monkeypatch.undo()
    with pytest.raises(Foreign, match="layout"):
        blockfile.read(other)


def test_a_header_whose_name_is_not_that_of_its_tokens_is_damaged() -> None:
    with pytest.raises(Damaged, match="tokens"):
        blockfile.read(file_of(replace(offered_of(CHAIN, 0), tokens=(1, 2, 3))))
    with pytest.raises(Damaged, match="tokens"):
        blockfile.read(file_of(replace(offered_of(CHAIN, 0), parent=CHAIN.nodes[1])))


@pytest.mark.parametrize("field", ["name", "tokens", "tensors", "meta", "tail", "packed"])
def test_a_header_that_lacks_something_is_damaged(field: str, monkeypatch: pytest.MonkeyPatch) -> None:
    real = json.dumps

    def lacking(value: dict[str, object], **options: object) -> str:
        return real({key: each for key, each in value.items() if key != field}, **options)  # type: ignore[arg-type]

    monkeypatch.setattr(blockfile.json, "dumps", lacking)
    data = file_of(offered_of(CHAIN, 0))
    monkeypatch.undo()
    with pytest.raises(Damaged, match="no sense"):
        blockfile.read(data)


def test_a_header_can_be_read_alone() -> None:
    data = file_of(offered_of(CHAIN, 0))
    whole = blockfile.header_bytes(data[:64])
    assert blockfile.read_header(data[:whole]) == blockfile.read_header(data)
    assert blockfile.header_bytes(data[:10]) == 0
    assert blockfile.header_bytes(bytes(64)) == 0


@pytest.mark.parametrize(
    ("dtype", "shape", "size"), [("uint8", (3,), 2), ("bfloat16", (2, 2), 4), ("int3", (1,), 1)]
)
def test_a_tensor_with_other_bytes_than_it_says_is_refused(
    dtype: str, shape: tuple[int, ...], size: int
) -> None:
    with pytest.raises(ValueError, match=r"bytes of|dtype"):
        Tensor("x", dtype, shape, bytes(size))


@pytest.mark.parametrize("packed", [0, 1])
def test_numbers_are_summed_as_they_lie_and_as_they_come_out(
    packed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each of the two sums finds what is wrong on its side of the unpacking."""
    offered = offered_of(CHAIN, 0)
    data = file_of(offered, packed)
    right = blockfile.codec.unpack

    def lying(how: int, stored: object, dtype: str, target: memoryview) -> None:
        right(how, stored, dtype, target)  # type: ignore[arg-type]
        target[0] ^= 1

    monkeypatch.setattr(blockfile.codec, "unpack", lying)
    with pytest.raises(Damaged, match="the numbers of frame 0"):
        blockfile.read(data)
    monkeypatch.undo()
    spoilt = bytearray(data)
    spoilt[-1] ^= 1
    with pytest.raises(Damaged, match="the bytes of frame"):
        blockfile.read(bytes(spoilt), thorough=True)
    with pytest.raises(Damaged):
        blockfile.read(bytes(spoilt))


def test_damage_that_comes_to_nothing_is_found_by_a_thorough_look_alone(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    offered = offered_of(CHAIN, 0)
    data = file_of(offered)
    right, numbers = blockfile.codec.unpack, []

    def noted(how: int, stored: object, dtype: str, target: memoryview) -> None:
        right(how, stored, dtype, target)  # type: ignore[arg-type]
        numbers.append(bytes(target))

    def told(_how: int, _stored: object, _dtype: str, target: memoryview) -> None:
        target[:] = numbers.pop(0)

    monkeypatch.setattr(blockfile.codec, "unpack", noted)
    blockfile.read(data)
    numbers *= 2
    monkeypatch.setattr(blockfile.codec, "unpack", told)
    spoilt = data[:-1] + bytes([data[-1] ^ 1])
    assert same(blockfile.read(spoilt)[1], offered.content)
    with pytest.raises(Damaged, match="the bytes of frame"):
        blockfile.read(spoilt, thorough=True)
