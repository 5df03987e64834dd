"""Passes requests of groups to the shard of the group, and turns its results into responses (Kafka's GroupCoordinatorService).

A group's shard is a partition of `__consumer_offsets`, chosen by the hash of the group's id. Every method returns the promise of a
response.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from functools import partial
from typing import Final, TypeVar

from kops.broker.coordinators.errors import answering_errors, joined, operation_error
from kops.broker.coordinators.heartbeat_checks import check_streams_heartbeat
from kops.broker.coordinators.heartbeats import Heartbeats
from kops.broker.coordinators.share_groups import ShareGroups, ShareSurroundings
from kops.broker.replicas.hosted_partitions import error_name
from kops.config.values.java_hash import put_order
from kops.coordinators.groups.assignors.java_maps import grouped, topic_partition_hash
from kops.coordinators.groups.config import GroupCoordinatorConfig
from kops.coordinators.groups.context import RequestContext
from kops.coordinators.groups.shard.shard import DeletedTopic, GroupCoordinatorShard
from kops.coordinators.groups.streams.result import HeartbeatResult as StreamsHeartbeatResult
from kops.coordinators.runtime.promise import Promise
from kops.coordinators.runtime.result import CoordinatorResult
from kops.coordinators.runtime.runtime import CoordinatorRuntime
from kops.errors import ApiError, KopsError
from kops.protocol import messages
from kops.protocol.errors import by_name
from kops.protocol.messages.consumer_group_describe_response import DescribedGroup as DescribedConsumerGroup
from kops.protocol.messages.delete_groups_response import DeletableGroupResult
from kops.protocol.messages.describe_groups_response import DescribedGroup
from kops.protocol.messages.list_groups_response import ListedGroup
from kops.protocol.messages.offset_commit_response import OffsetCommitResponsePartition, OffsetCommitResponseTopic
from kops.protocol.messages.offset_fetch_request import OffsetFetchRequestGroup
from kops.protocol.messages.offset_fetch_response import (
    OffsetFetchResponseGroup,
    OffsetFetchResponsePartitions,
    OffsetFetchResponseTopics,
)
from kops.protocol.messages.streams_group_describe_response import DescribedGroup as DescribedStreamsGroup
from kops.protocol.messages.txn_offset_commit_response import TxnOffsetCommitResponsePartition, TxnOffsetCommitResponseTopic
from kops.records.log_offsets import TopicPartition

log = logging.getLogger(__name__)
T = TypeVar("T")
R = TypeVar("R")

GROUP_TOPIC: Final = "__consumer_offsets"
_TOP_LEVEL_ERROR_SINCE: Final = 2
_LOOKED_UP_AGAIN: Final = frozenset({"UNKNOWN_TOPIC_OR_PARTITION", "NOT_ENOUGH_REPLICAS", "REQUEST_TIMED_OUT"})


def code(name: str) -> int:
    """The code of an error."""
    return by_name(name).code


class GroupCoordinatorService:
    """Handles the requests of groups. `partition_for` returns the partition for a group's id."""

    def __init__(
        self,
        runtime: CoordinatorRuntime[GroupCoordinatorShard],
        config: GroupCoordinatorConfig,
        partition_for: Callable[[str], int],
        share_surroundings: ShareSurroundings,
    ) -> None:
        self.runtime = runtime
        self._config = config
        self._partition_for = partition_for
        self._keys: dict[int, TopicPartition] = {}
        beats = Heartbeats(runtime, config, self._key)
        self.kept_heartbeat = beats.kept_classic
        self.heartbeat = beats.classic
        self.kept_consumer_group_heartbeat = beats.kept_consumer
        self.consumer_group_heartbeat = beats.consumer
        self.share = ShareGroups(runtime, self._key, share_surroundings)

    def _key(self, group_id: str) -> TopicPartition:
        partition = self._partition_for(group_id)
        key = self._keys.get(partition)
        if key is None:
            key = self._keys[partition] = TopicPartition(GROUP_TOPIC, partition)
        return key

    def _written(
        self, name: str, group_id: str, operation: Callable[[GroupCoordinatorShard], CoordinatorResult[R]], answer: Callable[[str], R]
    ) -> Promise[R]:
        """Run a write operation. `answer` converts an error into a response."""
        promise = self.runtime.schedule_write_operation(name, self._key(group_id), operation)
        return answering_errors(name, promise, lambda error, _: answer(error))

    # classic groups ---------------------------------------------------------------------------------------------------------------

    def join_group(self, context: RequestContext, request: messages.JoinGroupRequest) -> Promise[messages.JoinGroupResponse]:
        """JoinGroup."""
        if not request.group_id:
            return Promise.of(messages.JoinGroupResponse(member_id=request.member_id, error_code=code("INVALID_GROUP_ID")))
        config = self._config
        if not config.group_min_session_timeout_ms <= request.session_timeout_ms <= config.group_max_session_timeout_ms:
            return Promise.of(messages.JoinGroupResponse(member_id=request.member_id, error_code=code("INVALID_SESSION_TIMEOUT")))
        response: Promise[messages.JoinGroupResponse] = Promise()
        self.runtime.schedule_write_operation(
            "classic-group-join", self._key(request.group_id), lambda shard: shard.classic_group_join(context, request, response)
        ).when_done(
            lambda _, error: _fail_open(
                "classic-group-join", response, error, lambda name: messages.JoinGroupResponse(error_code=code(name))
            )
        )
        return response

    def sync_group(self, context: RequestContext, request: messages.SyncGroupRequest) -> Promise[messages.SyncGroupResponse]:
        """SyncGroup."""
        if not request.group_id:
            return Promise.of(messages.SyncGroupResponse(error_code=code("INVALID_GROUP_ID")))
        response: Promise[messages.SyncGroupResponse] = Promise()
        self.runtime.schedule_write_operation(
            "classic-group-sync", self._key(request.group_id), lambda shard: shard.classic_group_sync(context, request, response)
        ).when_done(
            lambda _, error: _fail_open(
                "classic-group-sync", response, error, lambda name: messages.SyncGroupResponse(error_code=code(name))
            )
        )
        return response

    def leave_group(self, context: RequestContext, request: messages.LeaveGroupRequest) -> Promise[messages.LeaveGroupResponse]:
        """LeaveGroup, with members in every version."""
        if not request.group_id:
            return Promise.of(messages.LeaveGroupResponse(error_code=code("INVALID_GROUP_ID")))

        def answer(error: str) -> messages.LeaveGroupResponse:
            if error != "UNKNOWN_MEMBER_ID":
                return messages.LeaveGroupResponse(error_code=code(error))
            from kops.protocol.messages.leave_group_response import MemberResponse

            members = [MemberResponse(one.member_id, one.group_instance_id, code(error)) for one in request.members]
            return messages.LeaveGroupResponse(members=members)

        return self._written("classic-group-leave", request.group_id, lambda shard: shard.classic_group_leave(context, request), answer)

    # consumer groups --------------------------------------------------------------------------------------------------------------

    def consumer_group_describe(self, group_ids: list[str]) -> Promise[list[DescribedConsumerGroup]]:
        """ConsumerGroupDescribe. The empty group id is not allowed."""
        name, invalid = "consumer-group-describe", code("INVALID_GROUP_ID")
        empty = [DescribedConsumerGroup(group_id="", error_code=invalid) for group_id in group_ids if not group_id]
        described = self._by_shard(
            name,
            [group_id for group_id in group_ids if group_id],
            lambda key, ids: self.runtime.schedule_read_operation(name, key, lambda shard: shard.consumer_group_describe(ids)),
            lambda group_id, error: DescribedConsumerGroup(group_id=group_id, error_code=code(error)),
        )
        return described.then(lambda groups: empty + groups)

    # streams groups ---------------------------------------------------------------------------------------------------------------

    def streams_group_heartbeat(
        self, context: RequestContext, request: messages.StreamsGroupHeartbeatRequest
    ) -> Promise[StreamsHeartbeatResult]:
        """StreamsGroupHeartbeat."""

        def answer(error: str, text: str | None) -> StreamsHeartbeatResult:
            return StreamsHeartbeatResult(messages.StreamsGroupHeartbeatResponse(error_code=code(error), error_message=text), {})

        try:
            check_streams_heartbeat(request)
        except ApiError as error:
            return Promise.of(answer(error.name, error.message))
        name = "streams-group-heartbeat"
        promise = self.runtime.schedule_write_operation(
            name, self._key(request.group_id), lambda shard: shard.streams_group_heartbeat(context, request)
        )
        return answering_errors(name, promise, answer)

    def streams_group_describe(self, group_ids: list[str]) -> Promise[list[DescribedStreamsGroup]]:
        """StreamsGroupDescribe. The empty group id is not allowed."""
        name, invalid = "streams-group-describe", code("INVALID_GROUP_ID")
        empty = [DescribedStreamsGroup(group_id="", error_code=invalid) for group_id in group_ids if not group_id]
        described = self._by_shard(
            name,
            [group_id for group_id in group_ids if group_id],
            lambda key, ids: self.runtime.schedule_read_operation(name, key, lambda shard: shard.streams_group_describe(ids)),
            lambda group_id, error: DescribedStreamsGroup(group_id=group_id, error_code=code(error)),
        )
        return described.then(lambda groups: empty + groups)

    # all groups -------------------------------------------------------------------------------------------------------------------

    def list_groups(self, request: messages.ListGroupsRequest) -> Promise[messages.ListGroupsResponse]:
        """ListGroups: the groups of all shards here."""

        def none_if_moved(error: KopsError) -> list[ListedGroup]:
            if error_name(error) == "NOT_COORDINATOR":
                return []
            raise error

        found = self.runtime.schedule_read_all_operation(
            "list-groups", lambda shard: list(shard.list_groups(request.states_filter, request.types_filter))
        )
        listed = joined([promise.or_else(none_if_moved) for promise in found]).then(
            lambda groups: messages.ListGroupsResponse(groups=groups)
        )
        return answering_errors("list-groups", listed, lambda error, _: messages.ListGroupsResponse(error_code=code(error)))

    def _by_shard(
        self,
        name: str,
        group_ids: Iterable[str],
        run: Callable[[TopicPartition, list[str]], Promise[list[R]]],
        answer: Callable[[str, str], R],
    ) -> Promise[list[R]]:
        """Ask each shard for its groups, and join the results. `answer(group id, error)` converts an error into a result."""
        by_key = grouped(group_ids, self._key, topic_partition_hash)

        def told(key: TopicPartition, ids: list[str]) -> Promise[list[R]]:
            return answering_errors(name, run(key, ids), lambda error, _: [answer(group_id, error) for group_id in ids])

        return joined([told(key, ids) for key, ids in by_key.items()])

    def describe_groups(self, context: RequestContext, group_ids: list[str]) -> Promise[list[DescribedGroup]]:
        """DescribeGroups. The empty group id is allowed."""
        return self._by_shard(
            "describe-groups",
            group_ids,
            lambda key, ids: self.runtime.schedule_read_operation(
                "describe-groups", key, lambda shard: shard.describe_groups(context, ids)
            ),
            lambda group_id, error: DescribedGroup(group_id=group_id, error_code=code(error)),
        )

    def delete_groups(self, context: RequestContext, group_ids: list[str]) -> Promise[list[DeletableGroupResult]]:
        """DeleteGroups. The empty group id is allowed. Kafka deletes in the order of a HashSet."""
        by_key = grouped(group_ids, self._key, topic_partition_hash)
        return joined([self._delete_groups(context, key, ids) for key, ids in by_key.items()])

    def _delete_groups(self, context: RequestContext, key: TopicPartition, group_ids: list[str]) -> Promise[list[DeletableGroupResult]]:
        """Delete the groups of one shard. The state of share groups is deleted first. If that fails, the group stays."""
        name = "delete-groups"

        def go_on(errors: dict[str, str]) -> Promise[list[DeletableGroupResult]]:
            failed = [DeletableGroupResult(group_id=group_id, error_code=code(error)) for group_id, error in errors.items()]
            left = put_order([group_id for group_id in group_ids if group_id not in errors])
            if not left:
                return Promise.of(failed)
            deleted = self.runtime.schedule_write_operation(name, key, lambda shard: shard.delete_groups(context, left))
            return answering_errors(
                name, deleted, lambda error, _: [DeletableGroupResult(group_id=group_id, error_code=code(error)) for group_id in left]
            ).then(lambda results: failed + results)

        return self.share.delete_state_of(key, group_ids).then_promise(go_on)

    # offsets ----------------------------------------------------------------------------------------------------------------------

    def fetch_offsets(
        self, context: RequestContext, group: OffsetFetchRequestGroup, *, require_stable: bool
    ) -> Promise[OffsetFetchResponseGroup]:
        """OffsetFetch for one group. With `require_stable` it waits for pending commits."""
        name = "fetch-all-offsets" if group.topics is None else "fetch-offsets"

        def answer(error: str, _: str | None) -> OffsetFetchResponseGroup:
            return group_error(group, error, context.api_version)

        key = self._key(group.group_id)
        if not require_stable:
            read = self.runtime.schedule_read_operation(name, key, lambda shard: shard.fetch_offsets(group, require_stable=False))
            return read.or_else(lambda error: answer(error_name(error), None))
        written: Promise[OffsetFetchResponseGroup] = self.runtime.schedule_write_operation(
            name, key, lambda shard: CoordinatorResult((), shard.fetch_offsets(group, require_stable=True))
        )

        def failed(error: KopsError) -> OffsetFetchResponseGroup:
            if error_name(error) in _LOOKED_UP_AGAIN:
                # Older consumers retry only after NOT_COORDINATOR.
                return answer("NOT_COORDINATOR", None)
            return answer(*operation_error(name, error))

        return written.or_else(failed)

    def commit_offsets(self, context: RequestContext, request: messages.OffsetCommitRequest) -> Promise[messages.OffsetCommitResponse]:
        """OffsetCommit. The empty group id is allowed."""
        name, key = "commit-offset", self._key(request.group_id)
        promise = self.runtime.schedule_write_operation(name, key, partial(_commit_offset, context, request))
        return promise.or_else(partial(_failed_commit, name, request))

    def commit_transactional_offsets(
        self, context: RequestContext, request: messages.TxnOffsetCommitRequest
    ) -> Promise[messages.TxnOffsetCommitResponse]:
        """TxnOffsetCommit."""
        if not request.group_id:
            return Promise.of(txn_commit_error(request, "INVALID_GROUP_ID"))
        promise = self.runtime.schedule_transactional_write_operation(
            "txn-commit-offset",
            self._key(request.group_id),
            request.transactional_id,
            request.producer_id,
            request.producer_epoch,
            lambda shard: shard.commit_transactional_offset(context, request),
            context.api_version,
        )
        return answering_errors("txn-commit-offset", promise, lambda error, _: txn_commit_error(request, error))

    def delete_offsets(self, context: RequestContext, request: messages.OffsetDeleteRequest) -> Promise[messages.OffsetDeleteResponse]:
        """OffsetDelete."""
        if not request.group_id:
            return Promise.of(messages.OffsetDeleteResponse(error_code=code("INVALID_GROUP_ID")))
        return self._written(
            "delete-offsets",
            request.group_id,
            lambda shard: shard.delete_offsets(context, request),
            lambda error: messages.OffsetDeleteResponse(error_code=code(error)),
        )

    # from the broker --------------------------------------------------------------------------------------------------------------

    def complete_transaction(
        self,
        key: TopicPartition,
        producer_id: int,
        producer_epoch: int,
        coordinator_epoch: int,
        is_commit: bool,
        transaction_version: int,
    ) -> Promise[None]:
        """Write the marker of a transaction that committed offsets. The promise fails with the ApiError of the log or the runtime."""
        assert key.topic == GROUP_TOPIC, f"Completing a transaction for {key} is not expected"
        return self.runtime.schedule_transaction_completion(
            "write-txn-marker", key, producer_id, producer_epoch, coordinator_epoch, is_commit, transaction_version
        )

    def on_topics_deleted(self, topics: list[DeletedTopic]) -> None:
        """Remove the offsets of deleted topics."""

        def tell(error: KopsError | None) -> None:
            if error is not None:
                log.error("Could not delete offsets for deleted topics %s due to: %s.", topics, error)

        for promise in self.runtime.schedule_write_all_operation("on-topics-deleted", lambda shard: shard.on_topics_deleted(topics)):
            promise.when_done(lambda _, error: tell(error))
        self.share.on_topics_deleted([topic.id for topic in topics])


