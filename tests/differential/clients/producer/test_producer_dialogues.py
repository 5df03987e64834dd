"""The producer's core beside Kafka's Sender, RecordAccumulator and TransactionManager: random dialogues with failing brokers.

`--seeds N` runs more lives. A failure prints the whole dialogue; the same seed repeats it.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import cast

import pytest

from kops.client.errors import KafkaTimeoutError
from kops.errors import ApiError
from kops.protocol.errors import by_code, by_name
from kops.protocol.messages import InitProducerIdResponse, ProduceRequest, ProduceResponse
from kops.protocol.messages.produce_response import PartitionProduceResponse, TopicProduceResponse
from kops.records import read_batches
from tests.support.kafka.oracle import Oracle
from tests.support.kafka.twins.producer_twins import Life, Twins, api_versions, metadata

KINDS = ("plain", "idempotent", "transactional")
STEPS = 120
CODES = [by_code(code).name for code in range(-1, 134) if code and by_code(code).code == code]
LIKELY = [
    "NOT_LEADER_OR_FOLLOWER", "UNKNOWN_PRODUCER_ID", "OUT_OF_ORDER_SEQUENCE_NUMBER", "MESSAGE_TOO_LARGE", "DUPLICATE_SEQUENCE_NUMBER",
    "TOPIC_AUTHORIZATION_FAILED", "NOT_ENOUGH_REPLICAS", "CORRUPT_MESSAGE", "INVALID_RECORD", "COORDINATOR_NOT_AVAILABLE",
    "CONCURRENT_TRANSACTIONS", "NOT_COORDINATOR", "TRANSACTION_ABORTABLE", "COORDINATOR_LOAD_IN_PROGRESS", "OPERATION_NOT_ATTEMPTED",
    "GROUP_AUTHORIZATION_FAILED", "UNKNOWN_MEMBER_ID", "INVALID_TXN_STATE", "TRANSACTIONAL_ID_AUTHORIZATION_FAILED",
]  # fmt: skip
"""Errors after which a producer goes on, or of which it makes much."""


def life(oracle: Oracle, kind: str, seed: int) -> Life:
    """Run one life from its beginning to its end."""
    dice = random.Random(f"{kind} {seed}")
    settings: dict[str, object] = {
        "retries": dice.choice((2**31 - 1, 2**31 - 1, 2, 0 if kind == "plain" else 1)),
        "max.in.flight.requests.per.connection": dice.choice((5, 5, 1)),
        "max.request.size": dice.choice((100_000, 600)),
    }
    if kind == "plain":
        settings |= {"enable.idempotence": False, "acks": dice.choice((-1, 1, 0))}
    elif kind == "transactional":
        settings |= {"transactional.id": "x"}
    has_ids = dice.random() < 0.5
    twins = Twins(oracle, settings, has_ids=has_ids)
    if kind == "transactional":
        twins.learn_versions(api_versions(0, dice.choice((0, 2)), init_version=dice.choice((5, 5, 2)), has_ids=has_ids))
    errors = LIKELY if dice.random() < 0.8 else CODES
    lived = Life(twins, dice, errors=errors, trouble=dice.choice((0, 0.1, 0.4)))
    if all(lived.step() for _ in range(STEPS)):
        lived.end()
    return lived


def live(oracle: Oracle, kind: str, seeds: range) -> None:
    """Run many lives, and check that something has happened in them."""
    lives = [life(oracle, kind, seed) for seed in seeds]
    assert sum(one.twins.sent for one in lives) > 5 * len(lives)
    assert sum(len(one.twins.deliveries) for one in lives) > 5 * len(lives)
    assert sum(one.twins.has_ended for one in lives) < len(lives) / 4 + 1


@pytest.mark.parametrize("kind", KINDS)
def test_lives(oracle: Oracle, kind: str) -> None:
    live(oracle, kind, range(4))


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
def test_many_lives(oracle: Oracle, kind: str, seed_count: int | None) -> None:
    live(oracle, kind, range(1000, 1000 + (seed_count or 25)))


@pytest.mark.slow
@pytest.mark.parametrize(("kind", "seed"), [("idempotent", 20017), ("idempotent", 20134), ("transactional", 21785)])
def test_lives_that_once_differed(oracle: Oracle, kind: str, seed: int) -> None:
    """A batch is too large whose numbers were changed while it was in flight; the producer ends while a new epoch is due; an abort needs a
    new epoch before there is a producer id."""
    life(oracle, kind, seed)


@pytest.mark.slow
@pytest.mark.parametrize("transaction_version", [0, 2])
def test_every_error(oracle: Oracle, transaction_version: int, seed_count: int | None) -> None:
    """In each life one kind of error occurs. By default every sixth code is tested."""
    for code in CODES if seed_count else CODES[transaction_version // 2 :: 6]:
        dice = random.Random(f"{code} {transaction_version}")
        twins = Twins(oracle, {"transactional.id": "x"})
        twins.learn_versions(api_versions(0, transaction_version))
        lived = Life(twins, dice, errors=[code], trouble=0.3)
        if all(lived.step() for _ in range(40)):
            lived.end()


def sent_batches(twins: Twins) -> list[tuple[int, int, int]]:
    """Return (epoch, first number, number of records) of the batch in each request in flight."""
    found = []
    for _, outgoing, _ in twins.in_flight:
        assert isinstance(outgoing.message, ProduceRequest)
        (batch,) = read_batches(bytes(cast(bytes, outgoing.message.topic_data[0].partition_data[0].records)))
        found.append((batch.producer_epoch, batch.base_sequence, batch.count or 0))
    return found


def produced(twins: Twins, offset: int, error: str = "NONE") -> ProduceResponse:
    """Return the answer for the first batch in flight."""
    (_, outgoing, _), *_ = twins.in_flight
    assert isinstance(outgoing.message, ProduceRequest)
    row = PartitionProduceResponse(index=0, error_code=by_name(error).code, base_offset=offset, log_start_offset=0)
    return ProduceResponse(responses=[TopicProduceResponse(topic_id=outgoing.message.topic_data[0].topic_id, partition_responses=[row])])


def unanswered(twins: Twins, counts: Sequence[int]) -> None:
    """Let the producer have a producer id, one acknowledged record, and batches of these numbers of records that get no answer."""
    twins.run()
    twins.answer(0, InitProducerIdResponse(producer_id=7, producer_epoch=0))
    for count in (1, *counts):
        for _ in range(count):
            twins.send("a", 0, b"value")
        twins.advance(5)
        twins.run()
        if sent_batches(twins) == [(0, 0, 1)]:
            twins.answer(0, produced(twins, 0))
    assert len(twins.in_flight) == len(counts)
    while twins.in_flight:
        twins.answer(0, ApiError("NETWORK_EXCEPTION"))
    twins.run()


def test_a_leader_that_knows_only_the_last_of_the_batches_gets_them_twice(oracle: Oracle) -> None:
    """A leader wrote three batches and was restarted before it answered. It knows only the last one, so it refuses the first one, which the
    producer sends again. For the producer that looks like lost records: it begins a new epoch, and sends all three as new ones.
    """
    twins = Twins(oracle, {})
    unanswered(twins, (2, 3, 1))
    assert sent_batches(twins) == [(0, 1, 2)]
    twins.answer(0, produced(twins, -1, "OUT_OF_ORDER_SEQUENCE_NUMBER"))
    twins.run()
    assert sent_batches(twins) == [(1, 0, 2)]
    twins.answer(0, produced(twins, 7))
    for first, count, offset in ((2, 3, 9), (5, 1, 12)):
        twins.run()
        assert sent_batches(twins) == [(1, first, count)]
        twins.answer(0, produced(twins, offset))
    twins.run()
    assert [one.metadata().offset for one in twins.deliveries] == [0, *range(7, 13)]


def test_a_leader_that_knows_the_batches_gets_them_once(oracle: Oracle) -> None:
    """As above, with a leader that knows the last five batches: it reports where they are."""
    twins = Twins(oracle, {})
    unanswered(twins, (2, 3, 1))
    for first, count, offset in ((1, 2, 1), (3, 3, 3), (6, 1, 6)):
        assert sent_batches(twins) == [(0, first, count)]
        twins.answer(0, produced(twins, -1, "DUPLICATE_SEQUENCE_NUMBER") if count == 3 else produced(twins, offset))
        twins.run()
    assert all(one.exception() is None for one in twins.deliveries)


def test_a_batch_for_a_new_leader_overtakes_the_first_ones(oracle: Oracle) -> None:
    """The first batches have no answer, and another node leads. The next batch goes to it at once. A leader that does not know the producer
    accepts it, and then refuses the first ones until they have expired.
    """
    twins = Twins(oracle, {})
    twins.run()
    twins.answer(0, InitProducerIdResponse(producer_id=7, producer_epoch=0))
    for step in range(3):
        twins.send("a", 0, b"value")
        twins.advance(5)
        twins.run()
        if step == 1:
            twins.learn(metadata(2, has_ids=True, leaders={"a": [2, 2, 1], "b": [2]}))
    assert [outgoing.node.id for _, outgoing, _ in twins.in_flight] == [1, 1, 2]
    assert sent_batches(twins) == [(0, 0, 1), (0, 1, 1), (0, 2, 1)]
    twins.in_flight.insert(0, twins.in_flight.pop())
    twins.answer(0, produced(twins, 0))
    for _ in range(2):
        twins.answer(0, ApiError("NETWORK_EXCEPTION"))
    for _ in range(5):
        twins.run()
        assert sent_batches(twins) == [(0, 0, 1)]
        twins.answer(0, produced(twins, -1, "OUT_OF_ORDER_SEQUENCE_NUMBER"))
    twins.run()
    assert [one.done() for one in twins.deliveries] == [False, False, True]
    twins.advance(1000)
    twins.run()
    assert isinstance(twins.deliveries[0].exception(), KafkaTimeoutError)


def test_more_than_five_batches_are_in_flight_after_a_change_of_leader(oracle: Oracle) -> None:
    """The limit of five requests is one for each node. A leader knows the last five batches of a producer. So if the new leader has got all
    of these batches, it no longer knows those that the producer sends again when the former leader does not answer.
    """
    twins = Twins(oracle, {})
    twins.run()
    twins.answer(0, InitProducerIdResponse(producer_id=7, producer_epoch=0))
    for step in range(8):
        twins.send("a", 0, b"value")
        twins.advance(5)
        twins.run()
        if step == 2:
            twins.learn(metadata(2, has_ids=True, leaders={"a": [2, 2, 1], "b": [2]}))
    assert [outgoing.node.id for _, outgoing, _ in twins.in_flight] == [1, 1, 1, 2, 2, 2, 2, 2]
    assert sent_batches(twins) == [(0, number, 1) for number in range(8)]
