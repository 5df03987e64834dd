"""Which of Kafka's own tests run against kops, and which are left out and why."""

from __future__ import annotations

from typing import Final

REQUESTS: Final = "kafka.server."
API: Final = "kafka.api."
TOOLS: Final = "org.apache.kafka.tools."
CONNECT: Final = "org.apache.kafka.connect.integration."
STREAMS: Final = "org.apache.kafka.streams.integration."

SHORT_TESTKIT: Final = (
    f"{REQUESTS}TxnOffsetCommitRequestTest",
    f"{REQUESTS}WriteTxnMarkersRequestTest",
    f"{REQUESTS}ConsumerGroupDescribeRequestTest",
    f"{REQUESTS}StreamsGroupDescribeRequestTest",
    f"{REQUESTS}DescribeQuorumRequestTest",
    f"{API}TransactionsTest#testFencingOnSendOffsets(java.lang.String)",
    f"{API}TransactionsTest#testSendOffsetsWithGroupMetadata(java.lang.String)",
)
"""Tests of every run of the slow ring, with the clients of Kafka's release."""

SHORT_STREAMS: Final = (
    f"{STREAMS}GlobalKTableIntegrationTest",
    f"{STREAMS}EosIntegrationTest#shouldBeAbleToPerformMultipleTransactions(java.lang.String)",
)
"""The same with Kafka Streams."""

ALL_TESTKIT: Final = (
    *(name for name in SHORT_TESTKIT if "#" not in name),
    f"{REQUESTS}ApiVersionsRequestTest",
    f"{REQUESTS}ConsumerGroupHeartbeatRequestTest",
    f"{REQUESTS}ConsumerProtocolMigrationTest",
    f"{REQUESTS}DeleteGroupsRequestTest",
    f"{REQUESTS}DescribeGroupsRequestTest",
    f"{REQUESTS}HeartbeatRequestTest",
    f"{REQUESTS}JoinGroupRequestTest",
    f"{REQUESTS}LeaveGroupRequestTest",
    f"{REQUESTS}ListGroupsRequestTest",
    f"{REQUESTS}OffsetCommitRequestTest",
    f"{REQUESTS}OffsetDeleteRequestTest",
    f"{REQUESTS}OffsetFetchRequestTest",
    f"{REQUESTS}ShareFetchAcknowledgeRequestTest",
    f"{REQUESTS}ShareGroupDescribeRequestTest",
    f"{REQUESTS}ShareGroupHeartbeatRequestTest",
    f"{REQUESTS}StreamsGroupHeartbeatRequestTest",
    f"{REQUESTS}SyncGroupRequestTest",
    f"{API}GroupCoordinatorIntegrationTest",
    "org.apache.kafka.server.MetadataRequestTest",
    "org.apache.kafka.clients.admin.internals.AllBrokersStrategyIntegrationTest",
    f"{TOOLS}GetOffsetShellTest",
    f"{CONNECT}ConnectorTopicsIntegrationTest",
)
"""All that were tried and pass. They take minutes."""

ALL_STREAMS: Final = (
    f"{STREAMS}EOSUncleanShutdownIntegrationTest",
    f"{STREAMS}EosIntegrationTest",
    f"{STREAMS}FineGrainedAutoResetIntegrationTest",
    f"{STREAMS}GlobalKTableEOSIntegrationTest",
    f"{STREAMS}GlobalKTableIntegrationTest",
    f"{STREAMS}InternalTopicIntegrationTest",
    f"{STREAMS}JoinWithIncompleteMetadataIntegrationTest",
    f"{STREAMS}KTableSourceTopicRestartIntegrationTest",
    f"{STREAMS}LagFetchIntegrationTest",
    f"{STREAMS}PauseResumeIntegrationTest",
    f"{STREAMS}PurgeRepartitionTopicIntegrationTest",
    f"{STREAMS}RegexSourceIntegrationTest",
    "org.apache.kafka.streams.processor.internals.HandlingSourceTopicDeletionIntegrationTest",
)
"""The same with Kafka Streams."""

LEFT_OUT: Final = {
    "GetOffsetShellTest#testGetOffsetsByEarliest(Tiered|Local)Spec": "needs tiered storage",
    "ApiVersionsRequestTest#testApiVersionsRequest(ValidationV0.*|ThroughControllerListener|IncludesUnreleasedApis)?$": (
        "expects the unreleased metadata version 4.4-IV0, and the requests of SASL, SCRAM, ACLs, quotas and delegation tokens"
    ),
    "GroupCoordinatorIntegrationTest#testCoordinatorFailover": "compacts the log by calling the broker's cleaner",
    "GroupCoordinatorIntegrationTest#testGroupCoordinatorPropagatesOffsetsTopicCompressionCodec": "reads the broker's log object",
    "PurgeRepartitionTopicIntegrationTest#shouldRestoreState": "segments of 2,000 bytes, which brokers from 4.0 on refuse (KIP-1030)",
}
"""Patterns for `Class#method`, and why kops does not run these tests."""
