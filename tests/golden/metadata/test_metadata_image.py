"""Metadata logs and snapshots of Kafka: replayed into images, which are written again as Kafka's snapshots."""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import compress
from pathlib import PurePosixPath

import pytest

from kops.errors import DecodeError
from kops.metadata.image.batch_loader import LoadedBatch
from kops.metadata.image.loader import MetadataLoader
from kops.metadata.image.metadata_image import MetadataImage, MetadataProvenance
from kops.metadata.image.writer import WriterOptions, write_image
from kops.metadata.raft.log.control_records import read_snapshot_header
from kops.metadata.records import read_record, write_record
from kops.protocol.declaration import Message
from kops.protocol.json_text import uuid_text
from kops.protocol.messages import ZkMigrationStateRecord
from kops.records import Batch, read_batches
from tests.support import corpus

SNAPSHOT = re.compile(r"(\d{20})-(\d{10})\.checkpoint$")
NO_MIGRATION = write_record(ZkMigrationStateRecord(), 0)
CLUSTERS = ("cluster-3.9.1", "cluster-4.3.0")
BROKERS = [case for case in corpus.cases("broker-damage") if "-none" in case]


def no_fault(where: str, error: DecodeError) -> None:
    """Fail on a contradiction: nothing that Kafka wrote contradicts itself."""
    raise AssertionError(where) from error


def values(batch: Batch) -> Iterator[bytes]:
    """Yield the records of a batch."""
    for record in batch.records():
        assert record.value is not None
        yield record.value


def messages(batch: Batch) -> list[Message]:
    """Return the records of a batch as messages."""
    return [read_record(value)[0] for value in values(batch)]


def folders(case: corpus.Case, part: str) -> dict[str, list[str]]:
    """Return the files of each metadata log."""
    found: dict[str, list[str]] = {}
    for path in case.files(part):
        parent = PurePosixPath(path).parent
        if parent.name == "__cluster_metadata-0" and path.endswith((".log", ".checkpoint")):
            found.setdefault(parent.as_posix(), []).append(path)
    return found


def snapshots(case: corpus.Case, files: list[str]) -> dict[int, tuple[MetadataProvenance, list[bytes]]]:
    """Return each snapshot by its end offset: its provenance and its records. The one that only Kafka 3 writes is left out."""
    found = {}
    for path in files:
        if match := SNAPSHOT.search(path):
            batches = read_batches(case.read(path))
            provenance = MetadataProvenance(int(match[1]) - 1, int(match[2]), read_snapshot_header(batches[0]), True)
            told = [value for batch in batches if not batch.is_control for value in values(batch)]
            found[int(match[1])] = (provenance, [value for value in told if value != NO_MIGRATION])
    return found


def loaded(case: corpus.Case, files: list[str], start: int, end: int | None = None) -> MetadataImage:
    """Return the image of a log up to `end`, from the snapshot that ends at `start` if there is one."""
    loader = MetadataLoader(lambda: None, no_fault)
    if start in (known := snapshots(case, files)):
        provenance, records = known[start]
        loader.load_snapshot((read_record(value)[0] for value in records), provenance)
    for path in sorted(files):
        for batch in read_batches(case.read(path)) if path.endswith(".log") else ():
            if batch.base_offset >= start and (end is None or batch.last_offset < end):
                told: list[Message] = [] if batch.is_control else messages(batch)
                epoch = batch.partition_leader_epoch
                loader.load_batches([LoadedBatch(batch.base_offset, batch.last_offset, epoch, batch.max_timestamp, batch.size, told)])
    return loader.image


def written(image: MetadataImage) -> list[bytes]:
    """Return the records of a snapshot of the image."""
    return [write_record(message, version) for message, version in write_image(image, WriterOptions.of(image))]


def check_same(ours: list[bytes], theirs: list[bytes]) -> None:
    """Check that the records and their order are the same. Within features and settings the order is free: these are in HashMaps, which are
    small or have no fixed order.
    """
    kinds = [type(read_record(value)[0]).__name__ for value in theirs]
    assert [type(read_record(value)[0]).__name__ for value in ours] == kinds
    assert sorted(ours) == sorted(theirs)
    ordered = [kind not in ("FeatureLevelRecord", "ConfigRecord") for kind in kinds]
    assert list(compress(ours, ordered)) == list(compress(theirs, ordered))
    assert ours[0] == theirs[0]


@pytest.mark.parametrize("case_id", BROKERS)
def test_the_topics_that_clients_saw(case_id: str) -> None:
    case = corpus.load(case_id)
    (files,) = folders(case, "before").values()
    image = loaded(case, files, max(snapshots(case, files), default=0))
    seen = case.json["cleanSeen"]["topics"]
    assert {uuid_text(topic.id): topic.name for topic in image.topics.by_id.values()} == {one["topicId"]: one["name"] for one in seen}
    for one in seen:
        topic = image.topics.by_name[one["name"]]
        assert sorted(topic.partitions) == [partition["partition"] for partition in one["partitions"]]
        # The broker was stopped: nobody leads, and it is the only eligible leader.
        assert {(each.replicas, each.isr, each.elr, each.leader) for each in topic.partitions.values()} == {((1,), (), (1,), -1)}


@pytest.mark.parametrize("case_id", CLUSTERS)
def test_nodes_of_a_cluster_agree(case_id: str) -> None:
    """At the end of the shortest log, the images of all nodes are the same, whether read from a snapshot or from the log alone."""
    case = corpus.load(case_id)
    found = folders(case, "nodes")
    assert len(found) >= 3
    images = [loaded(case, files, start) for files in found.values() for start in {0, *snapshots(case, files)}]
    assert all(image.features.metadata_version for image in images)
    last = max(image.offset for image in images)
    ends = [image for image in images if image.offset == last]
    assert all(written(image) == written(ends[0]) for image in ends)
    assert ends[0].topics.by_id
    assert ends[0].cluster.brokers


@pytest.mark.parametrize("case_id", [*CLUSTERS, *BROKERS])
def test_snapshots_are_written_as_kafka_wrote_them(case_id: str) -> None:
    """The image of the log up to a snapshot, when written, is the snapshot. So is the image of the snapshot itself."""
    case = corpus.load(case_id)
    compared = 0
    for files in folders(case, "nodes" if case_id in CLUSTERS else "before").values():
        for end, (provenance, records) in snapshots(case, files).items():
            if end == 0:
                continue
            loader = MetadataLoader(lambda: None, no_fault)
            loader.load_snapshot((read_record(value)[0] for value in records), provenance)
            check_same(written(loader.image), records)
            compared += len(records)
            from_log = loaded(case, files, 0, end)
            if from_log.offset == provenance.last_contained_offset and 0 in starts(case, files):
                assert from_log.provenance == provenance
                check_same(written(from_log), records)
    assert compared or case_id in BROKERS


def starts(case: corpus.Case, files: list[str]) -> set[int]:
    """Return the offsets at which the segments begin."""
    return {int(PurePosixPath(path).stem) for path in files if path.endswith(".log")}
