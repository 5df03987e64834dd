"""Builds the response to a request that failed as a whole, for every request that a broker serves or forwards.

Source: the `getErrorResponse` methods of Kafka's requests, ApiError.fromThrowable (the texts that clients get).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from kops.broker.controller_link.group_error_responses import GROUP_ANSWERS
from kops.errors import ApiError
from kops.metadata.controller import error_responses as controller_responses
from kops.metadata.controller.base.result import code, text
from kops.protocol import messages
from kops.protocol.api_keys import API_VERSIONS, BY_KEY
from kops.protocol.errors import by_name
from kops.protocol.messages import (
    add_partitions_to_txn_response,
    alter_replica_log_dirs_response,
    api_versions_response,
    delete_records_response,
    describe_configs_response,
    describe_producers_response,
    describe_topic_partitions_response,
    describe_transactions_response,
    describe_user_scram_credentials_response,
    fetch_response,
    find_coordinator_response,
    list_offsets_response,
    metadata_response,
    offset_for_leader_epoch_response,
    produce_response,
    write_txn_markers_response,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from kops.protocol.declaration import Message

_NO_OFFSET: Final = -1
_MANY_COORDINATORS_SINCE: Final = 4
_MANY_TRANSACTIONS_SINCE: Final = 4
_NO_PARTITIONS_SINCE: Final = 13  # The first version of Fetch in which every client reads the error of the whole response.


def error_response(request: Message, version: int, error: ApiError) -> Message | None:
    """The response to the request in this version, with the error where this kind of response has it. None for a request without a response
    (a Produce with acks=0): its connection is closed instead.
    """
    if error.name == "UNKNOWN_SERVER_ERROR" and error.message:
        error = ApiError(error.name)  # Clients don't get the text of an internal error.
    made = _ANSWERS.get(type(request).__name__)
    return controller_responses.error_response(request, error) if made is None else made(request, version, error)


def _words(error: ApiError) -> str:
    """Return the text of some responses: not the error's own, but the meaning of its code."""
    return by_name(error.name).words


def _produce(request: messages.ProduceRequest, _version: int, error: ApiError) -> Message | None:
    if request.acks == 0:
        return None
    module = produce_response
    topics: dict[tuple[str, bytes], produce_response.TopicProduceResponse] = {}
    for topic in request.topic_data:
        told = topics.setdefault((topic.name, topic.topic_id), module.TopicProduceResponse(topic.name, topic.topic_id))
        named = {one.index for one in told.partition_responses}
        told.partition_responses += [
            module.PartitionProduceResponse(index, code(error), _NO_OFFSET, error_message=text(error))
            for index in dict.fromkeys(one.index for one in topic.partition_data)
            if index not in named
        ]
    return messages.ProduceResponse(responses=[topic for topic in topics.values() if topic.partition_responses])


def _fetch(request: messages.FetchRequest, version: int, error: ApiError) -> Message:
    module = fetch_response
    topics = [
        module.FetchableTopicResponse(
            topic.topic,
            topic.topic_id,
            [module.PartitionData(one.partition, code(error), _NO_OFFSET, records=b"") for one in topic.partitions],
        )
        for topic in request.topics
        if version < _NO_PARTITIONS_SINCE
    ]
    return messages.FetchResponse(error_code=code(error), session_id=request.session_id, responses=topics)


def _list_offsets(request: messages.ListOffsetsRequest, _version: int, error: ApiError) -> Message:
    module = list_offsets_response
    topics = [
        module.ListOffsetsTopicResponse(
            topic.name, [module.ListOffsetsPartitionResponse(one.partition_index, code(error)) for one in topic.partitions]
        )
        for topic in request.topics
    ]
    return messages.ListOffsetsResponse(topics=topics)


def _metadata(request: messages.MetadataRequest, _version: int, error: ApiError) -> Message:
    made = metadata_response.MetadataResponseTopic
    topics = [made(code(error), topic.name or "", topic.topic_id) for topic in request.topics or ()]
    return messages.MetadataResponse(topics=topics, error_code=code(error))


