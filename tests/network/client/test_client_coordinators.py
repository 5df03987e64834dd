"""Calls to coordinators that move, load, are missing, or are old, in a cluster that answers by a script."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from kops.client.coordinators.group_offsets import CommittedOffset, commit_offsets, delete_offsets, fetch_offsets
from kops.client.coordinators.groups import GroupDescription, consumer_group_ids, delete_groups, describe_groups, list_groups
from kops.client.coordinators.transactions import describe_transactions, find_hanging
from kops.errors import ApiError
from kops.protocol.declaration import Message
from kops.protocol.errors import by_name
from kops.protocol.messages import (
    ConsumerGroupDescribeRequest,
    ConsumerGroupDescribeResponse,
    DeleteGroupsRequest,
    DeleteGroupsResponse,
    DescribeGroupsRequest,
    DescribeGroupsResponse,
    DescribeProducersRequest,
    DescribeProducersResponse,
    DescribeTransactionsRequest,
    DescribeTransactionsResponse,
    FindCoordinatorRequest,
    FindCoordinatorResponse,
    ListGroupsRequest,
    ListGroupsResponse,
    ListTransactionsRequest,
    ListTransactionsResponse,
    OffsetCommitRequest,
    OffsetCommitResponse,
    OffsetDeleteRequest,
    OffsetDeleteResponse,
    OffsetFetchRequest,
    OffsetFetchResponse,
    consumer_group_describe_response,
    describe_groups_response,
)
from kops.protocol.messages.delete_groups_response import DeletableGroupResult
from kops.protocol.messages.describe_producers_response import PartitionResponse, ProducerState, TopicResponse
from kops.protocol.messages.describe_transactions_response import TopicData, TransactionState
from kops.protocol.messages.find_coordinator_response import Coordinator
from kops.protocol.messages.list_groups_response import ListedGroup
from kops.protocol.messages.list_transactions_response import TransactionState as ListedTransaction
from kops.protocol.messages.offset_commit_response import OffsetCommitResponsePartition, OffsetCommitResponseTopic
from kops.protocol.messages.offset_fetch_response import OffsetFetchResponseGroup, OffsetFetchResponsePartitions, OffsetFetchResponseTopics
from kops.records.log_offsets import TopicPartition
from tests.support.nodes.scripted_cluster import ScriptedCluster
from tests.support.patience import with_more_time

ORDERS = TopicPartition("orders", 0)


def code(name: str) -> int:
    return by_name(name).code


@pytest.fixture
def cluster() -> Iterator[ScriptedCluster]:
    """Provide two brokers. The first one coordinates every key."""
    with ScriptedCluster(2) as made:
        coordinators(made, lambda key: 1)
        yield made


def coordinators(cluster: ScriptedCluster, node: Callable[[str], int]) -> None:
    """Script the coordinator of a key. The name of an error stands for a negative code."""

    def answer(_: object, message: FindCoordinatorRequest) -> Message:
        found = []
        for key in message.coordinator_keys:
            node_id = node(key)
            port = cluster.servers[node_id].port() if node_id > 0 else -1
            found.append(Coordinator(key=key, node_id=node_id, host="127.0.0.1", port=port, error_code=max(-node_id, 0)))
        return FindCoordinatorResponse(coordinators=found)

    cluster.script(FindCoordinatorRequest, answer)


def turns(*answers: Any) -> Callable[..., Any]:
    """Return a function that gives one answer after the other. The last one repeats."""
    left = list(answers)
    return lambda *_: left.pop(0) if len(left) > 1 else left[0]


def deleted(**outcomes: str) -> Message:
    return DeleteGroupsResponse(
        results=[DeletableGroupResult(group_id=name, error_code=code(error) if error else 0) for name, error in outcomes.items()]
    )


def test_a_coordinator_that_has_moved_is_looked_for_again(cluster: ScriptedCluster) -> None:
    coordinators(cluster, turns(1, 2))
    cluster.script(DeleteGroupsRequest, turns(deleted(g="NOT_COORDINATOR"), deleted(g="")))
    with cluster.client() as client:
        assert delete_groups(client, ["g"]) == {"g": None}
    assert [len(cluster.requests(node_id, DeleteGroupsRequest)) for node_id in (1, 2)] == [1, 1]


def test_only_what_is_not_ready_is_asked_again(cluster: ScriptedCluster) -> None:
    coordinators(cluster, lambda key: {"a": 1, "b": 2, "c": 1}[key])

    def answer(_: object, message: DeleteGroupsRequest) -> Message:
        tries = len(cluster.requests(1, DeleteGroupsRequest))
        outcome = {"a": "COORDINATOR_LOAD_IN_PROGRESS" if tries < 3 else "", "b": "NON_EMPTY_GROUP", "c": "GROUP_ID_NOT_FOUND"}
        return deleted(**{name: outcome[name] for name in message.groups_names})

    cluster.script(DeleteGroupsRequest, answer)
    with cluster.client() as client:
        done = delete_groups(client, ["a", "b", "c"])
    assert {name: error and error.name for name, error in done.items()} == {
        "a": None,
        "b": "NON_EMPTY_GROUP",
        "c": "GROUP_ID_NOT_FOUND",
    }
    assert [message.groups_names for message in cluster.requests(1, DeleteGroupsRequest)] == [["a", "c"], ["a"], ["a"]]
    assert len(cluster.requests(2, DeleteGroupsRequest)) == 1


def test_a_coordinator_that_is_not_there_yet(cluster: ScriptedCluster) -> None:
    coordinators(cluster, turns(-code("COORDINATOR_NOT_AVAILABLE"), 2))
    cluster.script(DeleteGroupsRequest, turns(deleted(g="")))
    with cluster.client() as client:
        assert delete_groups(client, ["g"]) == {"g": None}
    coordinators(cluster, turns(-code("GROUP_AUTHORIZATION_FAILED")))
    with cluster.client() as client:
        found = delete_groups(client, ["g"])["g"]
        assert found is not None
        assert found.name == "GROUP_AUTHORIZATION_FAILED"
    coordinators(cluster, turns(-code("COORDINATOR_NOT_AVAILABLE")))

    def ask(timeout_s: float) -> str | None:
        with cluster.hurried(default_api_timeout_ms=int(timeout_s * 1000)) as client:
            found = delete_groups(client, ["g"])["g"]
            return None if found is None else found.name

    assert with_more_time(0.1, ask, lambda name: name == "COORDINATOR_NOT_AVAILABLE") == "COORDINATOR_NOT_AVAILABLE"


def test_an_old_broker_names_one_coordinator_at_a_time(cluster: ScriptedCluster) -> None:
    cluster.last_versions = {10: 3}
    port = cluster.servers[2].port()
    cluster.script(FindCoordinatorRequest, lambda *_: FindCoordinatorResponse(node_id=2, host="127.0.0.1", port=port))
    cluster.script(DeleteGroupsRequest, lambda _, message: deleted(**dict.fromkeys(message.groups_names, "")))
    with cluster.client() as client:
        assert delete_groups(client, ["a", "b"]) == {"a": None, "b": None}
    assert sorted(name for message in cluster.requests(2, DeleteGroupsRequest) for name in message.groups_names) == ["a", "b"]
    sent = [message.key for node_id in (1, 2) for message in cluster.requests(node_id, FindCoordinatorRequest)]
    assert sorted(sent) == ["a", "b"]


def test_the_coordinator_s_address_is_learned(cluster: ScriptedCluster) -> None:
    cluster.hidden.add(2)
    coordinators(cluster, lambda key: 2)
    states = [TransactionState(transactional_id="t", producer_id=7, transaction_state="Empty")]
    cluster.script(DescribeTransactionsRequest, lambda *_: DescribeTransactionsResponse(transaction_states=states))
    with cluster.client() as client:
        client.fetch_metadata([])
        assert 2 not in client.metadata.nodes
        found = describe_transactions(client, ["t"])["t"]
        assert not isinstance(found, ApiError)
        assert found.coordinator == 2
        assert client.metadata.nodes[2].port == cluster.servers[2].port()
    [request] = [message for node_id in (1, 2) for message in cluster.requests(node_id, FindCoordinatorRequest)]
    assert (request.key_type, request.coordinator_keys) == (1, ["t"])


def test_groups_of_both_protocols_are_described(cluster: ScriptedCluster) -> None:
    def consumer(_: object, message: ConsumerGroupDescribeRequest) -> Message:
        described = consumer_group_describe_response.DescribedGroup
        missing = code("GROUP_ID_NOT_FOUND")
        return ConsumerGroupDescribeResponse(
            groups=[
                described(group_id=name, group_state="Stable", group_epoch=3) if name == "new" else described(missing, group_id=name)
                for name in message.group_ids
            ]
        )

    def classic(_: object, message: DescribeGroupsRequest) -> Message:
        described = describe_groups_response.DescribedGroup
        states = {"old": "Empty", "gone": "Dead"}
        return DescribeGroupsResponse(groups=[described(group_id=name, group_state=states[name]) for name in message.groups])

    cluster.script(ConsumerGroupDescribeRequest, consumer)
    cluster.script(DescribeGroupsRequest, classic)
    with cluster.client() as client:
        found = describe_groups(client, ["new", "old", "gone"])
    new, old, gone = found["new"], found["old"], found["gone"]
    assert isinstance(new, GroupDescription)
    assert isinstance(old, GroupDescription)
    assert (new.type, new.epoch, new.is_inactive) == ("Consumer", 3, False)
    assert (old.type, old.epoch, old.is_inactive) == ("Classic", None, True)
    # Brokers before 4.0 describe a missing group like this.
    assert isinstance(gone, ApiError)
    assert gone.name == "GROUP_ID_NOT_FOUND"


def test_groups_of_all_brokers_are_listed(cluster: ScriptedCluster) -> None:
    cluster.script(ListGroupsRequest, lambda *_: ListGroupsResponse(groups=[ListedGroup("b", "consumer", "Stable", "consumer")]))
    with cluster.client() as client:
        found, errors = list_groups(client, states=["Stable"], types=["consumer"])
        assert [(one.group_id, one.type, one.state) for one in found] == [("b", "Consumer", "Stable")]
        assert errors == {}
        assert consumer_group_ids(client) == ["b"]
    assert cluster.requests(1, ListGroupsRequest)[0].types_filter == ["consumer"]
    cluster.script(ListGroupsRequest, lambda *_: ListGroupsResponse(error_code=code("GROUP_AUTHORIZATION_FAILED")))
    with cluster.client() as client:
        found, errors = list_groups(client)
        assert found == []
        assert sorted(errors) == [1, 2]
        with pytest.raises(ApiError, match="not allowed on this group"):
            consumer_group_ids(client)


def committed(error: str = "", **offsets: int) -> Message:
    partitions = [OffsetFetchResponsePartitions(int(name[1:]), offset, 5, "m") for name, offset in offsets.items()]
    topics = [OffsetFetchResponseTopics("orders", partitions=partitions)]
    return OffsetFetchResponse(groups=[OffsetFetchResponseGroup("g", topics, code(error) if error else 0)])


def test_offsets_are_fetched(cluster: ScriptedCluster) -> None:
    cluster.script(OffsetFetchRequest, turns(committed("COORDINATOR_LOAD_IN_PROGRESS"), committed(p0=7, p1=-1)))
    with cluster.client() as client:
        assert fetch_offsets(client, ["g"]) == {"g": {ORDERS: CommittedOffset(7, 5, "m")}}
    assert [group.topics for group in cluster.requests(1, OffsetFetchRequest)[0].groups] == [None]


def test_commits_are_repeated_while_the_coordinator_is_not_ready(cluster: ScriptedCluster) -> None:
    def answer(*names: str) -> Message:
        parts = [OffsetCommitResponsePartition(number, code(name) if name else 0) for number, name in enumerate(names)]
        return OffsetCommitResponse(topics=[OffsetCommitResponseTopic("orders", partitions=parts)])

    not_ready = answer("COORDINATOR_NOT_AVAILABLE", "COORDINATOR_NOT_AVAILABLE")
    cluster.script(OffsetCommitRequest, turns(not_ready, answer("", "OFFSET_METADATA_TOO_LARGE")))
    other = TopicPartition("orders", 1)
    with cluster.client() as client:
        done = commit_offsets(client, "g", {ORDERS: 5, other: 6})
    assert done[ORDERS] is None
    error = done[other]
    assert error is not None
    assert error.name == "OFFSET_METADATA_TOO_LARGE"
    sent = cluster.requests(1, OffsetCommitRequest)
    assert len(sent) == 2
    assert (sent[1].generation_id_or_member_epoch, sent[1].member_id) == (-1, "")
    cluster.script(OffsetDeleteRequest, turns(OffsetDeleteResponse(error_code=code("NON_EMPTY_GROUP"))))
    with cluster.client() as client:
        failed = delete_offsets(client, "g", [ORDERS])[ORDERS]
        assert failed is not None
        assert failed.name == "NON_EMPTY_GROUP"


# Transactions ---------------------------------------------------------------------------------------------------------------------------


def script_producers(cluster: ScriptedCluster, *producers: ProducerState) -> None:
    topics = [TopicResponse("orders", [PartitionResponse(0, 0, None, list(producers))])]
    cluster.topics["orders"] = [1]
    cluster.script(DescribeProducersRequest, lambda *_: DescribeProducersResponse(topics=topics))


def script_transactions(cluster: ScriptedCluster, error: str = "", **ids: tuple[int, list[int]]) -> None:
    """Script ids with their producer id and their partitions of `orders`.

    With `error`, the broker that is asked first does not list them.
    """
    listed = [ListedTransaction(name, producer_id, "Ongoing") for name, (producer_id, _) in ids.items()]
    failed = ListTransactionsResponse(error_code=code(error) if error else 0)
    answers = turns(failed, ListTransactionsResponse(transaction_states=listed))
    if not error:
        answers()

    def describe(_: object, message: DescribeTransactionsRequest) -> Message:
        return DescribeTransactionsResponse(
            transaction_states=[
                TransactionState(0, name, "Ongoing", 1000, 5, ids[name][0], 0, [TopicData("orders", ids[name][1])])
                for name in message.transactional_ids
            ]
        )

    cluster.script(ListTransactionsRequest, answers)
    cluster.script(DescribeTransactionsRequest, describe)


def producer(producer_id: int, last_timestamp: int, start: int = 3) -> ProducerState:
    return ProducerState(producer_id, 0, 9, last_timestamp, -1, start)


def test_a_transaction_hangs_if_no_coordinator_knows_of_it_there(cluster: ScriptedCluster) -> None:
    script_producers(cluster, producer(1, 0), producer(2, 0), producer(3, 0), producer(4, 900), producer(5, 0, start=-1))
    script_transactions(cluster, a=(1, [0]), b=(2, [1]))
    with cluster.client() as client:
        found, errors = find_hanging(client, [ORDERS], now_ms=1000, longer_than_ms=500)
    # 1 is open there, 2 is open elsewhere, 3 is unknown, 4 is too young, 5 has no open transaction.
    assert [one.producer_id for one in found] == [2, 3]
    assert errors == {}
    assert sorted(cluster.requests(1, ListTransactionsRequest)[0].producer_id_filters) == [1, 2, 3]


def test_nothing_hangs_while_a_coordinator_can_not_be_asked(cluster: ScriptedCluster) -> None:
    script_producers(cluster, producer(3, 0))
    script_transactions(cluster, error="CLUSTER_AUTHORIZATION_FAILED")
    with cluster.client() as client:
        found, errors = find_hanging(client, [ORDERS], now_ms=1000, longer_than_ms=500)
    assert found == []
    assert list(errors) in (["broker 1"], ["broker 2"])


def test_transactions_are_described(cluster: ScriptedCluster) -> None:
    script_transactions(cluster, a=(7, [2, 0]))
    with cluster.client() as client:
        found = describe_transactions(client, ["a"])["a"]
    assert not isinstance(found, ApiError)
    assert (found.coordinator, found.producer_id, found.started_ms) == (1, 7, 5)
    assert found.partitions == [TopicPartition("orders", 0), TopicPartition("orders", 2)]
