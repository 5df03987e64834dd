"""The share coordinator's shard compared with Kafka's ShareCoordinatorShard: random requests give the same answers and the same records."""

from __future__ import annotations

import base64
import random
from collections import Counter
from typing import Any

import pytest
from py4j.protocol import Py4JJavaError

from kops.coordinators.runtime.result import CoordinatorResult
from kops.coordinators.share.batches import StateBatch, combine_batches
from kops.coordinators.share.key import SharePartitionKey
from kops.coordinators.share.shard import ShareCoordinatorConfig, ShareCoordinatorShard
from kops.protocol.declaration import Message
from kops.protocol.messages import delete_share_group_state_request as deleting
from kops.protocol.messages import initialize_share_group_state_request as initializing
from kops.protocol.messages import read_share_group_state_request as reading
from kops.protocol.messages import read_share_group_state_summary_request as summing
from kops.protocol.messages import write_share_group_state_request as writing
from kops.timeline import Timeline
from tests.support.kafka.manual_jvm import ManualClock
from tests.support.kafka.oracle import Oracle
from tests.support.kafka.twins.java_coordinators import JavaCoordinators
from tests.support.parts.groups.coordinator_images import Image

NOW_MS = 1_700_000_000_000
TOPICS = {"orders": (bytes(range(16)), 2), "stock": (bytes(range(240, 256)), 1)}
GROUPS = ("g1", "g:2")
UNKNOWN_ID = bytes(range(60, 76))
COLD_MS = 300_000
METHODS = {
    "Initialize": ("initializeState", 0),
    "Read": ("readStateAndMaybeUpdateLeaderEpoch", 0),
    "Write": ("writeState", 1),
    "Delete": ("deleteState", 0),
    "Summary": ("readStateSummary", 1),
}


