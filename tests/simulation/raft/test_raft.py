"""The quorum in simulation: runs with many seeds, and planted bugs that are found within a stated number of seeds."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest

from kops.metadata.raft.log.log import EndKind, ValidatedEnd
from kops.metadata.raft.node import core, polling, requests, serving, voter_changes
from kops.metadata.raft.roles import leader, quorum
from kops.metadata.raft.roles.election import ElectionState
from kops.metadata.raft.roles.states import Follower
from kops.metadata.raft.voters.replica import OffsetAndEpoch
from tests.simulation.raft.raft_checks import PromiseError
from tests.simulation.raft.raft_log import MemoryLog
from tests.simulation.raft.raft_world import SimulatedStore, World

FAST, SLOW = range(6), range(6, 140)


@pytest.mark.parametrize("seed", FAST)
def test_promises_hold(seed: int) -> None:
    World(seed).run()


@pytest.mark.slow
@pytest.mark.timeout(0)
def test_promises_hold_for_many_seeds(pytestconfig: pytest.Config) -> None:
    """All promises hold for 134 seeds, or as many as `--seeds` specifies."""
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
    """Over a number of seeds there are elections, commits, crashes, snapshots taken and fetched, changes of voters, truncated logs and slow
    flushes.
    """
    worlds = [World(seed).run() for seed in range(10)] + [World(seed, **CHANGES).run() for seed in range(3, 6)]
    counts = sum((world.counts for world in worlds), Counter[str]())
    logs = [node.log for world in worlds for node in world.nodes.values()]
    assert min(world.promises.committed_end for world in worlds) > 0
    assert sum(len(world.promises.leaders) for world in worlds) > 2 * len(worlds)
    names = ("crashes", "snapshots", "disks", "slow flushes", "AddRaftVoterRequest", "RemoveRaftVoterRequest")
    assert min(counts[name] for name in names) > 0
    assert sum(log.cuts for log in logs) > 2
    assert sum(log.snapshots_taken_over for log in logs) > 2
    assert any(log.start_offset > 0 for log in logs)


# Planted bugs -----------------------------------------------------------------------------------------------------------------------

Patch = pytest.MonkeyPatch


def acknowledge_before_flush(patch: Patch) -> None:
    """A follower acknowledges records that its disk does not have, and the leader counts its own records before it has flushed them."""
    patch.setattr(MemoryLog, "start_flush", lambda self: True)


def forget_the_vote(patch: Patch) -> None:
    """A vote is not written."""
    write = SimulatedStore.write

    def write_without_vote(self: SimulatedStore, election: ElectionState, data_version: int) -> None:
        write(self, ElectionState(election.epoch, election.leader_id, None, election.voters), data_version)

    patch.setattr(SimulatedStore, "write", write_without_vote)


def vote_twice(patch: Patch) -> None:
    """A voter grants its vote to every candidate."""
    patch.setattr("kops.metadata.raft.roles.states._leaderless_vote", lambda *_, is_up_to_date, pre_vote: is_up_to_date)
    patch.setattr(quorum.QuorumState, "add_vote", lambda self, candidate, now_ms: None)


def vote_for_a_shorter_log(patch: Patch) -> None:
    """A voter does not compare logs."""
    patch.setattr(serving, "end_of", lambda log: OffsetAndEpoch(offset=0, epoch=0))


def commit_of_an_older_epoch(patch: Patch) -> None:
    """Records of an earlier epoch count as committed with a majority, before the first record of this epoch does."""
    begin = leader.LeaderState.__post_init__

    def from_the_start(self: leader.LeaderState) -> None:
        begin(self)
        self.epoch_start_offset = -1

    patch.setattr(leader.LeaderState, "__post_init__", from_the_start)


def commit_with_a_minority(patch: Patch) -> None:
    """The replica with the longest log determines the high watermark alone."""
    patch.setattr(
        leader.LeaderState,
        "_by_descending_end",
        lambda self: [max(self.voters.values(), key=lambda each: each.end_offset or 0)] * len(self.voters),
    )


def take_a_stale_response(patch: Patch) -> None:
    """A response of an earlier epoch is taken for a current one."""
    patch.setattr(requests.RequestManager, "is_expected", lambda self, node, correlation_id: True)
    patch.setattr(requests.RequestManager, "on_result", lambda self, node, correlation_id, now_ms, *, success: self.reset(node))
    handle = core.RaftCore.handle_common

    def whatever_the_epoch(self: core.RaftCore, error: str, leader_id: int | None, epoch: int, *rest: Any) -> bool | None:
        if epoch < self.quorum.epoch and error == "NONE" and isinstance(self.quorum.state, Follower):
            return None
        return handle(self, error, leader_id, epoch, *rest)

    patch.setattr(core.RaftCore, "handle_common", whatever_the_epoch)


def believe_every_fetch(patch: Patch) -> None:
    """The leader does not compare a follower's log with its own."""
    patch.setattr(
        serving, "validate_end", lambda log, offset, epoch: ValidatedEnd(EndKind.VALID, OffsetAndEpoch(offset=offset, epoch=epoch))
    )


def two_changes_of_the_voters_at_once(patch: Patch) -> None:
    """A change of the voters does not wait for the one before it."""
    patch.setattr(voter_changes, "_refusal", lambda core, what, now_ms: core.control.last_voters)


