"""GroupTwins for streams groups. Their responses come with the internal topics to create."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import pytest
from py4j.protocol import Py4JJavaError

from kops.coordinators.groups.streams.result import HeartbeatResult
from kops.coordinators.runtime.result import CoordinatorResult
from kops.errors import ApiError
from kops.protocol.messages import streams_group_describe_response as describing
from kops.protocol.messages.create_topics_request import CreatableTopic, CreateTopicsRequest
from tests.support.kafka.twins.consumer_group_twins import ConsumerTwins


class StreamsTwins(ConsumerTwins):
    """The twins."""

    def describe_streams(self, group_ids: list[str]) -> None:
        """Check that both describe the committed groups in the same way."""
        try:
            theirs = self.theirs.shard.streamsGroupDescribe(group_ids, self.java.long(self.committed_offset))
        except Py4JJavaError as error:
            assert "IllegalStateException" in str(error.java_exception)
            with pytest.raises(ApiError, match="UNKNOWN_SERVER_ERROR"):
                self.ours.streams_group_describe(group_ids)
            return
        for own, real in zip(self.ours.streams_group_describe(group_ids), theirs, strict=True):
            answer = self.java.make("common.message.StreamsGroupDescribeResponseData")
            answer.groups().add(real)
            assert describing.StreamsGroupDescribeResponse(groups=[own]).encode(0) == self.java.message_bytes(answer, 0)

    def _check_response(self, ours: CoordinatorResult[Any], theirs: Any, response_bytes: Callable[[Any], bytes] | None) -> None:
        if not isinstance(ours.response, HeartbeatResult):
            super()._check_response(ours, theirs, response_bytes)
            return
        self.compare_messages(ours.response.response, theirs.response().data())
        self._compare_topics(ours.response.topics_to_create, theirs.response().creatableTopics())

    def _compare_topics(self, ours: Mapping[str, CreatableTopic], theirs: Any) -> None:
        """Check that both want the same topics, in the same order."""
        request = self.java.make("common.message.CreateTopicsRequestData")
        for topic in theirs.values():
            request.topics().add(topic.duplicate())
        assert CreateTopicsRequest(list(ours.values())).encode(7) == self.java.message_bytes(request, 7)
