"""The ten situations of docs/situations: one log directory, the damage of each page, and the records that a broker must serve afterwards.

A cluster of kops writes the directory. No part of it is damaged twice, so all pages can be followed one after another before a broker
starts.
"""

from __future__ import annotations

import random
import shutil
import time
from base64 import b64decode
from pathlib import Path

from kops.client.client import Client
from kops.client.coordinators.group_offsets import commit_offsets
from kops.client.producer.faces.commands import CommandProducer
from kops.client.topics import delete_topics
from kops.cluster.embedded import Cluster
from kops.cluster.questions import client_of
from kops.records import Batch, BatchBuilder, scan
from kops.records.log_offsets import TopicPartition
from kops.records.scanning.source import BytesSource

RECORDS = 40
TOPICS = ("orders", "payments", "clicks", "sensors", "invoices", "events", "ledger", "transfers", "archive")
LARGE = 90_000
"""The size of a record of `sensors`, which has several segments."""
LOGS = "kafka-logs"
GROUP = "billing"


def value_of(topic: str, number: int) -> bytes:
    """Return the value of a record."""
    text = b"%s %d " % (topic.encode(), number)
    return text.ljust(LARGE, b".") if topic == "sensors" else text


def write_directory(work: Path) -> None:
    """Write `kafka-logs` with `RECORDS` records in each topic, one in a batch. `invoices` is deleted, and a group has offsets."""
    settings = {"offsets.topic.num.partitions": "1", "log.segment.bytes": "1048576", "log.index.interval.bytes": "200"}
    with Cluster(brokers=1, topics=[f"{topic}:1" for topic in TOPICS], data_dir=work / "cluster", config=settings) as cluster:
        with client_of(cluster.bootstrap_servers, timeout_ms=60_000) as client:
            produce(client)
            for number in range(3):
                commit_offsets(client, GROUP, {TopicPartition("payments", 0): 10 * number, TopicPartition("orders", 0): 5 + number})
        cluster_delete(cluster)
    (work / "cluster" / "broker-1").rename(work / LOGS)


def produce(client: Client) -> None:
    """Produce one record in each batch."""
    producer = CommandProducer(client)
    for number in range(RECORDS):
        for topic in TOPICS:
            producer.send(topic, b"k%d" % number, value_of(topic, number), partition=0)
        producer.flush()


def cluster_delete(cluster: Cluster) -> None:
    """Delete the topic that the page deletes by mistake. The broker renames its directory."""
    with client_of(cluster.bootstrap_servers, timeout_ms=60_000) as client:
        delete_topics(client, ["invoices"])
    folder = Path(cluster.data_dir) / "broker-1"
    deadline = time.monotonic() + 60
    while not list(folder.glob("invoices-0.*-delete")):
        assert time.monotonic() < deadline
        time.sleep(0.02)


# The damage of each page. The working directory has `kafka-logs`, and `replica` if a page needs it.


def broker_will_not_start(work: Path) -> None:
    """Put an administrator's copy of a partition into the log directory."""
    shutil.copytree(work / LOGS / "orders-0", work / LOGS / "orders-0.bak")


def consumer_stuck(work: Path) -> None:
    """Change a byte of a record."""
    flip(only_log(work / LOGS / "payments-0"), 17)


def index_corrupt(work: Path) -> None:
    """Put random entries into the offset index."""
    index = only_log(work / LOGS / "clicks-0").with_suffix(".index")
    index.write_bytes(random.Random(3).randbytes(index.stat().st_size or 64))


def segment_missing(work: Path) -> None:
    """Remove the second segment here. Another broker has a replica."""
    shutil.copytree(work / LOGS / "sensors-0", work / "replica" / "sensors-0")
    second = sorted((work / LOGS / "sensors-0").glob("*.log"))[1]
    for path in second.parent.glob(f"{second.stem}.*"):
        path.unlink()


def topic_deleted(work: Path) -> None:
    """Do nothing: `write_directory` has deleted the topic."""
    assert list((work / LOGS).glob("invoices-0.*-delete"))


def disk_full(work: Path) -> None:
    """Cut off the last append. The broker had no clean stop."""
    log = only_log(work / LOGS / "events-0")
    log.write_bytes(log.read_bytes()[:-25])
    (work / LOGS / ".kafka_cleanshutdown").unlink(missing_ok=True)


def replica_diverged(work: Path) -> None:
    """Give the other replica different batches from offset 30 on, of a later leader."""
    ours, other = work / LOGS / "ledger-0", work / "replica" / "ledger-0"
    shutil.copytree(ours, other)
    log = only_log(other)
    kept = [batch for batch in batches(log) if batch.last_offset < 30]
    data = b"".join(batch.data() for batch in kept)
    for number in range(30, 36):
        builder = BatchBuilder(base_offset=number, partition_leader_epoch=7)
        builder.append(kept[-1].max_timestamp + 1, b"k", b"later %d" % number)
        data += builder.build()
    for path in other.glob("*"):
        if path.name != "partition.metadata":
            path.unlink()
    log.write_bytes(data)
    (other / "leader-epoch-checkpoint").write_text("0\n2\n0 0\n7 30\n")


def consumer_offsets_damaged(work: Path) -> None:
    """Damage a commit in the middle. Later ones of the same group follow."""
    log = only_log(work / LOGS / "__consumer_offsets-0")
    flip(log, len(batches(log)) // 2)


def hanging_transaction(work: Path) -> None:
    """Add a last batch that belongs to a transaction that no coordinator knows."""
    log = only_log(work / LOGS / "transfers-0")
    last = batches(log)[-1]
    builder = BatchBuilder(
        base_offset=last.last_offset + 1,
        producer_id=4711,
        producer_epoch=0,
        base_sequence=0,
        transactional=True,
        partition_leader_epoch=last.partition_leader_epoch,
    )
    builder.append(last.max_timestamp - 3_600_000, b"k", b"never committed")
    log.write_bytes(log.read_bytes() + builder.build())


def one_disk_image(work: Path) -> None:
    """Put the partition's blocks into an image in two pieces, and remove the directory."""
    log = only_log(work / LOGS / "archive-0")
    chosen = random.Random(5)
    data = log.read_bytes()
    cut = batches(log)[20].position
    pieces = [
        chosen.randbytes(8192),
        data[cut:].ljust(16384, b"\0"),
        b"another file " * 1000,
        bytes(300),
        data[:cut],
        chosen.randbytes(5000),
    ]
    (work / "disk.img").write_bytes(b"".join(pieces))
    shutil.rmtree(log.parent)


def decoded(text: str) -> bytes:
    """Return a value as kops prints it."""
    return b64decode(text)


def only_log(folder: Path) -> Path:
    """Return the partition's log."""
    [log] = folder.glob("*.log") if list(folder.glob("*.log")) else [folder / f"{0:020}.log"]
    return log


def batches(log: Path) -> list[Batch]:
    """Return the batches of a log."""
    return [found for found in scan(BytesSource(log.read_bytes())) if isinstance(found, Batch)]


def flip(log: Path, number: int) -> None:
    """Change the last byte of a batch."""
    batch = batches(log)[number]
    data = bytearray(log.read_bytes())
    data[batch.position + batch.size - 2] ^= 0x55
    log.write_bytes(data)
