"""Every kind of damage, repaired, in one log directory of a real Apache Kafka 4.3 broker: it starts and serves everything that was intact.

The broker starts as after a clean stop, and as after a crash with recovery point 0. After the crash it recovers every segment.
"""

from __future__ import annotations

import posixpath
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from kops.forensics.repair.run import repair
from kops.forensics.verify.run import verify
from kops.storage.formats.checkpoints import TopicPartition, read_offset_checkpoint, write_offset_checkpoint
from kops.storage.formats.partition_metadata import PartitionMetadata, read_partition_metadata, write_partition_metadata
from tests.support import corpus
from tests.support.kafka.oracle import Oracle
from tests.support.kafka.real_broker import RealBroker

CLEAN = "truth/records/clean.read_uncommitted.jsonl"
RECOVERY = "recovery-point-offset-checkpoint"
SETTINGS = {
    "producer.id.expiration.ms": 2147483647,
    "log.retention.ms": -1,
    "log.initial.task.delay.ms": 3_600_000,
    "log.flush.offset.checkpoint.interval.ms": 3_600_000,
}


def topic_of(case: corpus.Case) -> str:
    """Return the topic of a case. Each case has its own."""
    return f"k{case.json['kafka'].replace('.', '')}-{case.id.split('-', 2)[2]}"


def create_topics(oracle: Oracle, bootstrap: str, topics: list[str]) -> None:
    admin = oracle.java_class("org.apache.kafka.clients.admin.Admin").create(oracle.properties({"bootstrap.servers": bootstrap}))
    try:
        wanted = oracle.jvm.java.util.ArrayList()
        for topic in topics:
            wanted.add(oracle.jvm.org.apache.kafka.clients.admin.NewTopic(topic, 1, oracle.short(1)))
        admin.createTopics(wanted).all().get()
    finally:
        admin.close()


def put_in_place(case: corpus.Case, log_dir: Path, points: dict[TopicPartition, int]) -> None:
    """Put the damaged folder in the place of the topic's, with the topic's id if the case has an id at all."""
    topic = topic_of(case)
    folder = log_dir / f"{topic}-0"
    metadata = folder / "partition.metadata"
    topic_id = read_partition_metadata(metadata.read_bytes()).topic_id
    shutil.rmtree(folder)
    case.copy(folder, case.json["damagedDir"])
    if case.json["kafka"].startswith("4") and "partition-metadata" not in case.id:
        metadata.write_bytes(write_partition_metadata(PartitionMetadata(topic_id)))
    before = read_offset_checkpoint((case.root / "before" / RECOVERY).read_bytes())
    name, _, number = posixpath.basename(case.json["damagedDir"]).rpartition("-")
    points[TopicPartition(topic, 0)] = before[TopicPartition(name, int(number))]


@pytest.fixture(scope="module")
def cases() -> list[corpus.Case]:
    return [corpus.load(case_id) for case_id in corpus.cases("damage")]


@pytest.fixture(scope="module")
def repaired(oracle: Oracle, cases: list[corpus.Case], tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Provide the log directory with all damaged topics, repaired in one run."""
    work = tmp_path_factory.mktemp("repair")
    log_dir = work / "disk"
    with RealBroker(oracle, work / "run", log_dirs=[log_dir], settings=SETTINGS) as broker:
        create_topics(oracle, broker.bootstrap, [topic_of(case) for case in cases])
    points = read_offset_checkpoint((log_dir / RECOVERY).read_bytes())
    for case in cases:
        put_in_place(case, log_dir, points)
    (log_dir / RECOVERY).write_bytes(write_offset_checkpoint(points))
    assert verify([log_dir], "full").has_problems
    report = repair([log_dir], mode="all")
    assert [(found.code, found.file) for found in report.left] == []
    yield log_dir


def intact(case: corpus.Case) -> list[dict[str, Any]]:
    """Return the records that were still intact on the disk, without the leader's epoch, which starts anew."""
    offsets = {offset for first, last in case.json["offsetsIntactOnDisk"] for offset in range(first, last + 1)}
    return [row for row in case.lines(CLEAN) if row["offset"] in offsets]


@pytest.mark.slow
@pytest.mark.timeout(1200)
@pytest.mark.parametrize("stop", ["clean", "crash"])
def test_a_broker_starts_and_serves_everything_intact(
    stop: str, oracle: Oracle, cases: list[corpus.Case], repaired: Path, tmp_path: Path
) -> None:
    assert len(cases) >= 20
    log_dir = tmp_path / "disk"
    shutil.copytree(repaired, log_dir)
    if stop == "crash":
        (log_dir / ".kafka_cleanshutdown").unlink()
        points = read_offset_checkpoint((log_dir / RECOVERY).read_bytes())
        (log_dir / RECOVERY).write_bytes(write_offset_checkpoint(dict.fromkeys(points, 0)))
    wrong = []
    with (
        RealBroker(oracle, tmp_path / "run", log_dirs=[log_dir], settings=SETTINGS) as broker,
        oracle.consumer(broker.bootstrap) as consumer,
    ):
        for case in cases:
            seen = oracle.read_partition(consumer, topic_of(case), 0)
            got = {row["offset"]: row for row in seen.records}
            missing = [row["offset"] for row in intact(case) if got.get(row["offset"]) != row]
            if missing or seen.meta["error"]:
                wrong.append((case.id, missing, seen.meta["error"]))
    assert wrong == []
    assert not [path.name for path in log_dir.iterdir() if path.name.endswith("-stray")]
    assert not [path.name for path in log_dir.rglob("*.deleted")]
