"""A fetcher follows one leader: it builds requests and applies the answers to the local logs. It is a state machine without a thread.

Source: Kafka's AbstractFetcherThread (KIP-101, KIP-279, KIP-320, KIP-595). Kafka's thread waits for each answer. Here, `next_request`
returns the next request after the previous one was answered (`on_response`) or lost (`on_failure`). The order is: find the offsets of the
leader's log (ListOffsets, after OFFSET_OUT_OF_RANGE), truncate records that the leader does not have (OffsetForLeaderEpoch), fetch.
Partitions may be added and removed at any time. An answer applies to a partition only if its state has not changed since the request.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, NamedTuple

from mypy_extensions import mypyc_attr

from kops.errors import ApiError, KopsError
from kops.protocol import errors
from kops.protocol.declaration import Message
from kops.protocol.messages.fetch_response import FetchResponse
from kops.protocol.messages.list_offsets_response import ListOffsetsResponse
from kops.protocol.messages.offset_for_leader_epoch_response import OffsetForLeaderEpochResponse
from kops.records.log_offsets import TopicPartition
from kops.replication.following.fetch_state import FetchState, InitialFetchState, Phase, Replicas, Truncation
from kops.replication.following.leader_endpoint import LeaderEndPoint, epochs_request, offsets_request
from kops.replication.leading.fetch import EpochEndOffset, FetchInfo
from kops.replication.log import EARLIEST_TIMESTAMP, LATEST_TIMESTAMP

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from kops.protocol.messages.fetch_response import PartitionData

BAD_RECORDS = frozenset({"CORRUPT_MESSAGE", "INVALID_RECORD"})


@mypyc_attr(acyclic=True)
class FetchSent:
    """A fetch in flight. `max_version` is the newest version in which it may be sent, None for any. It is not changed."""

    __slots__ = ("asked", "max_version", "message")

    def __init__(self, message: Message, asked: Mapping[TopicPartition, FetchInfo], max_version: int | None) -> None:
        self.message = message
        self.asked = asked
        self.max_version = max_version


class EpochsSent(NamedTuple):
    """A request for ends of epochs in flight: (current leader epoch, epoch) by partition."""

    message: Message
    asked: Mapping[TopicPartition, tuple[int, int]]
    max_version: int | None = None


class OffsetsSent(NamedTuple):
    """A request for the leader's offsets in flight: (current leader epoch, timestamp) by partition."""

    message: Message
    asked: Mapping[TopicPartition, tuple[int, int]]
    max_version: int | None = None


Sent = FetchSent | EpochsSent | OffsetsSent


