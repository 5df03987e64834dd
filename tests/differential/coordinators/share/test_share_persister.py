"""What the persister sends, when it retries and what it answers in the end, compared with Kafka's PersisterStateManager."""

from __future__ import annotations

import random
from typing import Any

import pytest

from kops.coordinators.share.key import SharePartitionKey
from kops.coordinators.share.persister.calls import DELETE, INITIALIZE, MAX_ATTEMPTS, READ, SUMMARY, WRITE, Node, Rpc
from kops.coordinators.share.persister.manager import Lookup
from kops.coordinators.share.responses import MESSAGES
from kops.errors import ApiError
from kops.protocol.declaration import Message
from kops.protocol.errors import by_name
from kops.protocol.json_text import uuid_text
from kops.protocol.messages import delete_share_group_state_request as deleting
from kops.protocol.messages import initialize_share_group_state_request as initializing
from kops.protocol.messages import read_share_group_state_request as reading
from kops.protocol.messages import read_share_group_state_summary_request as summing
from kops.protocol.messages import write_share_group_state_request as writing
from tests.support.kafka.oracle import Oracle
from tests.support.kafka.twins.persister_twins import Asked, PersisterTwins, lookup_answer
from tests.support.kafka.twins.share_partition_twins import JavaSide

RPCS = (INITIALIZE, READ, WRITE, DELETE, SUMMARY)
TOPICS = [bytes([number]) * 16 for number in (1, 7, 200)]
NODES = [Node(1, "one", 1), Node(2, "two", 2)]
RETRIABLE = ("COORDINATOR_NOT_AVAILABLE", "COORDINATOR_LOAD_IN_PROGRESS", "NOT_COORDINATOR", "UNKNOWN_TOPIC_OR_PARTITION")
CODES = [by_name(name).code for name in MESSAGES]
FAILURES = ("NETWORK_EXCEPTION", "REQUEST_TIMED_OUT", "UNSUPPORTED_VERSION", "UNKNOWN_SERVER_ERROR")
STEPS = 60


def begin(twins: PersisterTwins, rpc: Rpc, key: SharePartitionKey, rng: random.Random) -> None:
    """Begin a new call."""
    state, leader, offset, count = (rng.randrange(-1, 50) for _ in range(4))
    long = twins.java.long
    number = key.partition
    if rpc is INITIALIZE:
        twins.enqueue(rpc, key, initializing.PartitionData(number, state, offset), (state, long(offset)))
    elif rpc is WRITE:
        data = writing.PartitionData(number, state, leader, offset, count, [])
        twins.enqueue(rpc, key, data, (state, leader, long(offset), count, twins.side.list_of()))
    elif rpc is READ:
        twins.enqueue(rpc, key, reading.PartitionData(number, leader), (leader,))
    elif rpc is SUMMARY:
        twins.enqueue(rpc, key, summing.PartitionData(number, leader), (leader,))
    else:
        twins.enqueue(rpc, key, deleting.PartitionData(number), ())


def some_lookup_answer(asked: Lookup, rng: random.Random) -> Message | ApiError:
    if rng.random() < 0.2:
        return ApiError(rng.choice(FAILURES))
    if rng.random() < 0.05:
        return lookup_answer(asked.call.key, [(NODES[0], 0, None)] * rng.choice((0, 2)))
    code = rng.choice(CODES) if rng.random() < 0.3 else 0
    return lookup_answer(asked.call.key, [(rng.choice(NODES), code, rng.choice((None, "", "why")))])


def some_answer(asked: Asked, rng: random.Random) -> Message | ApiError:
    ours = asked.ours
    if isinstance(ours, Lookup):
        return some_lookup_answer(ours, rng)
    if rng.random() < 0.2:
        return ApiError(rng.choice(FAILURES))
    results: dict[bytes, list[Any]] = {}
    for call in ours.calls:
        if rng.random() < 0.95:
            told = (rng.choice(CODES), rng.choice((None, "", "why"))) if rng.random() < 0.4 else (0, None)
            results.setdefault(call.key.topic_id, []).append(ours.rpc.api.partition_result(call.key.partition, *told))
    answer: Message = ours.rpc.api.of_results(results)
    return answer


@pytest.fixture(scope="module")
def side(oracle: Oracle) -> JavaSide:
    return JavaSide(oracle)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(6))
