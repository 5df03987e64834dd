"""Consumer groups: members that join, leave and come back, with a clock that stands still."""

from __future__ import annotations

from typing import Any
from uuid import UUID

import pytest

from kops.coordinators.groups.config import GroupCoordinatorConfig
from kops.coordinators.groups.context import RequestContext
from kops.coordinators.groups.shard.shard import GroupCoordinatorShard
from kops.coordinators.runtime.result import CoordinatorResult
from kops.errors import ApiError
from kops.protocol.messages.consumer_group_heartbeat_request import ConsumerGroupHeartbeatRequest, TopicPartitions
from kops.protocol.messages.consumer_group_heartbeat_response import ConsumerGroupHeartbeatResponse
from kops.protocol.messages.share_group_heartbeat_request import ShareGroupHeartbeatRequest
from kops.timeline import Timeline
from tests.support.parts.groups.coordinator_images import Delta, Image
from tests.support.parts.manual_timer import ManualTimer

ORDERS, STOCK = bytes(range(16)), bytes(range(240, 256))
CONTEXT = RequestContext(1, "client", "/127.0.0.1", 68)


class Executor:
    """An executor whose tasks run when the test says so."""

    def __init__(self) -> None:
        self.tasks: dict[str, tuple[Any, Any]] = {}

    def schedule(self, key: str, task: Any, operation: Any) -> bool:
        """Schedule a task, as CoordinatorExecutor does."""
        return self.tasks.setdefault(key, (task, operation)) == (task, operation)

    def is_scheduled(self, key: str) -> bool:
        """Return whether a task is scheduled, as CoordinatorExecutor does."""
        return key in self.tasks

    def cancel(self, key: str) -> None:
        """Cancel a task, as CoordinatorExecutor does."""
        self.tasks.pop(key, None)


class Shard:
    """A shard whose records are committed at once."""

    def __init__(self, **settings: Any) -> None:
        self.now_ms = 1_700_000_000_000
        self.timeline = Timeline()
        self.timer = ManualTimer(lambda: self.now_ms)
        self.executor = Executor()
        self.group_settings: dict[str, Any] | None = None
        self.image = Image({"orders": (ORDERS, 4)})
        config = GroupCoordinatorConfig(group_consumer_assignment_interval_ms=0, **settings)
        self.shard = GroupCoordinatorShard(
            self.timeline,
            self.timer,
            self.executor,
            lambda: self.now_ms,
            lambda: str(UUID(int=1)),
            config,
            lambda _group_id: self.group_settings,
        )
        self.shard.on_loaded(self.image)
        self.offset = 0

    def write(self, result: CoordinatorResult[Any]) -> None:
        """Replay and commit the records of a result."""
        for record in result.records:
            self.timeline.offset = self.offset
            self.shard.replay(self.offset, -1, -1, record)
            self.offset += 1
        self.timeline.forget_up_to(self.offset)

    def heartbeat(self, member_id: str, epoch: int, owned: dict[bytes, list[int]] | None = None, **more: Any) -> Any:
        """Return a heartbeat's response."""
        topics = None if owned is None else [TopicPartitions(*each) for each in owned.items()]
        request = ConsumerGroupHeartbeatRequest("g", member_id, epoch, topic_partitions=topics, **more)
        self.timeline.offset = self.offset
        result = self.shard.consumer_group_heartbeat(CONTEXT, request)
        self.write(result)
        assert isinstance(result.response, ConsumerGroupHeartbeatResponse)
        return result.response

    def keep(self, member_id: str, epoch: int, *, client_id: str = CONTEXT.client_id, **more: Any) -> Any:
        """Return the answer if the heartbeat changes nothing."""
        request = ConsumerGroupHeartbeatRequest("g", member_id, epoch, **more)
        return self.shard.keep_consumer_member(RequestContext(CONTEXT.api_version, client_id, CONTEXT.client_host, 68), request)

    def join(self, member_id: str, **more: Any) -> Any:
        """Let a member join."""
        subscription = {"subscribed_topic_names": ["orders"]} if "subscribed_topic_regex" not in more else {}
        return self.heartbeat(member_id, 0, {}, rebalance_timeout_ms=60_000, **subscription, **more)

    def change_topics(self, topics: dict[str, tuple[bytes, int]]) -> None:
        """Change the metadata."""
        image = Image(topics, self.image.version + 1)
        self.shard.on_metadata_update(Delta.between(self.image, image), image)
        self.image = image

    @property
    def state(self) -> str:
        """Return the group's committed state."""
        return self.shard.consumer_group_describe(["g"])[0].group_state


