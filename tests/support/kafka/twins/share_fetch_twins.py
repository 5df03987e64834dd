"""Share fetches of kops and Kafka's DelayedShareFetch over the same share partitions. A test sets what their logs answer.

Kafka's fetch needs a ReplicaManager and Partitions. Javassist makes subclasses of both that take their answers from maps.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from kops.broker.shares.parked import ParkedShareFetch
from kops.coordinators.share.fetching.delayed import DelayedShareFetch, LogRead
from kops.coordinators.share.fetching.share_fetch import ShareFetch
from kops.coordinators.share.responses import MESSAGES, message_of
from kops.coordinators.share.sessions.session import TopicIdPartition
from kops.errors import ApiError
from kops.protocol.errors import by_code
from kops.protocol.json_text import uuid_text
from kops.protocol.messages.share_fetch_response import PartitionData
from kops.protocol.structure import Records
from kops.records.isolation import AbortedTransaction
from kops.records.log_offsets import LogOffsetMetadata
from kops.records.scanning.scanner import read_batches
from tests.support.kafka.manual_jvm import ManualClock
from tests.support.kafka.twins.java_coordinators import KAFKA
from tests.support.kafka.twins.java_groups import Calls
from tests.support.kafka.twins.java_transactions import JavaTransactions
from tests.support.kafka.twins.share_partition_twins import GROUP, NOW_MS, TOPIC, TOPIC_ID, JavaSide, Settings, Twins, same

TEXTS: Final = ("no read", "no start", "no end", "gone", None)
"""The messages of the errors that a test makes."""
LOG: Final = f"{KAFKA}storage.internals.log"
FETCH: Final = f"{KAFKA}common.requests.FetchRequest.PartitionData"
_REPLICAS: Final = (
    "public java.util.HashMap reads; public java.util.HashMap partitions; public java.util.HashMap earliest;",
    "public java.util.ArrayList asked; public java.util.ArrayList released; public Object failure;",
    """public void start() {
        reads = new java.util.HashMap(); partitions = new java.util.HashMap(); earliest = new java.util.HashMap();
        asked = new java.util.ArrayList(); released = new java.util.ArrayList();
    }""",
    "public java.util.ArrayList takeAsked() { java.util.ArrayList old = asked; asked = new java.util.ArrayList(); return old; }",
    "public java.util.ArrayList takeReleased() { java.util.ArrayList old = released; released = new java.util.ArrayList(); return old; }",
    "public void setFailure(Object made) { failure = made; }",
    f"""public scala.collection.Seq readFromLog({KAFKA}server.storage.log.FetchParams params, scala.collection.Seq infos,
            kafka.server.ReplicaQuota quota, boolean fromPurgatory) {{
        java.util.ArrayList found = new java.util.ArrayList();
        scala.collection.Iterator all = infos.iterator();
        while (all.hasNext()) {{
            scala.Tuple2 each = (scala.Tuple2) all.next();
            {FETCH} data = ({FETCH}) each._2();
            asked.add(new Object[] {{ each._1(), Long.valueOf(data.fetchOffset), Integer.valueOf(data.maxBytes) }});
            found.add(new scala.Tuple2(each._1(), reads.get(each._1())));
        }}
        if (failure != null) throw (RuntimeException) failure;
        return scala.jdk.javaapi.CollectionConverters.asScala((java.util.List) found);
    }}""",
    f"""public kafka.cluster.Partition getPartitionOrException({KAFKA}common.TopicPartition key) {{
        Object found = partitions.get(key);
        if (found instanceof RuntimeException) throw (RuntimeException) found;
        return (kafka.cluster.Partition) found;
    }}""",
    f"""public {LOG}.OffsetResultHolder fetchOffsetForTimestamp({KAFKA}common.TopicPartition key, long timestamp, scala.Option level,
            java.util.Optional epoch, boolean fromLeader) {{
        Object found = earliest.get(key);
        if (found instanceof RuntimeException) throw (RuntimeException) found;
        return ({LOG}.OffsetResultHolder) found;
    }}""",
    "public void addToActionQueue(Runnable action) { action.run(); }",
    f"""public void completeDelayedShareFetchRequest({KAFKA}server.share.fetch.DelayedShareFetchKey key) {{
        released.add(key.keyLabel());
    }}""",
)
_PARTITION: Final = (
    "public boolean leads; public Object snapshot;",
    "public void set(boolean isLeader, Object made) { leads = isLeader; snapshot = made; }",
    "public boolean isLeader() { return leads; }",
    f"""public {LOG}.LogOffsetSnapshot fetchOffsetSnapshot(java.util.Optional epoch, boolean fromLeader) {{
        if (snapshot instanceof RuntimeException) throw (RuntimeException) snapshot;
        return ({LOG}.LogOffsetSnapshot) snapshot;
    }}""",
)


@dataclass
class LogState:
    """What the log of a partition answers: to a read, for the end of what may be read, and for its start."""

    data: bytes = b""
    aborted: Sequence[AbortedTransaction] = ()
    start: LogOffsetMetadata = field(default_factory=lambda: LogOffsetMetadata(0, 0, 0))
    read_error: str | None = None
    end: LogOffsetMetadata | ApiError | None = None
    is_leader: bool = True
    partition_error: ApiError | None = None
    earliest: int | ApiError = 0


@dataclass
class Waiting:
    """A fetch of both."""

    parked: ParkedShareFetch
    fetch: ShareFetch
    theirs: Any
    future: Any


class ShareFetchTwins:
    """Both sides. `states` are set by the test before each step. A step compares reads, answers, errors and released partitions."""

    def __init__(self, made: JavaTransactions, side: JavaSide, settings: Settings, count: int) -> None:
        self.side, self.java, self.made = side, side.java, made
        self.clock = ManualClock(side.oracle, NOW_MS)
        self.partitions = [Twins(side, settings, partition=number, clock=self.clock) for number in range(count)]
        self.keys = [TopicIdPartition(TOPIC_ID, number, TOPIC) for number in range(count)]
        self.states = [LogState() for _ in self.keys]
        self.failure: ApiError | None = None
        self.reads: list[tuple[int, int, int]] = []
        self.errors: list[tuple[int, str, str | None]] = []
        self.released: list[int] = []
        self.waiting: list[Waiting] = []
        self.replicas = made.new(made.define("kafka.server.KopsShareReplicas", "kafka.server.ReplicaManager", _REPLICAS))
        self.replicas.start()
        kind = made.define("kafka.cluster.KopsPartition", "kafka.cluster.Partition", _PARTITION)
        self._their_partitions = [made.new(kind) for _ in self.keys]
        self._handler = Calls(self.java, "java.util.function.BiConsumer", None)
        self._metrics = self.java.make("server.share.metrics.ShareGroupMetrics", self.clock.time)
        self._stats = self.java.make("storage.log.metrics.BrokerTopicStats")
        self._names = side.oracle.java_class(f"{KAFKA}common.protocol.Errors")

    def _of(self, name: str) -> Any:
        return self.replicas.getClass().getField(name).get(self.replicas)

    # the logs of kops (LogReader) -------------------------------------------------------------------------------------------------

    def read(self, wanted: Mapping[TopicIdPartition, tuple[int, int]]) -> Mapping[TopicIdPartition, LogRead]:
        self.reads += [(part.partition, *where) for part, where in wanted.items()]
        if self.failure is not None:
            raise self.failure
        found = {}
        for part in wanted:
            state = self.states[part.partition]
            if state.read_error is not None:
                found[part] = LogRead(ApiError(state.read_error))
            else:
                found[part] = LogRead(None, read_batches(state.data), state.data, state.start, state.aborted)
        return found

    def end(self, part: TopicIdPartition) -> LogOffsetMetadata | None:
        state = self.states[part.partition]
        if state.partition_error is not None:
            raise state.partition_error
        if not state.is_leader:
            raise ApiError("NOT_LEADER_OR_FOLLOWER")
        if isinstance(state.end, ApiError):
            raise state.end
        return state.end

    def earliest_offset(self, part: TopicIdPartition, leader_epoch: int) -> int:
        earliest = self.states[part.partition].earliest
        if isinstance(earliest, ApiError):
            raise earliest
        return earliest

    def slice(self, records: Records, position: int, size: int) -> Records:
        assert isinstance(records, bytes)
        return records[position : position + size]

    # the logs of Kafka ------------------------------------------------------------------------------------------------------------

    def thrown(self, error: ApiError) -> Any:
        """Return an ApiError as Kafka's exception."""
        return self._names.valueOf(error.name).exception(error.message)

    def _set_states(self) -> None:
        reads, partitions, earliest = self._of("reads"), self._of("partitions"), self._of("earliest")
        self.replicas.setFailure(None if self.failure is None else self.thrown(self.failure))
        for twin, state, partition in zip(self.partitions, self.states, self._their_partitions, strict=True):
            key = twin.their_key
            reads.put(key, self._read_result(state))
            if isinstance(state.earliest, ApiError):
                earliest.put(key.topicPartition(), self.thrown(state.earliest))
            else:
                numbers = self.java.long(-1), self.java.long(state.earliest), self.side.optional.empty()
                at = self.side.oracle.java_class(f"{KAFKA}common.record.internal.FileRecords$TimestampAndOffset")(*numbers)
                earliest.put(key.topicPartition(), self.side.oracle.java_class(f"{LOG}.OffsetResultHolder")(at))
            end: Any = self.thrown(state.end) if isinstance(state.end, ApiError) else self._snapshot(state.end)
            partition.set(state.is_leader, end)
            partitions.put(key.topicPartition(), partition if state.partition_error is None else self.thrown(state.partition_error))

    def _metadata(self, at: LogOffsetMetadata | None) -> Any:
        kind = self.side.oracle.java_class(f"{LOG}.LogOffsetMetadata")
        if at is None:
            return kind.UNKNOWN_OFFSET_METADATA
        return kind(self.java.long(at.message_offset), self.java.long(at.segment_base_offset), at.relative_position)

    def _snapshot(self, end: LogOffsetMetadata | None) -> Any:
        unknown = self._metadata(None)
        return self.side.oracle.java_class(f"{LOG}.LogOffsetSnapshot")(self.java.long(0), unknown, unknown, self._metadata(end))

    def _read_result(self, state: LogState) -> Any:
        result = self.side.oracle.java_class(f"{LOG}.LogReadResult")
        if state.read_error is not None:
            return result(self._names.valueOf(state.read_error))
        side, long = self.side, self.java.long
        aborted = side.optional.empty()
        if state.aborted:
            found = [side.aborted().setProducerId(long(each)).setFirstOffset(long(first)) for each, first in state.aborted]
            aborted = side.optional.of(side.jvm.java.util.ArrayList(found))
        records = side.readable(self.java.wrap(state.data))
        info = side.oracle.java_class(f"{LOG}.FetchDataInfo")(self._metadata(state.start), records, False, aborted)
        offsets = [long(number) for number in (100, 0, 100, -1, -1)]
        stable = side.oracle.java_class("java.util.OptionalLong").empty()
        return result(info, side.optional.empty(), *offsets, stable, self._names.NONE)

    # steps of both ----------------------------------------------------------------------------------------------------------------

    def begin(
        self, member_id: str, parts: Sequence[int], sizes: tuple[int, int], limits: tuple[int, int], *, is_record_limit: bool
    ) -> None:
        """Begin a fetch of partitions. `sizes` are min and max bytes, `limits` the most records and the size of acquired batches."""
        keys = [self.keys[number] for number in parts]
        fetch = ShareFetch(GROUP, member_id, keys, sizes[1], sizes[0], *limits, is_record_limit)
        ours = DelayedShareFetch(
            fetch, {key: self.partitions[key.partition].ours for key in keys}, self, lambda _: 0, self._on_error, self._on_released
        )
        side, long, jvm = self.side, self.java.long, self.side.jvm
        future = jvm.java.util.concurrent.CompletableFuture()
        params = self.java.make(
            "server.storage.log.FetchParams", -1, long(-1), long(500), *sizes, side.isolation.TXN_COMMITTED, side.optional.empty(), True
        )
        partitions, asked = jvm.java.util.LinkedHashMap(), jvm.java.util.ArrayList()
        for number in parts:
            partitions.put(self.partitions[number].their_key, self.partitions[number].theirs)
            asked.add(self.partitions[number].their_key)
        mode = side.byte.valueOf("1" if is_record_limit else "0")
        their_fetch = self.java.make(
            "server.share.fetch.ShareFetch", params, GROUP, member_id, future, asked, mode, limits[1], limits[0], self._stats
        )
        theirs = side.oracle.java_class("kafka.server.share.DelayedShareFetch")(
            their_fetch, self.replicas, self._handler.object, partitions, self._metrics, self.clock.time, long(500)
        )
        self.waiting.append(Waiting(ParkedShareFetch(500, ours, lambda: None), fetch, theirs, future))
        self.try_complete(-1)

    def try_complete(self, index: int) -> str:
        """Try to complete a fetch. Return what became of it."""
        self._set_states()
        waiting = self.waiting[index]
        same(waiting.parked.try_complete(), waiting.theirs.tryComplete())
        return self._compare(waiting)

    def expire(self, index: int) -> str:
        """Complete a fetch whose time has come."""
        self._set_states()
        waiting = self.waiting[index]
        same(waiting.parked.force_complete(), waiting.theirs.forceComplete())
        return self._compare(waiting)

    def _on_error(self, part: TopicIdPartition, error: ApiError) -> None:
        self.errors.append((part.partition, error.name, error.message or None))

    def _on_released(self, parts: Iterable[TopicIdPartition]) -> None:
        self.released += [part.partition for part in parts]

    def _compare(self, waiting: Waiting) -> str:
        theirs = [(each[0].partition(), each[1], each[2]) for each in map(list, self.replicas.takeAsked())]
        same(self.reads, theirs)
        self.reads.clear()
        told = []
        for _, (key, thrown) in self._handler.drain():
            error = self.side.api_error(thrown)
            told.append((key.partition(), error.name, thrown.getMessage()))
        same(self.errors, told)
        self.errors.clear()
        released = self.replicas.takeReleased()
        labels = [f"groupId={GROUP}, topicId={uuid_text(TOPIC_ID)}, partition={number}" for number in self.released]
        same(labels, [str(each) for each in released if str(each).startswith("groupId=")])
        self.released.clear()
        for twin in self.partitions:
            twin.check()
        results = waiting.fetch.results
        assert results.is_done == waiting.future.isDone()
        if not results.is_done:
            return "waits"
        self.waiting.remove(waiting)
        return self._compare_results(results.result(), waiting.future.get())

    def _compare_results(self, ours: Mapping[TopicIdPartition, PartitionData], theirs: Any) -> str:
        utils = self.side.oracle.java_class(f"{KAFKA}common.utils.Utils")
        expected = {}
        for key in list(theirs.keySet()):
            data = theirs.get(key)
            ranges = [(each.firstOffset(), each.lastOffset(), each.deliveryCount()) for each in data.acquiredRecords()]
            records = bytes(utils.toArray(data.records().buffer()))
            expected[key.partition()] = data.errorCode(), _known(data.errorCode(), data.errorMessage()), ranges, records
        found = {}
        for part, given in ours.items():
            ranges = [(each.first_offset, each.last_offset, each.delivery_count) for each in given.acquired_records]
            found[part.partition] = given.error_code, given.error_message, ranges, bytes(given.records or b"")  # type: ignore[arg-type]
        same(found, expected)
        codes = {by_code(code).name for code, _, _, _ in found.values() if code}
        if codes:
            return min(codes)
        return "acquired" if any(ranges for _, _, ranges, _ in found.values()) else "empty"


def _known(code: int, message: str | None) -> str | None:
    """Return the message of Kafka. kops has texts of its own for the errors that no read of a log should have."""
    name = by_code(code).name
    is_own = name not in MESSAGES and message not in TEXTS
    return message_of(name) if code and is_own else message
