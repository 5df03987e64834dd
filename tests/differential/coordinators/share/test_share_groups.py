"""Share groups compared with Kafka's GroupCoordinatorShard: random heartbeats, initialized state, offsets, timeouts and changes of the
coordinator.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Mapping
from typing import Any

import pytest

from kops.coordinators.groups.context import RequestContext
from kops.coordinators.groups.share.group import ShareGroup
from kops.coordinators.groups.share.heartbeat import HeartbeatResult
from kops.coordinators.groups.share.offsets import DeleteOffsetsResult
from kops.protocol.messages import alter_share_group_offsets_request as altering
from kops.protocol.messages import delete_share_group_offsets_request as deleting
from kops.protocol.messages.share_group_heartbeat_request import ShareGroupHeartbeatRequest
from tests.support.kafka.oracle import Oracle
from tests.support.kafka.twins.java_coordinators import JavaCoordinators
from tests.support.kafka.twins.share_group_twins import ShareTwins

ALL_TOPICS = {"orders": (bytes([1] * 16), 2), "stock": (bytes([2] * 16), 3), "late": (bytes([3] * 16), 1)}
SETTINGS = {"group.share.max.size": 3}
GROUPS = ("g", "g", "g", "h")
MEMBERS = ("m1", "m2", "m3", "m4")


def drawn_topics(rng: random.Random, topics: Mapping[str, tuple[bytes, int]]) -> Mapping[str, tuple[bytes, int]]:
    """Return changed topics: some grow, some go, some come back with a new id."""
    found = {}
    for name in ALL_TOPICS:
        if name in topics and rng.random() < 0.85:
            topic_id, count = topics[name]
            found[name] = topic_id, count + rng.choice((0, 0, 1, 2))
        elif name not in topics and rng.random() < 0.6:
            found[name] = rng.randbytes(16), rng.randrange(1, 4)
    return found


class Life:
    """One life of both shards."""

    def __init__(self, java: JavaCoordinators, seed: int) -> None:
        self.rng = random.Random(seed)
        self.twins = ShareTwins(java, SETTINGS, {name: ALL_TOPICS[name] for name in ("orders", "stock")})
        self.asked: list[tuple[str, dict[bytes, list[int]]]] = []
        self.deleted: list[tuple[str, dict[bytes, str]]] = []
        self.seen: Counter[str] = Counter()

    def group(self, group_id: str) -> ShareGroup | None:
        group = self.twins.ours._store.get(group_id)
        return group if isinstance(group, ShareGroup) else None

    def step(self) -> None:
        rng, twins = self.rng, self.twins
        if rng.random() < 0.03:
            twins.fail_write = "NOT_ENOUGH_REPLICAS"
        chosen = rng.random()
        if chosen < 0.04:
            self.leave(rng.choice(GROUPS))
            self.offsets()
        elif chosen < 0.55:
            self.heartbeat()
        elif chosen < 0.68:
            self.initialized()
        elif chosen < 0.8:
            self.offsets()
        elif chosen < 0.83:
            twins.change_topics(drawn_topics(rng, twins.topics))
        elif chosen < 0.91:
            twins.advance(rng.choice((0, 500, 1000, 20_000, 31_000)))
        elif chosen < 0.96:
            twins.commit()
        elif chosen < 0.985:
            twins.describe_shares(["g", "h", "none"])
        else:
            self.twins = twins.reloaded()
            self.seen["reloaded"] += 1

    def heartbeat(self) -> None:
        rng = self.rng
        group_id, member_id = rng.choice(GROUPS), rng.choice(MEMBERS)
        group = self.group(group_id)
        member = None if group is None else group.members.get(member_id)
        epoch = 0 if member is None else member.member_epoch
        if rng.random() < 0.12:
            epoch = rng.choice((0, -1, 1, 2, epoch - 1, epoch + 1))
        names = rng.sample(["orders", "stock", "late", "no"], rng.randrange(1, 4)) if epoch == 0 or rng.random() < 0.15 else None
        request = ShareGroupHeartbeatRequest(group_id, member_id, max(epoch, -1), rng.choice((None, None, "r")), names)
        answer = self.twins.ask("share_group_heartbeat", request, 1)
        self.note("heartbeat", answer)
        result = answer.response
        if isinstance(result, HeartbeatResult) and result.initialize is not None:
            topics = {topic.topic_id: [each.partition for each in topic.partitions] for topic in result.initialize.topics}
            self.asked.append((group_id, topics))

    def leave(self, group_id: str) -> None:
        """Let all members leave."""
        group = self.group(group_id)
        for member_id in list(group.members) if group is not None else []:
            self.note("leave", self.twins.ask("share_group_heartbeat", ShareGroupHeartbeatRequest(group_id, member_id, -1), 1))

    def initialized(self) -> None:
        """Let the share coordinator answer."""
        if not self.asked:
            return
        rng, twins = self.rng, self.twins
        group_id, topics = self.asked.pop(rng.randrange(len(self.asked)))
        if self.group(group_id) is None:
            return
        if rng.random() < 0.2:
            topics = {topic_id: numbers[: rng.randrange(1, 3)] for topic_id, numbers in topics.items()}
        kind = "initialize" if rng.random() < 0.8 else "uninitialize"
        arguments = (group_id, topics), (group_id, twins.numbers(topics))
        self.note(kind, twins.call(f"{kind}_share_group_state", f"{kind}ShareGroupState", *arguments))
        theirs = twins.theirs.shard.initializedShareGroupPartitions(group_id)
        ours = {
            twins.java.uuid(key).toString(): set(numbers)
            for key, numbers in twins.ours.initialized_share_group_partitions(group_id).items()
        }
        assert ours == {key.toString(): set(numbers) for key, numbers in theirs.items()}

    def offsets(self) -> None:
        rng, twins, java = self.rng, self.twins, self.twins.java
        group_id = rng.choice(GROUPS)
        chosen = rng.random()
        names = rng.sample(["orders", "stock", "no"], rng.randrange(1, 3))
        if chosen < 0.25:
            parts = [altering.AlterShareGroupOffsetsRequestPartition(number, rng.randrange(20)) for number in rng.sample(range(4), 2)]
            alter = altering.AlterShareGroupOffsetsRequest(
                group_id, [altering.AlterShareGroupOffsetsRequestTopic(name, parts) for name in names]
            )
            real = (group_id, java.message(alter, 0))
            self.note("alter", twins.call("alter_share_group_offsets", "alterShareGroupOffsets", (group_id, alter), real))
        elif chosen < 0.5:
            topics = [deleting.DeleteShareGroupOffsetsRequestTopic(name) for name in names]
            delete = deleting.DeleteShareGroupOffsetsRequest(group_id, topics)
            real = (group_id, java.message(delete, 0))
            answer = twins.call("initiate_delete_share_group_offsets", "initiateDeleteShareGroupOffsets", (group_id, delete), real)
            self.note("begin", answer)
            if isinstance(answer.response, DeleteOffsetsResult) and answer.response.delete is not None:
                self.seen["deleting"] += 1
                self.deleted.append((group_id, {topic.topic_id: "name" for topic in answer.response.delete.topics}))
        elif chosen < 0.7 and self.deleted:
            group_id, gone = self.deleted.pop()
            none = java.oracle.jvm.java.util.ArrayList()
            arguments: tuple[tuple[Any, ...], tuple[Any, ...]] = (group_id, gone, []), (group_id, twins.names(gone), none)
            self.note("complete", twins.call("complete_delete_share_group_offsets", "completeDeleteShareGroupOffsets", *arguments))
        elif chosen < 0.9:
            requests = twins.call(
                "share_partition_delete_requests", "sharePartitionDeleteRequests", (["g", "h", "no"],), (["g", "h", "no"],)
            )
            self.note("requests", requests)
            self.delete_groups([group_id])
        else:
            ids = [topic_id for topic_id, _ in list(ALL_TOPICS.values())[:1]]
            self.note("cleanup", twins.call("maybe_cleanup_share_group_state", "maybeCleanupShareGroupState", (ids,), (twins.ids(ids),)))

    def delete_groups(self, group_ids: list[str]) -> None:
        twins = self.twins
        context = twins.theirs.context("DELETE_GROUPS", 2, "client")
        own = RequestContext(2, "client", "/127.0.0.1", 42)
        answer = twins.operate(
            lambda: twins.theirs.shard.deleteGroups(context, group_ids), lambda: twins.ours.delete_groups(own, group_ids)
        )
        self.note("delete", answer)

    def note(self, kind: str, answer: Any) -> None:
        self.seen[f"{kind} {answer.error}"] += 1
        self.seen.update(type(record.key).__name__ for record in answer.records)


def live(java: JavaCoordinators, seed: int, step_count: int) -> Counter[str]:
    """Run one life, and return what happened."""
    life = Life(java, seed)
    for _ in range(step_count):
        life.step()
    return life.seen


def test_random_lives(oracle: Oracle) -> None:
    """Both give the same answers, the same records, the same timers and the same requests to the share coordinator."""
    java = JavaCoordinators(oracle)
    seen: Counter[str] = Counter()
    for seed in (3, 7):
        seen += live(java, seed, 60)
    assert {"heartbeat None", "heartbeat GROUP_MAX_SIZE_REACHED", "initialize None", "ShareGroupTargetAssignmentMemberKey"} <= set(seen), (
        seen
    )


@pytest.mark.slow
def test_many_lives(oracle: Oracle, seed_count: int | None) -> None:
    """Longer lives agree as well."""
    java = JavaCoordinators(oracle)
    seen: Counter[str] = Counter()
    for seed in range(100, 100 + (seed_count or 5)):
        seen += live(java, seed, 140)
    assert {"heartbeat FENCED_MEMBER_EPOCH", "alter None", "deleting", "reloaded", "uninitialize None", "complete None"} <= set(seen), seen
