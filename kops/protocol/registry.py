"""Maps APIs and record types to message classes, which are loaded on first use.

Source: Kafka's ApiMessageType, and the record types that its generator lists for each module (MetadataRecordType, CoordinatorRecordType).
"""

from __future__ import annotations

import functools
from typing import Final, cast

from kops.protocol import messages
from kops.protocol.api_keys import ApiKey
from kops.protocol.declaration import Message


@functools.cache
def message_class(name: str) -> type[Message]:
    """Return the message class with this name."""
    return cast("type[Message]", getattr(messages, name))


def request_class(api: ApiKey) -> type[Message]:
    """Return the class of an API's requests."""
    return message_class(f"{api.name}Request")


def response_class(api: ApiKey) -> type[Message]:
    """Return the class of an API's responses."""
    found = _RESPONSES.get(api.key)
    if found is None:
        found = _RESPONSES[api.key] = message_class(f"{api.name}Response")
    return found


_RESPONSES: Final[dict[int, type[Message]]] = {}


# Type → message of the records of __cluster_metadata.
METADATA_RECORDS: Final = {
    0: "RegisterBrokerRecord",
    1: "UnregisterBrokerRecord",
    2: "TopicRecord",
    3: "PartitionRecord",
    4: "ConfigRecord",
    5: "PartitionChangeRecord",
    7: "FenceBrokerRecord",
    8: "UnfenceBrokerRecord",
    9: "RemoveTopicRecord",
    10: "DelegationTokenRecord",
    11: "UserScramCredentialRecord",
    12: "FeatureLevelRecord",
    14: "ClientQuotaRecord",
    15: "ProducerIdsRecord",
    17: "BrokerRegistrationChangeRecord",
    18: "AccessControlEntryRecord",
    19: "RemoveAccessControlEntryRecord",
    20: "NoOpRecord",
    21: "ZkMigrationStateRecord",
    22: "RemoveUserScramCredentialRecord",
    23: "BeginTransactionRecord",
    24: "EndTransactionRecord",
    25: "AbortTransactionRecord",
    26: "RemoveDelegationTokenRecord",
    27: "RegisterControllerRecord",
    28: "ClearElrRecord",
}
# Type → message of the records of __remote_log_metadata.
REMOTE_LOG_METADATA_RECORDS: Final = {
    0: "RemoteLogSegmentMetadataRecord",
    1: "RemoteLogSegmentMetadataUpdateRecord",
    2: "RemotePartitionDeleteMetadataRecord",
    3: "RemoteLogSegmentMetadataSnapshotRecord",
}

# Type → name of the pair `…Key`, `…Value` of a coordinator's records: __consumer_offsets, __transaction_state, __share_group_state.
GROUP_RECORDS: Final = {
    0: "LegacyOffsetCommit",
    1: "OffsetCommit",
    2: "GroupMetadata",
    3: "ConsumerGroupMetadata",
    4: "ConsumerGroupPartitionMetadata",
    5: "ConsumerGroupMemberMetadata",
    6: "ConsumerGroupTargetAssignmentMetadata",
    7: "ConsumerGroupTargetAssignmentMember",
    8: "ConsumerGroupCurrentMemberAssignment",
    10: "ShareGroupMemberMetadata",
    11: "ShareGroupMetadata",
    12: "ShareGroupTargetAssignmentMetadata",
    13: "ShareGroupTargetAssignmentMember",
    14: "ShareGroupCurrentMemberAssignment",
    15: "ShareGroupStatePartitionMetadata",
    16: "ConsumerGroupRegularExpression",
    17: "StreamsGroupMetadata",
    19: "StreamsGroupMemberMetadata",
    20: "StreamsGroupTargetAssignmentMetadata",
    21: "StreamsGroupTargetAssignmentMember",
    22: "StreamsGroupCurrentMemberAssignment",
    23: "StreamsGroupTopology",
}
TRANSACTION_RECORDS: Final = {
    0: "TransactionLog",
}
SHARE_RECORDS: Final = {
    0: "ShareSnapshot",
    1: "ShareUpdate",
}
