"""What kops's consumer fetches beside Kafka's Fetcher, FetchCollector, OffsetFetcher and SubscriptionState: random dialogues with failing
brokers, changing leaders, seeks, pauses, resets and assignments.

`--seeds N` runs more lives. A failure prints the whole dialogue; the same seed repeats it.
"""

from __future__ import annotations

import random
from collections import Counter

import pytest

from kops.client.errors import KafkaTimeoutError
from kops.errors import ApiError
from kops.protocol.declaration import Message
from kops.protocol.errors import by_code, by_name
from kops.protocol.messages import ListOffsetsRequest, ListOffsetsResponse
from kops.protocol.messages.list_offsets_response import ListOffsetsPartitionResponse, ListOffsetsTopicResponse
from tests.support.kafka.oracle import Oracle
from tests.support.kafka.twins.fetch_twins import FetchLife, FetchTwins

STEPS = 120
LACKS = "the answer lacks a-0"
CODES = [by_code(code).name for code in range(-1, 134) if code and by_code(code).code == code]
LIKELY = [
    "NOT_LEADER_OR_FOLLOWER", "REPLICA_NOT_AVAILABLE", "KAFKA_STORAGE_ERROR", "FENCED_LEADER_EPOCH", "OFFSET_NOT_AVAILABLE",
    "UNKNOWN_TOPIC_OR_PARTITION", "UNKNOWN_TOPIC_ID", "INCONSISTENT_TOPIC_ID", "OFFSET_OUT_OF_RANGE", "TOPIC_AUTHORIZATION_FAILED",
    "UNKNOWN_LEADER_EPOCH", "UNKNOWN_SERVER_ERROR", "CORRUPT_MESSAGE", "LEADER_NOT_AVAILABLE", "UNSUPPORTED_FOR_MESSAGE_FORMAT",
]  # fmt: skip
"""Errors that one of the three requests treats in a way of its own."""


def life(oracle: Oracle, seed: int, *, errors: list[str] | None = None, steps: int = STEPS) -> FetchTwins:
    """Run one life from its beginning to its end."""
    dice = random.Random(f"fetch {seed} {errors}")
    settings = {
        "max.poll.records": dice.choice((1, 3, 500)),
        "isolation.level": dice.choice(("read_uncommitted", "read_committed")),
        "check.crcs": dice.random() < 0.8,
        "auto.offset.reset": dice.choice(("earliest", "latest", "by_duration:PT1H", "none")),
        "client.rack": dice.choice(("", "r1")),
    }
    twins = FetchTwins(oracle, settings, has_ids=dice.random() < 0.7)
    chosen = errors or (LIKELY if dice.random() < 0.9 else CODES)
    lived = FetchLife(twins, dice, errors=chosen, trouble=0.3 if errors else dice.choice((0, 0.1, 0.3)))
    for _ in range(steps):
        if not twins.has_ended:
            lived.step()
    if not twins.has_ended:
        lived.end()
    return twins


def live(oracle: Oracle, seeds: range) -> Counter[str]:
    """Run many lives, and check that something has happened in them."""
    lives = [life(oracle, seed) for seed in seeds]
    assert sum(one.sent for one in lives) > 20 * len(lives)
    assert sum(one.records for one in lives) > 20 * len(lives)
    return Counter(error.split()[0] for one in lives for error in one.errors)


def test_lives(oracle: Oracle) -> None:
    assert live(oracle, range(3))


@pytest.mark.slow
def test_many_lives(oracle: Oracle, seed_count: int | None) -> None:
    found = live(oracle, range(1040, 1040 + (seed_count or 40)))
    assert found.keys() >= {
        "LogTruncationException", "NoOffsetForPartitionException", "!KafkaException", "!IllegalStateException",
        "!TopicAuthorizationException",
    }  # fmt: skip


@pytest.mark.slow
def test_every_error(oracle: Oracle, seed_count: int | None) -> None:
    """In each life one kind of error occurs. By default every fourth code is tested."""
    for index, code in enumerate(CODES):
        if seed_count or index % 4 == 0:
            life(oracle, index, errors=[code], steps=40)


@pytest.mark.parametrize("isolation", ["read_uncommitted", "read_committed"])
def test_every_error_of_a_look_up(oracle: Oracle, isolation: str) -> None:
    """The program asks for the offsets of a time. One partition of two has an error or is not in the answer, or there is no answer."""
    seen: Counter[str] = Counter()
    twins = FetchTwins(oracle, {"isolation.level": isolation})
    lived = FetchLife(twins, random.Random(7), errors=["NONE"], trouble=0)
    for code in ["NONE", LACKS, *CODES]:
        while twins.in_flight:
            lived.answer_first()
        outcome = twins.look_up(["a-0", "b-1"], 1005)
        for _ in range(len(twins.in_flight)):
            _, outgoing, _ = twins.in_flight[0]
            assert isinstance(outgoing.message, ListOffsetsRequest)
            twins.answer(0, offsets_or_error(outgoing.message, code), ends_step=False)
        seen[twins.compare_look_up(outcome)] += 1
        if not outcome.is_done:
            outcome.fail(KafkaTimeoutError("the test"))
    assert seen.keys() > {"again", "TopicAuthorizationException"}
    assert len(seen) == 4, seen


def offsets_or_error(message: ListOffsetsRequest, error: str) -> Message | ApiError:
    """Return an offset for each partition, with this error for a-0. The node of a-0 does not answer at all after one of the network."""
    if error == LACKS:
        answer = offsets_or_error(message, "NONE")
        assert isinstance(answer, ListOffsetsResponse)
        answer.topics = [one for one in answer.topics if one.name != "a"]
        return answer
    rows = [
        ListOffsetsTopicResponse(
            topic.name,
            [
                ListOffsetsPartitionResponse(one.partition_index, by_name(error).code, timestamp=-1, offset=-1)
                if topic.name == "a" and error != "NONE"
                else ListOffsetsPartitionResponse(one.partition_index, 0, timestamp=1007, offset=5, leader_epoch=3)
                for one in topic.partitions
            ],
        )
        for topic in message.topics
    ]
    if error in ("NETWORK_EXCEPTION", "REQUEST_TIMED_OUT") and any(row.name == "a" for row in rows):
        return ApiError(error)
    return ListOffsetsResponse(topics=rows)
