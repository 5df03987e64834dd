"""All error codes of Kafka 4.3: name, Java exception, and how a client should react.

Source: Kafka's Errors and the superclasses of its exceptions (RetriableException, RefreshRetriableException, InvalidMetadataException,
ApplicationRecoverableException, InvalidConfigurationException; KIP-1050). The texts are kops's own.
"""

from __future__ import annotations

from enum import Enum, auto
from typing import Final, NamedTuple


class Reaction(Enum):
    """What a client should do, according to the exception's superclass."""

    PLAIN = auto()
    RETRIABLE = auto()  # the same request may succeed later
    REFRESH = auto()  # first find the coordinator (or leader)
    METADATA = auto()  # first get new metadata
    RECOVERABLE = auto()  # only with a new producer or member
    FATAL = auto()  # the setup is wrong


class ErrorCode(NamedTuple):
    """One row of the table. `exception` is the simple name of the Java class, empty for NONE."""

    code: int
    name: str
    exception: str
    reaction: Reaction
    words: str

    @property
    def retriable(self) -> bool:
        """Whether Kafka's exception is a RetriableException."""
        return self.reaction in (Reaction.RETRIABLE, Reaction.REFRESH, Reaction.METADATA)


PLAIN, RETRIABLE, REFRESH, METADATA, RECOVERABLE, FATAL = Reaction
_ROWS: Final[tuple[tuple[int, str, str, Reaction, str], ...]] = (
    (-1, "UNKNOWN_SERVER_ERROR", "UnknownServerException", PLAIN, "the server failed with an error that has no code of its own"),
    (0, "NONE", "", PLAIN, "no error"),
    (1, "OFFSET_OUT_OF_RANGE", "OffsetOutOfRangeException", PLAIN, "the offset is outside the log"),
    (2, "CORRUPT_MESSAGE", "CorruptRecordException", RETRIABLE, "a batch is damaged, too large or without a key"),
    (3, "UNKNOWN_TOPIC_OR_PARTITION", "UnknownTopicOrPartitionException", METADATA, "this broker has no such topic or partition"),
    (4, "INVALID_FETCH_SIZE", "InvalidFetchSizeException", PLAIN, "the requested size is invalid"),
    (5, "LEADER_NOT_AVAILABLE", "LeaderNotAvailableException", METADATA, "the partition has no leader at the moment"),
    (6, "NOT_LEADER_OR_FOLLOWER", "NotLeaderOrFollowerException", METADATA, "this broker does not lead the partition"),
    (7, "REQUEST_TIMED_OUT", "TimeoutException", RETRIABLE, "the answer did not come in time"),
    (8, "BROKER_NOT_AVAILABLE", "BrokerNotAvailableException", PLAIN, "the broker can't be reached"),
    (9, "REPLICA_NOT_AVAILABLE", "ReplicaNotAvailableException", METADATA, "the requested replica is not available"),
    (10, "MESSAGE_TOO_LARGE", "RecordTooLargeException", PLAIN, "a message is larger than the server accepts"),
    (11, "STALE_CONTROLLER_EPOCH", "ControllerMovedException", PLAIN, "another broker is now the controller"),
    (12, "OFFSET_METADATA_TOO_LARGE", "OffsetMetadataTooLarge", PLAIN, "the metadata of an offset is too long"),
    (13, "NETWORK_EXCEPTION", "NetworkException", METADATA, "the connection ended before the answer"),
    (14, "COORDINATOR_LOAD_IN_PROGRESS", "CoordinatorLoadInProgressException", RETRIABLE, "the coordinator is still loading its state"),
    (15, "COORDINATOR_NOT_AVAILABLE", "CoordinatorNotAvailableException", REFRESH, "there is no coordinator at the moment"),
    (16, "NOT_COORDINATOR", "NotCoordinatorException", REFRESH, "another broker is the coordinator"),
    (17, "INVALID_TOPIC_EXCEPTION", "InvalidTopicException", FATAL, "the topic's name is not allowed"),
    (18, "RECORD_LIST_TOO_LARGE", "RecordBatchTooLargeException", FATAL, "the batches are larger than a segment may be"),
    (19, "NOT_ENOUGH_REPLICAS", "NotEnoughReplicasException", RETRIABLE, "too few replicas are in sync for a write"),
    (
        20,
        "NOT_ENOUGH_REPLICAS_AFTER_APPEND",
        "NotEnoughReplicasAfterAppendException",
        RETRIABLE,
        "written, but to too few in-sync replicas",
    ),
    (21, "INVALID_REQUIRED_ACKS", "InvalidRequiredAcksException", FATAL, "acks is not -1, 0 or 1"),
    (22, "ILLEGAL_GENERATION", "IllegalGenerationException", RECOVERABLE, "the group is in another generation"),
    (23, "INCONSISTENT_GROUP_PROTOCOL", "InconsistentGroupProtocolException", PLAIN, "the member's protocols do not fit the group's"),
    (24, "INVALID_GROUP_ID", "InvalidGroupIdException", PLAIN, "the group's name is not allowed"),
    (25, "UNKNOWN_MEMBER_ID", "UnknownMemberIdException", RECOVERABLE, "the group has no such member"),
    (26, "INVALID_SESSION_TIMEOUT", "InvalidSessionTimeoutException", PLAIN, "the session timeout is not allowed"),
    (27, "REBALANCE_IN_PROGRESS", "RebalanceInProgressException", PLAIN, "the group is rebalancing; join again"),
    (28, "INVALID_COMMIT_OFFSET_SIZE", "InvalidCommitOffsetSizeException", PLAIN, "the offsets to commit are too large"),
    (29, "TOPIC_AUTHORIZATION_FAILED", "TopicAuthorizationException", FATAL, "not allowed on this topic"),
    (30, "GROUP_AUTHORIZATION_FAILED", "GroupAuthorizationException", FATAL, "not allowed on this group"),
    (31, "CLUSTER_AUTHORIZATION_FAILED", "ClusterAuthorizationException", FATAL, "not allowed on the cluster"),
    (32, "INVALID_TIMESTAMP", "InvalidTimestampException", PLAIN, "a timestamp is too far from the broker's clock"),
    (33, "UNSUPPORTED_SASL_MECHANISM", "UnsupportedSaslMechanismException", FATAL, "the SASL mechanism is not offered"),
    (34, "ILLEGAL_SASL_STATE", "IllegalSaslStateException", FATAL, "the request is not allowed in this SASL state"),
    (35, "UNSUPPORTED_VERSION", "UnsupportedVersionException", FATAL, "this version is not supported"),
    (36, "TOPIC_ALREADY_EXISTS", "TopicExistsException", PLAIN, "the topic already exists"),
    (37, "INVALID_PARTITIONS", "InvalidPartitionsException", PLAIN, "the number of partitions is not allowed"),
    (38, "INVALID_REPLICATION_FACTOR", "InvalidReplicationFactorException", FATAL, "the replication factor is not allowed"),
    (39, "INVALID_REPLICA_ASSIGNMENT", "InvalidReplicaAssignmentException", PLAIN, "the assignment of replicas is not allowed"),
    (40, "INVALID_CONFIG", "InvalidConfigurationException", FATAL, "a setting is not allowed"),
    (41, "NOT_CONTROLLER", "NotControllerException", RETRIABLE, "another node is the controller"),
    (42, "INVALID_REQUEST", "InvalidRequestException", PLAIN, "the request is invalid"),
    (43, "UNSUPPORTED_FOR_MESSAGE_FORMAT", "UnsupportedForMessageFormatException", FATAL, "the log's message format does not support this"),
    (44, "POLICY_VIOLATION", "PolicyViolationException", PLAIN, "the broker's policy forbids it"),
    (45, "OUT_OF_ORDER_SEQUENCE_NUMBER", "OutOfOrderSequenceException", PLAIN, "a batch's sequence number does not follow the last one"),
    (46, "DUPLICATE_SEQUENCE_NUMBER", "DuplicateSequenceException", PLAIN, "a batch with this sequence number has already been written"),
    (47, "INVALID_PRODUCER_EPOCH", "InvalidProducerEpochException", RECOVERABLE, "the producer's epoch is old"),
    (48, "INVALID_TXN_STATE", "InvalidTxnStateException", PLAIN, "the transaction's state does not allow this"),
    (49, "INVALID_PRODUCER_ID_MAPPING", "InvalidPidMappingException", RECOVERABLE, "the producer id is not that of this transactional id"),
    (50, "INVALID_TRANSACTION_TIMEOUT", "InvalidTxnTimeoutException", PLAIN, "the transaction timeout is too large"),
    (51, "CONCURRENT_TRANSACTIONS", "ConcurrentTransactionsException", RETRIABLE, "another operation on the transaction is in progress"),
    (52, "TRANSACTION_COORDINATOR_FENCED", "TransactionCoordinatorFencedException", PLAIN, "the marker is from an earlier coordinator"),
    (53, "TRANSACTIONAL_ID_AUTHORIZATION_FAILED", "TransactionalIdAuthorizationException", FATAL, "not allowed on this transactional id"),
    (54, "SECURITY_DISABLED", "SecurityDisabledException", PLAIN, "security is turned off"),
    (55, "OPERATION_NOT_ATTEMPTED", "OperationNotAttemptedException", PLAIN, "not attempted because another part of the request failed"),
    (56, "KAFKA_STORAGE_ERROR", "KafkaStorageException", METADATA, "the disk with the log failed"),
    (57, "LOG_DIR_NOT_FOUND", "LogDirNotFoundException", PLAIN, "the broker has no such log directory"),
    (58, "SASL_AUTHENTICATION_FAILED", "SaslAuthenticationException", FATAL, "the credentials were rejected"),
    (59, "UNKNOWN_PRODUCER_ID", "UnknownProducerIdException", PLAIN, "this partition has no state of the producer"),
    (60, "REASSIGNMENT_IN_PROGRESS", "ReassignmentInProgressException", PLAIN, "the partition is being reassigned"),
    (61, "DELEGATION_TOKEN_AUTH_DISABLED", "DelegationTokenDisabledException", PLAIN, "delegation tokens are turned off"),
    (62, "DELEGATION_TOKEN_NOT_FOUND", "DelegationTokenNotFoundException", PLAIN, "there is no such delegation token"),
    (63, "DELEGATION_TOKEN_OWNER_MISMATCH", "DelegationTokenOwnerMismatchException", PLAIN, "the delegation token has another owner"),
    (
        64,
        "DELEGATION_TOKEN_REQUEST_NOT_ALLOWED",
        "UnsupportedByAuthenticationException",
        PLAIN,
        "tokens are not allowed over this kind of connection",
    ),
    (65, "DELEGATION_TOKEN_AUTHORIZATION_FAILED", "DelegationTokenAuthorizationException", FATAL, "not allowed on delegation tokens"),
    (66, "DELEGATION_TOKEN_EXPIRED", "DelegationTokenExpiredException", PLAIN, "the delegation token has expired"),
    (67, "INVALID_PRINCIPAL_TYPE", "InvalidPrincipalTypeException", PLAIN, "principals of this type are unknown"),
    (68, "NON_EMPTY_GROUP", "GroupNotEmptyException", PLAIN, "the group still has members"),
    (69, "GROUP_ID_NOT_FOUND", "GroupIdNotFoundException", PLAIN, "there is no such group"),
    (70, "FETCH_SESSION_ID_NOT_FOUND", "FetchSessionIdNotFoundException", RETRIABLE, "the broker has no such fetch session"),
    (71, "INVALID_FETCH_SESSION_EPOCH", "InvalidFetchSessionEpochException", RETRIABLE, "the fetch session has another epoch"),
    (72, "LISTENER_NOT_FOUND", "ListenerNotFoundException", METADATA, "the leader has no listener with this name"),
    (73, "TOPIC_DELETION_DISABLED", "TopicDeletionDisabledException", PLAIN, "topics can't be deleted here"),
    (74, "FENCED_LEADER_EPOCH", "FencedLeaderEpochException", METADATA, "the leader epoch in the request is older than the broker's"),
    (75, "UNKNOWN_LEADER_EPOCH", "UnknownLeaderEpochException", RETRIABLE, "the leader epoch in the request is newer than the broker's"),
    (76, "UNSUPPORTED_COMPRESSION_TYPE", "UnsupportedCompressionTypeException", PLAIN, "this version does not support the codec"),
    (77, "STALE_BROKER_EPOCH", "StaleBrokerEpochException", PLAIN, "the broker has registered again since then"),
    (78, "OFFSET_NOT_AVAILABLE", "OffsetNotAvailableException", RETRIABLE, "a new leader does not know its high watermark yet"),
    (79, "MEMBER_ID_REQUIRED", "MemberIdRequiredException", PLAIN, "join again with the given member id"),
    (80, "PREFERRED_LEADER_NOT_AVAILABLE", "PreferredLeaderNotAvailableException", METADATA, "the preferred leader is not available"),
    (81, "GROUP_MAX_SIZE_REACHED", "GroupMaxSizeReachedException", PLAIN, "the group is full"),
    (82, "FENCED_INSTANCE_ID", "FencedInstanceIdException", RECOVERABLE, "another member now has this group.instance.id"),
    (83, "ELIGIBLE_LEADERS_NOT_AVAILABLE", "EligibleLeadersNotAvailableException", METADATA, "no eligible leader is available"),
    (84, "ELECTION_NOT_NEEDED", "ElectionNotNeededException", METADATA, "the partition already has the right leader"),
    (85, "NO_REASSIGNMENT_IN_PROGRESS", "NoReassignmentInProgressException", PLAIN, "the partition is not being reassigned"),
    (86, "GROUP_SUBSCRIBED_TO_TOPIC", "GroupSubscribedToTopicException", PLAIN, "the group reads this topic"),
    (87, "INVALID_RECORD", "InvalidRecordException", FATAL, "a record is not valid"),
    (88, "UNSTABLE_OFFSET_COMMIT", "UnstableOffsetCommitException", RETRIABLE, "open transactions hold the requested offsets"),
    (89, "THROTTLING_QUOTA_EXCEEDED", "ThrottlingQuotaExceededException", RETRIABLE, "a quota is used up"),
    (90, "PRODUCER_FENCED", "ProducerFencedException", RECOVERABLE, "a newer producer has this transactional id"),
    (91, "RESOURCE_NOT_FOUND", "ResourceNotFoundException", PLAIN, "the named resource does not exist"),
    (92, "DUPLICATE_RESOURCE", "DuplicateResourceException", PLAIN, "the request names a resource twice"),
    (93, "UNACCEPTABLE_CREDENTIAL", "UnacceptableCredentialException", PLAIN, "the credential does not meet the rules"),
    (94, "INCONSISTENT_VOTER_SET", "InconsistentVoterSetException", PLAIN, "the named voters are not those of the quorum"),
    (95, "INVALID_UPDATE_VERSION", "InvalidUpdateVersionException", PLAIN, "the feature can't have this version"),
    (96, "FEATURE_UPDATE_FAILED", "FeatureUpdateFailedException", PLAIN, "the features could not be written"),
    (97, "PRINCIPAL_DESERIALIZATION_FAILURE", "PrincipalDeserializationException", PLAIN, "a forwarded principal can't be read"),
    (98, "SNAPSHOT_NOT_FOUND", "SnapshotNotFoundException", PLAIN, "there is no such snapshot"),
    (99, "POSITION_OUT_OF_RANGE", "PositionOutOfRangeException", PLAIN, "the position is outside the snapshot"),
    (100, "UNKNOWN_TOPIC_ID", "UnknownTopicIdException", METADATA, "this broker has no topic with this id"),
    (101, "DUPLICATE_BROKER_REGISTRATION", "DuplicateBrokerRegistrationException", PLAIN, "another running broker has this id"),
    (102, "BROKER_ID_NOT_REGISTERED", "BrokerIdNotRegisteredException", PLAIN, "no broker with this id has registered"),
    (103, "INCONSISTENT_TOPIC_ID", "InconsistentTopicIdException", METADATA, "the log belongs to a topic with another id"),
    (104, "INCONSISTENT_CLUSTER_ID", "InconsistentClusterIdException", PLAIN, "the cluster has another id"),
    (105, "TRANSACTIONAL_ID_NOT_FOUND", "TransactionalIdNotFoundException", PLAIN, "there is no such transactional id"),
    (106, "FETCH_SESSION_TOPIC_ID_ERROR", "FetchSessionTopicIdException", RETRIABLE, "the fetch session mixes topic ids and names"),
    (107, "INELIGIBLE_REPLICA", "IneligibleReplicaException", PLAIN, "a replica is not eligible for the new ISR"),
    (108, "NEW_LEADER_ELECTED", "NewLeaderElectedException", PLAIN, "done; the partition now has another leader"),
    (109, "OFFSET_MOVED_TO_TIERED_STORAGE", "OffsetMovedToTieredStorageException", PLAIN, "the offset is only in remote storage"),
    (110, "FENCED_MEMBER_EPOCH", "FencedMemberEpochException", PLAIN, "the member's epoch is fenced; join again without partitions"),
    (111, "UNRELEASED_INSTANCE_ID", "UnreleasedInstanceIdException", PLAIN, "another member still has the instance id"),
    (112, "UNSUPPORTED_ASSIGNOR", "UnsupportedAssignorException", PLAIN, "the group does not know the assignor or its version"),
    (113, "STALE_MEMBER_EPOCH", "StaleMemberEpochException", PLAIN, "the member's epoch is old; heartbeat first"),
    (114, "MISMATCHED_ENDPOINT_TYPE", "MismatchedEndpointTypeException", PLAIN, "a broker was asked for a controller, or vice versa"),
    (115, "UNSUPPORTED_ENDPOINT_TYPE", "UnsupportedEndpointTypeException", PLAIN, "endpoints of this type are unknown"),
    (116, "UNKNOWN_CONTROLLER_ID", "UnknownControllerIdException", PLAIN, "no controller has this id"),
    (117, "UNKNOWN_SUBSCRIPTION_ID", "UnknownSubscriptionIdException", PLAIN, "the telemetry subscription is unknown or outdated"),
    (118, "TELEMETRY_TOO_LARGE", "TelemetryTooLargeException", PLAIN, "the telemetry is larger than the broker accepts"),
    (119, "INVALID_REGISTRATION", "InvalidRegistrationException", PLAIN, "the controller rejects the broker's registration"),
    (120, "TRANSACTION_ABORTABLE", "TransactionAbortableException", PLAIN, "abort the transaction, then continue"),
    (121, "INVALID_RECORD_STATE", "InvalidRecordStateException", PLAIN, "the records are not in a state that allows this"),
    (122, "SHARE_SESSION_NOT_FOUND", "ShareSessionNotFoundException", RETRIABLE, "the broker has no such share session"),
    (123, "INVALID_SHARE_SESSION_EPOCH", "InvalidShareSessionEpochException", RETRIABLE, "the share session has another epoch"),
    (124, "FENCED_STATE_EPOCH", "FencedStateEpochException", PLAIN, "the share group's state has another epoch"),
    (125, "INVALID_VOTER_KEY", "InvalidVoterKeyException", PLAIN, "the replica has another directory id"),
    (126, "DUPLICATE_VOTER", "DuplicateVoterException", PLAIN, "the replica is already a voter"),
    (127, "VOTER_NOT_FOUND", "VoterNotFoundException", PLAIN, "the replica is not a voter"),
    (128, "INVALID_REGULAR_EXPRESSION", "InvalidRegularExpression", PLAIN, "the regular expression can't be read"),
    (129, "REBOOTSTRAP_REQUIRED", "RebootstrapRequiredException", PLAIN, "the metadata is too old; start from the bootstrap servers"),
    (130, "STREAMS_INVALID_TOPOLOGY", "StreamsInvalidTopologyException", PLAIN, "the topology is not valid"),
    (131, "STREAMS_INVALID_TOPOLOGY_EPOCH", "StreamsInvalidTopologyEpochException", PLAIN, "the topology's epoch is not valid"),
    (132, "STREAMS_TOPOLOGY_FENCED", "StreamsTopologyFencedException", PLAIN, "the group has a newer topology"),
    (133, "SHARE_SESSION_LIMIT_REACHED", "ShareSessionLimitReachedException", RETRIABLE, "the broker has too many share sessions"),
)
ERRORS: Final = tuple(ErrorCode(*row) for row in _ROWS)
BY_CODE: Final = {error.code: error for error in ERRORS}
BY_NAME: Final = {error.name: error for error in ERRORS}
BY_EXCEPTION: Final = {error.exception: error for error in ERRORS if error.exception}


def by_code(code: int) -> ErrorCode:
    """Return the error of a code. As in Kafka, it is UNKNOWN_SERVER_ERROR for a code that 4.3 does not know."""
    return BY_CODE.get(code, BY_CODE[-1])


def by_name(name: str) -> ErrorCode:
    """Return the error of a name, as in `ApiError.name`. Raises KeyError if there is none, which is a bug in kops."""
    return BY_NAME[name]


def by_exception(name: str) -> ErrorCode:
    """Return the error of a Java exception's class, with or without its package. It is UNKNOWN_SERVER_ERROR for an unknown class."""
    return BY_EXCEPTION.get(name.rpartition(".")[2], BY_CODE[-1])
