"""The transaction coordinator: producers come, are fenced, begin, end and time out; markers are sent; partitions move."""

from __future__ import annotations

import pytest

from kops.coordinators.transactions.config import TransactionConfig
from kops.coordinators.transactions.transaction_log import LoggedId, read_transaction_record
from kops.errors import ApiError
from kops.protocol.errors import by_code
from kops.records import Batch, BytesSource, scan
from kops.records.log_offsets import TopicPartition
from tests.support.parts.groups.transacting import Node, World, answer_of

A0, A1 = TopicPartition("a", 0), TopicPartition("a", 1)


def logged(world: World) -> list[tuple[str, str | None]]:
    """Return the ids and states in the log. A tombstone has the state None."""
    found = []
    for _, data in world.log.written:
        (batch,) = scan(BytesSource(data))
        assert isinstance(batch, Batch)
        for record in batch.records():
            assert record.key is not None
            read = read_transaction_record(record.key, record.value)
            assert isinstance(read, LoggedId)
            found.append((read.transactional_id, None if read.metadata is None else read.metadata.state.label))
    return found


@pytest.mark.smoke
def test_a_transaction_of_version_2() -> None:
    world = World().elect()
    assert world.init() == (1000, 0, "NONE")
    assert world.add((1000, 0), A0, A1) == "NONE"
    assert world.coordinator.verify_partitions("t", 1000, 0, [A0]) == {A0: "NONE"}
    assert world.end((1000, 0)) == ("NONE", 1000, 1)
    assert world.state() == "PrepareCommit"
    assert world.end((1000, 0))[0] == "CONCURRENT_TRANSACTIONS"
    (request,) = world.answer_markers()
    (marker,) = request.message().markers
    assert (marker.producer_id, marker.producer_epoch, marker.transaction_result) == (1000, 1, True)
    assert (marker.coordinator_epoch, marker.transaction_version) == (3, 2)
    assert world.state() == "CompleteCommit"
    assert world.end((1000, 0)) == ("NONE", 1000, 1), "a repeated request gets the same answer"
    assert world.end((1000, 1))[0] == "INVALID_TXN_STATE"
    assert [state for _, state in logged(world)] == ["Empty", "Ongoing", "PrepareCommit", "CompleteCommit"]


def test_a_transaction_of_version_1_keeps_its_epoch() -> None:
    world = World(version=1).elect()
    assert world.init() == (1000, 0, "NONE")
    assert world.end((1000, 0), version=0)[0] == "INVALID_TXN_STATE"
    assert world.add((1000, 0), A0, version=0) == "NONE"
    assert world.end((1000, 0), is_commit=False, version=0) == ("NONE", -1, -1)
    world.answer_markers()
    assert world.end((1000, 0), is_commit=False, version=0) == ("NONE", -1, -1)
    assert world.end((1000, 0), version=0)[0] == "INVALID_TXN_STATE"
    assert world.add((1000, 0), A0, version=0) == "NONE"


def test_a_second_producer_fences_the_first() -> None:
    world = World().elect()
    world.init()
    world.add((1000, 0), A0)
    assert world.init() == (-1, -1, "CONCURRENT_TRANSACTIONS"), "the open transaction is aborted first"
    assert world.state() == "PrepareAbort"
    world.answer_markers()
    producer_id, epoch, error = world.init()
    assert (producer_id, error) == (1000, "NONE")
    assert epoch > 1
    assert world.add((1000, 0), A0) == "PRODUCER_FENCED"
    assert world.end((1000, 0))[0] == "PRODUCER_FENCED"
    assert world.init((1000, 0)) == (-1, -1, "PRODUCER_FENCED")
    assert world.init((999, 0)) == (-1, -1, "PRODUCER_FENCED")


