"""Begins, cancels and lists reassignments of replicas (KIP-455; Kafka's ReplicationControlManager.alterPartitionReassignments)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kops.errors import ApiError
from kops.metadata.controller.base.result import ControllerResult, check_record_count, code, text
from kops.metadata.controller.partitions.partition_change import PartitionTarget
from kops.metadata.controller.partitions.reassignment_replicas import begin_reassignment, revert_reassignment
from kops.metadata.controller.partitions.topic_control import check_assignment
from kops.protocol.messages import AlterPartitionReassignmentsResponse, ListPartitionReassignmentsResponse
from kops.protocol.messages.alter_partition_reassignments_response import ReassignablePartitionResponse, ReassignableTopicResponse
from kops.protocol.messages.list_partition_reassignments_response import OngoingPartitionReassignment, OngoingTopicReassignment

if TYPE_CHECKING:
    from collections.abc import Iterable

    from kops.metadata.controller.base.result import Record
    from kops.metadata.controller.partitions.partition_changes import PartitionChanges
    from kops.metadata.controller.partitions.replication_state import Topic
    from kops.metadata.partition_registration import PartitionRegistration
    from kops.protocol.messages import AlterPartitionReassignmentsRequest, ListPartitionReassignmentsRequest
    from kops.protocol.messages.alter_partition_reassignments_request import ReassignablePartition


class Reassignments:
    """The AlterPartitionReassignments and ListPartitionReassignments APIs."""

    def __init__(self, changes: PartitionChanges) -> None:
        self._changes = changes
        self._state = changes.state

    def alter(self, request: AlterPartitionReassignmentsRequest) -> ControllerResult:
        """Begin or cancel reassignments. Each partition has its own error."""
        may_change_factor = request.allow_replication_factor_change
        records: list[Record] = []
        response = AlterPartitionReassignmentsResponse(error_message=None, allow_replication_factor_change=may_change_factor)
        for topic in request.topics:
            result = ReassignableTopicResponse(topic.name)
            response.responses.append(result)
            for partition in topic.partitions:
                answer = ReassignablePartitionResponse(partition.partition_index, error_message=None)
                result.partitions.append(answer)
                try:
                    record = self._alter_one(topic.name, partition, may_change_factor=may_change_factor)
                except ApiError as error:
                    answer.error_code, answer.error_message = code(error), text(error)
                else:
                    records += [] if record is None else [record]
        check_record_count(records)
        return ControllerResult(records, response, is_atomic=True)

    def _alter_one(self, name: str, target: ReassignablePartition, *, may_change_factor: bool) -> Record | None:
        topic = self._state.named(name)
        if topic is None:
            raise ApiError("UNKNOWN_TOPIC_OR_PARTITION", f"Unable to find a topic named {name}.")
        partition = topic.partitions.get(target.partition_index)
        if partition is None:
            raise ApiError("UNKNOWN_TOPIC_OR_PARTITION", f"Unable to find partition {name}:{target.partition_index}.")
        if target.replicas is None:
            return self._cancel(topic, target.partition_index, partition)
        check_assignment(self._changes.cluster.brokers, target.replicas, None)
        if not may_change_factor:
            _check_replication_factor(partition, target.replicas)
        return self._begin(topic, target.partition_index, partition, target.replicas)

    def _begin(self, topic: Topic, number: int, partition: PartitionRegistration, replicas: list[int]) -> Record | None:
        plan = begin_reassignment(partition.replicas, replicas)
        target = PartitionTarget(replicas=plan.replicas, removing=plan.removing or None, adding=plan.adding or None)
        return self._changes.change(topic, number, target)

    def _cancel(self, topic: Topic, number: int, partition: PartitionRegistration) -> Record | None:
        if not partition.is_reassigning:
            raise ApiError("NO_REASSIGNMENT_IN_PROGRESS")
        plan = revert_reassignment(partition)
        if plan.is_unclean and not self._changes.configs.is_unclean_election_enabled(topic.name):
            reason = "it would require an unclean leader election."
            text = f"Unable to revert partition assignment for {topic.name}:{number} because {reason}"
            raise ApiError("INVALID_REPLICA_ASSIGNMENT", text)
        election = self._changes.election(topic)
        target = PartitionTarget(isr=plan.isr, replicas=plan.replicas, removing=[], adding=[], election=election)
        return self._changes.change(topic, number, target)

    def ongoing(self, request: ListPartitionReassignmentsRequest) -> ListPartitionReassignmentsResponse:
        """Return the reassignments in progress, of the given topics or of all."""
        response = ListPartitionReassignmentsResponse(error_message=None)
        if request.topics is None:
            wanted: Iterable[tuple[Topic, list[int]]] = self._state.reassigning()
        else:
            named = ((self._state.named(one.name), one.partition_indexes) for one in request.topics)
            wanted = ((topic, partitions) for topic, partitions in named if topic is not None)
        for topic, numbers in wanted:
            found = [_ongoing(number, topic.partitions[number]) for number in numbers if _is_reassigning(topic, number)]
            if found:
                response.topics.append(OngoingTopicReassignment(topic.name, found))
        return response


def _is_reassigning(topic: Topic, number: int) -> bool:
    partition = topic.partitions.get(number)
    return partition is not None and partition.is_reassigning


def _ongoing(number: int, partition: PartitionRegistration) -> OngoingPartitionReassignment:
    return OngoingPartitionReassignment(
        partition_index=number,
        replicas=list(partition.replicas),
        adding_replicas=list(partition.adding_replicas),
        removing_replicas=list(partition.removing_replicas),
    )


def _check_replication_factor(partition: PartitionRegistration, replicas: list[int]) -> None:
    """Check the replication factor: a request may demand that it does not change (KIP-860)."""
    now = {*partition.replicas, *partition.adding_replicas} - {*partition.removing_replicas}
    if len(now) != len(replicas):
        raise ApiError("INVALID_REPLICATION_FACTOR", f"The replication factor is changed from {len(now)} to {len(replicas)}")
