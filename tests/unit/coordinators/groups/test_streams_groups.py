"""Streams groups: members bring a topology, internal topics come first, tasks move between members, commits and descriptions."""

from __future__ import annotations

from typing import Any

import pytest

from kops.coordinators.groups.context import RequestContext
from kops.coordinators.groups.streams.assignors.queue import JavaPriorityQueue
from kops.coordinators.groups.streams.assignors.spec import GroupSpec, MemberSpec, SubtopologySpec, TargetTasks
from kops.coordinators.groups.streams.assignors.sticky import assign
from kops.coordinators.runtime.result import CoordinatorResult
from kops.errors import ApiError
from kops.protocol.messages import streams_group_heartbeat_request as asking
from kops.protocol.messages.offset_commit_request import OffsetCommitRequest, OffsetCommitRequestPartition, OffsetCommitRequestTopic
from tests.support.parts.groups.coordinator_images import Delta, Image
from tests.support.parts.groups.group_shard import GroupShard
from tests.support.parts.groups.streams_topologies import topology

CONTEXT = RequestContext(9, "client", "/127.0.0.1", 88)
SOURCES = {"orders": (bytes([1] * 16), 2), "stock": (bytes([2] * 16), 2)}
INTERNAL = {"app-count-repartition": (bytes([3] * 16), 2), "app-count-changelog": (bytes([4] * 16), 2)}


class StreamsShard(GroupShard):
    """A shard with the source topics, and settings without delays."""

    def __init__(self, **settings: Any) -> None:
        quick = {"group_streams_initial_rebalance_delay_ms": 0, "group_streams_assignment_interval_ms": 0}
        super().__init__(**(quick | settings))
        self.image = Image(SOURCES)
        self.shard.on_loaded(self.image)

    def run(self, result: CoordinatorResult[Any]) -> Any:
        self.timeline.offset = len(self.log)
        self.write(result)
        self.commit()
        return result.response

    def topics(self, topics: dict[str, tuple[bytes, int]]) -> None:
        """Set the topics of the cluster."""
        image = Image(topics, self.image.version + 1)
        self.shard.on_metadata_update(Delta.between(self.image, image), image)
        self.image = image

    def come(self, member_id: str, name: str = "counting", process_id: str = "p") -> Any:
        request = asking.StreamsGroupHeartbeatRequest(
            "g", member_id, 0, rebalance_timeout_ms=10_000, topology=topology(name), process_id=process_id
        )
        return self.run(self.shard.streams_group_heartbeat(CONTEXT, request))

    def stay(self, member_id: str, epoch: int, *, active: dict[str, list[int]] | None = None, **fields: Any) -> Any:
        request = asking.StreamsGroupHeartbeatRequest("g", member_id, epoch, **fields)
        if active is not None:
            request.active_tasks = [asking.TaskIds(subtopology_id, numbers) for subtopology_id, numbers in active.items()]
            request.standby_tasks, request.warmup_tasks = [], []
        return self.run(self.shard.streams_group_heartbeat(CONTEXT, request))

    @property
    def described(self) -> Any:
        (group,) = self.shard.streams_group_describe(["g"])
        return group


def active(result: Any) -> dict[str, list[int]] | None:
    """Return the active tasks in an answer."""
    tasks = result.response.active_tasks
    return None if tasks is None else {each.subtopology_id: each.partitions for each in tasks}


def statuses(result: Any) -> list[int]:
    return [status.status_code for status in result.response.status]


def test_internal_topics_come_before_tasks() -> None:
    shard = StreamsShard()
    result = shard.come("m1")
    assert (statuses(result), active(result)) == ([3], {})
    assert {name: topic.num_partitions for name, topic in result.topics_to_create.items()} == dict.fromkeys(INTERNAL, 2)
    assert shard.described.group_state == "NotReady"
    shard.topics({**SOURCES, **INTERNAL})
    result = shard.stay("m1", result.response.member_epoch)
    assert (statuses(result), active(result)) == ([], {"0": [0, 1], "1": [0, 1]})
    assert shard.described.group_state == "Stable"
    assert [each.partitions for each in shard.described.topology.subtopologies[1].state_changelog_topics] == [2]