def _partitions(response: Any) -> dict[bytes, list[int]]:
    return {topic.topic_id: sorted(topic.partitions) for topic in response.assignment.topic_partitions}


def test_second_member_waits_until_the_first_has_given_up_partitions() -> None:
    shard = Shard()
    first = shard.join("m1")
    assert (first.member_epoch, _partitions(first)) == (2, {ORDERS: [0, 1, 2, 3]})
    second = shard.join("m2")
    assert (second.member_epoch, _partitions(second)) == (3, {})
    assert shard.state == "Reconciling"
    told = shard.heartbeat("m1", 2, {ORDERS: [0, 1, 2, 3]})
    kept = _partitions(told)
    assert told.member_epoch == 2 and len(kept[ORDERS]) == 2
    assert shard.heartbeat("m2", 3, {}).assignment is None
    assert shard.heartbeat("m1", 2, kept).member_epoch == 3
    assert sorted([*kept[ORDERS], *_partitions(shard.heartbeat("m2", 3, {}))[ORDERS]]) == [0, 1, 2, 3]
    assert shard.state == "Stable"


def test_member_that_gives_up_nothing_is_out_after_the_rebalance_timeout() -> None:
    shard = Shard(group_consumer_session_timeout_ms=100_000)
    shard.join("m1")
    shard.join("m2")
    shard.heartbeat("m1", 2, {ORDERS: [0, 1, 2, 3]})
    due_ms, key = shard.timer.next_due() or (0, "")
    assert (due_ms - shard.now_ms, key) == (60_000, "rebalance-timeout-g-m1")
    shard.write(shard.timer.pop(key)())
    with pytest.raises(ApiError, match="Member m1 is not a member of group g"):
        shard.heartbeat("m1", 2, {})


def test_static_member_comes_back_to_its_partitions() -> None:
    shard = Shard()
    epoch = shard.join("m1", instance_id="i").member_epoch
    with pytest.raises(ApiError, match="the instance id is owned by m1 member"):
        shard.join("m2", instance_id="i")
    assert shard.heartbeat("m1", -2, instance_id="i").member_epoch == -2
    again = shard.join("m2", instance_id="i")
    assert (again.member_epoch, _partitions(again)) == (epoch, {ORDERS: [0, 1, 2, 3]})


def test_settings_of_the_group_go_before_the_brokers() -> None:
    shard = Shard()
    assert shard.join("m1").heartbeat_interval_ms == 5000
    shard.group_settings = {"consumer.heartbeat.interval.ms": 6000, "consumer.session.timeout.ms": 7000}
    assert shard.heartbeat("m1", 2).heartbeat_interval_ms == 6000
    assert shard.timer.dues()["session-timeout-g-m1"] == shard.now_ms + 7000


def test_heartbeats_that_change_nothing() -> None:
    """Such a heartbeat only restarts the session."""
    shard = Shard()
    shard.join("m1")
    assert shard.keep("m1", 2) is None, "the metadata of the new group is checked once"
    shard.heartbeat("m1", 2)
    shard.now_ms += 1000
    answer = shard.keep("m1", 2)
    assert (answer.member_id, answer.member_epoch, answer.heartbeat_interval_ms, answer.assignment) == ("m1", 2, 5000, None)
    assert shard.timer.dues()["session-timeout-g-m1"] == shard.now_ms + 45_000
    others: list[dict[str, Any]] = [
        {"member_id": "m2", "epoch": 2},
        {"epoch": 0},
        {"epoch": -1},
        {"epoch": -2},
        {"epoch": 1},
        {"epoch": 3},
        {"topic_partitions": []},
        {"subscribed_topic_names": ["stock"]},
        {"subscribed_topic_regex": ""},
        {"instance_id": "i"},
        {"rack_id": "r"},
        {"server_assignor": "range"},
        {"rebalance_timeout_ms": 1},
        {"client_id": "another"},
    ]
    for fields in others:
        assert shard.keep(**{"member_id": "m1", "epoch": 2, **fields}) is None, fields