def _fail_open(name: str, response: Promise[R], error: KopsError | None, answer: Callable[[str], R]) -> None:
    """Answer a join or sync whose operation failed, unless it has already been answered."""
    if error is not None and not response.is_done:
        response.complete(answer(operation_error(name, error)[0]))


def group_error(group: OffsetFetchRequestGroup, error: str, version: int) -> OffsetFetchResponseGroup:
    """Return an OffsetFetch group with an error. The oldest version repeats it for each partition (OffsetFetchResponse.groupError)."""
    if version >= _TOP_LEVEL_ERROR_SINCE:
        return OffsetFetchResponseGroup(group_id=group.group_id, error_code=code(error))
    topics = [
        OffsetFetchResponseTopics(
            name=topic.name,
            partitions=[
                OffsetFetchResponsePartitions(
                    partition_index=index, committed_offset=-1, committed_leader_epoch=-1, metadata="", error_code=code(error)
                )
                for index in topic.partition_indexes
            ],
        )
        for topic in group.topics or ()
    ]
    return OffsetFetchResponseGroup(group_id=group.group_id, topics=topics)


def _commit_offset(
    context: RequestContext, request: messages.OffsetCommitRequest, shard: GroupCoordinatorShard
) -> CoordinatorResult[messages.OffsetCommitResponse]:
    # Commits wait for the replicas, many at a time. A closure would be one more object for the garbage collector for each variable.
    return shard.commit_offset(context, request)


def _failed_commit(name: str, request: messages.OffsetCommitRequest, error: KopsError) -> messages.OffsetCommitResponse:
    return commit_error(request, operation_error(name, error)[0])


def commit_error(request: messages.OffsetCommitRequest, error: str) -> messages.OffsetCommitResponse:
    """An error for every partition of an OffsetCommit."""
    return messages.OffsetCommitResponse(
        topics=[
            OffsetCommitResponseTopic(
                name=topic.name,
                topic_id=topic.topic_id,
                partitions=[OffsetCommitResponsePartition(one.partition_index, code(error)) for one in topic.partitions],
            )
            for topic in request.topics
        ]
    )


def txn_commit_error(request: messages.TxnOffsetCommitRequest, error: str) -> messages.TxnOffsetCommitResponse:
    """An error for every partition of a TxnOffsetCommit."""
    return messages.TxnOffsetCommitResponse(
        topics=[
            TxnOffsetCommitResponseTopic(
                topic.name, [TxnOffsetCommitResponsePartition(one.partition_index, code(error)) for one in topic.partitions]
            )
            for topic in request.topics
        ]
    )
