"""The client's side of incremental fetches (KIP-227): what the next request contains, and whether a response matches its request.

Source: Kafka's FetchSessionHandler. Followers and consumers both use it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from mypy_extensions import mypyc_attr

from kops.protocol import errors
from kops.protocol.declaration import ZERO_UUID
from kops.protocol.messages.fetch_request import FetchPartition, FetchRequest, FetchTopic, ForgottenTopic
from kops.records.log_offsets import TopicPartition, topic_partition
from kops.replication.leading.fetch_session import (
    FIRST_VERSION_WITH_TOPIC_IDS,
    INITIAL,
    INVALID_SESSION_ID,
    FetchMetadata,
    TopicIdPartition,
    next_epoch,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Set

    from kops.protocol.messages.fetch_response import FetchResponse, PartitionData
    from kops.replication.leading.fetch import FetchInfo


@mypyc_attr(acyclic=True)
class FetchRequestData:
    """The contents of the next request: new or changed partitions, partitions to forget, and partitions whose topic has another id now.

    `session_partitions` are all partitions that the session then fetches.
    """

    __slots__ = ("can_use_topic_ids", "metadata", "session_partitions", "to_forget", "to_replace", "to_send")

    def __init__(
        self,
        to_send: dict[TopicPartition, FetchInfo],
        to_forget: list[TopicIdPartition],
        to_replace: list[TopicIdPartition],
        session_partitions: dict[TopicPartition, FetchInfo],
        metadata: FetchMetadata,
        can_use_topic_ids: bool,
    ) -> None:
        self.to_send = to_send
        self.to_forget = to_forget
        self.to_replace = to_replace
        self.session_partitions = session_partitions
        self.metadata = metadata
        self.can_use_topic_ids = can_use_topic_ids

    @property
    def is_empty(self) -> bool:
        """Whether there is nothing to fetch and nothing to forget."""
        return not self.session_partitions and not self.to_forget

    def fill(self, request: FetchRequest) -> FetchRequest:
        """Write it into a request."""
        request.session_id, request.session_epoch = self.metadata.session_id, self.metadata.epoch
        request.topics = _fetch_topics(self.to_send)
        forgotten: dict[tuple[str | None, bytes], ForgottenTopic] = {}
        # Replaced partitions are forgotten by their old id. Only versions with ids can do that.
        for part in [*self.to_forget, *(self.to_replace if self.can_use_topic_ids else ())]:
            key = (part.topic, part.topic_id)
            topic = forgotten.setdefault(key, ForgottenTopic(topic=part.topic or "", topic_id=part.topic_id))
            topic.partitions.append(part.partition)
        request.forgotten_topics_data = list(forgotten.values())
        return request


def _fetch_topics(partitions: Mapping[TopicPartition, FetchInfo]) -> list[FetchTopic]:
    topics: list[FetchTopic] = []
    for part, info in partitions.items():
        if not topics or topics[-1].topic != part.topic:
            topics.append(FetchTopic(topic=part.topic, topic_id=info.topic_id))
        topics[-1].partitions.append(
            FetchPartition(
                partition=part.partition,
                current_leader_epoch=-1 if info.current_leader_epoch is None else info.current_leader_epoch,
                fetch_offset=info.fetch_offset,
                last_fetched_epoch=-1 if info.last_fetched_epoch is None else info.last_fetched_epoch,
                log_start_offset=info.log_start_offset,
                partition_max_bytes=info.max_bytes,
            )
        )
    return topics


def response_data(response: FetchResponse, topic_names: Mapping[bytes, str], version: int) -> dict[TopicPartition, PartitionData]:
    """Return the partitions of a response by name. Topics whose id has no name are omitted."""
    found = {}
    for topic in response.responses:
        name = topic.topic if version < FIRST_VERSION_WITH_TOPIC_IDS else topic_names.get(topic.topic_id)
        if name is not None:
            for partition in topic.partitions:
                found[topic_partition(name, partition.partition_index)] = partition
    return found


def _by_id(part: TopicPartition, info: FetchInfo) -> TopicIdPartition:
    return TopicIdPartition(info.topic_id, part.topic, part.partition)


class FetchSessionHandler:
    """The session with one broker."""

    def __init__(self) -> None:
        self.next_metadata = INITIAL
        self.session_partitions: dict[TopicPartition, FetchInfo] = {}
        self.session_topic_names: dict[bytes, str] = {}
        self._ranks: dict[TopicPartition, int] = {}
        self._next_rank = 0
        self._names: dict[bytes, str] = {}
        self._counts: dict[bytes, int] = {}  # partitions by topic id

    def build(self, wanted: Mapping[TopicPartition, FetchInfo]) -> FetchRequestData:
        """Return what to send so that `wanted` is fetched."""
        if not self.next_metadata.is_full:
            data = self.change(wanted, [part for part in self.session_partitions if part not in wanted])
            data.session_partitions = dict(data.session_partitions)
            return data
        self.session_partitions, self._ranks, self._names, self._counts = {}, {}, {}, {}
        for part, info in wanted.items():
            self._put(part, info)
        can_use_topic_ids = ZERO_UUID not in self._counts
        self.session_topic_names = self._names if can_use_topic_ids else {}
        return FetchRequestData(dict(wanted), [], [], dict(wanted), self.next_metadata, can_use_topic_ids)

    def change(self, wanted: Mapping[TopicPartition, FetchInfo], unwanted: Iterable[TopicPartition]) -> FetchRequestData:
        """Do the same as `build` in an existing session. All other partitions stay unchanged.

        `session_partitions` of the result is the handler's own map, valid until the next call.
        """
        assert not self.next_metadata.is_full, "what begins a session says everything"
        session, rank = self.session_partitions, self._ranks.__getitem__
        added: dict[TopicPartition, FetchInfo] = {}
        changed: list[TopicPartition] = []
        for part, info in wanted.items():
            known = session.get(part)
            if known is None:
                added[part] = info
            elif known != info:
                changed.append(part)
        if len(changed) > 1:
            changed.sort(key=rank)
        altered = {part: wanted[part] for part in changed}
        gone = sorted({part for part in unwanted if part in session}, key=rank)
        removed = [_by_id(part, session[part]) for part in gone]
        replaced = [
            _by_id(part, session[part])
            for part, info in altered.items()
            if info.topic_id != session[part].topic_id and ZERO_UUID not in (info.topic_id, session[part].topic_id)
        ]
        for part in gone:
            self._drop(part)
        to_send = {**added, **altered}
        for part, info in to_send.items():
            self._put(part, info)
        can_use_topic_ids = ZERO_UUID not in self._counts and all(part.topic_id != ZERO_UUID for part in removed)
        self.session_topic_names = self._names if can_use_topic_ids else {}
        return FetchRequestData(to_send, removed, replaced, session, self.next_metadata, can_use_topic_ids)

    def _put(self, part: TopicPartition, info: FetchInfo) -> None:
        previous = self.session_partitions.get(part)
        if previous is None:
            self._ranks[part] = self._next_rank
            self._next_rank += 1
        if previous is None or previous.topic_id != info.topic_id:
            if previous is not None:
                self._uncount(previous.topic_id)
            self._counts[info.topic_id] = self._counts.get(info.topic_id, 0) + 1
            if info.topic_id != ZERO_UUID:
                self._names.setdefault(info.topic_id, part.topic)
        self.session_partitions[part] = info

    def _drop(self, part: TopicPartition) -> None:
        del self._ranks[part]
        self._uncount(self.session_partitions.pop(part).topic_id)

    def _uncount(self, topic_id: bytes) -> None:
        self._counts[topic_id] -= 1
        if not self._counts[topic_id]:
            del self._counts[topic_id]
            self._names.pop(topic_id, None)

    def handle_response(self, response: FetchResponse, version: int) -> bool:
        """Whether a response can be used. The next request depends on it."""
        return self.take_response(response, version) is not None

    def take_response(self, response: FetchResponse, version: int) -> dict[TopicPartition, PartitionData] | None:
        """Do the same as `handle_response`, but return the partitions of a usable response, or None."""
        metadata = self.next_metadata
        if response.error_code:
            not_found = errors.by_code(response.error_code).name == "FETCH_SESSION_ID_NOT_FOUND"
            self.next_metadata = INITIAL if not_found else metadata.next_close_existing_attempt_new()
            return None
        parts = response_data(response, self.session_topic_names, version)
        if metadata.is_full and not parts and response.throttle_time_ms > 0:
            # The response has only a throttle time, and no session was created.
            self.next_metadata = INITIAL
            return None
        if not self._fits(parts.keys(), {topic.topic_id for topic in response.responses}, version):
            self.next_metadata = INITIAL if metadata.is_full else metadata.next_close_existing_attempt_new()
            return None
        if response.session_id == INVALID_SESSION_ID:
            self.next_metadata = INITIAL
        elif metadata.is_full:
            self.next_metadata = FetchMetadata(response.session_id, next_epoch(0))
        else:
            self.next_metadata = metadata.next_incremental()
        return parts

    def _fits(self, parts: Set[TopicPartition], ids: Iterable[bytes], version: int) -> bool:
        """Whether a full response has exactly the requested partitions, and an incremental one no others."""
        if version >= FIRST_VERSION_WITH_TOPIC_IDS and not self.session_topic_names.keys() >= set(ids) - {ZERO_UUID}:
            return False
        asked = self.session_partitions.keys()
        return parts == asked if self.next_metadata.is_full else parts <= asked

    def handle_error(self) -> None:
        """Handle a missing response: it is unknown whether the session still exists."""
        self.next_metadata = self.next_metadata.next_close_existing_attempt_new()
