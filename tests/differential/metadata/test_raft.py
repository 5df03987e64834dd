"""KRaft's bytes and sets against the real classes: control batches, data batches, snapshots, voter sets."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

from kops.metadata.raft.log import control_records as control
from kops.metadata.raft.log.accumulator import BatchAccumulator
from kops.metadata.raft.log.snapshot import SnapshotWriter
from kops.metadata.raft.voters.replica import Address, Endpoints, OffsetAndEpoch, ReplicaKey
from kops.metadata.raft.voters.voter_set import VoterNode, VoterSet
from kops.records import read_batches
from tests.simulation.raft.raft_log import MemoryLog, MemorySnapshot
from tests.support.kafka.oracle import Oracle

RECORDS = "org.apache.kafka.common.record.internal.MemoryRecords"
MESSAGES = "org.apache.kafka.common.message"
RAFT = "org.apache.kafka.raft"


def buffer_bytes(buffer: Any) -> bytes:
    """Return the bytes from a Java ByteBuffer's position to its limit."""
    copy = buffer.duplicate()
    return bytes(copy.array())[copy.arrayOffset() + copy.position() : copy.arrayOffset() + copy.limit()]


def message(oracle: Oracle, name: str, value: bytes) -> Any:
    """Return a real message read from our bytes."""
    accessor = oracle.java_class("org.apache.kafka.common.protocol.ByteBufferAccessor")(oracle.jvm.java.nio.ByteBuffer.wrap(value))
    return oracle.java_class(f"{MESSAGES}.{name}")(accessor, oracle.short(0))


def voter(node_id: int, directory: int, version: int = 1) -> VoterNode:
    """Return a voter with one listener."""
    endpoints = Endpoints({"CONTROLLER": Address(f"host-{node_id}", 9000 + node_id)})
    return VoterNode(ReplicaKey(node_id, directory.to_bytes(16, "big") if directory else None), endpoints, 0, version)


def drawn_sets(seed: int, count: int) -> list[VoterSet]:
    """Return voter sets over a few ids and directories, so that they often overlap."""
    rng = random.Random(seed)
    drawn = []
    for _ in range(count):
        ids = rng.sample(range(1, 7), rng.randrange(1, 6))
        drawn.append(VoterSet(voter(node_id, rng.randrange(3), rng.randrange(2)) for node_id in ids))
    return drawn


def real_set(oracle: Oracle, voters: VoterSet) -> Any:
    """Return the same voters in Kafka's VoterSet."""
    return oracle.java_class(f"{RAFT}.VoterSet").fromVotersRecord(message(oracle, "VotersRecord", control.voters(voters).value))


def read_back(oracle: Oracle, real: Any) -> VoterSet:
    """Return a real voter set, read from the record that Kafka would write. Kafka writes the voters in the order of a HashMap, which is not
    compared.
    """
    record = real.toVotersRecord(oracle.short(0))
    accessor = oracle.java_class("org.apache.kafka.common.protocol.MessageUtil").toByteBufferAccessor(record, oracle.short(0))
    return control.read_voters(buffer_bytes(accessor.buffer()))


def test_control_batches(oracle: Oracle) -> None:
    """The key and the value of each kind of control record and the batch around it are the same."""
    records = oracle.java_class(RECORDS)
    cases = [
        (control.leader_change(2, [1, 2, 3], [2, 3]), "LeaderChangeMessage", records.withLeaderChangeMessage),
        (control.leader_change(1, [1], []), "LeaderChangeMessage", records.withLeaderChangeMessage),
        (control.kraft_version(1), "KRaftVersionRecord", records.withKRaftVersionRecord),
        (control.voters(VoterSet([voter(1, 7), voter(2, 0, 0)])), "VotersRecord", records.withVotersRecord),
        (control.snapshot_header(1_700_000_000_123), "SnapshotHeaderRecord", records.withSnapshotHeaderRecord),
        (control.snapshot_footer(), "SnapshotFooterRecord", records.withSnapshotFooterRecord),
    ]
    for record, name, build in cases:
        target = oracle.jvm.java.nio.ByteBuffer.allocate(1024)
        real = build(oracle.jvm.java.lang.Long.parseLong("17"), 1_700_000_000_456, 5, target, message(oracle, name, record.value))
        assert control.control_batch([record], base_offset=17, epoch=5, now_ms=1_700_000_000_456) == buffer_bytes(real.buffer())


