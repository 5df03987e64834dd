"""The requests that a leading controller answers. This module resolves names and ids and rejects duplicates, and the parts do the rest.

Sources: Kafka's ControllerApis and the methods of QuorumController that it calls.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

from kops.errors import ApiError
from kops.metadata.controller.base.result import ControllerResult, check_record_count, code, text
from kops.metadata.controller.cluster.config_schema import BROKER_LOGGER, TYPE_NAMES
from kops.metadata.controller.cluster.feature_versions import KRAFT_FEATURE
from kops.protocol.declaration import ZERO_UUID
from kops.protocol.errors import by_name
from kops.protocol.messages import (
    AlterConfigsResponse,
    AlterPartitionReassignmentsResponse,
    AlterPartitionResponse,
    BrokerRegistrationResponse,
    ClearElrRecord,
    ControllerRegistrationResponse,
    CreatePartitionsResponse,
    CreateTopicsRequest,
    DeleteTopicsResponse,
    IncrementalAlterConfigsResponse,
    UpdateFeaturesResponse,
)
from kops.protocol.messages.alter_configs_response import AlterConfigsResourceResponse as LegacyResourceResponse
from kops.protocol.messages.create_partitions_response import CreatePartitionsTopicResult
from kops.protocol.messages.create_topics_response import CreatableTopicResult
from kops.protocol.messages.delete_topics_response import DeletableTopicResult
from kops.protocol.messages.incremental_alter_configs_response import AlterConfigsResourceResponse
from kops.protocol.messages.update_features_response import UpdatableFeatureResult

if TYPE_CHECKING:
    from collections.abc import Iterable

    from kops.metadata.controller.base.result import Record, RequestContext
    from kops.metadata.controller.cluster.configuration_control import Resource
    from kops.metadata.controller.cluster.settings import ControllerSettings
    from kops.metadata.controller.partitions.replication_state import Topic
    from kops.metadata.controller.parts import Parts
    from kops.protocol.declaration import Message
    from kops.protocol.messages import (
        AllocateProducerIdsRequest,
        AlterConfigsRequest,
        AlterPartitionReassignmentsRequest,
        AlterPartitionRequest,
        BrokerRegistrationRequest,
        ControllerRegistrationRequest,
        CreatePartitionsRequest,
        DeleteTopicsRequest,
        ElectLeadersRequest,
        IncrementalAlterConfigsRequest,
        UpdateFeaturesRequest,
    )

_METADATA_TOPIC: Final = "__cluster_metadata"
_TELLS_CLEAN_SHUTDOWN_SINCE: Final = 3
_NO_RESULTS_SINCE: Final = 2
_DUPLICATE_TOPIC: Final = "Duplicate topic name."

Handler = Callable[["RequestContext", Any, int], ControllerResult]


class Requests:
    """The handlers of all requests. Each raises ApiError if the request fails as a whole."""

    def __init__(self, parts: Parts, settings: ControllerSettings) -> None:
        self._parts = parts
        self._settings = settings
        self._next_write_offset = 0
        self._handlers: dict[str, Handler] = {
            "AllocateProducerIdsRequest": self._allocate_producer_ids,
            "AlterConfigsRequest": self._alter_configs,
            "AlterPartitionReassignmentsRequest": self._alter_reassignments,
            "AlterPartitionRequest": self._alter_partition,
            "AssignReplicasToDirsRequest": lambda _context, request, _now: parts.brokers.assign_directories(request),
            "BrokerHeartbeatRequest": lambda _context, request, _now: parts.brokers.heartbeat(request),
            "BrokerRegistrationRequest": self._register_broker,
            "ControllerRegistrationRequest": self._register_controller,
            "CreatePartitionsRequest": self._create_partitions,
            "CreateTopicsRequest": self._create_topics,
            "DeleteTopicsRequest": self._delete_topics,
            "ElectLeadersRequest": self._elect_leaders,
            "IncrementalAlterConfigsRequest": self._incremental_alter_configs,
            "ListPartitionReassignmentsRequest": lambda _context, request, _now: ControllerResult(
                response=parts.reassignments.ongoing(request)
            ),
            "UnregisterBrokerRequest": lambda _context, request, _now: parts.brokers.unregister(request),
            "UpdateFeaturesRequest": self._update_features,
        }

    def handle(self, context: RequestContext, message: Message, next_write_offset: int, now_ms: int) -> ControllerResult:
        """Handle a request. Raises KeyError for one that controllers do not answer. `next_write_offset` becomes the epoch of a broker that
        registers."""
        self._next_write_offset = next_write_offset
        return self._handlers[type(message).__name__](context, message, now_ms)

    # Brokers and controllers

    def _register_broker(self, context: RequestContext, request: BrokerRegistrationRequest, now_ms: int) -> ControllerResult:
        features = self._parts.features
        finalized = {**features.finalized, KRAFT_FEATURE: features.kraft_version()}
        tells = context.api_version >= _TELLS_CLEAN_SHUTDOWN_SINCE
        records, epoch = self._parts.cluster.register_broker(
            request, self._next_write_offset, finalized, now_ms, tells_clean_shutdown=tells
        )
        return ControllerResult(records, BrokerRegistrationResponse(broker_epoch=epoch))

    def _register_controller(self, _context: RequestContext, request: ControllerRegistrationRequest, _now_ms: int) -> ControllerResult:
        records = self._parts.cluster.register_controller(request)
        return ControllerResult(records, ControllerRegistrationResponse(), is_atomic=True)

    def _allocate_producer_ids(self, _context: RequestContext, request: AllocateProducerIdsRequest, _now_ms: int) -> ControllerResult:
        return ControllerResult(*self._parts.producer_ids.allocate(request))

    def _alter_partition(self, context: RequestContext, request: AlterPartitionRequest, _now_ms: int) -> ControllerResult:
        if not request.topics:
            return ControllerResult(response=AlterPartitionResponse())
        return self._parts.isr_changes.alter(request, context.api_version)

    def _update_features(self, context: RequestContext, request: UpdateFeaturesRequest, _now_ms: int) -> ControllerResult:
        updates = {one.feature: one.max_version_level for one in request.feature_updates}
        upgrade_types = {one.feature: one.upgrade_type for one in request.feature_updates}
        try:
            records = self._parts.features.update(updates, upgrade_types, validate_only=request.validate_only)
        except ApiError as error:
            reason = f"The update failed for all features since the following feature had an error: {error.message or 'null'}"
            return ControllerResult(response=UpdateFeaturesResponse(error_code=code(error), error_message=reason))
        if not request.validate_only:
            records = [*self._parts.configs.elr_safety_records(updates), *records]
        response = UpdateFeaturesResponse(error_message=None)
        if context.api_version < _NO_RESULTS_SINCE:
            response.results = [UpdatableFeatureResult(name, error_message=None) for name in updates]
        return ControllerResult(records, response, is_atomic=True)

    # Topics

    def _create_topics(self, context: RequestContext, request: CreateTopicsRequest, _now_ms: int) -> ControllerResult:
        counts = Counter(topic.name for topic in request.topics)
        once = [topic for topic in request.topics if counts[topic.name] == 1 and topic.name != _METADATA_TOPIC]
        if once:
            context.check_time()
        records, response = self._parts.topics.create(context, CreateTopicsRequest(once, request.timeout_ms, request.validate_only))
        refused = {name: _DUPLICATE_TOPIC for name, count in counts.items() if count > 1}
        if counts[_METADATA_TOPIC] == 1:
            refused[_METADATA_TOPIC] = f"Creation of internal topic {_METADATA_TOPIC} is prohibited."
        invalid = by_name("INVALID_REQUEST").code
        response.topics += [CreatableTopicResult(name, error_code=invalid, error_message=why) for name, why in refused.items()]
        return ControllerResult(records, response, is_atomic=True)

    def _create_partitions(self, context: RequestContext, request: CreatePartitionsRequest, _now_ms: int) -> ControllerResult:
        counts = Counter(topic.name for topic in request.topics)
        once = [topic for topic in request.topics if counts[topic.name] == 1]
        if once:
            context.check_time()
        records, results = self._parts.topics.add_partitions(once)
        invalid = by_name("INVALID_REQUEST").code
        refused = [CreatePartitionsTopicResult(name, invalid, _DUPLICATE_TOPIC) for name, count in counts.items() if count > 1]
        response = CreatePartitionsResponse(results=[*refused, *results])
        return ControllerResult([] if request.validate_only else records, response, is_atomic=True)

    def _delete_topics(self, context: RequestContext, request: DeleteTopicsRequest, _now_ms: int) -> ControllerResult:
        if not self._settings.delete_topic_enable:
            if context.api_version < 3:
                raise ApiError("INVALID_REQUEST", "This version does not support topic deletion.")
            raise ApiError("TOPIC_DELETION_DISABLED")
        results, topics = self._named_topics(context, request)
        records: list[Record] = []
        for topic in topics:
            records += self._parts.topics.delete(topic)
            results.append(DeletableTopicResult(topic.name, topic.id))
        check_record_count(records)
        return ControllerResult(records, DeleteTopicsResponse(responses=results), is_atomic=True)

    def _named_topics(self, context: RequestContext, request: DeleteTopicsRequest) -> tuple[list[DeletableTopicResult], list[Topic]]:
        """Return the topics of a request, named by name or id, each once, and the errors of the others."""
        results: list[DeletableTopicResult] = []
        names, ids = Counter(request.topic_names), Counter[bytes]()

        def refuse(name: str | None, topic_id: bytes, error: str, why: str) -> None:
            results.append(DeletableTopicResult(name, topic_id, by_name(error).code, why))

        for wanted in request.topics:
            if wanted.name is not None and wanted.topic_id != ZERO_UUID:
                refuse(wanted.name, wanted.topic_id, "INVALID_REQUEST", "You may not specify both topic name and topic id.")
            elif wanted.name is not None:
                names[wanted.name] += 1
            elif wanted.topic_id == ZERO_UUID:
                refuse(None, ZERO_UUID, "INVALID_REQUEST", "Neither topic name nor id were specified.")
            else:
                ids[wanted.topic_id] += 1
        if 1 in names.values() or 1 in ids.values():
            context.check_time()
        topics: dict[bytes, Topic] = {}
        for topic_id, count in ids.items():
            topic = self._parts.state.topics.get(topic_id)
            if count > 1:
                refuse(None, topic_id, "INVALID_REQUEST", "Duplicate topic id.")
            elif topic is None:
                refuse(None, topic_id, "UNKNOWN_TOPIC_ID", "This server does not host this topic ID.")
            else:
                topics[topic_id] = topic
        for name, count in names.items():
            topic = self._parts.state.named(name)
            if count > 1:
                refuse(name, ZERO_UUID, "INVALID_REQUEST", _DUPLICATE_TOPIC)
            elif topic is None:
                refuse(name, ZERO_UUID, "UNKNOWN_TOPIC_OR_PARTITION", "This server does not host this topic-partition.")
            elif topic.id in ids:
                topics.pop(topic.id, None)
                refuse(name, topic.id, "INVALID_REQUEST", "The provided topic name maps to an ID that was already supplied.")
            else:
                topics[topic.id] = topic
        return results, list(topics.values())

    # Partitions

    def _elect_leaders(self, context: RequestContext, request: ElectLeadersRequest, _now_ms: int) -> ControllerResult:
        if request.topic_partitions != []:
            context.check_time()
        return self._parts.elections.elect(request)

    def _alter_reassignments(self, context: RequestContext, request: AlterPartitionReassignmentsRequest, _now_ms: int) -> ControllerResult:
        if not request.topics:
            return ControllerResult(response=AlterPartitionReassignmentsResponse(error_message=""))
        context.check_time()
        return self._parts.reassignments.alter(request)

    # Settings

    def _incremental_alter_configs(
        self, context: RequestContext, request: IncrementalAlterConfigsRequest, _now_ms: int
    ) -> ControllerResult:
        def alter(resource: Resource, index: int) -> list[Record]:
            operations = {one.name: (one.config_operation, one.value) for one in request.resources[index].configs}
            return self._parts.configs.alter(resource, operations, forwarded=context.forwarded)

        named = [(one.resource_type, one.resource_name) for one in request.resources]
        records, errors = _alter_each(named, alter)
        responses = [AlterConfigsResourceResponse(number, why, *resource) for resource, number, why in errors]
        return ControllerResult(
            [] if request.validate_only else records, IncrementalAlterConfigsResponse(responses=responses), is_atomic=True
        )

    def _alter_configs(self, context: RequestContext, request: AlterConfigsRequest, _now_ms: int) -> ControllerResult:
        def replace(resource: Resource, index: int) -> list[Record]:
            settings = {one.name: one.value for one in request.resources[index].configs}
            return self._parts.configs.replace(resource, settings, forwarded=context.forwarded)

        named = [(one.resource_type, one.resource_name) for one in request.resources]
        records, errors = _alter_each(named, replace)
        responses = [LegacyResourceResponse(number, why, *resource) for resource, number, why in errors]
        response = AlterConfigsResponse(responses=responses)
        return ControllerResult([] if request.validate_only else records, response, is_atomic=True)


def _alter_each(
    resources: Iterable[Resource], alter: Callable[[Resource, int], list[Record]]
) -> tuple[list[Record], list[tuple[Resource, int, str | None]]]:
    """Return the records of all resources, and each one's error code and text. `alter` is called with the resource and its entry in the
    request."""
    named = list(resources)
    counts = Counter(named)
    records: list[Record] = []
    errors: dict[Resource, tuple[int, str | None]] = {}
    for index, resource in enumerate(named):
        try:
            _check_resource(resource, counts[resource])
            records += alter(resource, index)
            errors[resource] = (0, None)
        except ApiError as error:
            errors[resource] = (code(error), text(error))
    check_record_count(records)
    settings = [record for record in records if not isinstance(record[0], ClearElrRecord)]
    cleared = [record for record in records if isinstance(record[0], ClearElrRecord)]
    return [*settings, *cleared], [(resource, *error) for resource, error in errors.items()]


def _check_resource(resource: Resource, count: int) -> None:
    if resource[0] not in TYPE_NAMES:
        raise ApiError("UNSUPPORTED_VERSION", f"Unknown resource type {resource[0]}.")
    if count > 1:
        raise ApiError("INVALID_REQUEST", "Duplicate resource.")
    if resource[0] == BROKER_LOGGER:
        raise ApiError("INVALID_REQUEST", f"Unexpected resource type {TYPE_NAMES[BROKER_LOGGER]}.")
