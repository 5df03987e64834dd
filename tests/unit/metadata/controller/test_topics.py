"""Topics are created and removed, and partitions added."""

from __future__ import annotations

import pytest

from kops.protocol.messages import (
    CreatePartitionsRequest,
    CreatePartitionsResponse,
    CreateTopicsRequest,
    CreateTopicsResponse,
    DeleteTopicsRequest,
    DeleteTopicsResponse,
    TopicRecord,
)
from kops.protocol.messages.create_partitions_request import CreatePartitionsAssignment, CreatePartitionsTopic
from kops.protocol.messages.create_topics_request import CreatableTopic
from kops.protocol.messages.create_topics_response import CreatableTopicResult
from kops.protocol.messages.delete_topics_request import DeleteTopicState
from tests.support.parts.controlling import World, creation, directory, error_name


def create(world: World, request: CreateTopicsRequest) -> CreatableTopicResult:
    """Return the only result."""
    (result,) = world.ask(request, CreateTopicsResponse).topics
    return result


def test_a_topic_is_made() -> None:
    world = World.with_brokers(1, 2, 3)
    result = create(world, creation("orders", partitions=6, factor=3, segment_bytes="2097152"))
    assert (result.error_code, result.error_message, result.num_partitions, result.replication_factor) == (0, None, 6, 3)
    shown = {config.name: (config.value, config.config_source) for config in result.configs or ()}
    assert shown["segment.bytes"] == ("2097152", 1)
    assert shown["retention.ms"] == ("604800000", 5)
    assert shown["min.insync.replicas"] == ("1", 3)  # eligible leaders made it a setting of the cluster
    assert [config.name for config in result.configs or ()] == sorted(shown)
    assert "internal.segment.bytes" not in shown
    leaders = set()
    for number in range(6):
        partition = world.partition("orders", number)
        assert sorted(partition.replicas) == [1, 2, 3] == sorted(partition.isr)
        assert partition.leader == partition.replicas[0]
        assert partition.directories == tuple(map(directory, partition.replicas))
        leaders.add(partition.leader)
    assert leaders == {1, 2, 3}
    assert [type(message).__name__ for message, _ in world.log[-8:]] == ["TopicRecord", "ConfigRecord", *["PartitionRecord"] * 6]


@pytest.mark.parametrize(
    ("request_", "error", "text"),
    [
        (creation(""), "INVALID_TOPIC_EXCEPTION", "Topic name is invalid: the empty string is not allowed"),
        (creation("a b"), "INVALID_TOPIC_EXCEPTION", "Topic name is invalid: 'a b' contains one or more characters other than ASCII "
         "alphanumerics, '.', '_' and '-'"),
        (creation("here"), "TOPIC_ALREADY_EXISTS", "Topic 'here' already exists."),
        (creation("a_b"), "INVALID_TOPIC_EXCEPTION", "Topic 'a_b' collides with existing topic: a.b"),
        (creation("__cluster_metadata"), "INVALID_REQUEST", "Creation of internal topic __cluster_metadata is prohibited."),
        (creation("t", partitions=0), "INVALID_PARTITIONS", "Number of partitions was set to an invalid non-positive value."),
        (creation("t", factor=0), "INVALID_REPLICATION_FACTOR",
         "Replication factor must be larger than 0, or -1 to use the default value."),
        (creation("t", factor=4), "INVALID_REPLICATION_FACTOR", "Unable to replicate the partition 4 time(s): The target replication "
         "factor of 4 cannot be reached because only 3 broker(s) are registered or some brokers have all their log directories cordoned."),
        (creation("t", segment_bytes=None), "INVALID_CONFIG", "Null value not supported for topic configs: segment.bytes"),
        (creation("t", segment_bytes="1"), "INVALID_CONFIG",
         "Invalid value 1 for configuration segment.bytes: Value must be at least 1048576"),
        (creation("t", nonsense="1"), "INVALID_CONFIG", "Unknown topic config name: nonsense"),
        (creation("t", [1], factor=1), "INVALID_REQUEST",
         "A manual partition assignment was specified, but replication factor was not set to -1."),
        (creation("t", [1], partitions=1), "INVALID_REQUEST",
         "A manual partition assignment was specified, but numPartitions was not set to -1."),
        (creation("t", []), "INVALID_REPLICA_ASSIGNMENT", "The manual partition assignment includes an empty replica list."),
        (creation("t", [1, 1]), "INVALID_REPLICA_ASSIGNMENT",
         "The manual partition assignment includes the broker 1 more than once."),
        (creation("t", [1, 9]), "INVALID_REPLICA_ASSIGNMENT",
         "The manual partition assignment includes broker 9, but no such broker is registered."),
        (creation("t", [1, 2], [3]), "INVALID_REPLICA_ASSIGNMENT", "The manual partition assignment includes a partition with 1 "
         "replica(s), but this is not consistent with previous partitions, which have 2 replica(s)."),
    ],
)  # fmt: skip
def test_what_is_refused(request_: CreateTopicsRequest, error: str, text: str) -> None:
    world = World.with_brokers(1, 2, 3)
    create(world, creation("here"))
    create(world, creation("a.b"))
    before = len(world.log)
    result = create(world, request_)
    assert (error_name(result.error_code), result.error_message) == (error, text)
    assert len(world.log) == before


