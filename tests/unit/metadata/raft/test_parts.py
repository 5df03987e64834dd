"""The parts of a Raft node alone: histories, voters, connections, batches, votes, the high watermark."""

from __future__ import annotations

import pytest

from kops.errors import ApiError, DecodeError
from kops.metadata.raft.log import control_records as control
from kops.metadata.raft.log.accumulator import NEVER_MS, BatchAccumulator
from kops.metadata.raft.log.control_state import ControlState
from kops.metadata.raft.log.history import LogHistory
from kops.metadata.raft.log.log import EndKind, truncate_to_end, validate_end
from kops.metadata.raft.node.requests import RequestManager
from kops.metadata.raft.node.serving import election_backoff_ms
from kops.metadata.raft.roles.election import EpochElection
from kops.metadata.raft.roles.leader import LeaderState
from kops.metadata.raft.voters.replica import Address, Endpoints, Node, OffsetAndEpoch, ReplicaKey
from kops.metadata.raft.voters.settings import QuorumSettings
from kops.metadata.raft.voters.voter_set import VoterNode, VoterSet
from kops.records import build_batch, read_batches
from kops.records.record import Record
from tests.simulation.raft.raft_log import MemoryLog


def key(node_id: int, directory: int = 1) -> ReplicaKey:
    return ReplicaKey(node_id, directory.to_bytes(16, "big") if directory else None)


def voter(node_id: int, directory: int = 1, *, most: int = 1) -> VoterNode:
    return VoterNode(key(node_id, directory), Endpoints({"CONTROLLER": Address(f"n{node_id}", 9093)}), 0, most)


VOTERS = VoterSet(voter(node_id) for node_id in (1, 2, 3))


def data(base_offset: int, epoch: int, count: int = 1) -> bytes:
    records = [Record(base_offset + index, 5, "CreateTime", None, b"v%d" % index) for index in range(count)]
    return build_batch(records, base_offset=base_offset, partition_leader_epoch=epoch)


def filled(*batches: tuple[int, int]) -> MemoryLog:
    """Return a log of batches, each (records, epoch)."""
    log = MemoryLog()
    for count, epoch in batches:
        log.append_as_leader(data(log.end_offset, epoch, count), epoch)
    assert log.start_flush()
    return log


def test_a_history_is_cut_at_both_ends() -> None:
    history: LogHistory[str] = LogHistory()
    for offset, value in ((-1, "a"), (4, "b"), (9, "c")):
        history.add_at(offset, value)
    assert [history.value_at_or_before(offset) for offset in (-2, -1, 3, 4, 8, 9, 99)] == [None, "a", "a", "b", "b", "c", "c"]
    history.truncate_old_entries(5)
    assert (history.value_at_or_before(3), history.value_at_or_before(5)) == (None, "b")
    history.truncate_new_entries(9)
    assert history.last == (4, "b")
    history.truncate_new_entries(4)
    assert history.last is None


def test_voters_are_matched_by_directory_where_it_is_known() -> None:
    voters = VoterSet([voter(1, 0), voter(2, 7)])
    assert [voters.is_voter(each) for each in (key(1, 9), key(2, 7), key(2, 8), key(2, 0), key(3))] == [True, True, False, False, False]
    assert voters.remove(key(2, 8)) is None
    assert voters.remove(key(2, 7)) == VoterSet([voter(1, 0)])
    assert VoterSet([voter(1)]).remove(key(1)) is None
    updated = voters.update(voter(1, 5))
    assert updated is not None
    assert updated.keys == [key(1, 5), key(2, 7)]


def test_voters_survive_their_record() -> None:
    voters = VoterSet([voter(1, 0, most=0), VoterNode(key(2), Endpoints({"A": Address("a", 1), "B": Address("b", 65535)}), 0, 1)])
    assert control.read_voters(control.voters(voters).value) == voters
    with pytest.raises(DecodeError):
        control.read_voters(control.voters(voters).value[:-3])
    with pytest.raises(DecodeError):
        control.read_kraft_version(control.kraft_version(7).value)


