"""`kops log compaction` compared with Kafka's LogCleanerManager: the dirty range, the bytes, the ratio, and the log
that is cleaned first.
"""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from kops.files import OsFiles
from kops.forensics.questions.compaction import DUE, Compaction, CompactionReport
from kops.forensics.questions.reading import find_logs
from kops.storage.formats.checkpoints import TopicPartition, write_offset_checkpoint
from tests.support.kafka.kafka_cleaner import LOG, KafkaCleaner
from tests.support.logs.twins import cleaning
from tests.support.logs.twins.cleaning import SETTINGS, Shape

if TYPE_CHECKING:
    from tests.support.kafka.oracle import Oracle

PARTITIONS = 4


class Manager:
    """Kafka's LogCleanerManager over a log directory, with its private methods."""

    def __init__(self, oracle: Oracle, log_dir: Path, settings: dict[str, str], high_watermarks: dict[int, int]) -> None:
        self.oracle = oracle
        cleaner = KafkaCleaner(oracle, settings=settings)
        jvm = oracle.jvm
        self.logs = jvm.java.util.concurrent.ConcurrentHashMap()
        self.opened: dict[int, Any] = {}
        for number, high_watermark in high_watermarks.items():
            log = self.opened[number] = cleaner.open(log_dir / f"t-{number}")
            log.updateHighWatermark(high_watermark)
            self.logs.put(oracle.java_class("org.apache.kafka.common.TopicPartition")("t", number), log)
        dirs = jvm.java.util.ArrayList()
        dirs.add(jvm.java.io.File(str(log_dir)))
        self.manager = oracle.java_class(f"{LOG}.LogCleanerManager")(dirs, self.logs, oracle.java_class(f"{LOG}.LogDirFailureChannel")(4))

    def close(self) -> None:
        self.manager.removeMetrics()
        for log in self.opened.values():
            log.close()

    def private(self, name: str, *arguments: Any) -> Any:
        """Call a static method."""
        for method in self.manager.getClass().getDeclaredMethods():
            if method.getName() == name:
                method.setAccessible(True)
                values = self.oracle.gateway.new_array(self.oracle.jvm.java.lang.Object, len(arguments))
                for place, value in enumerate(arguments):
                    values[place] = value
                return method.invoke(None, values)
        raise AssertionError(name)

    def answer(self, number: int, now_ms: int) -> dict[str, Any]:
        """Return what the manager finds out about one log."""
        log = self.opened[number]
        key = self.oracle.java_class("org.apache.kafka.common.TopicPartition")("t", number)
        known = [int(offset) for other, offset in self.manager.allCleanerCheckpoints().items() if other.equals(key)]
        # If it were an argument of Optional.of, py4j would make an Integer of it.
        streams = self.oracle.java_class("java.util.stream.LongStream")
        first = (streams.of(known[0]) if known else streams.empty()).boxed().findFirst()
        offsets = self.private("cleanableOffsets", log, first, now_ms)
        dirty, uncleanable = (self.field(offsets, name) for name in ("firstDirtyOffset", "firstUncleanableDirtyOffset"))
        overdue_ms = self.private("maxCompactionDelay", log, dirty, now_ms)
        found = self.oracle.java_class(f"{LOG}.LogToClean")(log, dirty, uncleanable, overdue_ms > 0)
        return {
            "first_dirty_offset": found.firstDirtyOffset(),
            "clean_until": found.firstUncleanableOffset(),
            "clean_bytes": found.cleanBytes(),
            "cleanable_bytes": found.cleanableBytes(),
            "ratio": found.cleanableRatio(),
            "overdue_ms": overdue_ms,
        }

    def field(self, thing: Any, name: str) -> int:
        found = thing.getClass().getDeclaredField(name)
        found.setAccessible(True)
        return int(found.get(thing))

    def order(self) -> Iterator[int]:
        """Yield the logs in the order in which they are cleaned."""
        stats = self.oracle.java_class(f"{LOG}.PreCleanStats")()
        time = self.oracle.java_class("org.apache.kafka.common.utils.Time").SYSTEM
        while (found := self.manager.grabFilthiestCompactedLog(time, stats)).isPresent():
            yield int(found.get().topicPartition().partition())


