"""Kafka's APIs: their keys, names, versions and header versions, and the listeners that serve them.

Source: Kafka's ApiKeys and ApiMessageType, KIP-482 (headers), KIP-511 (ApiVersions), KAFKA-18659 (the advertised versions of Produce).
"""

from __future__ import annotations

from enum import Enum, auto
from typing import Final, NamedTuple

from kops.errors import ApiError


class Listener(Enum):
    """The kind of node whose listener serves an API."""

    BROKER = auto()
    CONTROLLER = auto()


_NOWHERE: Final[frozenset[Listener]] = frozenset()
_BROKER: Final = frozenset({Listener.BROKER})
_CONTROLLER: Final = frozenset({Listener.CONTROLLER})
_BOTH: Final = _BROKER | _CONTROLLER

API_VERSIONS: Final = 18
PRODUCE: Final = 0
HEARTBEAT: Final = 12
CONSUMER_GROUP_HEARTBEAT: Final = 68


class ApiKey(NamedTuple):
    """An API. `versions` is empty if 4.x has removed the API and only its number is reserved.

    `flexible_from` is the first flexible version of both messages. `cluster_action` means that only brokers may send the request,
    `forwardable` that a broker forwards it to the controller. `unstable_version` is the last version if it is not stable yet.
    """

    key: int
    constant: str
    name: str
    versions: range
    flexible_from: int | None
    listeners: frozenset[Listener]
    cluster_action: bool = False
    forwardable: bool = False
    unstable_version: int | None = None

    def is_flexible(self, version: int) -> bool:
        """Whether both messages of this version have tagged fields."""
        return self.flexible_from is not None and version >= self.flexible_from

    def request_header_version(self, version: int) -> int:
        """Return the header version of requests: 2 with tagged fields, else 1."""
        return 2 if self.is_flexible(version) else 1

    def response_header_version(self, version: int) -> int:
        """Return the header version of responses: 1 with tagged fields, else 0. It is always 0 for ApiVersions, because the client may not
        know the version of the answer."""
        return 1 if self.is_flexible(version) and self.key != API_VERSIONS else 0

    def served_versions(self, *, unstable: bool = False) -> range:
        """Return the versions that a server accepts, with or without the unstable one (`unstable.api.versions.enable`)."""
        if unstable or self.unstable_version is None:
            return self.versions
        return range(self.versions.start, self.unstable_version)

    def advertised_versions(self, listener: Listener, *, unstable: bool = False) -> range:
        """Return the versions for an ApiVersions response. A broker reports 0 as the oldest version of Produce, which librdkafka
        requires."""
        served = self.served_versions(unstable=unstable)
        return range(served.stop) if self.key == PRODUCE and listener is Listener.BROKER else served


