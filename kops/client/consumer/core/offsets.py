"""Looks up offsets: for resets, for positions that need validation after a change of leader, and for a program's own questions.

Source: Kafka's OffsetFetcher, OffsetFetcherUtils, OffsetsRequestManager, OffsetsForLeaderEpochClient, PositionsValidator; KIP-320.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Final, NamedTuple

from kops.client.consumer.errors import LogTruncationError, as_kafka, error_named
from kops.client.consumer.parts.requests import Outcome, Outgoing
from kops.client.consumer.parts.state import NO_LEADER, Phase, Position
from kops.client.node import Node
from kops.errors import ApiError
from kops.protocol import api_keys
from kops.protocol.errors import by_code
from kops.protocol.messages import ListOffsetsRequest, ListOffsetsResponse, OffsetForLeaderEpochRequest, OffsetForLeaderEpochResponse
from kops.protocol.messages.list_offsets_request import ListOffsetsPartition, ListOffsetsTopic
from kops.protocol.messages.offset_for_leader_epoch_request import OffsetForLeaderPartition, OffsetForLeaderTopic
from kops.records.log_offsets import TopicPartition

if TYPE_CHECKING:
    from collections.abc import Iterable

    from kops.client.consumer.options import ConsumerOptions, Reset
    from kops.client.consumer.parts.metadata import ConsumerMetadata
    from kops.client.consumer.parts.requests import Links
    from kops.client.consumer.parts.state import Subscriptions, Truncation
    from kops.client.errors import KafkaError
    from kops.protocol.declaration import Message
    from kops.protocol.messages.offset_for_leader_epoch_response import EpochEndOffset

_FIRST_EPOCH_VERSION: Final = 3  # of OffsetForLeaderEpoch: the first for which the right to read the topic is enough
_CONSUMER: Final = -1


class Found(NamedTuple):
    """An offset of ListOffsets. The offset is -1 if there is none."""

    offset: int
    timestamp: int
    epoch: int | None


_NO_OFFSET: Final = Found(-1, -1, None)
Answer = Callable[[dict[TopicPartition, Found], "set[TopicPartition]", "KafkaError | None", float], None]
"""Gets the offsets found, the partitions to ask for again, the error of the rest, and the time."""


class _Lookup:
    """A program's question about offsets, which is asked until every partition has an answer."""

    def __init__(self, targets: Mapping[TopicPartition, int], outcome: Outcome) -> None:
        self.left = dict(targets)
        self.found: dict[TopicPartition, Found] = {}
        self.outcome = outcome
        self.in_flight = 0
        self.retry_ms = 0.0


