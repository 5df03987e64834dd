"""Every kind of damage to a log, healed from an undamaged replica, in one log directory of a real Apache Kafka 4.3 broker. After a crash
the broker recovers every segment; it starts, keeps every file, and serves every record.
"""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from kops.forensics.heal.run import heal
from kops.storage.formats.checkpoints import TopicPartition, read_offset_checkpoint, write_offset_checkpoint
from kops.storage.formats.partition_metadata import PartitionMetadata, read_partition_metadata, write_partition_metadata
from tests.support import corpus
from tests.support.kafka.oracle import Oracle
from tests.support.kafka.real_broker import RealBroker

CLEAN = "truth/records/clean.read_uncommitted.jsonl"
RECOVERY = "recovery-point-offset-checkpoint"
SETTINGS = {"producer.id.expiration.ms": 2147483647, "log.retention.ms": -1, "log.initial.task.delay.ms": 3_600_000}
CASES = (
    "base-offset-huge",
    "batches-swapped",
    "body-garbage-crc-ok",
    "flip-body-old",
    "leader-epoch-up",
    "length-huge",
    "missing-active-segment",
    "missing-first-segment",
    "missing-middle-segment",
    "segment-copy-overlap",
    "torn-tail-header",
    "zero-length-all",
    "zero-page-old",
)


def create_topics(oracle: Oracle, bootstrap: str) -> None:
    admin = oracle.java_class("org.apache.kafka.clients.admin.Admin").create(oracle.properties({"bootstrap.servers": bootstrap}))
    try:
        wanted = oracle.jvm.java.util.ArrayList()
        for topic in CASES:
            wanted.add(oracle.jvm.org.apache.kafka.clients.admin.NewTopic(topic, 1, oracle.short(1)))
        admin.createTopics(wanted).all().get()
    finally:
        admin.close()


def put(case: corpus.Case, folder: Path, topic_id: str, kind: str) -> None:
    """Put the partition of a case in the place of `folder`, with the topic's id."""
    name = case.json["damagedDir"].rpartition("/")[2]
    if folder.exists():
        shutil.rmtree(folder)
    case.copy(folder, f"{kind}/{name}")
    (folder / "partition.metadata").write_bytes(write_partition_metadata(PartitionMetadata(topic_id)))


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_a_broker_recovers_and_serves_everything(oracle: Oracle, tmp_path: Path) -> None:
    log_dir, donor = tmp_path / "disk", tmp_path / "donor"
    with RealBroker(oracle, tmp_path / "first", log_dirs=[log_dir], settings=SETTINGS) as broker:
        create_topics(oracle, broker.bootstrap)
    points = read_offset_checkpoint((log_dir / RECOVERY).read_bytes())
    cases = {topic: corpus.load(f"damage-4.3.0-{topic}") for topic in CASES}
    for topic, case in cases.items():
        topic_id = read_partition_metadata((log_dir / f"{topic}-0" / "partition.metadata").read_bytes()).topic_id
        put(case, log_dir / f"{topic}-0", topic_id, "before")
        put(case, donor / f"{topic}-0", topic_id, "clean")
        points[TopicPartition(topic, 0)] = max(row["offset"] for row in case.lines(CLEAN)) + 1
    for name in (RECOVERY, "replication-offset-checkpoint"):
        (log_dir / name).write_bytes(write_offset_checkpoint(points))
    report = heal([log_dir], [donor], mode="all")
    assert [(found.code, found.file) for found in report.repair.left] == []
    # This case still has all of its batches, each in its place, and some of them twice.
    assert set(CASES) - {Path(each.directory).name[:-2] for each in report.partitions} == {"segment-copy-overlap"}
    assert not report.lossy
    (log_dir / ".kafka_cleanshutdown").unlink()
    (log_dir / RECOVERY).write_bytes(write_offset_checkpoint(dict.fromkeys(points, 0)))
    wrong = []
    with (
        RealBroker(oracle, tmp_path / "second", log_dirs=[log_dir], settings=SETTINGS) as broker,
        oracle.consumer(broker.bootstrap) as consumer,
    ):
        for topic, case in cases.items():
            seen = oracle.read_partition(consumer, topic, 0)
            got = {row["offset"]: row for row in seen.records}
            missing = [row["offset"] for row in case.lines(CLEAN) if got.get(row["offset"]) != row]
            if missing or seen.meta["error"]:
                wrong.append((topic, missing, seen.meta["error"]))
    assert wrong == []
    assert not [path.name for path in log_dir.rglob("*.deleted")]
    assert not [path.name for path in log_dir.iterdir() if path.name.endswith("-stray")]
