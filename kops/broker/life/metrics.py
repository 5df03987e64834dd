"""The metrics of a node, by Kafka's names (`kafka.server:type=ReplicaManager,name=LeaderCount`).

Source: Kafka's KafkaBroker, ReplicaManager, LogManager, LogCleaner, Partition, SocketServer, RequestMetrics, BrokerServerMetrics,
ShareSessionCache, ShareGroupMetrics, SharePartitionMetrics, DelayedShareFetch, AddPartitionsToTxnManager, ControllerMetadataMetrics and
AssignmentsManager. They are computed on request, from numbers that the parts keep.
"""

from __future__ import annotations

import re
from functools import partial
from typing import TYPE_CHECKING, Final

from kops.broker.network.request_metrics import RequestMetrics, request_counts
from kops.metadata.partition_registration import NO_LEADER
from kops.storage.cleaning.log_cleaner import LogCleaner

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping

    from kops.broker.life.broker_server import BrokerServer
    from kops.broker.network.socket_server import SocketServer
    from kops.broker.shares.manager import SharePartitionManager
    from kops.broker.transactions.service import TransactionService
    from kops.coordinators.share.partition.share_partition import SharePartition
    from kops.metadata.image.metadata_image import MetadataImage

_REPLICAS: Final = "kafka.server:type=ReplicaManager,name="
_CLEANER: Final = "kafka.log:type=LogCleaner,name="
_SHARE_SESSIONS: Final = "kafka.server:type=ShareSessionCache,name="
_SHARE_PARTITIONS: Final = "kafka.server:type=SharePartitionMetrics,name="
_PLAIN_TAG: Final = re.compile(r"[\w\-%. \t]*", re.ASCII)
_CONTROLLER: Final = "kafka.controller:type=KafkaController,name="


def _partitions(image: MetadataImage) -> int:
    return sum(len(topic.partitions) for topic in image.topics.by_id.values())


def _without_leader(image: MetadataImage) -> int:
    return sum(partition.leader == NO_LEADER for topic in image.topics.by_id.values() for partition in topic.partitions.values())


def _sum_of(name: str) -> Callable[[BrokerServer], float]:
    return lambda broker: sum(getattr(partition, name) for partition in broker.parts.replica_manager.hosted.online.values())


def _led(name: str) -> Callable[[BrokerServer], float]:
    return lambda broker: broker.parts.replica_manager.count_leaders(lambda partition: bool(getattr(partition, name)))


def _acknowledged(kind: str, shares: SharePartitionManager) -> float:
    return shares.acknowledged_counts[kind]


