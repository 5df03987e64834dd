"""Changes partitions when a broker is fenced, unfenced, shut down or unregistered, or loses a directory.

Source: Kafka's ReplicationControlManager (processBrokerHeartbeat, handleBroker…, handleDirectories…, handleAssignReplicasToDirs).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kops.errors import ApiError
from kops.metadata.controller.base.result import ControllerResult
from kops.metadata.controller.cluster.cluster_control import FENCE, UNFENCE
from kops.metadata.controller.cluster.heartbeats import BrokerState
from kops.metadata.controller.partitions.partition_change import PartitionTarget
from kops.metadata.controller.partitions.partition_index import TopicIdPartition
from kops.protocol.errors import by_name
from kops.protocol.messages import (
    AssignReplicasToDirsResponse,
    BrokerHeartbeatResponse,
    BrokerRegistrationChangeRecord,
    UnregisterBrokerRecord,
    UnregisterBrokerResponse,
)
from kops.protocol.messages.assign_replicas_to_dirs_response import DirectoryData, PartitionData, TopicData

if TYPE_CHECKING:
    from kops.metadata.broker_registration import BrokerRegistration
    from kops.metadata.controller.base.result import Record
    from kops.metadata.controller.partitions.partition_changes import PartitionChanges
    from kops.protocol.messages import AssignReplicasToDirsRequest, BrokerHeartbeatRequest, UnregisterBrokerRequest
    from kops.protocol.messages.assign_replicas_to_dirs_request import DirectoryData as RequestedDirectory

_IN_CONTROLLED_SHUTDOWN = 1


class BrokerEvents:
    """Creates the records for events of brokers."""

    def __init__(self, changes: PartitionChanges) -> None:
        self._changes = changes
        self._cluster = changes.cluster
        self._index = changes.state.index

    def heartbeat(self, request: BrokerHeartbeatRequest) -> ControllerResult:
        """Handle a broker's heartbeat. Raises ApiError STALE_BROKER_EPOCH."""
        register_offset = self._cluster.register_offset(request.broker_id)
        if register_offset is None:
            raise ApiError("STALE_BROKER_EPOCH", f"Receive a heartbeat from broker {request.broker_id} before registration")
        broker = self._cluster.check_broker_epoch(request.broker_id, request.broker_epoch)
        heartbeats = self._cluster.heartbeats
        state, next_state = heartbeats.next_state(request, register_offset, lambda: self._index.has_leaderships(broker.id))
        records = [] if state is next_state else self._enter(broker, next_state)
        heartbeats.touch(broker.id, fenced=next_state.is_fenced, metadata_offset=request.current_metadata_offset)
        version = self._changes.features.metadata_version
        if version.has_directory_assignment:
            records += self._lose_directories(broker, request.offline_log_dirs)
        if version.has_cordoned_log_dirs:
            records += _cordon(broker, request.cordoned_log_dirs)
        response = BrokerHeartbeatResponse(
            is_caught_up=request.current_metadata_offset >= register_offset,
            is_fenced=next_state.is_fenced,
            should_shut_down=next_state is BrokerState.SHUTDOWN_NOW,
        )
        is_shutting_down = next_state is BrokerState.CONTROLLED_SHUTDOWN
        return ControllerResult(records, response, shutting_down=broker.id if is_shutting_down else None)

    def _enter(self, broker: BrokerRegistration, state: BrokerState) -> list[Record]:
        if state is BrokerState.UNFENCED:
            return self._unfence(broker)
        if state is BrokerState.CONTROLLED_SHUTDOWN:
            return self._begin_controlled_shutdown(broker)
        return self.fence(broker)

    def fence(self, broker: BrokerRegistration) -> list[Record]:
        """Move leaderships away from the broker and remove it from ISRs."""
        records = self._changes.update_leaders(self._index.in_isr(broker.id), removed=broker.id)
        return [*records, (BrokerRegistrationChangeRecord(broker.id, broker.epoch, fenced=FENCE), 0)]

    def _unfence(self, broker: BrokerRegistration) -> list[Record]:
        record = BrokerRegistrationChangeRecord(broker.id, broker.epoch, fenced=UNFENCE)
        return [(record, 0), *self._changes.update_leaders(self._index.without_leader(), added=broker.id)]

    def _begin_controlled_shutdown(self, broker: BrokerRegistration) -> list[Record]:
        records: list[Record] = []
        if not broker.in_controlled_shutdown:
            change = BrokerRegistrationChangeRecord(broker.id, broker.epoch, in_controlled_shutdown=_IN_CONTROLLED_SHUTDOWN)
            records.append((change, 1))
        return records + self._changes.update_leaders(self._index.in_isr(broker.id), removed=broker.id)

    def begin_incarnation(self, broker_id: int, is_clean: bool) -> list[Record]:
        """Handle a broker that starts again. After an unclean shutdown it may have lost records that it had acknowledged."""
        in_isr = self._index.in_isr(broker_id)
        if self._changes.features.is_elr_enabled and not is_clean:
            records = self._changes.update_leaders(in_isr, uncleanly_shut_down=broker_id)
            return records + self._changes.update_leaders(self._index.in_elr(broker_id), uncleanly_shut_down=broker_id)
        return self._changes.update_leaders(in_isr, removed=broker_id)

    def unregister(self, request: UnregisterBrokerRequest) -> ControllerResult:
        """Unregister a broker. Raises ApiError BROKER_ID_NOT_REGISTERED."""
        broker = self._cluster.registration(request.broker_id)
        if broker is None:
            raise ApiError("BROKER_ID_NOT_REGISTERED", f"Broker ID {request.broker_id} is not currently registered")
        records = self._changes.update_leaders(self._index.in_isr(broker.id), removed=broker.id)
        records += self._changes.update_leaders(self._index.in_elr(broker.id), removed=broker.id)
        records.append((UnregisterBrokerRecord(broker.id, broker.epoch), 0))
        return ControllerResult(records, UnregisterBrokerResponse())

    def fence_one_stale(self, now_ms: int) -> tuple[list[Record], bool]:
        """Return the records that fence a broker whose session has ended, and whether there may be another one."""
        heartbeats = self._cluster.heartbeats
        expired = heartbeats.take_expired(now_ms)
        if expired is None:
            return [], False
        broker_id, epoch = expired
        broker = self._cluster.registration(broker_id)
        if broker is None:
            heartbeats.remove(broker_id)
            return [], True
        if broker.epoch != epoch:
            return [], True
        records = self.fence(broker)
        heartbeats.fence(broker_id)
        return records, True

    # Directories

    def _lose_directories(self, broker: BrokerRegistration, offline: list[bytes]) -> list[Record]:
        lost = [directory for directory in broker.directories if directory in offline]
        if not lost:
            return []
        records: list[Record] = []
        for directory in lost:
            records += self._changes.update_leaders(self._index.in_directory(directory), removed=broker.id)
        online = [directory for directory in broker.directories if directory not in offline]
        return [*records, (BrokerRegistrationChangeRecord(broker.id, broker.epoch, log_dirs=online), 2)]

    def assign_directories(self, request: AssignReplicasToDirsRequest) -> ControllerResult:
        """Handle a broker's report of its replicas' directories. Raises ApiError: UNSUPPORTED_VERSION, STALE_BROKER_EPOCH."""
        if not self._changes.features.metadata_version.has_directory_assignment:
            raise ApiError("UNSUPPORTED_VERSION", "Directory assignment is not supported yet.")
        broker = self._cluster.check_broker_epoch(request.broker_id, request.broker_epoch)
        records: list[Record] = []
        offline: dict[TopicIdPartition, None] = {}
        response = AssignReplicasToDirsResponse()
        for directory in request.directories:
            assigned = self._assign_directory(broker, directory, records, offline)
            response.directories.append(assigned)
        records += self._changes.update_leaders(offline, removed=broker.id)
        return ControllerResult(records, response)

    def _assign_directory(
        self, broker: BrokerRegistration, directory: RequestedDirectory, records: list[Record], offline: dict[TopicIdPartition, None]
    ) -> DirectoryData:
        result = DirectoryData(directory.id)
        is_offline = not broker.has_online_dir(directory.id)
        for requested in directory.topics:
            topic = TopicData(requested.topic_id)
            result.topics.append(topic)
            for partition in requested.partitions:
                key = TopicIdPartition(requested.topic_id, partition.partition_index)
                error = self._assign(broker.id, key, directory.id, records)
                topic.partitions.append(PartitionData(key.partition, by_name(error).code))
                if error == "NONE" and is_offline:
                    offline[key] = None
        return result

    def _assign(self, broker_id: int, key: TopicIdPartition, directory: bytes, records: list[Record]) -> str:
        topic = self._changes.state.topics.get(key.topic_id)
        if topic is None:
            return "UNKNOWN_TOPIC_ID"
        partition = topic.partitions.get(key.partition)
        if partition is None:
            return "UNKNOWN_TOPIC_OR_PARTITION"
        if broker_id not in partition.replicas:
            return "NOT_LEADER_OR_FOLLOWER"
        record = self._changes.change(topic, key.partition, PartitionTarget(directories={broker_id: directory}))
        if record is not None:
            records.append(record)
        return "NONE"


def _cordon(broker: BrokerRegistration, cordoned: list[bytes] | None) -> list[Record]:
    if cordoned is None or (broker.cordoned_directories is not None and set(broker.cordoned_directories) == set(cordoned)):
        return []
    return [(BrokerRegistrationChangeRecord(broker.id, broker.epoch, cordoned_log_dirs=list(cordoned)), 3)]
