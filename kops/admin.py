"""The values of the admin client: what its methods take and return. The client itself is `kops.Admin`, or `kops.aio.Admin` for asyncio.

Names are those of Java's org.apache.kafka.clients.admin and org.apache.kafka.common.
"""

from kops.client.admin.core.results import (
    Results,
)
from kops.client.admin.core.values import (
    AclOperation,
)
from kops.client.admin.operations.acls import (
    AclBinding,
    AclBindingFilter,
    AclPermissionType,
    DeletedAcl,
    PatternType,
    ResourceType,
)
from kops.client.admin.operations.cluster import (
    ClusterDescription,
    ClusterNode,
    FeatureMetadata,
    FeatureUpdate,
    UpgradeType,
    VersionRange,
)
from kops.client.admin.operations.configs import (
    AlterConfigOp,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    ConfigResourceType,
    ConfigSource,
    ConfigSynonym,
    ConfigType,
)
from kops.client.admin.operations.group_offsets import SharePartitionOffsetInfo
from kops.client.admin.operations.group_values import (
    ClassicGroupDescription,
    ConsumerGroupDescription,
    Endpoint,
    GroupListing,
    GroupState,
    GroupType,
    MemberDescription,
    ShareGroupDescription,
    ShareMemberDescription,
    StreamsGroupDescription,
    StreamsGroupMemberAssignment,
    StreamsGroupMemberDescription,
    StreamsGroupSubtopologyDescription,
    TaskIds,
    TaskOffset,
    TopicInfo,
)
from kops.client.admin.operations.groups import (
    GroupListings,
)
from kops.client.admin.operations.offsets import (
    ListOffsetsResultInfo,
    OffsetSpec,
)
from kops.client.admin.operations.partitions import (
    ElectionType,
    LogDirDescription,
    PartitionReassignment,
    ReplicaInfo,
    ReplicaLogDirInfo,
    TopicPartitionReplica,
)
from kops.client.admin.operations.principals import (
    ClientQuotaAlteration,
    ClientQuotaEntity,
    ClientQuotaFilterComponent,
    DelegationToken,
    KafkaPrincipal,
    ScramCredentialInfo,
    ScramMechanism,
    UserScramCredentialDeletion,
    UserScramCredentialsDescription,
    UserScramCredentialUpsertion,
)
from kops.client.admin.operations.quorum import (
    QuorumInfo,
    RaftVoterEndpoint,
    ReplicaState,
)
from kops.client.admin.operations.topics import (
    CreatedTopic,
    NewPartitions,
    NewTopic,
    TopicDescription,
    TopicListing,
    TopicPartitionInfo,
)
from kops.client.admin.operations.transactions import (
    AbortTransactionSpec,
    ProducerIdAndEpoch,
    ProducerState,
    TransactionDescription,
    TransactionListing,
    TransactionState,
)
from kops.client.consumer.records import OffsetAndMetadata
from kops.client.node import (
    Node,
)
from kops.records.log_offsets import (
    TopicPartition,
)

__all__ = [
    "AbortTransactionSpec",
    "AclBinding",
    "AclBindingFilter",
    "AclOperation",
    "AclPermissionType",
    "AlterConfigOp",
    "AlterConfigOpType",
    "ClassicGroupDescription",
    "ClientQuotaAlteration",
    "ClientQuotaEntity",
    "ClientQuotaFilterComponent",
    "ClusterDescription",
    "ClusterNode",
    "ConfigEntry",
    "ConfigResource",
    "ConfigResourceType",
    "ConfigSource",
    "ConfigSynonym",
    "ConfigType",
    "ConsumerGroupDescription",
    "CreatedTopic",
    "DelegationToken",
    "DeletedAcl",
    "ElectionType",
    "Endpoint",
    "FeatureMetadata",
    "FeatureUpdate",
    "GroupListing",
    "GroupListings",
    "GroupState",
    "GroupType",
    "KafkaPrincipal",
    "ListOffsetsResultInfo",
    "LogDirDescription",
    "MemberDescription",
    "NewPartitions",
    "NewTopic",
    "Node",
    "OffsetAndMetadata",
    "OffsetSpec",
    "PartitionReassignment",
    "PatternType",
    "ProducerIdAndEpoch",
    "ProducerState",
    "QuorumInfo",
    "RaftVoterEndpoint",
    "ReplicaInfo",
    "ReplicaLogDirInfo",
    "ReplicaState",
    "ResourceType",
    "Results",
    "ScramCredentialInfo",
    "ScramMechanism",
    "ShareGroupDescription",
    "ShareMemberDescription",
    "SharePartitionOffsetInfo",
    "StreamsGroupDescription",
    "StreamsGroupMemberAssignment",
    "StreamsGroupMemberDescription",
    "StreamsGroupSubtopologyDescription",
    "TaskIds",
    "TaskOffset",
    "TopicDescription",
    "TopicInfo",
    "TopicListing",
    "TopicPartition",
    "TopicPartitionInfo",
    "TopicPartitionReplica",
    "TransactionDescription",
    "TransactionListing",
    "TransactionState",
    "UpgradeType",
    "UserScramCredentialDeletion",
    "UserScramCredentialUpsertion",
    "UserScramCredentialsDescription",
    "VersionRange",
]