class OffsetLookups:
    """The requests about offsets. The next `poll` raises the first error of a validation, and the one after it that of a reset."""

    def __init__(
        self,
        options: ConsumerOptions,
        metadata: ConsumerMetadata,
        subscriptions: Subscriptions,
        links: Links,
        wall_ms: Callable[[], int],
    ) -> None:
        self._validation_error: KafkaError | None = None
        self._reset_error: KafkaError | None = None
        self._options = options
        self._metadata = metadata
        self._subscriptions = subscriptions
        self._links = links
        self._wall_ms = wall_ms
        self._version = -1
        self._lookups: list[_Lookup] = []

    def take_error(self) -> KafkaError | None:
        """Return the error of an earlier reset or validation, once."""
        error = self._validation_error or self._reset_error
        if self._validation_error is not None:
            self._validation_error = None
        else:
            self._reset_error = None
        return error

    def turn(self, now_ms: float) -> list[Outgoing]:
        """Return the requests to send now."""
        self.take_leaders()
        requests = self._reset(now_ms) + self._validate(now_ms)
        for lookup in list(self._lookups):
            if lookup.outcome.is_done:
                self._lookups.remove(lookup)
            elif not lookup.in_flight and now_ms >= lookup.retry_ms:
                requests += self._look_up(lookup, now_ms)
        return requests

    def wake_ms(self) -> float:
        """Return the time of the next retry."""
        times = [state.retry_ms for state in self._subscriptions.partitions.values() if state.retry_ms]
        return min(times + [lookup.retry_ms for lookup in self._lookups if not lookup.in_flight], default=float("inf"))

    # leaders

    def take_leaders(self) -> None:
        """Validate the positions again if leaders have changed."""
        if self._version == self._metadata.version:
            return
        self._version = self._metadata.version
        for key in self._subscriptions.partitions:
            self.use_leader(key)

    def use_leader(self, key: TopicPartition) -> None:
        """Validate the position of a partition again if its leader has changed."""
        state, leader = self._subscriptions.partitions.get(key), self._metadata.cluster.leaders.get(key)
        if state is not None and leader is not None:
            state.use_leader(leader, can_validate=self._can_validate(leader.node_id))

    def forget_leaders(self) -> None:
        """Look at the leaders again, because there are other partitions or positions."""
        self._version = -1

    def _can_validate(self, node_id: int) -> bool:
        node = self._metadata.cluster.nodes.get(node_id)
        versions = None if node is None else self._links.versions(node)
        if versions is None:
            return True
        try:
            return versions.latest(api_keys.BY_NAME["OffsetForLeaderEpoch"].key) >= _FIRST_EPOCH_VERSION
        except ApiError:
            return False

    def _by_leader(self, keys: Iterable[TopicPartition]) -> tuple[dict[Node, list[TopicPartition]], list[TopicPartition]]:
        """Return (partitions by leader, those without a leader that can be asked)."""
        found: dict[Node, list[TopicPartition]] = {}
        lost = []
        for key in keys:
            node = self._metadata.leader(key)
            if node is None:
                self._metadata.want()
            if node is None or self._links.is_backing_off(node):
                lost.append(key)
            else:
                found.setdefault(node, []).append(key)
        return found, lost

    # resets

    def _reset(self, now_ms: float) -> list[Outgoing]:
        due = self._subscriptions.due(Phase.RESETTING, now_ms)
        if not due:
            return []
        asked: dict[TopicPartition, Reset] = {}
        wall_ms = self._wall_ms()
        for key in due:
            reset = self._subscriptions.partitions[key].reset
            assert reset is not None
            asked[key] = reset
        leaders, lost = self._by_leader(due)
        # Without a leader, the request waits for metadata.
        unready = [key for key in lost if self._metadata.leader(key) is not None]
        self._subscriptions.retry_at(unready, now_ms + self._options.retry_backoff_ms)
        requests = []
        for node, keys in leaders.items():
            self._subscriptions.retry_at(keys, now_ms + self._options.request_timeout_ms)
            targets = {key: asked[key].timestamp(wall_ms) for key in keys}
            requests.append(self._list(node, targets, partial(self._reset_came, keys, asked)))
        return requests

    def _reset_came(
        self,
        keys: list[TopicPartition],
        asked: dict[TopicPartition, Reset],
        found: dict[TopicPartition, Found],
        again: set[TopicPartition],
        error: KafkaError | None,
        now_ms: float,
    ) -> None:
        if error is not None or again:
            self._subscriptions.retry_at(keys if error is not None else again, now_ms + self._options.retry_backoff_ms)
            self._metadata.want()
            if error is not None and not error.retriable and self._reset_error is None:
                self._reset_error = error
        for key, one in found.items():
            state = self._subscriptions.partitions.get(key)
            if one.offset < 0:
                continue
            leader = self._metadata.cluster.leaders.get(key, NO_LEADER)
            self._metadata.see_epoch(key, one.epoch)
            if state is not None and state.phase is Phase.RESETTING and state.reset == asked[key]:
                state.seek_unvalidated(Position(one.offset, None, leader))

    # validation

    def _validate(self, now_ms: float) -> list[Outgoing]:
        due = self._subscriptions.due(Phase.VALIDATING, now_ms)
        leaders: dict[Node, dict[TopicPartition, Position]] = {}
        for key in due:
            position = self._subscriptions.partitions[key].position
            assert position is not None
            if position.leader.node_id < 0:
                continue  # metadata with a leader is awaited
            node = self._metadata.cluster.nodes.get(position.leader.node_id)
            if node is None or self._links.is_backing_off(node):
                self._metadata.want()
                self._subscriptions.retry_at([key], now_ms + self._options.retry_backoff_ms)
            elif not self._can_validate(node.id):
                self._subscriptions.partitions[key].phase = Phase.FETCHING
            else:
                leaders.setdefault(node, {})[key] = position
        requests = []
        for node, positions in leaders.items():
            self._subscriptions.retry_at(positions, now_ms + self._options.request_timeout_ms)
            topics: dict[str, list[OffsetForLeaderPartition]] = {}
            for key, position in positions.items():
                assert position.epoch is not None
                topics.setdefault(key.topic, []).append(OffsetForLeaderPartition(key.partition, position.leader.epoch, position.epoch))
            message = OffsetForLeaderEpochRequest(
                replica_id=_CONSUMER, topics=[OffsetForLeaderTopic(name, partitions) for name, partitions in topics.items()]
            )

            def came(answer: Message | ApiError, later_ms: float, positions: dict[TopicPartition, Position] = positions) -> None:
                self._epochs_came(positions, answer, later_ms)

            versions = range(_FIRST_EPOCH_VERSION, OffsetForLeaderEpochRequest.VERSIONS.stop)
            requests.append(Outgoing(node, message, came, versions=versions))
        return requests

    def _epochs_came(self, positions: dict[TopicPartition, Position], answer: Message | ApiError, now_ms: float) -> None:
        retry_ms = now_ms + self._options.retry_backoff_ms
        ends, error = ({}, as_kafka(answer)) if isinstance(answer, ApiError) else _read_ends(answer, positions)
        if error is not None:
            self._subscriptions.retry_at(positions, retry_ms)
            self._metadata.want()
            if not error.retriable and self._validation_error is None:
                self._validation_error = error
            return
        again = positions.keys() - ends.keys()
        if again:
            self._subscriptions.retry_at(again, retry_ms)
            self._metadata.want()
        truncations = [
            self._subscriptions.complete_validation(key, positions[key], one.leader_epoch, one.end_offset) for key, one in ends.items()
        ]
        found = [one for one in truncations if one is not None]
        if found and self._validation_error is None:
            self._validation_error = _truncated(found)

    # questions of the program

    def look_up(self, targets: Mapping[TopicPartition, int]) -> Outcome:
        """Ask for the offsets of times. The outcome is a `Found` for each partition."""
        outcome = Outcome()
        if not targets:
            outcome.succeed({})
            return outcome
        topics = {key.topic for key in targets}
        self._metadata.add_transient(topics)
        outcome.then(lambda _: self._metadata.drop_transient(topics))
        self._lookups.append(_Lookup(targets, outcome))
        return outcome

    def _look_up(self, lookup: _Lookup, now_ms: float) -> list[Outgoing]:
        for key in lookup.left:
            error = self._metadata.topic_error(key.topic)
            if error is not None and not error.retriable:
                lookup.outcome.fail(error)
                return []
        leaders, lost = self._by_leader(lookup.left)
        lookup.retry_ms = now_ms + self._options.retry_backoff_ms
        if lost and not leaders:
            self._metadata.want()
        requests = []
        for node, keys in leaders.items():
            lookup.in_flight += 1
            targets = {key: lookup.left[key] for key in keys}
            requests.append(self._list(node, targets, partial(self._look_up_came, lookup, keys)))
        return requests

    def _look_up_came(
        self,
        lookup: _Lookup,
        keys: list[TopicPartition],
        found: dict[TopicPartition, Found],
        again: set[TopicPartition],
        error: KafkaError | None,
        now_ms: float,
    ) -> None:
        if error is None:  # a partition that the answer lacks has no offset
            found = {key: _NO_OFFSET for key in keys if key not in again} | found
        lookup.in_flight -= 1
        lookup.retry_ms = now_ms + self._options.retry_backoff_ms
        if error is not None and not error.retriable:
            lookup.outcome.fail(error)
            return
        if error is not None or again:
            self._metadata.want()
        for key, one in found.items():
            lookup.left.pop(key, None)
            lookup.found[key] = one
            state = self._subscriptions.partitions.get(key)
            if state is not None and one.timestamp == -1 and one.offset >= 0 and state.end_asked:
                state.end_asked = False
                if self._options.is_committed:
                    state.stable_offset = one.offset
                else:
                    state.high_watermark = one.offset
        if not lookup.left:
            lookup.outcome.succeed(lookup.found)

    # ListOffsets

    def _list(self, node: Node, targets: Mapping[TopicPartition, int], came: Answer) -> Outgoing:
        topics: dict[str, list[ListOffsetsPartition]] = {}
        for key, timestamp in targets.items():
            epoch = self._metadata.leader_epoch(key)
            entry = ListOffsetsPartition(
                partition_index=key.partition, current_leader_epoch=-1 if epoch is None else epoch, timestamp=timestamp
            )
            topics.setdefault(key.topic, []).append(entry)
        message = ListOffsetsRequest(
            replica_id=_CONSUMER,
            isolation_level=int(self._options.is_committed),
            topics=[ListOffsetsTopic(name=name, partitions=partitions) for name, partitions in topics.items()],
            timeout_ms=self._options.request_timeout_ms,
        )
        first = 2 if self._options.is_committed else 1

        def answered(answer: Message | ApiError, now_ms: float) -> None:
            if isinstance(answer, ApiError):
                came({}, set(), as_kafka(answer), now_ms)
                return
            assert isinstance(answer, ListOffsetsResponse)
            came(*_read_offsets(answer), now_ms)

        return Outgoing(node, message, answered, versions=range(first, ListOffsetsRequest.VERSIONS.stop))


