"""One Raft node at a time, with its neighbours simulated by the test: its answers, its requests, and what it writes first."""

from __future__ import annotations

from typing import Any

import pytest

from kops.errors import ApiError
from kops.metadata.raft import RaftNode
from kops.metadata.raft.node.actions import Action, Committed, Identity, LeaderChanged, Request, Respond, SendRequest, ShutDown
from kops.metadata.raft.node.messages import error_code, error_name, error_response
from kops.metadata.raft.roles.election import ElectionState
from kops.metadata.raft.roles.states import Candidate, Follower, Prospective, Resigned, Unattached
from kops.metadata.raft.voters.replica import Address, Endpoints, LeaderAndEpoch, Node, OffsetAndEpoch, ReplicaKey
from kops.metadata.raft.voters.settings import CLEAN_PERIOD_MS, QuorumSettings
from kops.metadata.raft.voters.voter_set import VoterSet
from kops.protocol import messages as wire
from kops.protocol.messages import (
    begin_quorum_epoch_request,
    end_quorum_epoch_request,
    fetch_request,
    fetch_response,
    fetch_snapshot_request,
    vote_request,
    vote_response,
)
from kops.records import BatchBuilder, read_batches
from tests.simulation.raft.raft_log import MemoryLog

TOPIC, TOPIC_ID, OWN = "__cluster_metadata", bytes(15) + b"\x01", bytes(15) + b"\x09"


class Store:
    """`quorum-state` in memory."""

    def __init__(self, election: ElectionState | None = None) -> None:
        self.written: list[ElectionState] = [] if election is None else [election]

    def read(self) -> ElectionState | None:
        return self.written[-1] if self.written else None

    def write(self, election: ElectionState, data_version: int) -> None:
        assert data_version == 0
        self.written.append(election)


class Bench:
    """Node 1 of this many voters, its log and its store. `actions` are those of the last call."""

    def __init__(self, voters: int = 3, election: ElectionState | None = None, node_id: int = 1) -> None:
        self.log = MemoryLog()
        self.store = Store(election)
        addresses = {id: Address(f"n{id}", 9093) for id in range(1, voters + 1)}
        identity = Identity(
            node_id=node_id,
            directory_id=OWN,
            cluster_id="cluster",
            topic=TOPIC,
            topic_id=TOPIC_ID,
            listener="CONTROLLER",
            listeners=Endpoints({"CONTROLLER": Address(f"n{node_id}", 9093)}),
            static_voters=VoterSet.static("CONTROLLER", addresses),
            bootstrap=[Node(-1 - id, *address) for id, address in addresses.items()],
            can_become_voter=False,
            settings=QuorumSettings(append_linger_ms=0),
            draw=lambda count: 0,
        )
        self.node = RaftNode(identity, self.log, self.store, 1000)
        self.actions: list[Action] = self.node.start(1000)

    def poll(self, now_ms: int) -> list[SendRequest]:
        """Let time pass, and return the requests that are sent."""
        self.actions = self.node.poll(now_ms)
        return self.sent

    @property
    def sent(self) -> list[SendRequest]:
        return [action for action in self.actions if isinstance(action, SendRequest)]

    def ask(self, message: Any, now_ms: int, version: int | None = None) -> Any:
        """Return the response to a request, or None if it has to wait. Both cross the wire."""
        version = message.VERSIONS[-1] if version is None else version
        read = type(message).decode(message.encode(version), version)
        self.actions = self.node.on_request(Request("asked", read, version, "CONTROLLER"), now_ms)
        return self.answer(version)

    def answer(self, version: int = -1) -> Any:
        found = [action.message for action in self.actions if isinstance(action, Respond)]
        if found and version >= 0:
            return type(found[0]).decode(found[0].encode(version), version)
        return found[0] if found else None

    def tell(self, request: SendRequest, response: Any, now_ms: int) -> None:
        """Deliver a response."""
        self.actions = self.node.on_response(request.node, request.correlation_id, response, now_ms)

    def elect(self) -> None:
        """Win an election with the vote of node 2, at 2000 ms."""
        self.poll(2000)
        for _ in ("would vote", "votes"):
            to_two = next(each for each in self.sent if each.node.id == 2)
            self.tell(to_two, granted(to_two.message), 2000)
        assert self.node.is_leader