def test_voters_of_the_log_are_in_force_until_they_are_cut() -> None:
    log = filled((3, 1))
    changed = VoterSet([voter(1), voter(2)])
    state = ControlState(VOTERS, log)
    state.update()
    records = [control.kraft_version(1), control.voters(changed)]
    log.append_as_leader(control.control_batch(records, base_offset=3, epoch=1, now_ms=0), 1)
    state.update()
    assert (state.last_voters, state.last_voters_offset, state.kraft_version) == (changed, 4, 1)
    assert (state.voters_at(3), state.kraft_version_at(3), state.kraft_version_at(2)) == (None, 1, 0)
    log.truncate_to(3)
    state.truncate_new_entries(3)
    assert (state.last_voters, state.last_voters_offset, state.kraft_version) == (VOTERS, None, 0)
    log.append_as_leader(control.control_batch(records, base_offset=3, epoch=2, now_ms=0), 2)
    state.update()
    assert state.last_voters == changed


def test_a_connection_has_one_request_and_pauses_after_a_failure() -> None:
    node, other = Node(1, "a", 1), Node(-2, "b", 1)
    manager = RequestManager([other], retry_backoff_ms=20, request_timeout_ms=100, draw=lambda count: 0)
    manager.on_sent(node, 7, now_ms=0)
    assert not manager.is_ready(node, 99)
    assert manager.ready_bootstrap(99) is None
    assert (manager.is_expected(node, 7), manager.is_expected(node, 8), manager.remaining_ms(node, 40)) == (True, False, 60)
    assert manager.has_timed_out(node, 100)
    manager.on_result(node, 8, 50, success=True)
    assert manager.is_expected(node, 7)
    manager.on_result(node, 7, 50, success=False)
    assert (manager.is_backing_off(node, 69), manager.is_backing_off(node, 70), manager.is_ready(node, 70)) == (True, False, True)
    assert manager.ready_bootstrap(70) == other
    manager.on_sent(node, 9, 200)
    manager.on_result(node, 9, 201, success=True)
    assert manager.is_ready(node, 201)


def test_batches_leave_after_the_linger_time() -> None:
    accumulator = BatchAccumulator(3, 100, 25)
    assert accumulator.ms_until_drain(0) >= NEVER_MS - 1
    assert accumulator.append(3, [b"a", b"b"], 1000) == 101
    assert accumulator.append(3, [b"c"], 1010) == 102
    assert [accumulator.ms_until_drain(now_ms) for now_ms in (1000, 1024, 1025)] == [25, 1, 0]
    (drained,) = accumulator.drain()
    (batch,) = read_batches(drained.data)
    assert (batch.base_offset, batch.last_offset, batch.partition_leader_epoch, batch.max_timestamp) == (100, 102, 3, 1000)
    assert [record.value for record in batch.records()] == [b"a", b"b", b"c"]
    assert accumulator.is_empty


def test_prepared_records_wait_for_leave() -> None:
    accumulator = BatchAccumulator(3, 0, 0)
    accumulator.append(3, [b"a"], 0, delay_drain=True)
    assert accumulator.drain() == []
    accumulator.append(3, [b"b"], 0)
    assert accumulator.drain() == []
    accumulator.allow_drain()
    assert [batch.end_offset for batch in accumulator.drain()] == [1, 2]


def test_what_a_batch_can_not_hold() -> None:
    accumulator = BatchAccumulator(3, 0, 10, max_size=200)
    accumulator.append(3, [b"x" * 100], 0)
    accumulator.append(3, [b"y" * 100], 0)
    with pytest.raises(ApiError) as caught:
        accumulator.append(3, [b"z" * 100, b"z" * 100], 0)
    assert caught.value.name == "RECORD_LIST_TOO_LARGE"
    with pytest.raises(ApiError) as caught:
        accumulator.append(2, [b"z"], 0)
    assert caught.value.name == "NOT_LEADER_OR_FOLLOWER"
    assert [batch.base_offset for batch in accumulator.drain()] == [0, 1]


def test_an_election_is_won_and_lost_by_majorities() -> None:
    votes = EpochElection(VoterSet(voter(node_id) for node_id in range(1, 5)).keys)
    votes.record(1, granted=True)
    votes.record(2, granted=True)
    assert (votes.is_won, votes.is_lost) == (False, False)
    votes.record(3, granted=False)
    assert (votes.is_won, votes.is_lost) == (False, False)
    assert [each.id for each in votes.unrecorded] == [4]
    votes.record(4, granted=False)
    assert (votes.is_won, votes.is_lost, votes.granting) == (False, True, frozenset({1, 2}))


