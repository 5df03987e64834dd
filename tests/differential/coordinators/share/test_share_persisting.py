"""What a share partition asks its persister, and what it makes of the answers, compared with Kafka's SharePartition: every error code,
and answers for something else.
"""

from __future__ import annotations

from typing import Any

import pytest
from py4j.protocol import Py4JJavaError

from kops.coordinators.runtime.promise import Promise
from kops.coordinators.share.partition.acknowledging import AcknowledgementBatch
from kops.coordinators.share.partition.persisting import SinglePartitions
from kops.errors import ApiError, KopsError
from kops.protocol.declaration import Message
from kops.protocol.errors import ERRORS, by_name
from kops.protocol.json_text import uuid_text
from kops.protocol.messages import read_share_group_state_response as reading
from kops.protocol.messages import write_share_group_state_response as writing
from kops.protocol.messages.read_share_group_state_request import ReadShareGroupStateRequest
from kops.protocol.messages.write_share_group_state_request import WriteShareGroupStateRequest
from kops.records.build import empty_batch
from tests.support.kafka.oracle import Oracle
from tests.support.kafka.twins.java_coordinators import KAFKA
from tests.support.kafka.twins.share_partition_twins import GROUP, LEADER_EPOCH, PARTITION, TOPIC_ID, JavaSide, Settings, Twins, same

CODES = [*(each.code for each in ERRORS if each.code), 9999]
MESSAGES = (None, "", "why")
OTHER = bytes(range(1, 17))


class Asking:
    """A persister of kops that keeps its requests until the test answers."""

    def __init__(self) -> None:
        self.requests: list[tuple[Any, Promise[Any]]] = []

    def read_state(self, request: ReadShareGroupStateRequest) -> Promise[Any]:
        self.requests.append((request, Promise()))
        return self.requests[-1][1]

    def write_state(self, request: WriteShareGroupStateRequest) -> Promise[Any]:
        self.requests.append((request, Promise()))
        return self.requests[-1][1]


class Pair:
    """Both share partitions with real requests to the persister."""

    def __init__(self, side: JavaSide) -> None:
        self.side, self.asking = side, Asking()
        persister: Any = SinglePartitions(self.asking)  # type: ignore[arg-type]
        self.twins = Twins(side, Settings(100, 5, 1000), persister=persister)
        self.theirs = self.twins.theirs

    def answer(self, response: Message, name: str) -> None:
        """Let both persisters answer. Kafka compares topic ids by identity, so a right id has to be its own object."""
        side, twins = self.side, self.twins
        result_class = side.oracle.java_class(f"{KAFKA}server.share.persister.{name}ShareGroupStateResult")
        found = self._from(result_class, response)
        future = twins.next_future.get()
        twins.next_future.set(side.jvm.java.util.concurrent.CompletableFuture())
        self.asking.requests.pop()[1].complete(response)
        future.complete(found)

    def _from(self, result_class: Any, response: Any) -> Any:
        side = self.side
        method = getattr(result_class, "from")
        topics = side.jvm.java.util.ArrayList()
        for topic, given in zip(method(side.java.message(response, 0)).topicsData(), response.results, strict=True):
            topic_id = self.twins.topic_id if given.topic_id == TOPIC_ID else topic.topicId()
            topics.add(side.topic_data(topic_id, topic.partitions()))
        builder = side.oracle.java_class(f"{result_class._fqn}$Builder")
        return builder().setTopicsData(topics).build()

    def asked(self) -> Any:
        """Return Kafka's request for its only partition."""
        data = self.twins.asked.poll()[0].groupTopicPartitionData()
        (topic,) = list(data.topicsData())
        (partition,) = list(topic.partitions())
        assert self.twins.asked.isEmpty()
        same((data.groupId(), topic.topicId().toString(), partition.partition()), (GROUP, self.twins.topic_id.toString(), PARTITION))
        return partition


def outcome(promise: Promise[Any], future: Any) -> tuple[str, str | None]:
    """Return how both have ended: `NONE`, or an error's name and message.

    The persister of kops does not know the topic's name, so its own error names the partition by another key.
    """
    theirs: tuple[str, str | None] = ("NONE", None)
    try:
        future.get()
    except Py4JJavaError as caught:
        thrown = caught.java_exception.getCause()
        kind = str(thrown.getClass().getSimpleName()).replace("IllegalStateException", "UnknownServerException")
        theirs = kind, thrown.getMessage()
    ours: tuple[str, str | None] = ("NONE", None)
    try:
        promise.result()
    except ApiError as error:
        ours = by_name(error.name).exception, error.message or None
    except KopsError as error:
        ours = "UnknownServerException", str(error).replace(f"{GROUP}:{uuid_text(TOPIC_ID)}:", f"{GROUP}-{uuid_text(TOPIC_ID)}:orders-")
    same((ours[0], ours[1] or None), (theirs[0], theirs[1] or None))
    return ours


def wrong(topic: Any, partition: Any) -> list[list[Any]]:
    """Return the results of answers for something else. `topic` and `partition` make results."""
    return [
        [],
        [topic(OTHER, [partition(PARTITION)])],
        [topic(TOPIC_ID, [partition(PARTITION + 1)])],
        [topic(TOPIC_ID, [])],
        [topic(TOPIC_ID, [partition(PARTITION), partition(PARTITION + 1)])],
        [topic(TOPIC_ID, [partition(PARTITION)]), topic(OTHER, [partition(PARTITION)])],
    ]