BROKER_GAUGES: Final[Mapping[str, Callable[[BrokerServer], float]]] = {
    "kafka.server:type=KafkaServer,name=BrokerState": lambda broker: broker.state.value,
    f"{_REPLICAS}PartitionCount": lambda broker: broker.parts.replica_manager.partition_count,
    f"{_REPLICAS}LeaderCount": lambda broker: broker.parts.replica_manager.leader_count,
    f"{_REPLICAS}OfflineReplicaCount": lambda broker: broker.parts.replica_manager.offline_count,
    f"{_REPLICAS}UnderReplicatedPartitions": lambda broker: broker.parts.replica_manager.count_leaders(
        lambda each: each.is_under_replicated
    ),
    f"{_REPLICAS}UnderMinIsrPartitionCount": _led("is_under_min_isr"),
    f"{_REPLICAS}AtMinIsrPartitionCount": _led("is_at_min_isr"),
    f"{_REPLICAS}IsrExpandsPerSec": _sum_of("isr_expands"),
    f"{_REPLICAS}IsrShrinksPerSec": _sum_of("isr_shrinks"),
    f"{_REPLICAS}FailedIsrUpdatesPerSec": _sum_of("failed_isr_updates"),
    "kafka.server:type=ReplicaFetcherManager,name=FailedPartitionsCount,clientId=Replica": lambda broker: len(
        broker.parts.replica_manager.fetchers.failed
    ),
    "kafka.server:type=AssignmentsManager,name=QueuedReplicaToDirAssignments": lambda broker: broker.assignments.pending_count,
    "kafka.log:type=LogManager,name=OfflineLogDirectoryCount": lambda broker: len(broker.parts.logs.dirs.offline),
    "kafka.log:type=LogManager,name=CordonedLogDirectoryCount": lambda broker: len(broker.parts.logs.dirs.cordoned),
    "kafka.log:type=LogManager,name=remainingLogsToRecover": lambda broker: sum(each.remaining_logs for each in broker.recovery),
    "kafka.log:type=LogManager,name=remainingSegmentsToRecover": lambda broker: sum(each.remaining_segments for each in broker.recovery),
    "kafka.server:type=socket-server-metrics,name=connection-count": lambda broker: broker.parts.socket_server.connection_count,
    "kafka.network:type=SocketServer,name=MemoryPoolUsed": lambda broker: (
        broker.parts.socket_server.memory.size - broker.parts.socket_server.memory.available
    ),
    "kafka.server:type=broker-metadata-metrics,name=last-applied-record-offset": lambda broker: broker.parts.cache.image.offset,
}
"""The metrics of a broker. Kafka's rates (`…PerSec`) are given as the number since the start, which is their `Count`."""
CLEANER_GAUGES: Final[Mapping[str, Callable[[LogCleaner], float]]] = {
    f"{_CLEANER}max-buffer-utilization-percent": lambda cleaner: cleaner.max_buffer_utilization_percent,
    f"{_CLEANER}cleaner-recopy-percent": lambda cleaner: cleaner.cleaner_recopy_percent,
    f"{_CLEANER}max-clean-time-secs": lambda cleaner: cleaner.max_clean_time_s,
    f"{_CLEANER}max-compaction-delay-secs": lambda cleaner: cleaner.max_compaction_delay_s,
    "kafka.log:type=LogCleanerManager,name=max-dirty-percent": lambda cleaner: cleaner.max_dirty_percent,
    "kafka.log:type=LogCleanerManager,name=time-since-last-run-ms": lambda cleaner: cleaner.time_since_last_run_ms,
}
"""The metrics of its cleaner, if it has one."""
SHARE_GAUGES: Final[Mapping[str, Callable[[SharePartitionManager], float]]] = {
    f"{_SHARE_SESSIONS}ShareSessionsCount": lambda shares: len(shares.sessions),
    f"{_SHARE_SESSIONS}SharePartitionsCount": lambda shares: shares.sessions.partition_count,
    f"{_SHARE_SESSIONS}ShareSessionEvictionsPerSec": lambda shares: shares.sessions.eviction_count,
    "kafka.server:type=DelayedShareFetchMetrics,name=ExpiresPerSec": lambda shares: shares.expired_count,
    **{
        f"kafka.server:type=ShareGroupMetrics,name=RecordAcknowledgementsPerSec,ackType={kind}": partial(_acknowledged, kind)
        for kind in ("Accept", "Release", "Reject", "Renew")
    },
}
"""The metrics of its share groups, after the first request of a member."""
SHARE_PARTITION_GAUGES: Final[Mapping[str, Callable[[SharePartition], float]]] = {
    "AcquisitionLockTimeoutPerSec": lambda partition: partition.expired_count,
    "InFlightMessageCount": lambda partition: partition.cache.in_flight_count,
    "InFlightBatchCount": lambda partition: len(partition.cache.batches),
}
"""The metrics of each of its share partitions. Kafka's histograms of share groups and their partitions are not kept."""
VERIFICATION_FAILURES: Final = "kafka.server:type=AddPartitionsToTxnManager,name=VerificationFailureRate"
VERIFICATION_TIMES: Final = "kafka.server:type=AddPartitionsToTxnManager,name=VerificationTimeMs"
"""The verification of transactions by leaders, after the first use of the transaction coordinator."""
CLUSTER_GAUGES: Final[Mapping[str, Callable[[MetadataImage], float]]] = {
    f"{_CONTROLLER}ActiveBrokerCount": lambda image: sum(not broker.fenced for broker in image.cluster.brokers.values()),
    f"{_CONTROLLER}FencedBrokerCount": lambda image: sum(broker.fenced for broker in image.cluster.brokers.values()),
    f"{_CONTROLLER}GlobalTopicCount": lambda image: len(image.topics.by_id),
    f"{_CONTROLLER}GlobalPartitionCount": _partitions,
    f"{_CONTROLLER}OfflinePartitionsCount": _without_leader,
}
"""The metrics of a controller about the metadata."""
ACTIVE_CONTROLLER_COUNT: Final = f"{_CONTROLLER}ActiveControllerCount"


