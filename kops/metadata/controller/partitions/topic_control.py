"""Creates and removes topics, and adds partitions (Kafka's ReplicationControlManager: createTopics, deleteTopics, createPartitions)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from kops.config.values.topic_names import check_topic_name
from kops.errors import ApiError
from kops.metadata.controller.base.result import MAX_RECORDS_PER_USER_OP, check_record_count, code, text
from kops.metadata.controller.cluster.config_schema import TOPIC
from kops.metadata.controller.cluster.configuration_control import SET
from kops.metadata.controller.cluster.placement import place
from kops.metadata.partition_registration import PartitionRegistration
from kops.protocol.messages import CreateTopicsResponse, RemoveTopicRecord, TopicRecord
from kops.protocol.messages.create_partitions_response import CreatePartitionsTopicResult
from kops.protocol.messages.create_topics_response import CreatableTopicConfigs, CreatableTopicResult

if TYPE_CHECKING:
    from collections.abc import Container, Iterable

    from kops.metadata.controller.base.result import Record, RequestContext
    from kops.metadata.controller.cluster.settings import ControllerSettings, Draws
    from kops.metadata.controller.partitions.partition_changes import PartitionChanges
    from kops.metadata.controller.partitions.replication_state import Topic
    from kops.protocol.messages import CreateTopicsRequest
    from kops.protocol.messages.create_partitions_request import CreatePartitionsTopic
    from kops.protocol.messages.create_topics_request import CreatableTopic

_MAX_PARTITIONS_PER_BATCH: Final = 10_000
_DEFAULT: Final = -1


class TopicControl:
    """Creates the records that create topics and partitions and remove topics."""

    def __init__(self, changes: PartitionChanges, settings: ControllerSettings, draws: Draws) -> None:
        self._changes = changes
        self._state = changes.state
        self._cluster = changes.cluster
        self._settings = settings
        self._draws = draws

    # Topics

    def create(self, context: RequestContext, request: CreateTopicsRequest) -> tuple[list[Record], CreateTopicsResponse]:
        """Create the topics of a request, each name once. Raises ApiError POLICY_VIOLATION for too many partitions. Each topic has its own
        error."""
        self._check_partition_count(request.topics)
        records: list[Record] = []
        response = CreateTopicsResponse()
        for topic in request.topics:
            try:
                result, made = self._create_one(context, topic)
            except ApiError as error:
                result, made = CreatableTopicResult(topic.name, error_code=code(error), error_message=text(error)), []
            response.topics.append(result)
            records += made
        check_record_count(records)
        return [] if request.validate_only else records, response

    def _check_partition_count(self, topics: Iterable[CreatableTopic]) -> None:
        default = self._settings.default_num_partitions
        wanted = 0
        for topic in topics:
            asked = default if topic.num_partitions == _DEFAULT else max(topic.num_partitions, 0)
            wanted += len(topic.assignments) or asked
        if wanted > _MAX_PARTITIONS_PER_BATCH:
            raise ApiError("POLICY_VIOLATION", "Excessively large number of partitions per request.")

    def _create_one(self, context: RequestContext, topic: CreatableTopic) -> tuple[CreatableTopicResult, list[Record]]:
        self._check_name(topic.name)
        without_value = [config.name for config in topic.configs if config.value is None]
        if without_value:
            raise ApiError("INVALID_CONFIG", f"Null value not supported for topic configs: {','.join(without_value)}")
        settings = {config.name: config.value for config in topic.configs if config.value is not None}
        configs: list[Record] = []
        if settings:
            operations = {name: (SET, value) for name, value in settings.items()}
            resource = (TOPIC, topic.name)
            configs = self._changes.configs.alter(resource, operations, newly_created=True, forwarded=context.forwarded)
        partitions = self._assigned(topic) if topic.assignments else self._placed(topic)
        topic_id = self._draws.uuid()
        result = CreatableTopicResult(
            name=topic.name,
            topic_id=topic_id,
            error_message=None,
            num_partitions=len(partitions),
            replication_factor=len(partitions[0].replicas),
            configs=self._shown(settings),
        )
        return result, [(TopicRecord(topic.name, topic_id), 0), *configs, *self._records(topic_id, partitions, 0)]

    def _check_name(self, name: str) -> None:
        """Raise ApiError for a name that is taken, collides with another one or is not allowed."""
        if self._state.named(name) is not None:
            raise ApiError("TOPIC_ALREADY_EXISTS", f"Topic '{name}' already exists.")
        colliding = self._state.colliding_with(name)
        if colliding is not None:
            raise ApiError("INVALID_TOPIC_EXCEPTION", f"Topic '{name}' collides with existing topic: {colliding}")
        check_topic_name(name)

    def _assigned(self, topic: CreatableTopic) -> list[PartitionRegistration]:
        """Return the partitions of a manual assignment."""
        given = "A manual partition assignment was specified, but"
        if topic.replication_factor != _DEFAULT:
            raise ApiError("INVALID_REQUEST", f"{given} replication factor was not set to -1.")
        if topic.num_partitions != _DEFAULT:
            raise ApiError("INVALID_REQUEST", f"{given} numPartitions was not set to -1.")
        partitions: dict[int, PartitionRegistration] = {}
        replication_factor: int | None = None
        for assignment in topic.assignments:
            number, replicas = assignment.partition_index, assignment.broker_ids
            if number in partitions:
                raise ApiError("INVALID_REPLICA_ASSIGNMENT", f"Found multiple manual partition assignments for partition {number}")
            partitions[number] = self._assigned_partition(number, replicas, replication_factor)
            replication_factor = len(replicas)
        if set(partitions) != set(range(len(partitions))):
            raise ApiError("INVALID_REPLICA_ASSIGNMENT", "partitions should be a consecutive 0-based integer sequence")
        return [partitions[number] for number in range(len(partitions))]

    def _assigned_partition(self, number: int, replicas: list[int], replication_factor: int | None) -> PartitionRegistration:
        check_assignment(self._cluster.brokers, replicas, replication_factor)
        partition = self._new_partition(replicas)
        if partition is None:
            where = f"All brokers specified in the manual partition assignment for partition {number}"
            raise ApiError("INVALID_REPLICA_ASSIGNMENT", f"{where} are fenced or in controlled shutdown.")
        return partition

    def _placed(self, topic: CreatableTopic) -> list[PartitionRegistration]:
        """Return the partitions of an automatic assignment."""
        if topic.replication_factor < _DEFAULT or topic.replication_factor == 0:
            reason = "Replication factor must be larger than 0, or -1 to use the default value."
            raise ApiError("INVALID_REPLICATION_FACTOR", reason)
        if topic.num_partitions < _DEFAULT or topic.num_partitions == 0:
            raise ApiError("INVALID_PARTITIONS", "Number of partitions was set to an invalid non-positive value.")
        count, factor = topic.num_partitions, topic.replication_factor
        count = self._settings.default_num_partitions if count == _DEFAULT else count
        factor = self._settings.default_replication_factor if factor == _DEFAULT else factor
        try:
            placed = place(self._cluster.usable_brokers(), count, factor, self._draws)
        except ApiError as error:
            unable = f"Unable to replicate the partition {factor} time(s): {error.message}"
            raise ApiError("INVALID_REPLICATION_FACTOR", unable) from None
        return [self._placed_partition(replicas) for replicas in placed]

    def _placed_partition(self, replicas: list[int]) -> PartitionRegistration:
        partition = self._new_partition(replicas)
        if partition is None:
            unable = f"Unable to replicate the partition {len(replicas)} time(s)"
            raise ApiError("INVALID_REPLICATION_FACTOR", f"{unable}: All brokers are currently fenced or in controlled shutdown.")
        return partition

    def _new_partition(self, replicas: list[int]) -> PartitionRegistration | None:
        """Return a partition whose active replicas are in sync, or None if none is active."""
        isr = tuple(filter(self._cluster.is_active, replicas))
        if not isr:
            return None
        directories = tuple(map(self._cluster.default_dir, replicas))
        return PartitionRegistration(tuple(replicas), directories, isr, isr[0])

    def _records(self, topic_id: bytes, partitions: Iterable[PartitionRegistration], first: int) -> list[Record]:
        features = self._changes.features
        version, with_elr = features.metadata_version, features.is_elr_enabled
        return [one.to_record(topic_id, number, version, with_elr=with_elr) for number, one in enumerate(partitions, first)]

    def _shown(self, settings: dict[str, str]) -> list[CreatableTopicConfigs]:
        shown = self._changes.configs.effective_topic_settings(settings)
        return [CreatableTopicConfigs(one.name, one.value, config_source=one.source) for one in shown]

    def delete(self, topic: Topic) -> list[Record]:
        """Return the records that remove a topic."""
        return [(RemoveTopicRecord(topic.id), 0)]

    # Partitions

    def add_partitions(self, topics: Iterable[CreatePartitionsTopic]) -> tuple[list[Record], list[CreatePartitionsTopicResult]]:
        """Add partitions to topics, each name once. Each topic has its own error."""
        records: list[Record] = []
        results = []
        for topic in topics:
            result = CreatePartitionsTopicResult(topic.name)
            try:
                records += self._add_partitions(topic)
            except ApiError as error:
                result.error_code, result.error_message = code(error), text(error)
            results.append(result)
        check_record_count(records)
        return records, results

    def _add_partitions(self, wanted: CreatePartitionsTopic) -> list[Record]:
        topic = self._state.named(wanted.name)
        if topic is None:
            raise ApiError("UNKNOWN_TOPIC_OR_PARTITION")
        count = len(topic.partitions)
        if wanted.count == count:
            raise ApiError("INVALID_PARTITIONS", f"Topic already has {count} partition(s).")
        if wanted.count < count:
            not_more = f"{wanted.count} would not be an increase."
            raise ApiError("INVALID_PARTITIONS", f"The topic {wanted.name} currently has {count} partition(s); {not_more}")
        more = wanted.count - count
        if more > MAX_RECORDS_PER_USER_OP:
            # This check comes before the placement: a count of two billion must not block the controller.
            raise ApiError("POLICY_VIOLATION", "Unable to perform excessively large batch operation.")
        factor = len(topic.partitions[0].replicas)
        if wanted.assignments is None:
            placed = place(self._cluster.usable_brokers(), more, factor, self._draws)
            return self._records(topic.id, map(self._placed_partition, placed), count)
        if len(wanted.assignments) != more:
            given = f"but only {len(wanted.assignments)} assignment(s) were specified."
            raise ApiError("INVALID_REPLICA_ASSIGNMENT", f"Attempted to add {more} additional partition(s), {given}")
        numbered = enumerate(wanted.assignments, count)
        return self._records(topic.id, [self._assigned_partition(number, one.broker_ids, factor) for number, one in numbered], count)


def check_assignment(brokers: Container[int], replicas: list[int], replication_factor: int | None) -> None:
    """Raise ApiError INVALID_REPLICA_ASSIGNMENT unless the replicas are distinct registered brokers of the right number."""
    if not replicas:
        raise _invalid("an empty replica list.")
    previous = None
    for broker_id in sorted(replicas):
        if broker_id not in brokers:
            raise _invalid(f"broker {broker_id}, but no such broker is registered.")
        if broker_id == previous:
            raise _invalid(f"the broker {broker_id} more than once.")
        previous = broker_id
    if replication_factor is not None and len(replicas) != replication_factor:
        not_consistent = "but this is not consistent with previous partitions, which have"
        raise _invalid(f"a partition with {len(replicas)} replica(s), {not_consistent} {replication_factor} replica(s).")


def _invalid(what: str) -> ApiError:
    return ApiError("INVALID_REPLICA_ASSIGNMENT", f"The manual partition assignment includes {what}")
