"""The offsets of groups: list, set, delete, for consumer, streams and share groups.

Source: Kafka's ListConsumerGroupOffsetsHandler, AlterConsumerGroupOffsetsHandler, DeleteConsumerGroupOffsetsHandler (streams groups use the
same requests), ListShareGroupOffsetsHandler, AlterShareGroupOffsetsHandler, DeleteShareGroupOffsetsHandler.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from kops.client.admin.core.asking import by_topic, deadline_ms, in_order
from kops.client.admin.core.coordinated import LOADING, LOADING_OR_REBALANCING, Coordinated, ask_group, ask_groups
from kops.client.admin.core.keyed import keyed
from kops.client.admin.core.lookups import KeyType
from kops.client.admin.core.results import Results, error_of
from kops.client.admin.core.values import ByPartition, Partition, as_names, as_partitions, by_partition, check_mapping
from kops.client.consumer.records import OffsetAndMetadata, as_offset
from kops.client.errors import KafkaError
from kops.protocol.messages import (
    AlterShareGroupOffsetsRequest,
    AlterShareGroupOffsetsResponse,
    DeleteShareGroupOffsetsRequest,
    DeleteShareGroupOffsetsResponse,
    DescribeShareGroupOffsetsRequest,
    DescribeShareGroupOffsetsResponse,
    OffsetCommitRequest,
    OffsetCommitResponse,
    OffsetDeleteRequest,
    OffsetDeleteResponse,
    OffsetFetchRequest,
    OffsetFetchResponse,
)
from kops.protocol.messages.alter_share_group_offsets_request import (
    AlterShareGroupOffsetsRequestPartition,
    AlterShareGroupOffsetsRequestTopic,
)
from kops.protocol.messages.delete_share_group_offsets_request import DeleteShareGroupOffsetsRequestTopic
from kops.protocol.messages.describe_share_group_offsets_request import (
    DescribeShareGroupOffsetsRequestGroup,
    DescribeShareGroupOffsetsRequestTopic,
)
from kops.protocol.messages.offset_commit_request import OffsetCommitRequestPartition, OffsetCommitRequestTopic
from kops.protocol.messages.offset_delete_request import OffsetDeleteRequestPartition, OffsetDeleteRequestTopic
from kops.protocol.messages.offset_fetch_request import OffsetFetchRequestGroup, OffsetFetchRequestTopic, OffsetFetchRequestTopics
from kops.records.log_offsets import TopicPartition

if TYPE_CHECKING:
    from kops.client.admin.core.operation import Steps
    from kops.client.client import Client
    from kops.client.node import Node
    from kops.protocol.declaration import Message

_BATCHED: Final = 8  # the first version of OffsetFetch for several groups
_WITH_IDS: Final = 10  # the first version of OffsetCommit and OffsetFetch with topic ids instead of names
# A commit of a group without members; the coordinator can't be asked again about these partitions alone.
_COORDINATOR: Final = LOADING_OR_REBALANCING | {"NOT_COORDINATOR", "COORDINATOR_NOT_AVAILABLE"}


@dataclass(frozen=True, slots=True)
class SharePartitionOffsetInfo:
    """Where a share group begins in a partition. The lag is None if the broker does not know it."""

    start_offset: int
    leader_epoch: int | None
    lag: int | None


Partitions = Iterable[Partition] | None  # of a group; None: all that have offsets
Offsets = dict[TopicPartition, OffsetAndMetadata | None]
ShareOffsets = dict[TopicPartition, SharePartitionOffsetInfo | None]


class _OffsetFetch(Coordinated[Offsets]):
    """Asks for all groups of a coordinator at once, or one by one with brokers before 3.0."""

    def __init__(self, client: Client, name: str, specs: Mapping[str, list[TopicPartition] | None], require_stable: bool) -> None:
        super().__init__(client, name, KeyType.GROUP, self._request, self._answer)
        self._specs = specs
        self._require_stable = require_stable
        self._asked: list[str] = []
        self.versions = range(_BATCHED, _WITH_IDS)

    def build(self, keys: list[str]) -> tuple[list[str], Callable[[int], Message]]:
        return super().build(keys if self._at_once else keys[:1])

    def _request(self, keys: list[str]) -> Message:
        self._asked = keys
        topics = {key: None if self._specs[key] is None else by_topic(self._specs[key] or ()) for key in keys}
        if not self._at_once:
            wanted = topics[keys[0]]
            old = None if wanted is None else [OffsetFetchRequestTopic(name=one, partition_indexes=of) for one, of in wanted.items()]
            return OffsetFetchRequest(group_id=keys[0], topics=old, require_stable=self._require_stable)
        groups = [
            OffsetFetchRequestGroup(
                group_id=key,
                topics=None if wanted is None else [OffsetFetchRequestTopics(name=one, partition_indexes=of) for one, of in wanted.items()],
            )
            for key, wanted in topics.items()
        ]
        return OffsetFetchRequest(groups=groups, require_stable=self._require_stable)

    def _answer(self, _: Node, response: Message) -> Iterator[tuple[str, Offsets | KafkaError]]:
        assert isinstance(response, OffsetFetchResponse)
        if not self._at_once:
            old = [(topic.name, topic.partitions) for topic in response.topics]
            yield self._asked[0], error_of(response.error_code) or _fetched(old)
            return
        for group in response.groups:
            new = [(topic.name, topic.partitions) for topic in group.topics]
            yield group.group_id, error_of(group.error_code) or _fetched(new)

    def unsupported(self, keys: list[str], error: KafkaError) -> dict[str, KafkaError]:
        if not self._at_once:
            return dict.fromkeys(keys, error)
        self._at_once = False
        self.versions = range(7 if self._require_stable else 2, _BATCHED)
        return {}


def _fetched(topics: Iterable[tuple[str, Iterable[_FetchedPartition]]]) -> Offsets:
    """Return the offsets. A partition with an error is left out, as in Kafka; one without an offset is None."""
    return {
        TopicPartition(name, one.partition_index): None
        if one.committed_offset < 0
        else OffsetAndMetadata(
            one.committed_offset, one.metadata or "", one.committed_leader_epoch if one.committed_leader_epoch >= 0 else None
        )
        for name, partitions in topics
        for one in partitions
        if not one.error_code
    }


if TYPE_CHECKING:
    from kops.protocol.messages.offset_fetch_response import OffsetFetchResponsePartition, OffsetFetchResponsePartitions

    _FetchedPartition = OffsetFetchResponsePartition | OffsetFetchResponsePartitions


def _list_offsets(
    client: Client, name: str, specs: Mapping[str, Partitions], require_stable: bool, timeout: float | None
) -> Steps[Results[str, Offsets]]:
    check_mapping(specs, "'group': None")
    as_names(specs)
    wanted = {group_id: None if keys is None else as_partitions(keys) for group_id, keys in specs.items()}
    return keyed(client, _OffsetFetch(client, name, wanted, require_stable), wanted, deadline_ms(client, timeout))


def list_consumer_group_offsets(
    client: Client, group_specs: Mapping[str, Partitions], *, require_stable: bool = False, timeout: float | None = None
) -> Steps[Results[str, Offsets]]:
    """Return the committed offsets of groups, for these partitions of each, or for all that have one (None).

    With `require_stable`, offsets of transactions that are not decided yet are waited for.
    """
    return (yield from _list_offsets(client, "list consumer group offsets", group_specs, require_stable, timeout))


def list_streams_group_offsets(
    client: Client, group_specs: Mapping[str, Partitions], *, require_stable: bool = False, timeout: float | None = None
) -> Steps[Results[str, Offsets]]:
    """Return the committed offsets of streams groups, as `list_consumer_group_offsets` does."""
    return (yield from _list_offsets(client, "list streams group offsets", group_specs, require_stable, timeout))


def _alter_offsets(
    client: Client,
    name: str,
    group_id: str,
    offsets: ByPartition[OffsetAndMetadata | int],
    timeout: float | None,
) -> Steps[Results[TopicPartition, None]]:
    deadline = deadline_ms(client, timeout)
    topics: dict[str, list[OffsetCommitRequestPartition]] = {}
    wanted = by_partition(offsets)
    for key, given in wanted.items():
        one = as_offset(given)
        topics.setdefault(key.topic, []).append(
            OffsetCommitRequestPartition(
                partition_index=key.partition,
                committed_offset=one.offset,
                committed_leader_epoch=-1 if one.leader_epoch is None else one.leader_epoch,
                committed_metadata=one.metadata,
            )
        )
    entries = [OffsetCommitRequestTopic(name=topic, partitions=parts) for topic, parts in topics.items()]
    request = OffsetCommitRequest(group_id=group_id, topics=entries)

    def read(response: Message) -> dict[TopicPartition, KafkaError | None] | KafkaError:
        assert isinstance(response, OffsetCommitResponse)
        found = {
            TopicPartition(topic.name, one.partition_index): error_of(one.error_code)
            for topic in response.topics
            for one in topic.partitions
        }
        # If the coordinator is not ready for one partition, it is not for any: the whole request is repeated.
        return next((error for error in found.values() if error is not None and error.name in _COORDINATOR), None) or found

    if not wanted:
        return Results({})
    versions = range(2, _WITH_IDS)
    found = yield from ask_group(client, name, group_id, request, read, deadline, later=LOADING_OR_REBALANCING, versions=versions)
    return in_order(name, wanted, found)


def alter_consumer_group_offsets(
    client: Client, group_id: str, offsets: ByPartition[OffsetAndMetadata | int], *, timeout: float | None = None
) -> Steps[Results[TopicPartition, None]]:
    """Set the offsets of a group without members."""
    return (yield from _alter_offsets(client, "alter consumer group offsets", group_id, offsets, timeout))


def alter_streams_group_offsets(
    client: Client, group_id: str, offsets: ByPartition[OffsetAndMetadata | int], *, timeout: float | None = None
) -> Steps[Results[TopicPartition, None]]:
    """Set the offsets of a streams group without members."""
    return (yield from _alter_offsets(client, "alter streams group offsets", group_id, offsets, timeout))


def _delete_offsets(
    client: Client, name: str, group_id: str, partitions: Iterable[Partition], timeout: float | None
) -> Steps[Results[TopicPartition, None]]:
    wanted = as_partitions(partitions)
    deadline = deadline_ms(client, timeout)
    entries = [
        OffsetDeleteRequestTopic(name=topic, partitions=[OffsetDeleteRequestPartition(partition_index=one) for one in numbers])
        for topic, numbers in by_topic(wanted).items()
    ]

    def read(response: Message) -> dict[TopicPartition, KafkaError | None] | KafkaError:
        assert isinstance(response, OffsetDeleteResponse)
        return error_of(response.error_code) or {
            TopicPartition(topic.name, one.partition_index): error_of(one.error_code)
            for topic in response.topics
            for one in topic.partitions
        }

    found = yield from ask_group(client, name, group_id, OffsetDeleteRequest(group_id=group_id, topics=entries), read, deadline)
    return in_order(name, wanted, found)


def delete_consumer_group_offsets(
    client: Client, group_id: str, partitions: Iterable[Partition], *, timeout: float | None = None
) -> Steps[Results[TopicPartition, None]]:
    """Delete a group's offsets of partitions whose topics no member reads. Raises an error of the whole group."""
    return (yield from _delete_offsets(client, "delete consumer group offsets", group_id, partitions, timeout))