def test_names_given_twice_and_only_validated() -> None:
    world = World.with_brokers(1)
    twice = CreateTopicsRequest([CreatableTopic("twice"), CreatableTopic("once", -1, -1), CreatableTopic("twice")], validate_only=True)
    before = len(world.log)
    results = world.ask(twice, CreateTopicsResponse).topics
    assert [(one.name, error_name(one.error_code)) for one in results] == [("once", "NONE"), ("twice", "INVALID_REQUEST")]
    assert len(world.log) == before


def test_too_many_partitions() -> None:
    world = World.with_brokers(1)
    result = create(world, creation("many", partitions=10_001))
    assert error_name(result.error_code) == "POLICY_VIOLATION"
    assert result.error_message == "Excessively large number of partitions per request."


def test_a_fenced_broker_is_a_replica_and_not_in_sync() -> None:
    world = World.with_brokers(1, 2)
    world.register(3)
    create(world, creation("orders", [3, 1, 2]))
    partition = world.partition("orders")
    assert (partition.replicas, partition.isr, partition.leader) == ((3, 1, 2), (1, 2), 1)
    result = create(world, creation("other", [3]))
    assert result.error_message == (
        "All brokers specified in the manual partition assignment for partition 0 are fenced or in controlled shutdown."
    )


def test_racks_have_one_replica_each() -> None:
    world = World()
    for broker_id in range(6):
        world.register(broker_id, rack=f"rack{broker_id % 3}")
        world.heartbeat(broker_id)
    create(world, creation("orders", partitions=30, factor=3))
    for number in range(30):
        assert {replica % 3 for replica in world.partition("orders", number).replicas} == {0, 1, 2}


def test_topics_are_removed_by_name_and_by_id() -> None:
    world = World.with_brokers(1)
    for name in ("a", "b", "c", "d_e"):
        create(world, creation(name, segment_bytes="2097152"))
    ids = {name: world.topic_id(name) for name in ("a", "b", "c", "d_e")}
    request = DeleteTopicsRequest(
        [
            DeleteTopicState("a"),
            DeleteTopicState(None, ids["b"]),
            DeleteTopicState("nowhere"),
            DeleteTopicState(None, bytes(15) + b"\x09"),
            DeleteTopicState("c", ids["c"]),
            DeleteTopicState(None, ids["d_e"]),
            DeleteTopicState("d_e"),
            DeleteTopicState(),
        ]
    )
    results = world.ask(request, DeleteTopicsResponse).responses
    assert {(one.name, one.topic_id, error_name(one.error_code)) for one in results} == {
        ("a", ids["a"], "NONE"),
        ("b", ids["b"], "NONE"),
        ("nowhere", bytes(16), "UNKNOWN_TOPIC_OR_PARTITION"),
        (None, bytes(15) + b"\x09", "UNKNOWN_TOPIC_ID"),
        ("c", ids["c"], "INVALID_REQUEST"),
        ("d_e", ids["d_e"], "INVALID_REQUEST"),
        (None, bytes(16), "INVALID_REQUEST"),
    }
    assert world.controller.parts.configs.settings((2, "a")) == {}
    assert world.controller.parts.state.named("a") is None
    assert create(world, creation("d.e")).error_message == "Topic 'd.e' collides with existing topic: d_e"


