"""How long a client must leave a node alone after a response (KIP-219).

Source: Kafka's NetworkClient.maybeThrottle, AbstractResponse.shouldClientThrottle. Up to some version of each API, the broker delays the
response itself. From then on it answers at once, and the client waits. The newest APIs have a throttle time that no client obeys.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from kops.protocol.connections.connection import Response

_FIRST_VERSIONS: Final = {
    "AddOffsetsToTxn": 1,
    "AddPartitionsToTxn": 1,
    "AlterConfigs": 1,
    "AlterPartitionReassignments": 0,
    "AlterReplicaLogDirs": 1,
    "AlterUserScramCredentials": 0,
    "ApiVersions": 2,
    "BrokerHeartbeat": 0,
    "BrokerRegistration": 0,
    "CreateAcls": 1,
    "CreateDelegationToken": 1,
    "CreatePartitions": 1,
    "CreateTopics": 3,
    "DeleteAcls": 1,
    "DeleteGroups": 1,
    "DeleteRecords": 1,
    "DeleteTopics": 2,
    "DescribeAcls": 1,
    "DescribeConfigs": 2,
    "DescribeDelegationToken": 1,
    "DescribeGroups": 2,
    "DescribeLogDirs": 1,
    "DescribeTopicPartitions": 0,
    "DescribeUserScramCredentials": 0,
    "ElectLeaders": 0,
    "EndTxn": 1,
    "ExpireDelegationToken": 1,
    "Fetch": 8,
    "FindCoordinator": 2,
    "Heartbeat": 2,
    "IncrementalAlterConfigs": 0,
    "InitProducerId": 1,
    "JoinGroup": 3,
    "LeaveGroup": 2,
    "ListGroups": 2,
    "ListOffsets": 3,
    "ListPartitionReassignments": 0,
    "Metadata": 6,
    "OffsetCommit": 4,
    "OffsetDelete": 0,
    "OffsetFetch": 4,
    "Produce": 6,
    "RenewDelegationToken": 1,
    "SyncGroup": 2,
    "TxnOffsetCommit": 1,
    "UnregisterBroker": 0,
}


def throttle_ms(response: Response) -> int:
    """Return the time for which the client must not send to the node, or 0."""
    found: int = getattr(response.message, "throttle_time_ms", 0)
    if found <= 0:
        return 0
    first = _FIRST_VERSIONS.get(response.api.name)
    return found if first is not None and response.version >= first else 0