def delete_streams_group_offsets(
    client: Client, group_id: str, partitions: Iterable[Partition], *, timeout: float | None = None
) -> Steps[Results[TopicPartition, None]]:
    """Delete a streams group's offsets of partitions whose topics no member reads. Raises an error of the whole group."""
    return (yield from _delete_offsets(client, "delete streams group offsets", group_id, partitions, timeout))


# share groups


def list_share_group_offsets(
    client: Client, group_specs: Mapping[str, Partitions], *, timeout: float | None = None
) -> Steps[Results[str, ShareOffsets]]:
    """Return where share groups begin, in these partitions of each, or in all that they have read (None)."""
    check_mapping(group_specs, "'group': None")
    as_names(group_specs)
    wanted = {group_id: None if keys is None else by_topic(as_partitions(keys)) for group_id, keys in group_specs.items()}

    def make(keys: list[str]) -> Message:
        groups = []
        for key in keys:
            topics = wanted[key]
            entries = (
                None
                if topics is None
                else [DescribeShareGroupOffsetsRequestTopic(topic_name=name, partitions=numbers) for name, numbers in topics.items()]
            )
            groups.append(DescribeShareGroupOffsetsRequestGroup(group_id=key, topics=entries))
        return DescribeShareGroupOffsetsRequest(groups=groups)

    def read(_: Node, response: Message) -> Iterator[tuple[str, ShareOffsets | KafkaError]]:
        assert isinstance(response, DescribeShareGroupOffsetsResponse)
        for group in response.groups:
            yield (
                group.group_id,
                error_of(group.error_code, group.error_message)
                or {
                    TopicPartition(topic.topic_name, one.partition_index): None
                    if one.start_offset < 0
                    else SharePartitionOffsetInfo(
                        one.start_offset, one.leader_epoch if one.leader_epoch >= 0 else None, one.lag if one.lag >= 0 else None
                    )
                    for topic in group.topics
                    for one in topic.partitions
                    if not one.error_code
                },
            )

    return (yield from ask_groups(client, "list share group offsets", wanted, make, read, deadline_ms(client, timeout)))


