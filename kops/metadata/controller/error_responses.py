"""The response to a request that failed as a whole (the `getErrorResponse` methods of Kafka's requests)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from kops.metadata.controller.base.result import code, text
from kops.protocol import messages
from kops.protocol.messages import (
    alter_configs_response,
    alter_partition_reassignments_response,
    create_partitions_response,
    create_topics_response,
    delete_topics_response,
    elect_leaders_response,
    incremental_alter_configs_response,
    list_partition_reassignments_response,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from kops.errors import ApiError
    from kops.protocol.declaration import Message


def error_response(request: Message, error: ApiError) -> Message:
    """Return the response to the request, with the error in the fields that this kind of response has for it."""
    name = type(request).__name__
    number, why = code(error), text(error)
    if name in _ANSWERS:
        return _ANSWERS[name](request, number, why)
    response: Message = getattr(messages, name.removesuffix("Request") + "Response")(error_code=number)
    if hasattr(response, "error_message"):
        response.error_message = why
    return response


def _create_topics(request: messages.CreateTopicsRequest, number: int, why: str | None) -> Message:
    results = [create_topics_response.CreatableTopicResult(one.name, error_code=number, error_message=why) for one in request.topics]
    return messages.CreateTopicsResponse(topics=results)


def _delete_topics(request: messages.DeleteTopicsRequest, number: int, _why: str | None) -> Message:
    named = [(one.name, one.topic_id) for one in request.topics] or [(name, bytes(16)) for name in request.topic_names]
    results = [delete_topics_response.DeletableTopicResult(name, topic_id, number) for name, topic_id in named]
    return messages.DeleteTopicsResponse(responses=results)


def _create_partitions(request: messages.CreatePartitionsRequest, number: int, why: str | None) -> Message:
    results = [create_partitions_response.CreatePartitionsTopicResult(one.name, number, why) for one in request.topics]
    return messages.CreatePartitionsResponse(results=results)


def _elect_leaders(request: messages.ElectLeadersRequest, number: int, why: str | None) -> Message:
    results = [
        elect_leaders_response.ReplicaElectionResult(
            topic.topic, [elect_leaders_response.PartitionResult(partition, number, why) for partition in topic.partitions]
        )
        for topic in request.topic_partitions or ()
    ]
    return messages.ElectLeadersResponse(error_code=number, replica_election_results=results)


def _alter_reassignments(request: messages.AlterPartitionReassignmentsRequest, number: int, why: str | None) -> Message:
    module = alter_partition_reassignments_response
    results = [
        module.ReassignableTopicResponse(
            topic.name, [module.ReassignablePartitionResponse(one.partition_index, number, why) for one in topic.partitions]
        )
        for topic in request.topics
    ]
    return messages.AlterPartitionReassignmentsResponse(error_code=number, error_message=why, responses=results)


def _list_reassignments(request: messages.ListPartitionReassignmentsRequest, number: int, why: str | None) -> Message:
    module = list_partition_reassignments_response
    topics = [
        module.OngoingTopicReassignment(topic.name, [module.OngoingPartitionReassignment(one) for one in topic.partition_indexes])
        for topic in request.topics or ()
    ]
    return messages.ListPartitionReassignmentsResponse(error_code=number, error_message=why, topics=topics)


def _incremental_alter_configs(request: messages.IncrementalAlterConfigsRequest, number: int, why: str | None) -> Message:
    made = incremental_alter_configs_response.AlterConfigsResourceResponse
    results = [made(number, why, one.resource_type, one.resource_name) for one in request.resources]
    return messages.IncrementalAlterConfigsResponse(responses=results)


def _alter_configs(request: messages.AlterConfigsRequest, number: int, why: str | None) -> Message:
    made = alter_configs_response.AlterConfigsResourceResponse
    results = [made(number, why, one.resource_type, one.resource_name) for one in request.resources]
    return messages.AlterConfigsResponse(responses=results)


_ANSWERS: Final[dict[str, Callable[[Any, int, str | None], Message]]] = {
    "AlterConfigsRequest": _alter_configs,
    "AlterPartitionReassignmentsRequest": _alter_reassignments,
    "CreatePartitionsRequest": _create_partitions,
    "CreateTopicsRequest": _create_topics,
    "DeleteTopicsRequest": _delete_topics,
    "ElectLeadersRequest": _elect_leaders,
    "IncrementalAlterConfigsRequest": _incremental_alter_configs,
    "ListPartitionReassignmentsRequest": _list_reassignments,
}
