"""Share fetches compared with Kafka's DelayedShareFetch: several members fetch from the same share partitions, whose logs grow, change
their leader and fail.
"""

from __future__ import annotations

import random
from collections import Counter

import pytest

from kops.coordinators.share.responses import message_of
from kops.errors import ApiError
from kops.protocol.errors import ERRORS
from kops.records.log_offsets import LogOffsetMetadata
from tests.differential.coordinators.share.test_share_partition import Log, drawn_acknowledgements, drawn_settings, drawn_state
from tests.support.kafka.oracle import Oracle
from tests.support.kafka.twins.java_transactions import JavaTransactions
from tests.support.kafka.twins.share_fetch_twins import LogState, ShareFetchTwins
from tests.support.kafka.twins.share_partition_twins import JavaSide, Settings

MEMBERS = ("m1", "m2", "m3")
PARTITIONS = 3
SEGMENT = 100
"""How many offsets a segment has."""
CODES = [each.name for each in ERRORS if each.code]
STEPS = 60


def at(offset: int) -> LogOffsetMetadata:
    """Return the position of an offset in a log of segments with a hundred offsets, each of 70 bytes."""
    return LogOffsetMetadata(offset, offset // SEGMENT * SEGMENT, offset % SEGMENT * 70)


def drawn_log(rng: random.Random, log: Log, offset: int) -> LogState:
    """Return what a log answers, of which `offset` is read next."""
    state = LogState(start=at(offset))
    count = rng.choice((0, 1, 1, 2, 4))
    if count:
        state.data, state.aborted = log.read(offset, count)
    if rng.random() < 0.12:
        state.read_error = rng.choice(("OFFSET_OUT_OF_RANGE", "NOT_LEADER_OR_FOLLOWER", rng.choice(CODES)))
    end = max(offset + rng.choice((0, 0, 0, 1, 5, 30, 150, -3)), 0)
    state.end = at(end) if rng.random() < 0.93 else None
    if rng.random() < 0.04:
        state.end = ApiError(rng.choice(CODES), "no end")
    state.is_leader = rng.random() < 0.97
    if rng.random() < 0.03:
        state.partition_error = ApiError(rng.choice(("UNKNOWN_TOPIC_OR_PARTITION", "KAFKA_STORAGE_ERROR")), "gone")
    state.earliest = max(offset + rng.choice((-5, 0, 3)), 0) if rng.random() < 0.8 else ApiError(rng.choice(CODES), "no start")
    return state


class Life:
    """Fetches of three members, of up to three partitions each."""

    def __init__(self, made: JavaTransactions, side: JavaSide, seed: int) -> None:
        self.rng = rng = random.Random(seed)
        self.settings: Settings = drawn_settings(rng)
        self.twins = ShareFetchTwins(made, side, self.settings, PARTITIONS)
        self.logs = [Log(rng) for _ in range(PARTITIONS)]
        self.seen: Counter[str] = Counter()
        for twin in self.twins.partitions:
            if rng.random() < 0.95:
                assert twin.initialize(drawn_state(rng)) is None

    def step(self) -> None:
        rng, twins = self.rng, self.twins
        twins.states = [drawn_log(rng, log, twin.ours.next_fetch_offset) for log, twin in zip(self.logs, twins.partitions, strict=True)]
        twins.failure = ApiError(rng.choice(CODES), "no read") if rng.random() < 0.03 else None
        choice = rng.random()
        if choice < 0.35:
            parts = rng.sample(range(PARTITIONS), rng.choice((1, 2, 3)))
            # Sizes without a remainder, which both would give to a random partition.
            sizes = rng.choice((0, 1, 100, 700, 5000)), rng.choice((60, 600, 60_000))
            limits = rng.choice((1, 5, 100)), rng.choice((1, 10, 100))
            twins.begin(rng.choice(MEMBERS), parts, sizes, limits, is_record_limit=rng.random() < 0.3)
            self.seen["waits" if twins.waiting else "at once"] += 1
        elif choice < 0.6 and twins.waiting:
            self.seen[twins.try_complete(rng.randrange(len(twins.waiting)))] += 1
        elif choice < 0.75 and twins.waiting:
            self.seen[f"expired: {twins.expire(rng.randrange(len(twins.waiting)))}"] += 1
        else:
            self._change()

    def _change(self) -> None:
        """Acknowledge, release, answer a write, or let time pass."""
        rng, twins = self.rng, self.twins
        chosen = rng.choice(twins.partitions)
        choice = rng.random()
        if choice < 0.4:
            chosen.acknowledge(*drawn_acknowledgements(rng, chosen))
        elif choice < 0.5:
            chosen.release(rng.choice(MEMBERS))
        elif choice < 0.7 and chosen.pending:
            chosen.answer(rng.randrange(len(chosen.pending)), None)
        else:
            twins.clock.now_ms += rng.choice((1, self.settings.record_lock_duration_ms // 2, self.settings.record_lock_duration_ms))
            for each in twins.partitions:
                each.expire()


@pytest.fixture(scope="module")
def side(oracle: Oracle) -> JavaSide:
    return JavaSide(oracle)


@pytest.mark.slow
def test_many_lives(made: JavaTransactions, side: JavaSide, seed_count: int | None) -> None:
    """Both read the same offsets, answer the same, report the same errors and wake the same fetches."""
    seen: Counter[str] = Counter()
    for seed in range(seed_count or 8):
        life = Life(made, side, seed)
        for _ in range(STEPS):
            life.step()
        seen += life.seen
    assert {"waits", "acquired", "empty", "expired: acquired", "expired: empty", "NOT_LEADER_OR_FOLLOWER"} <= set(seen), seen


@pytest.mark.slow
def test_every_error_of_a_read(made: JavaTransactions, side: JavaSide) -> None:
    """A member gets the error and Kafka's text for it. A moved start of the log is no error."""
    twins = ShareFetchTwins(made, side, Settings(100, 5, 1000), 1)
    assert twins.partitions[0].initialize(drawn_state(random.Random(0))) is None
    for name in CODES:
        offset = twins.partitions[0].ours.next_fetch_offset
        twins.states = [LogState(read_error=name, end=at(offset), earliest=offset)]
        twins.begin("m1", [0], (1, 1000), (100, 100), is_record_limit=False)
        assert not twins.waiting
        assert name == "OFFSET_OUT_OF_RANGE" or message_of(name)
