"""Kafka's settings of the coordinators of groups, share groups and transactions, and the effect of each in kops.

Sources (names, types, defaults, limits): Kafka's GroupCoordinatorConfig, ShareGroupConfig, ShareCoordinatorConfig, TransactionLogConfig,
TransactionStateManagerConfig, AddPartitionsToTxnConfig.
"""

from __future__ import annotations

from typing import Final

from kops.config.broker_keys.marks import NO_BATCH_BUFFER, NOT_PURGED, ONE_LOOP, USED, Setting
from kops.config.values.definition import any_list, at_least, between, list_of, one_of_ignoring_case
from kops.config.values.java import INT_MAX

GROUP_COORDINATOR: Final = (
    Setting(
        "group.coordinator.rebalance.protocols",
        "list",
        ["classic", "consumer", "streams"],
        list_of("consumer", "classic", "share", "streams", empty=False),
        "medium",
        USED,
    ),
    Setting("group.coordinator.threads", "int", 4, at_least(1), "high", ONE_LOOP),
    Setting("group.coordinator.background.threads", "int", 2, at_least(1), "high", ONE_LOOP),
    Setting("group.coordinator.append.linger.ms", "int", -1, at_least(-1), "medium", USED),
    Setting("offsets.commit.timeout.ms", "int", 5000, at_least(1), "high", USED),
    Setting("offsets.load.buffer.size", "int", 5 << 20, at_least(1), "high", USED),
    Setting("offsets.topic.replication.factor", "short", 3, at_least(1), "high", USED),
    Setting("offsets.topic.num.partitions", "int", 50, at_least(1), "high", USED),
    Setting("offsets.topic.segment.bytes", "int", 100 << 20, at_least(1), "high", USED),
    Setting("offsets.topic.compression.codec", "int", 0, None, "high", USED),
    Setting("group.coordinator.cached.buffer.max.bytes", "int", 1_048_588, at_least(512 << 10), "medium", NO_BATCH_BUFFER),
    Setting("offset.metadata.max.bytes", "int", 4096, None, "high", USED),
    Setting("offsets.retention.minutes", "int", 10_080, at_least(1), "high", USED),
    Setting("offsets.retention.check.interval.ms", "long", 600_000, at_least(1), "high", USED),
    Setting("group.min.session.timeout.ms", "int", 6000, None, "medium", USED),
    Setting("group.max.session.timeout.ms", "int", 1_800_000, None, "medium", USED),
    Setting("group.initial.rebalance.delay.ms", "int", 3000, None, "medium", USED),
    Setting("group.max.size", "int", INT_MAX, at_least(1), "medium", USED),
    Setting("group.consumer.session.timeout.ms", "int", 45_000, at_least(1), "medium", USED),
    Setting("group.consumer.min.session.timeout.ms", "int", 45_000, at_least(1), "medium", USED),
    Setting("group.consumer.max.session.timeout.ms", "int", 60_000, at_least(1), "medium", USED),
    Setting("group.consumer.heartbeat.interval.ms", "int", 5000, at_least(1), "medium", USED),
    Setting("group.consumer.min.heartbeat.interval.ms", "int", 5000, at_least(1), "medium", USED),
    Setting("group.consumer.max.heartbeat.interval.ms", "int", 15_000, at_least(1), "medium", USED),
    Setting("group.consumer.max.size", "int", INT_MAX, at_least(1), "medium", USED),
    Setting("group.consumer.assignors", "list", ["uniform", "range"], any_list(empty=False, null=False), "medium", USED),
    Setting(
        "group.consumer.migration.policy",
        "string",
        "bidirectional",
        one_of_ignoring_case("DISABLED", "DOWNGRADE", "UPGRADE", "BIDIRECTIONAL"),
        "medium",
        USED,
    ),
    Setting("group.consumer.assignment.interval.ms", "int", 1000, at_least(0), "medium", USED),
    Setting("group.consumer.min.assignment.interval.ms", "int", 0, at_least(0), "medium", USED),
    Setting("group.consumer.max.assignment.interval.ms", "int", 15_000, at_least(0), "medium", USED),
    Setting("group.consumer.regex.refresh.interval.ms", "int", 600_000, at_least(10_000), "medium", USED, internal=True),
    Setting("group.share.session.timeout.ms", "int", 45_000, at_least(1), "medium", USED),
    Setting("group.share.min.session.timeout.ms", "int", 45_000, at_least(1), "medium", USED),
    Setting("group.share.max.session.timeout.ms", "int", 60_000, at_least(1), "medium", USED),
    Setting("group.share.heartbeat.interval.ms", "int", 5000, at_least(1), "medium", USED),
    Setting("group.share.min.heartbeat.interval.ms", "int", 5000, at_least(1), "medium", USED),
    Setting("group.share.max.heartbeat.interval.ms", "int", 15_000, at_least(1), "medium", USED),
    Setting("group.share.max.size", "int", 200, between(1, 1000), "medium", USED),
    Setting("group.share.assignors", "list", ["simple"], any_list(empty=False, null=False), "medium", USED),
    Setting("group.share.assignment.interval.ms", "int", 1000, at_least(0), "medium", USED),
    Setting("group.share.min.assignment.interval.ms", "int", 0, at_least(0), "medium", USED),
    Setting("group.share.max.assignment.interval.ms", "int", 15_000, at_least(0), "medium", USED),
    Setting("group.share.initialize.retry.interval.ms", "int", 30_000, at_least(1), "low", USED, internal=True),
    Setting("group.streams.session.timeout.ms", "int", 45_000, at_least(1), "medium", USED),
    Setting("group.streams.min.session.timeout.ms", "int", 45_000, at_least(1), "medium", USED),
    Setting("group.streams.max.session.timeout.ms", "int", 60_000, at_least(1), "medium", USED),
    Setting("group.streams.heartbeat.interval.ms", "int", 5000, at_least(1), "medium", USED),
    Setting("group.streams.min.heartbeat.interval.ms", "int", 5000, at_least(1), "medium", USED),
    Setting("group.streams.max.heartbeat.interval.ms", "int", 15_000, at_least(1), "medium", USED),
    Setting("group.streams.max.size", "int", INT_MAX, at_least(1), "medium", USED),
    Setting("group.streams.num.standby.replicas", "int", 0, at_least(0), "medium", USED),
    Setting("group.streams.max.standby.replicas", "int", 2, at_least(0), "medium", USED),
    Setting("group.streams.initial.rebalance.delay.ms", "int", 3000, at_least(0), "medium", USED),
    Setting("group.streams.assignment.interval.ms", "int", 1000, at_least(0), "medium", USED),
    Setting("group.streams.min.assignment.interval.ms", "int", 0, at_least(0), "medium", USED),
    Setting("group.streams.max.assignment.interval.ms", "int", 15_000, at_least(0), "medium", USED),
)