def alter_share_group_offsets(
    client: Client, group_id: str, offsets: ByPartition[int], *, timeout: float | None = None
) -> Steps[Results[TopicPartition, None]]:
    """Set where a share group without members begins. What it knows of later records is forgotten."""
    wanted = by_partition(offsets)
    deadline = deadline_ms(client, timeout)
    entries = [
        AlterShareGroupOffsetsRequestTopic(
            topic_name=name,
            partitions=[
                AlterShareGroupOffsetsRequestPartition(partition_index=one, start_offset=wanted[TopicPartition(name, one)])
                for one in numbers
            ],
        )
        for name, numbers in by_topic(wanted).items()
    ]

    def read(response: Message) -> dict[TopicPartition, KafkaError | None] | KafkaError:
        assert isinstance(response, AlterShareGroupOffsetsResponse)
        error = error_of(response.error_code, response.error_message)
        if error is not None:
            return error if error.name in _COORDINATOR else dict.fromkeys(wanted, error)
        return {
            TopicPartition(topic.topic_name, one.partition_index): error_of(one.error_code, one.error_message)
            for topic in response.responses
            for one in topic.partitions
        }

    request = AlterShareGroupOffsetsRequest(group_id=group_id, topics=entries)
    name = "alter share group offsets"
    found = yield from ask_group(client, name, group_id, request, read, deadline, later=LOADING_OR_REBALANCING)
    return in_order(name, wanted, found)


def delete_share_group_offsets(
    client: Client, group_id: str, topics: Iterable[str], *, timeout: float | None = None
) -> Steps[Results[str, None]]:
    """Delete a share group's state of topics. Raises an error of the whole group."""
    wanted = as_names(topics)
    deadline = deadline_ms(client, timeout)
    entries = [DeleteShareGroupOffsetsRequestTopic(topic_name=one) for one in wanted]

    def read(response: Message) -> dict[str, KafkaError | None] | KafkaError:
        assert isinstance(response, DeleteShareGroupOffsetsResponse)
        return error_of(response.error_code, response.error_message) or {
            one.topic_name: error_of(one.error_code, one.error_message) for one in response.responses
        }

    request = DeleteShareGroupOffsetsRequest(group_id=group_id, topics=entries)
    name = "delete share group offsets"
    found = yield from ask_group(client, name, group_id, request, read, deadline, later=LOADING | LOADING_OR_REBALANCING)
    return in_order(name, wanted, found)