@pytest.mark.parametrize(
    ("position", "count", "wanted"), [(0, 3, 0), (1, 3, 250), (2, 3, 500), (3, 3, 1000), (1, 2, 500), (1, 1, 1000), (0, 0, 0)]
)
def test_successors_wait_by_their_place(position: int, count: int, wanted: int) -> None:
    assert election_backoff_ms(position, count, 1000) == wanted


def leader(epoch_start: int = 10) -> LeaderState:
    return LeaderState(voter(1), 4, epoch_start, VOTERS, 0, 1, frozenset({1, 2}), BatchAccumulator(4, epoch_start, 0), QuorumSettings(), 0)


def test_the_high_watermark_waits_for_this_epochs_first_record() -> None:
    state = leader(10)
    assert not state.update_local(11)
    assert not state.update_replica(key(2), 10, 1)
    assert state.high_watermark is None
    assert state.update_replica(key(2), 11, 2)
    assert state.high_watermark == 11
    assert not state.update_local(15)
    assert not state.update_replica(key(3, 9), 15, 3), "another directory of node 3 is an observer"
    assert state.update_replica(key(3), 13, 4)
    assert state.high_watermark == 13
    assert [each.id for each in state.successors] == [3, 2]


def test_a_high_watermark_never_falls_with_new_voters() -> None:
    state = leader(10)
    state.update_local(15)
    state.update_replica(key(2), 14, 1)
    assert state.high_watermark == 14
    more = VoterSet([*VOTERS, voter(4), voter(5)])
    assert not state.update_local(16)
    assert not state.update_voters(more)
    assert state.high_watermark == 14


def test_a_leader_without_a_majority_of_fetches_resigns() -> None:
    state = leader()
    assert state.ms_until_check_quorum(2999) == 1
    state.on_voter_fetched(key(9), 2000)
    assert state.ms_until_check_quorum(3000) == 0
    state.on_voter_fetched(key(2), 2000)
    assert state.ms_until_check_quorum(3000) == 2000


@pytest.mark.parametrize(
    ("offset", "epoch", "kind", "end"),
    [
        (0, 0, EndKind.VALID, (0, 0)),
        (5, 1, EndKind.VALID, (5, 1)),
        (6, 1, EndKind.DIVERGING, (5, 1)),
        (8, 3, EndKind.VALID, (8, 3)),
        (7, 2, EndKind.DIVERGING, (5, 1)),
        (9, 3, EndKind.DIVERGING, (8, 3)),
        (8, 4, EndKind.DIVERGING, (8, 3)),
    ],
)
def test_the_end_of_a_followers_log(offset: int, epoch: int, kind: EndKind, end: tuple[int, int]) -> None:
    log = filled((2, 1), (3, 1), (3, 3))
    found = validate_end(log, offset, epoch)
    assert (found.kind, found.end.offset, found.end.epoch) == (kind, *end)


def test_a_follower_below_the_log_fetches_a_snapshot() -> None:
    log = filled((2, 1), (3, 1), (3, 3))
    for offset in (2, 5):
        sink = log.create_snapshot(OffsetAndEpoch(offset=offset, epoch=1))
        assert sink is not None
        sink.freeze()
    log.update_high_watermark(8)
    assert log.maybe_clean(0)
    assert log.start_offset == 5
    assert validate_end(log, 0, 0) == (EndKind.SNAPSHOT, OffsetAndEpoch(offset=5, epoch=1))
    assert validate_end(log, 5, 1).kind is EndKind.VALID
    assert validate_end(log, 5, 2).kind is EndKind.SNAPSHOT


@pytest.mark.parametrize(("end", "left"), [((5, 1), 5), ((3, 1), 3), ((6, 2), 5), ((0, 0), 0), ((9, 3), 8)])
def test_a_log_is_cut_where_it_left_the_leaders(end: tuple[int, int], left: int) -> None:
    log = filled((1, 1), (1, 1), (1, 1), (1, 1), (1, 1), (3, 3))
    assert truncate_to_end(log, OffsetAndEpoch(offset=end[0], epoch=end[1])) == left
    assert log.end_offset == left
