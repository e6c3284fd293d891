"""× plain is only told where it was measured, for these very files."""

from __future__ import annotations

from pathlib import Path

import pytest
from mtplx_proto.v1 import tuning_pb2
from support.fake_daemon import FakeDaemon


@pytest.fixture
def measured(mtplx, daemon: FakeDaemon):
    row = tuning_pb2.MeasureRow
    daemon.measurement = tuning_pb2.Measurement(
        rows=[row(depth=0, tok_s=50, ratio_vs_plain=1), row(depth=2, tok_s=71, ratio_vs_plain=1.42)],
        model="smollm2-135m",
    )
    assert mtplx("bench", "decode").code == 0
    return mtplx


def test_stats_tell_the_ratio_of_a_measured_depth(measured) -> None:
    assert "· 1.42 × plain (bench of " in measured("generate", "hi", "--stats").err
    assert "1.42 × plain" in measured("chat", stdin=b"hi\n/stats\n").err


def test_other_weights_have_no_ratio(measured, daemon: FakeDaemon) -> None:
    daemon.packs[0].fingerprint_head = "sha256:other"
    assert "plain" not in measured("generate", "hi", "--stats").err


def test_a_depth_that_was_not_measured_has_no_ratio(measured, home: Path) -> None:
    (record,) = (home / "runs").iterdir()
    record.write_text(record.read_text().replace('"depth": 2', '"depth": 3'))
    assert "plain" not in measured("generate", "hi", "--stats").err


def test_a_damaged_record_is_no_record(measured, home: Path) -> None:
    (record,) = (home / "runs").iterdir()
    record.write_text("{")
    result = measured("generate", "hi", "--stats")
    assert result.code == 0
    assert "plain" not in result.err


def test_a_measurement_without_plain_leaves_no_record(mtplx, daemon: FakeDaemon, home: Path) -> None:
    daemon.measurement = tuning_pb2.Measurement(rows=[tuning_pb2.MeasureRow(depth=2, tok_s=71)], model="m")
    assert mtplx("bench", "decode", "--depths", "2").code == 0
    assert not (home / "runs").exists()


def test_a_pack_given_by_path_has_a_record_of_its_own(mtplx, daemon: FakeDaemon, home: Path) -> None:
    daemon.measurement = tuning_pb2.Measurement(
        rows=[tuning_pb2.MeasureRow(depth=0, tok_s=71)], model="/a b/../c"
    )
    assert mtplx("bench", "decode").code == 0
    assert [file.name for file in (home / "runs").iterdir()] == ["decode-_a_b_.._c.json"]