def _read_offsets(answer: ListOffsetsResponse) -> tuple[dict[TopicPartition, Found], set[TopicPartition], KafkaError | None]:
    found: dict[TopicPartition, Found] = {}
    again = set()
    refused: set[str] = set()
    for topic in answer.topics:
        for one in topic.partitions:
            key = TopicPartition(topic.name, one.partition_index)
            name = by_code(one.error_code).name
            if name == "NONE":
                found[key] = Found(one.offset, one.timestamp, one.leader_epoch if one.leader_epoch >= 0 else None)
            elif name == "UNSUPPORTED_FOR_MESSAGE_FORMAT":
                found[key] = _NO_OFFSET
            elif name == "TOPIC_AUTHORIZATION_FAILED":
                refused.add(topic.name)
            else:
                again.add(key)
    if refused:
        return {}, set(), _refused(refused)
    return found, again, None


def _read_ends(
    answer: Message, positions: Mapping[TopicPartition, Position]
) -> tuple[dict[TopicPartition, EpochEndOffset], KafkaError | None]:
    """Return the ends of epochs without an error. An error of authorization concerns all partitions."""
    assert isinstance(answer, OffsetForLeaderEpochResponse)
    ends: dict[TopicPartition, EpochEndOffset] = {}
    refused = set()
    for topic in answer.topics:
        for one in topic.partitions:
            key = TopicPartition(topic.topic, one.partition)
            if key not in positions:
                continue
            name = by_code(one.error_code).name
            if name == "NONE":
                ends[key] = one
            elif name == "TOPIC_AUTHORIZATION_FAILED":
                refused.add(key.topic)
    return ends, _refused(refused) if refused else None


def _refused(topics: set[str]) -> KafkaError:
    return error_named("TOPIC_AUTHORIZATION_FAILED", f"not authorized to read {', '.join(sorted(topics))}")


def _truncated(found: list[Truncation]) -> LogTruncationError:
    divergent = {one.key: one.divergent for one in found if one.divergent is not None}
    places = "; ".join(
        f"{one.key.topic}-{one.key.partition} at {one.position.offset}"
        + (f", where the log differs from offset {one.divergent.offset}" if one.divergent is not None else "")
        for one in found
    )
    return LogTruncationError(
        f"the log was truncated below the position: {places}", {one.key: one.position.offset for one in found}, divergent
    )