def _api_versions(_request: messages.ApiVersionsRequest, _version: int, error: ApiError) -> Message:
    response = messages.ApiVersionsResponse(error_code=code(error))
    if error.name == "UNSUPPORTED_VERSION":
        versions = BY_KEY[API_VERSIONS].versions
        response.api_keys = [api_versions_response.ApiVersion(API_VERSIONS, versions.start, versions.stop - 1)]
    return response


def _delete_records(request: messages.DeleteRecordsRequest, _version: int, error: ApiError) -> Message:
    module = delete_records_response
    topics = [
        module.DeleteRecordsTopicResult(
            topic.name, [module.DeleteRecordsPartitionResult(one.partition_index, _NO_OFFSET, code(error)) for one in topic.partitions]
        )
        for topic in request.topics
    ]
    return messages.DeleteRecordsResponse(topics=topics)


def _init_producer_id(_request: messages.InitProducerIdRequest, _version: int, error: ApiError) -> Message:
    return messages.InitProducerIdResponse(error_code=code(error), producer_epoch=-1)


def _find_coordinator(request: messages.FindCoordinatorRequest, version: int, error: ApiError) -> Message:
    if version < _MANY_COORDINATORS_SINCE:
        return messages.FindCoordinatorResponse(error_code=code(error), error_message=_words(error), node_id=-1, port=-1)
    made = find_coordinator_response.Coordinator
    return messages.FindCoordinatorResponse(
        coordinators=[made(key, -1, "", -1, code(error), _words(error)) for key in request.coordinator_keys]
    )


def _add_partitions_to_txn(request: messages.AddPartitionsToTxnRequest, version: int, error: ApiError) -> Message:
    if version >= _MANY_TRANSACTIONS_SINCE:
        return messages.AddPartitionsToTxnResponse(error_code=code(error))
    module = add_partitions_to_txn_response
    topics = [
        module.AddPartitionsToTxnTopicResult(
            topic.name, [module.AddPartitionsToTxnPartitionResult(number, code(error)) for number in topic.partitions]
        )
        for topic in request.v3_and_below_topics
    ]
    return messages.AddPartitionsToTxnResponse(results_by_topic_v3_and_below=topics)


def _write_txn_markers(request: messages.WriteTxnMarkersRequest, _version: int, error: ApiError) -> Message:
    module = write_txn_markers_response
    told: dict[int, dict[str, dict[int, None]]] = {}
    for marker in request.markers:
        topics = told[marker.producer_id] = {}
        for topic in marker.topics:
            topics.setdefault(topic.name, {}).update(dict.fromkeys(topic.partition_indexes))
    made = module.WritableTxnMarkerPartitionResult
    markers = [
        module.WritableTxnMarkerResult(
            producer_id,
            [
                module.WritableTxnMarkerTopicResult(name, [made(number, code(error)) for number in numbers])
                for name, numbers in topics.items()
                if numbers
            ],
        )
        for producer_id, topics in told.items()
    ]
    return messages.WriteTxnMarkersResponse(markers)


def _describe_transactions(request: messages.DescribeTransactionsRequest, _version: int, error: ApiError) -> Message:
    made = describe_transactions_response.TransactionState
    return messages.DescribeTransactionsResponse(transaction_states=[made(code(error), each) for each in request.transactional_ids])


def _leader_epochs(request: messages.OffsetForLeaderEpochRequest, _version: int, error: ApiError) -> Message:
    module = offset_for_leader_epoch_response
    topics = [
        module.OffsetForLeaderTopicResult(topic.topic, [module.EpochEndOffset(code(error), one.partition) for one in topic.partitions])
        for topic in request.topics
    ]
    return messages.OffsetForLeaderEpochResponse(topics=topics)


def _describe_configs(request: messages.DescribeConfigsRequest, _version: int, error: ApiError) -> Message:
    made = describe_configs_response.DescribeConfigsResult
    results = [made(code(error), _words(error), one.resource_type, one.resource_name) for one in request.resources]
    return messages.DescribeConfigsResponse(results=results)


def _alter_log_dirs(request: messages.AlterReplicaLogDirsRequest, _version: int, error: ApiError) -> Message:
    module = alter_replica_log_dirs_response
    results = [
        module.AlterReplicaLogDirTopicResult(
            topic.name, [module.AlterReplicaLogDirPartitionResult(partition, code(error)) for partition in topic.partitions]
        )
        for directory in request.dirs
        for topic in directory.topics
    ]
    return messages.AlterReplicaLogDirsResponse(results=results)


