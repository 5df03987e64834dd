"""The producer's core beside Kafka's Sender, RecordAccumulator and TransactionManager: random dialogues with failing brokers.

`--seeds N` runs more lives. A failure prints the whole dialogue; the same seed repeats it.
"""

from __future__ import annotations

import random

import pytest

from kops.protocol.errors import by_code
from tests.support.kafka.oracle import Oracle
from tests.support.kafka.twins.producer_twins import Life, Twins, api_versions

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