SHARE_GROUP: Final = (
    Setting("group.share.delivery.count.limit", "int", 5, between(2, 10), "medium", USED),
    Setting("group.share.max.delivery.count.limit", "int", 10, between(5, 25), "medium", USED),
    Setting("group.share.min.delivery.count.limit", "int", 2, between(2, 5), "medium", USED),
    Setting("group.share.record.lock.duration.ms", "int", 30_000, between(1000, 3_600_000), "medium", USED),
    Setting("group.share.min.record.lock.duration.ms", "int", 15_000, between(1000, 30_000), "medium", USED),
    Setting("group.share.max.record.lock.duration.ms", "int", 60_000, between(30_000, 3_600_000), "medium", USED),
    Setting("group.share.partition.max.record.locks", "int", 2000, between(100, 10_000), "medium", USED),
    Setting("group.share.max.partition.max.record.locks", "int", 4000, between(2000, 10_000), "medium", USED),
    Setting("group.share.min.partition.max.record.locks", "int", 100, between(100, 2000), "medium", USED),
    Setting("share.fetch.purgatory.purge.interval.requests", "int", 1000, None, "medium", NOT_PURGED),
    Setting("group.share.max.share.sessions", "int", 2000, at_least(1), "medium", USED),
    Setting(
        "group.share.persister.class.name",
        "string",
        "org.apache.kafka.server.share.persister.DefaultStatePersister",
        None,
        "medium",
        USED,
        internal=True,
    ),
)

