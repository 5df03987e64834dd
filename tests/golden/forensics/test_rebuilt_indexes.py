"""Indexes rebuilt from the log are byte for byte those that single brokers of 3.9.1 and 4.3.0 wrote."""

from __future__ import annotations

from pathlib import Path

import pytest

from kops.records import BytesSource
from kops.storage.producers.state import ProducerState
from kops.storage.segment_files.transaction_index import read_transaction_index
from kops.storage.segments.recovery import rebuild_indexes
from tests.support import corpus

NEW = [case for case in corpus.cases("format") if case.startswith(("v2-3.9.1-", "v2-4.3.0-"))]
OLD = [case for case in corpus.cases("format") if case not in NEW]


def partitions(case: corpus.Case) -> list[Path]:
    return sorted({path.parent for path in (case.root / "data").rglob("*.log")})


def interval(case: corpus.Case) -> int:
    return int(case.json["config"].get("index.interval.bytes", 4096))


@pytest.mark.parametrize("case_id", NEW)
def test_rebuilt_is_written(case_id: str) -> None:
    case = corpus.load(case_id)
    compared = 0
    for directory in partitions(case):
        producers = ProducerState()
        for log in sorted(directory.glob("*.log")):
            rebuilt = rebuild_indexes(BytesSource(log.read_bytes()), int(log.stem), interval(case), producers=producers)
            assert rebuilt.damage is None
            assert rebuilt.valid_bytes == log.stat().st_size
            assert rebuilt.index == log.with_suffix(".index").read_bytes(), log
            assert rebuilt.timeindex == log.with_suffix(".timeindex").read_bytes(), log
            written = log.with_suffix(".txnindex")
            if "compacted" not in case_id:  # compaction removes the batches that a transaction's entry was made from
                assert rebuilt.txnindex == (written.read_bytes() if written.exists() else b""), log
            compared += 1
    assert compared


@pytest.mark.parametrize("case_id", OLD)
def test_rebuilt_fits_older_logs(case_id: str) -> None:
    """Older brokers set their index entries elsewhere. A rebuilt index has their format and is true for the log."""
    case = corpus.load(case_id)
    for directory in partitions(case):
        for log in sorted(directory.glob("*.log")):
            data = log.read_bytes()
            index, timeindex, txnindex = rebuild_indexes(BytesSource(data), int(log.stem), interval(case))
            assert len(index) % 8 == len(timeindex) % 12 == 0
            for start in range(0, len(index), 8):
                relative, position = (int.from_bytes(index[start + at : start + at + 4], "big") for at in (0, 4))
                first = int.from_bytes(data[position : position + 8], "big")
                assert first <= int(log.stem) + relative
            assert read_transaction_index(txnindex) is not None
