"""The core of the admin client with scripted brokers: the order of its requests, what it repeats, and the result of each key."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from kops.client.admin.core.operation import Operation, Steps, execute
from kops.client.admin.operations import cluster, configs, group_offsets, groups, offsets, partitions, quorum, topics, transactions
from kops.client.client import Client
from kops.client.consumer.records import OffsetAndMetadata
from kops.client.errors import KafkaError, KafkaTimeoutError
from kops.client.node import Node
from kops.errors import ApiError, UsageError
from kops.protocol.declaration import Message
from kops.protocol.errors import by_name
from kops.protocol.messages import (
    ConsumerGroupDescribeRequest,
    ConsumerGroupDescribeResponse,
    CreateTopicsRequest,
    CreateTopicsResponse,
    DeleteGroupsRequest,
    DeleteGroupsResponse,
    DescribeConfigsRequest,
    DescribeConfigsResponse,
    DescribeGroupsRequest,
    DescribeGroupsResponse,
    DescribeQuorumResponse,
    FindCoordinatorRequest,
    FindCoordinatorResponse,
    InitProducerIdRequest,
    InitProducerIdResponse,
    ListGroupsRequest,
    ListGroupsResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    MetadataRequest,
    MetadataResponse,
    OffsetFetchRequest,
    OffsetFetchResponse,
)
from kops.protocol.messages.consumer_group_describe_response import DescribedGroup as ConsumerGroup
from kops.protocol.messages.create_topics_response import CreatableTopicResult
from kops.protocol.messages.delete_groups_response import DeletableGroupResult
from kops.protocol.messages.describe_configs_response import DescribeConfigsResult
from kops.protocol.messages.describe_groups_response import DescribedGroup
from kops.protocol.messages.find_coordinator_response import Coordinator
from kops.protocol.messages.list_groups_response import ListedGroup
from kops.protocol.messages.list_offsets_response import ListOffsetsPartitionResponse, ListOffsetsTopicResponse
from kops.protocol.messages.metadata_response import MetadataResponsePartition, MetadataResponseTopic
from kops.protocol.messages.offset_fetch_response import OffsetFetchResponsePartition, OffsetFetchResponseTopic
from kops.records.log_offsets import TopicPartition
from tests.support.scripted_network import Answer, ScriptedNetwork, scripted_client

Script = Callable[[int, Message, range | None], Answer]


def code(name: str) -> int:
    return by_name(name).code


def begin(script: Script, **settings: Any) -> tuple[Client, ScriptedNetwork]:
    network = ScriptedNetwork(script)
    return scripted_client(network, **settings), network


def found(keys: list[str], node: int, error: str = "NONE") -> FindCoordinatorResponse:
    return FindCoordinatorResponse(
        coordinators=[Coordinator(key=key, node_id=node, host="host", port=9000 + node, error_code=code(error)) for key in keys]
    )


def in_turn(*answers: Any) -> Callable[[], Any]:
    """Return a function that gives one answer after the other. The last one repeats."""
    left = list(answers)
    return lambda: left.pop(0) if len(left) > 1 else left[0]


class TestCoordinators:
    """The tests delete groups. All other requests to coordinators work the same way."""

    def script(self, lookups: Callable[[], Any], errors: Callable[[], Any]) -> Script:
        def answer(node: int, message: Message, versions: range | None) -> Answer:
            if isinstance(message, FindCoordinatorRequest):
                made: Answer = lookups()(message.coordinator_keys)
                return made
            assert isinstance(message, DeleteGroupsRequest)
            error = errors()
            if isinstance(error, ApiError) or error is None:
                return error
            return DeleteGroupsResponse(
                results=[DeletableGroupResult(group_id=name, error_code=code(error)) for name in message.groups_names]
            )

        return answer

    def delete(self, lookups: Callable[[], Any], errors: Callable[[], Any], **settings: Any) -> tuple[Any, ScriptedNetwork]:
        client, network = begin(self.script(lookups, errors), **settings)
        return execute(client, groups.delete_consumer_groups(client, ["a", "b"])), network

    def at(self, *nodes: int) -> Callable[[], Any]:
        return in_turn(*((lambda keys, node=node: found(keys, node)) for node in nodes))

    def test_all_groups_of_a_coordinator_in_one_request(self) -> None:
        results, network = self.delete(self.at(2), in_turn("NONE"))
        assert results.all() == {"a": None, "b": None}
        assert network.log == [(1, "FindCoordinator"), (2, "DeleteGroups")]

    def test_a_coordinator_that_moved_is_looked_up_again(self) -> None:
        results, network = self.delete(self.at(2, 3), in_turn("NOT_COORDINATOR", "NONE"))
        assert results.all() == {"a": None, "b": None}
        assert network.log == [(1, "FindCoordinator"), (2, "DeleteGroups"), (1, "FindCoordinator"), (3, "DeleteGroups")]

    def test_a_coordinator_that_loads_is_asked_again_after_a_pause(self) -> None:
        results, network = self.delete(self.at(2), in_turn("COORDINATOR_LOAD_IN_PROGRESS", "COORDINATOR_LOAD_IN_PROGRESS", "NONE"))
        assert results.all() == {"a": None, "b": None}
        assert network.log == [(1, "FindCoordinator"), *[(2, "DeleteGroups")] * 3]
        assert network.times[2] - network.times[1] >= 100
        assert network.times[3] - network.times[2] >= 200

    def test_a_coordinator_that_is_gone_is_looked_up_again(self) -> None:
        gone = ApiError("NETWORK_EXCEPTION", "gone")
        results, network = self.delete(self.at(2, 3), in_turn(gone, "NONE"))
        assert results.all() == {"a": None, "b": None}
        assert network.log[2:] == [(1, "FindCoordinator"), (3, "DeleteGroups")]

    def test_a_coordinator_without_an_answer_is_looked_up_again(self) -> None:
        results, network = self.delete(self.at(2, 3), in_turn(None, "NONE"), request_timeout_ms=5000)
        assert results.all() == {"a": None, "b": None}
        assert 5000 <= network.now - 1000 < 7000
        assert network.log[2:] == [(1, "FindCoordinator"), (3, "DeleteGroups")]

    def test_a_look_up_is_repeated_after_a_pause(self) -> None:
        lookups = in_turn(lambda keys: found(keys, -1, "COORDINATOR_NOT_AVAILABLE"), lambda keys: found(keys, 2))
        results, network = self.delete(lookups, in_turn("NONE"))
        assert results.all() == {"a": None, "b": None}
        assert network.log == [(1, "FindCoordinator"), (1, "FindCoordinator"), (2, "DeleteGroups")]
        assert network.times[1] - network.times[0] >= 100

    def test_a_look_up_that_is_not_allowed(self) -> None:
        results, network = self.delete(in_turn(lambda keys: found(keys, -1, "GROUP_AUTHORIZATION_FAILED")), in_turn("NONE"))
        assert {error.name for error in results.errors().values()} == {"GROUP_AUTHORIZATION_FAILED"}
        assert network.log == [(1, "FindCoordinator")]

    def test_the_time_is_up(self) -> None:
        results, network = self.delete(self.at(2), in_turn("COORDINATOR_LOAD_IN_PROGRESS"), default_api_timeout_ms=3000)
        assert {type(error) for error in results.errors().values()} == {KafkaTimeoutError}
        assert all("last: the coordinator is still loading its state" in str(error) for error in results.errors().values())
        assert 3000 <= network.now - 1000 < 3300

    def test_an_old_broker_is_asked_for_one_group_at_a_time(self) -> None:
        script = self.script(self.at(2), in_turn("NONE"))

        def answer(node: int, message: Message, versions: range | None) -> Answer:
            if isinstance(message, FindCoordinatorRequest):
                assert versions is not None
                if versions.start >= 4:
                    return ApiError("UNSUPPORTED_VERSION", "old")
                return FindCoordinatorResponse(node_id={"a": 2, "b": 3}[message.key], host="host", port=9002)
            return script(node, message, versions)

        client, network = begin(answer)
        assert execute(client, groups.delete_consumer_groups(client, ["a", "b"])).all() == {"a": None, "b": None}
        assert network.log == [(1, "FindCoordinator")] * 3 + [(2, "DeleteGroups"), (3, "DeleteGroups")]

    def test_producers_are_fenced_one_after_the_other(self) -> None:
        asked = []

        def answer(node: int, message: Message, versions: range | None) -> Answer:
            if isinstance(message, FindCoordinatorRequest):
                return found(message.coordinator_keys, 2)
            assert isinstance(message, InitProducerIdRequest)
            asked.append(message.transactional_id)
            error = "CONCURRENT_TRANSACTIONS" if len(asked) == 1 else "NONE"
            return InitProducerIdResponse(error_code=code(error), producer_id=7, producer_epoch=len(asked))

        client, _ = begin(answer)
        fenced = execute(client, transactions.fence_producers(client, ["a", "b"])).all()
        assert sorted(fenced) == ["a", "b"]
        assert len(asked) == 3

    def test_classic_groups_are_found_by_the_other_request(self) -> None:
        def answer(node: int, message: Message, versions: range | None) -> Answer:
            if isinstance(message, FindCoordinatorRequest):
                return found(message.coordinator_keys, 2)
            if isinstance(message, ConsumerGroupDescribeRequest):
                errors = {"new": "NONE", "old": "GROUP_ID_NOT_FOUND", "none": "GROUP_ID_NOT_FOUND", "connect": "GROUP_ID_NOT_FOUND"}
                described = [
                    ConsumerGroup(group_id=name, error_code=code(errors[name]), error_message=f"no {name}", group_state="Stable")
                    for name in message.group_ids
                ]
                return ConsumerGroupDescribeResponse(groups=described)
            assert isinstance(message, DescribeGroupsRequest)
            kinds = {"old": "consumer", "none": "", "connect": "connect"}
            return DescribeGroupsResponse(
                groups=[
                    DescribedGroup(
                        group_id=name, protocol_type=kinds[name], error_code=code("GROUP_ID_NOT_FOUND" if name == "none" else "NONE")
                    )
                    for name in message.groups
                ]
            )

        client, network = begin(answer)
        results = execute(client, groups.describe_consumer_groups(client, ["new", "old", "none", "connect"]))
        assert list(results) == ["new", "old", "none", "connect"]
        assert results["new"].type == "Consumer"
        assert results["old"].type == "Classic"
        assert results["new"].coordinator == Node(2, "host", 9002)
        assert str(results.errors()["none"]) == "no none"
        assert "is not a group of consumers (connect)" in str(results.errors()["connect"])
        assert network.log == [(1, "FindCoordinator"), (2, "ConsumerGroupDescribe"), (2, "DescribeGroups")]

    def test_offsets_from_an_old_broker(self) -> None:
        def answer(node: int, message: Message, versions: range | None) -> Answer:
            if isinstance(message, FindCoordinatorRequest):
                return found(message.coordinator_keys, 2)
            assert isinstance(message, OffsetFetchRequest)
            assert versions is not None
            if versions.start >= 8:
                return ApiError("UNSUPPORTED_VERSION", "old")
            part = OffsetFetchResponsePartition(partition_index=0, committed_offset=len(message.group_id or ""), committed_leader_epoch=-1)
            return OffsetFetchResponse(topics=[OffsetFetchResponseTopic(name="t", partitions=[part])])

        client, network = begin(answer)
        results = execute(client, group_offsets.list_consumer_group_offsets(client, {"a": None, "bb": [TopicPartition("t", 0)]}))
        key = TopicPartition("t", 0)
        assert results.all() == {name: {key: OffsetAndMetadata(len(name))} for name in ("a", "bb")}
        assert network.log[1:] == [(2, "OffsetFetch")] * 3


class TestLeaders:
    def metadata(self, leaders: dict[int, int], error: str = "NONE") -> MetadataResponse:
        parts = [MetadataResponsePartition(partition_index=index, leader_id=leader) for index, leader in leaders.items()]
        return MetadataResponse(
            brokers=ScriptedNetwork(lambda *_: None)._nodes(MetadataRequest(topics=[])).brokers,  # type: ignore[union-attr]
            topics=[MetadataResponseTopic(name="t", error_code=code(error), partitions=parts)],
            controller_id=1,
        )

    def offsets(self, lookups: Callable[[], Any], errors: Callable[[int, int], str], **settings: Any) -> tuple[Any, ScriptedNetwork]:
        def answer(node: int, message: Message, versions: range | None) -> Answer:
            if isinstance(message, MetadataRequest):
                made: Answer = lookups()
                return made
            assert isinstance(message, ListOffsetsRequest)
            parts = [
                ListOffsetsPartitionResponse(
                    partition_index=one.partition_index,
                    error_code=code(errors(node, one.partition_index)),
                    offset=10 * node,
                    leader_epoch=-1,
                )
                for topic in message.topics
                for one in topic.partitions
            ]
            return ListOffsetsResponse(topics=[ListOffsetsTopicResponse(name="t", partitions=parts)])

        client, network = begin(answer, **settings)
        targets = {TopicPartition("t", index): offsets.OffsetSpec.latest() for index in range(3)}
        return execute(client, offsets.list_offsets(client, targets)), network

    def test_a_leader_that_moved_is_looked_up_for_its_partitions_only(self) -> None:
        lookups = in_turn(self.metadata({0: 1, 1: 2, 2: 2}), self.metadata({0: 1, 1: 3, 2: 2}))
        results, network = self.offsets(lookups, lambda node, index: "NOT_LEADER_OR_FOLLOWER" if (node, index) == (2, 1) else "NONE")
        assert [one.offset for one in results.all().values()] == [10, 30, 20]
        assert network.log == [(1, "Metadata"), (1, "ListOffsets"), (2, "ListOffsets"), (1, "Metadata"), (3, "ListOffsets")]

    def test_a_partition_without_a_leader_is_looked_up_again(self) -> None:
        lookups = in_turn(self.metadata({0: 1, 1: -1, 2: 1}), self.metadata({0: 1, 1: 2, 2: 1}))
        results, network = self.offsets(lookups, lambda node, index: "NONE")
        assert [one.offset for one in results.all().values()] == [10, 20, 10]
        assert network.log.count((1, "Metadata")) == 2

    def test_a_topic_that_is_not_there(self) -> None:
        results, network = self.offsets(in_turn(self.metadata({}, "UNKNOWN_TOPIC_OR_PARTITION")), lambda node, index: "NONE")
        assert {error.name for error in results.errors().values()} == {"UNKNOWN_TOPIC_OR_PARTITION"}
        assert network.log == [(1, "Metadata")]

    def test_one_partition_runs_out_of_time(self) -> None:
        lookups = in_turn(self.metadata({0: 1, 1: 2, 2: 3}))
        results, _ = self.offsets(
            lookups, lambda node, index: "OFFSET_NOT_AVAILABLE" if index == 1 else "NONE", default_api_timeout_ms=2000
        )
        assert sorted(key.partition for key in results.succeeded()) == [0, 2]
        assert [type(error) for error in results.errors().values()] == [KafkaTimeoutError]

    def test_other_offsets_succeed_if_a_broker_does_not_know_the_largest_timestamp(self) -> None:
        def answer(node: int, message: Message, versions: range | None) -> Answer:
            if isinstance(message, MetadataRequest):
                return self.metadata({0: 2, 1: 2})
            assert versions is not None
            if versions.start >= 7:
                return ApiError("UNSUPPORTED_VERSION", "old")
            part = ListOffsetsPartitionResponse(partition_index=0, offset=5, leader_epoch=-1)
            return ListOffsetsResponse(topics=[ListOffsetsTopicResponse(name="t", partitions=[part])])

        client, _ = begin(answer)
        targets = {TopicPartition("t", 0): offsets.OffsetSpec.latest(), TopicPartition("t", 1): offsets.OffsetSpec.max_timestamp()}
        results = execute(client, offsets.list_offsets(client, targets))
        assert results[TopicPartition("t", 0)].offset == 5
        assert results.errors()[TopicPartition("t", 1)].name == "UNSUPPORTED_VERSION"


class TestController:
    def create(self, errors: Callable[[str], str], throttle_ms: int = 0, **more: Any) -> tuple[Any, ScriptedNetwork]:
        def answer(node: int, message: Message, versions: range | None) -> Answer:
            assert isinstance(message, CreateTopicsRequest)
            made = [CreatableTopicResult(name=one.name, error_code=code(errors(one.name)), num_partitions=1) for one in message.topics]
            network.controller = 2
            return CreateTopicsResponse(topics=made, throttle_time_ms=throttle_ms)

        client, network = begin(answer)
        return execute(client, topics.create_topics(client, [topics.NewTopic("a"), topics.NewTopic("b")], **more)), network

    def test_a_controller_that_moved_is_found_again(self) -> None:
        errors = in_turn("NOT_CONTROLLER", "NOT_CONTROLLER", "NONE")
        results, network = self.create(lambda name: str(errors()))
        assert sorted(results.all()) == ["a", "b"]
        assert network.log == [(1, "CreateTopics"), (2, "CreateTopics")]

    def test_what_exceeds_a_quota_is_repeated_after_the_throttle_time(self) -> None:
        seen = []

        def errors(name: str) -> str:
            seen.append(name)
            return "THROTTLING_QUOTA_EXCEEDED" if seen == ["a", "b"] else "NONE"

        results, network = self.create(errors, throttle_ms=700)
        assert sorted(results.all()) == ["a", "b"]
        assert seen == ["a", "b", "b"]
        assert network.times[1] - network.times[0] >= 700

    def test_a_quota_until_the_time_is_up(self) -> None:
        results, network = self.create(lambda name: "THROTTLING_QUOTA_EXCEEDED", throttle_ms=400, timeout=1)
        assert {error.name for error in results.errors().values()} == {"THROTTLING_QUOTA_EXCEEDED"}
        assert len(network.log) == 3
        results, network = self.create(lambda name: "THROTTLING_QUOTA_EXCEEDED", retry_on_quota_violation=False)
        assert {error.name for error in results.errors().values()} == {"THROTTLING_QUOTA_EXCEEDED"}
        assert len(network.log) == 1

    def test_a_key_without_an_answer_is_an_error(self) -> None:
        client, _ = begin(lambda node, message, versions: CreateTopicsResponse())
        results = execute(client, topics.create_topics(client, [topics.NewTopic("a")]))
        assert "has no result for a" in str(results.errors()["a"])

    def test_an_error_that_is_raised_names_its_key_in_a_note(self) -> None:
        results, _ = self.create(lambda name: "INVALID_PARTITIONS" if name == "b" else "NONE")
        for _ in range(2):
            with pytest.raises(KafkaError) as caught:
                results.all()
            assert caught.value.__notes__ == ["the key is 'b'"]

    def test_a_topic_is_not_a_name(self) -> None:
        client, _ = begin(lambda node, message, versions: CreateTopicsResponse())
        for wrong in ("payments", ["payments"]):
            with pytest.raises(UsageError, match="'payments' is not a new topic; allowed: NewTopic"):
                execute(client, topics.create_topics(client, wrong))  # type: ignore[arg-type]


class TestCalls:
    def test_every_broker_is_asked_for_its_own_settings(self) -> None:
        def answer(node: int, message: Message, versions: range | None) -> Answer:
            assert isinstance(message, DescribeConfigsRequest)
            if node == 3:
                return ApiError("CLUSTER_AUTHORIZATION_FAILED", "no")
            made = [DescribeConfigsResult(resource_type=one.resource_type, resource_name=one.resource_name) for one in message.resources]
            return DescribeConfigsResponse(results=made)

        client, network = begin(answer)
        resource = configs.ConfigResource
        wanted = [resource.topic("t"), resource.broker(2), resource.broker(3), resource.broker(), resource.broker_logger(2)]
        results = execute(client, configs.describe_configs(client, wanted))
        assert list(results) == wanted
        assert results.errors()[resource.broker(3)].name == "CLUSTER_AUTHORIZATION_FAILED"
        assert list(results.errors()) == [resource.broker(3)]
        assert network.log == [(1, "DescribeConfigs"), (2, "DescribeConfigs"), (3, "DescribeConfigs")]
        with pytest.raises(UsageError, match="'x' is not the id of a broker"):
            execute(client, configs.describe_configs(client, [resource(configs.ConfigResourceType.BROKER, "x")]))

    def test_all_brokers_list_their_groups(self) -> None:
        loads = in_turn("COORDINATOR_LOAD_IN_PROGRESS", "NONE")

        def answer(node: int, message: Message, versions: range | None) -> Answer:
            assert isinstance(message, ListGroupsRequest)
            error = {1: "NONE", 2: "CLUSTER_AUTHORIZATION_FAILED"}.get(node) or loads()
            groups = [ListedGroup(group_id=f"g{node}", protocol_type="consumer", group_state="Stable", group_type="consumer")]
            return ListGroupsResponse(error_code=code(error), groups=groups if error == "NONE" else [])

        client, network = begin(answer)
        listed = execute(client, groups.list_groups(client))
        assert [one.group_id for one in listed.groups] == ["g1", "g3"]
        assert list(listed.errors) == [2]
        assert network.log == [(1, "ListGroups"), (2, "ListGroups"), (3, "ListGroups"), (3, "ListGroups")]
        with pytest.raises(KafkaError, match="list groups of broker 2"):
            listed.all()

    def test_a_broker_that_is_unknown(self) -> None:
        client, network = begin(lambda node, message, versions: None)
        results = execute(client, partitions.describe_log_dirs(client, [9], timeout=3))
        assert isinstance(results.errors()[9], KafkaTimeoutError)
        assert network.log == []

    def test_retries_are_limited(self) -> None:
        client, network = begin(lambda node, message, versions: ApiError("NETWORK_EXCEPTION", "gone"), retries=2)
        with pytest.raises(KafkaError) as caught:
            execute(client, cluster.describe_cluster(client))
        assert caught.value.name == "NETWORK_EXCEPTION"
        assert len(network.log) == 3

    def test_a_client_of_controllers(self) -> None:
        def answer(node: int, message: Message, versions: range | None) -> Answer:
            return DescribeQuorumResponse(error_code=code("NOT_LEADER_OR_FOLLOWER" if node == 1 else "CLUSTER_AUTHORIZATION_FAILED"))

        client, network = begin(answer, bootstrap_servers=(), bootstrap_controllers=("host:9001",))
        network.controller = 1

        def moves() -> Iterator[None]:
            network.controller = 2
            yield

        with pytest.raises(KafkaError) as caught:
            operation = Operation(quorum.describe_metadata_quorum(client))
            operation.start(client)
            while not operation.is_done:
                operation.advance(client)
                if network.log:
                    next(moves())
                if not operation.is_done:
                    client.wait(operation.calls)
            operation.value  # noqa: B018 - it raises
        assert caught.value.name == "CLUSTER_AUTHORIZATION_FAILED"
        assert network.log == [(1, "DescribeQuorum"), (2, "DescribeQuorum")]
        with pytest.raises(KafkaError) as refused:
            execute(client, topics.list_topics(client))
        assert refused.value.name == "UNSUPPORTED_ENDPOINT_TYPE"
        with pytest.raises(UsageError, match="include_fenced_brokers"):
            execute(client, cluster.describe_cluster(client, include_fenced_brokers=True))

    def test_a_defect_belongs_to_its_operation(self) -> None:
        def broken(client: Client) -> Steps[None]:
            raise ZeroDivisionError
            yield []

        client, _ = begin(lambda node, message, versions: None)
        with pytest.raises(ZeroDivisionError):
            execute(client, broken(client))
