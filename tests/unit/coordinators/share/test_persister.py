"""What a persister rejects, what it sends and when it retries, and how a share partition reads its answers."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from kops.coordinators.runtime.promise import Promise
from kops.coordinators.share.batches import StateBatch
from kops.coordinators.share.key import SharePartitionKey
from kops.coordinators.share.partition.persisting import PersistedState, SinglePartitions, StateWrite
from kops.coordinators.share.persister.calls import Node
from kops.coordinators.share.persister.default import DefaultPersister
from kops.coordinators.share.persister.manager import Lookup, StateManager, StateRequest
from kops.coordinators.share.persister.no_op import NoOpPersister
from kops.coordinators.share.persister.persister import check_request
from kops.errors import ApiError, KopsError
from kops.protocol.errors import by_name
from kops.protocol.messages import delete_share_group_state_request as delete_request
from kops.protocol.messages import delete_share_group_state_response as delete_response
from kops.protocol.messages import read_share_group_state_request as read_request
from kops.protocol.messages import read_share_group_state_response as read_response
from kops.protocol.messages import read_share_group_state_summary_request as summary_request
from kops.protocol.messages import write_share_group_state_request as write_request
from kops.protocol.messages import write_share_group_state_response as write_response

TOPIC = bytes(15) + b"\1"
KEY = SharePartitionKey("group", TOPIC, 2)


class OneAnswer:
    """A persister that answers reads and writes with the given results."""

    def __init__(self, *results: read_response.ReadStateResult | write_response.WriteStateResult) -> None:
        self.results = list(results)
        self.requests: list[object] = []

    def read_state(self, request: read_request.ReadShareGroupStateRequest) -> Promise[read_response.ReadShareGroupStateResponse]:
        self.requests.append(request)
        return Promise.of(read_response.ReadShareGroupStateResponse(self.results))  # type: ignore[arg-type]

    def write_state(self, request: write_request.WriteShareGroupStateRequest) -> Promise[write_response.WriteShareGroupStateResponse]:
        self.requests.append(request)
        return Promise.of(write_response.WriteShareGroupStateResponse(self.results))  # type: ignore[arg-type]


def single(answers: OneAnswer) -> SinglePartitions:
    return SinglePartitions(answers)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("group", "topics", "message"),
    [
        ("", [], "Read share group parameters groupId cannot be null or empty."),
        ("g", [], "Read share group parameters topics data cannot be null or empty."),
        ("g", [read_request.ReadStateData(TOPIC, [])], "Read share group parameters partitions cannot be null or empty."),
        (
            "g",
            [read_request.ReadStateData(TOPIC, [read_request.PartitionData(-1, 0)])],
            "Read share group parameters has invalid partitionId - g AAAAAAAAAAAAAAAAAAAAAQ -1",
        ),
    ],
)
def test_requests_without_sense_are_refused(group: str, topics: list[read_request.ReadStateData], message: str) -> None:
    with pytest.raises(KopsError) as refused:
        check_request(read_request.ReadShareGroupStateRequest(group, topics), "Read share group")
    assert str(refused.value) == message


def test_the_state_of_one_partition_is_read_and_written() -> None:
    found = read_response.PartitionResult(2, 0, None, 5, 10, [read_response.StateBatch(10, 12, 2, 3)])
    answers = OneAnswer(read_response.ReadStateResult(TOPIC, [found]))
    assert single(answers).read_state(KEY, 7).result() == PersistedState(5, 10, [StateBatch(10, 12, 3, 2)])
    asked = answers.requests[0]
    assert isinstance(asked, read_request.ReadShareGroupStateRequest)
    assert (asked.group_id, asked.topics[0].topic_id) == ("group", TOPIC)
    assert (asked.topics[0].partitions[0].partition, asked.topics[0].partitions[0].leader_epoch) == (2, 7)

    answers = OneAnswer(write_response.WriteStateResult(TOPIC, [write_response.PartitionResult(2)]))
    assert single(answers).write_state(KEY, StateWrite(5, 7, 11, 4, [StateBatch(11, 12, 3, 2)])).result() is None
    written = answers.requests[0]
    assert isinstance(written, write_request.WriteShareGroupStateRequest)
    data = written.topics[0].partitions[0]
    assert (data.partition, data.state_epoch, data.leader_epoch, data.start_offset, data.delivery_complete_count) == (2, 5, 7, 11, 4)
    batch = data.state_batches[0]
    assert (batch.first_offset, batch.last_offset, batch.delivery_state, batch.delivery_count) == (11, 12, 2, 3)


def test_the_error_of_the_partition_is_the_error_of_the_operation() -> None:
    answers = OneAnswer(write_response.WriteStateResult(TOPIC, [write_response.PartitionResult(2, 124, "fenced")]))
    promise = single(answers).write_state(KEY, StateWrite(5, 7, 11, 4, []))
    with pytest.raises(ApiError) as failed:
        promise.result()
    assert (failed.value.name, failed.value.message) == ("FENCED_STATE_EPOCH", "fenced")


@pytest.mark.parametrize(
    "results",
    [
        [],
        [read_response.ReadStateResult(bytes(16), [read_response.PartitionResult(2)])],
        [read_response.ReadStateResult(TOPIC, [read_response.PartitionResult(3)])],
        [read_response.ReadStateResult(TOPIC, [read_response.PartitionResult(2), read_response.PartitionResult(2)])],
    ],
)
def test_the_answer_for_something_else_is_a_failure(results: list[read_response.ReadStateResult]) -> None:
    with pytest.raises(KopsError) as failed:
        single(OneAnswer(*results)).read_state(KEY, 7).result()
    assert not isinstance(failed.value, ApiError)


class Sending:
    """A DefaultPersister whose requests and timers wait in lists."""

    def __init__(self, coordinator: Node | None) -> None:
        self.coordinator = coordinator
        self.some_node: Node | None = Node(1, "some", 1)
        self.timers: list[tuple[int, Callable[[], object]]] = []
        self.manager = StateManager(
            lambda _: self.coordinator, lambda: self.some_node, lambda: None, lambda delay_ms, run: self.timers.append((delay_ms, run))
        )
        self.persister = DefaultPersister(self.manager, lambda: 0.5)

    def delete(self, *partitions: int) -> Promise[delete_response.DeleteShareGroupStateResponse]:
        data = [delete_request.PartitionData(number) for number in partitions]
        return self.persister.delete_state(delete_request.DeleteShareGroupStateRequest("g", [delete_request.DeleteStateData(TOPIC, data)]))

    def sent(self) -> list[Lookup | StateRequest]:
        return self.manager.take_requests()


def deleted(*results: tuple[int, int]) -> delete_response.DeleteShareGroupStateResponse:
    parts = [delete_response.PartitionResult(number, code) for number, code in results]
    return delete_response.DeleteShareGroupStateResponse([delete_response.DeleteStateResult(TOPIC, parts)])


def told(promise: Promise[delete_response.DeleteShareGroupStateResponse]) -> list[tuple[int, int, str | None]]:
    (topic,) = promise.result().results
    return [(each.partition, each.error_code, each.error_message) for each in topic.partitions]


def test_calls_that_wait_for_a_broker_go_together() -> None:
    sending = Sending(Node(7, "here", 1))
    promise = sending.delete(0, 1, 2)
    (first,) = sending.sent()
    assert isinstance(first, StateRequest)
    assert [call.key.partition for call in first.calls] == [0]
    assert sending.sent() == []
    sending.manager.on_answer(first, deleted((0, 0)))
    (rest,) = sending.sent()
    assert isinstance(rest, StateRequest)
    assert [call.key.partition for call in rest.calls] == [1, 2]
    assert not promise.is_done
    sending.manager.on_answer(rest, deleted((2, 0), (1, 42)))
    invalid = "Error in delete state RPC. " + by_name("INVALID_REQUEST").words
    assert told(promise) == [(0, 0, None), (1, 42, invalid), (2, 0, None)]


def test_a_call_begins_anew_with_a_look_up_until_its_attempts_are_used_up() -> None:
    sending = Sending(Node(7, "here", 1))
    promise = sending.delete(5)
    delays = []
    for _ in range(5):
        (request,) = sending.sent()
        assert isinstance(request, StateRequest)
        sending.manager.on_answer(request, deleted((5, 16)))
        if sending.timers:
            delay_ms, run = sending.timers.pop()
            delays.append(delay_ms)
            run()
    assert delays == [2000, 4000, 8000, 16_000]
    text = "Error in delete state RPC. Exhausted max retries to complete delete state RPC without success."
    assert told(promise) == [(5, 16, text)]


def test_a_coordinator_is_asked_for_where_the_metadata_has_none() -> None:
    sending = Sending(None)
    promise = sending.delete(5)
    (lookup,) = sending.sent()
    assert isinstance(lookup, Lookup)
    assert lookup.message().coordinator_keys == ["g:AAAAAAAAAAAAAAAAAAAAAQ:5"]
    sending.manager.on_lookup(lookup, ApiError("NETWORK_EXCEPTION"))
    (delay_ms, run) = sending.timers.pop()
    assert delay_ms == 2000
    sending.some_node = None
    run()
    assert sending.sent() == []
    assert told(promise) == [(5, 15, "Error in find coordinator. The coordinator is not available.")]


def test_a_persister_that_keeps_nothing() -> None:
    topics = [summary_request.ReadStateSummaryData(TOPIC, [summary_request.PartitionData(3, 0)])]
    response = NoOpPersister().read_summary(summary_request.ReadShareGroupStateSummaryRequest("g", topics)).result()
    (found,) = response.results[0].partitions
    assert (found.partition, found.error_code, found.start_offset, found.delivery_complete_count) == (3, 0, -1, -1)