def test_random_calls_and_answers(oracle: Oracle, side: JavaSide, seed: int) -> None:
    rng = random.Random(seed)
    twins = PersisterTwins(oracle, side)
    keys = [SharePartitionKey(group, topic, number) for group in ("g", "h") for topic in TOPICS for number in range(2)]
    for _ in range(STEPS):
        step = rng.random()
        if step < 0.35:
            for _ in range(rng.randrange(1, 4)):
                begin(twins, rng.choice(RPCS[:2] if seed % 2 else RPCS), rng.choice(keys), rng)
        elif step < 0.85 and twins.outstanding:
            asked = rng.choice(twins.outstanding)
            twins.answer(asked, some_answer(asked, rng))
        elif twins.timers:
            twins.run_timer(rng.randrange(len(twins.timers)))
        twins.some_node = None if rng.random() < 0.05 else NODES[0]
        twins.pump()


@pytest.mark.slow
@pytest.mark.parametrize("rpc", RPCS, ids=lambda rpc: rpc.words)
def test_every_error_until_the_attempts_are_exhausted(oracle: Oracle, side: JavaSide, rpc: Rpc) -> None:
    """First look-ups, then requests get each error again and again, until the call ends."""
    rng = random.Random(0)
    twins = PersisterTwins(oracle, side)
    key = SharePartitionKey("g", TOPICS[0], 1)
    for is_lookup in (True, False):
        for error in (*MESSAGES, *(f"on the way: {name}" for name in FAILURES)):
            begin(twins, rpc, key, rng)
            asked_for_it = 0
            while twins.calls:
                twins.pump()
                if not twins.calls:
                    break
                if not twins.outstanding:
                    twins.run_timer(0)
                    continue
                (asked,) = twins.outstanding
                if isinstance(asked.ours, Lookup) is not is_lookup:
                    twins.answer(asked, lookup_answer(key, [(NODES[1], 0, None)]))
                    continue
                asked_for_it += 1
                twins.answer(asked, one_error(asked, key, error))
            is_retriable = error in RETRIABLE or (error.endswith(("NETWORK_EXCEPTION", "REQUEST_TIMED_OUT")) and " " in error)
            assert asked_for_it == (MAX_ATTEMPTS if is_retriable else 1), (error, is_lookup)


@pytest.mark.slow
def test_results_of_many_partitions_are_joined_in_kafkas_order(oracle: Oracle, side: JavaSide) -> None:
    rng = random.Random(1)
    twins = PersisterTwins(oracle, side)
    topics = [rng.randbytes(16) for _ in range(5)]
    data = [deleting.DeleteStateData(topic, [deleting.PartitionData(number) for number in rng.sample(range(100), 20)]) for topic in topics]
    mine, theirs = twins.delete(deleting.DeleteShareGroupStateRequest("g", data))
    twins.pump()
    while twins.outstanding:
        asked = twins.outstanding[0]
        if isinstance(asked.ours, Lookup):
            twins.answer(asked, lookup_answer(asked.ours.call.key, [(NODES[0], 0, None)]))
        else:
            told = {topic: [DELETE.api.partition_result(number, 42, "no") for number in range(100)] for topic in topics}
            twins.answer(asked, DELETE.api.of_results(told))
        twins.pump()
    text = "Error in delete state RPC. no"
    assert {(one.error_code, one.error_message) for topic in mine.result().results for one in topic.partitions} == {(42, text)}
    expected = [
        (str(topic.topicId()), [(one.partition(), one.errorCode(), one.errorMessage()) for one in topic.partitions()])
        for topic in theirs.get().topicsData()
    ]
    found = [
        (uuid_text(topic.topic_id), [(one.partition, one.error_code, one.error_message) for one in topic.partitions])
        for topic in mine.result().results
    ]
    assert found == expected


def one_error(asked: Asked, key: SharePartitionKey, error: str) -> Message | ApiError:
    if error.startswith("on the way"):
        return ApiError(error.split()[-1])
    code = by_name(error).code
    if isinstance(asked.ours, Lookup):
        return lookup_answer(key, [(NODES[1], code, None)])
    api: Any = asked.ours.rpc.api
    answer: Message = api.single(key.topic_id, api.partition_result(key.partition, code, None))
    return answer
