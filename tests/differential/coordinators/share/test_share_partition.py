"""Share partitions compared with Kafka's SharePartition: random fetches, acknowledgements, timeouts and answers of the persister."""

from __future__ import annotations

import random
from collections import Counter

import pytest

from kops.coordinators.share.batches import StateBatch
from kops.coordinators.share.partition.acknowledging import AcknowledgementBatch
from kops.coordinators.share.partition.persisting import PersistedState
from kops.errors import ApiError
from kops.records.build import build_batch, end_txn_marker
from kops.records.isolation import AbortedTransaction
from kops.records.record import Record
from tests.support.kafka.oracle import Oracle
from tests.support.kafka.twins.share_partition_twins import JavaSide, Settings, Twins

MEMBERS = ("m1", "m2", "m3")
ERRORS = (
    "NOT_COORDINATOR",
    "FENCED_STATE_EPOCH",
    "GROUP_ID_NOT_FOUND",
    "UNKNOWN_TOPIC_OR_PARTITION",
    "NETWORK_EXCEPTION",
    "UNSUPPORTED_VERSION",
)


class Log:
    """An endless log: batches of several sizes, gaps, and transactions of two producers, some of which are aborted."""

    def __init__(self, rng: random.Random) -> None:
        self.batches: list[tuple[int, int, bytes]] = []
        self.aborted: list[AbortedTransaction] = []
        self._open: dict[int, int] = {}
        self._end = 0
        self._rng = rng
        self._has_transactions = rng.random() < 0.4

    def read(self, offset: int, count: int) -> tuple[bytes, list[AbortedTransaction]]:
        """Return some batches from the one with this offset on, and the aborted transactions that they may belong to."""
        while not self.batches or self.batches[-1][0] < offset + 200:
            self._append()
        found = [each for each in self.batches if each[1] >= offset][:count]
        aborted = [each for each in self.aborted if each[1] <= found[-1][1]]
        return b"".join(each[2] for each in found), aborted

    def compact(self, offset: int) -> None:
        """Remove the batch with this offset, as compaction does."""
        self.batches = [each for each in self.batches if not each[0] <= offset <= each[1]]

    def _append(self) -> None:
        rng = self._rng
        if rng.random() < 0.06:
            self._end += rng.randrange(1, 6)
        first = self._end
        producer = rng.choice((7, 8)) if self._has_transactions else -1
        if producer in self._open and rng.random() < 0.5:
            is_commit = rng.random() < 0.4
            begun = self._open.pop(producer)
            if not is_commit:
                self.aborted.append((producer, begun))
            data = end_txn_marker(first, 1, commit=is_commit, coordinator_epoch=0, producer_id=producer, producer_epoch=0)
            self.batches.append((first, first, data))
            self._end += 1
            return
        last = first + rng.choice((0, 0, 1, 2, 4, 9, 14))
        if producer != -1:
            self._open.setdefault(producer, first)
        records = [Record(offset, 1, "CreateTime", None, b"v") for offset in sorted({first, last})]
        fields = {"producer_id": producer, "producer_epoch": 0, "base_sequence": 0, "transactional": True} if producer != -1 else {}
        self.batches.append((first, last, build_batch(records, **fields)))
        self._end = last + 1


def drawn_state(rng: random.Random) -> PersistedState:
    start = rng.choice((0, 0, 3, 10))
    batches, offset = [], start
    while rng.random() < 0.6:
        offset += rng.choice((0, 0, 0, 1, 5))
        last = offset + rng.choice((0, 2, 6))
        batches.append(StateBatch(offset, last, rng.randrange(1, 3), rng.choice((0, 0, 2, 4))))
        offset = last + 1
    return PersistedState(rng.randrange(3), start, batches)


def drawn_acknowledgements(rng: random.Random, twins: Twins) -> tuple[str, list[AcknowledgementBatch]]:
    """Return acknowledgements, mostly of what a member has acquired."""
    cache = twins.ours.cache
    member = rng.choice(MEMBERS)
    found = []
    offset = -1
    for batch in cache.batches:
        states = [(batch.first_offset, batch.whole)] if batch.whole is not None else list(batch.states())
        owned = [each for each, state in states if state.member_id == member]
        if (not owned and rng.random() < 0.95) or batch.last_offset <= offset or rng.random() < 0.3:
            continue
        first, last = max(batch.first_offset, offset + 1), batch.last_offset
        if batch.whole is None and owned and rng.random() < 0.9:
            first, last = max(rng.choice(owned), offset + 1), rng.choice(owned)
            last = max(first, last) if rng.random() < 0.3 else first
        elif rng.random() < 0.4:
            first = rng.randint(first, last)
            last = rng.randint(first, last)
        if rng.random() < 0.05:
            last += rng.randrange(12)
        types = [rng.choice((0, 1, 1, 1, 2, 2, 3, 4, 4)) for _ in range(last - first + 1 if rng.random() < 0.4 else 1)]
        found.append(AcknowledgementBatch(first, last, types))
        offset = last
        if rng.random() < 0.5:
            break
    if rng.random() < 0.06:
        first = rng.randrange(cache.end_offset + 20)
        found.append(AcknowledgementBatch(first, first + rng.randrange(20), [rng.choice((1, 2, 4, 9))]))
    return member if rng.random() < 0.95 else rng.choice(MEMBERS), found


