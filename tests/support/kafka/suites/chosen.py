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
    f"{REQUESTS}EdgeCaseRequestTest",
    f"{REQUESTS}ProduceRequestTest",
)
"""Tests of every run of the slow ring, with the clients of Kafka's release. The tests of tools are not among them: they leave threads of
admin clients, which TransactionsTest refuses if it runs in the same JVM soon after."""

SHORT_STREAMS: Final = (
    f"{STREAMS}GlobalKTableIntegrationTest",
    f"{STREAMS}EosIntegrationTest#shouldBeAbleToPerformMultipleTransactions(java.lang.String)",
)
"""The same with Kafka Streams."""

ALL_TESTKIT: Final = (
    *(name for name in SHORT_TESTKIT if "#" not in name),
    f"{TOOLS}DeleteRecordsCommandTest",
    f"{TOOLS}streams.DescribeStreamsGroupTest",
    f"{TOOLS}streams.ListStreamsGroupTest",
    f"{REQUESTS}AddPartitionsToTxnRequestServerTest",
    f"{REQUESTS}AlterReplicaLogDirsRequestTest",
    f"{REQUESTS}ApiVersionsRequestTest",
    f"{REQUESTS}ApiVersionsResponseIntegrationTest",
    f"{REQUESTS}ConsumerGroupHeartbeatRequestTest",
    f"{REQUESTS}ConsumerProtocolMigrationTest",
    f"{REQUESTS}DeleteGroupsRequestTest",
    f"{REQUESTS}DeleteRecordsRequestTest",
    f"{REQUESTS}DeleteTopicsRequestTest",
    f"{REQUESTS}DeleteTopicsRequestWithDeletionDisabledTest",
    f"{REQUESTS}DescribeClusterRequestTest",
    f"{REQUESTS}DescribeGroupsRequestTest",
    f"{REQUESTS}FetchRequestMaxBytesTest",
    f"{REQUESTS}FetchRequestTest",
    f"{REQUESTS}HeartbeatRequestTest",
    f"{REQUESTS}JoinGroupRequestTest",
    f"{REQUESTS}LeaveGroupRequestTest",
    f"{REQUESTS}ListGroupsRequestTest",
    f"{REQUESTS}epoch.LeaderEpochIntegrationTest",
    f"{REQUESTS}ListOffsetsRequestTest",
    f"{REQUESTS}LogOffsetTest",
    f"{REQUESTS}OffsetCommitRequestTest",
    f"{REQUESTS}OffsetDeleteRequestTest",
    f"{REQUESTS}OffsetFetchRequestTest",
    f"{REQUESTS}OffsetsForLeaderEpochRequestTest",
    f"{REQUESTS}ReplicaFetchTest",
    f"{REQUESTS}ShareFetchAcknowledgeRequestTest",
    f"{REQUESTS}ShareGroupDescribeRequestTest",
    f"{REQUESTS}ShareGroupHeartbeatRequestTest",
    f"{REQUESTS}StreamsGroupHeartbeatRequestTest",
    f"{REQUESTS}SyncGroupRequestTest",
    f"{API}GroupCoordinatorIntegrationTest",
    f"{API}PlaintextAdminIntegrationTest",
    f"{API}PlaintextConsumerAssignorsTest",
    f"{API}PlaintextProducerSendTest",
    f"{API}TransactionsBounceTest",
    f"{API}TransactionsTest",
    "kafka.admin.AddPartitionsTest",
    "org.apache.kafka.server.MetadataRequestTest",
    "org.apache.kafka.clients.admin.internals.AllBrokersStrategyIntegrationTest",
    f"{TOOLS}BrokerApiVersionsCommandTest",
    f"{TOOLS}ClusterToolTest",
    f"{TOOLS}ConfigCommandIntegrationTest",
    f"{TOOLS}FeatureCommandTest",
    f"{TOOLS}GetOffsetShellTest",
    f"{TOOLS}GroupsCommandTest",
    f"{TOOLS}LeaderElectionCommandTest",
    f"{TOOLS}LogDirsCommandTest",
    f"{TOOLS}MetadataQuorumCommandTest",
    f"{TOOLS}TopicCommandTest",
    f"{TOOLS}consumer.ConsoleConsumerTest",
    f"{TOOLS}consumer.group.DeleteConsumerGroupsTest",
    f"{TOOLS}consumer.group.DeleteOffsetsConsumerGroupCommandIntegrationTest",
    f"{TOOLS}consumer.group.DescribeConsumerGroupTest",
    f"{TOOLS}consumer.group.ListConsumerGroupTest",
    f"{TOOLS}consumer.group.ResetConsumerGroupOffsetTest",
    f"{TOOLS}reassign.ReassignPartitionsCommandTest",
    f"{TOOLS}streams.DeleteStreamsGroupOffsetTest",
    f"{TOOLS}streams.DeleteStreamsGroupTest",
    f"{TOOLS}streams.ResetStreamsGroupOffsetTest",
    f"{CONNECT}ConnectWorkerIntegrationTest",
    f"{CONNECT}ConnectorClientPolicyIntegrationTest",
    f"{CONNECT}ConnectorRestartApiIntegrationTest",
    f"{CONNECT}ConnectorTopicsIntegrationTest",
    f"{CONNECT}ErrorHandlingIntegrationTest",
    f"{CONNECT}ExactlyOnceSourceIntegrationTest",
    f"{CONNECT}ExampleConnectIntegrationTest",
    f"{CONNECT}InternalTopicsIntegrationTest",
    f"{CONNECT}MonitorableSinkIntegrationTest",
    f"{CONNECT}MonitorableSourceIntegrationTest",
    f"{CONNECT}OffsetsApiIntegrationTest",
    f"{CONNECT}RebalanceSourceConnectorsIntegrationTest",
    f"{CONNECT}RestExtensionIntegrationTest",
    f"{CONNECT}SessionedProtocolIntegrationTest",
    f"{CONNECT}SinkConnectorsIntegrationTest",
    f"{CONNECT}SourceConnectorsIntegrationTest",
    f"{CONNECT}StandaloneWorkerIntegrationTest",
    f"{CONNECT}TransformationIntegrationTest",
)
"""All that were tried and pass. They take minutes."""