class Twins:
    """Our shard and Kafka's, with one clock."""

    def __init__(self, java: JavaCoordinators, records_per_snapshot: int) -> None:
        self.java = java
        oracle = java.oracle
        self.clock = ManualClock(oracle, NOW_MS)
        share = "org.apache.kafka.coordinator.share."
        name = "share.coordinator.snapshot.update.records.per.snapshot"
        definition = oracle.java_class(f"{share}ShareCoordinatorConfig").CONFIG_DEF
        plain = java.make("common.config.AbstractConfig", definition, {name: str(records_per_snapshot)}, False)
        self.registry = java.make("timeline.SnapshotRegistry", java.make("common.utils.LogContext"))
        builder = oracle.java_class(f"{share}ShareCoordinatorShard$Builder")(java.make("coordinator.share.ShareCoordinatorConfig", plain))
        builder = builder.withSnapshotRegistry(self.registry).withTime(self.clock.time).withLogContext(java.make("common.utils.LogContext"))
        metrics = java.make("coordinator.share.metrics.ShareCoordinatorMetrics", java.make("common.metrics.Metrics"))
        partition = java.make("common.TopicPartition", "__share_group_state", 0)
        self.theirs = builder.withCoordinatorMetrics(metrics).withTopicPartition(partition).build()
        self.serde = java.make("coordinator.share.ShareCoordinatorRecordSerde")
        self.timeline = Timeline()
        self.ours = ShareCoordinatorShard(self.timeline, ShareCoordinatorConfig(records_per_snapshot, COLD_MS), lambda: self.clock.now_ms)
        self.theirs.onLoaded(java.image(TOPICS))
        self.ours.on_loaded(Image(TOPICS))
        self.offset = 0
        self.committed = -1
        self.registry.getOrCreateSnapshot(java.long(0))

    def ask(self, kind: str, request: Message) -> tuple[list[int], list[str]]:
        """Send one request to both. Return its error codes, and the types of the records."""
        method, version = METHODS[kind]
        theirs = getattr(self.theirs, method)(self.java.message(request, version))
        ours: CoordinatorResult[Any] = {
            "Initialize": self.ours.initialize_state,
            "Read": self.ours.read_state,
            "Write": self.ours.write_state,
            "Delete": self.ours.delete_state,
            "Summary": self.ours.read_state_summary,
        }[kind](request)  # type: ignore[operator]
        assert ours.response is not None
        assert ours.response.encode(version) == self.java.message_bytes(theirs.response(), version), (kind, request)
        codes = [part.error_code for topic in ours.response.results for part in topic.partitions]
        return codes, self.replay(ours, theirs)

    def work(self, kind: str) -> list[str]:
        """Run the work of a timer or of a deletion of topics."""
        if kind == "cold":
            return self.replay(self.ours.snapshot_cold_partitions(), self.theirs.snapshotColdPartitions())
        gone = [TOPICS["stock"][0], UNKNOWN_ID]
        ids = self.java.oracle.jvm.java.util.HashSet()
        for each in gone:
            ids.add(self.java.uuid(each))
        return self.replay(self.ours.clean_up_deleted_topics(gone), self.theirs.maybeCleanupShareState(ids))

    def replay(self, ours: CoordinatorResult[Any], theirs: Any) -> list[str]:
        """Compare the records, which may come in any order, and replay them."""
        records = sorted(ours.records, key=lambda record: record.key_bytes())
        real = {bytes(self.serde.serializeKey(record)): record for record in theirs.records().toArray()}
        written = self.java.records(theirs.records(), self.serde)
        assert [(record.key_bytes(), record.value_bytes()) for record in records] == sorted(written)
        for record in records:
            self.timeline.offset = self.offset
            self.ours.replay(self.offset, -1, -1, record)
            no_producer = self.java.long(-1), self.java.short(-1)
            self.theirs.replay(self.java.long(self.offset), *no_producer, real[record.key_bytes()])
            self.offset += 1
        if records:
            self.registry.getOrCreateSnapshot(self.java.long(self.offset))
        redundant = self.theirs.lastRedundantOffset().response()
        assert (self.ours.last_redundant_offset().response or None) == (redundant.get() if redundant.isPresent() else None)
        return [type(record.key).__name__ if record.value is not None else "tombstone" for record in records]

    def commit(self) -> None:
        """Commit all records so far."""
        self.committed = self.offset
        self.timeline.forget_up_to(self.offset - 1)
        self.registry.deleteSnapshotsUpTo(self.java.long(self.offset))

    def revert(self) -> None:
        """Undo what is not committed."""
        self.offset = max(self.committed, 0)
        self.timeline.revert_to(self.offset - 1)
        self.registry.revertToSnapshot(self.java.long(self.offset))


def drawn_request(rng: random.Random) -> tuple[str, Message]:
    kind = rng.choices(list(METHODS), (2.5, 2, 9, 0.4, 1))[0]
    group, topic_id = rng.choices(GROUPS, (4, 1))[0], rng.choices([topic_id for topic_id, _ in TOPICS.values()], (3, 1))[0]
    if rng.random() < 0.03:
        topic_id = UNKNOWN_ID
    partition = rng.choice((0, 0, 0, 1, -1)) if rng.random() < 0.3 else 0
    epoch = rng.choice((-1, 0, 0, 1, 2))
    start_offset = rng.choice((-1, 0, 5, 10, 17))
    if kind == "Initialize":
        data = initializing.PartitionData(partition, epoch, start_offset)
        return kind, initializing.InitializeShareGroupStateRequest(group, [initializing.InitializeStateData(topic_id, [data])])
    if kind == "Read":
        read = reading.PartitionData(partition, rng.choice((-1, 0, 1, 2, 3)))
        return kind, reading.ReadShareGroupStateRequest(group, [reading.ReadStateData(topic_id, [read])])
    if kind == "Delete":
        gone = deleting.PartitionData(partition)
        return kind, deleting.DeleteShareGroupStateRequest(group, [deleting.DeleteStateData(topic_id, [gone])])
    if kind == "Summary":
        asked = summing.PartitionData(partition, rng.choice((0, 1)))
        return kind, summing.ReadShareGroupStateSummaryRequest(group, [summing.ReadStateSummaryData(topic_id, [asked])])
    batches = [writing.StateBatch(*drawn_offsets(rng), rng.choice((0, 2, 4)), rng.randrange(1, 4)) for _ in range(rng.randrange(4))]
    written = writing.PartitionData(partition, epoch, rng.choice((-1, 0, 1, 3)), start_offset, rng.randrange(-1, 9), batches)
    return kind, writing.WriteShareGroupStateRequest(group, [writing.WriteStateData(topic_id, [written])])