def granted(request: Any, *, is_granted: bool = True) -> Any:
    """Return a granted vote."""
    partition = request.topics[0].partitions[0]
    answer = vote_response.PartitionData(leader_id=-1, leader_epoch=partition.replica_epoch, vote_granted=is_granted)
    return wire.VoteResponse(topics=[vote_response.TopicData(TOPIC, [answer])])


def vote(candidate: int, epoch: int, *, last_epoch: int = 0, last_offset: int = 0, pre_vote: bool = False, cluster: str = "cluster") -> Any:
    partition = vote_request.PartitionData(0, epoch, candidate, bytes(16), bytes(16), last_epoch, last_offset, pre_vote)
    return wire.VoteRequest(cluster, 1, [vote_request.TopicData(TOPIC, [partition])])


def begin(leader: int, epoch: int) -> Any:
    partition = begin_quorum_epoch_request.PartitionData(0, bytes(16), leader, epoch)
    endpoints = [begin_quorum_epoch_request.LeaderEndpoint("CONTROLLER", f"n{leader}", 9093)]
    return wire.BeginQuorumEpochRequest("cluster", 1, [begin_quorum_epoch_request.TopicData(TOPIC, [partition])], endpoints)


def fetch(replica: int, epoch: int, offset: int, *, last_epoch: int = 0, wait_ms: int = 500, topic_id: bytes = TOPIC_ID) -> Any:
    partition = fetch_request.FetchPartition(0, epoch, offset, last_epoch, high_watermark=-1)
    state = fetch_request.ReplicaState(replica)
    topics = [fetch_request.FetchTopic(TOPIC, topic_id, [partition])]
    return wire.FetchRequest("cluster", replica_state=state, max_wait_ms=wait_ms, topics=topics)


def partition_of(response: Any) -> Any:
    return (response.responses if hasattr(response, "responses") else response.topics)[0].partitions[0]


def error_of(response: Any) -> str:
    return error_name(partition_of(response).error_code)


def test_a_voter_alone_leads_and_commits_at_once() -> None:
    bench = Bench(voters=1)
    assert bench.node.is_leader
    assert [(each.epoch, each.leader_id) for each in bench.store.written] == [(0, None), (1, None), (1, 1)]
    (committed,) = [action for action in bench.actions if isinstance(action, Committed)]
    assert [record.offset for batch in committed.batches for record in batch.records()] == [0]
    assert LeaderChanged(LeaderAndEpoch(1, 1)) in bench.actions
    assert bench.node.prepare_append(1, [b"a", b"b"], 1001) == 2
    actions = bench.node.schedule_append(1001)
    assert [type(action) for action in actions] == [Committed]
    assert bench.log.flushed_offset == bench.log.end_offset == bench.node.high_watermark == 3


def test_a_vote_is_asked_for_first_and_then_for_a_new_epoch() -> None:
    bench = Bench()
    assert isinstance(bench.node.state, Prospective), "the first voter of a new quorum does not wait"
    asked = bench.sent
    assert [(each.node.id, each.message.topics[0].partitions[0].pre_vote) for each in asked] == [(2, True), (3, True)]
    assert len(bench.store.written) == 1
    bench.tell(asked[0], granted(asked[0].message), 2001)
    assert isinstance(bench.node.state, Candidate)
    assert bench.store.written[-1].voted_key == ReplicaKey(1, OWN)
    asked = bench.sent
    assert [(each.message.topics[0].partitions[0].pre_vote, each.message.topics[0].partitions[0].replica_epoch) for each in asked] == [
        (False, 1),
        (False, 1),
    ]
    bench.tell(asked[1], granted(asked[1].message), 2002)
    assert bench.node.is_leader
    assert {each.message.API_KEY for each in bench.sent} == {wire.BeginQuorumEpochRequest.API_KEY}
    (batch,) = read_batches(bench.log.read(0, 10_000, committed=False))
    assert (batch.is_control, batch.partition_leader_epoch, bench.log.flushed_offset) == (True, 1, 1)
    assert bench.node.high_watermark is None


