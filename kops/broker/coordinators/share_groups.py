"""The requests of share groups (Kafka's GroupCoordinatorService). The shard decides; the persister keeps the delivery state.

An operation that needs both has two or three steps: a write in the shard, a request to the persister, and often a second write.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any, Final, NamedTuple, Protocol

from kops.broker.coordinators.errors import answering_errors, joined
from kops.broker.coordinators.heartbeat_checks import check_share_heartbeat
from kops.broker.replicas.hosted_partitions import error_name
from kops.config.values.java import to_long
from kops.coordinators.groups.assignors.java_maps import grouped, topic_partition_hash
from kops.coordinators.runtime.promise import Promise, all_of
from kops.coordinators.share.responses import message_of
from kops.errors import ApiError, KopsError
from kops.protocol import messages
from kops.protocol.errors import by_code, by_name
from kops.protocol.messages import alter_share_group_offsets_response as altering
from kops.protocol.messages import describe_share_group_offsets_response as describing
from kops.protocol.messages import read_share_group_state_summary_request as summing
from kops.protocol.messages.delete_share_group_offsets_response import DeleteShareGroupOffsetsResponseTopic
from kops.protocol.messages.describe_share_group_offsets_request import DescribeShareGroupOffsetsRequestGroup
from kops.protocol.messages.share_group_describe_response import DescribedGroup
from kops.records.log_offsets import TopicPartition

if TYPE_CHECKING:
    from kops.coordinators.groups.context import RequestContext
    from kops.coordinators.groups.shard.shard import GroupCoordinatorShard
    from kops.coordinators.groups.share.heartbeat import HeartbeatResult
    from kops.coordinators.groups.share.offsets import AlterResult, DeleteOffsetsResult
    from kops.coordinators.runtime.image import CoordinatorImage
    from kops.coordinators.runtime.runtime import CoordinatorRuntime
    from kops.coordinators.share.persister.persister import Persister
    from kops.protocol.messages.delete_share_group_state_request import DeleteShareGroupStateRequest
    from kops.protocol.messages.delete_share_group_state_response import DeleteShareGroupStateResponse
    from kops.protocol.messages.initialize_share_group_state_request import InitializeShareGroupStateRequest
    from kops.protocol.messages.initialize_share_group_state_response import InitializeShareGroupStateResponse

log = logging.getLogger(__name__)

_UNINITIALIZED: Final = -1
_DEFAULT_LEADER_EPOCH: Final = 0
Numbers = dict[bytes, tuple[int, ...]]


class EndOffset(Protocol):
    """The end of a partition, or an error's name."""

    @property
    def offset(self) -> int:
        """The offset after the last record that consumers can read."""

    @property
    def error(self) -> str:
        """The name of the error, or NONE."""


class EndOffsets(Protocol):
    """Looks up the ends of partitions."""

    def find(self, partitions: Iterable[TopicPartition]) -> Promise[Mapping[TopicPartition, Any]]:
        """Return a promise of one EndOffset for each partition. It does not fail."""


class ShareSurroundings(NamedTuple):
    """The objects that share groups use in addition to the group coordinator's runtime."""

    persister: Callable[[], Persister]
    end_offsets: Callable[[], EndOffsets]
    image: Callable[[], CoordinatorImage]
    call_soon: Callable[[Callable[[], object]], object]


