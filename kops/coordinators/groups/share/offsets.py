"""Alters and deletes offsets of share groups, and deletes groups: the records to write, and the requests to the share coordinator.

Source: Kafka's GroupMetadataManager and GroupCoordinatorShard (alterShareGroupOffsets, initiateDeleteShareGroupOffsets,
completeDeleteShareGroupOffsets, sharePartitionDeleteRequests). All operations require an empty group.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Final, NamedTuple

from kops.coordinators.groups.assignors.java_maps import put_ordered, uuid_hash
from kops.coordinators.groups.classic.errors import code
from kops.coordinators.groups.share.heartbeat import Heartbeats
from kops.coordinators.groups.share.state_partitions import StatePartitions, TopicState, combined, initialize_request
from kops.coordinators.runtime.records import CoordinatorRecord
from kops.coordinators.runtime.result import CoordinatorResult
from kops.errors import ApiError
from kops.protocol.messages import alter_share_group_offsets_response as altering
from kops.protocol.messages import delete_share_group_state_request as deleting_state
from kops.protocol.messages.alter_share_group_offsets_request import AlterShareGroupOffsetsRequest, AlterShareGroupOffsetsRequestTopic
from kops.protocol.messages.delete_share_group_offsets_request import DeleteShareGroupOffsetsRequest
from kops.protocol.messages.delete_share_group_offsets_response import DeleteShareGroupOffsetsResponse, DeleteShareGroupOffsetsResponseTopic
from kops.protocol.messages.initialize_share_group_state_request import InitializeShareGroupStateRequest

_UNKNOWN_TOPIC: Final = "UNKNOWN_TOPIC_OR_PARTITION", "This server does not host this topic-partition."


class AlterResult(NamedTuple):
    """The response, and the request that must initialize the state with the new offsets before the response is sent."""

    response: altering.AlterShareGroupOffsetsResponse
    initialize: InitializeShareGroupStateRequest


class DeleteOffsetsResult(NamedTuple):
    """Either the error of the whole request, or the topics with errors and the request that must delete the state of the others."""

    error: ApiError | None
    error_topics: Sequence[DeleteShareGroupOffsetsResponseTopic] = ()
    delete: deleting_state.DeleteShareGroupStateRequest | None = None


class ShareOffsets:
    """Handles requests about offsets."""

    def __init__(self, heartbeats: Heartbeats, states: StatePartitions) -> None:
        self._heartbeats = heartbeats
        self._states = states

    def alter(self, group_id: str, request: AlterShareGroupOffsetsRequest) -> CoordinatorResult[AlterResult]:
        """Begin to set start offsets. The group may be new. Raises ApiError."""
        group = self._heartbeats.group_or_new(group_id, create=True)
        group.validate_delete_group()
        now_ms = self._heartbeats.now_ms()
        states: dict[bytes, TopicState] = {}
        offsets: dict[bytes, dict[int, int]] = {}
        responses = []
        for topic in request.topics:
            known = self._states.image.topic(topic.topic_name)
            count = 0 if known is None else known.partition_count
            response = altering.AlterShareGroupOffsetsResponseTopic(topic.topic_name, partitions=_altered(topic, count))
            responses.append(response)
            if known is not None:
                response.topic_id = known.id
                wanted = {each.partition_index: each.start_offset for each in topic.partitions if each.partition_index < count}
                states[known.id] = TopicState(topic.topic_name, tuple(wanted), now_ms)
                if wanted:
                    offsets.setdefault(known.id, {}).update(wanted)
        records = self._states.initializing_record(group_id, states)
        initialize = initialize_request(group_id, group.group_epoch, put_ordered(offsets, uuid_hash))
        return CoordinatorResult(records, AlterResult(altering.AlterShareGroupOffsetsResponse(responses=responses), initialize))

    def begin_delete(self, group_id: str, request: DeleteShareGroupOffsetsRequest) -> CoordinatorResult[DeleteOffsetsResult]:
        """Begin to delete the offsets of topics."""
        try:
            self._heartbeats.group(group_id).validate_delete_group()
        except ApiError as error:
            return CoordinatorResult(response=DeleteOffsetsResult(error))
        info = self._states.get(group_id)
        if info is None:
            return CoordinatorResult(response=DeleteOffsetsResult(None))
        initialized, deleting = dict(info.initialized), set(info.deleting)
        wrong, data = [], []
        for topic in request.topics:
            known = self._states.image.topic(topic.topic_name)
            if known is None:
                wrong.append(_error_topic(topic.topic_name, *_UNKNOWN_TOPIC))
            elif known.id in initialized:
                data.append(_delete_data(known.id, initialized.pop(known.id).partitions))
                deleting.add(known.id)
            elif known.id in deleting:
                data.append(_delete_data(known.id, range(known.partition_count)))
            else:
                wrong.append(_error_topic(topic.topic_name, "UNKNOWN_TOPIC_OR_PARTITION", "There is no offset information to delete."))
        record = self._states.record(group_id, info.initializing, initialized, deleting)
        delete = deleting_state.DeleteShareGroupStateRequest(group_id, data) if data else None
        return CoordinatorResult([record], DeleteOffsetsResult(None, wrong, delete))

    def complete_delete(
        self, group_id: str, topics: Mapping[bytes, str], error_topics: Iterable[DeleteShareGroupOffsetsResponseTopic]
    ) -> CoordinatorResult[DeleteShareGroupOffsetsResponse]:
        """Complete the deletion after the share coordinator has deleted the state of these topics."""
        info = self._states.get(group_id)
        if info is None:
            return CoordinatorResult(response=DeleteShareGroupOffsetsResponse(responses=list(error_topics)))
        record = self._states.record(group_id, info.initializing, info.initialized, info.deleting - topics.keys())
        done = [DeleteShareGroupOffsetsResponseTopic(name, topic_id) for topic_id, name in put_ordered(topics, uuid_hash).items()]
        return CoordinatorResult([record], DeleteShareGroupOffsetsResponse(responses=[*done, *error_topics]))

    def delete_requests(
        self, group_ids: Iterable[str]
    ) -> CoordinatorResult[dict[str, deleting_state.DeleteShareGroupStateRequest | ApiError]]:
        """Return, for each share group to delete, the request that deletes its state, or an error. Groups of other kinds are left out."""
        found: dict[str, deleting_state.DeleteShareGroupStateRequest | ApiError] = {}
        records: list[CoordinatorRecord] = []
        for group_id in group_ids:
            try:
                self._heartbeats.group(group_id).validate_delete_group()
            except ApiError as error:
                if error.name != "GROUP_ID_NOT_FOUND":
                    found[group_id] = error
                continue
            request = self._delete_request(group_id, records)
            if request is not None:
                found[group_id] = request
        return CoordinatorResult(records, found)

    def _delete_request(self, group_id: str, records: list[CoordinatorRecord]) -> deleting_state.DeleteShareGroupStateRequest | None:
        """Return the request to delete all state of a group, including remains of an earlier attempt."""
        info = self._states.get(group_id)
        if info is None:
            return None
        gone = combined(info.initialized, info.initializing)
        left = (self._states.image.topic_by_id(topic_id) for topic_id in info.deleting)
        gone = combined(
            gone, {topic.id: TopicState(topic.name, tuple(range(topic.partition_count)), -1) for topic in left if topic is not None}
        )
        names = {topic_id: state.name for topic_id, state in gone.items()}
        records.append(self._states.deleting_record(group_id, names))
        if not gone:
            return None
        data = [_delete_data(topic_id, state.partitions) for topic_id, state in put_ordered(gone, uuid_hash).items()]
        return deleting_state.DeleteShareGroupStateRequest(group_id, data)


def _altered(topic: AlterShareGroupOffsetsRequestTopic, count: int) -> list[altering.AlterShareGroupOffsetsResponsePartition]:
    found = []
    for each in topic.partitions:
        part = altering.AlterShareGroupOffsetsResponsePartition(each.partition_index)
        if each.partition_index >= count:
            part.error_code, part.error_message = code(_UNKNOWN_TOPIC[0]), _UNKNOWN_TOPIC[1]
        found.append(part)
    return found


def _delete_data(topic_id: bytes, partitions: Iterable[int]) -> deleting_state.DeleteStateData:
    return deleting_state.DeleteStateData(topic_id, [deleting_state.PartitionData(number) for number in partitions])


def _error_topic(name: str, error: str, message: str) -> DeleteShareGroupOffsetsResponseTopic:
    return DeleteShareGroupOffsetsResponseTopic(name, error_code=code(error), error_message=message)
