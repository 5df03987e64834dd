"""Which partition has a group, which errors clients get, several answers in one, and the coordinators' view of the metadata."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from kops.broker.coordinators.errors import answering_errors, joined, operation_error
from kops.broker.coordinators.group_coordinator import GroupCoordinator
from kops.broker.coordinators.heartbeat_checks import check_consumer_heartbeat, check_streams_heartbeat
from kops.broker.coordinators.image_views import DeltaView, ImageView
from kops.broker.share_state.coordinator import ShareCoordinator
from kops.config.broker_keys.table import KAFKA_CONFIG_DEF
from kops.config.groups import effective_group_config
from kops.config.values.java_hash import partition_of
from kops.coordinators.runtime.promise import Promise
from kops.errors import ApiError, KopsError
from kops.metadata.image.metadata_delta import MetadataDelta
from kops.metadata.image.metadata_image import EMPTY, MetadataProvenance
from kops.protocol.messages import ConsumerGroupHeartbeatRequest, PartitionRecord, RegisterBrokerRecord, RemoveTopicRecord, TopicRecord
from kops.protocol.messages.streams_group_heartbeat_request import StreamsGroupHeartbeatRequest, Subtopology, TaskIds, TopicInfo
from tests.support.parts.groups.streams_topologies import topology


@pytest.mark.parametrize(
    ("text", "partition"),
    [
        ("", 0),
        ("a", 97 % 50),
        ("aa", (97 * 31 + 97) % 50),
        ("polygenelubricants", 0),  # its hash code is -2^31, which has no absolute value
        ("Hello, World!", 1_498_789_909 % 50),
        ("consumers", 421_004_483 % 50),  # negative
        ("group-42", 506_311_820 % 50),
    ],
)
def test_the_partition_of_a_group(text: str, partition: int) -> None:
    assert partition_of(text, 50) == partition


@pytest.mark.parametrize(
    ("error", "told"),
    [
        (ApiError("UNKNOWN_MEMBER_ID", "why"), ("UNKNOWN_MEMBER_ID", "why")),
        (ApiError("NOT_LEADER_OR_FOLLOWER", "why"), ("NOT_COORDINATOR", None)),
        (ApiError("KAFKA_STORAGE_ERROR"), ("NOT_COORDINATOR", None)),
        (ApiError("NOT_ENOUGH_REPLICAS"), ("COORDINATOR_NOT_AVAILABLE", None)),
        (ApiError("REQUEST_TIMED_OUT"), ("COORDINATOR_NOT_AVAILABLE", None)),
        (ApiError("NETWORK_EXCEPTION"), ("COORDINATOR_LOAD_IN_PROGRESS", None)),
        (ApiError("RECORD_LIST_TOO_LARGE"), ("UNKNOWN_SERVER_ERROR", None)),
        (KopsError("a bug"), ("UNKNOWN_SERVER_ERROR", None)),
    ],
)
def test_what_clients_are_told(error: KopsError, told: tuple[str, str | None]) -> None:
    assert operation_error("join", error) == told
    promise: Promise[object] = Promise()
    answered = answering_errors("join", promise, lambda name, text: (name, text))
    promise.fail(error)
    assert answered.result() == told


def test_several_answers_in_one() -> None:
    assert joined([]).result() == []
    first: Promise[list[int]] = Promise()
    second: Promise[list[int]] = Promise()
    both = joined([first, second])
    second.complete([2])
    assert not both.is_done
    first.complete([1])
    assert both.result() == [1, 2]
    failed = joined([Promise.of([1]), Promise.failed(ApiError("NOT_COORDINATOR"))])
    with pytest.raises(ApiError, match="NOT_COORDINATOR"):
        failed.result()


def test_metadata_as_coordinators_see_it() -> None:
    def change(image: Any, *records: Any) -> tuple[MetadataDelta, Any]:
        delta = MetadataDelta(image)
        for record in records:
            delta.replay(record)
        return delta, delta.apply(MetadataProvenance(image.offset + 1, 1, 0, True))

    topic_id = b"t" * 16
    brokers = [RegisterBrokerRecord(1, rack="a"), RegisterBrokerRecord(2, rack=None)]
    partitions = [PartitionRecord(number, topic_id, replicas=[1, 2], isr=[1, 2], leader=1) for number in range(2)]
    delta, image = change(EMPTY, *brokers, TopicRecord("t", topic_id), *partitions)
    view, changed = ImageView(image), DeltaView(delta)
    assert ImageView(EMPTY).is_empty and not view.is_empty
    assert (view.version, list(view.topic_names())) == (0, ["t"])
    found = view.topic_by_id(topic_id)
    assert found is not None
    assert (found.name, found.id, found.partition_count) == ("t", topic_id, 2)
    assert list(found.partition_racks(0)) == ["a"]
    assert list(found.partition_racks(9)) == []
    assert view.topic("u") is None
    assert view.topic_by_id(b"u" * 16) is None
    assert (list(changed.created_topic_ids), list(changed.changed_topic_ids), list(changed.deleted_topic_ids)) == (
        [topic_id],
        [topic_id],
        [],
    )
    delta, _ = change(image, RemoveTopicRecord(topic_id))
    assert list(DeltaView(delta).deleted_topic_ids) == [topic_id]
    delta, _ = change(image, RegisterBrokerRecord(3))
    assert list(DeltaView(delta).changed_topic_ids) == []


@pytest.mark.parametrize("kind", [GroupCoordinator, ShareCoordinator])
def test_shards_are_called_for_new_topics_only_and_see_the_newest_metadata(kind: type[Any]) -> None:
    def change(image: Any, *records: Any) -> tuple[MetadataDelta, Any]:
        delta = MetadataDelta(image)
        for record in records:
            delta.replay(record)
        return delta, delta.apply(MetadataProvenance(image.offset + 1, 1, 0, True))

    told: list[ImageView] = []
    coordinator = object.__new__(kind)
    runtime = SimpleNamespace(on_metadata_update=lambda delta, view: told.append(view))
    service = SimpleNamespace(runtime=runtime)
    vars(coordinator).update(_service=service, _view=None, is_active=True, _check_jobs=lambda image: None)
    delta, image = change(EMPTY, TopicRecord("t", b"t" * 16))
    coordinator.on_metadata_update(delta, image)
    delta, image = change(image, RegisterBrokerRecord(3))
    coordinator.on_metadata_update(delta, image)
    delta, image = change(image)
    coordinator.on_metadata_update(delta, image)
    (view,) = told
    assert (view.version, list(view.topic_names())) == (2, ["t"])
    delta, image = change(image, TopicRecord("u", b"u" * 16))
    coordinator.on_metadata_update(delta, image)
    assert [each.version for each in told] == [2, 3], "what was seen before a new topic stays"


def test_settings_of_a_group_stay_within_those_of_the_broker() -> None:
    broker = {name: key.default for name, key in KAFKA_CONFIG_DEF.keys.items() if name.startswith("group.")}
    found = effective_group_config({"consumer.session.timeout.ms": "99999", "share.delivery.count.limit": "1"}, broker)
    assert found["consumer.session.timeout.ms"] == broker["group.consumer.max.session.timeout.ms"]
    assert found["share.delivery.count.limit"] == broker["group.share.min.delivery.count.limit"]
    assert found["consumer.heartbeat.interval.ms"] == broker["group.consumer.heartbeat.interval.ms"]
    assert effective_group_config({"streams.num.standby.replicas": "9", "unknown": "x"}, broker)["streams.num.standby.replicas"] == 2


def test_heartbeats_that_are_not_valid() -> None:
    def refusal(version: int = 1, **fields: Any) -> str:
        values = {"group_id": "g", "member_id": "m", "rebalance_timeout_ms": 5, "subscribed_topic_names": [], "topic_partitions": []}
        request = ConsumerGroupHeartbeatRequest(**{**values, **fields})
        try:
            check_consumer_heartbeat(request, version, ["uniform", "range"])
        except ApiError as error:
            return f"{error.name}: {error.message}"
        return "NONE"

    assert refusal() == "NONE"
    assert refusal(member_id="", version=0) == "NONE"
    assert refusal(member_id=" \t") == "INVALID_REQUEST: MemberId can't be empty."
    assert refusal(member_id="\u3000") == "NONE", "Java's trim does not know this blank"
    assert refusal(member_epoch=-1, member_id="", version=0) == "INVALID_REQUEST: MemberId can't be empty."
    assert refusal(server_assignor="x") == ("UNSUPPORTED_ASSIGNOR: ServerAssignor x is not supported. Supported assignors: uniform, range.")
    assert refusal(member_epoch=-2) == "INVALID_REQUEST: InstanceId can't be null."
    assert refusal(member_epoch=-2, instance_id="i") == "NONE"


def test_which_heartbeats_of_streams_groups_are_valid() -> None:
    def refusal(**fields: Any) -> str:
        request = StreamsGroupHeartbeatRequest(
            "g", "m", fields.pop("member_epoch", 0), rebalance_timeout_ms=5000, topology=topology("plain")
        )
        request.active_tasks, request.standby_tasks, request.warmup_tasks = [], [], []
        for name, value in fields.items():
            setattr(request, name, value)
        try:
            check_streams_heartbeat(request)
        except ApiError as error:
            return f"{error.name}: {error.message}"
        return "NONE"

    assert refusal() == "NONE"
    assert refusal(member_epoch=3, topology=None, active_tasks=None, standby_tasks=None, warmup_tasks=None) == "NONE"
    assert refusal(member_id=" ") == "INVALID_REQUEST: MemberId can't be empty."
    assert refusal(instance_id="i") == "INVALID_REQUEST: Static membership is not yet supported."
    assert refusal(active_tasks=[TaskIds("0", [1])]) == "INVALID_REQUEST: ActiveTasks must be empty when (re-)joining."
    assert refusal(warmup_tasks=[TaskIds("0", [1])]) == "INVALID_REQUEST: WarmupTasks are not supported yet."
    assert refusal(topology=None) == "INVALID_REQUEST: Topology must be non-null when (re-)joining."
    assert refusal(member_epoch=3) == "INVALID_REQUEST: Topology can only be provided when (re-)joining."
    assert refusal(member_epoch=3, standby_tasks=None) == "INVALID_REQUEST: If one task-type is non-null, all must be non-null."
    assert refusal(member_epoch=-2, topology=None) == "INVALID_REQUEST: InstanceId can't be null."
    assert refusal(member_epoch=-4) == "INVALID_REQUEST: MemberEpoch is -4, but must be greater than or equal to -2."
    fixed = topology("stateful")
    fixed.subtopologies = [Subtopology("0", ["orders"], [], [TopicInfo("log", 3, 0, [])], [], [], [])]
    assert refusal(topology=fixed) == (
        "STREAMS_INVALID_TOPOLOGY: Changelog topic log must have an undefined partition count, but it is set to 3."
    )


def test_nothing_is_made_before_it_is_needed() -> None:
    from kops.broker.coordinators.group_coordinator import GroupCoordinator

    parts: Any = SimpleNamespace(partition_count=lambda topic: None)
    config: Any = {"offsets.topic.num.partitions": 7}
    nothing: Any = None
    groups = GroupCoordinator(
        nothing, config, nothing, parts, new_id=lambda: "", start_verification=nothing, persister=nothing, end_offsets=nothing
    )
    with pytest.raises(ApiError, match="COORDINATOR_NOT_AVAILABLE"):
        groups.partition_for("g")
    with pytest.raises(ApiError, match="COORDINATOR_NOT_AVAILABLE"):
        _ = groups.service
    groups.startup()
    assert groups.partition_for("a") == 97 % 7
    groups.shutdown()
    with pytest.raises(ApiError, match="COORDINATOR_NOT_AVAILABLE"):
        groups.partition_for("g")