class ShareGroups:
    """Handles the requests of share groups. `key_of` returns the partition of a group."""

    def __init__(
        self, runtime: CoordinatorRuntime[GroupCoordinatorShard], key_of: Callable[[str], TopicPartition], around: ShareSurroundings
    ) -> None:
        self._runtime = runtime
        self._key_of = key_of
        self._around = around

    # members ----------------------------------------------------------------------------------------------------------------------

    def heartbeat(
        self, context: RequestContext, request: messages.ShareGroupHeartbeatRequest
    ) -> Promise[messages.ShareGroupHeartbeatResponse]:
        """ShareGroupHeartbeat. The state of new partitions is initialized after the answer."""

        def answer(error: str, text: str | None) -> messages.ShareGroupHeartbeatResponse:
            return messages.ShareGroupHeartbeatResponse(error_code=_code(error), error_message=text)

        try:
            check_share_heartbeat(request)
        except ApiError as error:
            return Promise.of(answer(error.name, error.message))
        name = "share-group-heartbeat"
        written: Promise[HeartbeatResult] = self._runtime.schedule_write_operation(
            name, self._key_of(request.group_id), lambda shard: shard.share_group_heartbeat(context, request)
        )

        def told(result: HeartbeatResult) -> messages.ShareGroupHeartbeatResponse:
            initialize = result.initialize
            if initialize is not None:
                self._around.call_soon(lambda: self._initialize(initialize))
            return result.response

        return answering_errors(name, written.then(told), answer)

    def describe(self, group_ids: list[str]) -> Promise[list[DescribedGroup]]:
        """ShareGroupDescribe. The empty group id is not allowed."""
        name = "share-group-describe"
        empty = [DescribedGroup(group_id="", error_code=_code("INVALID_GROUP_ID")) for group_id in group_ids if not group_id]
        by_key = grouped([group_id for group_id in group_ids if group_id], self._key_of, topic_partition_hash)

        def described(key: TopicPartition, ids: list[str]) -> Promise[list[DescribedGroup]]:
            promise = self._runtime.schedule_read_operation(name, key, lambda shard: shard.share_group_describe(ids))
            return answering_errors(
                name, promise, lambda error, _: [DescribedGroup(group_id=group_id, error_code=_code(error)) for group_id in ids]
            )

        return joined([described(key, ids) for key, ids in by_key.items()]).then(lambda groups: empty + groups)

    # state of new partitions ------------------------------------------------------------------------------------------------------

    def _initialize(self, request: InitializeShareGroupStateRequest) -> None:
        """Initialize partitions, and write the result."""

        def done(response: InitializeShareGroupStateResponse | None, error: KopsError | None) -> None:
            if response is not None:
                self._note_initialized(request.group_id, response)
                return
            log.error("Unable to initialize share group state of %s: %s", request.group_id, error)
            self._uninitialize(
                request.group_id, {topic.topic_id: tuple(one.partition for one in topic.partitions) for topic in request.topics}
            )

        self._around.persister().initialize_state(request).when_done(done)

    def _note_initialized(self, group_id: str, response: InitializeShareGroupStateResponse) -> None:
        topics = {topic.topic_id: tuple(one.partition for one in topic.partitions) for topic in response.results}
        failed = [one.error_code for topic in response.results for one in topic.partitions if one.error_code]
        if failed:
            log.error("Received error while calling initialize state for %s on persister: %s", group_id, by_code(failed[0]).name)
            self._uninitialize(group_id, topics)
            return

        def done(_: None, error: KopsError | None) -> None:
            if error is not None:
                log.error("Unable to initialize share group state partition metadata for %s: %s", group_id, error)
                self._uninitialize(group_id, topics)

        if topics:
            self._runtime.schedule_write_operation(
                "initialize-share-group-state", self._key_of(group_id), lambda shard: shard.initialize_share_group_state(group_id, topics)
            ).when_done(done)

    def _uninitialize(self, group_id: str, topics: Numbers) -> None:
        def done(_: None, error: KopsError | None) -> None:
            if error is not None:
                log.error("Unable to cleanup topic partitions from share group state metadata: %s", error)

        self._runtime.schedule_write_operation(
            "uninitialize-share-group-state", self._key_of(group_id), lambda shard: shard.uninitialize_share_group_state(group_id, topics)
        ).when_done(done)

    # offsets: describe ------------------------------------------------------------------------------------------------------------

    def describe_offsets(self, group: DescribeShareGroupOffsetsRequestGroup) -> Promise[describing.DescribeShareGroupOffsetsResponseGroup]:
        """DescribeShareGroupOffsets of one group and some topics."""
        data: list[summing.ReadStateSummaryData] = []
        names: dict[bytes, str] = {}
        missing: list[describing.DescribeShareGroupOffsetsResponseTopic] = []
        image = self._around.image()
        for topic in group.topics or ():
            known = image.topic(topic.topic_name)
            if known is None:
                nothing = [describing.DescribeShareGroupOffsetsResponsePartition(number, _UNINITIALIZED) for number in topic.partitions]
                missing.append(describing.DescribeShareGroupOffsetsResponseTopic(topic.topic_name, partitions=nothing))
            else:
                names[known.id] = topic.topic_name
                data.append(_summary_data(known.id, topic.partitions))
        return self._described(group.group_id, data, names, missing)

    def describe_all_offsets(self, group_id: str) -> Promise[describing.DescribeShareGroupOffsetsResponseGroup]:
        """DescribeShareGroupOffsets of one group and all its topics. The promise fails with the shard's errors."""
        read: Promise[Numbers] = self._runtime.schedule_read_operation(
            "share-group-initialized-partitions", self._key_of(group_id), lambda shard: shard.initialized_share_group_partitions(group_id)
        )

        def described(partitions: Numbers) -> Promise[describing.DescribeShareGroupOffsetsResponseGroup]:
            data, names = [], {}
            image = self._around.image()
            for topic_id, numbers in partitions.items():
                known = image.topic_by_id(topic_id)
                if known is not None:
                    names[topic_id] = known.name
                    data.append(_summary_data(topic_id, numbers))
            return self._described(group_id, data, names, [])

        return read.then_promise(described)

    def _described(
        self,
        group_id: str,
        data: list[summing.ReadStateSummaryData],
        names: Mapping[bytes, str],
        missing: list[describing.DescribeShareGroupOffsetsResponseTopic],
    ) -> Promise[describing.DescribeShareGroupOffsetsResponseGroup]:
        if not data:
            return Promise.of(describing.DescribeShareGroupOffsetsResponseGroup(group_id, missing))
        summary = self._around.persister().read_summary(messages.ReadShareGroupStateSummaryRequest(group_id, data))

        def with_lag(response: messages.ReadShareGroupStateSummaryResponse) -> Promise[describing.DescribeShareGroupOffsetsResponseGroup]:
            wanted = [
                TopicPartition(names[topic.topic_id], one.partition)
                for topic in response.results
                for one in topic.partitions
                if _has_lag(one)
            ]
            return (
                self._around.end_offsets()
                .find(wanted)
                .then(
                    lambda ends: describing.DescribeShareGroupOffsetsResponseGroup(
                        group_id, [_offsets_topic(topic, names[topic.topic_id], ends) for topic in response.results] + missing
                    )
                )
            )

        return summary.then_promise(with_lag)

    # offsets: alter and delete ----------------------------------------------------------------------------------------------------

    def alter_offsets(
        self, group_id: str, request: messages.AlterShareGroupOffsetsRequest
    ) -> Promise[messages.AlterShareGroupOffsetsResponse]:
        """AlterShareGroupOffsets. The group must be empty."""

        def answer(error: str, text: str | None) -> messages.AlterShareGroupOffsetsResponse:
            return messages.AlterShareGroupOffsetsResponse(error_code=_code(error), error_message=text or message_of(error))

        if not group_id:
            return Promise.of(answer("INVALID_GROUP_ID", None))
        name = "share-group-offsets-alter"
        written: Promise[AlterResult] = self._runtime.schedule_write_operation(
            name, self._key_of(group_id), lambda shard: shard.alter_share_group_offsets(group_id, request)
        )
        return answering_errors(name, written.then_promise(self._alter_state), answer)

    def _alter_state(self, result: AlterResult) -> Promise[messages.AlterShareGroupOffsetsResponse]:
        request, response = result.initialize, result.response
        if not request.topics:
            return Promise.of(response)

        def initialized(answer: InitializeShareGroupStateResponse) -> messages.AlterShareGroupOffsetsResponse:
            failures = {(topic.topic_id, one.partition): one for topic in answer.results for one in topic.partitions if one.error_code}
            if not failures:
                self._note_initialized(request.group_id, answer)
            for topic in response.responses:
                for one in topic.partitions:
                    failure = failures.get((topic.topic_id, one.partition_index))
                    if failure is not None and not one.error_code:
                        one.error_code, one.error_message = failure.error_code, failure.error_message
            return response

        def failed(error: KopsError) -> messages.AlterShareGroupOffsetsResponse:
            log.error("Unable to initialize share group state of %s while altering its offsets: %s", request.group_id, error)
            return _all_altered(response, error_name(error), str(error))

        return self._around.persister().initialize_state(request).then(initialized).or_else(failed)

    def delete_offsets(self, request: messages.DeleteShareGroupOffsetsRequest) -> Promise[messages.DeleteShareGroupOffsetsResponse]:
        """DeleteShareGroupOffsets. The group must be empty."""
        group_id = request.group_id
        if not group_id:
            return Promise.of(_delete_error("INVALID_GROUP_ID", None))
        name = "initiate-delete-share-group-offsets"
        written: Promise[DeleteOffsetsResult] = self._runtime.schedule_write_operation(
            name, self._key_of(group_id), lambda shard: shard.initiate_delete_share_group_offsets(group_id, request)
        )
        return answering_errors(name, written.then_promise(lambda result: self._delete_state(group_id, result)), _delete_error)

    def _delete_state(self, group_id: str, result: DeleteOffsetsResult) -> Promise[messages.DeleteShareGroupOffsetsResponse]:
        if result.error is not None:
            return Promise.of(_delete_error(result.error.name, result.error.message))
        wrong = list(result.error_topics)
        if result.delete is None:
            return Promise.of(messages.DeleteShareGroupOffsetsResponse(responses=wrong))

        def failed(error: KopsError) -> messages.DeleteShareGroupOffsetsResponse:
            log.error("Failed to delete share group state due to: %s", error)
            return _delete_error(error_name(error), None)

        deleted = self._around.persister().delete_state(result.delete)
        return deleted.then_promise(lambda response: self._complete_delete(group_id, response, wrong)).or_else(failed)

    def _complete_delete(
        self, group_id: str, response: DeleteShareGroupStateResponse, wrong: list[DeleteShareGroupOffsetsResponseTopic]
    ) -> Promise[messages.DeleteShareGroupOffsetsResponse]:
        image = self._around.image()
        done: dict[bytes, str] = {}
        for topic in response.results:
            known = image.topic_by_id(topic.topic_id)
            topic_name = "" if known is None else known.name
            failed = next((one.error_code for one in topic.partitions if one.error_code), 0)
            if failed:
                text = message_of(by_code(failed).name)
                wrong.append(DeleteShareGroupOffsetsResponseTopic(topic_name, topic.topic_id, failed, text))
            else:
                done[topic.topic_id] = topic_name
        if not done:
            return Promise.of(messages.DeleteShareGroupOffsetsResponse(responses=wrong))
        name = "complete-delete-share-group-offsets"
        promise = self._runtime.schedule_write_operation(
            name, self._key_of(group_id), lambda shard: shard.complete_delete_share_group_offsets(group_id, done, wrong)
        )
        return answering_errors(name, promise, lambda error, _: _delete_error(error, None))

    # groups that are deleted ------------------------------------------------------------------------------------------------------

    def delete_state_of(self, key: TopicPartition, group_ids: list[str]) -> Promise[dict[str, str]]:
        """The first step of DeleteGroups: delete the state of the share groups among these. Returns the errors of groups that must stay."""
        name = "delete-share-groups"
        written: Promise[dict[str, DeleteShareGroupStateRequest | ApiError]] = self._runtime.schedule_write_operation(
            name, key, lambda shard: shard.share_partition_delete_requests(group_ids)
        )
        return answering_errors(name, written.then_promise(self._delete_groups_state), lambda error, _: dict.fromkeys(group_ids, error))

    def _delete_groups_state(self, requests: Mapping[str, DeleteShareGroupStateRequest | ApiError]) -> Promise[dict[str, str]]:
        errors = {group_id: request.name for group_id, request in requests.items() if isinstance(request, ApiError)}
        persister = self._around.persister()
        deleted = {
            group_id: persister.delete_state(request).then(_deletion_failure).or_else(partial(_undeleted, request))
            for group_id, request in requests.items()
            if not isinstance(request, ApiError)
        }
        return all_of(deleted.values()).then(
            lambda _: errors | {group_id: error for group_id, promise in deleted.items() if (error := promise.result()) is not None}
        )

    # from the broker --------------------------------------------------------------------------------------------------------------

    def on_topics_deleted(self, topic_ids: Iterable[bytes]) -> None:
        """Forget deleted topics. The share coordinator itself deletes their state."""
        ids = frozenset(topic_ids)

        def tell(_: object, error: KopsError | None) -> None:
            if error is not None:
                log.error("Unable to cleanup state for the deleted topics: %s", error)

        name = "maybe-cleanup-share-group-state"
        for promise in self._runtime.schedule_write_all_operation(name, lambda shard: shard.maybe_cleanup_share_group_state(ids)):
            promise.when_done(tell)


