"""Replication in simulation: runs with many seeds, and planted bugs that are found within a stated number of seeds."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from typing import Any

import pytest

from kops.broker.replicas import alter_log_dirs, delta, manager
from kops.protocol.declaration import Message
from kops.records.log_offsets import TopicPartition
from kops.replication.following.fetch_state import FetchState, InitialFetchState, Phase, Truncation
from kops.replication.following.fetcher import Fetcher, Sent
from kops.replication.following.followers import FollowerReplicas
from kops.replication.leading.fetch import EpochEndOffset
from kops.replication.leading.isr import PendingShrinkIsr
from kops.replication.leading.partition import Partition
from kops.replication.log import ReplicaLog
from tests.simulation.replication import replication_world
from tests.simulation.replication.replication_world import PromiseError, World
from tests.support.planted import plant

FAST, SLOW = range(40), range(40, 540)
# The modules that make the objects, here and in the whole nodes of `tests.simulation.test_node_bugs`.
PARTITIONS = (replication_world, delta)
FETCHERS = (replication_world, manager, alter_log_dirs)


@pytest.mark.parametrize("seed", FAST)
def test_promises_hold(seed: int) -> None:
    World(seed).run()


@pytest.mark.slow
@pytest.mark.timeout(0)
def test_promises_hold_for_many_seeds(pytestconfig: pytest.Config) -> None:
    """All promises hold for 500 seeds, or as many as `--seeds` specifies."""
    asked = pytestconfig.getoption("--seeds", default=None)
    for seed in range(SLOW.start, SLOW.start + int(asked)) if asked else SLOW:
        World(seed).run()


def test_a_run_is_the_same_every_time() -> None:
    """The events, and so the output of a failing seed, depend on the seed alone."""
    first, second, other = (World(seed).run() for seed in (7, 7, 8))
    digests = [hashlib.sha256("\n".join(world.trace).encode()).hexdigest() for world in (first, second, other)]
    assert digests[0] == digests[1] != digests[2]
    assert first.events == second.events


def test_runs_do_what_they_are_for() -> None:
    """Over a number of seeds, records are acknowledged, leaders change, ISRs grow and shrink, logs are truncated and machines lose
    power.
    """
    worlds = [World(seed).run() for seed in range(100, 120)]
    totals = {name: sum(world.counts[name] for world in worlds) for name in worlds[0].counts}
    assert sum(len(world.acknowledged) for world in worlds) > 20 * len(worlds)
    assert sum(len(world.leaders) for world in worlds) > 3 * len(worlds)
    assert min(totals.values()) > 5, totals


# Planted bugs -----------------------------------------------------------------------------------------------------------------------

Patch = pytest.MonkeyPatch


def truncate_to_the_high_watermark(patch: Patch) -> None:
    """A follower truncates all records that it does not know to be committed, as before leader epochs (KIP-101)."""

    def begin(self: Fetcher, key: TopicPartition, initial: InitialFetchState) -> FetchState:
        assert isinstance(self.replicas, FollowerReplicas)
        log = self.replicas.log(key)
        self.replicas.truncate(key, Truncation(log.high_watermark, True))
        return FetchState(initial.topic_id, log.log_end_offset, None, initial.current_leader_epoch, Phase.FETCHING, None)

    plant(patch, Fetcher, *FETCHERS, _initial_state=begin)


def take_a_stale_response(patch: Patch) -> None:
    """A response to a fetch in an earlier leader epoch or at another offset is taken for a current one."""
    take = Fetcher.on_response

    def whatever_was_asked(self: Fetcher, sent: Sent, response: Message, version: int) -> None:
        self.in_flight = sent
        take(self, sent, response, version)

    plant(patch, Fetcher, *FETCHERS, on_response=whatever_was_asked, _is_current=lambda self, state, asked, now_ms: True)


def acknowledge_before_replication(patch: Patch) -> None:
    """A record is acknowledged as soon as the leader's log has it."""

    def reached(self: Partition, offset: int) -> tuple[bool, str]:
        return self.local_log.log_end_offset >= offset, "NONE"

    plant(patch, Partition, *PARTITIONS, check_enough_replicas_reach_offset=reached)


