"""Operations on partitions and their replicas: elections, reassignments, log directories.

Source: Kafka's KafkaAdminClient (electLeaders, alterPartitionReassignments, listPartitionReassignments, describeLogDirs,
alterReplicaLogDirs), LeaderElectionCommand (the JSON file), LogDirsCommand.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, NamedTuple

from kops.client.client import Call, Client, To, check, error_of
from kops.client.offsets import json_entries, json_field
from kops.errors import ApiError, DecodeError, KopsError
from kops.records.log_offsets import TopicPartition

if TYPE_CHECKING:
    from kops.client.topics import TopicInfo
    from kops.protocol.declaration import Message

PREFERRED, UNCLEAN = 0, 1
ELECTION_TYPES: Final = {"preferred": PREFERRED, "unclean": UNCLEAN}
PartitionOutcomes = dict[TopicPartition, ApiError | None]


class Replica(NamedTuple):
    """A partition on a broker."""

    topic: str
    partition: int
    broker: int


@dataclass(frozen=True, slots=True)
class Reassignment:
    """A reassignment in progress: all replicas, those to be added and those to be removed."""

    replicas: list[int]
    adding: list[int]
    removing: list[int]


class ReplicaInLogDir(NamedTuple):
    """A replica in a log directory. Sizes are bytes. `offset_lag` is the distance to the high watermark, or for a future replica to the
    current one.
    """

    key: TopicPartition
    size: int
    offset_lag: int
    is_future: bool


@dataclass(slots=True)
class LogDirInfo:
    """A log directory of a broker. Sizes in bytes are None if the broker does not report them."""

    path: str
    error: str | None
    total_bytes: int | None
    usable_bytes: int | None
    is_cordoned: bool
    replicas: list[ReplicaInLogDir] = field(default_factory=list)


def _grouped(keys: Iterable[TopicPartition]) -> dict[str, list[int]]:
    topics: dict[str, list[int]] = {}
    for key in keys:
        topics.setdefault(key.topic, []).append(key.partition)
    return topics


# elections


def elect_leaders(client: Client, election_type: int, keys: Sequence[TopicPartition] | None) -> PartitionOutcomes:
    """Elect leaders of these partitions (None: of all). The outcome of a partition may be ELECTION_NOT_NEEDED."""
    from kops.protocol.messages import ElectLeadersRequest, ElectLeadersResponse
    from kops.protocol.messages.elect_leaders_request import TopicPartitions

    def build(timeout_ms: int) -> Message:
        wanted = None
        if keys is not None:
            wanted = [TopicPartitions(topic=topic, partitions=partitions) for topic, partitions in _grouped(keys).items()]
        return ElectLeadersRequest(election_type=election_type, topic_partitions=wanted, timeout_ms=timeout_ms)

    def handle(response: Message) -> PartitionOutcomes:
        assert isinstance(response, ElectLeadersResponse)
        check(response.error_code)
        return {
            TopicPartition(topic.topic, one.partition_id): error_of(one.error_code, one.error_message)
            for topic in response.replica_election_results
            for one in topic.partition_result
        }

    return client.call("elect leaders", To.CONTROLLER, build, handle)


def parse_election(text: str, file: str) -> list[TopicPartition]:
    """Parse Kafka's election file: `{"partitions": [{"topic", "partition"}…]}`. Raises DecodeError."""
    keys = [
        TopicPartition(json_field(entry, "topic", str, file), json_field(entry, "partition", int, file))
        for entry in json_entries(text, file, "partitions")
    ]
    if len(set(keys)) < len(keys):
        twice = next(key for key in keys if keys.count(key) > 1)
        raise DecodeError(f"{twice.topic}-{twice.partition} appears twice", code="bad-json", file=file)
    return keys


# reassignments


