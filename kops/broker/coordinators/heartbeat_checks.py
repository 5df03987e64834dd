"""Checks of heartbeats of consumer, share and streams groups that do not need the state of the group (Kafka's GroupCoordinatorService)."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Final

from kops.errors import ApiError

if TYPE_CHECKING:
    from kops.protocol.messages.consumer_group_heartbeat_request import ConsumerGroupHeartbeatRequest
    from kops.protocol.messages.share_group_heartbeat_request import ShareGroupHeartbeatRequest
    from kops.protocol.messages.streams_group_heartbeat_request import StreamsGroupHeartbeatRequest, Topology

_CLIENT_MAKES_ID_SINCE: Final = 1
_JOINS: Final = 0
_LEAVES: Final = -1
_LEAVES_FOR_A_WHILE: Final = -2
_JAVA_BLANKS: Final = "".join(map(chr, range(0x21)))
"""The characters that Java's String.trim removes."""


def _check_not_empty(value: str | None, reason: str) -> None:
    """Raise ApiError INVALID_REQUEST if the value is blank. It may be None."""
    if value is not None and not value.strip(_JAVA_BLANKS):
        raise ApiError("INVALID_REQUEST", reason)


def check_consumer_heartbeat(request: ConsumerGroupHeartbeatRequest, api_version: int, assignors: Iterable[str]) -> None:
    """Raises ApiError INVALID_REQUEST or UNSUPPORTED_ASSIGNOR."""
    if api_version >= _CLIENT_MAKES_ID_SINCE or request.member_epoch > 0 or request.member_epoch == _LEAVES:
        _check_not_empty(request.member_id, "MemberId can't be empty.")
    _check_not_empty(request.group_id, "GroupId can't be empty.")
    if request.instance_id is not None:
        _check_not_empty(request.instance_id, "InstanceId can't be empty.")
    if request.rack_id is not None:
        _check_not_empty(request.rack_id, "RackId can't be empty.")
    if request.member_epoch == _JOINS:
        if request.rebalance_timeout_ms == -1:
            raise ApiError("INVALID_REQUEST", "RebalanceTimeoutMs must be provided in first request.")
        if request.topic_partitions is None or request.topic_partitions:
            raise ApiError("INVALID_REQUEST", "TopicPartitions must be empty when (re-)joining.")
        # An empty list of topics is allowed: such a member is in the group and subscribes to nothing.
        if request.subscribed_topic_names is None and request.subscribed_topic_regex is None:
            raise ApiError("INVALID_REQUEST", "Either SubscribedTopicNames or SubscribedTopicRegex must be non-null when (re-)joining.")
    elif request.member_epoch == _LEAVES_FOR_A_WHILE:
        if request.instance_id is None:
            raise ApiError("INVALID_REQUEST", "InstanceId can't be null.")
    elif request.member_epoch < _LEAVES_FOR_A_WHILE:
        raise ApiError("INVALID_REQUEST", "MemberEpoch is invalid.")
    if request.server_assignor is not None and request.server_assignor not in (known := list(assignors)):
        reason = f"ServerAssignor {request.server_assignor} is not supported. Supported assignors: {', '.join(known)}."
        raise ApiError("UNSUPPORTED_ASSIGNOR", reason)


def check_share_heartbeat(request: ShareGroupHeartbeatRequest) -> None:
    """Raises ApiError INVALID_REQUEST."""
    _check_not_empty(request.member_id, "MemberId can't be empty.")
    _check_not_empty(request.group_id, "GroupId can't be empty.")
    _check_not_empty(request.rack_id, "RackId can't be empty.")
    if request.member_epoch == _JOINS:
        if not request.subscribed_topic_names:
            raise ApiError("INVALID_REQUEST", "SubscribedTopicNames must be set in first request.")
    elif request.member_epoch < _LEAVES:
        raise ApiError("INVALID_REQUEST", "MemberEpoch is invalid.")


def check_streams_heartbeat(request: StreamsGroupHeartbeatRequest) -> None:
    """Raises ApiError INVALID_REQUEST or STREAMS_INVALID_TOPOLOGY."""
    _check_streams_features(request)
    _check_not_empty(request.member_id, "MemberId can't be empty.")
    _check_not_empty(request.group_id, "GroupId can't be empty.")
    _check_not_empty(request.instance_id, "InstanceId can't be empty.")
    _check_not_empty(request.rack_id, "RackId can't be empty.")
    tasks = {"ActiveTasks": request.active_tasks, "StandbyTasks": request.standby_tasks, "WarmupTasks": request.warmup_tasks}
    if request.member_epoch == _JOINS:
        if request.rebalance_timeout_ms == -1:
            raise ApiError("INVALID_REQUEST", "RebalanceTimeoutMs must be provided in first request.")
        for name, listed in tasks.items():
            if listed is None or listed:
                raise ApiError("INVALID_REQUEST", f"{name} must be empty when (re-)joining.")
        if request.topology is None:
            raise ApiError("INVALID_REQUEST", "Topology must be non-null when (re-)joining.")
        _check_changelogs(request.topology)
    elif request.member_epoch == _LEAVES_FOR_A_WHILE:
        if request.instance_id is None:
            raise ApiError("INVALID_REQUEST", "InstanceId can't be null.")
    elif request.member_epoch < _LEAVES_FOR_A_WHILE:
        raise ApiError("INVALID_REQUEST", f"MemberEpoch is {request.member_epoch}, but must be greater than or equal to -2.")
    missing = [listed is None for listed in tasks.values()]
    if any(missing) and not all(missing):
        raise ApiError("INVALID_REQUEST", "If one task-type is non-null, all must be non-null.")
    if request.member_epoch != _JOINS and request.topology is not None:
        raise ApiError("INVALID_REQUEST", "Topology can only be provided when (re-)joining.")


def _check_streams_features(request: StreamsGroupHeartbeatRequest) -> None:
    """Reject what Kafka 4.3 does not support yet."""
    reason = None
    if request.instance_id is not None:
        reason = "Static membership is not yet supported."
    elif request.task_offsets is not None:
        reason = "TaskOffsets are not supported yet."
    elif request.task_end_offsets is not None:
        reason = "TaskEndOffsets are not supported yet."
    elif request.warmup_tasks:
        reason = "WarmupTasks are not supported yet."
    elif request.topology is not None and any(subtopology.source_topic_regex for subtopology in request.topology.subtopologies):
        reason = "Regular expressions for source topics are not supported yet."
    if reason is not None:
        raise ApiError("INVALID_REQUEST", reason)


def _check_changelogs(topology: Topology) -> None:
    for subtopology in topology.subtopologies:
        for topic in subtopology.state_changelog_topics:
            if topic.partitions != 0:
                text = f"must have an undefined partition count, but it is set to {topic.partitions}."
                raise ApiError("STREAMS_INVALID_TOPOLOGY", f"Changelog topic {topic.name} {text}")