@pytest.mark.parametrize(
    ("name", "status", "detail"),
    [
        ("missing", 1, "Source topics no, none, nothing and 1 additional topics are missing."),
        ("fixed apart", 2, "Following topics do not have the same number of partitions: [{app-p=2, app-q=5}]"),
    ],
)
def test_what_is_wrong_with_topics_is_told(name: str, status: int, detail: str) -> None:
    result = StreamsShard().come("m1", name)
    assert statuses(result) == [status]
    assert result.response.status[0].status_detail == detail


@pytest.mark.parametrize("name", ["looped", "without sink", "without source"])
def test_topologies_that_no_topics_could_satisfy(name: str) -> None:
    with pytest.raises(ApiError, match=r"Failed to compute|No source topics") as raised:
        StreamsShard().come("m1", name)
    assert raised.value.name == "STREAMS_INVALID_TOPOLOGY"


def test_a_task_moves_when_it_was_given_up() -> None:
    shard = StreamsShard()
    first = shard.come("m1", "plain")
    assert active(first) == {"0": [0, 1]}
    second = shard.come("m2", "plain", "other")
    assert active(second) == {}
    asked = shard.stay("m1", first.response.member_epoch, active={"0": [0, 1]})
    assert active(asked) == {"0": [0]}
    still = shard.stay("m2", second.response.member_epoch)
    assert active(still) is None
    shard.stay("m1", asked.response.member_epoch, active={"0": [0]})
    given = shard.stay("m2", still.response.member_epoch)
    assert active(given) == {"0": [1]}
    assert shard.described.group_state == "Stable"


def test_the_first_assignment_waits_for_more_members() -> None:
    shard = StreamsShard(group_streams_initial_rebalance_delay_ms=3000)
    first, second = shard.come("m1", "plain"), shard.come("m2", "plain", "other")
    assert (statuses(first), statuses(second)) == ([5], [5])
    shard.advance(3000)
    assert active(shard.stay("m1", first.response.member_epoch)) == {"0": [0]}
    assert active(shard.stay("m2", second.response.member_epoch)) == {"0": [1]}


def test_silent_members_and_members_that_keep_tasks_are_put_out() -> None:
    shard = StreamsShard()
    first = shard.come("m1", "plain")
    second = shard.come("m2", "plain", "other")
    shard.stay("m1", first.response.member_epoch, active={"0": [0, 1]})
    shard.advance(10_000)
    with pytest.raises(ApiError, match="m1 is not a member"):
        shard.stay("m1", 2)
    assert active(shard.stay("m2", second.response.member_epoch)) == {"0": [0, 1]}
    shard.advance(45_000)
    assert shard.described.group_state == "Empty"


def test_members_at_an_older_epoch_may_commit_for_tasks_that_they_had() -> None:
    shard = StreamsShard()
    epoch = shard.come("m1", "plain").response.member_epoch
    shard.stay("m1", epoch, active={"0": [0, 1]}, client_tags=[asking.KeyValue("a", "b")])

    def commit(member_epoch: int, topic: str = "orders", version: int = 9) -> Any:
        topics = [OffsetCommitRequestTopic(topic, partitions=[OffsetCommitRequestPartition(0, 5)])]
        request = OffsetCommitRequest("g", member_epoch, "m1", topics=topics)
        return shard.run(shard.shard.commit_offset(RequestContext(version, "client", "/127.0.0.1", 8), request))

    assert commit(epoch).topics[0].partitions[0].error_code == 0
    for wrong in (epoch - 1, epoch + 9):
        with pytest.raises(ApiError, match=r"older than assignment epoch|newer than current"):
            commit(wrong)
    with pytest.raises(ApiError, match="stock is not in the topology"):
        commit(epoch, "stock")
    with pytest.raises(ApiError, match="version 9 or above"):
        commit(epoch + 1, version=8)


