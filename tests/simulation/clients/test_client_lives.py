"""Lives of whole nodes whose clients are the library's cores; see `world`. Planted bugs of the clients are found.

`pytest -m slow tests/simulation/clients --seeds 1000` runs a thousand lives. A failure prints its seed, what happened, and the command that
repeats it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable

import pytest

from kops.client.consumer.core.consumer import ConsumerCore
from kops.client.consumer.parts.state import PartitionState, Position, Subscriptions
from kops.client.consumer.records import ConsumerRecords
from kops.client.errors import KafkaError
from kops.client.producer.core.batches import NO_SEQUENCE, ProducerBatch
from kops.client.producer.core.identity import SequenceKeeper
from kops.client.producer.core.transactions import Transactions
from kops.records.log_offsets import TopicPartition
from tests.simulation import node_life
from tests.simulation.clients import writers
from tests.simulation.clients.life import CLIENTS
from tests.simulation.node_life import live, live_all
from tests.simulation.node_world import Mix

FIRST_SEED, SLOW_SEEDS = 102, 1
DISTURBANCES = 3
BUG_DISTURBANCES = 2
GOOD_DISKS = Mix(compacted=0, disks=0)
PLAIN = Mix(shapes=("combined",), compacted=0, disks=0)
EVENTS = (
    "transactions committed",
    "transactions aborted",
    "offsets committed",
    "records of idempotent producers",
    "producers fenced",
    "partitions paused",
    "seeks",
)
Patch = pytest.MonkeyPatch


@pytest.mark.slow
@pytest.mark.timeout(0)
def test_many_lives_of_clients(seed_count: int | None) -> None:
    """Every life succeeds, and every event happens."""
    counts: Counter[str] = Counter()
    for seed in range(FIRST_SEED, FIRST_SEED + (SLOW_SEEDS if seed_count is None else seed_count)):
        counts += live(seed, disturbances=DISTURBANCES, mix=GOOD_DISKS, kind=CLIENTS).counts
    assert min(counts[event] for event in EVENTS) > 0, counts


# the producer


class NewNumbersForRetriedBatches(SequenceKeeper):
    """A batch that is sent again gets new sequence numbers, after those of later batches."""

    def may_retry(self, batch: ProducerBatch, error: KafkaError, log_start_offset: int) -> bool:
        self.remove_in_flight(batch)
        batch.base_sequence = NO_SEQUENCE
        return error.retriable


class SameNumbersAgain(SequenceKeeper):
    """After an error, the numbers of a partition begin at 0 again without a new epoch."""

    def may_retry(self, batch: ProducerBatch, error: KafkaError, log_start_offset: int) -> bool:
        self._entry(batch.partition).start_at_zero(self.identity)
        return error.retriable


def give_retried_batches_new_numbers(patch: Patch) -> None:
    patch.setattr(writers, "KEEPER", NewNumbersForRetriedBatches)


def use_numbers_again(patch: Patch) -> None:
    patch.setattr(writers, "KEEPER", SameNumbersAgain)


def commit_before_the_records(patch: Patch) -> None:
    """A transaction ends although its records are not acknowledged yet."""
    take_request = Transactions.take_request
    patch.setattr(Transactions, "take_request", lambda self, *, has_batches: take_request(self, has_batches=False))


# the consumer


def commit_before_processing(patch: Patch) -> None:
    """A poll commits the positions after the records that it returns."""
    poll = ConsumerCore.poll

    def poll_and_commit(self: ConsumerCore, now_ms: float) -> ConsumerRecords | None:
        found = poll(self, now_ms)
        if found and self.commits.member.identity() is not None:
            self.commits.commit(self.commits.positions(), now_ms + 4_000, retries=True)
        return found

    patch.setattr(ConsumerCore, "poll", poll_and_commit)


def keep_positions_over_rebalances(patch: Patch) -> None:
    """A partition that comes back has the position that it had when it was revoked."""
    assign = Subscriptions.assign

    def assign_again(self: Subscriptions, keys: Iterable[TopicPartition]) -> None:
        known: dict[TopicPartition, Position] = self.__dict__.setdefault("former", {})
        before = dict(self.partitions)
        known.update((key, state.position) for key, state in before.items() if state.position is not None)
        assign(self, keys)
        for key in self.partitions.keys() - before.keys():
            if key in known:
                self.partitions[key].seek(known[key])

    patch.setattr(Subscriptions, "assign", assign_again)


def return_paused_partitions(patch: Patch) -> None:
    """A pause is forgotten at once."""
    patch.setattr(PartitionState, "is_paused", property(lambda self: False, lambda self, value: None))


def lose_seeks(patch: Patch) -> None:
    """A seek is lost if the consumer has records of the partition that the program did not get yet."""
    seek = ConsumerCore.seek

    def seek_if_empty(self: ConsumerCore, key: TopicPartition, offset: int, epoch: int | None) -> None:
        if not any(one.key == key for one in self.fetcher.completed):
            seek(self, key, offset, epoch)

    patch.setattr(ConsumerCore, "seek", seek_if_empty)


def match_patterns_once(patch: Patch) -> None:
    """A pattern is compared with the topics that are known when the program subscribes, and never again."""
    match = ConsumerCore._match

    def match_once(self: ConsumerCore) -> None:
        if self.group is None:
            match(self)

    patch.setattr(ConsumerCore, "_match", match_once)


BUGS: list[tuple[Callable[[Patch], None], int]] = [
    (give_retried_batches_new_numbers, 44),
    (use_numbers_again, 42),
    (commit_before_the_records, 42),
    (commit_before_processing, 42),
    (keep_positions_over_rebalances, 48),
    (return_paused_partitions, 42),
    (lose_seeks, 42),
    (match_patterns_once, 42),
]
"""A bug, and the first seed of the lives."""
BUG_LIVES = 4
"""The number of lives within which a bug must be found."""


@pytest.mark.slow
@pytest.mark.timeout(0)
@pytest.mark.parametrize(("bug", "first_seed"), BUGS, ids=[bug.__name__ for bug, _ in BUGS])
def test_a_planted_bug_of_clients_is_found(bug: Callable[[Patch], None], first_seed: int, monkeypatch: Patch) -> None:
    monkeypatch.setattr(node_life, "trace", lambda *_: "")  # the trace of a life that must fail would double its time
    bug(monkeypatch)
    with pytest.raises(AssertionError) as caught:
        live_all(range(first_seed, first_seed + BUG_LIVES), PLAIN, CLIENTS, disturbances=BUG_DISTURBANCES)
    assert "python -m tests.simulation.clients" in caught.value.__notes__[0]
