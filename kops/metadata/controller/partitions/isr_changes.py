"""Changes of ISRs that leaders request (Kafka's ReplicationControlManager.alterPartition; KIP-497, KIP-841, KIP-903)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from kops.metadata.controller.base.result import ControllerResult
from kops.metadata.controller.partitions.partition_change import PartitionTarget
from kops.metadata.partition_registration import NO_LEADER_CHANGE, LeaderRecoveryState, PartitionRegistration
from kops.protocol.errors import by_name
from kops.protocol.messages import AlterPartitionResponse
from kops.protocol.messages.alter_partition_request import BrokerState
from kops.protocol.messages.alter_partition_response import PartitionData, TopicData

if TYPE_CHECKING:
    from kops.metadata.controller.base.result import Record
    from kops.metadata.controller.partitions.partition_changes import PartitionChanges
    from kops.metadata.controller.partitions.replication_state import Topic
    from kops.protocol.messages import AlterPartitionRequest
    from kops.protocol.messages.alter_partition_request import PartitionData as RequestedPartition

_FIRST_VERSION_WITH_EPOCHS: Final = 3
_ANY_EPOCH: Final = -1


class IsrChanges:
    """The AlterPartition API."""

    def __init__(self, changes: PartitionChanges) -> None:
        self._changes = changes

    def alter(self, request: AlterPartitionRequest, version: int) -> ControllerResult:
        """Handle a leader's request. Raises ApiError STALE_BROKER_EPOCH. Each partition has its own error code."""
        self._changes.cluster.check_broker_epoch(request.broker_id, request.broker_epoch)
        records: list[Record] = []
        response = AlterPartitionResponse()
        for requested in request.topics:
            topic = self._changes.state.topics.get(requested.topic_id)
            result = TopicData(requested.topic_id)
            response.topics.append(result)
            for partition in requested.partitions:
                if topic is None:
                    result.partitions.append(PartitionData(partition.partition_index, by_name("UNKNOWN_TOPIC_ID").code))
                else:
                    isr = _isr(partition, version)
                    result.partitions.append(self._alter_one(request.broker_id, topic, partition, isr, records))
        return ControllerResult(records, response)

    def _alter_one(
        self, broker_id: int, topic: Topic, requested: RequestedPartition, isr: list[BrokerState], records: list[Record]
    ) -> PartitionData:
        number = requested.partition_index
        partition = topic.partitions.get(number)
        error = "UNKNOWN_TOPIC_OR_PARTITION" if partition is None else self._refusal(broker_id, partition, requested, isr)
        if partition is None or error is not None:
            return PartitionData(number, by_name(error or "").code)
        target = PartitionTarget(
            isr=[replica.broker_id for replica in isr],
            recovery_state=LeaderRecoveryState(requested.leader_recovery_state),
            election=self._changes.election(topic),
        )
        record = self._changes.change(topic, number, target)
        if record is not None:
            records.append(record)
            partition = partition.merge(record[0])
            if record[0].leader not in (broker_id, NO_LEADER_CHANGE):
                # The end of a reassignment took the leadership away from the requester.
                return PartitionData(number, by_name("NEW_LEADER_ELECTED").code)
        return PartitionData(
            partition_index=number,
            leader_id=partition.leader,
            leader_epoch=partition.leader_epoch,
            isr=list(partition.isr),
            leader_recovery_state=partition.leader_recovery_state,
            partition_epoch=partition.partition_epoch,
        )

    def _refusal(
        self, broker_id: int, partition: PartitionRegistration, requested: RequestedPartition, isr: list[BrokerState]
    ) -> str | None:
        """Return the name of the error, or None if the change is allowed."""
        if requested.leader_epoch > partition.leader_epoch or requested.partition_epoch > partition.partition_epoch:
            return "NOT_CONTROLLER"  # another controller assigned that epoch
        if requested.leader_epoch < partition.leader_epoch:
            return "FENCED_LEADER_EPOCH"
        if broker_id != partition.leader:
            return "INVALID_REQUEST"
        if requested.partition_epoch < partition.partition_epoch:
            return "INVALID_UPDATE_VERSION"
        if not _is_valid(partition, requested, [replica.broker_id for replica in isr]):
            return "INVALID_REQUEST"
        return None if all(map(self._is_eligible, isr)) else "INELIGIBLE_REPLICA"

    def _is_eligible(self, replica: BrokerState) -> bool:
        broker = self._changes.cluster.registration(replica.broker_id)
        return broker is not None and broker.is_active and replica.broker_epoch in (_ANY_EPOCH, broker.epoch)


def _isr(requested: RequestedPartition, version: int) -> list[BrokerState]:
    if version >= _FIRST_VERSION_WITH_EPOCHS:
        return requested.new_isr_with_epochs
    return [BrokerState(replica, _ANY_EPOCH) for replica in requested.new_isr]


def _is_valid(partition: PartitionRegistration, requested: RequestedPartition, isr: list[int]) -> bool:
    """Whether the ISR consists of distinct replicas including the leader, and the leader's recovery state does not go back."""
    distinct = set(isr)
    if len(distinct) != len(isr) or not distinct.issubset(partition.replicas) or partition.leader not in distinct:
        return False
    if requested.leader_recovery_state not in tuple(LeaderRecoveryState):
        return False
    is_recovering = requested.leader_recovery_state == LeaderRecoveryState.RECOVERING
    return not is_recovering or (len(isr) == 1 and partition.leader_recovery_state == LeaderRecoveryState.RECOVERING)
