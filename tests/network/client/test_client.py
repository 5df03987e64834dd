"""The client's calls: which broker gets them, which are repeated, and when the client reports that no broker answers."""

from __future__ import annotations

import re
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace

import pytest

from kops.client.client import UNREACHABLE_MS, Client, To, check
from kops.client.leaders.offsets import list_offsets
from kops.client.offsets import LATEST, ListedOffset
from kops.client.partitions import describe_log_dirs
from kops.client.quorum import describe_quorum
from kops.client.settings import ClientSettings
from kops.client.topics import DELETE, SET, NewTopic, ResourceType, alter_configs, create_topics, delete_topics, describe_topics
from kops.errors import ApiError, UnreachableError
from kops.protocol.declaration import Message
from kops.protocol.messages import (
    CreateTopicsRequest,
    CreateTopicsResponse,
    DeleteTopicsRequest,
    DeleteTopicsResponse,
    DescribeClusterRequest,
    DescribeClusterResponse,
    DescribeTopicPartitionsRequest,
    DescribeTopicPartitionsResponse,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    MetadataRequest,
    MetadataResponse,
)
from kops.protocol.messages.create_topics_response import CreatableTopicResult
from kops.protocol.messages.delete_topics_response import DeletableTopicResult
from kops.protocol.messages.describe_topic_partitions_response import (
    Cursor,
    DescribeTopicPartitionsResponsePartition,
    DescribeTopicPartitionsResponseTopic,
)
from kops.protocol.messages.incremental_alter_configs_response import AlterConfigsResourceResponse
from kops.protocol.messages.list_offsets_response import ListOffsetsPartitionResponse, ListOffsetsTopicResponse
from kops.records.log_offsets import TopicPartition
from tests.support.nodes.networking import reset_once
from tests.support.nodes.scripted_cluster import QUICK, ScriptedCluster
from tests.support.patience import with_more_time

NOT_CONTROLLER, NOT_LEADER, TOPIC_EXISTS, THROTTLED, TIMED_OUT = 41, 6, 36, 89, 7
REBOOTSTRAP_REQUIRED = 129


