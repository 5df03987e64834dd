"""A partition's leader: in-sync replicas, high watermark, what producers wait for, and from which replica one may read."""

from __future__ import annotations

import pytest

from kops.errors import ApiError, KopsError
from kops.records.log_offsets import Isolation, LogOffsetMetadata
from kops.replication.leading.fetch import ClientMetadata, FetchInfo, FetchParams
from kops.replication.leading.partition import Partition
from kops.replication.leading.replica import ReplicaState
from tests.support.parts.replicating import MemoryLog, Registration, Settings, World, values

NEVER = -1


def no_log() -> None:
    raise AssertionError("the log is there")


def leader(world: World, log: MemoryLog | None = None, **given: object) -> Partition:
    """Let broker 1 lead in leader epoch 5 and partition epoch 7."""
    partition = world.partition(log)
    partition.make_leader(Registration(1, 5, 7, **given), no_log)  # type: ignore[arg-type]
    return partition


def fetch(world: World, partition: Partition, replica: int, offset: int, *, epoch: int = 5, broker_epoch: int | None = None) -> int:
    """Fetch as a follower, and return the number of bytes."""
    params = FetchParams(replica, world.epochs[replica] if broker_epoch is None else broker_epoch, 0, 1, 10_000, Isolation.LOG_END)
    info = FetchInfo(offset, 0, 10_000, epoch, None)
    read = partition.fetch_records(params, info, world.now_ms, 10_000, min_one_batch=True, update_fetch_state=True)
    assert read.fetched is not None
    return read.fetched.size


def test_the_high_watermark_is_the_lowest_end_of_the_isr() -> None:
    world = World()
    partition = leader(world)
    append = partition.append_records_to_leader(values(1, 2, 3), -1)
    assert (append.info.last_offset, append.high_watermark_increased) == (2, False)
    assert partition.check_enough_replicas_reach_offset(3) == (False, "NONE")
    fetch(world, partition, 2, 3)
    assert partition.local_log.high_watermark == 0
    fetch(world, partition, 3, 2)
    assert partition.local_log.high_watermark == 2
    fetch(world, partition, 3, 3)
    assert partition.check_enough_replicas_reach_offset(3) == (True, "NONE")
    assert world.checked == 2


def test_a_leader_alone_moves_it_by_itself() -> None:
    world = World()
    partition = leader(world, isr=[1])
    # Followers that have not fetched in this epoch count as not caught up, so they don't hold it back.
    assert partition.append_records_to_leader(values(1), 1).high_watermark_increased


def test_who_listens_is_told_of_the_high_watermark() -> None:
    partition = leader(World(), isr=[1])
    told: list[int] = []
    other: list[int] = []
    partition.add_high_watermark_listener(told.append)
    partition.add_high_watermark_listener(other.append)
    partition.append_records_to_leader(values(1, 2), 1)
    partition.remove_high_watermark_listener(other.append)
    partition.append_records_to_leader(values(3), 1)
    assert (told, other) == ([2, 3], [2])
    partition.remove_high_watermark_listener(told.append)
    partition.remove_high_watermark_listener(told.append)
    partition.append_records_to_leader(values(4), 1)
    assert told == [2, 3]


def test_under_min_isr_it_stays_and_producers_are_refused() -> None:
    world = World()
    partition = leader(world, MemoryLog(Settings(min_insync_replicas=2)), isr=[1])
    assert partition.is_under_min_isr
    with pytest.raises(ApiError) as caught:
        partition.append_records_to_leader(values(1), -1)
    assert caught.value.name == "NOT_ENOUGH_REPLICAS"
    assert not partition.append_records_to_leader(values(1), 1).high_watermark_increased
    assert partition.local_log.high_watermark == 0


def test_too_few_replicas_after_the_append() -> None:
    world = World()
    log = MemoryLog(Settings(min_insync_replicas=2))
    partition = leader(world, log, isr=[1, 2], replicas=[1, 2, 3])
    partition.append_records_to_leader(values(1), -1)
    fetch(world, partition, 2, 1)
    partition.make_leader(Registration(1, 5, 8, isr=[1]), no_log)
    assert partition.check_enough_replicas_reach_offset(1) == (True, "NOT_ENOUGH_REPLICAS_AFTER_APPEND")
    # min.insync.replicas is limited to the number of replicas.
    partition.make_leader(Registration(1, 5, 9, isr=[1], replicas=[1]), no_log)
    assert partition.check_enough_replicas_reach_offset(1) == (True, "NONE")