def test_the_log_says_why_a_producer_is_rejected(caplog: pytest.LogCaptureFixture) -> None:
    """The ids, epochs and states of both sides are logged, so that an error of a client can be explained later."""
    caplog.set_level("DEBUG")
    world = World().elect()
    world.init()
    known = "producer id 1000 (before: 1000), epoch 0 (before: -1), state Empty"
    assert world.end((1000, 0))[0] == "INVALID_TXN_STATE"
    assert f"commit of t by its producer with id 1000, epoch 0, TV2; it has {known}" in caplog.text
    assert world.add((1000, 5), A0) == "PRODUCER_FENCED"
    assert f"add partitions to the transaction of t for producer 1000 with epoch 5: PRODUCER_FENCED; found: {known}" in caplog.text
    assert world.init((999, 0)) == (-1, -1, "PRODUCER_FENCED")
    assert f"initialize the transaction of t for producer 999 with epoch 0: PRODUCER_FENCED; found: {known}" in caplog.text
    assert world.coordinator.verify_partitions("u", 1000, 0, [A0]) == {A0: "INVALID_PRODUCER_ID_MAPPING"}
    assert "verify the transaction of u for producer 1000 with epoch 0: INVALID_PRODUCER_ID_MAPPING; found: nothing" in caplog.text


def test_a_producer_goes_on_with_the_epoch_it_has() -> None:
    world = World().elect()
    world.init()
    assert world.init((1000, 0)) == (1000, 1, "NONE")
    assert world.init((1000, 0)) == (1000, 1, "NONE"), "it did not get the answer"


def test_the_epochs_are_used_up() -> None:
    world = World().elect()
    world.init()
    known = world.manager.get("t")
    assert known is not None
    known.metadata.producer_epoch = 2**15 - 2
    assert world.add((1000, 2**15 - 2), A0) == "NONE"
    assert world.end((1000, 2**15 - 2)) == ("NONE", 1001, 0)
    world.answer_markers()
    assert world.end((1000, 2**15 - 2)) == ("NONE", 1001, 0), "a repeated request over the change of the id"
    known.metadata.producer_epoch = 2**15 - 2
    assert world.init() == (1002, 0, "NONE")


@pytest.mark.parametrize(
    ("name", "timeout_ms", "options", "error"),
    [
        ("", 60_000, {}, "INVALID_REQUEST"),
        ("t", 0, {}, "INVALID_TRANSACTION_TIMEOUT"),
        ("t", 900_001, {}, "INVALID_TRANSACTION_TIMEOUT"),
        ("t", 60_000, {"enables_two_phase_commit": True}, "TRANSACTIONAL_ID_AUTHORIZATION_FAILED"),
        ("t", 60_000, {"keeps_prepared": True}, "UNSUPPORTED_VERSION"),
    ],
)
def test_who_is_refused(name: str, timeout_ms: int, options: dict[str, bool], error: str) -> None:
    assert World().elect().init(None, name=name, timeout_ms=timeout_ms, **options) == (-1, -1, error)


def test_two_phase_commit_has_no_time_out() -> None:
    world = World(config=TransactionConfig(two_phase_commit_enable=True)).elect()
    assert world.init(timeout_ms=5, enables_two_phase_commit=True) == (1000, 0, "NONE")
    world.add((1000, 0), A0)
    world.now_ms += 10**12
    world.coordinator.abort_timed_out()
    assert world.state() == "Ongoing"


def test_what_is_open_too_long_is_aborted() -> None:
    world = World().elect()
    world.init()
    world.add((1000, 0), A0)
    world.now_ms += 60_000
    world.coordinator.abort_timed_out()
    assert world.state() == "Ongoing"
    world.now_ms += 1
    world.coordinator.abort_timed_out()
    assert world.state() == "PrepareAbort"
    world.answer_markers()
    assert world.state() == "CompleteAbort"
    assert world.add((1000, 0), A0) == "PRODUCER_FENCED"
    assert world.end((1000, 0))[0] == "INVALID_TXN_STATE"


def test_a_transaction_is_ending_until_its_end_is_in_the_log() -> None:
    world = World().elect()
    ended: list[str] = []
    world.markers.on_complete = ended.append
    assert not world.coordinator.is_ending("t")
    world.init()
    world.add((1000, 0), A0)
    assert not world.coordinator.is_ending("t")
    world.end((1000, 0))
    assert world.coordinator.is_ending("t")
    world.log.is_parking = True
    world.answer_markers()
    assert world.coordinator.is_ending("t")
    assert ended == []
    world.log.end_next()
    assert not world.coordinator.is_ending("t")
    assert ended == ["t"]


