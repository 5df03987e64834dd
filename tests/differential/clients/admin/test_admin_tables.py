"""The admin client beside Java's: every method of Java's Admin, and what each does after an answer with each error code.

For an error code of a group, a partition or a whole response, Kafka's handler (in the oracle's JVM) and the client of kops read the same
answer. Both must fail the key with the same error, ask again, or look up the broker again.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest
from py4j.java_gateway import get_field, is_instance_of

import kops
from kops import admin as values
from kops.client.admin.core.operation import Steps, execute
from kops.client.admin.operations import group_offsets, groups, offsets, transactions
from kops.client.client import Client
from kops.client.errors import KafkaError
from kops.protocol import errors
from kops.protocol import messages as m
from kops.protocol.declaration import Message
from kops.protocol.messages import (
    alter_share_group_offsets_response,
    consumer_group_describe_response,
    delete_groups_response,
    delete_records_response,
    delete_share_group_offsets_response,
    describe_groups_response,
    describe_producers_response,
    describe_share_group_offsets_response,
    describe_transactions_response,
    find_coordinator_response,
    leave_group_response,
    list_offsets_response,
    metadata_response,
    offset_commit_response,
    offset_delete_response,
    offset_fetch_response,
    share_group_describe_response,
    streams_group_describe_response,
    write_txn_markers_response,
)
from kops.records.log_offsets import TopicPartition
from tests.support.kafka.oracle import Oracle
from tests.support.scripted_network import Answer, ScriptedNetwork, scripted_client

# Java's methods that kops does not have, with the reason.
WITHOUT = {
    "close": "the end of a with block, and close()",
    "create": "the constructor",
    "listConsumerGroups": "deprecated in Kafka: listGroups",
    "listClientMetricsResources": "deprecated in Kafka: listConfigResources",
}
INTERNALS = "org.apache.kafka.clients.admin.internals"
KEY = TopicPartition("t", 0)
ALL = tuple(one for one in errors.ERRORS if one.name != "NONE")


def snake(name: str) -> str:
    """Return a name of Java in Python's style."""
    return "".join(f"_{letter.lower()}" if letter.isupper() else letter for letter in name)


def test_every_method_of_javas_admin_is_there(oracle: Oracle) -> None:
    interface = oracle.java_class("java.lang.Class").forName("org.apache.kafka.clients.admin.Admin")
    theirs = {str(method.getName()) for method in interface.getMethods()}
    assert set(WITHOUT) <= theirs
    ours = {name for name in dir(kops.Admin) if not name.startswith("_")} - {"close"}
    assert {snake(name) for name in theirs - set(WITHOUT)} == ours


@dataclass(frozen=True)
class Case:
    """One place for an error code: the operation, the answer with the code, and Kafka's handler for the same answer."""

    name: str
    ask: Callable[[Client], Steps[Any]]
    answer: Callable[[int], Message]
    handler: Callable[[Any], Any]
    keys: Callable[[Any], Any]
    version: int | None = None
    has_memory: bool = False  # whether the handler remembers earlier answers


class Java:
    """The parts of Kafka's handlers that the cases need."""

    def __init__(self, oracle: Oracle) -> None:
        self.oracle = oracle
        self.log = oracle.java_class("org.apache.kafka.common.utils.LogContext")()
        self.key = oracle.java_class("org.apache.kafka.common.TopicPartition")("t", 0)
        self.node = oracle.java_class("org.apache.kafka.common.Node")(2, "host", 9002)
        self.lists = oracle.java_class("java.util.List")
        self.maps = oracle.java_class("java.util.Map")
        self.sets = oracle.java_class("java.util.Set")
        self.group = oracle.java_class(f"{INTERNALS}.CoordinatorKey").byGroupId("g")
        self.txn = oracle.java_class(f"{INTERNALS}.CoordinatorKey").byTransactionalId("g")
        self.api_keys = oracle.java_class("org.apache.kafka.common.protocol.ApiKeys")
        self.errors = oracle.java_class("org.apache.kafka.common.protocol.Errors")
        self.parse = oracle.java_class("org.apache.kafka.common.requests.AbstractResponse").parseResponse
        self.accessor = oracle.java_class("org.apache.kafka.common.protocol.ByteBufferAccessor")
        self.wrap = oracle.java_class("java.nio.ByteBuffer").wrap

    def new(self, name: str, *args: Any) -> Any:
        return self.oracle.java_class(f"{INTERNALS}.{name}")(*args, self.log)

    def admin(self, name: str, *args: Any) -> Any:
        return self.oracle.java_class(f"org.apache.kafka.clients.admin.{name}")(*args)

    def response(self, message: Message, version: int) -> Any:
        assert message.API_KEY is not None
        data = self.accessor(self.wrap(message.encode(version)))
        return self.parse(self.api_keys.forId(message.API_KEY), data, self.oracle.short(version))

    def outcome(self, handler: Any, keys: Any, response: Any) -> str:
        """Return what Kafka's handler makes of an answer."""
        result = handler.handleResponse(self.node, keys, response)
        if get_field(result, "unmappedKeys").size():
            return "looks up"
        failed = get_field(result, "failedKeys")
        if failed.size():
            return str(self.errors.forException(next(iter(failed.values()))).name())
        completed = get_field(result, "completedKeys")
        return self.completed(next(iter(completed.values()))) if completed.size() else "asks again"

    def completed(self, value: Any) -> str:
        """Return the error within a value, or NONE."""
        if value is None or not hasattr(value, "values"):
            return "NONE"
        inner = list(value.values())
        if not inner or inner[0] is None:
            return "NONE"
        if is_instance_of(self.oracle.gateway, inner[0], "java.lang.Throwable"):
            return str(self.errors.forException(inner[0]).name())
        return str(inner[0].name()) if str(inner[0].getClass().getSimpleName()) == "Errors" else "NONE"