def test_a_group_may_have_settings_of_its_own() -> None:
    shard = StreamsShard()
    settings = {"streams.session.timeout.ms": 1000, "streams.heartbeat.interval.ms": 100, "streams.num.standby.replicas": 0}
    shard.settings = settings
    epoch = shard.come("m1", "stateful").response.member_epoch
    stores = {"app-store-changelog": (bytes([6] * 16), 2), "app-again-changelog": (bytes([7] * 16), 2)}
    shard.topics({**SOURCES, "big": (bytes([5] * 16), 1), **stores})
    shard.come("m2", "stateful", "other")
    answer = shard.stay("m1", epoch).response
    assert answer.heartbeat_interval_ms == 100
    before = shard.described.group_epoch
    shard.settings = {**settings, "streams.num.standby.replicas": 1}
    shard.stay("m1", answer.member_epoch)
    assert shard.described.group_epoch == before + 1
    assert {bool(member.target_assignment.standby_tasks) for member in shard.described.members} == {True}
    shard.advance(1001)
    assert shard.described.members == []


def test_one_member_shuts_all_down() -> None:
    shard = StreamsShard()
    epoch = shard.come("m1", "plain").response.member_epoch
    other = shard.come("m2", "plain", "other").response.member_epoch
    assert statuses(shard.stay("m1", epoch, shutdown_application=True)) == [4]
    assert statuses(shard.stay("m2", other)) == [4]


def test_members_know_where_partitions_are() -> None:
    shard = StreamsShard()
    epoch = shard.come("m1", "plain").response.member_epoch
    result = shard.stay("m1", epoch, user_endpoint=asking.Endpoint("here", 80), endpoint_information_epoch=-1)
    (endpoint,) = result.response.partitions_by_user_endpoint
    assert [(each.topic, each.partitions) for each in endpoint.active_partitions] == [("orders", [0, 1])]
    assert shard.stay("m1", result.response.member_epoch).response.partitions_by_user_endpoint is None


def test_epochs_rooms_and_topologies_are_checked() -> None:
    shard = StreamsShard(group_streams_max_size=1)
    with pytest.raises(ApiError, match="Streams group g not found"):
        shard.stay("m1", 3)
    epoch = shard.come("m1", "plain").response.member_epoch
    with pytest.raises(ApiError, match="maximum capacity of 1 members"):
        shard.come("m2", "plain")
    with pytest.raises(ApiError, match="greater member epoch"):
        shard.stay("m1", epoch + 1)
    with pytest.raises(ApiError, match="Task 5 for subtopology 0 is invalid"):
        shard.stay("m1", epoch, active={"0": [5]})
    with pytest.raises(ApiError, match="Topology updates"):
        StreamsShard.come(shard_with_room(shard), "m2", "joined")


def shard_with_room(full: StreamsShard) -> StreamsShard:
    """Return another shard that has read the log of a full one."""
    again = StreamsShard()
    for record in full.log:
        again.shard.replay(len(again.log), -1, -1, record)
        again.log.append(record)
    again.commit()
    return again


def test_standby_tasks_are_elsewhere_and_become_active() -> None:
    subtopologies = {"0": SubtopologySpec(3, True)}
    configs = {"num.standby.replicas": "1"}
    members = {f"m{number}": MemberSpec(f"p{number}", TargetTasks()) for number in range(3)}
    found = assign(GroupSpec(members, configs, subtopologies))
    for tasks in found.values():
        assert len(tasks.active["0"]) == len(tasks.standby["0"]) == 1
        assert tasks.active["0"].isdisjoint(tasks.standby["0"])
    (lost,) = found["m0"].active["0"]
    left = {member_id: MemberSpec(members[member_id].process_id, tasks) for member_id, tasks in found.items() if member_id != "m0"}
    (heir,) = (member_id for member_id, spec in left.items() if lost in spec.tasks.standby["0"])
    again = assign(GroupSpec(left, configs, subtopologies))
    assert all(found[member_id].active["0"] <= again[member_id].active["0"] for member_id in left)
    assert lost in again[heir].active["0"]


def test_the_queue_gives_the_lightest() -> None:
    queue = JavaPriorityQueue(lambda pair: pair[0], [(3, "a"), (1, "b"), (2, "c"), (1, "d"), (3, "e")])
    assert [queue.poll() for _ in range(6)] == [(1, "b"), (1, "d"), (2, "c"), (3, "a"), (3, "e"), None]
