"""Replicas and leaders of partitions: elections, reassignments, log directories.

Source: Kafka's KafkaAdminClient (electLeaders, alterPartitionReassignments, listPartitionReassignments, alterReplicaLogDirs,
describeLogDirs, describeReplicaLogDirs), PartitionReassignment, LogDirDescription, ReplicaInfo, TopicPartitionReplica.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import IntEnum
from typing import TYPE_CHECKING, NamedTuple

from kops.client.admin.core.asking import Node as Ask
from kops.client.admin.core.asking import always, ask, ask_all, by_topic, call, deadline_ms, in_order, is_a, of_controller
from kops.client.admin.core.results import Results, error_of, raise_error
from kops.client.admin.core.values import ByPartition, Partition, as_partitions, by_partition
from kops.client.errors import KafkaError, error_named
from kops.errors import UsageError
from kops.protocol.messages import (
    AlterPartitionReassignmentsRequest,
    AlterPartitionReassignmentsResponse,
    AlterReplicaLogDirsRequest,
    AlterReplicaLogDirsResponse,
    DescribeLogDirsRequest,
    DescribeLogDirsResponse,
    ElectLeadersRequest,
    ElectLeadersResponse,
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsResponse,
)
from kops.protocol.messages.alter_partition_reassignments_request import ReassignablePartition, ReassignableTopic
from kops.protocol.messages.alter_replica_log_dirs_request import AlterReplicaLogDir, AlterReplicaLogDirTopic
from kops.protocol.messages.describe_log_dirs_request import DescribableLogDirTopic
from kops.protocol.messages.elect_leaders_request import TopicPartitions
from kops.protocol.messages.list_partition_reassignments_request import ListPartitionReassignmentsTopics
from kops.records.log_offsets import TopicPartition

if TYPE_CHECKING:
    from kops.client.admin.core.operation import Steps
    from kops.client.client import Client
    from kops.protocol.declaration import Message


class ElectionType(IntEnum):
    """Which replica may be elected: the preferred one, or also one that misses records if no other is there."""

    PREFERRED = 0
    UNCLEAN = 1


@dataclass(frozen=True, slots=True)
class PartitionReassignment:
    """A reassignment on its way."""

    replicas: tuple[int, ...]
    adding_replicas: tuple[int, ...]
    removing_replicas: tuple[int, ...]


class TopicPartitionReplica(NamedTuple):
    """A replica of a partition on a broker."""

    topic: str
    partition: int
    broker_id: int


@dataclass(frozen=True, slots=True)
class ReplicaInfo:
    """A replica in a log directory. A future one is on its way into this directory."""

    size: int
    offset_lag: int
    is_future: bool


@dataclass(frozen=True, slots=True)
class LogDirDescription:
    """A log directory. `error` is why it is offline. Sizes are None if the broker does not report them."""

    error: KafkaError | None
    replica_infos: dict[TopicPartition, ReplicaInfo]
    total_bytes: int | None
    usable_bytes: int | None
    is_cordoned: bool


@dataclass(frozen=True, slots=True)
class ReplicaLogDirInfo:
    """Where a replica is, and where it is moved to. Lags are -1 if there is no such log."""

    current_replica_log_dir: str | None = None
    current_replica_offset_lag: int = -1
    future_replica_log_dir: str | None = None
    future_replica_offset_lag: int = -1


def elect_leaders(
    client: Client,
    election_type: ElectionType,
    partitions: Iterable[Partition] | None = None,
    *,
    timeout: float | None = None,
) -> Steps[Results[TopicPartition, None]]:
    """Elect leaders of partitions. None stands for all partitions; then the outcomes are those of partitions that needed one."""
    if not isinstance(election_type, ElectionType):
        raise UsageError(f"{election_type!r} is not a kind of election; allowed: ElectionType.PREFERRED or ElectionType.UNCLEAN")
    wanted = None if partitions is None else as_partitions(partitions)
    deadline = deadline_ms(client, timeout)

    def build(timeout_ms: int) -> Message:
        entries = (
            None if wanted is None else [TopicPartitions(topic=name, partitions=numbers) for name, numbers in by_topic(wanted).items()]
        )
        return ElectLeadersRequest(election_type=election_type, topic_partitions=entries, timeout_ms=timeout_ms)

    handle = of_controller(client, ElectLeadersResponse, lambda response: (response.error_code,))
    response = yield from ask(client, "elect leaders", Ask.CONTROLLER_OF_BROKERS, build, handle, deadline)
    raise_error(response.error_code)
    return Results(
        {
            TopicPartition(topic.topic, one.partition_id): error_of(one.error_code, one.error_message)
            for topic in response.replica_election_results
            for one in topic.partition_result
        }
    )


def alter_partition_reassignments(
    client: Client,
    reassignments: ByPartition[Sequence[int] | None],
    *,
    allow_replication_factor_change: bool = True,
    timeout: float | None = None,
) -> Steps[Results[TopicPartition, None]]:
    """Give partitions these replicas. None ends a reassignment that is on its way, and brings the former replicas back."""
    wanted = by_partition(reassignments)
    failed: dict[TopicPartition, KafkaError | None] = {
        key: error_named("INVALID_TOPIC_EXCEPTION", f"{key.topic}-{key.partition} is not a partition")
        for key in wanted
        if not key.topic or key.partition < 0
    }
    deadline = deadline_ms(client, timeout)

    def build(timeout_ms: int) -> Message:
        topics: dict[str, list[ReassignablePartition]] = {}
        for key, replicas in sorted(wanted.items(), key=lambda one: one[0]):
            if key not in failed:
                entry = ReassignablePartition(partition_index=key.partition, replicas=None if replicas is None else list(replicas))
                topics.setdefault(key.topic, []).append(entry)
        return AlterPartitionReassignmentsRequest(
            timeout_ms=timeout_ms,
            allow_replication_factor_change=allow_replication_factor_change,
            topics=[ReassignableTopic(name=name, partitions=entries) for name, entries in topics.items()],
        )

    handle = of_controller(client, AlterPartitionReassignmentsResponse, lambda response: (response.error_code,))
    if len(failed) < len(wanted):
        response = yield from ask(client, "alter partition reassignments", Ask.CONTROLLER, build, handle, deadline)
        raise_error(response.error_code, response.error_message)
        failed |= {
            TopicPartition(topic.name, one.partition_index): error_of(one.error_code, one.error_message)
            for topic in response.responses
            for one in topic.partitions
        }
    return in_order("alter partition reassignments", wanted, failed)


def list_partition_reassignments(
    client: Client, partitions: Iterable[Partition] | None = None, *, timeout: float | None = None
) -> Steps[dict[TopicPartition, PartitionReassignment]]:
    """Return the reassignments on their way, of these partitions or of all."""
    wanted = None if partitions is None else by_topic(as_partitions(partitions))
    deadline = deadline_ms(client, timeout)

    def build(timeout_ms: int) -> Message:
        topics = (
            None
            if wanted is None
            else [ListPartitionReassignmentsTopics(name=name, partition_indexes=numbers) for name, numbers in wanted.items()]
        )
        return ListPartitionReassignmentsRequest(timeout_ms=timeout_ms, topics=topics)

    handle = of_controller(client, ListPartitionReassignmentsResponse, lambda response: (response.error_code,))
    response = yield from ask(client, "list partition reassignments", Ask.CONTROLLER, build, handle, deadline)
    raise_error(response.error_code, response.error_message)
    return {
        TopicPartition(topic.name, one.partition_index): PartitionReassignment(
            tuple(one.replicas), tuple(one.adding_replicas), tuple(one.removing_replicas)
        )
        for topic in response.topics
        for one in topic.partitions
    }


# log directories


def alter_replica_log_dirs(
    client: Client, replica_assignment: Mapping[TopicPartitionReplica, str], *, timeout: float | None = None
) -> Steps[Results[TopicPartitionReplica, None]]:
    """Move replicas to other log directories of their brokers, or choose the directory of replicas that are not there yet."""
    deadline = deadline_ms(client, timeout)
    paths: dict[int, dict[str, list[tuple[str, int]]]] = {}
    for replica, path in replica_assignment.items():
        paths.setdefault(replica.broker_id, {}).setdefault(path, []).append((replica.topic, replica.partition))
    calls = {}
    for broker, dirs in paths.items():
        entries = [
            AlterReplicaLogDir(
                path=path,
                topics=[AlterReplicaLogDirTopic(name=name, partitions=numbers) for name, numbers in by_topic(keys).items()],
            )
            for path, keys in dirs.items()
        ]
        request = AlterReplicaLogDirsRequest(dirs=entries)
        handle = is_a(AlterReplicaLogDirsResponse)
        calls[broker] = call(client, "alter replica log dirs", broker, always(request), handle, deadline)
    answers = yield from ask_all(calls)
    found: dict[TopicPartitionReplica, KafkaError | None] = {}
    for broker, answer in answers.items():
        if isinstance(answer, KafkaError):
            found |= {replica: answer for replica in replica_assignment if replica.broker_id == broker}
            continue
        for topic in answer.results:
            for one in topic.partitions:
                found[TopicPartitionReplica(topic.topic_name, one.partition_index, broker)] = error_of(one.error_code)
    return in_order("alter replica log dirs", replica_assignment, found)


def describe_log_dirs(
    client: Client, brokers: Iterable[int], *, timeout: float | None = None
) -> Steps[Results[int, dict[str, LogDirDescription]]]:
    """Return the log directories of brokers by path, with all replicas in them."""
    wanted = list(dict.fromkeys(brokers))
    deadline = deadline_ms(client, timeout)
    handle = is_a(DescribeLogDirsResponse)
    request = DescribeLogDirsRequest(topics=None)
    calls = {broker: call(client, "describe log dirs", broker, always(request), handle, deadline) for broker in wanted}
    answers = yield from ask_all(calls)
    found: dict[int, dict[str, LogDirDescription] | KafkaError] = {}
    for broker, answer in answers.items():
        found[broker] = answer if isinstance(answer, KafkaError) else _log_dirs(answer) or _without_dirs(answer)
    return in_order("describe log dirs", wanted, found)


def _without_dirs(response: DescribeLogDirsResponse) -> KafkaError:
    return error_of(response.error_code) or error_named("CLUSTER_AUTHORIZATION_FAILED")


def _log_dirs(response: DescribeLogDirsResponse) -> dict[str, LogDirDescription]:
    return {
        result.log_dir: LogDirDescription(
            error_of(result.error_code),
            {
                TopicPartition(topic.name, one.partition_index): ReplicaInfo(one.partition_size, one.offset_lag, one.is_future_key)
                for topic in result.topics
                for one in topic.partitions
            },
            result.total_bytes if result.total_bytes >= 0 else None,
            result.usable_bytes if result.usable_bytes >= 0 else None,
            result.is_cordoned,
        )
        for result in response.results
    }


def describe_replica_log_dirs(
    client: Client, replicas: Iterable[TopicPartitionReplica], *, timeout: float | None = None
) -> Steps[Results[TopicPartitionReplica, ReplicaLogDirInfo]]:
    """Return in which log directories replicas are, and to which they are moved."""
    wanted = list(dict.fromkeys(replicas))
    deadline = deadline_ms(client, timeout)
    keys: dict[int, list[tuple[str, int]]] = {}
    for replica in wanted:
        keys.setdefault(replica.broker_id, []).append((replica.topic, replica.partition))
    handle = is_a(DescribeLogDirsResponse)
    calls = {}
    for broker, some in keys.items():
        entries = [DescribableLogDirTopic(topic=name, partitions=numbers) for name, numbers in by_topic(some).items()]
        request = DescribeLogDirsRequest(topics=entries)
        calls[broker] = call(client, "describe replica log dirs", broker, always(request), handle, deadline)
    answers = yield from ask_all(calls)
    found: dict[TopicPartitionReplica, ReplicaLogDirInfo | KafkaError] = {}
    for broker, answer in answers.items():
        if isinstance(answer, KafkaError):
            found |= {replica: answer for replica in wanted if replica.broker_id == broker}
        else:
            found |= _places(broker, keys[broker], _log_dirs(answer))
    return in_order("describe replica log dirs", wanted, found)


def _places(
    broker: int, keys: Iterable[tuple[str, int]], dirs: Mapping[str, LogDirDescription]
) -> dict[TopicPartitionReplica, ReplicaLogDirInfo | KafkaError]:
    found = {TopicPartitionReplica(topic, partition, broker): ReplicaLogDirInfo() for topic, partition in keys}
    for path, description in dirs.items():
        if description.error is not None and description.error.name != "KAFKA_STORAGE_ERROR":
            return dict.fromkeys(found, description.error)
        for key, info in description.replica_infos.items():
            replica = TopicPartitionReplica(key.topic, key.partition, broker)
            if replica not in found:
                continue
            if info.is_future:
                found[replica] = replace(found[replica], future_replica_log_dir=path, future_replica_offset_lag=info.offset_lag)
            else:
                found[replica] = replace(found[replica], current_replica_log_dir=path, current_replica_offset_lag=info.offset_lag)
    return dict(found)