def described_groups(java: Java) -> Any:
    return java.sets.of(java.group)


def partitions(java: Java) -> Any:
    return java.sets.of(java.key)


def transactional(java: Java) -> Any:
    return java.sets.of(java.txn)


def topic_of(kind: Any, partition: Any, **more: Any) -> list[Any]:
    return [kind(name="t", partitions=[partition(partition_index=0, **more)])]


def commit_answer(code: int) -> Message:
    response = offset_commit_response
    return m.OffsetCommitResponse(
        topics=topic_of(response.OffsetCommitResponseTopic, response.OffsetCommitResponsePartition, error_code=code)
    )


def delete_answer(code: int) -> Message:
    response = offset_delete_response
    return m.OffsetDeleteResponse(
        topics=topic_of(response.OffsetDeleteResponseTopic, response.OffsetDeleteResponsePartition, error_code=code)
    )


def offsets_answer(code: int) -> Message:
    response = list_offsets_response
    return m.ListOffsetsResponse(topics=topic_of(response.ListOffsetsTopicResponse, response.ListOffsetsPartitionResponse, error_code=code))


def records_answer(code: int) -> Message:
    response = delete_records_response
    return m.DeleteRecordsResponse(
        topics=topic_of(response.DeleteRecordsTopicResult, response.DeleteRecordsPartitionResult, error_code=code)
    )


def producers_answer(code: int) -> Message:
    response = describe_producers_response
    return m.DescribeProducersResponse(topics=topic_of(response.TopicResponse, response.PartitionResponse, error_code=code))


def markers_answer(code: int) -> Message:
    response = write_txn_markers_response
    parts = topic_of(response.WritableTxnMarkerTopicResult, response.WritableTxnMarkerPartitionResult, error_code=code)
    return m.WriteTxnMarkersResponse(markers=[response.WritableTxnMarkerResult(producer_id=7, topics=parts)])


def alter_share_answer(code: int) -> Message:
    response = alter_share_group_offsets_response
    part = response.AlterShareGroupOffsetsResponsePartition(partition_index=0, error_code=code)
    topic = response.AlterShareGroupOffsetsResponseTopic(topic_name="t", partitions=[part])
    return m.AlterShareGroupOffsetsResponse(responses=[topic])


def streams_answer(code: int) -> Message:
    response = streams_group_describe_response
    group = response.DescribedGroup(group_id="g", error_code=code, topology=response.Topology(subtopologies=[]))
    return m.StreamsGroupDescribeResponse(groups=[group])


def share_offsets_answer(code: int) -> Message:
    group = describe_share_group_offsets_response.DescribeShareGroupOffsetsResponseGroup(group_id="g", error_code=code)
    return m.DescribeShareGroupOffsetsResponse(groups=[group])


def delete_share_answer(code: int) -> Message:
    topic = delete_share_group_offsets_response.DeleteShareGroupOffsetsResponseTopic(topic_name="t", error_code=code)
    return m.DeleteShareGroupOffsetsResponse(responses=[topic])


def specs(java: Java, kind: str) -> Any:
    return java.maps.of("g", java.admin(kind))


def alter_handler(java: Java) -> Any:
    one = java.oracle.java_class("org.apache.kafka.clients.consumer.OffsetAndMetadata")(5)
    return java.new("AlterConsumerGroupOffsetsHandler", "g", java.maps.of(java.key, one))