def _code(name: str) -> int:
    return by_name(name).code


def _deletion_failure(response: DeleteShareGroupStateResponse) -> str | None:
    """Return the error of the last topic with an error, like Kafka."""
    failed: str | None = None
    for topic in response.results:
        code = next((one.error_code for one in topic.partitions if one.error_code), 0)
        if code:
            failed = by_code(code).name
    return failed


def _undeleted(request: DeleteShareGroupStateRequest, error: KopsError) -> str | None:
    """Return the error for the group. Without partitions there is nothing to delete, so the persister's refusal does not matter."""
    log.error("Unable to delete share group partition(s) of %s: %s", request.group_id, error)
    return error_name(error) if any(topic.partitions for topic in request.topics) else None


def _summary_data(topic_id: bytes, numbers: Iterable[int]) -> summing.ReadStateSummaryData:
    return summing.ReadStateSummaryData(topic_id, [summing.PartitionData(number) for number in numbers])


def _has_lag(one: Any) -> bool:
    return not one.error_code and one.start_offset != _UNINITIALIZED and one.delivery_complete_count != _UNINITIALIZED


def _offsets_topic(topic: Any, name: str, ends: Mapping[TopicPartition, EndOffset]) -> describing.DescribeShareGroupOffsetsResponseTopic:
    partitions = [_offsets_partition(one, ends.get(TopicPartition(name, one.partition))) for one in topic.partitions]
    return describing.DescribeShareGroupOffsetsResponseTopic(name, topic.topic_id, partitions)


