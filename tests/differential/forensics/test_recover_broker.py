"""A real Apache Kafka 4.3 broker opens what was recovered from three damaged replicas, and serves every record of it.

The broker starts after a clean stop, and after a crash with recovery point 0. After the crash it reads every segment again and cuts what it
does not accept.
"""

from __future__ import annotations

import posixpath
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from kops.forensics.recover.report import RecoverReport
from kops.forensics.recover.run import recover
from kops.storage.formats.checkpoints import TopicPartition, read_offset_checkpoint, write_offset_checkpoint
from tests.support import corpus
from tests.support.kafka.oracle import Oracle
from tests.support.kafka.real_broker import RealBroker
from tests.support.logs.three_replicas import CLEAN, three_damaged

RECOVERY = "recovery-point-offset-checkpoint"
SETTINGS = {
    "producer.id.expiration.ms": 2147483647,
    "log.retention.ms": -1,
    "log.initial.task.delay.ms": 3_600_000,
    "log.flush.offset.checkpoint.interval.ms": 3_600_000,
}
CASES = [case_id for case_id in corpus.cases("damage") if "4.3.0" in case_id and "partition-metadata" not in case_id][::4]


def topic_of(case: corpus.Case) -> str:
    return str(posixpath.basename(case.json["damagedDir"]).rpartition("-")[0])


@pytest.fixture(scope="module")
def recovered(oracle: Oracle, tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Path, RecoverReport]]:
    """Provide a log directory of a broker in which the recovered partitions replace its own."""
    work = tmp_path_factory.mktemp("recover")
    log_dir = work / "disk"
    cases = [corpus.load(case_id) for case_id in CASES]
    with RealBroker(oracle, work / "run", log_dirs=[log_dir], settings=SETTINGS) as broker:
        admin = oracle.java_class("org.apache.kafka.clients.admin.Admin").create(oracle.properties({"bootstrap.servers": broker.bootstrap}))
        try:
            wanted = oracle.jvm.java.util.ArrayList()
            for case in cases:
                wanted.add(oracle.jvm.org.apache.kafka.clients.admin.NewTopic(topic_of(case), 1, oracle.short(1)))
            admin.createTopics(wanted).all().get()
        finally:
            admin.close()
    paths = [work / f"broker-{number}" for number in range(3)]
    for case in cases:
        for path, content in zip(paths, three_damaged(case)[0], strict=True):
            folder = path / posixpath.basename(case.json["damagedDir"])
            folder.mkdir(parents=True)
            for name, data in content.items():
                (folder / name).write_bytes(data)
    report = recover(paths, work / "out")
    points = read_offset_checkpoint((log_dir / RECOVERY).read_bytes())
    for entry in report.partitions:
        target = log_dir / entry.name
        metadata = (target / "partition.metadata").read_bytes()
        shutil.rmtree(target)
        shutil.copytree(entry.output, target)
        (target / "partition.metadata").write_bytes(metadata)
        assert entry.last_offset is not None
        points[TopicPartition(entry.name.rpartition("-")[0], 0)] = entry.last_offset + 1
    (log_dir / RECOVERY).write_bytes(write_offset_checkpoint(points))
    yield log_dir, report


@pytest.mark.slow
@pytest.mark.timeout(1200)
@pytest.mark.parametrize("stop", ["clean", "crash"])
def test_a_broker_serves_everything_that_was_recovered(
    stop: str, oracle: Oracle, recovered: tuple[Path, RecoverReport], tmp_path: Path
) -> None:
    source, report = recovered
    log_dir = tmp_path / "disk"
    shutil.copytree(source, log_dir)
    if stop == "crash":
        (log_dir / ".kafka_cleanshutdown").unlink()
        points = read_offset_checkpoint((log_dir / RECOVERY).read_bytes())
        (log_dir / RECOVERY).write_bytes(write_offset_checkpoint(dict.fromkeys(points, 0)))
    entries = {entry.name: entry for entry in report.partitions}
    assert len(entries) == len(CASES) > 20
    wrong = []
    with (
        RealBroker(oracle, tmp_path / "run", log_dirs=[log_dir], settings=SETTINGS) as broker,
        oracle.consumer(broker.bootstrap) as consumer,
    ):
        for case in map(corpus.load, CASES):
            seen = oracle.read_partition(consumer, topic_of(case), 0)
            got = {row["offset"]: row for row in seen.records}
            truth = {row["offset"]: row for row in case.lines(CLEAN)}
            missing = [offset for offset in three_damaged(case)[1] if got.get(offset) != truth[offset]]
            if missing or seen.meta["error"] or not got.keys() <= truth.keys():
                wrong.append((case.id, missing, seen.meta["error"]))
    assert wrong == []
    assert not [path.name for path in log_dir.iterdir() if path.name.endswith("-stray")]
    assert not [path.name for path in log_dir.rglob("*.deleted")]