SHARE_COORDINATOR: Final = (
    Setting("share.coordinator.state.topic.num.partitions", "int", 50, at_least(1), "high", USED),
    Setting("share.coordinator.state.topic.replication.factor", "short", 3, at_least(1), "high", USED),
    Setting("share.coordinator.state.topic.min.isr", "short", 2, at_least(1), "high", USED),
    Setting("share.coordinator.state.topic.segment.bytes", "int", 100 << 20, at_least(1), "high", USED),
    Setting("share.coordinator.threads", "int", 1, at_least(1), "medium", ONE_LOOP),
    Setting("share.coordinator.snapshot.update.records.per.snapshot", "int", 500, between(0, 500), "medium", USED),
    Setting("share.coordinator.load.buffer.size", "int", 5 << 20, at_least(1), "high", USED),
    Setting("share.coordinator.state.topic.compression.codec", "int", 0, None, "high", USED),
    Setting("share.coordinator.append.linger.ms", "int", -1, at_least(-1), "medium", USED),
    Setting("share.coordinator.write.timeout.ms", "int", 5000, at_least(1), "high", USED),
    Setting("share.coordinator.state.topic.prune.interval.ms", "int", 300_000, at_least(1), "low", USED, internal=True),
    Setting("share.coordinator.cold.partition.snapshot.interval.ms", "int", 300_000, at_least(1), "low", USED, internal=True),
    Setting("share.coordinator.cached.buffer.max.bytes", "int", 1_048_588, at_least(512 << 10), "medium", NO_BATCH_BUFFER),
)

TRANSACTIONS: Final = (
    Setting("transaction.state.log.min.isr", "int", 2, at_least(1), "high", USED),
    Setting("transaction.state.log.load.buffer.size", "int", 5 << 20, at_least(1), "high", USED),
    Setting("transaction.state.log.replication.factor", "short", 3, at_least(1), "high", USED),
    Setting("transaction.state.log.num.partitions", "int", 50, at_least(1), "high", USED),
    Setting("transaction.state.log.segment.bytes", "int", 100 << 20, at_least(1), "high", USED),
    Setting("transaction.partition.verification.enable", "boolean", True, None, "low", USED),
    Setting("producer.id.expiration.ms", "int", 84375 << 10, at_least(1), "low", USED),
    Setting("producer.id.expiration.check.interval.ms", "int", 600_000, at_least(1), "low", USED, internal=True),
    Setting("transactional.id.expiration.ms", "int", 590625 << 10, at_least(1), "high", USED),
    Setting("transaction.max.timeout.ms", "int", 900_000, at_least(1), "high", USED),
    Setting("transaction.abort.timed.out.transaction.cleanup.interval.ms", "int", 10_000, at_least(1), "low", USED),
    Setting("transaction.remove.expired.transaction.cleanup.interval.ms", "int", 3_600_000, at_least(1), "low", USED),
    Setting("transaction.two.phase.commit.enable", "boolean", False, None, "low", USED),
)

ADD_PARTITIONS_TO_TXN: Final = (
    Setting("add.partitions.to.txn.retry.backoff.max.ms", "int", 100, at_least(0), "high", USED),
    Setting("add.partitions.to.txn.retry.backoff.ms", "int", 20, at_least(1), "high", USED),
)
