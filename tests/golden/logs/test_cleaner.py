"""The results of real brokers' cleaners, reproduced from the segments that they replaced. The corpus has these as `.deleted` files."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from kops.config.topic import TopicConfig, topic_config
from kops.records import Batch
from kops.records.scanning.scanner import read_batches
from kops.storage.cleaning._hot_clean import OffsetMap
from kops.storage.cleaning.cleaner import Cleaner, CleanRange
from tests.support import corpus
from tests.support.logs.twins import cleaning

DELETED = ".log.deleted"
RECORDS_MS = 1_700_000_000_000
# Case → where the dirty part began in the round that replaced the segments.
CASES = {
    "v0-0.9.0.1-compacted": 0,
    "v1-0.10.2.2-compacted": 0,
    "v2-0.11.0.3-compacted": 0,
    "v2-1.1.1-compacted": 0,
    "v2-2.8.2-compacted": 0,
    "v2-3.9.1-compacted": 0,
    "v2-3.9.1-compacted-idempotent": 0,
    "v2-4.3.0-compacted": 0,
    "v2-4.3.0-compacted-idempotent": 329,
}
# Brokers since 3.1 write delete horizons, and so everything as 4.3 does.
SAME_BYTES = [case_id for case_id in CASES if case_id.startswith(("v2-3", "v2-4"))]


def folder_of(case: corpus.Case) -> Path:
    return next(path.parent for path in sorted(case.root.joinpath("data").rglob(f"*{DELETED}")))


def config_of(case: corpus.Case) -> TopicConfig:
    settings = dict(json.loads(case.text("case.json"))["config"])
    settings["internal.segment.bytes"] = settings.pop("segment.bytes", settings.get("internal.segment.bytes"))
    return topic_config({"cleanup.policy": "compact", **settings})


def restored(case: corpus.Case, target: Path) -> list[int]:
    """Restore the folder as it was before the round, and return the base offsets of the cleaned segments."""
    folder = folder_of(case)
    put_away = {int(path.name[:20]) for path in folder.glob(f"*{DELETED}")}
    active = max(int(path.name[:20]) for path in folder.glob("*.log"))
    target.mkdir(parents=True)
    for base in sorted(put_away | {active}):
        name = f"{base:020d}.log"
        origin = folder / (name if base == active else name + ".deleted")
        target.joinpath(name).write_bytes(origin.read_bytes())
    return sorted(put_away)


def left_by(folder: Path, below: int) -> dict[str, bytes]:
    """Return the logs up to an offset."""
    return {path.name: path.read_bytes() for path in sorted(folder.glob("*.log")) if int(path.name[:20]) < below}


def now_of(expected: dict[str, bytes], config: TopicConfig) -> int:
    """Return when the broker cleaned. A delete horizon shows it if there is one."""
    horizons = [batch.delete_horizon_ms for data in expected.values() for batch in read_batches(data) if batch.delete_horizon_ms]
    return max(horizons) - config.delete_retention_ms if horizons else cleaning.NOW_MS


def compacted(target: Path, config: TopicConfig, dirty: int, now_ms: int) -> int:
    """Clean once, and return the offset of the active segment."""
    # No producer had expired at the broker, whatever timestamps their records have.
    log = cleaning.open_log(str(target), config=config, clean=False, at_ms=RECORDS_MS)
    end = log.segments.active.base_offset
    Cleaner(OffsetMap(1 << 20), now_ms=lambda: now_ms).clean(log, CleanRange(dirty, end))
    log.close()
    return end


def shown(batch: Batch) -> tuple[object, ...]:
    header = (batch.base_offset, batch.last_offset, batch.attributes, batch.base_timestamp, batch.max_timestamp, batch.base_sequence)
    return (*header, [tuple(record) for record in batch.records()])


@pytest.mark.parametrize("case_id", CASES)
def test_the_same_records_survive(case_id: str, tmp_path: Path) -> None:
    case = corpus.load(case_id)
    config, target = config_of(case), tmp_path / folder_of(case).name
    restored(case, target)
    expected = left_by(folder_of(case), 1 << 62)
    end = compacted(target, config, CASES[case_id], now_of(expected, config))
    ours = left_by(target, end)
    theirs = {name: data for name, data in expected.items() if int(name[:20]) < end}
    offsets = [record.offset for data in ours.values() for batch in read_batches(data) for record in batch.records()]
    assert offsets == [record.offset for data in theirs.values() for batch in read_batches(data) for record in batch.records()]
    if case_id in SAME_BYTES:
        assert ours.keys() == theirs.keys()
        for name, data in ours.items():
            assert [shown(batch) for batch in read_batches(data)] == [shown(batch) for batch in read_batches(theirs[name])]
            if all(not batch.compressed for batch in read_batches(data)):
                assert data == theirs[name]


@pytest.mark.parametrize("case_id", CASES)
def test_cleaning_again_changes_nothing(case_id: str, tmp_path: Path) -> None:
    case = corpus.load(case_id)
    config, target = config_of(case), tmp_path / folder_of(case).name
    restored(case, target)
    end = compacted(target, config, 0, cleaning.NOW_MS)
    once = [record for data in left_by(target, end).values() for batch in read_batches(data) for record in batch.records()]
    assert compacted(target, config, 0, cleaning.NOW_MS) == end
    again = [record for data in left_by(target, end).values() for batch in read_batches(data) for record in batch.records()]
    assert [record[:5] for record in again] == [record[:5] for record in once]
