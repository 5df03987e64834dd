"""Commits of a classic member in random lives, beside Kafka's ConsumerCoordinator: answers come in any state of a rebalance.

After each one, both members send the same requests for the same reasons, and call the listener alike.
"""

from __future__ import annotations

import random
from collections import Counter
from types import SimpleNamespace
from typing import Any, Final

import pytest

from kops.client.consumer.groups.classic import ClassicGroup
from kops.client.consumer.groups.commits import Commits
from kops.client.consumer.groups.coordinator import Coordinator
from kops.client.consumer.options import ConsumerOptions
from kops.client.consumer.records import OffsetAndMetadata
from kops.client.groups.membership import State
from kops.client.node import Node
from kops.errors import ApiError
from kops.protocol.declaration import Message
from kops.protocol.errors import by_name
from kops.protocol.messages import OffsetCommitRequest, OffsetCommitResponse
from kops.protocol.messages.offset_commit_response import OffsetCommitResponsePartition, OffsetCommitResponseTopic
from kops.records.log_offsets import TopicPartition
from tests.support.kafka.oracle import Oracle
from tests.support.kafka.twins.classic_twins import COORDINATOR, ERRORS, LOST, ClassicTwins
from tests.support.kafka.twins.java_coordinators import JavaCoordinators
from tests.support.kafka.twins.java_members import TimerClock
from tests.support.kafka.twins.member_twins import same

KEY: Final = TopicPartition("t", 1)
NODE: Final = Node(7, "h", 9)
STEPS: Final = 40
CODES: Final = (*COORDINATOR, *LOST, "REQUEST_TIMED_OUT")


class CommittingTwins(ClassicTwins):
    """Both members, whose program also commits."""

    def __init__(self, java: JavaCoordinators, clock: TimerClock, rng: random.Random) -> None:
        super().__init__(java, clock, rng)
        settings: dict[str, object] = {"bootstrap.servers": "h:9", "group.id": "g", "enable.auto.commit": False}
        if self.instance_id is not None:
            settings["group.instance.id"] = self.instance_id
        options = ConsumerOptions.of(settings)
        unused: Any = None
        self.coordinator = Coordinator(options, unused, unused, lambda: 0.5)
        self.commits = Commits(options, self.coordinator, unused, clock.now_ms)
        group: Any = ClassicGroup.__new__(ClassicGroup)
        group._membership = self.ours
        group._parts = SimpleNamespace(coordinator=self.coordinator)
        self.commits.member = group
        self.offsets = java.oracle.jvm.java.util.HashMap()
        self.offsets.put(
            java.make("common.TopicPartition", KEY.topic, KEY.partition), java.make("clients.consumer.OffsetAndMetadata", java.long(5))
        )

    def step(self) -> None:
        """Sometimes commit before the next thing happens."""
        if self.ours.state is State.STABLE and not self.theirs.coordinator.coordinatorUnknown() and self.rng.random() < 0.4:
            self.commit()
            self.run()
        super().step()

    def commit(self) -> None:
        """Let both commit, and compare the requests."""
        self.trail.append("commit")
        self.coordinator.node = NODE
        outcome = self.commits.commit({KEY: OffsetAndMetadata(5)}, float("inf"), retries=True)
        self.theirs.call("ConsumerCoordinator", "sendOffsetCommitRequest", self.theirs.coordinator, self.offsets)
        self.theirs.client.pollNoWakeup()
        (theirs,) = self.theirs.requests()
        (mine,) = self.coordinator.turn(self.clock.now_ms)
        same(repr(mine.message), repr(theirs.message))

        def end(answer: Message | ApiError) -> None:
            self.coordinator.node = NODE
            mine.answered(answer, self.clock.now_ms)
            self.coordinator.withdraw([outcome])
            if self.coordinator.node is None:  # which ClassicGroup sees in its next turn
                self.ours.coordinator_lost("a commit", self.clock.now_ms)

        ending: Any = end
        self.waiting.append((ending, theirs.message, theirs.callback))

    def give(self, place: int, name: str) -> None:
        """Answer a waiting request. Most commits fail."""
        mine, sent, callback = self.waiting[place]
        if not isinstance(sent, OffsetCommitRequest):
            super().give(place, name)
            return
        del self.waiting[place]
        name = self.rng.choice(CODES) if self.rng.random() < 0.7 else "NONE"
        self.trail.append(f"commit: {name}")
        self.seen[f"{name} {self.ours.state.name}"] += 1
        row = OffsetCommitResponsePartition(KEY.partition, by_name(name).code)
        answer = OffsetCommitResponse(topics=[OffsetCommitResponseTopic(KEY.topic, partitions=[row])])
        self.theirs.answer(callback, answer)
        ending: Any = mine
        ending(answer)

    def _disconnect(self) -> None:
        commits = [one for one in self.waiting if isinstance(one[1], OffsetCommitRequest)]
        for mine, _, callback in commits:
            self.theirs.answer(callback, None)
            ending: Any = mine
            ending(ApiError("NETWORK_EXCEPTION", "disconnected"))
        self.waiting = [one for one in self.waiting if not isinstance(one[1], OffsetCommitRequest)]
        super()._disconnect()


@pytest.mark.slow
def test_commits_in_random_lives(oracle: Oracle, seed_count: int | None) -> None:
    """`--seeds N` runs more. Every second life has errors of other requests, too."""
    java = JavaCoordinators(oracle)
    clock = TimerClock(java, 1_700_000_000_000)
    seen: Counter[str] = Counter()
    for seed in range(seed_count or 24):
        twins = CommittingTwins(java, clock, random.Random(seed))
        seen += twins.live(STEPS, f"seed {seed}", ERRORS if seed % 2 else ("NONE",))
    assert seen.keys() >= {f"{name} STABLE" for name in CODES}
    assert {f"{name} JOINING" for name in CODES} & seen.keys()