def share_handler(java: Java) -> Any:
    offset = 2**40  # py4j makes a Long of a number that is too large for an Integer
    return java.new("AlterShareGroupOffsetsHandler", "g", java.maps.of(java.key, offset))


def offsets_handler(java: Java) -> Any:
    targets = java.maps.of(java.key, java.oracle.java_class("java.lang.Long").valueOf(-1))
    return java.oracle.java_class(f"{INTERNALS}.ListOffsetsHandler")(targets, java.admin("ListOffsetsOptions"), java.log, 1000)


def records_handler(java: Java) -> Any:
    return java.oracle.java_class(f"{INTERNALS}.DeleteRecordsHandler")(java.maps.of(), java.log, 1000)


def abort_handler(java: Java) -> Any:
    return java.new("AbortTransactionHandler", java.admin("AbortTransactionSpec", java.key, 7, java.oracle.short(1), 0))


def fence_handler(java: Java) -> Any:
    return java.oracle.java_class(f"{INTERNALS}.FenceProducersHandler")(java.admin("FenceProducersOptions"), java.log, 1000)


def leave_handler(java: Java) -> Any:
    identity = java.oracle.java_class("org.apache.kafka.common.message.LeaveGroupRequestData$MemberIdentity")()
    return java.new("RemoveMembersFromConsumerGroupHandler", "g", java.lists.of(identity.setGroupInstanceId("i")))


def leave_answer(code: int, member: int = 0) -> Message:
    one = leave_group_response.MemberResponse(member_id="", group_instance_id="i", error_code=member)
    return m.LeaveGroupResponse(error_code=code, members=[one])


