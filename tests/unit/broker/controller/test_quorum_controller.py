"""The controller on top of a Raft node that the test simulates: what is appended when, and when answers may be sent."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest

from kops.broker.controller.quorum_controller import MAX_RECORDS_PER_BATCH, QuorumController
from kops.broker.quorum.committed_records import CommittedRecords
from kops.errors import ApiError, DecodeError
from kops.metadata.controller.base.result import ControllerResult, RequestContext
from kops.metadata.controller.controller import Controller
from kops.metadata.raft.log import control_records as control
from kops.metadata.raft.voters.replica import LeaderAndEpoch, OffsetAndEpoch
from kops.metadata.records import write_record
from kops.protocol.declaration import Message
from kops.protocol.messages import (
    BrokerHeartbeatRequest,
    CreateTopicsRequest,
    ListPartitionReassignmentsRequest,
    NoOpRecord,
    RemoveTopicRecord,
    TopicRecord,
)
from kops.records import Batch, BatchBuilder, read_batches
from tests.support.parts.controlling import SETTINGS, SeededDraws, creation, error_name, registration
from tests.support.parts.manual_loop import ManualLoop

ME, OTHER = 3000, 3001
NO_LEADER = ApiError("NOT_LEADER_OR_FOLLOWER", "no")


class PlayedRaft:
    """A log whose records are committed by the test. It is also its own `log` and `node`."""

    def __init__(self) -> None:
        self.log = self.node = self
        self.is_leader = True
        self.end_offset = 0
        self.error: ApiError | None = None
        self.batches: list[tuple[int, list[bytes]]] = []
        self.resigned: list[int] = []
        self.schedules = 0

    def prepare_append(self, epoch: int, records: Sequence[bytes]) -> int:
        if self.error is not None:
            raise self.error
        self.batches.append((self.end_offset, list(records)))
        self.end_offset += len(records)
        return self.end_offset - 1

    def schedule_append(self) -> None:
        self.schedules += 1

    def resign(self, epoch: int) -> None:
        self.resigned.append(epoch)


class Bench:
    """One controller. It leads from epoch 1 on unless `claim` is False."""

    def __init__(self, *, claim: bool = True, idle_ms: int | None = None) -> None:
        self.loop = ManualLoop()
        self.raft = PlayedRaft()
        settings = replace(SETTINGS, max_idle_interval_ms=idle_ms)
        self.core = Controller(ME, settings, SeededDraws())
        self.driver = QuorumController(self.loop, self.raft, self.core, CommittedRecords())  # type: ignore[arg-type]  # played
        self.answers: list[Any] = []
        if claim:
            self.driver.on_leader_change(LeaderAndEpoch(ME, 1))
            self.loop.advance()
            self.commit()

    def ask(self, request: Message) -> None:
        self.driver.handle(RequestContext(type(request).VERSIONS[-1]), request, self.answers.append)

    def commit(self) -> None:
        """Commit everything in the log."""
        batches = [batch(first, records) for first, records in self.raft.batches]
        self.raft.batches.clear()
        self.driver.on_committed(batches)

    def broker(self, broker_id: int = 7) -> None:
        """Register a broker that serves."""
        self.ask(registration(broker_id))
        self.commit()
        epoch = self.answers[-1].broker_epoch
        self.ask(BrokerHeartbeatRequest(broker_id, epoch, current_metadata_offset=1 << 40))
        self.commit()
        self.answers.clear()

    @property
    def topics(self) -> set[str]:
        return {topic.name for topic in self.core.parts.state.topics.values()}


def batch(first: int, records: Sequence[bytes]) -> Batch:
    builder = BatchBuilder(base_offset=first, partition_leader_epoch=1)
    for record in records:
        builder.append(0, None, record)
    return read_batches(builder.build())[0]


def reassignments() -> ListPartitionReassignmentsRequest:
    return ListPartitionReassignmentsRequest(topics=None)


def test_a_leader_begins_with_the_bootstrap_records() -> None:
    bench = Bench(claim=False)
    bench.ask(creation("early", partitions=1, factor=1))
    assert error_name(bench.answers[0].topics[0].error_code) == "NOT_CONTROLLER"
    bench.driver.on_leader_change(LeaderAndEpoch(ME, 1))
    assert bench.driver.is_active
    assert len(bench.raft.batches) == 1
    assert bench.raft.schedules == 0, "what comes within a turn goes together"
    bench.loop.advance()
    assert bench.raft.schedules == 1
    assert bench.core.last_stable_offset == -1
    bench.commit()
    assert bench.core.last_stable_offset == bench.raft.end_offset - 1
    # A later epoch of the same leader changes nothing.
    bench.driver.on_leader_change(LeaderAndEpoch(ME, 2))
    assert (bench.core.epoch, bench.raft.batches) == (2, [])


def test_answers_wait_for_their_records() -> None:
    bench = Bench()
    bench.broker()
    bench.ask(reassignments())
    assert len(bench.answers) == 1, "nothing is uncommitted"
    bench.ask(creation("orders", partitions=1, factor=1))
    bench.ask(reassignments())
    bench.ask(creation("clicks", partitions=1, factor=1))
    assert (len(bench.answers), bench.driver.deferred_count, len(bench.raft.batches)) == (1, 3, 2)
    before = bench.raft.schedules
    bench.loop.advance()
    assert bench.raft.schedules == before + 1
    first, second = bench.raft.batches
    bench.driver.on_committed([batch(*first)])
    # An answer that only read the first one's state may be sent with it.
    assert [type(answer).__name__ for answer in bench.answers[1:]] == ["CreateTopicsResponse", "ListPartitionReassignmentsResponse"]
    bench.driver.on_committed([batch(*second)])
    assert [topic.name for topic in bench.answers[-1].topics] == ["clicks"]
    assert bench.driver.deferred_count == 0


def test_an_answer_may_bring_the_next_request() -> None:
    """The next request of a connection is handled as soon as the previous one is answered."""
    bench = Bench()
    bench.broker()
    request = creation("second", partitions=1, factor=1)
    context = RequestContext(7)
    bench.driver.handle(context, creation("first", partitions=1, factor=1), lambda _: bench.ask(request))
    bench.commit()
    assert (bench.driver.deferred_count, bench.topics) == (1, {"first", "second"})
    bench.commit()
    assert [topic.name for topic in bench.answers[0].topics] == ["second"]


def test_who_leads_no_longer_says_so_and_forgets_what_is_not_committed() -> None:
    bench = Bench()
    bench.broker()
    bench.ask(creation("orders", partitions=1, factor=1))
    assert bench.topics == {"orders"}
    bench.driver.on_leader_change(LeaderAndEpoch(OTHER, 2))
    bench.ask(creation("clicks", partitions=1, factor=1))
    for answer in bench.answers:
        assert error_name(answer.topics[0].error_code) == "NOT_CONTROLLER"
        assert answer.topics[0].error_message == f"The active controller appears to be node {OTHER}."
    assert (len(bench.answers), bench.topics, bench.driver.is_active) == (2, set(), False)
    schedules = bench.raft.schedules
    bench.loop.advance()
    assert bench.raft.schedules == schedules, "nothing is let go into another epoch"
    # The other leader commits the topic after all.
    bench.commit()
    assert bench.topics == {"orders"}
    bench.driver.on_leader_change(LeaderAndEpoch(ME, 3))
    bench.ask(creation("orders", partitions=1, factor=1))
    assert error_name(bench.answers[-1].topics[0].error_code) == "TOPIC_ALREADY_EXISTS"


@pytest.mark.parametrize(
    ("error", "told"),
    [(NO_LEADER, "NOT_CONTROLLER"), (ApiError("RECORD_LIST_TOO_LARGE", "too much"), "UNKNOWN_SERVER_ERROR")],
)
def test_a_log_that_takes_nothing_ends_leadership(error: ApiError, told: str) -> None:
    bench = Bench()
    bench.broker()
    bench.ask(creation("waiting", partitions=1, factor=1))
    bench.raft.error = error
    bench.ask(creation("refused", partitions=1, factor=1))
    assert [error_name(answer.topics[0].error_code) for answer in bench.answers] == ["NOT_CONTROLLER", told]
    assert (bench.driver.is_active, bench.raft.resigned) == (False, [])
    bench.loop.advance()
    assert bench.raft.resigned == [1]


def test_many_records_are_parted_unless_they_belong_together(monkeypatch: pytest.MonkeyPatch) -> None:
    bench = Bench()
    records = [(NoOpRecord(), 0)] * (2 * MAX_RECORDS_PER_BATCH + 1)

    def handle(*_: object) -> ControllerResult:
        return ControllerResult(list(records), reassignments(), is_atomic=len(records) <= MAX_RECORDS_PER_BATCH)

    monkeypatch.setattr(bench.core, "handle", handle)
    bench.ask(reassignments())
    assert [len(found) for _, found in bench.raft.batches] == [MAX_RECORDS_PER_BATCH, MAX_RECORDS_PER_BATCH, 1]
    bench.commit()
    assert len(bench.answers) == 1
    del records[10:]
    bench.ask(reassignments())
    assert [len(found) for _, found in bench.raft.batches] == [10]


def test_a_mistake_costs_the_leadership_and_not_the_node(monkeypatch: pytest.MonkeyPatch) -> None:
    """The mistake is in a request or in a periodic task. Waiting clients are answered, and this node may lead a later epoch."""

    def mistaken(*_: object) -> None:
        raise KeyError("orders")

    bench = Bench(idle_ms=500)
    bench.broker()
    bench.ask(creation("waiting", partitions=1, factor=1))
    with monkeypatch.context() as patched:
        patched.setattr(bench.core, "handle", mistaken)
        bench.ask(creation("asked", partitions=1, factor=1))
    assert [error_name(answer.topics[0].error_code) for answer in bench.answers] == ["NOT_CONTROLLER", "UNKNOWN_SERVER_ERROR"]
    assert (bench.driver.is_active, bench.topics) == (False, set())
    bench.loop.advance()
    assert bench.raft.resigned == [1]
    bench.raft.batches.clear()
    bench.driver.on_leader_change(LeaderAndEpoch(ME, 2))
    with monkeypatch.context() as patched:
        patched.setattr(bench.core, "tick", mistaken)
        bench.loop.advance(600)
    assert (bench.driver.is_active, bench.raft.resigned, bench.loop.timer_count) == (False, [1, 2], 0)


def test_a_failing_disk_is_no_mistake(monkeypatch: pytest.MonkeyPatch) -> None:
    def failing(*_: object) -> None:
        raise OSError(5, "Input/output error")

    bench = Bench()
    monkeypatch.setattr(bench.core, "handle", failing)
    with pytest.raises(OSError, match="Input/output error"):
        bench.ask(creation("orders", partitions=1, factor=1))


def test_a_leader_writes_that_nothing_happens() -> None:
    bench = Bench(idle_ms=500)
    before = bench.raft.end_offset
    bench.loop.advance(1600)
    assert bench.raft.end_offset == before + 3
    bench.driver.on_leader_change(LeaderAndEpoch(None, 2))
    assert bench.loop.timer_count == 0
    bench.loop.advance(5000)
    assert bench.raft.end_offset == before + 3


def test_a_record_that_cannot_be_ends_the_node() -> None:
    bench = Bench(claim=False)
    with pytest.raises(DecodeError, match="offset 0 of the metadata log"):
        bench.driver.on_committed([batch(0, [write_record(RemoveTopicRecord(bytes(15) + b"\x63"), 0)])])


def test_a_snapshot_takes_the_place_of_everything() -> None:
    class Snapshot:
        snapshot_id = OffsetAndEpoch(offset=100, epoch=3)

        def __init__(self) -> None:
            self.data = control.control_batch([control.snapshot_header(5)], base_offset=0, epoch=3, now_ms=0)
            builder = BatchBuilder(base_offset=1, partition_leader_epoch=3)
            builder.append(0, None, write_record(TopicRecord("from-snapshot", bytes(15) + b"\x77"), 0))
            self.data += builder.build()
            self.size = len(self.data)

        def read(self, position: int, max_size: int) -> bytes:
            return self.data[position : position + max_size]

    bench = Bench(claim=False)
    bench.driver.on_committed([batch(0, [write_record(TopicRecord("former", bytes(15) + b"\x66"), 0)])])
    bench.driver.on_snapshot(Snapshot())
    assert (bench.topics, bench.core.last_stable_offset) == ({"from-snapshot"}, 99)
    bench.driver.on_committed([batch(100, [write_record(TopicRecord("later", bytes(15) + b"\x78"), 0)])])
    assert bench.topics == {"from-snapshot", "later"}


def test_the_end() -> None:
    bench = Bench(idle_ms=500)
    bench.broker()
    bench.ask(creation("orders", partitions=1, factor=1))
    bench.driver.on_shut_down()
    bench.driver.shut_down()
    bench.ask(CreateTopicsRequest(creation("late", partitions=1, factor=1).topics))
    assert [error_name(answer.topics[0].error_code) for answer in bench.answers] == ["NOT_CONTROLLER"] * 2
    assert bench.loop.timer_count == 0
