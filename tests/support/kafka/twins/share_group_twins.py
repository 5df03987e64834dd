"""GroupTwins for share groups. Their responses come with the requests for the share coordinator."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from typing import Any

from kops.coordinators.groups.share.heartbeat import HeartbeatResult
from kops.coordinators.groups.share.offsets import AlterResult, DeleteOffsetsResult
from kops.coordinators.runtime.result import CoordinatorResult
from kops.errors import ApiError
from kops.protocol import errors
from kops.protocol.json_text import uuid_text
from kops.protocol.messages import share_group_describe_response as describing
from kops.protocol.messages.delete_share_group_offsets_response import DeleteShareGroupOffsetsResponse
from tests.support.kafka.twins.consumer_group_twins import ConsumerTwins
from tests.support.kafka.twins.group_twins import Answer


class ShareTwins(ConsumerTwins):
    """The twins."""

    def call(self, ours: str, theirs: str, own: tuple[Any, ...], real: tuple[Any, ...]) -> Answer:
        """Call a method of both shards that takes no context."""
        method = getattr(self.theirs.shard, theirs)
        return self.operate(lambda: method(*real), lambda: getattr(self.ours, ours)(*own))

    def numbers(self, topics: Mapping[bytes, Collection[int]]) -> Any:
        """Return a map of sets of partitions."""
        found = self.java.oracle.jvm.java.util.HashMap()
        for topic_id, numbers in topics.items():
            found.put(self.java.uuid(topic_id), self.java.oracle.jvm.java.util.HashSet(list(numbers)))
        return found

    def names(self, topics: Mapping[bytes, str]) -> Any:
        """Return a map of names."""
        found = self.java.oracle.jvm.java.util.HashMap()
        for topic_id, name in topics.items():
            found.put(self.java.uuid(topic_id), name)
        return found

    def ids(self, topic_ids: Collection[bytes]) -> Any:
        """Return a set of topic ids."""
        found = self.java.oracle.jvm.java.util.HashSet()
        for topic_id in topic_ids:
            found.add(self.java.uuid(topic_id))
        return found

    def describe_shares(self, group_ids: list[str]) -> None:
        """Check that both describe the committed groups in the same way."""
        theirs = self.theirs.shard.shareGroupDescribe(group_ids, self.java.long(self.committed_offset))
        for own, real in zip(self.ours.share_group_describe(group_ids), theirs, strict=True):
            answer = self.java.make("common.message.ShareGroupDescribeResponseData")
            answer.groups().add(real)
            self.compare_messages(describing.ShareGroupDescribeResponse(groups=[own]), answer)

    def _check_response(self, ours: CoordinatorResult[Any], theirs: Any, response_bytes: Callable[[Any], bytes] | None) -> None:
        own, real = ours.response, theirs.response()
        if isinstance(own, HeartbeatResult):
            self.compare_messages(own.response, real.getKey())
            same_request(own.initialize, real.getValue().get() if real.getValue().isPresent() else None)
        elif isinstance(own, AlterResult):
            self.compare_messages(own.response, real.getKey())
            same_request(own.initialize, real.getValue())
        elif isinstance(own, DeleteOffsetsResult):
            expected = None if real.topLevelErrorCode() == 0 else errors.by_code(real.topLevelErrorCode()).name
            assert (None if own.error is None else own.error.name) == expected
            answer = self.java.make("common.message.DeleteShareGroupOffsetsResponseData")
            if real.errorTopicResponseList() is not None:
                answer.setResponses(real.errorTopicResponseList())
            self.compare_messages(DeleteShareGroupOffsetsResponse(responses=list(own.error_topics)), answer)
            same_request(own.delete, real.deleteStateRequestParameters())
        elif isinstance(own, dict):
            assert set(own) == set(real)
            for group_id, request in own.items():
                entry = real[group_id]
                if isinstance(request, ApiError):
                    assert request.name == str(entry.getValue().toString())
                else:
                    same_request(request, entry.getKey())
        else:
            super()._check_response(ours, theirs, response_bytes)


def same_request(ours: Any, theirs: Any) -> None:
    """Check that both have the same request for the share coordinator."""
    if ours is None or theirs is None:
        assert ours is theirs
        return
    own = {}
    for topic in ours.topics:
        for each in topic.partitions:
            state = (each.state_epoch, each.start_offset) if hasattr(each, "start_offset") else None
            own[uuid_text(topic.topic_id), each.partition] = state
    real = {}
    for topic in theirs.groupTopicPartitionData().topicsData():
        for each in topic.partitions():
            state = None if None in own.values() else (each.stateEpoch(), each.startOffset())
            real[str(topic.topicId().toString()), each.partition()] = state
    assert own == real