def broker_metrics(broker: BrokerServer) -> dict[str, float]:
    """A broker's present metrics. Those of its replicas are included once all its parts exist."""
    if not broker.is_started:
        return {"kafka.server:type=KafkaServer,name=BrokerState": broker.state.value}
    found = {name: gauge(broker) for name, gauge in BROKER_GAUGES.items()}
    for part in broker.parts.replica_manager.topic_metrics():
        found |= part
    cleaner = broker.parts.logs.cleaner
    if isinstance(cleaner, LogCleaner):
        found |= {name: gauge(cleaner) for name, gauge in CLEANER_GAUGES.items()}
    transactions = broker.parts.transactions.known
    if transactions is not None:
        found |= verification_counts(transactions)
        found |= {f"{VERIFICATION_TIMES}:{name}": value for name, value in transactions.verification_times.attributes().items()}
    shares = broker.parts.shares.known
    if shares is not None:
        found |= {name: gauge(shares) for name, gauge in SHARE_GAUGES.items()}
        for share_partition in shares.partitions:
            found |= share_partition_metrics(share_partition)
    return found


def verification_counts(transactions: TransactionService) -> dict[str, float]:
    """The number of partitions whose transaction could not be verified."""
    return {VERIFICATION_FAILURES: transactions.verifications.failure_count}


def share_partition_metrics(share_partition: SharePartition) -> dict[str, float]:
    """The metrics of one share partition."""
    key = share_partition.key
    tags = f"group={_tag(key.group_id)},topic={share_partition.topic},partition={key.partition}"
    return {f"{_SHARE_PARTITIONS}{name},{tags}": gauge(share_partition) for name, gauge in SHARE_PARTITION_GAUGES.items()}


def _tag(value: str) -> str:
    """A value in the form of an MBean's name (Kafka's Sanitizer.jmxSanitize, Java's ObjectName.quote)."""
    if _PLAIN_TAG.fullmatch(value):
        return value
    return '"' + re.sub(r'([\\*?"])', r"\\\1", value).replace("\n", "\\n") + '"'


def cluster_metrics(image: MetadataImage) -> dict[str, float]:
    """A controller's metrics about the metadata."""
    return {name: gauge(image) for name, gauge in CLUSTER_GAUGES.items()}


def rate_counts(broker: BrokerServer | None, servers: Iterable[SocketServer]) -> Iterator[dict[str, float]]:
    """The counters of a node for which Kafka's MBeans also have rates, in parts: requests, errors, traffic of topics."""
    yield request_counts(server.requests for server in servers)
    if broker is not None and broker.is_started:
        yield from broker.parts.replica_manager.topic_metrics()
        if broker.parts.transactions.known is not None:
            yield verification_counts(broker.parts.transactions.known)


def request_metrics(servers: Iterable[SocketServer]) -> dict[str, float]:
    """The request metrics of a node. As in Kafka, requests of its broker and of its controller are counted together."""
    counted = [server.requests for server in servers]
    return request_counts(counted) | RequestMetrics(counted).histograms()