def high_watermark_at_the_end(patch: Patch) -> None:
    """The leader's log alone determines the high watermark."""

    def to_the_end(self: Partition, log: ReplicaLog, now_ms: int) -> bool:
        return log.maybe_increment_high_watermark(log.log_end_offset_metadata) is not None

    plant(patch, Partition, *PARTITIONS, _maybe_increment_high_watermark=to_the_end)


def shrink_before_it_is_certain(patch: Patch) -> None:
    """A replica that is to leave the ISR stops counting at once, although the controller may reject the change."""
    patch.setattr(PendingShrinkIsr, "maximal_isr", property(lambda self: self.last_committed.isr - self.out_of_sync_replica_ids))


def forget_the_change_in_flight(patch: Patch) -> None:
    """Metadata of the same partition epoch ends the change in flight, as in Kafka."""
    plant(patch, Partition, *PARTITIONS, _is_change_in_flight_from=lambda self, partition_epoch: False)


def join_below_the_high_watermark(patch: Patch) -> None:
    """Every replica that fetches counts as in sync."""
    plant(patch, Partition, *PARTITIONS, _is_in_sync=lambda self, replica: True)


def believe_an_earlier_life(patch: Patch) -> None:
    """Broker epochs are not compared. A replica that was in sync before it lost power may join the ISR with the records that it had then
    (KIP-903).
    """
    members = {"_is_isr_eligible": lambda self, replica_id: True, "_broker_epoch_of": lambda self, broker_id: -1}
    plant(patch, Partition, *PARTITIONS, **members)


def divergence_one_too_far(patch: Patch) -> None:
    """The leader reports the end of an epoch one offset too high."""
    ask = Partition.last_offset_for_leader_epoch

    def one_more(self: Partition, *args: Any, **named: Any) -> EpochEndOffset:
        end = ask(self, *args, **named)
        return end._replace(end_offset=end.end_offset + 1) if end.end_offset >= 0 else end

    plant(patch, Partition, *PARTITIONS, last_offset_for_leader_epoch=one_more)


def logs_that_are_not_compared(patch: Patch) -> None:
    """A follower whose log diverges gets the records after its end."""
    plant(patch, Partition, *PARTITIONS, _diverging_epoch=lambda self, log, info, epoch: None)


def truncate_one_too_little(patch: Patch) -> None:
    """A follower keeps one record that its leader does not have."""
    cut = Fetcher.truncation_for

    def one_more(self: Fetcher, key: TopicPartition, end: EpochEndOffset) -> Truncation:
        truncation = cut(self, key, end)
        return truncation._replace(offset=min(truncation.offset + 1, self.replicas.log_end_offset(key)))

    plant(patch, Fetcher, *FETCHERS, truncation_for=one_more)


BUGS: list[tuple[Callable[[Patch], None], range]] = [
    (truncate_to_the_high_watermark, range(40)),
    (take_a_stale_response, range(40)),
    (acknowledge_before_replication, range(5)),
    (high_watermark_at_the_end, range(5)),
    (shrink_before_it_is_certain, range(40)),
    (forget_the_change_in_flight, range(40, 60)),
    (join_below_the_high_watermark, range(10)),
    (believe_an_earlier_life, range(40)),
    (divergence_one_too_far, range(10)),
    (logs_that_are_not_compared, range(20, 40)),
    (truncate_one_too_little, range(10)),
]


@pytest.mark.parametrize(("bug", "seeds"), BUGS, ids=[bug.__name__ for bug, _ in BUGS])
def test_a_planted_bug_is_found(bug: Callable[[Patch], None], seeds: range, monkeypatch: pytest.MonkeyPatch) -> None:
    """A planted bug is found within these seeds, with a readable trace."""
    bug(monkeypatch)
    with pytest.raises(PromiseError) as caught:
        for seed in seeds:
            World(seed).run()
    text = str(caught.value)
    assert text.startswith("seed ")
    assert "min_isr=" in text
    assert text.count("\n") > 2