def test_a_follower_joins_when_it_has_reached_the_high_watermark() -> None:
    world = World()
    partition = leader(world, isr=[1, 2])
    partition.append_records_to_leader(values(1, 2, 3), 1)
    fetch(world, partition, 2, 2)
    fetch(world, partition, 3, 1)
    assert (partition.local_log.high_watermark, world.asked) == (2, [])
    fetch(world, partition, 3, 2)
    proposed, _ = world.asked[0]
    assert proposed.isr == ((1, 10), (2, 20), (3, 30))
    assert (proposed.leader_epoch, proposed.partition_epoch) == (5, 7)
    # The follower counts at once, though the ISR is still the old one.
    assert partition.isr_state.isr == {1, 2}
    assert partition.isr_state.maximal_isr == {1, 2, 3}
    fetch(world, partition, 2, 3)
    assert partition.local_log.high_watermark == 2
    world.answer([1, 2, 3], 8)
    assert (partition.in_sync_replica_ids, partition.partition_epoch, partition.isr_expands) == (frozenset({1, 2, 3}), 8, 1)


@pytest.mark.parametrize("why", ["fenced", "shutting down", "other broker epoch", "not known"])
def test_who_may_not_join(why: str) -> None:
    world = World()
    partition = leader(world, isr=[1, 2])
    if why == "fenced":
        world.fenced.add(3)
    elif why == "shutting down":
        world.shutting_down.add(3)
    elif why == "not known":
        del world.epochs[3]
    fetch(world, partition, 3, 0, broker_epoch=31 if why == "other broker epoch" else 30)
    assert world.asked == []


def test_a_fetch_of_an_earlier_life_changes_nothing() -> None:
    world = World()
    partition = leader(world)
    with pytest.raises(ApiError) as caught:
        fetch(world, partition, 2, 0, broker_epoch=19)
    assert caught.value.name == "NOT_LEADER_OR_FOLLOWER"
    fetch(world, partition, 2, 0, broker_epoch=-1)


def test_who_lags_leaves_but_counts_until_that_is_certain() -> None:
    world = World()
    partition = leader(world)
    partition.append_records_to_leader(values(1), 1)
    fetch(world, partition, 2, 1)
    world.now_ms += 30_000
    partition.maybe_shrink_isr()
    assert world.asked == []
    world.now_ms += 1
    partition.append_records_to_leader(values(2), 1)
    fetch(world, partition, 2, 2)
    partition.maybe_shrink_isr()
    proposed, done = world.asked[0]
    assert [member.broker_id for member in proposed.isr] == [1, 2]
    assert partition.local_log.high_watermark == 0
    partition.maybe_shrink_isr()
    assert len(world.asked) == 1
    world.answer([1, 2], 8)
    assert partition.local_log.high_watermark == 2
    assert partition.isr_shrinks == 1
    done("REQUEST_TIMED_OUT")
    assert len(world.asked) == 1


def test_a_disk_that_fails_while_the_isr_changes() -> None:
    """The new high watermark may need a read. The node survives its error, because the answer of the controller counts in any case."""
    world = World()
    log = FailingLog()
    partition = leader(world, log)
    partition.append_records_to_leader(values(1), 1)
    world.now_ms += 30_001
    fetch(world, partition, 2, 1)
    partition.maybe_shrink_isr()
    log.is_failing = True
    world.answer([1, 2], 8)
    assert (partition.in_sync_replica_ids, partition.isr_shrinks) == (frozenset({1, 2}), 1)


class FailingLog(MemoryLog):
    """A log whose disk fails as soon as `is_failing` is set."""

    is_failing = False

    def maybe_increment_high_watermark(self, new: LogOffsetMetadata) -> LogOffsetMetadata | None:
        """Fail, or move the high watermark."""
        if self.is_failing:
            raise KopsError("Input/output error")
        return super().maybe_increment_high_watermark(new)


def test_a_busy_follower_one_fetch_behind_is_in_sync() -> None:
    world = World()
    partition = leader(world, isr=[1, 2], replicas=[1, 2])
    for offset in range(10):
        partition.append_records_to_leader(values(offset), 1)
        fetch(world, partition, 2, offset)
        world.now_ms += 14_000
        partition.maybe_shrink_isr()
    assert world.asked == []


