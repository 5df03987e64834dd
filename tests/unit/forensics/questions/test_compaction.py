"""`kops.forensics.questions.compaction` and `horizons`: policies, limits, verdicts, tombstones."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from kops.errors import UsageError
from kops.files import OsFiles
from kops.forensics.questions.compaction import BELOW_RATIO, DUE, HELD_BACK, NOTHING, Compaction, CompactionReport
from kops.forensics.questions.horizons import Deletions
from kops.forensics.questions.reading import find_logs
from kops.records import Batch, Record, build_batch
from kops.storage.formats.checkpoints import TopicPartition, write_offset_checkpoint
from tests.support import corpus
from tests.support.logs.twins import cleaning
from tests.support.logs.twins.cleaning import SETTINGS, Shape

PLAIN = Shape(transactions=0, idempotent=0, gaps=0, empty=0)
COMPACT = {**SETTINGS, "min.cleanable.dirty.ratio": "0.2"}


def report(log_dir: Path, settings: dict[str, str] | None = None, now_ms: int = cleaning.NOW_MS) -> CompactionReport:
    files = OsFiles(read_only=True)
    return CompactionReport(files, find_logs([str(log_dir)], files).replicas, settings or {}, now_ms)


def one(log_dir: Path, settings: dict[str, str], now_ms: int = cleaning.NOW_MS) -> Compaction:
    [answer] = report(log_dir, settings, now_ms).answers(with_tombstones=True)
    return answer


@pytest.fixture
def log_dir(tmp_path: Path) -> Path:
    """Provide a log directory with one partition, stopped cleanly."""
    (tmp_path / ".kafka_cleanshutdown").write_text('{"version": 0, "brokerEpoch": 1}')
    cleaning.write_log(tmp_path / "t-0", random.Random(1), PLAIN)
    return tmp_path


def put(log_dir: Path, name: str, offset: int) -> None:
    (log_dir / name).write_bytes(write_offset_checkpoint({TopicPartition("t", 0): offset}))


def bases(log_dir: Path) -> list[int]:
    return sorted(int(path.stem) for path in log_dir.glob("t-0/*.log"))


def test_verdicts_and_what_holds_back(log_dir: Path) -> None:
    found = bases(log_dir)
    answer = one(log_dir, COMPACT)
    assert (answer.verdict, answer.turn, answer.ratio) == (DUE, 1, 1.0)
    assert (answer.first_dirty_offset, answer.clean_until) == (0, found[-1])
    assert [each.cause for each in answer.limits] == ["active-segment"]
    put(log_dir, "cleaner-offset-checkpoint", found[-2])
    answer = one(log_dir, {**COMPACT, "min.cleanable.dirty.ratio": "0.9"})
    assert (answer.verdict, answer.first_dirty_offset, answer.turn) == (BELOW_RATIO, found[-2], None)
    assert "is not above min.cleanable.dirty.ratio 0.90" in answer.reason
    put(log_dir, "replication-offset-checkpoint", found[-2])
    answer = one(log_dir, COMPACT)
    assert (answer.verdict, answer.clean_until) == (HELD_BACK, found[-2])
    assert (answer.limits[0].cause, answer.limits[0].offset) == ("high-watermark", found[-2])
    assert answer.reason == f"the high watermark is {found[-2]}, as replication-offset-checkpoint says"
    put(log_dir, "replication-offset-checkpoint", 10**9)
    put(log_dir, "cleaner-offset-checkpoint", found[-1])
    assert one(log_dir, COMPACT).verdict == NOTHING
    put(log_dir, "cleaner-offset-checkpoint", 10**9)
    answer = one(log_dir, COMPACT)
    assert (answer.verdict, answer.first_dirty_offset) == (DUE, 0)
    assert "which is larger than the log end offset" in answer.reason


def test_lags_hold_back_and_force(log_dir: Path) -> None:
    far = cleaning.NOW_MS + 10**9
    held = one(log_dir, {**COMPACT, "min.compaction.lag.ms": str(10**12)})
    assert (held.verdict, held.clean_until) == (HELD_BACK, 0)
    assert (held.limits[0].cause, held.limits[0].offset) == ("min-compaction-lag", 0)
    assert held.limits[0].until_ms is not None and held.limits[0].until_ms > cleaning.NOW_MS
    forced = one(log_dir, {**COMPACT, "min.cleanable.dirty.ratio": "1.0", "max.compaction.lag.ms": "1000"}, far)
    assert (forced.verdict, forced.overdue_ms > 0) == (DUE, True)
    assert forced.reason.startswith("max.compaction.lag.ms is exceeded by ")


def test_which_partitions_count_as_compacted(log_dir: Path) -> None:
    assert [each.directory.name for each in report(log_dir).others] == ["t-0"]
    put(log_dir, "cleaner-offset-checkpoint", 0)
    assert [source for _, _, source in report(log_dir).compacted] == ["cleaner-checkpoint"]
    assert [source for _, _, source in report(log_dir, {"cleanup.policy": "compact,delete"}).compacted] == ["--config"]
    assert report(log_dir, {"cleanup.policy": "delete"}).compacted == []
    with pytest.raises(UsageError, match=r"min\.cleanable\.dirty\.ratio"):
        report(log_dir, {"min.cleanable.dirty.ratio": "2"})
    nodes = corpus.load("cluster-4.3.0").root / "nodes" / "n1"
    whole = report(nodes)
    assert {(each.directory.topic, source) for each, _, source in whole.compacted} == {
        ("__consumer_offsets", "topic"),
        ("__transaction_state", "topic"),
    }
    assert {each.directory.topic for each in whole.others} == {"orders-epochs", "sensor.readings-multi"}


def test_tombstones_by_their_horizons() -> None:
    def batch(offset: int, horizon: int | None) -> Batch:
        records = [
            Record(offset, 5, "CreateTime", b"a", None),
            Record(offset + 1, 5, "CreateTime", b"b", b"x"),
            Record(offset + 2, 5, "CreateTime", None, b"x"),
        ]
        return Batch(build_batch(records, delete_horizon_ms=horizon))

    found = Deletions()
    for offset, horizon in ((0, 900), (10, 1000), (20, 1001), (30, None), (40, 900), (50, 3000)):
        found.add(batch(offset, horizon), clean_until=40, now_ms=1000)
    assert (found.tombstones, found.due, found.waiting, found.new) == (6, 2, 3, 1)
    assert (found.next_horizon, found.last_horizon, found.without_key) == (1001, 3000, 6)


def test_a_log_that_a_broker_cannot_load_is_told(log_dir: Path) -> None:
    (log_dir / "t-0" / "leader-epoch-checkpoint").write_text("nonsense\n")
    answer = one(log_dir, COMPACT)
    assert answer.verdict == "not-loaded"
    assert "leader-epoch-checkpoint" in answer.reason
