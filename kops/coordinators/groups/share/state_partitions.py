"""The topics of a group by the status of their share state: being initialized, initialized, or being deleted.

Source: Kafka's GroupMetadataManager (shareGroupStatePartitionMetadata and its methods). A subscribed topic is assigned
when its partitions are initialized.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import NamedTuple

from kops.coordinators.groups.assignors.java_maps import numbers_of_list, put_ordered, uuid_hash
from kops.coordinators.groups.records.share import state_partitions_record
from kops.coordinators.groups.surroundings import Surroundings
from kops.coordinators.runtime.image import CoordinatorImage, TopicView
from kops.coordinators.runtime.records import CoordinatorRecord
from kops.protocol.messages import initialize_share_group_state_request as initializing
from kops.protocol.messages.share_group_state_partition_metadata_value import ShareGroupStatePartitionMetadataValue, TopicPartitionsInfo
from kops.timeline import TimelineDict

UNINITIALIZED_START_OFFSET = -1


class TopicState(NamedTuple):
    """The partitions of a topic, and the time at which their initialization began."""

    name: str
    partitions: tuple[int, ...]
    timestamp: int


TopicStates = Mapping[bytes, TopicState]
TopicNumbers = Mapping[bytes, Collection[int]]


class StateInfo(NamedTuple):
    """The topics of one group."""

    initializing: TopicStates
    initialized: TopicStates
    deleting: frozenset[bytes]


_NOTHING = StateInfo({}, {}, frozenset())


class StatePartitions:
    """The topics of all groups of a shard."""

    def __init__(self, around: Surroundings) -> None:
        self._around = around
        self._infos: TimelineDict[str, StateInfo] = TimelineDict(around.timeline)

    @property
    def image(self) -> CoordinatorImage:
        """The newest metadata."""
        image = self._around.image
        assert image is not None, "the shard is not loaded"
        return image

    def get(self, group_id: str) -> StateInfo | None:
        """Return the topics of a group."""
        return self._infos.get(group_id)

    def items(self) -> Iterable[tuple[str, StateInfo]]:
        """The topics of all groups."""
        return self._infos.items()

    def replay(self, group_id: str, value: ShareGroupStatePartitionMetadataValue | None) -> None:
        """Apply a record."""
        if value is None:
            self._infos.pop(group_id, None)
            return
        now_ms = self._around.now_ms()
        self._infos[group_id] = StateInfo(
            _states(value.initializing_topics, now_ms),
            _states(value.initialized_topics, now_ms),
            frozenset(topic.topic_id for topic in value.deleting_topics),
        )

    def record(self, group_id: str, states: TopicStates, initialized: TopicStates, deleting: Iterable[bytes]) -> CoordinatorRecord:
        """Return the record of a group's topics."""
        names = {topic_id: self.name_of(topic_id) for topic_id in deleting}
        return state_partitions_record(group_id, _named(states), _named(initialized), put_ordered(names, uuid_hash))

    def deleting_record(self, group_id: str, names: Mapping[bytes, str]) -> CoordinatorRecord:
        """Return the record that marks all topics of the group, with these names, as being deleted."""
        return state_partitions_record(group_id, {}, {}, put_ordered(names, uuid_hash))

    def name_of(self, topic_id: bytes) -> str:
        """Return the name of a topic, which may have been deleted."""
        topic = self.image.topic_by_id(topic_id)
        return "<UNKNOWN>" if topic is None else topic.name

    def to_initialize(self, group_id: str, names: Iterable[str]) -> TopicStates:
        """Return the uninitialized partitions of subscribed topics. An initialization that takes too long is started again."""
        info = self._infos.get(group_id, _NOTHING)
        now_ms = self._around.now_ms()
        retry_ms = self._around.config.group_share_initialize_retry_interval_ms
        fresh = {topic_id: state for topic_id, state in info.initializing.items() if now_ms - state.timestamp < retry_ms}
        known = combined(info.initialized, fresh)
        found: dict[bytes, TopicState] = {}
        for name in names:
            topic = self.image.topic(name)
            if topic is None:
                continue
            done = known[topic.id].partitions if topic.id in known else ()
            if not done or len(done) < topic.partition_count:
                found[topic.id] = TopicState(topic.name, tuple(number for number in _all(topic) if number not in done), now_ms)
        return found

    def initializing_record(self, group_id: str, states: TopicStates) -> list[CoordinatorRecord]:
        """Return the record that marks topics as being initialized. It ends their deletion."""
        if not states:
            return []
        info = self._infos.get(group_id)
        if info is None:
            return [self.record(group_id, states, {}, ())]
        all_states = combined(info.initializing, states)
        return [self.record(group_id, all_states, info.initialized, info.deleting - all_states.keys())]

    def initialized_record(self, group_id: str, topics: TopicNumbers) -> list[CoordinatorRecord]:
        """Return the record for partitions that the share coordinator has initialized."""
        if not topics:
            return []
        now_ms = self._around.now_ms()
        done = {topic_id: TopicState(self.name_of(topic_id), _ordered(numbers), now_ms) for topic_id, numbers in topics.items()}
        info = self._infos.get(group_id)
        if info is None:
            return [self.record(group_id, {}, done, ())]
        return [self.record(group_id, without(info.initializing, topics), combined(info.initialized, done), info.deleting)]

    def uninitialized_record(self, group_id: str, topics: TopicNumbers) -> list[CoordinatorRecord]:
        """Return the record for partitions that the share coordinator could not initialize."""
        info = self._infos.get(group_id)
        if info is None or not info.initializing or not topics:
            return []
        return [self.record(group_id, without(info.initializing, topics), info.initialized, info.deleting)]

    def clean_up_deleted_topics(self, topic_ids: Collection[bytes]) -> list[CoordinatorRecord]:
        """Return records without the deleted topics. The share coordinator itself deletes their share state."""
        records = []
        gone = frozenset(topic_ids)
        for group_id, info in self._infos.items():
            if gone & (info.initializing.keys() | info.initialized.keys() | info.deleting):
                states, done = ({key: state for key, state in each.items() if key not in gone} for each in info[:2])
                records.append(self.record(group_id, states, done, info.deleting - gone))
        return records