LAST_WITH_NAMES = 9
CASES = (
    Case(
        "describe consumer groups",
        lambda client: groups.describe_consumer_groups(client, ["g"]),
        lambda code: m.ConsumerGroupDescribeResponse(
            groups=[consumer_group_describe_response.DescribedGroup(group_id="g", error_code=code)]
        ),
        lambda java: java.new("DescribeConsumerGroupsHandler", False),
        described_groups,
        has_memory=True,
    ),
    Case(
        "describe classic groups",
        lambda client: groups.describe_classic_groups(client, ["g"]),
        lambda code: m.DescribeGroupsResponse(groups=[describe_groups_response.DescribedGroup(group_id="g", error_code=code)]),
        lambda java: java.new("DescribeClassicGroupsHandler", False),
        described_groups,
    ),
    Case(
        "describe share groups",
        lambda client: groups.describe_share_groups(client, ["g"]),
        lambda code: m.ShareGroupDescribeResponse(groups=[share_group_describe_response.DescribedGroup(group_id="g", error_code=code)]),
        lambda java: java.new("DescribeShareGroupsHandler", False),
        described_groups,
    ),
    Case(
        "describe streams groups",
        lambda client: groups.describe_streams_groups(client, ["g"]),
        streams_answer,
        lambda java: java.new("DescribeStreamsGroupsHandler", False),
        described_groups,
    ),
    Case(
        "delete groups",
        lambda client: groups.delete_consumer_groups(client, ["g"]),
        lambda code: m.DeleteGroupsResponse(results=[delete_groups_response.DeletableGroupResult(group_id="g", error_code=code)]),
        lambda java: java.new("DeleteConsumerGroupsHandler"),
        described_groups,
    ),
    Case(
        "remove members, the group",
        lambda client: groups.remove_members_from_consumer_group(client, "g", ["i"]),
        leave_answer,
        leave_handler,
        described_groups,
    ),
    Case(
        "remove members, a member",
        lambda client: groups.remove_members_from_consumer_group(client, "g", ["i"]),
        lambda code: leave_answer(0, code),
        leave_handler,
        described_groups,
    ),
    Case(
        "list offsets of groups",
        lambda client: group_offsets.list_consumer_group_offsets(client, {"g": None}),
        lambda code: m.OffsetFetchResponse(groups=[offset_fetch_response.OffsetFetchResponseGroup(group_id="g", error_code=code)]),
        lambda java: java.new("ListConsumerGroupOffsetsHandler", specs(java, "ListConsumerGroupOffsetsSpec"), False),
        described_groups,
        LAST_WITH_NAMES,
    ),
    Case(
        "alter offsets of groups",
        lambda client: group_offsets.alter_consumer_group_offsets(client, "g", {KEY: 5}),
        commit_answer,
        alter_handler,
        described_groups,
        LAST_WITH_NAMES,
    ),
    Case(
        "delete offsets of groups",
        lambda client: group_offsets.delete_consumer_group_offsets(client, "g", [KEY]),
        lambda code: m.OffsetDeleteResponse(error_code=code) if code else delete_answer(0),
        lambda java: java.new("DeleteConsumerGroupOffsetsHandler", "g", java.sets.of(java.key)),
        described_groups,
    ),
    Case(
        "delete offsets of groups, a partition",
        lambda client: group_offsets.delete_consumer_group_offsets(client, "g", [KEY]),
        delete_answer,
        lambda java: java.new("DeleteConsumerGroupOffsetsHandler", "g", java.sets.of(java.key)),
        described_groups,
    ),
    Case(
        "list offsets of share groups",
        lambda client: group_offsets.list_share_group_offsets(client, {"g": None}),
        share_offsets_answer,
        lambda java: java.new("ListShareGroupOffsetsHandler", specs(java, "ListShareGroupOffsetsSpec")),
        described_groups,
    ),
    Case(
        "alter offsets of share groups",
        lambda client: group_offsets.alter_share_group_offsets(client, "g", {KEY: 5}),
        lambda code: m.AlterShareGroupOffsetsResponse(error_code=code) if code else alter_share_answer(0),
        share_handler,
        described_groups,
    ),
    Case(
        "alter offsets of share groups, a partition",
        lambda client: group_offsets.alter_share_group_offsets(client, "g", {KEY: 5}),
        alter_share_answer,
        share_handler,
        described_groups,
    ),
    Case(
        "delete offsets of share groups",
        lambda client: group_offsets.delete_share_group_offsets(client, "g", ["t"]),
        lambda code: m.DeleteShareGroupOffsetsResponse(error_code=code) if code else delete_share_answer(0),
        lambda java: java.new("DeleteShareGroupOffsetsHandler", "g", java.sets.of("t")),
        described_groups,
    ),
    Case(
        "delete offsets of share groups, a topic",
        lambda client: group_offsets.delete_share_group_offsets(client, "g", ["t"]),
        delete_share_answer,
        lambda java: java.new("DeleteShareGroupOffsetsHandler", "g", java.sets.of("t")),
        described_groups,
    ),
    Case(
        "describe transactions",
        lambda client: transactions.describe_transactions(client, ["g"]),
        lambda code: m.DescribeTransactionsResponse(
            transaction_states=[describe_transactions_response.TransactionState(transactional_id="g", error_code=code)]
        ),
        lambda java: java.new("DescribeTransactionsHandler"),
        transactional,
    ),
    Case(
        "fence producers",
        lambda client: transactions.fence_producers(client, ["g"]),
        lambda code: m.InitProducerIdResponse(error_code=code),
        fence_handler,
        transactional,
    ),
    Case(
        "list offsets",
        lambda client: offsets.list_offsets(client, {KEY: values.OffsetSpec.latest()}),
        offsets_answer,
        offsets_handler,
        partitions,
    ),
    Case("delete records", lambda client: offsets.delete_records(client, {KEY: 5}), records_answer, records_handler, partitions),
    Case(
        "describe producers",
        lambda client: transactions.describe_producers(client, [KEY]),
        producers_answer,
        lambda java: java.new("DescribeProducersHandler", java.admin("DescribeProducersOptions")),
        partitions,
    ),
    Case(
        "abort transaction",
        lambda client: transactions.abort_transaction(client, values.AbortTransactionSpec(KEY, 7, 1, 0)),
        markers_answer,
        abort_handler,
        partitions,
    ),
)


def found_broker(message: Message) -> Answer:
    """Return the answer to a look-up: broker 2."""
    if isinstance(message, m.FindCoordinatorRequest):
        coordinator = find_coordinator_response.Coordinator(key="g", node_id=2, host="host", port=9002)
        return m.FindCoordinatorResponse(coordinators=[coordinator])
    if isinstance(message, m.MetadataRequest):
        brokers = [metadata_response.MetadataResponseBroker(node_id=one, host="host", port=9000 + one) for one in (1, 2, 3)]
        partition = metadata_response.MetadataResponsePartition(partition_index=0, leader_id=2)
        topic = metadata_response.MetadataResponseTopic(name="t", partitions=[partition])
        return m.MetadataResponse(brokers=brokers, topics=[topic], controller_id=1)
    return None