def _describe_producers(request: messages.DescribeProducersRequest, _version: int, error: ApiError) -> Message:
    module = describe_producers_response
    topics = [
        module.TopicResponse(topic.name, [module.PartitionResponse(partition, code(error)) for partition in topic.partition_indexes])
        for topic in request.topics
    ]
    return messages.DescribeProducersResponse(topics=topics)


def _describe_topic_partitions(request: messages.DescribeTopicPartitionsRequest, _version: int, error: ApiError) -> Message:
    made = describe_topic_partitions_response.DescribeTopicPartitionsResponseTopic
    return messages.DescribeTopicPartitionsResponse(topics=[made(code(error), topic.name) for topic in request.topics])


def _describe_client_quotas(_request: messages.DescribeClientQuotasRequest, _version: int, error: ApiError) -> Message:
    return messages.DescribeClientQuotasResponse(error_code=code(error), error_message=text(error), entries=None)


def _describe_credentials(request: messages.DescribeUserScramCredentialsRequest, _version: int, error: ApiError) -> Message:
    made = describe_user_scram_credentials_response.DescribeUserScramCredentialsResult
    results = [made(error_code=code(error), error_message=text(error)) for _ in request.users or ()]
    return messages.DescribeUserScramCredentialsResponse(error_code=code(error), error_message=text(error), results=results)


def _elect_leaders(request: messages.ElectLeadersRequest, version: int, error: ApiError) -> Message:
    response = controller_responses.error_response(request, error)
    assert isinstance(response, messages.ElectLeadersResponse)
    if version == 0:  # it has no place for it
        response.error_code = 0
    return response


def _code_and_words(made: Callable[..., Message]) -> Callable[[Any, int, ApiError], Message]:
    return lambda _request, _version, error: made(error_code=code(error), error_message=_words(error))


def _unregister_broker(_request: messages.UnregisterBrokerRequest, _version: int, error: ApiError) -> Message:
    return messages.UnregisterBrokerResponse(error_code=code(error), error_message=error.message or _words(error))


_ANSWERS: Final[dict[str, Callable[[Any, int, ApiError], Message | None]]] = {
    "AddOffsetsToTxnRequest": lambda _request, _version, error: messages.AddOffsetsToTxnResponse(error_code=code(error)),
    "AddPartitionsToTxnRequest": _add_partitions_to_txn,
    "AddRaftVoterRequest": _code_and_words(messages.AddRaftVoterResponse),
    "AlterReplicaLogDirsRequest": _alter_log_dirs,
    "ApiVersionsRequest": _api_versions,
    "DeleteRecordsRequest": _delete_records,
    "DescribeClientQuotasRequest": _describe_client_quotas,
    "DescribeConfigsRequest": _describe_configs,
    "DescribeProducersRequest": _describe_producers,
    "DescribeQuorumRequest": _code_and_words(messages.DescribeQuorumResponse),
    "DescribeTopicPartitionsRequest": _describe_topic_partitions,
    "DescribeTransactionsRequest": _describe_transactions,
    "DescribeUserScramCredentialsRequest": _describe_credentials,
    "ElectLeadersRequest": _elect_leaders,
    "EndTxnRequest": lambda _request, _version, error: messages.EndTxnResponse(error_code=code(error)),
    "FetchRequest": _fetch,
    "FindCoordinatorRequest": _find_coordinator,
    "InitProducerIdRequest": _init_producer_id,
    "ListOffsetsRequest": _list_offsets,
    "ListTransactionsRequest": lambda _request, _version, error: messages.ListTransactionsResponse(error_code=code(error)),
    "MetadataRequest": _metadata,
    "OffsetForLeaderEpochRequest": _leader_epochs,
    "ProduceRequest": _produce,
    "RemoveRaftVoterRequest": _code_and_words(messages.RemoveRaftVoterResponse),
    "UnregisterBrokerRequest": _unregister_broker,
    "WriteTxnMarkersRequest": _write_txn_markers,
    **GROUP_ANSWERS,
}
