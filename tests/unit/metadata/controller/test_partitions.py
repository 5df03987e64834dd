"""ISRs, leaders, eligible leaders, reassignments and directories, while brokers come and go."""

from __future__ import annotations

from typing import Any

import pytest

from kops.protocol import messages
from kops.protocol.messages.alter_partition_reassignments_request import ReassignablePartition, ReassignableTopic
from kops.protocol.messages.alter_partition_request import BrokerState, PartitionData, TopicData
from kops.protocol.messages.assign_replicas_to_dirs_request import DirectoryData
from kops.protocol.messages.assign_replicas_to_dirs_request import PartitionData as AssignedPartition
from kops.protocol.messages.assign_replicas_to_dirs_request import TopicData as AssignedTopic
from kops.protocol.messages.elect_leaders_request import TopicPartitions
from tests.support.parts.controlling import World, creation, directory, error_name


def world_with_topic(*replicas: int, elr: bool = True, **configs: str) -> World:
    """Return a world with three brokers and a topic `t` of one partition."""
    world = World.with_brokers(1, 2, 3, elr=elr)
    world.ask(creation("t", list(replicas or (1, 2, 3)), configs=configs), messages.CreateTopicsResponse)
    return world


def alter_isr(world: World, isr: list[int], broker_id: int | None = None, version: int = 3, **fields: int) -> Any:
    """Return the partition's answer. The leader asks with the current epochs unless others are given."""
    partition = world.partition("t")
    states = [BrokerState(one, world.epochs.get(one, -1)) for one in isr]
    data = PartitionData(0, partition.leader_epoch, isr if version < 3 else [], states, 0, partition.partition_epoch)
    for name, value in fields.items():
        setattr(data, name, value)
    leader = partition.leader if broker_id is None else broker_id
    request = messages.AlterPartitionRequest(leader, world.epochs[leader], [TopicData(world.topic_id("t"), [data])])
    return world.ask(request, messages.AlterPartitionResponse, version).topics[0].partitions[0]


@pytest.mark.parametrize("version", [2, 3])
def test_an_isr_shrinks_and_grows(version: int) -> None:
    world = world_with_topic()
    answer = alter_isr(world, [1, 3], version=version)
    assert (answer.error_code, answer.isr, answer.leader_id, answer.leader_epoch, answer.partition_epoch) == (0, [1, 3], 1, 0, 1)
    answer = alter_isr(world, [1, 3, 2], version=version)
    assert (answer.isr, answer.partition_epoch) == ([1, 3, 2], 2)
    assert alter_isr(world, [1, 3, 2]).partition_epoch == 2


@pytest.mark.parametrize(
    ("isr", "fields", "error"),
    [
        ([1], {"leader_epoch": 1}, "NOT_CONTROLLER"),
        ([1], {"partition_epoch": 1}, "NOT_CONTROLLER"),
        ([1], {"leader_epoch": -1}, "FENCED_LEADER_EPOCH"),
        ([1], {"broker_id": 2}, "INVALID_REQUEST"),
        ([1], {"partition_epoch": -1}, "INVALID_UPDATE_VERSION"),
        ([2, 3], {}, "INVALID_REQUEST"),
        ([1, 4], {}, "INVALID_REQUEST"),
        ([1, 1], {}, "INVALID_REQUEST"),
        ([1], {"leader_recovery_state": 1}, "INVALID_REQUEST"),
        ([1], {"leader_recovery_state": 7}, "INVALID_REQUEST"),
        ([1], {"partition_index": 5}, "UNKNOWN_TOPIC_OR_PARTITION"),
    ],
)
def test_an_isr_that_is_refused(isr: list[int], fields: dict[str, int], error: str) -> None:
    assert error_name(alter_isr(world_with_topic(), isr, **fields).error_code) == error


def test_ineligible_replicas() -> None:
    world = world_with_topic()
    alter_isr(world, [1])
    world.heartbeat(2, want_fence=True)
    assert error_name(alter_isr(world, [1, 2]).error_code) == "INELIGIBLE_REPLICA"
    world.heartbeat(3, want_shut_down=True)
    world.epochs[3] -= 1
    assert error_name(alter_isr(world, [1, 3]).error_code) == "INELIGIBLE_REPLICA"