def our_outcome(ask: Callable[[Client], Steps[Any]], answer: Answer, after: Answer, lookup: Callable[[Message], Answer]) -> str:
    """Return what kops makes of the same answer. Later requests get `after`."""
    is_first = True

    def script(node: int, message: Message, versions: range | None) -> Answer:
        nonlocal is_first
        found = lookup(message)
        if found is None:
            found, is_first = (answer if is_first else after), False
        return found

    network = ScriptedNetwork(script)
    client = scripted_client(network)
    try:
        result = execute(client, ask(client))
    except KafkaError as error:
        outcome = error.name
    else:
        failed = list(result.errors().values()) if isinstance(result, values.Results) else []
        outcome = failed[0].name if failed else "NONE"
    asked = [name for _, name in network.log]
    lookups = ("FindCoordinator", "Metadata")
    if len(asked) <= 2:
        return outcome
    return "looks up" if asked[2] in lookups else "asks again"


@pytest.mark.slow
@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_every_error_code_has_the_same_effect(oracle: Oracle, case: Case) -> None:
    java = Java(oracle)
    good = case.answer(0)
    version = good.VERSIONS.stop - 1 if case.version is None else case.version
    handler, keys = case.handler(java), case.keys(java)
    theirs, ours = {}, {}
    for error in ALL:
        answer = case.answer(error.code)
        theirs[error.name] = java.outcome(case.handler(java) if case.has_memory else handler, keys, java.response(answer, version))
        ours[error.name] = our_outcome(case.ask, answer, good, found_broker)
    assert ours == theirs
    assert our_outcome(case.ask, good, good, found_broker) == "NONE"


@pytest.mark.slow
def test_every_error_code_of_a_look_up_has_the_same_effect(oracle: Oracle) -> None:
    java = Java(oracle)
    group_type = oracle.java_class("org.apache.kafka.common.requests.FindCoordinatorRequest$CoordinatorType").GROUP

    def coordinator(code: int) -> Message:
        one = find_coordinator_response.Coordinator(key="g", node_id=2, host="host", port=9002, error_code=code)
        return m.FindCoordinatorResponse(coordinators=[one])

    def metadata(topic_code: int, code: int) -> Message:
        partition = metadata_response.MetadataResponsePartition(partition_index=0, leader_id=2, error_code=code)
        topic = metadata_response.MetadataResponseTopic(name="t", error_code=topic_code, partitions=[] if topic_code else [partition])
        brokers = [metadata_response.MetadataResponseBroker(node_id=2, host="host", port=9002)]
        return m.MetadataResponse(brokers=brokers, topics=[topic], controller_id=2)

    leaders = oracle.java_class(f"{INTERNALS}.PartitionLeaderStrategy")
    strategies: list[tuple[Any, Any, Callable[[int], Message], Callable[[Client], Steps[Any]], Message]] = [
        (
            oracle.java_class(f"{INTERNALS}.CoordinatorStrategy")(group_type, java.log),
            java.sets.of(java.group),
            coordinator,
            lambda client: groups.delete_consumer_groups(client, ["g"]),
            m.DeleteGroupsResponse(results=[delete_groups_response.DeletableGroupResult(group_id="g")]),
        )
    ]
    for is_tolerant in (False, True):
        ask: Callable[[Client], Steps[Any]] = (
            (lambda client: offsets.delete_records(client, {KEY: 5}))
            if is_tolerant
            else (lambda client: offsets.list_offsets(client, {KEY: values.OffsetSpec.latest()}))
        )
        good = records_answer(0) if is_tolerant else offsets_answer(0)
        for place in (lambda code: metadata(code, 0), lambda code: metadata(0, code)):
            strategies.append((leaders(java.log, is_tolerant), java.sets.of(java.key), place, ask, good))
    for strategy, keys, answer, operation, good in strategies:
        theirs, ours = {}, {}
        for error in ALL:
            message = answer(error.code)
            result = strategy.handleResponse(keys, java.response(message, message.VERSIONS.stop - 1))
            failed = get_field(result, "failedKeys")
            is_found = get_field(result, "mappedKeys").size()
            theirs[error.name] = str(java.errors.forException(next(iter(failed.values()))).name()) if failed.size() else "later"
            assert not is_found
            ours[error.name] = _looked_up(operation, message, good)
        assert ours == theirs


def _looked_up(ask: Callable[[Client], Steps[Any]], first: Message, good: Message) -> str:
    is_first = True

    def script(node: int, message: Message, versions: range | None) -> Answer:
        nonlocal is_first
        if not isinstance(message, m.FindCoordinatorRequest | m.MetadataRequest):
            return good
        answer = first if is_first else found_broker(message)
        is_first = False
        return answer

    network = ScriptedNetwork(script)
    client = scripted_client(network)
    failed = list(execute(client, ask(client)).errors().values())
    if failed:
        return str(failed[0].name)
    assert len(network.log) == 3
    return "later"