@contextmanager
def managed(oracle: Oracle, log_dir: Path, settings: dict[str, str], high_watermarks: dict[int, int]) -> Iterator[Manager]:
    manager = Manager(oracle, log_dir, settings, high_watermarks)
    try:
        yield manager
    finally:
        manager.close()


def answers(log_dir: Path, settings: dict[str, str], now_ms: int) -> list[Compaction]:
    files = OsFiles(read_only=True)
    return CompactionReport(files, find_logs([str(log_dir)], files).replicas, settings, now_ms).answers(with_tombstones=True)


def make(log_dir: Path, randomly: random.Random) -> tuple[dict[int, list[int]], dict[int, int]]:
    """Make a log directory of compacted partitions with checkpoints. Return their segments and their high watermarks."""
    bases: dict[int, list[int]] = {}
    marks: dict[int, int] = {}
    cleaned: dict[TopicPartition, int] = {}
    shapes = (
        Shape(transactions=0, idempotent=0),
        Shape(transactions=0.6, keys=60),
        Shape(segments=7),
        Shape(transactions=0, idempotent=0, gaps=0),
    )
    for number, shape in enumerate(shapes):
        bases[number] = cleaning.write_log(log_dir / f"t-{number}", randomly, shape)
        last = bases[number][-1]
        marks[number] = last + 1 if number != 3 else bases[number][2] + 1
        if number:
            cleaned[TopicPartition("t", number)] = randomly.choice([0, bases[number][1], bases[number][2], bases[number][1] + 1, 10**9])
    (log_dir / "cleaner-offset-checkpoint").write_bytes(write_offset_checkpoint(cleaned))
    (log_dir / "replication-offset-checkpoint").write_bytes(
        write_offset_checkpoint({TopicPartition("t", each): at for each, at in marks.items()})
    )
    (log_dir / ".kafka_cleanshutdown").write_text(json.dumps({"version": 0, "brokerEpoch": 1}))
    return bases, marks


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(2))
def test_the_cleaner_decides_the_same(oracle: Oracle, tmp_path: Path, seed: int) -> None:
    randomly = random.Random(seed)
    log_dir = tmp_path / "log"
    log_dir.mkdir()
    _, marks = make(log_dir, randomly)
    base = {**SETTINGS, "min.cleanable.dirty.ratio": "0.2"}
    plain = answers(log_dir, base, cleaning.NOW_MS)
    stamps = sorted(_segment_stamps(log_dir))
    now_ms = stamps[-1] + 1000
    for extra in (
        {},
        {"min.compaction.lag.ms": str(now_ms - stamps[len(stamps) // 2])},
        {"max.compaction.lag.ms": str(now_ms - stamps[2])},
    ):
        settings = {**base, **extra}
        ours = {each.replica.directory.partition: each for each in answers(log_dir, settings, now_ms)}
        assert set(ours) == set(range(PARTITIONS))
        with managed(oracle, log_dir, settings, marks) as manager:
            for number, one in ours.items():
                theirs = manager.answer(number, now_ms)
                assert {name: getattr(one, name) for name in theirs} == theirs
    with managed(oracle, log_dir, base, marks) as manager:
        taken = list(manager.order())
    due = sorted((each for each in plain if each.verdict == DUE), key=lambda each: each.turn or 0)
    # Logs with the same ratio are taken in the order of a hash table.
    ratios = {each.replica.directory.partition: each.ratio for each in due}
    assert [each.ratio for each in due] == [ratios[number] for number in taken]
    assert sorted(ratios) == sorted(taken)
    assert taken


def _segment_stamps(log_dir: Path) -> Iterator[int]:
    """Yield the largest timestamp of each segment."""
    from kops.records import Batch, scan

    for path in sorted(log_dir.glob("*/*.log")):
        with OsFiles(read_only=True).open(str(path)) as file:
            yield max(item.max_timestamp for item in scan(file) if isinstance(item, Batch))