def alter_reassignments(
    client: Client, targets: Mapping[TopicPartition, Sequence[int] | None], *, allow_replication_factor_change: bool = True
) -> PartitionOutcomes:
    """Start reassignments of partitions to these replicas. None cancels the current one."""
    from kops.protocol.messages import AlterPartitionReassignmentsRequest, AlterPartitionReassignmentsResponse
    from kops.protocol.messages.alter_partition_reassignments_request import ReassignablePartition, ReassignableTopic

    first = 0 if allow_replication_factor_change else 1

    def build(timeout_ms: int) -> Message:
        topics: dict[str, list[ReassignablePartition]] = {}
        for key, replicas in targets.items():
            entry = ReassignablePartition(partition_index=key.partition, replicas=None if replicas is None else list(replicas))
            topics.setdefault(key.topic, []).append(entry)
        return AlterPartitionReassignmentsRequest(
            timeout_ms=timeout_ms,
            allow_replication_factor_change=allow_replication_factor_change,
            topics=[ReassignableTopic(name=name, partitions=partitions) for name, partitions in topics.items()],
        )

    def handle(response: Message) -> PartitionOutcomes:
        assert isinstance(response, AlterPartitionReassignmentsResponse)
        check(response.error_code, response.error_message)
        outcomes: PartitionOutcomes = {}
        for topic in response.responses:
            for one in topic.partitions:
                error = error_of(one.error_code, one.error_message)
                if error is not None and error.name == "NOT_CONTROLLER":
                    raise error
                outcomes[TopicPartition(topic.name, one.partition_index)] = error
        return outcomes

    versions = range(first, AlterPartitionReassignmentsRequest.VERSIONS.stop)
    return client.call("alter partition reassignments", To.CONTROLLER, build, handle, versions=versions)


def list_reassignments(client: Client, keys: Iterable[TopicPartition] | None = None) -> dict[TopicPartition, Reassignment]:
    """Return the reassignments in progress, of these partitions or of all."""
    from kops.protocol.messages import ListPartitionReassignmentsRequest, ListPartitionReassignmentsResponse
    from kops.protocol.messages.list_partition_reassignments_request import ListPartitionReassignmentsTopics

    wanted = None if keys is None else _grouped(keys)

    def build(timeout_ms: int) -> Message:
        topics = None
        if wanted is not None:
            topics = [ListPartitionReassignmentsTopics(name=name, partition_indexes=indexes) for name, indexes in wanted.items()]
        return ListPartitionReassignmentsRequest(timeout_ms=timeout_ms, topics=topics)

    def handle(response: Message) -> dict[TopicPartition, Reassignment]:
        assert isinstance(response, ListPartitionReassignmentsResponse)
        check(response.error_code, response.error_message)
        return {
            TopicPartition(topic.name, one.partition_index): Reassignment(one.replicas, one.adding_replicas, one.removing_replicas)
            for topic in response.topics
            for one in topic.partitions
        }

    return client.call("list partition reassignments", To.CONTROLLER, build, handle)


def mark_reassignments(client: Client, infos: Iterable[TopicInfo]) -> None:
    """Add the reassignments in progress to the partitions. As in Kafka's tool, nothing is added if the client is not authorized."""
    try:
        ongoing = list_reassignments(client)
    except ApiError as error:
        if error.name not in ("CLUSTER_AUTHORIZATION_FAILED", "UNSUPPORTED_VERSION"):
            raise
        return
    for info in infos:
        for one in info.partitions:
            found = ongoing.get(TopicPartition(info.name, one.partition))
            if found is not None:
                one.adding, one.removing = found.adding, found.removing


# log directories


def describe_log_dirs(
    client: Client, brokers: Sequence[int], keys: Iterable[TopicPartition] | None = None
) -> dict[int, list[LogDirInfo] | KopsError]:
    """Return the log directories of brokers with their replicas of these partitions (None: of all). Asks the brokers at the same time."""
    from kops.protocol.messages import DescribeLogDirsRequest
    from kops.protocol.messages.describe_log_dirs_request import DescribableLogDirTopic

    wanted = None if keys is None else _grouped(keys)

    def build(_: int) -> Message:
        topics = None
        if wanted is not None:
            topics = [DescribableLogDirTopic(topic=name, partitions=partitions) for name, partitions in wanted.items()]
        return DescribeLogDirsRequest(topics=topics)

    calls = [Call("describe log dirs", broker, build, _log_dirs) for broker in brokers]
    client.run(calls)
    return {broker: call.error or call.value for broker, call in zip(brokers, calls, strict=True)}