def test_a_fenced_leader_is_replaced_and_the_preferred_one_comes_back() -> None:
    world = world_with_topic(elr=False)
    world.heartbeat(1, want_fence=True)
    partition = world.partition("t")
    assert (partition.leader, partition.isr, partition.leader_epoch) == (2, (2, 3), 1)
    world.heartbeat(1)
    assert elect(world, 0) == "PREFERRED_LEADER_NOT_AVAILABLE"
    alter_isr(world, [2, 3, 1])
    assert elect(world, 0) == "NONE"
    assert world.partition("t").leader == 1
    assert elect(world, 0) == "ELECTION_NOT_NEEDED"


def elect(world: World, kind: int, topic: str = "t", number: int = 0) -> str:
    """Return the error's name."""
    request = messages.ElectLeadersRequest(kind, [TopicPartitions(topic, [number])])
    (result,) = world.ask(request, messages.ElectLeadersResponse).replica_election_results
    return error_name(result.partition_result[0].error_code)


def test_elections_that_fail() -> None:
    world = world_with_topic()
    assert elect(world, 0, "nowhere") == elect(world, 0, "t", 4) == "UNKNOWN_TOPIC_OR_PARTITION"
    assert elect(world, 1) == "ELECTION_NOT_NEEDED"
    response = world.ask(messages.ElectLeadersRequest(2, None), messages.ElectLeadersResponse)
    assert error_name(response.error_code) == "INVALID_REQUEST"


def test_the_last_one_in_sync_stays_in_the_isr_without_leading() -> None:
    world = world_with_topic(elr=False)
    for broker_id in (3, 2, 1):
        world.heartbeat(broker_id, want_fence=True)
    partition = world.partition("t")
    assert (partition.leader, partition.isr) == (-1, (1,))
    world.heartbeat(2)
    assert world.partition("t").leader == -1
    assert elect(world, 1) == "NONE"
    partition = world.partition("t")
    assert (partition.leader, partition.isr, int(partition.leader_recovery_state)) == (2, (2,), 1)
    assert alter_isr(world, [2]).leader_recovery_state == 0


def test_unclean_leaders_from_time_to_time() -> None:
    world = world_with_topic(elr=False, unclean_leader_election_enable="false")
    for broker_id in (3, 2, 1):
        world.heartbeat(broker_id, want_fence=True)
    world.heartbeat(2)
    resource = messages.incremental_alter_configs_request.AlterConfigsResource(
        2, "t", [messages.incremental_alter_configs_request.AlterableConfig("unclean.leader.election.enable", 0, "true")]
    )
    world.ask(messages.IncrementalAlterConfigsRequest([resource]), messages.IncrementalAlterConfigsResponse)
    world.now_ms += 300_000
    world.controller.parts.cluster.heartbeats.contact(2, world.epochs[2], world.now_ms)
    world.tick()
    assert world.partition("t").leader == 2


def test_eligible_leaders() -> None:
    world = world_with_topic(min_insync_replicas="2")
    world.heartbeat(3, want_fence=True)
    assert (world.partition("t").isr, world.partition("t").elr) == ((1, 2), ())
    world.heartbeat(2, want_fence=True)
    assert (world.partition("t").isr, world.partition("t").elr) == ((1,), (2,))
    world.heartbeat(1, want_fence=True)
    partition = world.partition("t")
    assert (partition.isr, partition.elr, partition.leader, partition.last_known_elr) == ((), (1, 2), -1, (1,))
    world.heartbeat(2)
    partition = world.partition("t")
    assert (partition.isr, partition.elr, partition.leader, partition.last_known_elr) == ((2,), (1,), 2, ())
    assert int(partition.leader_recovery_state) == 0


@pytest.mark.parametrize("is_clean", [True, False])
def test_an_unclean_shutdown_ends_eligibility(is_clean: bool) -> None:
    world = world_with_topic(1, 2, min_insync_replicas="2")
    world.heartbeat(2, want_fence=True)
    assert world.partition("t").elr == (2,)
    world.now_ms += 10_000
    assert world.register(2, incarnation=2, previous=world.epochs[2] if is_clean else -1) == 0
    assert world.partition("t").elr == ((2,) if is_clean else ())