@mypyc_attr(allow_interpreted_subclasses=True)
class Fetcher:
    """The partitions that follow one leader (or those of one of its fetchers). `failed` collects the partitions that an error has ended."""

    def __init__(
        self, leader: LeaderEndPoint, replicas: Replicas, now_ms: Callable[[], int], failed: set[TopicPartition], *, backoff_ms: int = 1_000
    ) -> None:
        self.leader = leader
        self.replicas = replicas
        self.states: dict[TopicPartition, FetchState] = {}
        self.failed = failed
        self.in_flight: Sent | None = None
        self._now_ms = now_ms
        self._backoff_ms = backoff_ms
        self._leader_ends: dict[TopicPartition, int] = {}
        # Even among many partitions, few are not being fetched, and few have changed since the last fetch was built.
        self._not_fetched: dict[TopicPartition, None] = {}
        self._changed: dict[TopicPartition, None] = {}
        self._idle_until_ms: int | None = None

    # partitions -------------------------------------------------------------------------------------------------------------------

    def add_partitions(self, partitions: Mapping[TopicPartition, InitialFetchState]) -> None:
        """Follow these partitions. One that is followed in the same leader epoch continues where it is."""
        self.failed.difference_update(partitions)
        for key, initial in partitions.items():
            current = self.states.get(key)
            if current is not None and current.current_leader_epoch == initial.current_leader_epoch:
                self._put(key, current)
            else:
                self._leader_ends.pop(key, None)
                self._put(key, self._initial_state(key, initial))
        self._idle_until_ms = None

    def _initial_state(self, key: TopicPartition, initial: InitialFetchState) -> FetchState:
        if initial.offset < 0:
            return FetchState(initial.topic_id, initial.offset, None, initial.current_leader_epoch, Phase.SEEKING, None)
        epoch = self.replicas.latest_epoch(key)
        phase = Phase.TRUNCATING if epoch is None else Phase.FETCHING
        return FetchState(initial.topic_id, initial.offset, None, initial.current_leader_epoch, phase, epoch)

    def remove_partitions(self, keys: Iterable[TopicPartition]) -> dict[TopicPartition, FetchState]:
        """Stop following these partitions, and return their states."""
        removed = {key: self.states.pop(key) for key in list(keys) if key in self.states}
        for key in removed:
            self._leader_ends.pop(key, None)
            self._not_fetched.pop(key, None)
            self.note_change(key)
        return removed

    def update_topic_ids(self, topic_ids: Mapping[TopicPartition, bytes]) -> None:
        """Set the ids of topics."""
        for key, topic_id in topic_ids.items():
            if key in self.states:
                self._set(key, self.states[key].with_topic_id(topic_id))

    def mark_for_truncation(self, key: TopicPartition, offset: int) -> None:
        """Truncate a copy, because the log that it copies was truncated."""
        state = self.states.get(key)
        if state is not None:
            self._put(key, state.moved(min(offset, state.fetch_offset), Phase.TRUNCATING, None))
            self._idle_until_ms = None

    def _put(self, key: TopicPartition, state: FetchState) -> None:
        """Set a state and move the partition to the end, so that the one served last is fetched last."""
        self.states.pop(key, None)
        self._set(key, state)

    def _set(self, key: TopicPartition, state: FetchState) -> None:
        self.states[key] = state
        if state.phase is Phase.FETCHING:
            self._not_fetched.pop(key, None)
        else:
            self._not_fetched[key] = None
        self.note_change(key)

    def note_change(self, key: TopicPartition) -> None:
        """Record that the next fetch may differ for a partition, because its state or its log start has changed."""
        self._changed.pop(key, None)
        self._changed[key] = None

    def _in_phase(self, phase: Phase, now_ms: int) -> list[tuple[TopicPartition, FetchState]]:
        """The partitions for which this step is due, in order. Not for `Phase.FETCHING`."""
        if not self._not_fetched:
            return []
        return [(key, state) for key, state in self.states.items() if key in self._not_fetched and state.is_ready(phase, now_ms)]

    def _mark_failed(self, key: TopicPartition) -> None:
        self.failed.add(key)
        self.remove_partitions([key])

    def _delay(self, keys: Iterable[TopicPartition]) -> None:
        now_ms = self._now_ms()
        for key in keys:
            state = self.states.get(key)
            if state is not None and not state.is_delayed(now_ms):
                self._put(key, state.delayed(now_ms + self._backoff_ms))

    # requests ---------------------------------------------------------------------------------------------------------------------

    @property
    def next_due_ms(self) -> int | None:
        """The time at which `next_request` has something to do, or None while a request is in flight or if there are no partitions."""
        if self.in_flight is not None or not self.states:
            return None
        first_ms = min(state.due_ms for state in self.states.values())
        return first_ms if self._idle_until_ms is None else max(first_ms, self._idle_until_ms)

    def next_request(self) -> Sent | None:
        """Return the next request to the leader. First truncates logs that need no answer for that."""
        now_ms = self._now_ms()
        if self.in_flight is not None or (self._idle_until_ms is not None and now_ms < self._idle_until_ms):
            return None
        self._idle_until_ms = None
        self.in_flight = self._offsets_to_ask(now_ms) or self._epochs_to_ask(now_ms) or self._fetch(now_ms)
        if self.in_flight is None and self.states:
            # All are delayed or throttled.
            delayed_until = [state.due_ms for state in self.states.values() if state.is_delayed(now_ms)]
            self._idle_until_ms = min([now_ms + self._backoff_ms, *delayed_until])
        return self.in_flight

    def _offsets_to_ask(self, now_ms: int) -> OffsetsSent | None:
        asked = {
            key: (state.current_leader_epoch, EARLIEST_TIMESTAMP if key in self._leader_ends else LATEST_TIMESTAMP)
            for key, state in self._in_phase(Phase.SEEKING, now_ms)
        }
        return OffsetsSent(offsets_request(self.leader.replica_id, asked), asked) if asked else None

    def _epochs_to_ask(self, now_ms: int) -> EpochsSent | None:
        asked: dict[TopicPartition, tuple[int, int]] = {}
        for key, state in self._in_phase(Phase.TRUNCATING, now_ms):
            epoch = self.replicas.latest_epoch(key)
            if epoch is None:
                self._truncate(key, Truncation(state.fetch_offset, True))
            else:
                asked[key] = (state.current_leader_epoch, epoch)
        return EpochsSent(epochs_request(self.leader.replica_id, asked), asked) if asked else None

    def _fetch(self, now_ms: int) -> FetchSent | None:
        changed, self._changed = self._changed, {}
        built = self.leader.build_fetch(self.states, changed, self.replicas, now_ms)
        if built.failed:
            self._delay(built.failed)
        return None if built.request is None else FetchSent(built.request, built.asked, built.max_version)

    # answers ----------------------------------------------------------------------------------------------------------------------

    def on_failure(self, sent: Sent) -> None:
        """Handle a lost request: delay its partitions, or all of them if it was a fetch."""
        if sent is not self.in_flight:
            return
        self.in_flight = None
        if isinstance(sent, FetchSent):
            self.leader.on_failure()
            self._delay(list(self.states))
        else:
            for key in sent.asked:
                self._leader_ends.pop(key, None)
            self._delay(sent.asked)

    def on_response(self, sent: Sent, response: Message, version: int) -> None:
        """Apply the leader's answer. Ignores an answer to any other request than the one in flight."""
        if sent is not self.in_flight:
            return
        self.in_flight = None
        if isinstance(sent, FetchSent):
            assert isinstance(response, FetchResponse)
            self._on_fetched(sent, response, version)
        elif isinstance(sent, EpochsSent):
            assert isinstance(response, OffsetForLeaderEpochResponse)
            self._on_epochs(sent, response)
        else:
            assert isinstance(response, ListOffsetsResponse)
            self._on_offsets(sent, response)

    def _on_fetched(self, sent: FetchSent, response: FetchResponse, version: int) -> None:
        answers = self.leader.read_response(response, version)
        if answers is None:
            self._delay(list(self.states))
            return
        retried: list[TopicPartition] = []
        now_ms = self._now_ms()
        for key, data in answers.items():
            state, asked = self.states.get(key), sent.asked.get(key)
            if state is not None and asked is not None and self._is_current(state, asked, now_ms):
                error = errors.by_code(data.error_code).name if data.error_code else "NONE"
                if error == "NONE":
                    is_done = self._take(key, state, data)
                elif error == "OFFSET_OUT_OF_RANGE":
                    self._put(key, state.moved(state.fetch_offset, Phase.SEEKING, state.last_fetched_epoch))
                    is_done = True
                else:
                    is_done = error == "FENCED_LEADER_EPOCH" and self._on_fenced(key, asked.current_leader_epoch)
                if not is_done:
                    retried.append(key)
        if retried:
            self._delay(retried)

    def _is_current(self, state: FetchState, asked: FetchInfo, now_ms: int) -> bool:
        return (
            asked.fetch_offset == state.fetch_offset
            and asked.current_leader_epoch in (None, state.current_leader_epoch)
            and state.is_ready(Phase.FETCHING, now_ms)
        )

    def _take(self, key: TopicPartition, state: FetchState, data: PartitionData) -> bool:
        """Append the fetched records, or truncate where the logs diverge according to the leader. Returns False to try it again."""
        if data.diverging_epoch.epoch >= 0:
            self._truncate_to_epoch_end(key, EpochEndOffset(data.diverging_epoch.epoch, data.diverging_epoch.end_offset))
            return True
        try:
            info = self.replicas.append(key, state.fetch_offset, state.current_leader_epoch, data)
        except KopsError as error:
            if isinstance(error, ApiError) and error.name in BAD_RECORDS:
                return False
            self._mark_failed(key)
            return True
        self.note_change(key)
        # The append may have ended the fetching, because a complete copy replaces its log.
        if info is None or key not in self.states:
            return True
        next_offset = info.last_offset + 1 if info.valid_bytes > 0 else state.fetch_offset
        lag = max(0, data.high_watermark - next_offset)
        if info.valid_bytes > 0 or state.lag is None:
            epoch = state.last_fetched_epoch if info.last_leader_epoch is None else info.last_leader_epoch
            self._put(key, FetchState(state.topic_id, next_offset, lag, state.current_leader_epoch, Phase.FETCHING, epoch))
        return True

    def _on_fenced(self, key: TopicPartition, asked_epoch: int | None) -> bool:
        """Handle a leader in a later epoch, which the metadata will also report here. Returns False if this replica is already ahead."""
        if self.states[key].current_leader_epoch != asked_epoch:
            return False
        self._mark_failed(key)
        return True

    # truncation -------------------------------------------------------------------------------------------------------------------

    def _on_epochs(self, sent: EpochsSent, response: OffsetForLeaderEpochResponse) -> None:
        retried: list[TopicPartition] = []
        for topic in response.topics:
            for answer in topic.partitions:
                key = TopicPartition(topic.topic, answer.partition)
                state, asked = self.states.get(key), sent.asked.get(key)
                if state is None or asked is None or asked[0] != state.current_leader_epoch:
                    continue
                error = errors.by_code(answer.error_code).name
                if error == "NONE":
                    self._truncate_to_epoch_end(key, EpochEndOffset(answer.leader_epoch, answer.end_offset))
                elif error != "FENCED_LEADER_EPOCH" or not self._on_fenced(key, asked[0]):
                    retried.append(key)
        self._delay(retried)

    def _truncate_to_epoch_end(self, key: TopicPartition, leader_end: EpochEndOffset) -> None:
        try:
            truncation = self.truncation_for(key, leader_end)
        except KopsError:
            self._mark_failed(key)
            return
        self._truncate(key, truncation)

    def truncation_for(self, key: TopicPartition, leader_end: EpochEndOffset) -> Truncation:
        """Return the offset at which to truncate, given the end of the leader's largest epoch that is not above ours.

        If that epoch is not in this log, the log is truncated to the end of the largest lower epoch, and the leader is asked again.
        """
        if leader_end.end_offset == -1:
            return Truncation(self.states[key].fetch_offset, True)
        end_offset = self.replicas.log_end_offset(key)
        if leader_end.leader_epoch == -1:
            return Truncation(min(leader_end.end_offset, end_offset), True)
        found = self.replicas.end_offset_for_epoch(key, leader_end.leader_epoch)
        if found is None:
            return Truncation(min(leader_end.end_offset, end_offset), True)
        epoch, epoch_end_offset = found
        if epoch != leader_end.leader_epoch:
            return Truncation(min(epoch_end_offset, end_offset), False)
        return Truncation(min(epoch_end_offset, leader_end.end_offset, end_offset), True)

    def _truncate(self, key: TopicPartition, truncation: Truncation) -> None:
        try:
            self.replicas.truncate(key, truncation)
            epoch = self.replicas.latest_epoch(key)
        except KopsError:
            self._mark_failed(key)
            return
        # Later fetches report another divergence, so the leader need not be asked again now.
        self._set(key, self.states[key].moved(truncation.offset, Phase.FETCHING, epoch))

    # the leader's offsets ---------------------------------------------------------------------------------------------------------

    def _on_offsets(self, sent: OffsetsSent, response: ListOffsetsResponse) -> None:
        retried: list[TopicPartition] = []
        for topic in response.topics:
            for answer in topic.partitions:
                key = TopicPartition(topic.name, answer.partition_index)
                state, asked = self.states.get(key), sent.asked.get(key)
                if state is None or asked is None or asked[0] != state.current_leader_epoch or state.phase is not Phase.SEEKING:
                    continue
                error = errors.by_code(answer.error_code).name
                if error == "NONE":
                    self._on_leader_offset(key, state, asked[1], answer.offset)
                elif error != "FENCED_LEADER_EPOCH" or not self._on_fenced(key, asked[0]):
                    self._leader_ends.pop(key, None)
                    retried.append(key)
        self._delay(retried)

    def _on_leader_offset(self, key: TopicPartition, state: FetchState, timestamp: int, offset: int) -> None:
        try:
            end_offset = self.replicas.log_end_offset(key)
            if timestamp == LATEST_TIMESTAMP and offset >= end_offset:
                self._leader_ends[key] = offset
                return
            if timestamp == LATEST_TIMESTAMP:
                self.replicas.truncate(key, Truncation(offset, True))
                next_offset, lag = offset, 0
            else:
                if offset > end_offset:
                    self.replicas.truncate_fully_and_start_at(key, offset)
                next_offset = max(offset, end_offset)
                lag = self._leader_ends.pop(key) - next_offset
            epoch = self.replicas.latest_epoch(key)
        except KopsError:
            self._mark_failed(key)
            return
        self._put(key, FetchState(state.topic_id, next_offset, lag, state.current_leader_epoch, Phase.FETCHING, epoch, state.due_ms))