API_KEYS: Final = (
    ApiKey(0, "PRODUCE", "Produce", range(3, 14), 9, _BROKER),
    ApiKey(1, "FETCH", "Fetch", range(4, 19), 12, _BOTH),
    ApiKey(2, "LIST_OFFSETS", "ListOffsets", range(1, 12), 6, _BROKER),
    ApiKey(3, "METADATA", "Metadata", range(14), 9, _BROKER),
    ApiKey(4, "LEADER_AND_ISR", "LeaderAndIsr", range(0), None, _NOWHERE, cluster_action=True),
    ApiKey(5, "STOP_REPLICA", "StopReplica", range(0), None, _NOWHERE, cluster_action=True),
    ApiKey(6, "UPDATE_METADATA", "UpdateMetadata", range(0), None, _NOWHERE, cluster_action=True),
    ApiKey(7, "CONTROLLED_SHUTDOWN", "ControlledShutdown", range(0), None, _NOWHERE, cluster_action=True),
    ApiKey(8, "OFFSET_COMMIT", "OffsetCommit", range(2, 11), 8, _BROKER),
    ApiKey(9, "OFFSET_FETCH", "OffsetFetch", range(1, 11), 6, _BROKER),
    ApiKey(10, "FIND_COORDINATOR", "FindCoordinator", range(7), 3, _BROKER),
    ApiKey(11, "JOIN_GROUP", "JoinGroup", range(10), 6, _BROKER),
    ApiKey(12, "HEARTBEAT", "Heartbeat", range(5), 4, _BROKER),
    ApiKey(13, "LEAVE_GROUP", "LeaveGroup", range(6), 4, _BROKER),
    ApiKey(14, "SYNC_GROUP", "SyncGroup", range(6), 4, _BROKER),
    ApiKey(15, "DESCRIBE_GROUPS", "DescribeGroups", range(7), 5, _BROKER),
    ApiKey(16, "LIST_GROUPS", "ListGroups", range(6), 3, _BROKER),
    ApiKey(17, "SASL_HANDSHAKE", "SaslHandshake", range(2), None, _BOTH),
    ApiKey(18, "API_VERSIONS", "ApiVersions", range(5), 3, _BOTH),
    ApiKey(19, "CREATE_TOPICS", "CreateTopics", range(2, 8), 5, _BOTH, forwardable=True),
    ApiKey(20, "DELETE_TOPICS", "DeleteTopics", range(1, 7), 4, _BOTH, forwardable=True),
    ApiKey(21, "DELETE_RECORDS", "DeleteRecords", range(3), 2, _BROKER),
    ApiKey(22, "INIT_PRODUCER_ID", "InitProducerId", range(7), 2, _BROKER, unstable_version=6),
    ApiKey(23, "OFFSET_FOR_LEADER_EPOCH", "OffsetForLeaderEpoch", range(2, 5), 4, _BROKER),
    ApiKey(24, "ADD_PARTITIONS_TO_TXN", "AddPartitionsToTxn", range(6), 3, _BROKER),
    ApiKey(25, "ADD_OFFSETS_TO_TXN", "AddOffsetsToTxn", range(5), 3, _BROKER),
    ApiKey(26, "END_TXN", "EndTxn", range(6), 3, _BROKER),
    ApiKey(27, "WRITE_TXN_MARKERS", "WriteTxnMarkers", range(1, 3), 1, _BROKER, cluster_action=True),
    ApiKey(28, "TXN_OFFSET_COMMIT", "TxnOffsetCommit", range(6), 3, _BROKER),
    ApiKey(29, "DESCRIBE_ACLS", "DescribeAcls", range(1, 4), 2, _BOTH),
    ApiKey(30, "CREATE_ACLS", "CreateAcls", range(1, 4), 2, _BOTH, forwardable=True),
    ApiKey(31, "DELETE_ACLS", "DeleteAcls", range(1, 4), 2, _BOTH, forwardable=True),
    ApiKey(32, "DESCRIBE_CONFIGS", "DescribeConfigs", range(1, 5), 4, _BOTH),
    ApiKey(33, "ALTER_CONFIGS", "AlterConfigs", range(3), 2, _BOTH, forwardable=True),
    ApiKey(34, "ALTER_REPLICA_LOG_DIRS", "AlterReplicaLogDirs", range(1, 3), 2, _BROKER),
    ApiKey(35, "DESCRIBE_LOG_DIRS", "DescribeLogDirs", range(1, 6), 2, _BROKER),
    ApiKey(36, "SASL_AUTHENTICATE", "SaslAuthenticate", range(3), 2, _BOTH),
    ApiKey(37, "CREATE_PARTITIONS", "CreatePartitions", range(4), 2, _BOTH, forwardable=True),
    ApiKey(38, "CREATE_DELEGATION_TOKEN", "CreateDelegationToken", range(1, 4), 2, _BOTH, forwardable=True),
    ApiKey(39, "RENEW_DELEGATION_TOKEN", "RenewDelegationToken", range(1, 3), 2, _BOTH, forwardable=True),
    ApiKey(40, "EXPIRE_DELEGATION_TOKEN", "ExpireDelegationToken", range(1, 3), 2, _BOTH, forwardable=True),
    ApiKey(41, "DESCRIBE_DELEGATION_TOKEN", "DescribeDelegationToken", range(1, 4), 2, _BOTH),
    ApiKey(42, "DELETE_GROUPS", "DeleteGroups", range(3), 2, _BROKER),
    ApiKey(43, "ELECT_LEADERS", "ElectLeaders", range(3), 2, _BOTH, forwardable=True),
    ApiKey(44, "INCREMENTAL_ALTER_CONFIGS", "IncrementalAlterConfigs", range(2), 1, _BOTH, forwardable=True),
    ApiKey(45, "ALTER_PARTITION_REASSIGNMENTS", "AlterPartitionReassignments", range(2), 0, _BOTH, forwardable=True),
    ApiKey(46, "LIST_PARTITION_REASSIGNMENTS", "ListPartitionReassignments", range(1), 0, _BOTH, forwardable=True),
    ApiKey(47, "OFFSET_DELETE", "OffsetDelete", range(1), None, _BROKER),
    ApiKey(48, "DESCRIBE_CLIENT_QUOTAS", "DescribeClientQuotas", range(2), 1, _BROKER),
    ApiKey(49, "ALTER_CLIENT_QUOTAS", "AlterClientQuotas", range(2), 1, _BOTH, forwardable=True),
    ApiKey(50, "DESCRIBE_USER_SCRAM_CREDENTIALS", "DescribeUserScramCredentials", range(1), 0, _BOTH),
    ApiKey(51, "ALTER_USER_SCRAM_CREDENTIALS", "AlterUserScramCredentials", range(1), 0, _BOTH, forwardable=True),
    ApiKey(52, "VOTE", "Vote", range(3), 0, _CONTROLLER, cluster_action=True),
    ApiKey(53, "BEGIN_QUORUM_EPOCH", "BeginQuorumEpoch", range(2), 1, _CONTROLLER, cluster_action=True),
    ApiKey(54, "END_QUORUM_EPOCH", "EndQuorumEpoch", range(2), 1, _CONTROLLER, cluster_action=True),
    ApiKey(55, "DESCRIBE_QUORUM", "DescribeQuorum", range(3), 0, _BOTH, cluster_action=True, forwardable=True),
    ApiKey(56, "ALTER_PARTITION", "AlterPartition", range(2, 4), 0, _CONTROLLER, cluster_action=True),
    ApiKey(57, "UPDATE_FEATURES", "UpdateFeatures", range(3), 0, _BOTH, cluster_action=True, forwardable=True),
    ApiKey(58, "ENVELOPE", "Envelope", range(1), 0, _CONTROLLER, cluster_action=True),
    ApiKey(59, "FETCH_SNAPSHOT", "FetchSnapshot", range(2), 0, _CONTROLLER),
    ApiKey(60, "DESCRIBE_CLUSTER", "DescribeCluster", range(3), 0, _BOTH),
    ApiKey(61, "DESCRIBE_PRODUCERS", "DescribeProducers", range(1), 0, _BROKER),
    ApiKey(62, "BROKER_REGISTRATION", "BrokerRegistration", range(5), 0, _CONTROLLER, cluster_action=True),
    ApiKey(63, "BROKER_HEARTBEAT", "BrokerHeartbeat", range(3), 0, _CONTROLLER, cluster_action=True),
    ApiKey(64, "UNREGISTER_BROKER", "UnregisterBroker", range(1), 0, _BOTH, forwardable=True),
    ApiKey(65, "DESCRIBE_TRANSACTIONS", "DescribeTransactions", range(1), 0, _BROKER),
    ApiKey(66, "LIST_TRANSACTIONS", "ListTransactions", range(3), 0, _BROKER),
    ApiKey(67, "ALLOCATE_PRODUCER_IDS", "AllocateProducerIds", range(1), 0, _CONTROLLER, cluster_action=True, forwardable=True),
    ApiKey(68, "CONSUMER_GROUP_HEARTBEAT", "ConsumerGroupHeartbeat", range(2), 0, _BROKER),
    ApiKey(69, "CONSUMER_GROUP_DESCRIBE", "ConsumerGroupDescribe", range(2), 0, _BROKER),
    ApiKey(70, "CONTROLLER_REGISTRATION", "ControllerRegistration", range(1), 0, _CONTROLLER),
    ApiKey(71, "GET_TELEMETRY_SUBSCRIPTIONS", "GetTelemetrySubscriptions", range(1), 0, _BROKER),
    ApiKey(72, "PUSH_TELEMETRY", "PushTelemetry", range(1), 0, _BROKER),
    ApiKey(73, "ASSIGN_REPLICAS_TO_DIRS", "AssignReplicasToDirs", range(1), 0, _CONTROLLER),
    ApiKey(74, "LIST_CONFIG_RESOURCES", "ListConfigResources", range(2), 0, _BROKER),
    ApiKey(75, "DESCRIBE_TOPIC_PARTITIONS", "DescribeTopicPartitions", range(1), 0, _BROKER),
    ApiKey(76, "SHARE_GROUP_HEARTBEAT", "ShareGroupHeartbeat", range(1, 2), 0, _BROKER),
    ApiKey(77, "SHARE_GROUP_DESCRIBE", "ShareGroupDescribe", range(1, 2), 0, _BROKER),
    ApiKey(78, "SHARE_FETCH", "ShareFetch", range(1, 3), 0, _BROKER),
    ApiKey(79, "SHARE_ACKNOWLEDGE", "ShareAcknowledge", range(1, 3), 0, _BROKER),
    ApiKey(80, "ADD_RAFT_VOTER", "AddRaftVoter", range(2), 0, _BOTH, forwardable=True),
    ApiKey(81, "REMOVE_RAFT_VOTER", "RemoveRaftVoter", range(1), 0, _BOTH, forwardable=True),
    ApiKey(82, "UPDATE_RAFT_VOTER", "UpdateRaftVoter", range(1), 0, _CONTROLLER),
    ApiKey(83, "INITIALIZE_SHARE_GROUP_STATE", "InitializeShareGroupState", range(1), 0, _BROKER, cluster_action=True),
    ApiKey(84, "READ_SHARE_GROUP_STATE", "ReadShareGroupState", range(1), 0, _BROKER, cluster_action=True),
    ApiKey(85, "WRITE_SHARE_GROUP_STATE", "WriteShareGroupState", range(2), 0, _BROKER, cluster_action=True),
    ApiKey(86, "DELETE_SHARE_GROUP_STATE", "DeleteShareGroupState", range(1), 0, _BROKER, cluster_action=True),
    ApiKey(87, "READ_SHARE_GROUP_STATE_SUMMARY", "ReadShareGroupStateSummary", range(2), 0, _BROKER, cluster_action=True),
    ApiKey(88, "STREAMS_GROUP_HEARTBEAT", "StreamsGroupHeartbeat", range(1), 0, _BROKER),
    ApiKey(89, "STREAMS_GROUP_DESCRIBE", "StreamsGroupDescribe", range(1), 0, _BROKER),
    ApiKey(90, "DESCRIBE_SHARE_GROUP_OFFSETS", "DescribeShareGroupOffsets", range(2), 0, _BROKER),
    ApiKey(91, "ALTER_SHARE_GROUP_OFFSETS", "AlterShareGroupOffsets", range(1), 0, _BROKER),
    ApiKey(92, "DELETE_SHARE_GROUP_OFFSETS", "DeleteShareGroupOffsets", range(1), 0, _BROKER),
)

BY_KEY: Final = {api.key: api for api in API_KEYS}
BY_NAME: Final = {api.name: api for api in API_KEYS}


def by_key(key: int) -> ApiKey:
    """Return the API with this key. Raises ApiError (INVALID_REQUEST) for a key that 4.3 does not know."""
    api = BY_KEY.get(key)
    if api is None:
        raise ApiError("INVALID_REQUEST", f"Unexpected api key: {key}")
    return api