def test_who_knows_no_pre_vote_is_asked_for_a_real_one() -> None:
    bench = Bench()
    asked = bench.poll(2000)
    bench.tell(asked[0], error_response(asked[0].message, "UNSUPPORTED_VERSION"), 2001)
    assert isinstance(bench.node.state, Candidate)


def test_pre_votes_refused_leave_the_epoch_alone() -> None:
    bench = Bench()
    for each in bench.poll(2000):
        bench.tell(each, granted(each.message, is_granted=False), 2001)
    assert isinstance(bench.node.state, Unattached)
    assert bench.node.state.epoch == 0


@pytest.mark.parametrize(
    ("request_", "error"),
    [
        (vote(2, 1, last_epoch=1), "INVALID_REQUEST"),
        (vote(2, 1, last_epoch=2, pre_vote=True), "INVALID_REQUEST"),
        (vote(2, 1, last_offset=-1), "INVALID_REQUEST"),
        (vote(-1, 1), "INVALID_REQUEST"),
        (vote(2, 4), "FENCED_LEADER_EPOCH"),
        (begin(2, 4), "FENCED_LEADER_EPOCH"),
        (fetch(2, 4, 0), "FENCED_LEADER_EPOCH"),
        (fetch(2, 6, 0), "UNKNOWN_LEADER_EPOCH"),
        (fetch(2, 5, 0), "NOT_LEADER_OR_FOLLOWER"),
        (fetch(2, 5, -1), "INVALID_REQUEST"),
        (fetch(2, 5, 3, last_epoch=6), "INVALID_REQUEST"),
    ],
)
def test_requests_that_are_refused(request_: Any, error: str) -> None:
    """A follower of node 3 in epoch 5 rejects them."""
    bench = Bench(election=ElectionState(5, 3) if not isinstance(request_, wire.VoteRequest) or error == "FENCED_LEADER_EPOCH" else None)
    assert error_of(bench.ask(request_, 1001)) == error


def test_requests_to_another_cluster_or_log() -> None:
    bench = Bench()
    assert error_name(bench.ask(vote(2, 1, cluster="other"), 1001).error_code) == "INCONSISTENT_CLUSTER_ID"
    assert error_name(bench.ask(fetch(2, 0, 0, topic_id=bytes(16)), 1001).error_code) == "INVALID_REQUEST"
    other = fetch_snapshot_request.TopicSnapshot("other", [fetch_snapshot_request.PartitionSnapshot()])
    assert error_of(bench.ask(wire.FetchSnapshotRequest("cluster", 2, topics=[other]), 1001)) == "UNKNOWN_TOPIC_OR_PARTITION"
    assert error_name(bench.ask(wire.AddRaftVoterRequest("cluster", 1000, 4, OWN), 1001).error_code) == "NOT_LEADER_OR_FOLLOWER"


def test_one_vote_an_epoch_written_before_it_is_told() -> None:
    bench = Bench()
    assert partition_of(bench.ask(vote(2, 0, pre_vote=True), 1001)).vote_granted
    assert len(bench.store.written) == 1
    assert partition_of(bench.ask(vote(2, 1), 1001)).vote_granted
    assert bench.store.written[-1] == ElectionState(1, None, ReplicaKey(2), frozenset({1, 2, 3}))
    assert not partition_of(bench.ask(vote(3, 1), 1002)).vote_granted
    assert partition_of(bench.ask(vote(2, 1), 1002)).vote_granted
    again = Bench(election=bench.store.written[-1])
    assert not partition_of(again.ask(vote(3, 1), 1002)).vote_granted