def test_another_minimum_clears_the_eligible_leaders() -> None:
    world = world_with_topic(1, 2, min_insync_replicas="2")
    world.heartbeat(2, want_fence=True)
    module = messages.incremental_alter_configs_request
    resource = module.AlterConfigsResource(2, "t", [module.AlterableConfig("min.insync.replicas", 0, "1")])
    world.ask(messages.IncrementalAlterConfigsRequest([resource]), messages.IncrementalAlterConfigsResponse)
    assert world.log[-1] == (messages.ClearElrRecord("t"), 0)
    assert world.partition("t").elr == ()


def reassign(world: World, replicas: list[int] | None, **fields: bool) -> tuple[str, str | None]:
    """Return the error and the text."""
    request = messages.AlterPartitionReassignmentsRequest(topics=[ReassignableTopic("t", [ReassignablePartition(0, replicas)])], **fields)
    (topic,) = world.ask(request, messages.AlterPartitionReassignmentsResponse).responses
    return error_name(topic.partitions[0].error_code), topic.partitions[0].error_message


def ongoing(world: World) -> list[tuple[list[int], list[int], list[int]]]:
    """Return replicas, adding and removing replicas."""
    response = world.ask(messages.ListPartitionReassignmentsRequest(topics=None), messages.ListPartitionReassignmentsResponse)
    found = [one for topic in response.topics for one in topic.partitions]
    return [(one.replicas, one.adding_replicas, one.removing_replicas) for one in found]


def test_a_reassignment() -> None:
    world = world_with_topic(1, 2)
    assert reassign(world, [3, 2]) == ("NONE", None)
    assert ongoing(world) == [([3, 2, 1], [3], [1])]
    answer = alter_isr(world, [1, 2, 3])
    assert error_name(answer.error_code) == "NEW_LEADER_ELECTED"
    partition = world.partition("t")
    assert (partition.replicas, partition.isr, partition.leader, partition.is_reassigning) == ((3, 2), (2, 3), 3, False)
    assert partition.directories == (directory(3), directory(2))
    assert ongoing(world) == []


def test_a_reassignment_is_cancelled() -> None:
    world = world_with_topic(1, 2)
    reassign(world, [3])
    assert reassign(world, None) == ("NONE", None)
    assert (world.partition("t").replicas, world.partition("t").is_reassigning) == ((1, 2), False)
    assert reassign(world, None) == ("NO_REASSIGNMENT_IN_PROGRESS", None)
    text = "The manual partition assignment includes broker 7, but no such broker is registered."
    assert reassign(world, [7]) == ("INVALID_REPLICA_ASSIGNMENT", text)
    text = "The replication factor is changed from 2 to 1"
    assert reassign(world, [3], allow_replication_factor_change=False) == ("INVALID_REPLICATION_FACTOR", text)


def test_a_lost_directory_costs_its_leaderships() -> None:
    world = World.with_brokers(2)
    world.register(1, dirs=2)
    world.heartbeat(1)
    for name in ("t", "u"):
        world.ask(creation(name, [1, 2]), messages.CreateTopicsResponse)
    for number, name in enumerate(("t", "u")):
        topics = [AssignedTopic(world.topic_id(name), [AssignedPartition(0), AssignedPartition(9)])]
        request = messages.AssignReplicasToDirsRequest(1, world.epochs[1], [DirectoryData(directory(1, number), topics)])
        (answer,) = world.ask(request, messages.AssignReplicasToDirsResponse).directories
        assert [error_name(one.error_code) for one in answer.topics[0].partitions] == ["NONE", "UNKNOWN_TOPIC_OR_PARTITION"]
    world.heartbeat(1, offline_log_dirs=[directory(1, 1)])
    assert (world.partition("t").leader, world.partition("u").leader) == (1, 2)
    assert world.controller.parts.cluster.brokers[1].directories == (directory(1, 0),)
    world.ask(messages.AssignReplicasToDirsRequest(
        1, world.epochs[1], [DirectoryData(directory(1, 1), [AssignedTopic(world.topic_id("t"), [AssignedPartition(0)])])]
    ), messages.AssignReplicasToDirsResponse)  # fmt: skip
    assert world.partition("t").leader == 2


def test_cordoned_brokers_get_no_new_partitions() -> None:
    world = World.with_brokers(1, 2)
    world.heartbeat(1, cordoned_log_dirs=[directory(1)])
    world.ask(creation("t", partitions=6, factor=1), messages.CreateTopicsResponse)
    assert {world.partition("t", number).leader for number in range(6)} == {2}
