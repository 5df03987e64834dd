"""Images, deltas, written snapshots and a broker's local changes against the real MetadataDelta, MetadataImage and ImageWriter."""

from __future__ import annotations

from typing import Any

import pytest
from py4j.protocol import Py4JJavaError

from kops.errors import DecodeError
from kops.metadata.image.local_changes import local_changes
from kops.metadata.image.metadata_delta import MetadataDelta
from kops.metadata.image.metadata_image import EMPTY, MetadataImage, MetadataProvenance
from kops.metadata.image.writer import UnwritableMetadata, WriterOptions, write_image
from kops.metadata.metadata_version import VERSIONS
from kops.metadata.records import read_record, write_record
from kops.protocol.declaration import Message
from kops.protocol.json_text import uuid_text
from tests.support.kafka.oracle import Oracle
from tests.support.requests.metadata_records import BROKERS, RecordSource, known_credentials

IMAGE = "org.apache.kafka.image"
# Kafka has these in trees or keyed by dense numbers. Everything else is in HashMaps, whose order kops does not follow.
IN_ORDER = ("TopicRecord", "PartitionRecord")


class RealImages:
    """The real classes. Records go in and out as bytes."""

    def __init__(self, oracle: Oracle) -> None:
        self.oracle = oracle
        self.serde = oracle.java_class("org.apache.kafka.metadata.MetadataRecordSerde").INSTANCE
        self.accessor = oracle.java_class("org.apache.kafka.common.protocol.ByteBufferAccessor")
        self.cache = oracle.java_class("org.apache.kafka.common.protocol.ObjectSerializationCache")
        self.buffers = oracle.java_class("java.nio.ByteBuffer")
        self.empty = oracle.java_class(f"{IMAGE}.MetadataImage").EMPTY

    def delta(self, image: Any) -> Any:
        """Return a delta of an image."""
        return self.oracle.jvm.org.apache.kafka.image.MetadataDelta.Builder().setImage(image).build()

    def message(self, value: bytes) -> Any:
        """Return a record read from its bytes."""
        return self.serde.read(self.accessor(self.buffers.wrap(value)), len(value)).message()

    def apply(self, delta: Any, offset: int) -> Any:
        """Return the changed image."""
        wide = self.oracle.jvm.java.lang.Long.valueOf(str(offset))
        return delta.apply(self.oracle.java_class(f"{IMAGE}.MetadataProvenance")(wide, 1, wide, True))

    def written(self, image: Any, level: int, with_elr: bool) -> list[bytes] | str:
        """Return the records of a snapshot, or why there can be none."""
        version = self.oracle.java_class("org.apache.kafka.server.common.MetadataVersion").fromFeatureLevel(self.oracle.short(level))
        options = self.oracle.jvm.org.apache.kafka.image.writer.ImageWriterOptions.Builder(version)
        writer = self.oracle.jvm.org.apache.kafka.image.writer.RecordListWriter()
        try:
            image.write(writer, options.setEligibleLeaderReplicasEnabled(with_elr).build())
        except Py4JJavaError as error:
            return str(error.java_exception.getMessage())
        return [self.record_bytes(record) for record in writer.records().toArray()]

    def record_bytes(self, record: Any) -> bytes:
        """Return a record's value."""
        cache = self.cache()
        buffer = self.buffers.allocate(self.serde.recordSize(record, cache))
        self.serde.write(record, cache, self.accessor(buffer))
        return bytes(buffer.array())


@pytest.fixture(scope="module")
def real(oracle: Oracle) -> RealImages:
    return RealImages(oracle)


def replay_both(real: RealImages, source: RecordSource, delta: Any, count: int) -> tuple[int, int]:
    """Replay records into both, which must accept or reject the same ones. Return (accepted, rejected)."""
    refused = 0
    for _ in range(count):
        message = source.draw()
        value = write_record(message, max(message.VERSIONS))
        error = None
        try:
            source.delta.replay(message)
        except DecodeError as caught:
            error = caught
        if error is not None and error.reason.startswith("Missing topic id"):
            # Kafka keeps an empty delta for a topic that it does not know, and fails when it applies it. That is not tested.
            refused += 1
            continue
        try:
            delta.replay(real.message(value))
        except Py4JJavaError as caught:
            assert error is not None, (message, caught.java_exception.toString())
            assert caught.java_exception.getMessage() == error.reason or "Unable to replay" in error.reason
            refused += 1
        else:
            assert error is None, message
    return count - refused, refused


def written(image: MetadataImage, options: WriterOptions) -> list[bytes] | str:
    """Return our records of a snapshot, or why there can be none."""
    try:
        return [write_record(message, version) for message, version in write_image(image, options)]
    except UnwritableMetadata as error:
        return str(error)