@pytest.mark.parametrize(
    ("error", "after"),
    [
        ("INELIGIBLE_REPLICA", "committed"),
        ("OPERATION_NOT_ATTEMPTED", "committed"),
        ("INVALID_UPDATE_VERSION", "pending"),
        ("FENCED_LEADER_EPOCH", "pending"),
        ("NEW_LEADER_ELECTED", "pending"),
        ("UNKNOWN_TOPIC_ID", "pending"),
        ("UNKNOWN_SERVER_ERROR", "asked again"),
        ("INVALID_REPLICA_ASSIGNMENT", "asked again"),
    ],
)
def test_a_change_that_is_refused(error: str, after: str) -> None:
    world = World()
    partition = leader(world, isr=[1, 2])
    fetch(world, partition, 3, 0)
    world.asked[0][1](error)
    assert len(world.asked) == (2 if after == "asked again" else 1)
    assert partition.is_isr_change_in_flight == (after != "committed")
    assert partition.failed_isr_updates == 1


def test_an_answer_of_other_times_is_passed_over() -> None:
    world = World()
    partition = leader(world, isr=[1, 2])
    fetch(world, partition, 3, 0)
    world.answer([1, 2, 3], 8, leader_epoch=4)
    world.answer([1, 2, 3], 6)
    assert partition.is_isr_change_in_flight
    partition.make_leader(Registration(1, 6, 9, isr=[1, 2]), no_log)
    world.answer([1, 2, 3], 10)
    assert (partition.in_sync_replica_ids, partition.partition_epoch) == (frozenset({1, 2}), 9)


def test_roles_follow_the_partition_epoch() -> None:
    world = World()
    partition = world.partition()
    assert partition.make_follower(Registration(2, 5, 7), no_log)
    assert not partition.make_follower(Registration(2, 5, 8), no_log)
    assert partition.make_leader(Registration(1, 6, 9), no_log)
    assert partition.leader_epoch_start_offset == 0
    assert not partition.make_follower(Registration(2, 7, 8), no_log)
    assert partition.is_leader
    assert not partition.make_leader(Registration(1, 7, 10), no_log)
    assert partition.local_log.latest_epoch == 7
    assert partition.make_follower(Registration(2, 8, 11), no_log)
    assert (partition.in_sync_replica_ids, partition.remote_replicas) == (frozenset(), {})


def test_which_leader_epoch_may_ask() -> None:
    partition = leader(World())
    assert [partition.check_leader_epoch(epoch) for epoch in (None, 4, 5, 6)] == [
        "NONE",
        "FENCED_LEADER_EPOCH",
        "NONE",
        "UNKNOWN_LEADER_EPOCH",
    ]
    follower = World().partition()
    follower.make_follower(Registration(2, 5, 7), no_log)
    with pytest.raises(ApiError) as caught:
        follower.log_with_epoch(5, require_leader=True)
    assert caught.value.name == "NOT_LEADER_OR_FOLLOWER"
    assert follower.log_with_epoch(5, require_leader=False) is follower.log


@pytest.mark.parametrize(("epoch", "error"), [(5, "UNKNOWN_LEADER_EPOCH"), (None, "NOT_LEADER_OR_FOLLOWER")])
def test_a_follower_that_is_no_replica(epoch: int | None, error: str) -> None:
    world = World()
    partition = leader(world)
    params = FetchParams(4, 40, 0, 1, 1000, Isolation.LOG_END)
    with pytest.raises(ApiError) as caught:
        partition.fetch_records(params, FetchInfo(0, 0, 1000, epoch), 0, 1000, min_one_batch=True, update_fetch_state=True)
    assert caught.value.name == error