def test_a_follower_takes_records_and_is_cut() -> None:
    bench = Bench()
    response = bench.ask(begin(2, 3), 1001)
    assert (error_of(response), partition_of(response).leader_id) == ("NONE", 2)
    assert isinstance(bench.node.state, Follower)
    (asked,) = bench.sent
    assert (asked.node, asked.message.topics[0].partitions[0].current_leader_epoch) == (Node(2, "n2", 9093), 3)
    other = Bench(voters=1)
    other.node.prepare_append(1, [b"x"], 1001)
    other.node.schedule_append(1001)
    leader = fetch_response.LeaderIdAndEpoch(2, 3)
    records = other.log.read(0, 10_000, committed=False)
    given = fetch_response.PartitionData(high_watermark=1, current_leader=leader, records=records)
    bench.tell(asked, wire.FetchResponse(responses=[fetch_response.FetchableTopicResponse(TOPIC, TOPIC_ID, [given])]), 1010)
    assert (bench.log.end_offset, bench.log.flushed_offset, bench.node.high_watermark) == (2, 2, 1)
    asked = next(each for each in bench.sent if isinstance(each.message, wire.FetchRequest))
    end = fetch_response.EpochEndOffset(epoch=1, end_offset=1)
    given = fetch_response.PartitionData(current_leader=leader, diverging_epoch=end)
    bench.tell(asked, wire.FetchResponse(responses=[fetch_response.FetchableTopicResponse(TOPIC, TOPIC_ID, [given])]), 1020)
    assert bench.log.end_offset == 1


def test_a_resigning_leader_names_who_comes_next() -> None:
    bench = Bench()
    bench.ask(begin(2, 3), 1001)
    assert isinstance(bench.node.state, Follower)
    candidates = [end_quorum_epoch_request.ReplicaInfo(3), end_quorum_epoch_request.ReplicaInfo(1, OWN)]
    partition = end_quorum_epoch_request.PartitionData(0, 2, 3, [3, 1], candidates)
    message = wire.EndQuorumEpochRequest("cluster", [end_quorum_epoch_request.TopicData(TOPIC, [partition])])
    assert error_of(bench.ask(message, 2000)) == "NONE"
    assert bench.node.state.fetch_deadline_ms == 2500
    assert [each.message.topics[0].partitions[0].pre_vote for each in bench.poll(2500)] == [True, True]


def test_fetches_wait_for_records_and_move_the_high_watermark() -> None:
    bench = Bench()
    bench.elect()
    assert partition_of(bench.ask(fetch(2, 1, 0), 2001)).records
    assert bench.ask(fetch(2, 1, 1, last_epoch=1), 2002).responses[0].partitions[0].high_watermark == 1
    waiting = fetch(2, 1, 1, last_epoch=1)
    waiting.topics[0].partitions[0].high_watermark = 1
    assert bench.ask(waiting, 2003) is None
    assert bench.node.wake_up_ms <= 2503
    bench.node.prepare_append(1, [b"x"], 2004)
    bench.actions = bench.node.schedule_append(2004)
    given = partition_of(bench.answer())
    assert [record.value for batch in read_batches(bytes(given.records)) for record in batch.records()] == [b"x"]
    waiting.topics[0].partitions[0].fetch_offset = 2
    assert partition_of(bench.ask(waiting, 2005)).high_watermark == 2
    waiting.topics[0].partitions[0].high_watermark = 2
    assert bench.ask(waiting, 2006) is None
    bench.poll(2506)
    assert bench.answer() is not None


def test_a_leader_describes_its_quorum() -> None:
    bench = Bench()
    message = wire.DescribeQuorumRequest.decode(b"\x02\x13__cluster_metadata\x02\x00\x00\x00\x00\x00\x00\x00", 2)
    assert error_of(bench.ask(message, 1001)) == "NOT_LEADER_OR_FOLLOWER"
    bench.elect()
    bench.ask(fetch(2, 1, 0), 2001)
    bench.ask(fetch(7, 1, 0), 2002)
    described = bench.ask(message, 2003)
    partition = partition_of(described)
    assert (partition.leader_id, partition.leader_epoch, partition.high_watermark) == (1, 1, -1)
    assert [(each.replica_id, each.log_end_offset) for each in partition.current_voters] == [(1, 1), (2, 0), (3, -1)]
    assert [each.replica_id for each in partition.observers] == [7]
    assert [(each.node_id, each.listeners[0].host) for each in described.nodes] == [(1, "n1"), (2, "n2"), (3, "n3")]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(bench.log, "start_flush", lambda: False)  # a slow disk: the flush has not ended
        bench.node.prepare_append(1, [b"x"], 2004)
        bench.node.schedule_append(2004)
        bench.ask(fetch(2, 1, 2, last_epoch=1), 2005)
        partition = partition_of(bench.ask(message, 2006))
    assert [(each.replica_id, each.log_end_offset) for each in partition.current_voters] == [(1, 2), (2, 2), (3, -1)]


