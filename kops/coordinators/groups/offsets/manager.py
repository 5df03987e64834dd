"""Commits, fetches, deletion and expiry of offsets (Kafka's OffsetMetadataManager)."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Final, TypeVar

from kops.config.values.java import to_long
from kops.config.values.java_hash import utf16
from kops.coordinators.groups.classic.group import ClassicGroup
from kops.coordinators.groups.classic.lookup import get_or_create_classic_group
from kops.coordinators.groups.classic.rebalance import Rebalances
from kops.coordinators.groups.classic.state import PREPARING_REBALANCE, STABLE
from kops.coordinators.groups.context import RequestContext
from kops.coordinators.groups.group import CommitPartitionValidator, Group, any_partition
from kops.coordinators.groups.offset_and_metadata import OffsetAndMetadata
from kops.coordinators.groups.offsets.table import Offsets, OffsetTable, PendingOffsets, Place
from kops.coordinators.groups.records.classic import offset_commit_record, offset_commit_tombstone
from kops.coordinators.groups.surroundings import Surroundings
from kops.coordinators.runtime.records import CoordinatorRecord
from kops.coordinators.runtime.result import CoordinatorResult
from kops.errors import ApiError
from kops.protocol.declaration import ZERO_UUID
from kops.protocol.errors import by_name
from kops.protocol.messages.offset_commit_key import OffsetCommitKey
from kops.protocol.messages.offset_commit_request import OffsetCommitRequest, OffsetCommitRequestPartition
from kops.protocol.messages.offset_commit_response import OffsetCommitResponse, OffsetCommitResponsePartition, OffsetCommitResponseTopic
from kops.protocol.messages.offset_commit_value import OffsetCommitValue
from kops.protocol.messages.offset_delete_request import OffsetDeleteRequest
from kops.protocol.messages.offset_delete_response import OffsetDeleteResponse, OffsetDeleteResponsePartition, OffsetDeleteResponseTopic
from kops.protocol.messages.offset_fetch_request import OffsetFetchRequestGroup
from kops.protocol.messages.offset_fetch_response import OffsetFetchResponseGroup, OffsetFetchResponsePartitions, OffsetFetchResponseTopics
from kops.protocol.messages.txn_offset_commit_request import TxnOffsetCommitRequest, TxnOffsetCommitRequestPartition
from kops.protocol.messages.txn_offset_commit_response import (
    TxnOffsetCommitResponse,
    TxnOffsetCommitResponsePartition,
    TxnOffsetCommitResponseTopic,
)

T = TypeVar("T")
_NO_PRODUCER_ID: Final = -1
_INVALID_OFFSET: Final = -1
_FIRST_COMMIT_VERSION_WITH_GROUP_ID_NOT_FOUND: Final = 9


class OffsetManager:
    """The offsets of a shard."""

    def __init__(self, around: Surroundings, rebalances: Rebalances) -> None:
        self._around = around
        self._store = around.store
        self._rebalances = rebalances
        self._offsets = OffsetTable(around.timeline)
        self._pending = PendingOffsets(around.timeline)

    @property
    def offsets(self) -> OffsetTable:
        """All offsets, for tools that show them."""
        return self._offsets

    @property
    def pending(self) -> PendingOffsets:
        """The offsets of open transactions, for tools that show them."""
        return self._pending

    def commit(self, context: RequestContext, request: OffsetCommitRequest) -> CoordinatorResult[OffsetCommitResponse]:
        """Commit offsets of a member, or of a group without members. Raises ApiError."""
        validator = self._validate_commit(context, request)
        now_ms = self._around.now_ms()
        # A very long time overflows: Java's sum is in the past, and so the offset expires at once.
        expire_ms = None if request.retention_time_ms == -1 else to_long(now_ms + request.retention_time_ms)
        response = OffsetCommitResponse()
        records: list[CoordinatorRecord] = []
        for topic in request.topics:
            answers: list[OffsetCommitResponsePartition] = []
            for partition in topic.partitions:
                index = partition.partition_index
                error_code = self._metadata_error(partition.committed_metadata)
                answers.append(OffsetCommitResponsePartition(index, error_code))
                if error_code == 0:
                    validator(topic.name, topic.topic_id, index)
                    offset = _offset(partition, now_ms, expire_ms, topic.topic_id)
                    records.append(offset_commit_record(request.group_id, topic.name, index, offset))
            response.topics.append(OffsetCommitResponseTopic(name=topic.name, topic_id=topic.topic_id, partitions=answers))
        return CoordinatorResult(records, response)

    def commit_transactional(self, context: RequestContext, request: TxnOffsetCommitRequest) -> CoordinatorResult[TxnOffsetCommitResponse]:
        """Commit offsets within a transaction. Raises ApiError."""
        validator = self._validate_transactional_commit(context, request)
        now_ms = self._around.now_ms()
        response = TxnOffsetCommitResponse()
        records: list[CoordinatorRecord] = []
        for topic in request.topics:
            answers: list[TxnOffsetCommitResponsePartition] = []
            view = None if self._around.image is None else self._around.image.topic(topic.name)
            topic_id = ZERO_UUID if view is None else view.id
            if topic_id == ZERO_UUID and validator is not any_partition:
                raise ApiError("ILLEGAL_GENERATION")
            for partition in topic.partitions:
                index = partition.partition_index
                error_code = self._metadata_error(partition.committed_metadata)
                answers.append(TxnOffsetCommitResponsePartition(index, error_code))
                if error_code == 0:
                    _as_illegal_generation(lambda: validator(topic.name, topic_id, index))  # noqa: B023 - called at once
                    records.append(offset_commit_record(request.group_id, topic.name, index, _offset(partition, now_ms)))
            response.topics.append(TxnOffsetCommitResponseTopic(name=topic.name, partitions=answers))
        return CoordinatorResult(records, response)

    def fetch(self, request: OffsetFetchRequestGroup, *, require_stable: bool) -> OffsetFetchResponseGroup:
        """Return the offsets of the partitions in the request, or all offsets if it has no topics. It reads the committed state. With
        `require_stable` it reads the current state, and a partition with an offset of an open transaction has an error. Raises ApiError.
        """
        offsets: Offsets | None = None
        try:
            self._validate_fetch(request, require_stable=require_stable)
        except ApiError as error:
            if error.name != "GROUP_ID_NOT_FOUND":
                raise
        else:
            by_group = self._offsets.by_group
            offsets = by_group.get(request.group_id) if require_stable else by_group.committed(request.group_id)
        answer = _FetchAnswer(request.group_id, self._pending if require_stable else None)
        response = OffsetFetchResponseGroup(group_id=request.group_id)
        if request.topics is None:
            found = () if offsets is None else offsets.items() if require_stable else offsets.committed_items()
            topics: dict[str, OffsetFetchResponseTopics] = {}
            for (name, index), offset in found:
                topic = topics.get(name)
                if topic is None:
                    topic = topics[name] = OffsetFetchResponseTopics(name=name)
                topic.partitions.append(answer((name, index), offset, ZERO_UUID))
            response.topics.extend(topics.values())
            return response
        for wanted in request.topics:
            partitions = []
            for index in wanted.partition_indexes:
                place = (wanted.name, index)
                known = None if offsets is None else offsets.get(place) if require_stable else offsets.committed(place)
                partitions.append(answer(place, known, wanted.topic_id))
            response.topics.append(OffsetFetchResponseTopics(name=wanted.name, topic_id=wanted.topic_id, partitions=partitions))
        return response

    def delete(self, request: OffsetDeleteRequest) -> CoordinatorResult[OffsetDeleteResponse]:
        """Delete offsets of topics to which the group does not subscribe. Raises ApiError."""
        group_id = request.group_id
        group = self._around.store.group(group_id)
        group.validate_offset_delete()
        response = OffsetDeleteResponse()
        records: list[CoordinatorRecord] = []
        for topic in request.topics:
            is_subscribed = group.is_subscribed_to_topic(topic.name)
            error_code = by_name("GROUP_SUBSCRIBED_TO_TOPIC").code if is_subscribed else 0
            answers = []
            for partition in topic.partitions:
                place = (topic.name, partition.partition_index)
                answers.append(OffsetDeleteResponsePartition(partition.partition_index, error_code))
                if not is_subscribed and (self._offsets.get(group_id, place) is not None or self._pending.has(group_id, place)):
                    records.append(offset_commit_tombstone(group_id, *place))
            response.topics.append(OffsetDeleteResponseTopic(name=topic.name, partitions=answers))
        return CoordinatorResult(records, response)

    def delete_all(self, group_id: str, records: list[CoordinatorRecord]) -> int:
        """Append tombstones for all offsets of a group, including pending ones. Returns their number."""
        offsets = self._offsets.by_group.get(group_id, ())
        places = [*offsets, *(place for place in self._pending.places(group_id) if place not in offsets)]
        records.extend(offset_commit_tombstone(group_id, *place) for place in places)
        return len(places)

    def cleanup_expired(self, group_id: str, records: list[CoordinatorRecord]) -> bool:
        """Append tombstones for the expired offsets of a group. Returns whether none remains, so that the group itself may expire."""
        offsets = self._offsets.by_group.get(group_id)
        if offsets is None:
            return not self._pending.has_group(group_id)
        group = self._around.store.group(group_id)
        base_timestamp = group.offset_expiration_condition()
        if base_timestamp is None:
            return False
        now_ms, retention_ms = self._around.now_ms(), self._around.config.offsets_retention_ms
        all_expired = True
        subscribed: dict[str, bool] = {}
        for place, offset in offsets.items():
            topic = place[0]
            is_subscribed = subscribed.get(topic)
            if is_subscribed is None:
                is_subscribed = subscribed[topic] = group.is_subscribed_to_topic(topic)
            is_expired = not is_subscribed and offset.is_expired(base_timestamp(offset), now_ms, retention_ms)
            if is_expired and not self._pending.has(group_id, place):
                records.append(offset_commit_tombstone(group_id, *place))
            else:
                all_expired = False
        return all_expired and not self._pending.has_group(group_id)

    def on_topics_deleted(self, topics: Iterable[tuple[bytes, str]]) -> list[CoordinatorRecord]:
        """Return tombstones for the offsets of deleted topics (id and name). An offset with another topic id belongs to a newer topic."""
        ids: dict[str, list[bytes]] = {}
        for topic_id, name in topics:
            ids.setdefault(name, []).append(topic_id)
        return [
            offset_commit_tombstone(group_id, *place)
            for table in (self._offsets, *self._pending.tables())
            for group_id, offsets in table.by_group.items()
            for place, offset in offsets.items()
            for topic_id in ids.get(place[0], ())
            if offset.topic_id in (ZERO_UUID, topic_id)
        ]

    def replay(self, offset: int, producer_id: int, key: OffsetCommitKey, value: OffsetCommitValue | None) -> None:
        """Store an offset, or remove it after a tombstone. If the group does not exist, create a simple group."""
        group_id, place = key.group, (key.topic, key.partition)
        store = self._store
        if value is None:
            self._offsets.remove(group_id, place)
            self._pending.clear(group_id, place)
            return
        if group_id not in store.groups:
            get_or_create_classic_group(store, group_id, self._around.now_ms)
        kept = OffsetAndMetadata.from_record(offset, value)
        if producer_id == _NO_PRODUCER_ID:
            self._offsets.put(group_id, place, kept)
        else:
            self._pending.put(producer_id, group_id, place, kept)

    def replay_end_transaction_marker(self, producer_id: int, is_commit: bool) -> None:
        """Handle the end of a transaction. If it was committed, its offsets take effect, except where a newer record has an offset."""
        table = self._pending.end(producer_id)
        if table is None or not is_commit:
            return
        for group_id, offsets in table.by_group.items():
            for place, offset in offsets.items():
                existing = self._offsets.get(group_id, place)
                if existing is None or offset.record_offset > existing.record_offset:
                    self._offsets.put(group_id, place, offset)

    def _validate_commit(self, context: RequestContext, request: OffsetCommitRequest) -> CommitPartitionValidator:
        group: Group | None = self._around.store.get(request.group_id)
        if group is None:
            if request.generation_id_or_member_epoch >= 0:
                if context.api_version >= _FIRST_COMMIT_VERSION_WITH_GROUP_ID_NOT_FOUND:
                    raise ApiError("GROUP_ID_NOT_FOUND", f"Group {request.group_id} not found.")
                raise ApiError("ILLEGAL_GENERATION")
            group = get_or_create_classic_group(self._around.store, request.group_id, self._around.now_ms)
        validator = group.validate_offset_commit(
            request.member_id, request.group_instance_id, request.generation_id_or_member_epoch, False, context.api_version
        )
        if isinstance(group, ClassicGroup) and group.state in (STABLE, PREPARING_REBALANCE):
            # A commit counts as a sign of life of the member.
            self._rebalances.reschedule_heartbeat(group, group.members[request.member_id])
        return validator

    def _validate_transactional_commit(self, context: RequestContext, request: TxnOffsetCommitRequest) -> CommitPartitionValidator:
        group = self._around.store.get(request.group_id)
        if group is None:
            if request.generation_id >= 0:
                raise ApiError("ILLEGAL_GENERATION")
            group = get_or_create_classic_group(self._around.store, request.group_id, self._around.now_ms)
        found = group
        return _as_illegal_generation(
            lambda: found.validate_offset_commit(
                request.member_id, request.group_instance_id, request.generation_id, True, context.api_version
            )
        )

    def _validate_fetch(self, request: OffsetFetchRequestGroup, *, require_stable: bool) -> None:
        store = self._around.store
        group = store.group(request.group_id) if require_stable else store.committed_group(request.group_id)
        group.validate_offset_fetch(request.member_id, request.member_epoch, require_stable=require_stable)

    def _metadata_error(self, metadata: str | None) -> int:
        limit = self._around.config.offset_metadata_max_bytes
        is_too_long = metadata is not None and len(metadata) * 2 > limit and len(utf16(metadata)) > limit
        return by_name("OFFSET_METADATA_TOO_LARGE").code if is_too_long else 0


class _FetchAnswer:
    """Computes the answer for a partition."""

    def __init__(self, group_id: str, pending: PendingOffsets | None) -> None:
        self._group_id = group_id
        self._pending = pending

    def __call__(self, place: Place, offset: OffsetAndMetadata | None, topic_id: bytes) -> OffsetFetchResponsePartitions:
        index = place[1]
        if self._pending is not None and self._pending.has(self._group_id, place):
            unstable = by_name("UNSTABLE_OFFSET_COMMIT").code
            return OffsetFetchResponsePartitions(partition_index=index, committed_offset=_INVALID_OFFSET, error_code=unstable)
        if offset is None or (offset.topic_id != topic_id and ZERO_UUID not in (offset.topic_id, topic_id)):
            return OffsetFetchResponsePartitions(partition_index=index, committed_offset=_INVALID_OFFSET)
        return OffsetFetchResponsePartitions(
            partition_index=index,
            committed_offset=offset.committed_offset,
            committed_leader_epoch=-1 if offset.leader_epoch is None else offset.leader_epoch,
            metadata=offset.metadata,
        )


def _offset(
    partition: OffsetCommitRequestPartition | TxnOffsetCommitRequestPartition,
    now_ms: int,
    expire_ms: int | None = None,
    topic_id: bytes = ZERO_UUID,
) -> OffsetAndMetadata:
    epoch = partition.committed_leader_epoch
    return OffsetAndMetadata(
        partition.committed_offset, None if epoch == -1 else epoch, partition.committed_metadata or "", now_ms, expire_ms, topic_id
    )


def _as_illegal_generation(check: Callable[[], T]) -> T:
    """Check a member's epoch. Convert its errors to ILLEGAL_GENERATION, the only one that producers know."""
    try:
        return check()
    except ApiError as error:
        if error.name == "STALE_MEMBER_EPOCH":
            raise ApiError("ILLEGAL_GENERATION") from error
        raise