def test_deletion_turned_off() -> None:
    world = World.with_brokers(1, delete_topic_enable=False)
    request = DeleteTopicsRequest([DeleteTopicState("a")])
    (result,) = world.ask(request, DeleteTopicsResponse).responses
    assert error_name(result.error_code) == "TOPIC_DELETION_DISABLED"
    (result,) = world.ask(DeleteTopicsRequest(topic_names=["a"]), DeleteTopicsResponse, 2).responses
    assert error_name(result.error_code) == "INVALID_REQUEST"


def test_a_late_request_changes_nothing() -> None:
    world = World.with_brokers(1)
    create(world, creation("a", [1]))
    (created,) = world.ask(creation("b", [1]), CreateTopicsResponse, is_late=True).topics
    (added,) = world.ask(CreatePartitionsRequest([CreatePartitionsTopic("a", 2, None)]), CreatePartitionsResponse, is_late=True).results
    (deleted,) = world.ask(DeleteTopicsRequest([DeleteTopicState("a")]), DeleteTopicsResponse, is_late=True).responses
    assert {error_name(one.error_code) for one in (created, added, deleted)} == {"REQUEST_TIMED_OUT"}
    assert world.controller.parts.state.named("b") is None
    assert len(world.controller.parts.state.topics[world.topic_id("a")].partitions) == 1


def test_partitions_are_added() -> None:
    world = World.with_brokers(1, 2, 3)
    create(world, creation("orders", [1, 2]))
    assert add(world, "orders", 4) == ("NONE", None)
    assert [len(world.partition("orders", number).replicas) for number in range(4)] == [2, 2, 2, 2]
    assert add(world, "orders", 5, [3, 1]) == ("NONE", None)
    assert world.partition("orders", 4).replicas == (3, 1)
    assert add(world, "orders", 5) == ("INVALID_PARTITIONS", "Topic already has 5 partition(s).")
    text = "The topic orders currently has 5 partition(s); 2 would not be an increase."
    assert add(world, "orders", 2) == ("INVALID_PARTITIONS", text)
    assert add(world, "nowhere", 2) == ("UNKNOWN_TOPIC_OR_PARTITION", None)
    text = "Attempted to add 2 additional partition(s), but only 1 assignment(s) were specified."
    assert add(world, "orders", 7, [1, 2]) == ("INVALID_REPLICA_ASSIGNMENT", text)


def test_more_partitions_than_a_request_may_add_are_refused_before_they_are_placed() -> None:
    world = World.with_brokers(1, 2, 3)
    create(world, creation("orders", partitions=1, factor=1))
    end = len(world.log)
    for count in (10_002, 2**31 - 1):
        assert add(world, "orders", count) == ("POLICY_VIOLATION", "Unable to perform excessively large batch operation.")
    assert len(world.log) == end


def add(world: World, name: str, count: int, *assignments: list[int]) -> tuple[str, str | None]:
    """Return the error and the text."""
    given = [CreatePartitionsAssignment(replicas) for replicas in assignments] or None
    (result,) = world.ask(CreatePartitionsRequest([CreatePartitionsTopic(name, count, given)]), CreatePartitionsResponse).results
    return error_name(result.error_code), result.error_message


def test_ids_are_drawn() -> None:
    world = World.with_brokers(1)
    create(world, creation("a"))
    record = next(message for message, _ in reversed(world.log) if isinstance(message, TopicRecord))
    assert record.topic_id == world.topic_id("a") != bytes(16)