SHORT_OLDER: Final = (f"{API}PlaintextConsumerAssignTest",)
"""The same with the tests of 4.0.0."""

ALL_OLDER: Final = (
    *SHORT_OLDER,
    "integration.kafka.api.PlaintextConsumerCallbackTest",
    f"{API}PlaintextConsumerCommitTest",
    f"{API}PlaintextConsumerFetchTest",
    f"{API}PlaintextConsumerPollTest",
    f"{API}PlaintextConsumerSubscriptionTest",
    f"{API}PlaintextConsumerTest",
    f"{API}ConsumerBounceTest",
    f"{API}ConsumerTopicCreationTest",
    f"{API}LogAppendTimeTest",
    f"{API}ProducerFailureHandlingTest",
    f"{API}ProducerIdExpirationTest",
    f"{API}ProducerSendWhileDeletionTest",
    f"{API}TransactionsExpirationTest",
    f"{API}TransactionsWithMaxInFlightOneTest",
)
"""The same with the tests of 4.0.0."""

ALL_STREAMS: Final = (
    f"{STREAMS}AdjustStreamThreadCountTest",
    f"{STREAMS}EOSUncleanShutdownIntegrationTest",
    f"{STREAMS}EmitOnChangeIntegrationTest",
    f"{STREAMS}EosIntegrationTest",
    f"{STREAMS}FineGrainedAutoResetIntegrationTest",
    f"{STREAMS}GlobalKTableEOSIntegrationTest",
    f"{STREAMS}GlobalKTableIntegrationTest",
    f"{STREAMS}InternalTopicIntegrationTest",
    f"{STREAMS}JoinWithIncompleteMetadataIntegrationTest",
    f"{STREAMS}KStreamAggregationIntegrationTest",
    f"{STREAMS}KStreamRepartitionIntegrationTest",
    f"{STREAMS}KTableSourceTopicRestartIntegrationTest",
    f"{STREAMS}LagFetchIntegrationTest",
    f"{STREAMS}PauseResumeIntegrationTest",
    f"{STREAMS}PositionRestartIntegrationTest",
    f"{STREAMS}PurgeRepartitionTopicIntegrationTest",
    f"{STREAMS}RebalanceIntegrationTest",
    f"{STREAMS}RegexSourceIntegrationTest",
    f"{STREAMS}RestoreIntegrationTest",
    f"{STREAMS}SmokeTestDriverIntegrationTest",
    f"{STREAMS}StandbyTaskEOSIntegrationTest",
    f"{STREAMS}StreamsUncaughtExceptionHandlerIntegrationTest",
    f"{STREAMS}SuppressionDurabilityIntegrationTest",
    f"{STREAMS}TaskAssignorIntegrationTest",
    "org.apache.kafka.streams.processor.internals.HandlingSourceTopicDeletionIntegrationTest",
)
"""The same with Kafka Streams."""

