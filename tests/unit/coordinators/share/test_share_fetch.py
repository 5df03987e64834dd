"""A share fetch: it waits for enough bytes, acquires the records, and reports errors."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

from kops.coordinators.runtime.promise import Promise
from kops.coordinators.share.fetching.delayed import DelayedShareFetch, LogRead
from kops.coordinators.share.fetching.share_fetch import ShareFetch
from kops.coordinators.share.key import SharePartitionKey
from kops.coordinators.share.partition.persisting import PersistedState, StateWrite
from kops.coordinators.share.partition.share_partition import SharePartition, Surroundings
from kops.coordinators.share.sessions.session import TopicIdPartition
from kops.errors import ApiError
from kops.protocol.primitives import size_of
from kops.protocol.structure import Records
from kops.records.batch import Batch
from kops.records.build import empty_batch
from kops.records.log_offsets import LogOffsetMetadata

FIRST, SECOND = (TopicIdPartition(bytes(16), partition, "orders") for partition in range(2))


class Settings:
    max_in_flight_records = 100
    max_delivery_count = 5
    record_lock_duration_ms = 1000
    is_renew_enabled = True


class Handle:
    def cancel(self) -> None:
        pass


class Log:
    """Two logs with batches of ten records, 61 bytes each, and the reader and the persister of their share partitions."""

    def __init__(self) -> None:
        self.batch_counts = {FIRST: 2, SECOND: 1}
        self.reads: list[dict[TopicIdPartition, tuple[int, int]]] = []
        self.error: ApiError | None = None
        self.errors: list[tuple[TopicIdPartition, str]] = []
        self.released: list[TopicIdPartition] = []

    def read_state(self, key: SharePartitionKey, leader_epoch: int) -> Promise[PersistedState]:
        return Promise.of(PersistedState(0, 0))

    def write_state(self, key: SharePartitionKey, write: StateWrite) -> Promise[None]:
        return Promise.of(None)

    def read(self, wanted: Mapping[TopicIdPartition, tuple[int, int]]) -> Mapping[TopicIdPartition, LogRead]:
        self.reads.append(dict(wanted))
        found = {}
        for part, (offset, _) in wanted.items():
            data = b"".join(
                empty_batch(base_offset=10 * index, last_offset=10 * index + 9) for index in range(offset // 10, self.batch_counts[part])
            )
            batches = [Batch(data, index) for index in range(0, len(data), 61)]
            found[part] = LogRead(self.error, batches, data, LogOffsetMetadata(offset, 0, offset // 10 * 61))
        return found

    def end(self, part: TopicIdPartition) -> LogOffsetMetadata | None:
        count = self.batch_counts[part]
        return LogOffsetMetadata(10 * count, 0, 61 * count)

    def earliest_offset(self, part: TopicIdPartition, leader_epoch: int) -> int:
        return 10

    def slice(self, records: Records, position: int, size: int) -> Records:
        assert isinstance(records, bytes)
        return records[position : position + size]

    def partition(self, part: TopicIdPartition) -> SharePartition:
        def schedule(delay_ms: int, task: Callable[[], None]) -> Handle:
            return Handle()

        surroundings = Surroundings(Settings(), self, lambda: 0, schedule, lambda: 0, lambda: None)
        partition = SharePartition(SharePartitionKey("g", part.topic_id, part.partition), "orders", 5, surroundings)
        partition.maybe_initialize()
        return partition

    def release(self, parts: Iterable[TopicIdPartition]) -> None:
        self.released += parts

    def fetch(
        self, partitions: Mapping[TopicIdPartition, SharePartition], *, min_bytes: int = 1, max_fetch_records: int = 100
    ) -> DelayedShareFetch:
        fetch = ShareFetch("g", "m", list(partitions), 1000, min_bytes, max_fetch_records, 100)
        return DelayedShareFetch(
            fetch, partitions, self, lambda _: 0, lambda part, error: self.errors.append((part, error.name)), self.release
        )


def acquired(fetch: DelayedShareFetch) -> dict[int, list[tuple[int, int]]]:
    results = fetch.fetch.results.result()
    return {part.partition: [(each.first_offset, each.last_offset) for each in data.acquired_records] for part, data in results.items()}


def test_it_acquires_when_there_is_enough() -> None:
    log = Log()
    partitions = {part: log.partition(part) for part in (FIRST, SECOND)}
    fetch = log.fetch(partitions, min_bytes=184)
    assert not fetch.try_complete()
    assert log.reads == [{FIRST: (0, 500), SECOND: (0, 500)}]
    log.batch_counts[SECOND] = 2
    assert fetch.try_complete()
    assert len(log.reads) == 1  # the positions are known, and the data is read when it is needed
    assert not log.fetch(partitions).try_complete()  # the partitions are locked
    fetch.complete()
    assert acquired(fetch) == {0: [(0, 19)], 1: [(0, 19)]}
    assert log.released == [FIRST, SECOND]
    assert log.fetch(partitions).try_complete() is False  # nothing new


def test_records_that_were_not_acquired_are_cut_off() -> None:
    log = Log()
    fetch = log.fetch({FIRST: log.partition(FIRST)}, max_fetch_records=5)
    assert fetch.try_complete()
    fetch.complete()
    assert acquired(fetch) == {0: [(0, 9)]}
    records = fetch.fetch.results.result()[FIRST].records
    assert records is not None
    assert size_of(records) == 61


def test_errors_are_told_but_a_log_that_begins_later_is_none() -> None:
    log = Log()
    partition = log.partition(FIRST)
    log.error = ApiError("NOT_LEADER_OR_FOLLOWER", "moved")
    fetch = log.fetch({FIRST: partition})
    assert fetch.try_complete()
    fetch.complete()
    told = fetch.fetch.results.result()[FIRST].error_message
    assert told is not None
    assert told.startswith("For requests intended only for the leader")  # the code's text, not the reason on this broker
    log.error = ApiError("OFFSET_OUT_OF_RANGE")
    fetch = log.fetch({FIRST: partition})
    assert fetch.try_complete()
    fetch.complete()
    assert fetch.fetch.results.result()[FIRST].error_code == 0
    assert partition.next_fetch_offset == 10


def test_time_is_over() -> None:
    log = Log()
    log.batch_counts[FIRST] = 0
    fetch = log.fetch({FIRST: log.partition(FIRST)})
    assert not fetch.try_complete()
    fetch.complete()
    assert acquired(fetch) == {0: []}


def test_a_fetch_fails_with_all_its_partitions() -> None:
    fetch = ShareFetch("g", "m", [FIRST, SECOND], 1, 1, 1, 1)
    fetch.errors[SECOND] = ApiError("LEADER_NOT_AVAILABLE", "loading")
    assert (fetch.is_hopeless, fetch.without_errors([FIRST, SECOND])) == (False, [FIRST])
    fetch.fail([FIRST], ApiError("UNKNOWN_SERVER_ERROR", "broken"))
    assert [data.error_message for data in fetch.results.result().values()] == ["loading", "broken"]