def test_the_end_leaves_when_the_decision_is_written() -> None:
    world = World().elect()
    world.init()
    world.add((1000, 0), A0)
    world.log.is_parking = True
    assert world.end((1000, 0)) is None
    assert world.markers.take_requests() == [], "no marker before the decision is durable"
    assert world.init()[2] == "CONCURRENT_TRANSACTIONS"
    world.log.end_next("NOT_ENOUGH_REPLICAS")
    assert world.state() == "Ongoing"
    assert world.end((1000, 0)) is None
    world.log.end_next()
    assert len(world.markers.take_requests()) == 1


@pytest.mark.parametrize(
    ("error", "told"),
    [
        ("REQUEST_TIMED_OUT", "COORDINATOR_NOT_AVAILABLE"),
        ("NOT_ENOUGH_REPLICAS_AFTER_APPEND", "COORDINATOR_NOT_AVAILABLE"),
        ("NOT_LEADER_OR_FOLLOWER", "NOT_COORDINATOR"),
        ("KAFKA_STORAGE_ERROR", "NOT_COORDINATOR"),
        ("MESSAGE_TOO_LARGE", "UNKNOWN_SERVER_ERROR"),
        ("INVALID_PRODUCER_EPOCH", "INVALID_PRODUCER_EPOCH"),
    ],
)
def test_what_an_append_that_failed_means(error: str, told: str) -> None:
    world = World().elect()
    world.log.error = error
    assert world.init() == (-1, -1, told)
    world.log.error = "NONE"
    assert world.init()[2] == "NONE"


def test_the_coordinator_moves_while_it_writes() -> None:
    world = World().elect(3)
    world.init()
    world.log.is_parking = True
    assert world.add((1000, 0), A0) is None
    world.coordinator.resign(0, 4)
    told: list[str] = []
    world.coordinator.add_partitions("t", 1000, 0, [A0], 2, told.append)
    assert told == ["NOT_COORDINATOR"]
    world.elect(5)
    world.log.end_next()
    assert world.manager.get("t") is None


def test_markers_are_sent_again_after_a_move() -> None:
    world = World().elect(3)
    world.init()
    world.add((1000, 0), A0)
    world.end((1000, 0))
    (lost,) = world.markers.take_requests()
    load = world.coordinator.begin_load(0, 4)
    with pytest.raises(ApiError):
        world.manager.get("t")
    for _, data in world.log.written:
        (batch,) = scan(BytesSource(data))
        assert isinstance(batch, Batch)
        for record in batch.records():
            assert record.key is not None
            load.read(record.key, record.value)
    world.coordinator.end_load(load)
    world.markers.on_answer(lost, answer_of(lost))
    assert world.state() == "PrepareCommit", "an answer to the old coordinator changes nothing"
    (request,) = world.answer_markers()
    assert request.message().markers[0].coordinator_epoch == 4
    assert world.state() == "CompleteCommit"


def test_markers_that_fail_are_sent_again() -> None:
    world = World().elect()
    world.init()
    world.add((1000, 0), A0, A1)
    world.leaders = {A0: Node(1), A1: Node(2)}
    world.end((1000, 0), is_commit=False)
    first, second = sorted(world.markers.take_requests(), key=lambda one: one.broker.id)
    world.markers.on_answer(first, answer_of(first))
    world.markers.on_answer(second, None)
    assert world.woken[-1] in (True, False)
    world.leaders = {A1: Node(-1)}
    (again,) = world.markers.take_requests()
    world.markers.on_answer(again, answer_of(again, "NOT_LEADER_OR_FOLLOWER"))
    assert world.markers.take_requests() == [], "nobody can be reached"
    world.leaders = {A1: Node(3)}
    (last,) = world.markers.take_requests()
    assert last.broker.id == 3
    world.markers.on_answer(last, answer_of(last))
    assert world.state() == "CompleteAbort"


