"""What a persister refuses, and how a share partition reads its answers."""

from __future__ import annotations

import pytest

from kops.coordinators.runtime.promise import Promise
from kops.coordinators.share.batches import StateBatch
from kops.coordinators.share.key import SharePartitionKey
from kops.coordinators.share.partition.persisting import PersistedState, SinglePartitions, StateWrite
from kops.coordinators.share.persister.persister import check_request
from kops.errors import ApiError, KopsError
from kops.protocol.messages import read_share_group_state_request as read_request
from kops.protocol.messages import read_share_group_state_response as read_response
from kops.protocol.messages import write_share_group_state_request as write_request
from kops.protocol.messages import write_share_group_state_response as write_response

TOPIC = bytes(15) + b"\1"
KEY = SharePartitionKey("group", TOPIC, 2)


class OneAnswer:
    """Reads and writes get the answers it has."""

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