LEFT_OUT: Final = {
    "GetOffsetShellTest#testGetOffsetsByEarliest(Tiered|Local)Spec": "needs tiered storage",
    "ApiVersionsRequestTest#testApiVersionsRequest(ValidationV0.*|ThroughControllerListener|IncludesUnreleasedApis)?$": (
        "expects the unreleased metadata version 4.4-IV0, and the requests of SASL, SCRAM, ACLs, quotas and delegation tokens"
    ),
    "AlterReplicaLogDirsRequestTest#testAlterReplicaLogDirsRequestErrorCode": "breaks a directory of the broker in the JVM of the test",
    "ConnectWorkerIntegrationTest#testPollTimeoutExpiry": "reads the messages of Kafka's logger",
    "ExactlyOnceSourceIntegrationTest#testTasksFailOnInabilityToFence": "needs ACLs",
    "LeaderEpochIntegrationTest#shouldAddCurrentLeaderEpochToMessages": "reads the broker's log object",
    "PlaintextAdminIntegrationTest#test.*Log4j": "names loggers of Java",
    "PlaintextAdminIntegrationTest#test(AclOperations|.*Quota.*|DescribeUserScramCredentials)$": "needs ACLs, quotas or SCRAM",
    "PlaintextAdminIntegrationTest#testIncludeDocumentation": "reads the documentation of settings, which kops does not have",
    "PlaintextAdminIntegrationTest#test(CreateTopicsReturnsConfigs|GroupConfigEvaluated|NullConfigs)": "reads the settings objects",
    "PlaintextAdminIntegrationTest#testAdminClientHandlingBadIP": "connects to an address outside the machine",
    "TransactionsTest#test(BumpTransactionalEpoch|FailureToFenceEpoch)": "reads the producers' state in the broker's log object",
    "LogOffsetTest#test(FetchOffsetByTimestampForMaxTimestamp(After|With)|GetOffsets(After|Before))": "appends to the broker's log object",
    "BrokerApiVersionsCommandTest#testBrokerApiVersionsCommandOutput": "expects the requests of ACLs, quotas and delegation tokens",
    "ConfigCommandIntegrationTest#testBrokerLoggerConfigUpdate": "names a logger of Java",
    "ConfigCommandIntegrationTest#testNullStatusOnKraftCommandAlterUserQuota": "sets a client quota",
    "ConfigCommandIntegrationTest#testUpdateBrokerConfigNotAffectedByInvalidConfig": "reads the broker's settings object",
    "FeatureCommandTest#test(DescribeWith(KRaft|Unstable).*|DowngradeMetadataVersionWithKRaft)$": "expects the unreleased 4.4-IV0",
    "ProduceRequestTest#testCorruptLz4ProduceRequest": "reads a metric of the broker in the JVM of the test",
    "GroupCoordinatorIntegrationTest#testCoordinatorFailover": "compacts the log by calling the broker's cleaner",
    "GroupCoordinatorIntegrationTest#testGroupCoordinatorPropagatesOffsetsTopicCompressionCodec": "reads the broker's log object",
    "ConsumerBounceTest#testConsumerReceivesFatalExceptionWhenGroupPassesMaxSize": "fails with Kafka 4.3, too, for protocol consumer",
    "ConsumerBounceTest#testSeekAndCommitWithBrokerFailures": "reads the broker's log object",
    "PlaintextConsumerCommitTest#testCommitAsyncCompletedBeforeConsumerCloses": "fails with Kafka 4.3, too",
    "PlaintextConsumerFetchTest#testFetchOutOfRangeOffsetResetConfigLatest": "gives a poll 50 ms; fails with Kafka 4.3 under load, too",
    "PlaintextConsumerTest#testHeadersSerializerDeserializer": "fails with Kafka 4.3, too: its serializer cannot be loaded",
    "PlaintextConsumerTest#testQuotaMetricsNotCreatedIfNoQuotasConfigured": "reads the broker's metrics",
    "ProducerIdExpirationTest#testDynamicProducerIdExpirationMs": "reads the broker's settings object",
    "AdjustStreamThreadCountTest#shouldResizeCacheAfter": "reads the messages of Kafka's logger",
    "PurgeRepartitionTopicIntegrationTest#shouldRestoreState": "segments of 2,000 bytes, which brokers from 4.0 on refuse (KIP-1030)",
}
"""Patterns for `Class#method`, and why kops does not run these tests."""