def count_the_leader_before_its_flush(patch: Patch) -> None:
    """The leader's own log counts before it is durable."""

    def append(core: core.RaftCore, state: leader.LeaderState, now_ms: int) -> None:
        if state.accumulator.ms_until_drain(now_ms) == 0:
            for batch in state.accumulator.drain():
                core.log.append_as_leader(batch.data, state.epoch)
                core.control.update()
            state.update_voters(core.control.last_voters)
            core.durable_offset = core.log.end_offset
            if state.update_local(core.durable_offset):
                core.on_leader_high_watermark(now_ms)

    patch.setattr(polling, "append_batches", append)


def count_a_flush_when_it_begins(patch: Patch) -> None:
    """A flush counts when it begins, not when it ends."""
    make_durable = core.RaftCore.make_durable

    def at_once(self: core.RaftCore, now_ms: int) -> None:
        make_durable(self, now_ms)
        if self._flushing_to is not None:
            self.durable_offset = self._flushing_to
            if self.is_leader and self.leader_state.update_local(self.durable_offset):
                self.on_leader_high_watermark(now_ms)

    patch.setattr(core.RaftCore, "make_durable", at_once)


def count_what_came_behind_a_flush(patch: Patch) -> None:
    """A flush that ends counts for everything that the log has by then."""

    def on_flushed(self: core.RaftCore, now_ms: int) -> None:
        self.durable_offset, self._flushing_to = self.log.end_offset, None
        if self.is_leader and self.leader_state.update_local(self.durable_offset):
            self.on_leader_high_watermark(now_ms)

    patch.setattr(core.RaftCore, "on_flushed", on_flushed)


def fetch_during_a_flush(patch: Patch) -> None:
    """A follower acknowledges records that its flush has not written to the disk yet."""
    patch.setattr(core.RaftCore, "is_flush_due", property(lambda self: False))
    patch.setattr(core.RaftCore, "make_durable", _flush_whatever_is_there)


def _flush_whatever_is_there(self: core.RaftCore, now_ms: int) -> None:
    if self._flushing_to is None and self.durable_offset < self.log.end_offset:
        self._flushing_to = self.log.end_offset
        if self.log.start_flush():
            self.on_flushed(now_ms)


def count_a_flush_of_what_was_cut(patch: Patch) -> None:
    """A flush that began before the log was truncated counts for the records that were appended after that."""
    patch.setattr(core.RaftCore, "on_log_cut", lambda self: None)


def count_voters_when_they_are_durable(patch: Patch) -> None:
    """The leader counts its former voters until the record of the new ones is on its own disk."""
    update_voters, on_flushed = leader.LeaderState.update_voters, core.RaftCore.on_flushed
    patch.setattr(leader.LeaderState, "update_voters", lambda self, last_voters: False)

    def late(self: core.RaftCore, now_ms: int) -> None:
        if self.is_leader:
            update_voters(self.leader_state, self.control.last_voters)
        on_flushed(self, now_ms)

    patch.setattr(core.RaftCore, "on_flushed", late)


def resume_a_leader(patch: Patch) -> None:
    """A leader that has forgotten its election leads the same epoch again, because the election is not written."""
    write = SimulatedStore.write

    def write_but_not_leading(self: SimulatedStore, election: ElectionState, data_version: int) -> None:
        if election.leader_id != self.node.key.id:
            write(self, election, data_version)

    patch.setattr(SimulatedStore, "write", write_but_not_leading)


CHANGES: dict[str, Any] = {"kraft_version": 1, "voters": 3, "observers": 2, "change_every_ms": 25, "partition_every_ms": 300}
SLOW_DISKS: dict[str, Any] = {"flush_ms": 200, "voters": 3, "append_every_ms": 5, "crash_every_ms": 100}
BUGS: list[tuple[Callable[[Patch], None], int, dict[str, Any]]] = [
    (acknowledge_before_flush, 5, {}),
    (count_the_leader_before_its_flush, 5, {}),
    (forget_the_vote, 5, {}),
    (vote_twice, 5, {}),
    (vote_for_a_shorter_log, 20, {}),
    (commit_of_an_older_epoch, 40, {}),
    (commit_with_a_minority, 5, {}),
    (take_a_stale_response, 10, {}),
    (believe_every_fetch, 20, {}),
    (resume_a_leader, 20, {}),
    (two_changes_of_the_voters_at_once, 20, CHANGES),
    (count_a_flush_when_it_begins, 5, SLOW_DISKS),
    (count_what_came_behind_a_flush, 10, SLOW_DISKS),
    (fetch_during_a_flush, 5, SLOW_DISKS),
    (count_a_flush_of_what_was_cut, 10, SLOW_DISKS),
    (count_voters_when_they_are_durable, 40, {**CHANGES, "flush_ms": 200}),
]


LONG = {count_voters_when_they_are_durable}
"""Bugs that take a second and more to find."""


@pytest.mark.parametrize(
    ("bug", "seeds", "given"),
    [pytest.param(*each, id=each[0].__name__, marks=[pytest.mark.slow] if each[0] in LONG else []) for each in BUGS],
)
def test_a_planted_bug_is_found(bug: Callable[[Patch], None], seeds: int, given: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    """A planted bug is found within this number of seeds, with a readable trace. Some bugs need runs with much of one kind of event."""
    bug(monkeypatch)
    with pytest.raises(PromiseError) as caught:
        for seed in range(seeds):
            World(seed, **given).run()
    text = str(caught.value)
    assert text.startswith("seed ")
    assert "election_timeout_ms=" in text
    assert text.count("\n") > 2


def test_parameters_differ() -> None:
    """Runs are of many kinds. With the parameters of only one kind, some bugs would never be found."""
    drawn = [World(seed).parameters for seed in range(50)]
    assert len(set(drawn)) == 50
    assert {each.voters for each in drawn} == {1, 2, 3, 4, 5}