def test_markers_that_a_broker_refuses_wait_a_little() -> None:
    world = World().elect()
    world.init()
    world.add((1000, 0), A0)
    world.end((1000, 0))
    (request,) = world.markers.take_requests()
    world.woken.clear()
    world.markers.on_answer(request, answer_of(request, "NOT_ENOUGH_REPLICAS"))
    assert world.woken == [True], "only the pause wakes"
    (request,) = world.markers.take_requests()
    world.init(name="u")
    world.add((1001, 0), A0, name="u")
    world.end((1001, 0), name="u")
    world.woken.clear()
    world.markers.on_answer(request, answer_of(request, "NOT_ENOUGH_REPLICAS"))
    assert sorted(world.woken) == [False, True], "new markers go out at once"


def test_partitions_that_were_deleted_need_no_marker() -> None:
    world = World().elect()
    world.init()
    world.add((1000, 0), A0)
    world.leaders = {A0: None}
    world.end((1000, 0))
    assert world.state() == "CompleteCommit"


@pytest.mark.parametrize("error", ["INVALID_PRODUCER_EPOCH", "TRANSACTION_COORDINATOR_FENCED"])
def test_a_fenced_coordinator_gives_up(error: str) -> None:
    world = World().elect()
    world.init()
    world.add((1000, 0), A0)
    world.end((1000, 0))
    world.answer_markers(error)
    assert world.markers.pending_count == 0
    assert world.state() == "PrepareCommit"


def test_the_end_is_written_again() -> None:
    world = World().elect()
    world.init()
    world.add((1000, 0), A0)
    world.end((1000, 0))
    world.log.error = "NOT_ENOUGH_REPLICAS"
    world.answer_markers()
    assert world.state() == "PrepareCommit"
    world.log.error = "NONE"
    assert world.markers.take_requests() == []
    assert world.state() == "CompleteCommit"


def test_ids_expire_in_batches() -> None:
    world = World().elect()
    names = [f"id-{number:04}" for number in range(40)]
    for name in names:
        world.init(name=name)
    world.init(name="open")
    known = world.manager.get("open")
    assert known is not None
    world.add((known.metadata.producer_id, 0), A0, name="open")
    world.log.written.clear()
    world.log.max_size = 200
    world.now_ms += 604_800_000
    world.manager.remove_expired()
    assert all(len(data) <= 200 for _, data in world.log.written)
    assert len(world.log.written) > 3
    assert logged(world) == [(name, None) for name in names]
    assert world.manager.get("id-0000") is None
    assert world.state("open") == "Ongoing"


def test_lists_and_descriptions() -> None:
    world = World().elect()
    world.init(name="one")
    world.init(name="two")
    world.add((1001, 0), A1, A0, name="two")
    world.now_ms += 1000
    listed = world.coordinator.list_transactions
    assert [each.transactional_id for each in listed().transaction_states] == ["one", "two"]
    assert [each.transactional_id for each in listed(states=["Ongoing"]).transaction_states] == ["two"]
    assert listed(states=["Nonsense"]).unknown_state_filters == ["Nonsense"]
    assert [each.transactional_id for each in listed(producer_ids=[1000]).transaction_states] == ["one"]
    assert [each.transactional_id for each in listed(duration_ms=1000).transaction_states] == ["one"]
    assert [each.transactional_id for each in listed(pattern="t.*").transaction_states] == ["two"]
    with pytest.raises(ApiError, match="not a valid regular expression"):
        listed(pattern="(")
    described = world.coordinator.describe("two")
    assert (described.transaction_state, described.producer_id, described.producer_epoch) == ("Ongoing", 1001, 0)
    assert [(topic.topic, sorted(topic.partitions)) for topic in described.topics] == [("a", [0, 1])]
    assert by_code(world.coordinator.describe("three").error_code).name == "TRANSACTIONAL_ID_NOT_FOUND"
    assert by_code(world.coordinator.describe("").error_code).name == "INVALID_REQUEST"
    world.coordinator.begin_load(0, 4)
    assert by_code(listed().error_code).name == "COORDINATOR_LOAD_IN_PROGRESS"


def test_partitions_of_ids() -> None:
    """The partitions follow Java's hash, also for the smallest int."""
    manager = World(partition_count=50).manager
    assert [manager.partition_for(name) for name in ("t", "my-txn", "polygenelubricants", "")] == [16, 45, 0, 0]