def combined(first: TopicStates, second: TopicStates) -> dict[bytes, TopicState]:
    """Return the union of both. Names and times come from the second."""
    found = dict(first)
    for topic_id, state in second.items():
        before = first[topic_id].partitions if topic_id in first else ()
        found[topic_id] = TopicState(state.name, _ordered((*before, *state.partitions)), state.timestamp)
    return found


def without(states: TopicStates, topics: TopicNumbers) -> dict[bytes, TopicState]:
    """Return the topics without some partitions. Topics without remaining partitions are dropped."""
    found = {}
    for topic_id, state in states.items():
        left = tuple(number for number in state.partitions if number not in topics.get(topic_id, ()))
        if left or topic_id not in topics:
            found[topic_id] = state._replace(partitions=left)
    return found


def initialize_request(
    group_id: str, group_epoch: int, topics: Mapping[bytes, Mapping[int, int]]
) -> initializing.InitializeShareGroupStateRequest:
    """Return the request to the share coordinator with start offsets by topic and partition. The state epoch is the group's epoch."""
    data = [
        initializing.InitializeStateData(
            topic_id, [initializing.PartitionData(number, group_epoch, offset) for number, offset in partitions.items()]
        )
        for topic_id, partitions in topics.items()
    ]
    return initializing.InitializeShareGroupStateRequest(group_id, data)


def _states(topics: Iterable[TopicPartitionsInfo], now_ms: int) -> TopicStates:
    return {topic.topic_id: TopicState(topic.topic_name, _ordered(topic.partitions), now_ms) for topic in topics}


def _named(states: TopicStates) -> dict[bytes, tuple[str, tuple[int, ...]]]:
    return put_ordered({topic_id: state[:2] for topic_id, state in states.items()}, uuid_hash)


def _ordered(numbers: Iterable[int]) -> tuple[int, ...]:
    return numbers_of_list(numbers)


def _all(topic: TopicView) -> range:
    return range(topic.partition_count)
