"""A fetcher's requests, and the effect of answers: append, cut, seek, wait. Also the fetcher of a partition, copies, quotas and near
replicas.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest

from kops.protocol import errors
from kops.protocol.messages.fetch_request import FetchRequest
from kops.protocol.messages.fetch_response import EpochEndOffset, FetchableTopicResponse, FetchResponse, PartitionData
from kops.protocol.messages.list_offsets_request import ListOffsetsRequest
from kops.protocol.messages.list_offsets_response import ListOffsetsPartitionResponse, ListOffsetsResponse, ListOffsetsTopicResponse
from kops.protocol.messages.offset_for_leader_epoch_request import OffsetForLeaderEpochRequest
from kops.protocol.messages.offset_for_leader_epoch_response import EpochEndOffset as AnsweredEpoch
from kops.protocol.messages.offset_for_leader_epoch_response import OffsetForLeaderEpochResponse, OffsetForLeaderTopicResult
from kops.records.log_offsets import TopicPartition
from kops.replication.following.fetch_state import InitialFetchState, Phase
from kops.replication.following.fetcher import Fetcher, Sent
from kops.replication.following.fetcher_manager import BrokerEndPoint, FetcherId, FetcherManager, fetcher_number
from kops.replication.following.followers import FollowerReplicas, FutureReplicas
from kops.replication.following.leader_endpoint import FetcherSettings, LocalLeader, RemoteLeader
from kops.replication.leading.fetch import ClientMetadata
from kops.replication.leading.partition import Partition
from kops.replication.leading.replica import ReplicaState
from kops.replication.leading.selector import RackAwareReplicaSelector, ReplicaView, find_preferred_read_replica
from kops.replication.quota import ReplicationQuotaManager, UnboundedQuota
from tests.support.parts.replicating import TOPIC_ID, TP, MemoryLog, Registration, World, pack

VERSION = 18
ENTRIES = [(1, 0), (1, 1), (2, 2), (2, 3)]
EPOCHS = [(1, 0), (2, 2)]


class Bench:
    """Broker 1, which follows broker 2."""

    def __init__(self, log: MemoryLog | None = None, *, quota: ReplicationQuotaManager | UnboundedQuota | None = None) -> None:
        self.world = World()
        self.partition = self.world.partition(log or MemoryLog(entries=list(ENTRIES), epoch_starts=list(EPOCHS), high_watermark=1))
        self.partition.make_follower(Registration(2, 5, 7), MemoryLog)
        self.cut: list[int] = []
        used = quota or UnboundedQuota()
        self.replicas = FollowerReplicas(lambda key: self.partition, used, lambda key, offset: self.cut.append(offset))
        settings = FetcherSettings(1, lambda: 10)
        self.fetcher = Fetcher(RemoteLeader(settings, used), self.replicas, lambda: self.world.now_ms, set())

    @property
    def log(self) -> MemoryLog:
        assert isinstance(self.partition.log, MemoryLog)
        return self.partition.log

    def follow(self, offset: int | None = None, epoch: int = 5) -> None:
        self.fetcher.add_partitions({TP: InitialFetchState(TOPIC_ID, epoch, self.log.log_end_offset if offset is None else offset)})

    def sent(self, kind: type) -> Sent:
        sent = self.fetcher.next_request()
        assert sent is not None
        assert isinstance(sent.message, kind)
        return sent

    def answer(self, sent: Sent, error: str = "NONE", *, session_id: int = 0, **data: object) -> None:
        row = PartitionData(0, errors.by_name(error).code, high_watermark=0, log_start_offset=0)
        for name, value in data.items():
            setattr(row, name, value)
        topics = [FetchableTopicResponse(topic_id=TOPIC_ID, partitions=[row])]
        self.fetcher.on_response(sent, FetchResponse(session_id=session_id, responses=topics), VERSION)


def test_records_are_appended_and_the_high_watermark_is_taken() -> None:
    bench = Bench()
    bench.follow()
    sent = bench.sent(FetchRequest)
    request = sent.message
    assert isinstance(request, FetchRequest)
    asked = request.topics[0].partitions[0]
    assert (asked.fetch_offset, asked.last_fetched_epoch, asked.current_leader_epoch, asked.log_start_offset) == (4, 2, 5, 0)
    assert (request.replica_state.replica_id, request.replica_state.replica_epoch) == (1, 10)
    assert bench.fetcher.next_request() is None
    bench.answer(sent, records=pack([(4, 5, 4), (5, 5, 5)]), high_watermark=5)
    state = bench.fetcher.states[TP]
    assert (state.fetch_offset, state.last_fetched_epoch, state.lag) == (6, 5, 0)
    assert (bench.log.log_end_offset, bench.log.high_watermark) == (6, 5)
    assert bench.replicas.with_new_high_watermark == [TP]


def test_a_session_says_only_what_changed() -> None:
    bench = Bench()
    bench.follow()
    bench.answer(bench.sent(FetchRequest), session_id=77)
    quiet = bench.sent(FetchRequest)
    assert isinstance(quiet.message, FetchRequest)
    assert (quiet.message.session_id, quiet.message.session_epoch, quiet.message.topics) == (77, 1, [])
    bench.answer(quiet, session_id=77, records=pack([(4, 5, 4)]))
    changed = bench.sent(FetchRequest)
    assert isinstance(changed.message, FetchRequest)
    assert [topic.partitions[0].fetch_offset for topic in changed.message.topics] == [5]


def test_where_the_leader_diverges_the_log_is_cut() -> None:
    bench = Bench()
    bench.follow()
    bench.answer(bench.sent(FetchRequest), diverging_epoch=EpochEndOffset(2, 3))
    state = bench.fetcher.states[TP]
    assert (bench.log.log_end_offset, state.fetch_offset, state.last_fetched_epoch, state.phase) == (3, 3, 2, Phase.FETCHING)
    assert bench.cut == [3]
    # The epoch is not in this log: cut to the end of the previous epoch, and ask again.
    bench.log.epoch_starts = [(1, 0), (3, 2)]
    bench.answer(bench.sent(FetchRequest), diverging_epoch=EpochEndOffset(2, 3))
    assert (bench.log.log_end_offset, bench.cut) == (2, [3])


def test_a_log_without_epochs_is_cut_at_once() -> None:
    bench = Bench(MemoryLog(entries=list(ENTRIES), high_watermark=2))
    bench.follow(2)
    assert bench.fetcher.states[TP].phase is Phase.TRUNCATING
    bench.sent(FetchRequest)
    assert (bench.log.log_end_offset, bench.fetcher.states[TP].phase) == (2, Phase.FETCHING)


@pytest.mark.parametrize(
    ("error", "epoch", "offset", "after"),
    [("NONE", 2, 3, 3), ("NONE", -1, 1, 1), ("NONE", -1, -1, 4), ("UNKNOWN_LEADER_EPOCH", -1, -1, None)],
)
def test_ends_of_epochs_are_asked_for_after_a_cut(error: str, epoch: int, offset: int, after: int | None) -> None:
    bench = Bench()
    bench.follow()
    bench.fetcher.mark_for_truncation(TP, 4)
    sent = bench.sent(OffsetForLeaderEpochRequest)
    answered = AnsweredEpoch(errors.by_name(error).code, 0, epoch, offset)
    response = OffsetForLeaderEpochResponse(topics=[OffsetForLeaderTopicResult(topic=TP.topic, partitions=[answered])])
    bench.fetcher.on_response(sent, response, 4)
    state = bench.fetcher.states[TP]
    if after is None:
        assert (state.phase, bench.fetcher.next_due_ms) == (Phase.TRUNCATING, bench.world.now_ms + 1_000)
    else:
        assert (state.phase, state.fetch_offset, bench.log.log_end_offset) == (Phase.FETCHING, after, after)


def seek(bench: Bench, timestamp: int, offset: int, error: str = "NONE") -> None:
    sent = bench.sent(ListOffsetsRequest)
    assert isinstance(sent.message, ListOffsetsRequest)
    assert sent.message.topics[0].partitions[0].timestamp == timestamp
    row = ListOffsetsPartitionResponse(0, errors.by_name(error).code, -1, offset)
    bench.fetcher.on_response(sent, ListOffsetsResponse(topics=[ListOffsetsTopicResponse(name=TP.topic, partitions=[row])]), 7)


def test_out_of_range_the_leader_is_asked_where_it_is() -> None:
    bench = Bench()
    bench.follow()
    bench.answer(bench.sent(FetchRequest), "OFFSET_OUT_OF_RANGE")
    # The leader's log ends before ours.
    seek(bench, -1, 3)
    assert (bench.log.log_end_offset, bench.fetcher.states[TP].fetch_offset) == (3, 3)
    bench.answer(bench.sent(FetchRequest), "OFFSET_OUT_OF_RANGE")
    # The leader's log begins after the end of ours.
    seek(bench, -1, 20)
    seek(bench, -2, 10)
    state = bench.fetcher.states[TP]
    assert (bench.log.log_start_offset, bench.log.log_end_offset, state.fetch_offset, state.lag) == (10, 10, 10, 10)
    bench.answer(bench.sent(FetchRequest), "OFFSET_OUT_OF_RANGE")
    # The leader's log has the next offset.
    seek(bench, -1, 20)
    seek(bench, -2, 5)
    assert bench.fetcher.states[TP].fetch_offset == 10


def test_seeking_may_fail() -> None:
    bench = Bench()
    bench.follow(-1)
    seek(bench, -1, -1, "NOT_LEADER_OR_FOLLOWER")
    assert bench.fetcher.next_due_ms == bench.world.now_ms + 1_000
    bench.world.now_ms += 1_000
    sent = bench.sent(ListOffsetsRequest)
    bench.fetcher.on_failure(sent)
    bench.world.now_ms += 1_000
    seek(bench, -1, -1, "FENCED_LEADER_EPOCH")
    assert bench.fetcher.failed == {TP}
    assert bench.fetcher.next_due_ms is None


@pytest.mark.parametrize("error", ["NOT_LEADER_OR_FOLLOWER", "UNKNOWN_LEADER_EPOCH", "UNKNOWN_TOPIC_ID", "KAFKA_STORAGE_ERROR"])
def test_errors_are_waited_out(error: str) -> None:
    bench = Bench()
    bench.follow()
    bench.answer(bench.sent(FetchRequest), error)
    assert bench.fetcher.next_request() is None
    assert bench.fetcher.next_due_ms == bench.world.now_ms + 1_000
    bench.world.now_ms += 1_000
    bench.sent(FetchRequest)


def test_a_fenced_partition_waits_for_the_metadata() -> None:
    bench = Bench()
    bench.follow()
    bench.answer(bench.sent(FetchRequest), "FENCED_LEADER_EPOCH")
    assert (bench.fetcher.failed, bench.fetcher.states) == ({TP}, {})
    bench.follow(epoch=6)
    assert bench.fetcher.failed == set()
    assert bench.fetcher.states[TP].current_leader_epoch == 6


def test_what_was_asked_before_does_not_count_now() -> None:
    bench = Bench()
    bench.follow()
    sent = bench.sent(FetchRequest)
    bench.follow(epoch=6)
    bench.answer(sent, records=pack([(4, 5, 4)]))
    assert bench.log.log_end_offset == 4
    again = bench.sent(FetchRequest)
    bench.fetcher.on_failure(again)
    bench.answer(again, records=pack([(4, 5, 4)]))
    assert bench.log.log_end_offset == 4
    assert bench.fetcher.states[TP].is_delayed(bench.world.now_ms)


def test_a_log_that_fails_is_given_up() -> None:
    bench = Bench()
    bench.follow()
    sent = bench.sent(FetchRequest)
    bench.answer(sent, records=pack([(3, 5, 4)]))
    assert bench.fetcher.failed == {TP}


def test_throttled_partitions_wait_unless_in_sync() -> None:
    clock = World()
    quota = ReplicationQuotaManager(lambda: clock.now_ms)
    bench = Bench(quota=quota)
    bench.world = clock
    quota.update_quota(10)
    quota.mark_throttled("orders", [0])
    bench.follow()
    bench.answer(bench.sent(FetchRequest), records=pack([(4, 5, 4)]), high_watermark=9)
    assert quota.is_quota_exceeded
    assert bench.fetcher.next_request() is None
    assert bench.fetcher.next_due_ms == clock.now_ms + 1_000
    quota.remove_throttle("orders")
    clock.now_ms += 1_000
    bench.sent(FetchRequest)


def test_partitions_are_spread_over_fetchers() -> None:
    assert [fetcher_number(TopicPartition("orders", number), 4) for number in range(5)] == [1, 0, 3, 2, 1]
    bench = Bench()
    made: list[FetcherId] = []
    stopped: list[FetcherId] = []

    def create(fetcher_id: FetcherId, leader: BrokerEndPoint) -> Fetcher:
        made.append(fetcher_id)
        return Fetcher(RemoteLeader(FetcherSettings(1, lambda: 10), UnboundedQuota()), bench.replicas, lambda: 0, manager.failed)

    manager = FetcherManager(2, create, lambda fetcher_id, fetcher: stopped.append(fetcher_id))
    initial = InitialFetchState(TOPIC_ID, 5, 4)
    keys = [TopicPartition("orders", number) for number in range(3)]
    manager.add({key: (BrokerEndPoint(2, "a", 1), initial) for key in keys})
    assert made == [FetcherId(2, 1), FetcherId(2, 0)]
    assert manager.fetcher_of(keys[2]) is manager.fetchers[FetcherId(2, 1)]
    manager.mark_for_truncation(2, keys[1], 3)
    assert manager.fetchers[FetcherId(2, 0)].states[keys[1]].phase is Phase.TRUNCATING
    manager.update_topic_ids({keys[0]: bytes(16)})
    manager.resize(1)
    assert stopped == [FetcherId(2, 1)]
    assert set(manager.fetchers[FetcherId(2, 0)].states) == set(keys)
    manager.add({keys[0]: (BrokerEndPoint(2, "b", 1), initial)})
    assert stopped == [FetcherId(2, 1), FetcherId(2, 0)]
    assert manager.remove(keys)[keys[0]].fetch_offset == 4
    manager.stop_idle()
    manager.close()
    assert manager.fetchers == {}


class Directories:
    """AssignReplicasToDirs, answered when the test says so."""

    def __init__(self) -> None:
        self.asked: list[tuple[str, str, Callable[[], None]]] = []

    def handle_assignment(self, topic_id: bytes, key: TopicPartition, log_dir: str, reason: str, on_accepted: Callable[[], None]) -> None:
        self.asked.append((log_dir, reason, on_accepted))


def copying() -> tuple[Bench, FutureReplicas, Directories, list[TopicPartition], Fetcher]:
    bench = Bench()
    bench.partition.future_log = MemoryLog(parent_dir="/disk2")
    directories, promoted = Directories(), list[TopicPartition]()
    copies = FutureReplicas(lambda key: bench.partition, UnboundedQuota(), directories, promoted.append)
    copies.begin(TP)
    fetcher = Fetcher(LocalLeader(FetcherSettings(1, lambda: 10), UnboundedQuota()), copies, lambda: bench.world.now_ms, set())
    fetcher.add_partitions({TP: InitialFetchState(TOPIC_ID, 5, 0)})
    return bench, copies, directories, promoted, fetcher


def copy(bench: Bench, fetcher: Fetcher, records: bytes | None) -> None:
    sent = fetcher.next_request()
    assert sent is not None
    assert isinstance(sent.message, FetchRequest)
    assert sent.message.replica_state.replica_id == -3
    row = PartitionData(0, 0, high_watermark=1, log_start_offset=0, records=records)
    fetcher.on_response(sent, FetchResponse(responses=[FetchableTopicResponse(topic=TP.topic, partitions=[row])]), VERSION)


def test_a_copy_takes_its_logs_place_when_the_controller_knows() -> None:
    bench, _, directories, promoted, fetcher = copying()
    copy(bench, fetcher, pack([(offset, *entry) for offset, entry in enumerate(ENTRIES)]))
    assert directories.asked[0][:2] == ("/disk2", "Future replica promotion")
    copy(bench, fetcher, None)
    assert bench.partition.future_log is not None
    directories.asked[0][2]()
    copy(bench, fetcher, None)
    assert bench.partition.local_log.parent_dir == "/disk2"
    assert (promoted, len(directories.asked)) == ([TP], 1)


def test_a_copy_that_is_given_up_is_told_to_the_controller() -> None:
    bench, copies, directories, _, fetcher = copying()
    copy(bench, fetcher, pack([(offset, *entry) for offset, entry in enumerate(ENTRIES)]))
    copies.cancel(TP, TOPIC_ID)
    assert directories.asked[-1][0] == "/disk1"
    copies.begin(TP)
    copies.cancel(TP, TOPIC_ID)
    assert len(directories.asked) == 2


def test_rates() -> None:
    clock = World()
    quota = ReplicationQuotaManager(lambda: clock.now_ms, sample_count=3, window_ms=1_000)
    quota.update_quota(100)
    quota.record(100)
    assert not quota.is_quota_exceeded
    quota.record(1)
    assert quota.is_quota_exceeded
    clock.now_ms += 2_000
    quota.record(50)
    assert not quota.is_quota_exceeded
    quota.update_quota(None)
    quota.mark_throttled("orders")
    assert quota.is_throttled(TopicPartition("orders", 9))


def test_near_replicas() -> None:
    selector = RackAwareReplicaSelector()
    leader = ReplicaView(1, "a", 10, 0)
    replicas = [leader, ReplicaView(2, "b", 9, 5), ReplicaView(3, "b", 9, 4), ReplicaView(4, "b", 9, 4)]
    assert selector.select(TP, ClientMetadata("b"), replicas, leader).broker_id == 4
    assert selector.select(TP, ClientMetadata("a"), replicas, leader) == leader
    assert selector.select(TP, ClientMetadata(""), replicas, leader) == leader
    assert selector.select(TP, ClientMetadata("c"), replicas, leader) == leader


def test_consumers_are_sent_to_in_sync_replicas_that_have_the_offset() -> None:
    world = World()
    partition: Partition = world.partition()
    partition.make_leader(Registration(1, 5, 7, isr=[1, 2]), MemoryLog)
    racks = {1: "a", 2: "b", 3: "b"}
    for replica in partition.remote_replicas.values():
        metadata = partition.local_log.log_end_offset_metadata
        state = replica.state
        replica.state = ReplicaState(0, metadata, state.last_fetch_leader_log_end_offset, 0, state.last_caught_up_time_ms)

    def found(offset: int, rack: str = "b") -> int | None:
        return find_preferred_read_replica(partition, RackAwareReplicaSelector(), ClientMetadata(rack), racks, offset, world.now_ms)

    assert (found(0), found(1), found(0, "a")) == (2, None, None)
    partition.make_follower(Registration(2, 6, 8), MemoryLog)
    assert found(0) is None