def test_where_logs_diverge() -> None:
    log = MemoryLog(entries=[(1, 0), (1, 1), (3, 2), (3, 3)], epoch_starts=[(1, 0), (3, 2)])
    world = World()
    partition = leader(world, log)

    def diverging(offset: int, epoch: int) -> tuple[int, int] | None:
        params = FetchParams(2, 20, 0, 1, 1000, Isolation.LOG_END)
        read = partition.fetch_records(params, FetchInfo(offset, 0, 1000, 5, epoch), 0, 1000, min_one_batch=True, update_fetch_state=True)
        assert (read.fetched is None) == (read.diverging_epoch is not None)
        return None if read.diverging_epoch is None else read.diverging_epoch[:2]

    assert [diverging(2, 1), diverging(3, 1), diverging(3, 2), diverging(4, 3)] == [None, (1, 2), (1, 2), None]
    # A diverging fetch does not show the follower's position.
    replica = partition.get_replica(2)
    assert replica is not None
    assert replica.state.log_end_offset == 4
    with pytest.raises(ApiError) as caught:
        diverging(0, 9)
    assert caught.value.name == "OFFSET_OUT_OF_RANGE"


def test_offsets_for_clients() -> None:
    log = MemoryLog(entries=[(1, 10), (1, 20), (1, 30)], epoch_starts=[(1, 0)], high_watermark=2)
    world = World()
    partition = leader(world, log)
    ask = partition.fetch_offset_for_timestamp
    # The epoch begins at 3 and the high watermark is 2, so it may be lower than what clients saw of the previous leader.
    for timestamp in (-1, 25, 99):
        with pytest.raises(ApiError) as caught:
            ask(timestamp, 0, None, fetch_only_from_leader=True)
        assert caught.value.name == "OFFSET_NOT_AVAILABLE"
    assert ask(20, 0, None, fetch_only_from_leader=True) == (20, 1, 1)
    assert ask(-2, 0, None, fetch_only_from_leader=True) == (-1, 0, 1)
    assert ask(-1, None, None, fetch_only_from_leader=True) == (-1, 3, 5)
    fetch(world, partition, 2, 3)
    fetch(world, partition, 3, 3)
    assert ask(-1, 0, 5, fetch_only_from_leader=True) == (-1, 3, 5)
    partition.append_records_to_leader(values(40), 1)
    assert ask(35, 0, 5, fetch_only_from_leader=True) == (-1, -1, None)
    assert ask(35, None, 5, fetch_only_from_leader=True) == (40, 3, 5)


def test_ends_of_epochs() -> None:
    partition = leader(World(), MemoryLog(entries=[(1, 0), (3, 1)], epoch_starts=[(1, 0), (3, 1)]))
    ask = partition.last_offset_for_leader_epoch
    assert ask(None, 2, fetch_only_from_leader=True) == (1, 1, "NONE")
    assert ask(5, 5, fetch_only_from_leader=True) == (5, 2, "NONE")
    assert ask(5, 6, fetch_only_from_leader=True) == (-1, -1, "NONE")
    assert ask(4, 1, fetch_only_from_leader=True).error == "FENCED_LEADER_EPOCH"


def test_records_are_deleted_when_all_live_replicas_have_moved() -> None:
    world = World()
    partition = leader(world, MemoryLog(entries=[(1, n) for n in range(5)], high_watermark=4))
    for replica in (2, 3):
        fetch(world, partition, replica, 5)
    assert partition.local_log.high_watermark == 5
    assert partition.delete_records(3) == (3, 0)
    assert partition.delete_records(-1) == (5, 0)
    world.fenced |= {2, 3}
    assert partition.low_watermark == 5
    for offset in (6, -2):
        with pytest.raises(ApiError) as caught:
            partition.delete_records(offset)
        assert caught.value.name == "OFFSET_OUT_OF_RANGE"
    partition.log = MemoryLog(Settings(compact=True, delete=False))
    with pytest.raises(ApiError) as caught:
        partition.delete_records(0)
    assert caught.value.name == "POLICY_VIOLATION"


def test_the_low_watermark_is_watched_while_someone_waits() -> None:
    world = World()
    partition = leader(world, isr=[1, 2], replicas=[1, 2])
    fetch(world, partition, 2, 0)
    checked = world.checked
    world.delayed_delete_count = 1
    replica = partition.get_replica(2)
    assert replica is not None
    partition.update_follower_fetch_state(replica, replica.state.log_end_offset_metadata, 0, world.now_ms, 0, 20)
    assert world.checked == checked
    partition.local_log.maybe_increment_log_start_offset(0, "")
    replica.state = ReplicaState(-1, replica.end, last_fetch_time_ms=replica.state.last_fetch_time_ms)
    partition.update_follower_fetch_state(replica, replica.state.log_end_offset_metadata, 0, world.now_ms, 0, 20)
    assert world.checked == checked + 1