def test_data_batches(oracle: Oracle) -> None:
    """The batches of an accumulator are byte for byte those of Kafka's BatchBuilder."""
    values = ["", "a", "b" * 70, "c" * 9000]
    target = oracle.jvm.java.nio.ByteBuffer.allocate(20_000)
    none = oracle.java_class("org.apache.kafka.common.compress.Compression").NONE
    serde = oracle.java_class(f"{RAFT}.internals.StringSerde")()
    builder = oracle.java_class(f"{RAFT}.internals.BatchBuilder")(target, serde, none, 1000, 1_700_000_000_000, 8, 20_000)
    cache = oracle.java_class("org.apache.kafka.common.protocol.ObjectSerializationCache")()
    for value in values:
        builder.appendRecord(value, cache)
    accumulator = BatchAccumulator(8, 1000, 0)
    accumulator.append(8, [value.encode() for value in values], 1_700_000_000_000)
    (batch,) = accumulator.drain()
    assert batch.data == buffer_bytes(builder.build().buffer())


def test_voter_sets(oracle: Oracle) -> None:
    """Drawn sets are written, read and support versions in the same way as Kafka's VoterSet."""
    sets = drawn_sets(1, 14)
    real = [real_set(oracle, each) for each in sets]
    for index, each in enumerate(sets):
        assert read_back(oracle, real[index]) == each
        for number in (0, 1):
            version = oracle.java_class("org.apache.kafka.server.common.KRaftVersion").fromFeatureLevel(oracle.short(number))
            assert each.supports(number) == real[index].supportsVersion(version)


def test_changed_voter_sets(oracle: Oracle) -> None:
    """Each change gives the same set, or none on both sides."""
    rng = random.Random(2)
    nodes = [voter(node_id, directory, rng.randrange(2)) for node_id in range(1, 7) for directory in range(3)]
    outcomes = set()
    for each in drawn_sets(3, 6):
        theirs = real_set(oracle, each)
        for node in rng.sample(nodes, 6):
            (other,) = real_set(oracle, VoterSet([node])).voterNodes().toArray()
            changes = (
                ("add", each.add(node), theirs.addVoter(other)),
                ("remove", each.remove(node.key), theirs.removeVoter(other.voterKey())),
                ("update", each.update(node), theirs.updateVoter(other)),
                ("any", each.update_any_directory(node), theirs.updateVoterIgnoringDirectoryId(other)),
            )
            for name, ours, optional in changes:
                outcomes.add((name, ours is None))
                assert (ours is None) == optional.isEmpty()
                if ours is not None:
                    assert ours == read_back(oracle, optional.get())
            assert each.is_voter(node.key) == theirs.isVoter(other.voterKey())
            assert each.needs_update(node) == theirs.voterNodeNeedsUpdate(other)
    assert len(outcomes) == 8


def test_a_snapshot(oracle: Oracle, tmp_path: Path) -> None:
    """A whole snapshot is byte for byte what Kafka's RecordsSnapshotWriter writes."""
    voters = VoterSet([voter(1, 1), voter(2, 2)])
    optional = oracle.java_class("java.util.Optional")
    position = oracle.java_class("org.apache.kafka.server.common.OffsetAndEpoch")(42, 3)
    raw = oracle.java_class("org.apache.kafka.snapshot.FileRawSnapshotWriter").create(
        oracle.jvm.java.io.File(str(tmp_path)).toPath(), position
    )
    builder = oracle.jvm.org.apache.kafka.snapshot.RecordsSnapshotWriter.Builder()
    builder = builder.setLastContainedLogTimestamp(99).setRawSnapshotWriter(raw).setMaxBatchSizeBytes(8 * 1024 * 1024)
    version = oracle.java_class("org.apache.kafka.server.common.KRaftVersion").fromFeatureLevel(oracle.short(1))
    builder = builder.setKraftVersion(version).setVoterSet(optional.of(real_set(oracle, voters)))
    writer = builder.build(oracle.java_class(f"{RAFT}.internals.StringSerde")())
    writer.append(oracle.jvm.java.util.List.of("one", "two"))
    writer.append(oracle.jvm.java.util.List.of("three"))
    writer.freeze()
    theirs = next(tmp_path.glob("*.checkpoint")).read_bytes()
    # Kafka asks its clock for each batch.
    begun, appended, ended = [batch.max_timestamp for batch in read_batches(theirs)]
    log = MemoryLog()
    sink = MemorySnapshot(log, OffsetAndEpoch(offset=42, epoch=3))
    ours = SnapshotWriter(sink, 99, 1, voters, begun)
    ours.append([b"one", b"two"], appended)
    ours.append([b"three"], appended)
    assert ours.freeze(ended) == len(theirs)
    assert sink.data == theirs