@pytest.fixture(scope="module")
def side(oracle: Oracle) -> JavaSide:
    return JavaSide(oracle)


def initialize(pair: Pair, results: list[reading.ReadStateResult]) -> tuple[str, str | None]:
    mine = pair.twins.ours.maybe_initialize()
    theirs = pair.side.call(pair.theirs, "maybeInitialize")
    ((request, _),) = pair.asking.requests
    assert isinstance(request, ReadShareGroupStateRequest)
    same([request.topics[0].partitions[0].leader_epoch], [pair.asked().leaderEpoch()])
    assert (request.group_id, request.topics[0].topic_id) == (GROUP, TOPIC_ID)
    assert request.topics[0].partitions[0].partition == PARTITION
    pair.answer(reading.ReadShareGroupStateResponse(results), "Read")
    found = outcome(mine, theirs)
    again = pair.twins.ours.maybe_initialize(), pair.side.call(pair.theirs, "maybeInitialize")
    assert (outcome(*again)[0] == "NONE") == (found[0] == "NONE")
    return found


@pytest.mark.slow
def test_answers_to_a_read(side: JavaSide) -> None:
    seen = set()
    for code in CODES:
        result = reading.PartitionResult(PARTITION, code, MESSAGES[code % 3])
        seen.add(initialize(Pair(side), [reading.ReadStateResult(TOPIC_ID, [result])])[0])
    assert {"CoordinatorNotAvailableException", "NotLeaderOrFollowerException", "UnknownServerException"} < seen
    for results in wrong(reading.ReadStateResult, reading.PartitionResult):
        assert initialize(Pair(side), results)[0] == "UnknownServerException"
    batches = [reading.StateBatch(10, 12, 2, 3), reading.StateBatch(13, 13, 0, 1), reading.StateBatch(16, 20, 4, 5)]
    pair = Pair(side)
    right = reading.PartitionResult(PARTITION, 0, None, 5, 10, batches)
    assert initialize(pair, [reading.ReadStateResult(TOPIC_ID, [right])])[0] == "NONE"
    pair.twins.check()


def begun(side: JavaSide) -> Pair:
    """Return share partitions with ten acquired records."""
    pair = Pair(side)
    right = reading.PartitionResult(PARTITION, 0, None, 5, 0)
    assert initialize(pair, [reading.ReadStateResult(TOPIC_ID, [right])])[0] == "NONE"
    pair.twins.acquire("m", False, 100, 100, 0, empty_batch(base_offset=0, last_offset=9), ())
    return pair


def write(pair: Pair, results: list[writing.WriteStateResult]) -> tuple[str, str | None]:
    """Acknowledge some records. The write gets an answer."""
    twins, side = pair.twins, pair.side
    mine = twins.ours.acknowledge("m", [AcknowledgementBatch(0, 4, [1]), AcknowledgementBatch(5, 6, [3])])
    batches = side.jvm.java.util.ArrayList()
    for first, last, kind in ((0, 4, 1), (5, 6, 3)):
        batches.add(side.acknowledgement(side.java.long(first), side.java.long(last), side.bytes([kind])))
    theirs = side.call(pair.theirs, "acknowledge", "m", batches)
    ((request, _),) = pair.asking.requests
    assert isinstance(request, WriteShareGroupStateRequest)
    assert (request.group_id, request.topics[0].topic_id) == (GROUP, TOPIC_ID)
    data, asked = request.topics[0].partitions[0], pair.asked()
    ours = data.partition, data.state_epoch, data.leader_epoch, data.start_offset, data.delivery_complete_count
    same(ours, (PARTITION, asked.stateEpoch(), asked.leaderEpoch(), asked.startOffset(), asked.deliveryCompleteCount()))
    assert data.leader_epoch == LEADER_EPOCH
    same(
        [(each.first_offset, each.last_offset, each.delivery_state, each.delivery_count) for each in data.state_batches],
        [(each.firstOffset(), each.lastOffset(), each.deliveryState(), each.deliveryCount()) for each in asked.stateBatches()],
    )
    pair.answer(writing.WriteShareGroupStateResponse(results), "Write")
    found = outcome(mine, theirs)
    twins.check()
    return found


@pytest.mark.slow
def test_answers_to_a_write(side: JavaSide) -> None:
    """After an error, the records are as before, so that the next acknowledgement of the same ones is tried."""
    pair = begun(side)
    seen = set()
    for code in CODES:
        result = writing.PartitionResult(PARTITION, code, MESSAGES[code % 3])
        seen.add(write(pair, [writing.WriteStateResult(TOPIC_ID, [result])])[0])
    assert {"CoordinatorNotAvailableException", "NotLeaderOrFollowerException", "UnknownServerException"} < seen
    for results in wrong(writing.WriteStateResult, writing.PartitionResult):
        assert write(pair, results)[0] == "UnknownServerException"
    assert write(pair, [writing.WriteStateResult(TOPIC_ID, [writing.PartitionResult(PARTITION)])])[0] == "NONE"