@contextmanager
def listening() -> Iterator[tuple[socket.socket, str]]:
    """Provide a port that accepts connections and sends nothing."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield server, f"127.0.0.1:{server.getsockname()[1]}"


def why_nobody_answers(servers: str, wanted: str) -> str:
    """Return the error of a client that asks some servers."""

    def ask(timeout_s: float) -> str:
        settings = {**QUICK, "bootstrap.servers": servers, "default.api.timeout.ms": str(int(timeout_s * 1000))}
        with Client(ClientSettings.from_properties(settings)) as client, pytest.raises(UnreachableError) as error:
            client.fetch_metadata(None)
        return str(error.value)

    return with_more_time(0.2, ask, lambda told: told == wanted)


def created(name: str, error_code: int = 0) -> Message:
    return CreateTopicsResponse(topics=[CreatableTopicResult(name=name, error_code=error_code, num_partitions=1, replication_factor=1)])


def test_the_controller_is_asked_and_asked_anew_where_it_has_moved() -> None:
    with ScriptedCluster(2) as cluster, cluster.client() as client:

        def answer(_: object, message: CreateTopicsRequest) -> Message:
            if cluster.controller_id == 1:
                cluster.controller_id = 2
                return created("a", NOT_CONTROLLER)
            return created("a")

        cluster.script(CreateTopicsRequest, answer)
        made = create_topics(client, [NewTopic("a")])["a"]
        assert not isinstance(made, ApiError) and made.partitions == 1
        assert [len(cluster.requests(node_id, CreateTopicsRequest)) for node_id in (1, 2)] == [1, 1]


def test_what_is_done_is_not_sent_again() -> None:
    with ScriptedCluster() as cluster, cluster.client() as client:
        answers = iter([THROTTLED, 0])

        def answer(_: object, message: DeleteTopicsRequest) -> Message:
            results = [DeletableTopicResult(name="a", error_code=3)] if len(message.topics) == 2 else []
            return DeleteTopicsResponse(responses=[*results, DeletableTopicResult(name="b", error_code=next(answers))])

        cluster.script(DeleteTopicsRequest, answer)
        outcomes = delete_topics(client, ["a", "b"])
        assert outcomes["b"] is None
        assert outcomes["a"] is not None and outcomes["a"].name == "UNKNOWN_TOPIC_OR_PARTITION"
        asked = cluster.requests(1, DeleteTopicsRequest)
        assert [[topic.name for topic in message.topics] for message in asked] == [["a", "b"], ["b"]]


def test_errors_that_stay_are_told_at_once() -> None:
    with ScriptedCluster() as cluster, cluster.client() as client:
        cluster.script(CreateTopicsRequest, lambda *_: created("a", TOPIC_EXISTS))
        outcome = create_topics(client, [NewTopic("a")])["a"]
        assert isinstance(outcome, ApiError) and outcome.name == "TOPIC_ALREADY_EXISTS"
        cluster.unknown_apis.add(CreateTopicsRequest.API_KEY or 0)
    with ScriptedCluster() as cluster, cluster.client() as client:
        cluster.unknown_apis.add(CreateTopicsRequest.API_KEY or 0)
        with pytest.raises(ApiError, match="does not support CREATE_TOPICS"):
            create_topics(client, [NewTopic("a")])
        assert cluster.requests(1, CreateTopicsRequest) == []


def test_a_connection_that_breaks_is_made_again() -> None:
    with ScriptedCluster() as cluster, cluster.client() as client:
        left = [2]

        def answer(context: object, message: CreateTopicsRequest) -> Message | None:
            if left[0]:
                left[0] -= 1
                context.close_connection()  # type: ignore[attr-defined]
                return None
            return created("a")

        cluster.script(CreateTopicsRequest, answer)
        assert "a" in create_topics(client, [NewTopic("a")])
        assert len(cluster.requests(1, CreateTopicsRequest)) == 3


def test_a_connection_that_is_reset_at_once_is_made_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(socket, "socket", reset_once())
    with ScriptedCluster() as cluster, cluster.client() as client:
        cluster.script(CreateTopicsRequest, lambda context, message: created("a"))
        assert "a" in create_topics(client, [NewTopic("a")])


def test_retries_are_limited_where_that_is_set() -> None:
    with ScriptedCluster() as cluster, cluster.client({"retries": "2"}) as client:
        cluster.script(DescribeClusterRequest, lambda *_: DescribeClusterResponse(error_code=TIMED_OUT))

        def handle(response: Message) -> None:
            assert isinstance(response, DescribeClusterResponse)
            check(response.error_code)

        with pytest.raises(ApiError) as error:
            client.call("describe cluster", To.ANY, lambda _: DescribeClusterRequest(), handle)
        assert error.value.name == "REQUEST_TIMED_OUT"
        assert len(cluster.requests(1, DescribeClusterRequest)) == 3


def test_a_port_where_nobody_listens_is_told_with_its_address() -> None:
    with listening() as (_, first), listening() as (_, second):
        pass
    wanted = f"no answer from {first}: Connection refused; no answer from {second}: Connection refused"
    assert why_nobody_answers(f"{first},{second}", wanted) == wanted


def test_a_server_that_takes_connections_and_says_nothing_is_told() -> None:
    with listening() as (_, address):
        wanted = f"no answer from {address}: it accepted the connection but does not answer"
        assert why_nobody_answers(address, wanted) == wanted


def test_what_is_no_kafka_server_is_told() -> None:
    def babble(server: socket.socket) -> None:
        while True:
            try:
                connection, _ = server.accept()
            except OSError:
                return
            with connection:
                connection.recv(10)
                connection.sendall(b"HTTP/1.1 400 Bad Request\r\n\r\n" * 10)

    with listening() as (server, address):
        thread = threading.Thread(target=babble, args=(server,))
        thread.start()
        settings = ClientSettings.from_properties({**QUICK, "bootstrap.servers": address, "default.api.timeout.ms": "500"})
        with Client(settings) as client, pytest.raises(UnreachableError) as error:
            client.fetch_metadata(None)
        server.shutdown(socket.SHUT_RDWR)
    thread.join()
    assert f"no answer from {address}: " in str(error.value)


def test_a_request_that_is_never_answered_ends_with_its_time() -> None:
    def ask(timeout_s: float) -> tuple[str, int]:
        hurry = {"request_timeout_ms": 50, "default_api_timeout_ms": int(timeout_s * 1000)}
        with ScriptedCluster() as cluster, cluster.hurried(**hurry) as client:
            with pytest.raises(UnreachableError) as error:
                create_topics(client, [NewTopic("a")])
            return str(error.value), len(cluster.requests(1, CreateTopicsRequest))

    told, count = with_more_time(0.4, ask, lambda result: result[1] > 1)
    assert re.match(r"create topics: no answer in time from 127\.0\.0\.1:\d+; last: .*not answered in time", told)
    assert count > 1


def test_a_broker_that_is_told_where_it_can_not_be_reached() -> None:
    with ScriptedCluster(2) as cluster, cluster.hurried(default_api_timeout_ms=1000) as client:
        cluster.topics["a"] = [2]
        port = cluster.servers[2].port()
        plain = cluster.metadata

        def answer(_: object, message: MetadataRequest) -> Message:
            response = plain(message)
            for broker in response.brokers:
                broker.port = 1 if broker.node_id == 2 else broker.port
            return response

        cluster.script(MetadataRequest, answer)
        assert port != 1
        with pytest.raises(UnreachableError, match=r"127\.0\.0\.1:1\b.*Connection refused"):
            list_offsets(client, {TopicPartition("a", 0): LATEST})


def test_a_broker_that_is_not_there_any_more_is_told() -> None:
    with ScriptedCluster(2) as cluster, cluster.hurried(default_api_timeout_ms=1000) as client:
        cluster.hidden.add(2)
        client.metadata.is_wanted = True
        (found,) = describe_log_dirs(client, [2]).values()
        assert isinstance(found, UnreachableError)
        assert re.fullmatch(r"(describe log dirs: no answer in time from .*|the cluster has no broker 2)", str(found))


def test_metadata_grows_old() -> None:
    with ScriptedCluster() as cluster, cluster.client({"metadata.max.age.ms": "0", "retry.backoff.ms": "0"}) as client:
        cluster.script(DescribeClusterRequest, lambda *_: DescribeClusterResponse())
        for _ in range(3):
            client.call("describe cluster", To.ANY, lambda _: DescribeClusterRequest(), lambda response: None)
        assert len(cluster.requests(1, MetadataRequest)) >= 3


def test_back_to_the_bootstrap_servers_when_all_that_is_known_is_gone() -> None:
    with ScriptedCluster(2) as cluster, cluster.client() as client:
        # The first broker knows only the second, which then goes away.
        cluster.hidden.add(1)
        cluster.controller_id = 2
        client.fetch_metadata([])
        assert set(client.metadata.nodes) == {2}
        cluster.stop(2)
        cluster.hidden.clear()
        cluster.controller_id = 1
        cluster.script(CreateTopicsRequest, lambda *_: created("a"))
        assert "a" in create_topics(client, [NewTopic("a")])
        assert set(client.metadata.nodes) == {1}


def test_without_rebootstrap_it_stays_with_what_it_knows() -> None:
    with ScriptedCluster(2) as cluster, cluster.client({"metadata.recovery.strategy": "none"}) as client:
        cluster.hidden.add(1)
        cluster.controller_id = 2
        client.fetch_metadata([])
        client.settings = replace(client.settings, default_api_timeout_ms=300)
        cluster.stop(2)
        with pytest.raises(UnreachableError, match="create topics: no answer in time"):
            create_topics(client, [NewTopic("a")])


def test_a_server_that_asks_for_it_sends_back_to_the_bootstrap_servers() -> None:
    with ScriptedCluster(2) as cluster, cluster.client({"metadata.max.age.ms": "0", "retry.backoff.ms": "0"}) as client:
        client.fetch_metadata([])
        asked: list[int] = []

        def answer(_: object, message: MetadataRequest) -> Message:
            asked.append(len(asked))
            return MetadataResponse(error_code=REBOOTSTRAP_REQUIRED) if len(asked) == 1 else cluster.metadata(message)

        cluster.script(MetadataRequest, answer)
        cluster.script(DescribeClusterRequest, lambda *_: DescribeClusterResponse())
        for _ in range(3):
            client.call("describe cluster", To.ANY, lambda _: DescribeClusterRequest(), lambda response: None)
        assert len(asked) >= 2
        assert set(client.metadata.nodes) == {1, 2}


def test_leaders_are_asked_side_by_side_and_looked_for_again() -> None:
    with ScriptedCluster(2) as cluster, cluster.client() as client:
        cluster.topics["a"] = [1, 2, -1]
        a = [TopicPartition("a", index) for index in range(4)]

        def answer(_: object, message: ListOffsetsRequest) -> Message:
            cluster.topics["a"] = [1, 1, 2]
            (topic,) = message.topics
            moved = {1} if len(cluster.requests(2, ListOffsetsRequest)) == 1 and cluster.epochs.setdefault("a", 0) == 0 else set()
            if moved & {one.partition_index for one in topic.partitions}:
                cluster.epochs["a"] = 1
            rows = [
                ListOffsetsPartitionResponse(
                    partition_index=one.partition_index,
                    error_code=NOT_LEADER if one.partition_index in moved else 0,
                    offset=100 + one.partition_index,
                    timestamp=-1,
                )
                for one in topic.partitions
            ]
            return ListOffsetsResponse(topics=[ListOffsetsTopicResponse(name="a", partitions=rows)])

        cluster.script(ListOffsetsRequest, answer)
        found = list_offsets(client, dict.fromkeys(a, LATEST))
        assert {key.partition: one.offset for key, one in found.items() if isinstance(one, ListedOffset)} == {0: 100, 1: 101, 2: 102}
        missing = found[a[3]]
        assert isinstance(missing, ApiError) and str(missing) == "there is no such partition"


@pytest.mark.parametrize("is_known", [True, False], ids=["still-a-leader", "unknown"])
def test_a_leader_that_was_killed_is_looked_for_again(is_known: bool) -> None:
    """The brokers report the killed leader until it is fenced. They forget it before clients have got the next leader."""
    with ScriptedCluster(2) as cluster, cluster.hurried(default_api_timeout_ms=20_000) as client:
        cluster.topics["a"] = [2]
        client.fetch_metadata(["a"])
        plain, asked = cluster.metadata, []
        dead = plain(MetadataRequest(topics=[]))
        cluster.stop(2)

        def metadata(_: object, message: MetadataRequest) -> Message:
            asked.append(message)
            if len(asked) == 8:
                cluster.topics["a"], cluster.epochs["a"] = [1], 1
            response = plain(message)
            if is_known and len(asked) < 8:
                response.brokers = dead.brokers
            return response

        def offsets(_: object, message: ListOffsetsRequest) -> Message:
            row = ListOffsetsPartitionResponse(partition_index=0, offset=7, timestamp=-1)
            return ListOffsetsResponse(topics=[ListOffsetsTopicResponse(name="a", partitions=[row])])

        cluster.script(MetadataRequest, metadata)
        cluster.script(ListOffsetsRequest, offsets)
        started_ms = client.now_ms()
        found = list_offsets(client, {TopicPartition("a", 0): LATEST})[TopicPartition("a", 0)]
        assert isinstance(found, ListedOffset) and found.offset == 7
        assert client.now_ms() - started_ms < UNREACHABLE_MS


def test_settings_of_brokers_are_asked_of_them() -> None:
    with ScriptedCluster(2) as cluster, cluster.client() as client:

        def answer(_: object, message: IncrementalAlterConfigsRequest) -> Message:
            rows = [
                AlterConfigsResourceResponse(resource_type=one.resource_type, resource_name=one.resource_name) for one in message.resources
            ]
            return IncrementalAlterConfigsResponse(responses=rows)

        cluster.script(IncrementalAlterConfigsRequest, answer)
        changes: dict[tuple[ResourceType, str], list[tuple[str, int, str | None]]] = {
            (ResourceType.BROKER, "2"): [("leader.replication.throttled.rate", SET, "1")],
            (ResourceType.TOPIC, "a"): [("retention.ms", DELETE, None)],
        }
        assert alter_configs(client, changes) == dict.fromkeys(changes)
        asked = [
            [one.resource_name for message in cluster.requests(node_id, IncrementalAlterConfigsRequest) for one in message.resources]
            for node_id in (1, 2)
        ]
        assert asked[1] == ["2"] or sorted(asked[1]) == ["2", "a"]
        assert sorted(asked[0] + asked[1]) == ["2", "a"]


def test_brokers_that_do_not_describe_partitions_are_asked_for_metadata() -> None:
    with ScriptedCluster() as cluster, cluster.client() as client:
        cluster.unknown_apis.add(75)
        cluster.topics["a"] = [1, -1]
        found = describe_topics(client, ["a", "b"])
        assert isinstance(found["b"], ApiError)
        assert not isinstance(found["a"], ApiError)
        assert [(one.leader, one.elr) for one in found["a"].partitions] == [(1, None), (None, None)]


def test_topics_that_do_not_fit_into_one_answer_are_asked_for_on() -> None:
    pages = {None: ("a", 0, 2, Cursor("a", 2)), ("a", 2): ("a", 2, 3, Cursor("b", 0)), ("b", 0): ("b", 0, 1, None)}

    def answer(_: object, message: DescribeTopicPartitionsRequest) -> Message:
        position = None if message.cursor is None else (message.cursor.topic_name, message.cursor.partition_index)
        name, first, end, cursor = pages[position]
        rows = [DescribeTopicPartitionsResponsePartition(partition_index=index, leader_id=1) for index in range(first, end)]
        topic = DescribeTopicPartitionsResponseTopic(name=name, partitions=rows)
        return DescribeTopicPartitionsResponse(topics=[topic], next_cursor=cursor)

    with ScriptedCluster() as cluster, cluster.client() as client:
        cluster.script(DescribeTopicPartitionsRequest, answer)
        found = describe_topics(client, ["b", "a"])
        counts = {name: [one.partition for one in info.partitions] for name, info in found.items() if not isinstance(info, ApiError)}
        assert counts == {"a": [0, 1, 2], "b": [0]}


def test_a_controller_is_no_broker() -> None:
    with ScriptedCluster() as cluster, cluster.client() as client:
        cluster.unknown_apis.add(MetadataRequest.API_KEY or 0)
        with pytest.raises(ApiError, match=r"127\.0\.0\.1:\d+ does not answer as a broker: The node does not support METADATA"):
            describe_quorum(client)