def drawn_offsets(rng: random.Random) -> tuple[int, int]:
    first = rng.randrange(30)
    return first, first + rng.choice((0, 0, 1, 4, 9))


def live(java: JavaCoordinators, seed: int, step_count: int) -> Counter[str]:
    """Run one life of a shard, and return what happened."""
    rng = random.Random(seed)
    twins = Twins(java, rng.choice((0, 1, 3, 500)))
    seen: Counter[str] = Counter()
    for _ in range(step_count):
        twins.clock.now_ms += rng.choice((0, 7, 1000, COLD_MS // 2))
        chosen = rng.random()
        if chosen < 0.9:
            kind, request = drawn_request(rng)
            codes, records = twins.ask(kind, request)
            seen.update(f"{kind} {code}" for code in codes)
            seen.update(records)
        elif chosen < 0.94:
            seen.update(f"cold {record}" for record in twins.work("cold"))
        elif chosen < 0.95:
            seen.update(f"deleted {record}" for record in twins.work("deleted"))
        elif chosen < 0.98:
            twins.commit()
        else:
            twins.revert()
    return seen


def test_random_lives(oracle: Oracle) -> None:
    """Requests, cold snapshots, deleted topics, commits and failing writes give the same results."""
    java = JavaCoordinators(oracle)
    seen: Counter[str] = Counter()
    for seed in range(4):
        seen += live(java, seed, 90)
    assert {"ShareSnapshotKey", "ShareUpdateKey", "tombstone", "Write 0", "Write 74", "Write 124", "Write 42", "Read 0", "Read 74"} <= set(
        seen
    )
    assert {"Read 42", "Initialize 0", "Initialize 124", "Delete 0", "Summary 0", "cold ShareSnapshotKey"} <= set(seen), seen


@pytest.mark.slow
def test_many_lives(oracle: Oracle, seed_count: int | None) -> None:
    """Longer lives agree as well."""
    java = JavaCoordinators(oracle)
    seen: Counter[str] = Counter()
    for seed in range(100, 100 + (seed_count or 12)):
        seen += live(java, seed, 250)
    assert "deleted tombstone" in seen


@pytest.mark.parametrize("records_per_snapshot", [0, 500])
def test_a_late_initialization_resets_a_share_partition(oracle: Oracle, records_per_snapshot: int) -> None:
    """An Initialize is fenced by its state epoch only. One that comes late with the same epoch discards what was acknowledged meanwhile."""
    twins = Twins(JavaCoordinators(oracle), records_per_snapshot)
    topic_id = TOPICS["orders"][0]

    def initialize(state_epoch: int) -> tuple[list[int], list[str]]:
        data = initializing.PartitionData(0, state_epoch, start_offset=5)
        topics = [initializing.InitializeStateData(topic_id, [data])]
        return twins.ask("Initialize", initializing.InitializeShareGroupStateRequest("g1", topics))

    def write(leader_epoch: int, start_offset: int) -> list[int]:
        batches = [writing.StateBatch(start_offset + 2, start_offset + 4, delivery_state=2, delivery_count=1)]
        data = writing.PartitionData(0, 1, leader_epoch, start_offset, 3, batches)
        return twins.ask("Write", writing.WriteShareGroupStateRequest("g1", [writing.WriteStateData(topic_id, [data])]))[0]

    def state() -> tuple[int, int]:
        answer = twins.ours.read_state(request).response
        assert answer is not None
        found = answer.results[0].partitions[0]
        return found.start_offset, len(found.state_batches)

    request = reading.ReadShareGroupStateRequest("g1", [reading.ReadStateData(topic_id, [reading.PartitionData(0, leader_epoch=3)])])
    assert initialize(1)[0] == twins.ask("Read", request)[0] == write(3, 40) == [0]
    twins.commit()
    assert state() == (40, 1)
    assert initialize(0) == ([124], [])
    assert state() == (40, 1)
    for repeated in (1, -1):
        assert initialize(repeated) == ([0], ["ShareSnapshotKey"])
        assert state() == (5, 0)
        # The reset does not fence the leader: its next write counts, and that of an earlier leader is still refused.
        assert write(2, 50) == [74]
        assert write(3, 50) == [0]
        assert state() == (50, 1)


def test_combined_batches(oracle: Oracle) -> None:
    """Two lists of batches are combined into the same list."""
    java, rng = JavaCoordinators(oracle), random.Random(5)
    package = "org.apache.kafka.server.share.persister.PersisterStateBatch"
    made = oracle.java_class(package)
    combiner = oracle.java_class("org.apache.kafka.coordinator.share.PersisterStateBatchCombiner")
    byte = oracle.java_class("java.lang.Byte")

    def drawn() -> list[StateBatch]:
        return [StateBatch(*drawn_offsets(rng), rng.randrange(1, 4), rng.choice((0, 2, 4))) for _ in range(rng.randrange(6))]

    def real(batches: list[StateBatch]) -> list[Any]:
        states = [byte.valueOf(str(each.delivery_state)) for each in batches]
        ends = [(java.long(each.first_offset), java.long(each.last_offset)) for each in batches]
        return [made(*end, state, java.short(each.delivery_count)) for each, end, state in zip(batches, ends, states, strict=True)]

    for _ in range(120):
        so_far, new, start_offset = drawn(), drawn(), rng.choice((-1, 0, 5, 12))
        expected = combiner(real(so_far), real(new), java.long(start_offset)).combineStateBatches().toString()
        found = ", ".join(
            f"PersisterStateBatch(firstOffset={each.first_offset},lastOffset={each.last_offset},"
            f"deliveryCount={each.delivery_count},deliveryState={each.delivery_state})"
            for each in combine_batches(so_far, new, start_offset)
        )
        assert f"[{found}]" == expected, (so_far, new, start_offset)


def test_keys(oracle: Oracle) -> None:
    """Both map a key to the same partition, and accept the same texts as keys."""
    java, rng = JavaCoordinators(oracle), random.Random(6)
    keys = oracle.java_class("org.apache.kafka.server.share.SharePartitionKey")
    utils = oracle.java_class("org.apache.kafka.common.utils.Utils")
    for _ in range(60):
        key = SharePartitionKey(rng.choice(("g", "a:b", "ä", "x" * 200)), rng.randbytes(16), rng.randrange(100))
        real = keys.getInstance(key.group_id, java.uuid(key.topic_id), key.partition).asCoordinatorKey()
        assert key.coordinator_key == real
        assert key.state_partition(50) == utils.abs(oracle.java_class("java.util.Objects").hashCode(real)) % 50
        assert SharePartitionKey.parse(real) == key
    topic_id = base64.urlsafe_b64encode(bytes(16)).decode()
    texts = ["", "g", "g:x", ":", ":::", f":{topic_id}:1", f" :{topic_id}:1", f"g:{topic_id}:x", f"g:{topic_id}:-1", f"g:{topic_id}:1::"]
    texts += [f"g:{topic_id[:22]}:+7", f"g:{topic_id[:21]}:7", f"g:{topic_id}AA:7", f"g:{topic_id}:99999999999", f"::{topic_id}:1", "g:!:1"]
    for text in texts:
        try:
            expected = str(keys.getInstance(text).asCoordinatorKey())
        except Py4JJavaError as error:
            expected = str(error.java_exception.getMessage())
        try:
            found = SharePartitionKey.parse(text).coordinator_key
        except ValueError as error:
            found = str(error)
        assert found == expected, text