def _log_dirs(response: Message) -> list[LogDirInfo]:
    from kops.protocol.messages import DescribeLogDirsResponse

    assert isinstance(response, DescribeLogDirsResponse)
    check(response.error_code)
    found = []
    for one in response.results:
        error = error_of(one.error_code)
        total, usable = (size if size >= 0 else None for size in (one.total_bytes, one.usable_bytes))
        info = LogDirInfo(one.log_dir, None if error is None else error.name, total, usable, one.is_cordoned)
        for topic in one.topics:
            for partition in topic.partitions:
                key = TopicPartition(topic.name, partition.partition_index)
                info.replicas.append(ReplicaInLogDir(key, partition.partition_size, partition.offset_lag, partition.is_future_key))
        found.append(info)
    return found


def find_log_dirs(client: Client, replicas: Iterable[Replica]) -> dict[Replica, tuple[str | None, str | None]]:
    """Return (log directory, directory that it is moved to) of each replica. Raises KopsError if a broker can't answer."""
    wanted = list(replicas)
    brokers = sorted({replica.broker for replica in wanted})
    dirs = describe_log_dirs(client, brokers, {TopicPartition(replica.topic, replica.partition) for replica in wanted}) if brokers else {}
    found: dict[Replica, tuple[str | None, str | None]] = dict.fromkeys(wanted, (None, None))
    for broker, infos in dirs.items():
        if isinstance(infos, KopsError):
            raise infos
        for info in infos:
            for one in info.replicas:
                replica = Replica(one.key.topic, one.key.partition, broker)
                if replica in found:
                    current, future = found[replica]
                    found[replica] = (current, info.path) if one.is_future else (info.path, future)
    return found


def alter_replica_log_dirs(client: Client, moves: Mapping[Replica, str]) -> dict[Replica, KopsError | None]:
    """Start moving replicas to log directories of their brokers."""
    by_broker: dict[int, dict[TopicPartition, str]] = {}
    for replica, path in moves.items():
        by_broker.setdefault(replica.broker, {})[TopicPartition(replica.topic, replica.partition)] = path
    calls = {broker: _alter_log_dirs_call(broker, paths) for broker, paths in by_broker.items()}
    client.run(list(calls.values()))
    outcomes: dict[Replica, KopsError | None] = {}
    for broker, call in calls.items():
        for key in by_broker[broker]:
            outcomes[Replica(key.topic, key.partition, broker)] = call.error if call.error is not None else call.value.get(key)
    return outcomes


def _alter_log_dirs_call(broker: int, paths: Mapping[TopicPartition, str]) -> Call[PartitionOutcomes]:
    from kops.protocol.messages import AlterReplicaLogDirsRequest, AlterReplicaLogDirsResponse
    from kops.protocol.messages.alter_replica_log_dirs_request import AlterReplicaLogDir, AlterReplicaLogDirTopic

    def build(_: int) -> Message:
        dirs = []
        for path in dict.fromkeys(paths.values()):
            topics = _grouped(key for key, target in paths.items() if target == path)
            entries = [AlterReplicaLogDirTopic(name=name, partitions=partitions) for name, partitions in topics.items()]
            dirs.append(AlterReplicaLogDir(path=path, topics=entries))
        return AlterReplicaLogDirsRequest(dirs=dirs)

    def handle(response: Message) -> PartitionOutcomes:
        assert isinstance(response, AlterReplicaLogDirsResponse)
        return {
            TopicPartition(topic.topic_name, one.partition_index): error_of(one.error_code)
            for topic in response.results
            for one in topic.partitions
        }

    return Call("alter replica log dirs", broker, build, handle)