def test_consumers_read_from_followers_that_are_asked_for() -> None:
    world = World()
    partition = world.partition(MemoryLog(entries=[(1, 0), (1, 1)], high_watermark=1))
    partition.make_follower(Registration(2, 5, 7), no_log)
    near = FetchParams(-1, -1, 0, 1, 1000, Isolation.HIGH_WATERMARK, ClientMetadata("rack-1"))
    read = partition.fetch_records(near, FetchInfo(0, -1, 1000, 5), 0, 1000, min_one_batch=True, update_fetch_state=False)
    assert read.fetched is not None
    assert read.fetched.size == 20
    with pytest.raises(ApiError):
        far = FetchParams(-1, -1, 0, 1, 1000, Isolation.HIGH_WATERMARK)
        partition.fetch_records(far, FetchInfo(0, -1, 1000, 5), 0, 1000, min_one_batch=True, update_fetch_state=False)


def test_a_move_into_another_directory() -> None:
    world = World()
    partition = leader(world, isr=[1], replicas=[1])
    partition.append_records_to_leader(values(1, 2), 1)
    copy = MemoryLog(parent_dir="/disk2")
    assert not partition.maybe_create_future_log("/disk1", lambda: copy)
    assert partition.maybe_create_future_log("/disk2", lambda: copy)
    assert not partition.maybe_create_future_log("/disk2", lambda: copy)
    assert partition.low_watermark == 0
    assert not partition.maybe_replace_current_with_future_log()
    read = partition.local_log.read(0, 1000, Isolation.LOG_END, min_one_batch=True)
    partition.append_records_to_follower(read.records, 5, is_future=True)
    assert partition.maybe_replace_current_with_future_log()
    assert (partition.log, partition.future_log) == (copy, None)
    assert partition.append_records_to_follower(b"", 5, is_future=True) is None


def test_a_move_keeps_the_epoch_of_a_leader_without_records() -> None:
    world = World()
    partition = leader(world, isr=[1], replicas=[1, 2])
    assert partition.local_log.latest_epoch == 5
    copy = MemoryLog(parent_dir="/disk2")
    assert partition.maybe_create_future_log("/disk2", lambda: copy)
    assert partition.maybe_replace_current_with_future_log()
    assert copy.epoch_starts == [(5, 0)]
    # A follower that has the epoch of an earlier leader, also without records, can fetch and join the ISR.
    assert not partition.diverges(FetchInfo(0, 0, 1000, 5, 4))


def test_a_log_that_begins_within_a_batch() -> None:
    """The first fetched batch begins before the follower's empty log. The log then begins with that batch."""
    partition = World().partition(MemoryLog(base_offset=3, log_start_offset=3))
    partition.around.logs.partitions[partition.topic_partition] = partition  # type: ignore[attr-defined]
    partition.make_follower(Registration(2, 5, 7), no_log)
    log = MemoryLog(entries=[(1, n) for n in range(5)])
    batch = log.read(2, 1000, Isolation.LOG_END, min_one_batch=True).records
    assert batch is not None
    partition.append_records_to_follower(batch, 5)
    assert (partition.local_log.log_start_offset, partition.local_log.log_end_offset) == (2, 5)


def test_reassignments() -> None:
    partition = leader(World(), replicas=[1, 2, 3, 4], adding_replicas=[4], removing_replicas=[2])
    assert partition.assignment.is_reassigning
    assert partition.assignment.replication_factor == 3
    assert not partition.is_under_replicated
    assert set(partition.remote_replicas) == {2, 3, 4}
    kept = partition.get_replica(3)
    partition.make_leader(Registration(1, 5, 8, isr=[1, 3], replicas=[1, 3, 4]), no_log)
    assert (partition.get_replica(3), partition.get_replica(2)) == (kept, None)


def test_gone() -> None:
    world = World()
    partition = leader(world)
    told: list[object] = []
    partition.on_deleted.append(told.append)
    partition.on_failed.append(told.append)
    partition.delete()
    partition.mark_offline()
    assert told == [partition.topic_partition] * 2
    with pytest.raises(ApiError):
        partition.append_records_to_leader(values(1), 1)
    assert partition.check_enough_replicas_reach_offset(0) == (False, "NOT_LEADER_OR_FOLLOWER")
