"""One shard of the group coordinator (Kafka's GroupCoordinatorShard): it passes each request to the manager of the group's kind.

The runtime sets `timeline.offset` to the offset of the next record before it calls a method that may write. Some methods change groups
before their records are replayed, and such a change must be undone together with the records. Methods raise ApiError where Kafka throws an
ApiException.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Any, Final, NamedTuple

from kops.coordinators.groups.classic.errors import code
from kops.coordinators.groups.classic.group import ClassicGroup
from kops.coordinators.groups.classic.lookup import create_tombstones_and_cancel_timers
from kops.coordinators.groups.classic.manager import ClassicGroupManager
from kops.coordinators.groups.config import GroupCoordinatorConfig, GroupSettings
from kops.coordinators.groups.consumer.manager import ConsumerGroupManager
from kops.coordinators.groups.consumer.state.group import ConsumerGroup
from kops.coordinators.groups.context import RequestContext
from kops.coordinators.groups.group import GroupType
from kops.coordinators.groups.offsets.manager import OffsetManager
from kops.coordinators.groups.share.heartbeat import HeartbeatResult as ShareHeartbeatResult
from kops.coordinators.groups.share.manager import ShareGroupManager
from kops.coordinators.groups.share.offsets import AlterResult, DeleteOffsetsResult
from kops.coordinators.groups.share.state_partitions import TopicNumbers
from kops.coordinators.groups.store import GroupStore
from kops.coordinators.groups.streams.manager import StreamsGroupManager
from kops.coordinators.groups.streams.result import HeartbeatResult as StreamsHeartbeatResult
from kops.coordinators.groups.surroundings import EMPTY_RESULT, GroupManager, Surroundings
from kops.coordinators.runtime.image import CoordinatorDelta, CoordinatorImage
from kops.coordinators.runtime.promise import Promise
from kops.coordinators.runtime.records import CoordinatorRecord
from kops.coordinators.runtime.result import CoordinatorResult
from kops.coordinators.runtime.timers import CoordinatorExecutor, CoordinatorTimer
from kops.errors import ApiError
from kops.protocol.declaration import Message
from kops.protocol.messages.alter_share_group_offsets_request import AlterShareGroupOffsetsRequest
from kops.protocol.messages.consumer_group_describe_response import DescribedGroup as DescribedConsumerGroup
from kops.protocol.messages.consumer_group_heartbeat_request import ConsumerGroupHeartbeatRequest
from kops.protocol.messages.consumer_group_heartbeat_response import ConsumerGroupHeartbeatResponse
from kops.protocol.messages.delete_groups_response import DeletableGroupResult
from kops.protocol.messages.delete_share_group_offsets_request import DeleteShareGroupOffsetsRequest
from kops.protocol.messages.delete_share_group_offsets_response import DeleteShareGroupOffsetsResponse, DeleteShareGroupOffsetsResponseTopic
from kops.protocol.messages.delete_share_group_state_request import DeleteShareGroupStateRequest
from kops.protocol.messages.describe_groups_response import DescribedGroup
from kops.protocol.messages.heartbeat_request import HeartbeatRequest
from kops.protocol.messages.heartbeat_response import HeartbeatResponse
from kops.protocol.messages.join_group_request import JoinGroupRequest
from kops.protocol.messages.join_group_response import JoinGroupResponse
from kops.protocol.messages.leave_group_request import LeaveGroupRequest
from kops.protocol.messages.leave_group_response import LeaveGroupResponse
from kops.protocol.messages.legacy_offset_commit_key import LegacyOffsetCommitKey
from kops.protocol.messages.legacy_offset_commit_value import LegacyOffsetCommitValue
from kops.protocol.messages.list_groups_response import ListedGroup
from kops.protocol.messages.offset_commit_key import OffsetCommitKey
from kops.protocol.messages.offset_commit_request import OffsetCommitRequest
from kops.protocol.messages.offset_commit_response import OffsetCommitResponse
from kops.protocol.messages.offset_commit_value import OffsetCommitValue
from kops.protocol.messages.offset_delete_request import OffsetDeleteRequest
from kops.protocol.messages.offset_delete_response import OffsetDeleteResponse
from kops.protocol.messages.offset_fetch_request import OffsetFetchRequestGroup
from kops.protocol.messages.offset_fetch_response import OffsetFetchResponseGroup
from kops.protocol.messages.share_group_describe_response import DescribedGroup as DescribedShareGroup
from kops.protocol.messages.share_group_heartbeat_request import ShareGroupHeartbeatRequest
from kops.protocol.messages.streams_group_describe_response import DescribedGroup as DescribedStreamsGroup
from kops.protocol.messages.streams_group_heartbeat_request import StreamsGroupHeartbeatRequest
from kops.protocol.messages.sync_group_request import SyncGroupRequest
from kops.protocol.messages.sync_group_response import SyncGroupResponse
from kops.protocol.messages.txn_offset_commit_request import TxnOffsetCommitRequest
from kops.protocol.messages.txn_offset_commit_response import TxnOffsetCommitResponse
from kops.timeline import Timeline

GROUP_EXPIRATION_KEY: Final = "expire-group-metadata"


class DeletedTopic(NamedTuple):
    """A deleted topic."""

    id: bytes
    name: str


class GroupCoordinatorShard:
    """The groups whose ids belong to one partition of `__consumer_offsets`, and their offsets.

    `new_id` returns a new random UUID in Java's format (`123e4567-e89b-42d3-a456-426614174000`).
    """

    def __init__(
        self,
        timeline: Timeline,
        timer: CoordinatorTimer,
        executor: CoordinatorExecutor,
        now_ms: Callable[[], int],
        new_id: Callable[[], str],
        config: GroupCoordinatorConfig,
        group_settings: GroupSettings,
    ) -> None:
        self._store = store = GroupStore(timeline)
        self._around = around = Surroundings(timeline, store, timer, executor, now_ms, new_id, config, group_settings)
        self._classic = ClassicGroupManager(around)
        self._offsets = OffsetManager(around, self._classic.rebalances)
        self._consumer = ConsumerGroupManager(around, self._classic.rebalances)
        self._share = ShareGroupManager(around)
        self._streams = StreamsGroupManager(around)
        self._managers: list[GroupManager] = [self._classic, self._consumer, self._share, self._streams]
        self._replays: dict[type[Message], Callable[[Any, Any], None]] = {}
        for manager in self._managers:
            self._replays.update(manager.replays)

    # Classic groups

    def classic_group_join(
        self, context: RequestContext, request: JoinGroupRequest, promise: Promise[JoinGroupResponse]
    ) -> CoordinatorResult[None]:
        """Handle JoinGroup. The promise may complete much later."""
        group = self._store.get(request.group_id)
        if isinstance(group, ConsumerGroup) and not group.is_empty:
            return self._consumer.classic_members.join(group, context, request, promise)
        if group is None or group.type is GroupType.CLASSIC or (group.type in (GroupType.CONSUMER, GroupType.STREAMS) and group.is_empty):
            return self._classic.join(context, request, promise)
        promise.complete(JoinGroupResponse(error_code=code("INCONSISTENT_GROUP_PROTOCOL")))
        return EMPTY_RESULT

    def classic_group_sync(
        self, context: RequestContext, request: SyncGroupRequest, promise: Promise[SyncGroupResponse]
    ) -> CoordinatorResult[None]:
        """Handle SyncGroup. The promise may complete later."""
        group = self._store.get(request.group_id)
        if isinstance(group, ClassicGroup) and not group.is_empty:
            return self._classic.sync(group, request, promise)
        if isinstance(group, ConsumerGroup) and not group.is_empty:
            return self._consumer.classic_members.sync(group, request, promise)
        promise.complete(SyncGroupResponse(error_code=code("UNKNOWN_MEMBER_ID")))
        return EMPTY_RESULT

    def classic_group_heartbeat(self, context: RequestContext, request: HeartbeatRequest) -> CoordinatorResult[HeartbeatResponse]:
        """Handle Heartbeat."""
        group = self._store.get(request.group_id)
        if isinstance(group, ClassicGroup):
            return self._classic.heartbeat(group, request)
        if isinstance(group, ConsumerGroup):
            return self._consumer.classic_members.heartbeat(group, request)
        raise ApiError("UNKNOWN_MEMBER_ID", f"Group {request.group_id} not found.")

    def keep_classic_member(self, request: HeartbeatRequest) -> bool:
        """Handle a Heartbeat that is answered without an error and changes nothing. Returns False, and does nothing, if it is another
        one."""
        group = self._store.get(request.group_id)
        return isinstance(group, ClassicGroup) and self._classic.keep_member(group, request)

    def classic_group_leave(self, context: RequestContext, request: LeaveGroupRequest) -> CoordinatorResult[LeaveGroupResponse]:
        """Handle LeaveGroup with a list of members. The service converts the single member of versions before 3."""
        group = self._store.get(request.group_id)
        if isinstance(group, ClassicGroup):
            return self._classic.leave(group, request)
        if isinstance(group, ConsumerGroup):
            return self._consumer.leave_classic(group, request)
        raise ApiError("UNKNOWN_MEMBER_ID", f"Group {request.group_id} not found.")

    # Consumer groups

    def consumer_group_heartbeat(
        self, context: RequestContext, request: ConsumerGroupHeartbeatRequest
    ) -> CoordinatorResult[ConsumerGroupHeartbeatResponse]:
        """Handle ConsumerGroupHeartbeat: a member joins (epoch 0), stays or leaves (-1, -2)."""
        return self._consumer.heartbeat(context, request)

    def keep_consumer_member(
        self, context: RequestContext, request: ConsumerGroupHeartbeatRequest
    ) -> ConsumerGroupHeartbeatResponse | None:
        """Handle a heartbeat that changes nothing. Returns None, and does nothing, if it is another one."""
        return self._consumer.keep_member(context, request)

    def consumer_group_describe(self, group_ids: Iterable[str]) -> list[DescribedConsumerGroup]:
        """Handle ConsumerGroupDescribe, for committed consumer groups."""
        return self._consumer.describe(group_ids)

    # Share groups

    def share_group_heartbeat(
        self, context: RequestContext, request: ShareGroupHeartbeatRequest
    ) -> CoordinatorResult[ShareHeartbeatResult]:
        """Handle ShareGroupHeartbeat: a member joins (epoch 0), stays or leaves (-1)."""
        return self._share.heartbeat(context, request)

    def share_group_describe(self, group_ids: Iterable[str]) -> list[DescribedShareGroup]:
        """Handle ShareGroupDescribe, for committed share groups."""
        return self._share.describe(group_ids)

    def initialize_share_group_state(self, group_id: str, topics: TopicNumbers) -> CoordinatorResult[None]:
        """Record that the share coordinator has initialized partitions."""
        return self._share.on_initialized(group_id, topics)

    def uninitialize_share_group_state(self, group_id: str, topics: TopicNumbers) -> CoordinatorResult[None]:
        """Record that the share coordinator could not initialize partitions."""
        return self._share.on_uninitialized(group_id, topics)

    def initialized_share_group_partitions(self, group_id: str) -> dict[bytes, tuple[int, ...]]:
        """Return the partitions of a group that the share coordinator has initialized."""
        return self._share.initialized_partitions(group_id)

    def alter_share_group_offsets(self, group_id: str, request: AlterShareGroupOffsetsRequest) -> CoordinatorResult[AlterResult]:
        """Handle the first step of AlterShareGroupOffsets, before the request to the share coordinator."""
        return self._share.offsets.alter(group_id, request)

    def initiate_delete_share_group_offsets(
        self, group_id: str, request: DeleteShareGroupOffsetsRequest
    ) -> CoordinatorResult[DeleteOffsetsResult]:
        """Handle the first step of DeleteShareGroupOffsets, before the request to the share coordinator."""
        return self._share.offsets.begin_delete(group_id, request)

    def complete_delete_share_group_offsets(
        self, group_id: str, topics: Mapping[bytes, str], error_topics: Iterable[DeleteShareGroupOffsetsResponseTopic]
    ) -> CoordinatorResult[DeleteShareGroupOffsetsResponse]:
        """Complete DeleteShareGroupOffsets after the share coordinator's answer."""
        return self._share.offsets.complete_delete(group_id, topics, error_topics)

    def share_partition_delete_requests(
        self, group_ids: Iterable[str]
    ) -> CoordinatorResult[dict[str, DeleteShareGroupStateRequest | ApiError]]:
        """Return the requests to send to the share coordinator before the share groups among these are deleted."""
        return self._share.offsets.delete_requests(group_ids)

    def maybe_cleanup_share_group_state(self, topic_ids: Collection[bytes]) -> CoordinatorResult[None]:
        """Remove the share state of deleted topics."""
        return self._share.clean_up_deleted_topics(topic_ids)

    # Streams groups

    def streams_group_heartbeat(
        self, context: RequestContext, request: StreamsGroupHeartbeatRequest
    ) -> CoordinatorResult[StreamsHeartbeatResult]:
        """Handle StreamsGroupHeartbeat: a member joins (epoch 0), stays or leaves (-1)."""
        return self._streams.heartbeat(context, request)

    def streams_group_describe(self, group_ids: Iterable[str]) -> list[DescribedStreamsGroup]:
        """Handle StreamsGroupDescribe, for committed streams groups."""
        return self._streams.describe(group_ids)

    # Offsets

    def commit_offset(self, context: RequestContext, request: OffsetCommitRequest) -> CoordinatorResult[OffsetCommitResponse]:
        """Handle OffsetCommit. Topics must have names; the service adds them to requests with ids only."""
        return self._offsets.commit(context, request)

    def commit_transactional_offset(
        self, context: RequestContext, request: TxnOffsetCommitRequest
    ) -> CoordinatorResult[TxnOffsetCommitResponse]:
        """Handle TxnOffsetCommit."""
        return self._offsets.commit_transactional(context, request)

    def fetch_offsets(self, request: OffsetFetchRequestGroup, *, require_stable: bool) -> OffsetFetchResponseGroup:
        """Handle OffsetFetch for one group; all offsets if `topics` is None. With `require_stable` it runs as a write operation."""
        return self._offsets.fetch(request, require_stable=require_stable)

    def delete_offsets(self, context: RequestContext, request: OffsetDeleteRequest) -> CoordinatorResult[OffsetDeleteResponse]:
        """Handle OffsetDelete."""
        return self._offsets.delete(request)

    # All groups

    def list_groups(self, states: Iterable[str], types: Iterable[str]) -> list[ListedGroup]:
        """Return the committed groups with one of the states and one of the types. An empty filter accepts all."""
        wanted_states = {state.lower().strip() for state in states}
        wanted_types = {GroupType.parse(name) for name in types}
        return [
            group.as_listed_group()
            for group in self._store.committed_groups()
            if (not wanted_states or group.is_in_states(wanted_states)) and (not wanted_types or group.type in wanted_types)
        ]

    def describe_groups(self, context: RequestContext, group_ids: list[str]) -> list[DescribedGroup]:
        """Handle DescribeGroups, for committed classic groups."""
        return self._classic.describe(context, group_ids)

    def delete_groups(self, context: RequestContext, group_ids: Sequence[str]) -> CoordinatorResult[list[DeletableGroupResult]]:
        """Handle DeleteGroups: delete empty groups with their offsets."""
        records: list[CoordinatorRecord] = []
        results = []
        for group_id in group_ids:
            result = DeletableGroupResult(group_id=group_id)
            results.append(result)
            try:
                group = self._store.group(group_id)
                group.validate_delete_group()
            except ApiError as error:
                result.error_code = code(error.name)
            else:
                self._offsets.delete_all(group_id, records)
                create_tombstones_and_cancel_timers(self._around, group, records)
        return CoordinatorResult(records, results)

    def cleanup_group_metadata(self) -> CoordinatorResult[None]:
        """Remove expired offsets, and groups without members and offsets. Runs every `offsets.retention.check.interval.ms`."""
        records: list[CoordinatorRecord] = []
        for group_id in self._store.ids():
            group = self._store.group(group_id)
            if group.should_expire and self._offsets.cleanup_expired(group_id, records) and group.is_empty:
                create_tombstones_and_cancel_timers(self._around, group, records)
        self._schedule_expiration()
        return CoordinatorResult(records, is_atomic=False)

    def on_topics_deleted(self, topics: Iterable[DeletedTopic]) -> CoordinatorResult[None]:
        """Remove the offsets of deleted topics."""
        return CoordinatorResult(self._offsets.on_topics_deleted(topics), is_atomic=False)

    # What the runtime calls

    def on_loaded(self, image: CoordinatorImage) -> None:
        """Start timers, because all records have been replayed."""
        self._around.image = image
        for manager in self._managers:
            manager.on_metadata_update(None, image)
        for manager in self._managers:
            manager.on_loaded()
        self._schedule_expiration()

    def on_metadata_update(self, delta: CoordinatorDelta, image: CoordinatorImage) -> None:
        """Pass changed metadata to the managers."""
        self._around.image = image
        for manager in self._managers:
            manager.on_metadata_update(delta, image)

    def on_unloaded(self) -> None:
        """Answer waiting requests with an error, because another broker leads the partition."""
        self._around.timer.cancel(GROUP_EXPIRATION_KEY)
        for manager in self._managers:
            manager.on_unloaded()

    def replay(self, offset: int, producer_id: int, producer_epoch: int, record: CoordinatorRecord) -> None:
        """Apply a record to the state."""
        key, value, _ = record
        if isinstance(key, OffsetCommitKey):
            assert value is None or isinstance(value, OffsetCommitValue)
            self._offsets.replay(offset, producer_id, key, value)
        elif isinstance(key, LegacyOffsetCommitKey):
            assert value is None or isinstance(value, LegacyOffsetCommitValue)
            self._offsets.replay(offset, producer_id, *_as_offset_commit(key, value))
        else:
            self._replays[type(key)](key, value)

    def replay_end_transaction_marker(self, producer_id: int, producer_epoch: int, is_commit: bool) -> None:
        """Apply the end of a transaction with offsets."""
        self._offsets.replay_end_transaction_marker(producer_id, is_commit)

    def _schedule_expiration(self) -> None:
        interval_ms = self._around.config.offsets_retention_check_interval_ms
        self._around.timer.schedule(GROUP_EXPIRATION_KEY, interval_ms, self.cleanup_group_metadata, retry_backoff_ms=interval_ms)


def _as_offset_commit(
    key: LegacyOffsetCommitKey, value: LegacyOffsetCommitValue | None
) -> tuple[OffsetCommitKey, OffsetCommitValue | None]:
    new_key = OffsetCommitKey(group=key.group, topic=key.topic, partition=key.partition)
    if value is None:
        return new_key, None
    return new_key, OffsetCommitValue(offset=value.offset, commit_timestamp=value.commit_timestamp, metadata=value.metadata)