def compare_records(ours: list[bytes], theirs: list[bytes]) -> None:
    """Check that the records are the same, and in the same order unless Kafka's is that of a HashMap."""
    names = [type(read_record(value)[0]).__name__ for value in ours]
    assert names == [type(read_record(value)[0]).__name__ for value in theirs]
    ordered = [[value for name, value in zip(names, values, strict=True) if name in IN_ORDER] for values in (ours, theirs)]
    assert ordered[0] == ordered[1]
    assert sorted(map(in_our_order, ours)) == sorted(map(in_our_order, theirs))


def in_our_order(value: bytes) -> bytes:
    """Return the record with those lists sorted that come out of a HashMap."""
    message, version = read_record(value)
    for name in ("end_points", "features", "entity"):
        if name in message.__slots__:
            getattr(message, name).sort(key=repr)
    return write_record(message, version)


def compare_local_changes(ours: MetadataDelta, theirs: Any) -> int:
    """Compare what each broker has to do. Return the number of these changes."""
    count = 0
    for broker_id in BROKERS:
        mine, real = local_changes(ours.topics, broker_id), theirs.getOrCreateTopicsDelta().localChanges(broker_id)
        assert {f"{name}-{number}" for name, number in mine.deletes} == texts(real.deletes())
        for kind, found in (("electedLeaders", mine.elected_leaders), ("leaders", mine.leaders), ("followers", mine.followers)):
            assert {f"{name}-{number}" for name, number in found} == texts(getattr(real, kind)().keySet())
            count += len(found)
        assert {f"{name}={uuid_text(one)}" for name, one in mine.topic_ids.items()} == texts(real.topicIds().entrySet())
        directories = {f"{uuid_text(key[0])}:{key[1]}-{key[2]}={uuid_text(one)}" for key, one in mine.directory_ids.items()}
        # Kafka compares the ids by identity, so it also names those that a record only repeats.
        assert directories <= texts(real.directoryIds().entrySet())
        count += len(mine.deletes) + len(directories)
    return count


def texts(collection: Any) -> set[str]:
    """Return the members of a Java collection as texts."""
    inner = str(collection.toString())[1:-1]
    return set(inner.split(", ")) if inner else set()


def check_life(real: RealImages, seed: int, rounds: int, count: int) -> tuple[int, int, int]:
    """Run an image through rounds of changes, and write each round for some version. Return (accepted, rejected, local changes)."""
    source = RecordSource(seed)
    ours, theirs = EMPTY, real.empty
    totals = (0, 0, 0)
    for offset in range(rounds):
        source.delta, delta = MetadataDelta(ours), real.delta(theirs)
        taken, refused = replay_both(real, source, delta, count)
        local = compare_local_changes(source.delta, delta)
        if seed % 2 and offset == rounds - 1:
            for message in known_credentials(source.delta):
                source.delta.replay(message)
                delta.replay(real.message(write_record(message, 0)))
            source.delta.finish_snapshot()
            delta.finishSnapshot()
        ours, theirs = source.delta.apply(MetadataProvenance(offset, 1, offset, True)), real.apply(delta, offset)
        assert ours.is_empty == theirs.isEmpty()
        level = source.rng.choice([30, VERSIONS[source.rng.randrange(len(VERSIONS))].level])
        version = next(one for one in VERSIONS if one.level == level)
        with_elr = version.has_elr and source.rng.random() < 0.7
        mine, real_records = written(ours, WriterOptions(version, with_elr)), real.written(theirs, level, with_elr)
        if isinstance(mine, str) or isinstance(real_records, str):
            assert mine == real_records
        else:
            compare_records(mine, real_records)
            again = MetadataDelta(EMPTY)
            for value in mine:
                again.replay(read_record(value)[0])
            assert written(again.apply(ours.provenance), WriterOptions(version, with_elr)) == mine
        totals = (totals[0] + taken, totals[1] + refused, totals[2] + local)
    return totals


def test_lives(real: RealImages) -> None:
    """A few images go through changes."""
    totals = [check_life(real, seed, rounds=3, count=60) for seed in range(4)]
    taken, refused, local = map(sum, zip(*totals, strict=True))
    assert taken > 500
    assert refused > 10
    assert local > 100


@pytest.mark.slow
def test_many_lives(real: RealImages, seed_count: int | None) -> None:
    """More rounds agree as well."""
    for seed in range(100, 100 + (seed_count or 12)):
        check_life(real, seed, rounds=6, count=120)


def test_records_are_written_as_kafka_writes_them(real: RealImages) -> None:
    """Every drawn record goes through the real serde and back."""
    source = RecordSource(5)
    source.delta = MetadataDelta(EMPTY)
    seen: set[type[Message]] = set()
    for _ in range(300):
        message = source.draw()
        if type(message) not in seen:
            seen.add(type(message))
            for version in message.VERSIONS[-1:]:
                value = write_record(message, version)
                assert real.record_bytes(real.serde.read(real.accessor(real.buffers.wrap(value)), len(value))) == value
    assert len(seen) > 18