def _offsets_partition(one: Any, end: EndOffset | None) -> describing.DescribeShareGroupOffsetsResponsePartition:
    made = describing.DescribeShareGroupOffsetsResponsePartition
    if end is None:
        # As in OffsetFetch, an error of the persister is reported as a missing offset.
        offset, epoch = (_UNINITIALIZED, _DEFAULT_LEADER_EPOCH) if one.error_code else (one.start_offset, one.leader_epoch)
        return made(one.partition, offset, epoch)
    if end.error != "NONE":
        return made(one.partition, error_code=_code(end.error), error_message=message_of(end.error))
    # A start offset of AlterShareGroupOffsets may be anything, so that Java's long overflows.
    return made(one.partition, one.start_offset, one.leader_epoch, to_long(end.offset - one.start_offset - one.delivery_complete_count))


def _all_altered(response: messages.AlterShareGroupOffsetsResponse, error: str, text: str) -> messages.AlterShareGroupOffsetsResponse:
    topics = [
        altering.AlterShareGroupOffsetsResponseTopic(
            topic.topic_name,
            topic.topic_id,
            [
                altering.AlterShareGroupOffsetsResponsePartition(one.partition_index, _code(error), message_of(error))
                for one in topic.partitions
            ],
        )
        for topic in response.responses
    ]
    return messages.AlterShareGroupOffsetsResponse(error_code=_code(error), error_message=text, responses=topics)


def _delete_error(error: str, text: str | None) -> messages.DeleteShareGroupOffsetsResponse:
    return messages.DeleteShareGroupOffsetsResponse(error_code=_code(error), error_message=text or message_of(error))
