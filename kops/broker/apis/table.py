"""The handler of each API that a broker serves. ApiVersions advertises exactly this table.

Source: the match in Kafka's KafkaApis.handle, ApiKeys (which node serves an API, and which are forwarded).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from kops.broker.apis.api_versions import answer_api_versions
from kops.broker.apis.cluster.alter_configs import handle_alter_configs, handle_incremental_alter_configs
from kops.broker.apis.cluster.describe_cluster import handle_describe_cluster, handle_describe_topic_partitions
from kops.broker.apis.cluster.describe_configs import handle_describe_configs
from kops.broker.apis.cluster.describe_users import handle_describe_client_quotas, handle_describe_user_scram_credentials
from kops.broker.apis.cluster.forwarded import handle_forwarded
from kops.broker.apis.cluster.list_config_resources import handle_list_config_resources
from kops.broker.apis.cluster.log_dirs import handle_alter_replica_log_dirs, handle_describe_log_dirs
from kops.broker.apis.cluster.metadata import handle_metadata
from kops.broker.apis.data.delete_records import handle_delete_records
from kops.broker.apis.data.describe_producers import handle_describe_producers
from kops.broker.apis.data.fetch import handle_fetch
from kops.broker.apis.data.leader_epochs import handle_offset_for_leader_epoch
from kops.broker.apis.data.list_offsets import handle_list_offsets
from kops.broker.apis.data.produce import handle_produce
from kops.broker.apis.groups.all_groups import handle_delete_groups, handle_describe_groups, handle_list_groups
from kops.broker.apis.groups.classic import handle_heartbeat, handle_join_group, handle_leave_group, handle_sync_group
from kops.broker.apis.groups.consumer import handle_consumer_group_describe, handle_consumer_group_heartbeat
from kops.broker.apis.groups.find_coordinator import handle_find_coordinator
from kops.broker.apis.groups.offset_fetch import handle_offset_fetch
from kops.broker.apis.groups.offsets import handle_offset_commit, handle_offset_delete, handle_txn_offset_commit
from kops.broker.apis.groups.share import (
    handle_alter_share_group_offsets,
    handle_delete_share_group_offsets,
    handle_describe_share_group_offsets,
    handle_share_group_describe,
    handle_share_group_heartbeat,
)
from kops.broker.apis.groups.share_state import handle_share_group_state
from kops.broker.apis.groups.streams import handle_streams_group_describe, handle_streams_group_heartbeat
from kops.broker.apis.sasl import handle_sasl_authenticate, handle_sasl_handshake
from kops.broker.apis.shares.handlers import handle_share_acknowledge, handle_share_fetch
from kops.broker.apis.transactions.add_to_txn import handle_add_offsets_to_txn, handle_add_partitions_to_txn
from kops.broker.apis.transactions.end_txn import handle_end_txn, handle_write_txn_markers
from kops.broker.apis.transactions.init_producer_id import handle_init_producer_id
from kops.broker.apis.transactions.show_transactions import handle_describe_transactions, handle_list_transactions
from kops.protocol.api_keys import BY_NAME, ApiKey

if TYPE_CHECKING:
    from kops.broker.network.socket_server import RequestContext
    from kops.broker.parts.parts import BrokerParts

Handler = Callable[["BrokerParts", "RequestContext"], None]


def _handle_api_versions(parts: BrokerParts, context: RequestContext) -> None:
    answer_api_versions(parts, context, served_apis())


_FORWARDED: Final = (
    "AddRaftVoter",
    "AlterPartitionReassignments",
    "CreatePartitions",
    "CreateTopics",
    "DeleteTopics",
    "DescribeQuorum",
    "ElectLeaders",
    "ListPartitionReassignments",
    "RemoveRaftVoter",
    "UnregisterBroker",
    "UpdateFeatures",
)
_ANSWERED_HERE: Final[dict[str, Handler]] = {
    "AddOffsetsToTxn": handle_add_offsets_to_txn,
    "AddPartitionsToTxn": handle_add_partitions_to_txn,
    "AlterConfigs": handle_alter_configs,
    "AlterReplicaLogDirs": handle_alter_replica_log_dirs,
    "AlterShareGroupOffsets": handle_alter_share_group_offsets,
    "ApiVersions": _handle_api_versions,
    "ConsumerGroupDescribe": handle_consumer_group_describe,
    "ConsumerGroupHeartbeat": handle_consumer_group_heartbeat,
    "DeleteGroups": handle_delete_groups,
    "DeleteRecords": handle_delete_records,
    "DeleteShareGroupOffsets": handle_delete_share_group_offsets,
    "DeleteShareGroupState": handle_share_group_state,
    "DescribeClientQuotas": handle_describe_client_quotas,
    "DescribeCluster": handle_describe_cluster,
    "DescribeConfigs": handle_describe_configs,
    "DescribeGroups": handle_describe_groups,
    "DescribeLogDirs": handle_describe_log_dirs,
    "DescribeProducers": handle_describe_producers,
    "DescribeShareGroupOffsets": handle_describe_share_group_offsets,
    "DescribeTopicPartitions": handle_describe_topic_partitions,
    "DescribeTransactions": handle_describe_transactions,
    "DescribeUserScramCredentials": handle_describe_user_scram_credentials,
    "EndTxn": handle_end_txn,
    "Fetch": handle_fetch,
    "FindCoordinator": handle_find_coordinator,
    "Heartbeat": handle_heartbeat,
    "IncrementalAlterConfigs": handle_incremental_alter_configs,
    "InitProducerId": handle_init_producer_id,
    "InitializeShareGroupState": handle_share_group_state,
    "JoinGroup": handle_join_group,
    "LeaveGroup": handle_leave_group,
    "ListConfigResources": handle_list_config_resources,
    "ListGroups": handle_list_groups,
    "ListOffsets": handle_list_offsets,
    "ListTransactions": handle_list_transactions,
    "Metadata": handle_metadata,
    "OffsetCommit": handle_offset_commit,
    "OffsetDelete": handle_offset_delete,
    "OffsetFetch": handle_offset_fetch,
    "OffsetForLeaderEpoch": handle_offset_for_leader_epoch,
    "Produce": handle_produce,
    "ReadShareGroupState": handle_share_group_state,
    "ReadShareGroupStateSummary": handle_share_group_state,
    "SaslAuthenticate": handle_sasl_authenticate,
    "SaslHandshake": handle_sasl_handshake,
    "ShareAcknowledge": handle_share_acknowledge,
    "ShareFetch": handle_share_fetch,
    "ShareGroupDescribe": handle_share_group_describe,
    "ShareGroupHeartbeat": handle_share_group_heartbeat,
    "StreamsGroupDescribe": handle_streams_group_describe,
    "StreamsGroupHeartbeat": handle_streams_group_heartbeat,
    "SyncGroup": handle_sync_group,
    "TxnOffsetCommit": handle_txn_offset_commit,
    "WriteShareGroupState": handle_share_group_state,
    "WriteTxnMarkers": handle_write_txn_markers,
}
HANDLERS: Final[dict[int, Handler]] = {
    **{BY_NAME[name].key: handler for name, handler in _ANSWERED_HERE.items()},
    **{BY_NAME[name].key: handle_forwarded for name in _FORWARDED},
}
"""By API key."""


def served_apis() -> list[ApiKey]:
    """The APIs of the table, by key."""
    return [api for api in BY_NAME.values() if api.key in HANDLERS]