def test_no_heartbeat_is_kept_while_the_group_has_something_to_do() -> None:
    shard = Shard()
    shard.join("m1")
    shard.join("m2")
    assert shard.keep("m1", 2) is None, "it must give up partitions"
    shard.heartbeat("m1", 2, {ORDERS: [0, 1, 2, 3]})
    shard.heartbeat("m1", 2, {ORDERS: [0, 1]})
    shard.heartbeat("m2", 3, {})
    assert shard.keep("m1", 3) is not None
    shard.change_topics({"orders": (ORDERS, 5)})
    assert shard.keep("m1", 3) is None, "a topic has changed"
    regex = Shard()
    regex.join("m1", subscribed_topic_regex="orders")
    task, operation = regex.executor.tasks.pop("g-regex")
    regex.write(operation(task(), None))
    regex.heartbeat("m1", 1, {})
    assert regex.keep("m1", 2) is None, "its topics may have to be found again"


def test_regular_expression_finds_topics_and_new_ones_later() -> None:
    shard = Shard()
    assert _partitions(shard.join("m1", subscribed_topic_regex="(orders|stock)")) == {}
    task, operation = shard.executor.tasks.pop("g-regex")
    shard.write(operation(task(), None))
    assert _partitions(shard.heartbeat("m1", 1, {})) == {ORDERS: [0, 1, 2, 3]}
    shard.change_topics({"orders": (ORDERS, 4), "stock": (STOCK, 1)})
    shard.now_ms += 20_000
    shard.heartbeat("m1", 2, {ORDERS: [0, 1, 2, 3]})
    task, operation = shard.executor.tasks.pop("g-regex")
    shard.write(operation(task(), None))
    assert _partitions(shard.heartbeat("m1", 2, {ORDERS: [0, 1, 2, 3]})) == {ORDERS: [0, 1, 2, 3], STOCK: [0]}


def test_grown_topic_is_assigned_with_the_next_heartbeat() -> None:
    shard = Shard()
    shard.join("m1")
    assert shard.heartbeat("m1", 2).assignment is None
    shard.change_topics({"orders": (ORDERS, 5)})
    assert _partitions(shard.heartbeat("m1", 2)) == {ORDERS: [0, 1, 2, 3, 4]}


def test_undone_records_leave_the_group_as_it_was() -> None:
    shard = Shard()
    shard.join("m1")
    before = repr(shard.shard.consumer_group_describe(["g"]))
    shard.timeline.offset = shard.offset
    request = ConsumerGroupHeartbeatRequest("g", "m2", 0, rebalance_timeout_ms=1, subscribed_topic_names=["orders"], topic_partitions=[])
    for offset, record in enumerate(shard.shard.consumer_group_heartbeat(CONTEXT, request).records, shard.offset):
        shard.timeline.offset = offset
        shard.shard.replay(offset, -1, -1, record)
    assert repr(shard.shard.consumer_group_describe(["g"])) == before  # nothing is committed
    shard.timeline.revert_to(shard.offset - 1)
    shard.timeline.forget_up_to(shard.offset)
    assert repr(shard.shard.consumer_group_describe(["g"])) == before
    assert _partitions(shard.heartbeat("m1", 2, {ORDERS: [0, 1, 2, 3]}, rebalance_timeout_ms=5, subscribed_topic_names=["orders"])) == {
        ORDERS: [0, 1, 2, 3]
    }


def test_the_session_of_a_member_that_began_as_one_of_a_share_group() -> None:
    """Both kinds of groups use the same key for its timer. If the share group was not written, the timer stays. A consumer group may then
    get the same ids, and its member must be removed at the end of its session."""
    shard = Shard()
    shard.timeline.offset = shard.offset
    dropped = shard.shard.share_group_heartbeat(CONTEXT, ShareGroupHeartbeatRequest("g", "m", 0, subscribed_topic_names=["orders"]))
    assert dropped.records
    epoch = shard.join("m").member_epoch
    shard.now_ms += 5_000
    shard.heartbeat("m", epoch)
    assert shard.keep("m", epoch) is not None
    shard.write(shard.timer.pop("session-timeout-g-m")())
    assert not shard.shard.consumer_group_describe(["g"])[0].members