def fetch(rng: random.Random, twins: Twins, log: Log) -> str:
    """Read the log, and acquire records."""
    cache = twins.ours.cache
    offset = twins.ours.next_fetch_offset
    if rng.random() < 0.05:
        offset = rng.randint(cache.start_offset, cache.end_offset)
    if rng.random() < 0.05:
        log.compact(offset)
    data, aborted = log.read(offset, rng.choice((1, 1, 2, 4, 8)))
    count = twins.acquire(
        rng.choice(MEMBERS), rng.random() < 0.35, rng.choice((1, 3, 10, 100)), rng.choice((0, 1, 2, 5, 10, 100)), offset, data, aborted
    )
    return "acquired" if count else "nothing"


def drawn_settings(rng: random.Random) -> Settings:
    if rng.random() < 0.2:
        return Settings(rng.choice((100, 200)), rng.choice((2, 5)), 15_000, False)
    return Settings(rng.choice((10, 30, 60, 200)), rng.choice((1, 2, 3, 5, 5)), 1000)


def live(side: JavaSide, seed: int, step_count: int, *, is_slow: bool = False) -> Counter[str]:
    """Run one life, and return what happened. With `is_slow` members, most locks run out, so records are delivered often."""
    rng = random.Random(seed)
    settings = Settings(60, rng.choice((3, 4, 6)), 1000) if is_slow else drawn_settings(rng)
    twins, log = Twins(side, settings), Log(rng)
    seen: Counter[str] = Counter()
    error = twins.initialize(drawn_state(rng))
    assert error is None
    for _ in range(step_count):
        chosen = rng.random()
        if is_slow and chosen > 0.7:
            chosen = 0.9
        if chosen < 0.42:
            seen[fetch(rng, twins, log)] += 1
        elif chosen < 0.68:
            seen["acknowledged: " + twins.acknowledge(*drawn_acknowledgements(rng, twins))] += 1
        elif chosen < 0.72:
            seen["released: " + twins.release(rng.choice(MEMBERS))] += 1
        elif chosen < 0.86:
            if twins.pending:
                failed = ApiError(rng.choice(ERRORS), "no") if rng.random() < 0.25 else None
                twins.answer(rng.randrange(len(twins.pending)), failed)
                seen["answered" if failed is None else "failed"] += 1
        elif chosen < 0.97:
            if twins.advance(rng.choice((0, 1, settings.record_lock_duration_ms // 3, settings.record_lock_duration_ms))):
                seen["expired"] += 1
        elif rng.random() < 0.7:
            twins.log_start(rng.randint(twins.ours.cache.start_offset, twins.ours.cache.end_offset + 3))
            seen["log start"] += 1
    seen["written down"] += twins.ours.cache.start_offset > 10
    return seen


def test_random_lives(oracle: Oracle) -> None:
    """After every step both give the same answers, the same writes, the same locks and the same state."""
    side = JavaSide(oracle)
    seen: Counter[str] = Counter()
    for seed in (4, 12, 14):
        seen += live(side, seed, 50)
    seen += live(side, 1, 60, is_slow=True)
    assert {"acquired", "acknowledged: written", "acknowledged: INVALID_RECORD_STATE", "answered", "failed", "expired"} <= set(seen), seen


@pytest.mark.slow
def test_many_lives(oracle: Oracle, seed_count: int | None) -> None:
    """Longer lives agree as well."""
    side = JavaSide(oracle)
    seen: Counter[str] = Counter()
    for seed in range(100, 100 + (seed_count or 8)):
        seen += live(side, seed, 100, is_slow=seed % 3 == 0)
    assert {"released: written", "log start", "acknowledged: INVALID_REQUEST", "written down"} <= set(seen), seen


def test_states_that_cannot_be_read(oracle: Oracle) -> None:
    """Both reject errors of the persister and impossible states alike."""
    side = JavaSide(oracle)
    found = []
    for name in ERRORS:
        error = Twins(side, Settings(30, 5, 1000)).initialize(ApiError(name, "no"))
        assert error is not None
        found.append(error.name)
    assert found[:2] == ["COORDINATOR_NOT_AVAILABLE", "NOT_LEADER_OR_FOLLOWER"]
    for batch in (StateBatch(4, 9, 1, 0), StateBatch(9, 7, 1, 0)):
        twins = Twins(side, Settings(30, 5, 1000))
        assert twins.initialize(PersistedState(0, 5, [batch])) is not None
        again = twins.ours.maybe_initialize()
        assert side.failure(side.call(twins.theirs, "maybeInitialize")) is not None
        assert again.is_done