def test_a_leader_stops_in_good_order() -> None:
    bench = Bench()
    bench.elect()
    bench.actions = bench.node.shut_down(10_000, 2100)
    assert isinstance(bench.node.state, Resigned)
    assert [type(each.message).__name__ for each in bench.sent] == ["EndQuorumEpochRequest"] * 2
    with pytest.raises(ApiError) as caught:
        bench.node.prepare_append(1, [b"x"], 2101)
    assert error_code(caught.value.name) == 6
    bench.actions = bench.node.on_request(Request("asked", begin(2, 2), 1, "CONTROLLER"), 2200)
    assert ShutDown(timed_out=False) in bench.node.poll(2201) + bench.actions
    alone = Bench()
    alone.node.shut_down(100, 1100)
    assert alone.node.poll(1200) == [ShutDown(timed_out=True)]


@pytest.mark.parametrize(("unreachable", "is_over"), [((2,), False), ((2, 3), True)])
def test_the_last_leader_of_a_stopping_cluster_waits_for_nobody(unreachable: tuple[int, ...], is_over: bool) -> None:
    bench = Bench()
    bench.elect()
    bench.actions = bench.node.shut_down(10_000, 2100)
    ends: list[Action] = []
    for request in [each for each in bench.sent if each.node.id in unreachable]:
        bench.tell(request, error_response(request.message, "BROKER_NOT_AVAILABLE"), 2101)
        ends += [action for action in bench.actions if isinstance(action, ShutDown)]
    assert ends == [ShutDown(timed_out=False)] * is_over


def test_only_the_first_voter_of_a_new_quorum_asks_at_once() -> None:
    second = Bench(node_id=2)
    assert isinstance(second.node.state, Unattached)
    second.poll(2000)
    assert isinstance(second.node.state, Prospective)
    # A node that has been in an epoch before waits until it knows the leader.
    again = Bench(election=ElectionState(1, voters=frozenset({1, 2, 3})))
    assert isinstance(again.node.state, Unattached)


def test_without_a_majority_a_leader_resigns() -> None:
    bench = Bench()
    bench.elect()
    bench.poll(4999)
    assert bench.node.is_leader
    bench.poll(5000)
    assert isinstance(bench.node.state, Resigned)


def test_what_was_persisted_decides_the_first_role() -> None:
    voters = frozenset({1, 2, 3})
    assert isinstance(Bench(election=ElectionState(4, 1, None, voters)).node.state, Resigned)
    assert isinstance(Bench(election=ElectionState(4, None, ReplicaKey(1, OWN), voters)).node.state, Candidate)
    assert isinstance(Bench(election=ElectionState(4, 2, None, voters)).node.state, Follower)
    assert isinstance(Bench(election=ElectionState(4, 9, None, voters)).node.state, Unattached)
    assert isinstance(Bench(election=ElectionState(4, None, ReplicaKey(2), voters)).node.state, Unattached)


def test_nothing_is_cleaned_while_the_high_watermark_is_unknown(monkeypatch: pytest.MonkeyPatch) -> None:
    """After a restart, for example, no leader may be found for a while."""
    bench = Bench()
    cleaned: list[int] = []
    monkeypatch.setattr(bench.log, "maybe_clean", cleaned.append)
    builder = BatchBuilder(base_offset=0, partition_leader_epoch=1)
    for _ in range(5):
        builder.append(0, None, b"value")
    bench.log.append_as_leader(builder.build(), 1)
    sink = bench.log.create_snapshot(OffsetAndEpoch(offset=5, epoch=1))
    assert sink is not None
    sink.freeze()
    bench.poll(1000 + CLEAN_PERIOD_MS)
    assert not cleaned
    bench.log.high_watermark = 5
    bench.poll(1000 + 2 * CLEAN_PERIOD_MS)
    assert len(cleaned) == 1
