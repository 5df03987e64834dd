"""Share groups on both coordinators, with logs in memory: a persister or a log fails, and the log of the state is cut."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from kops.broker.coordinators.group_service import GroupCoordinatorService
from kops.broker.coordinators.image_views import DeltaView, ImageView
from kops.broker.coordinators.share_groups import ShareSurroundings
from kops.broker.share_state.end_offsets import EndOffset
from kops.broker.share_state.service import SHARE_TOPIC, ShareCoordinatorService, answer_state_request
from kops.coordinators.groups.config import GroupCoordinatorConfig
from kops.coordinators.groups.context import RequestContext
from kops.coordinators.groups.shard.shard import GroupCoordinatorShard
from kops.coordinators.runtime.promise import Promise
from kops.coordinators.share.shard import ShareCoordinatorConfig, ShareCoordinatorShard
from kops.errors import ApiError, KopsError
from kops.metadata.image.metadata_delta import MetadataDelta
from kops.metadata.image.metadata_image import EMPTY, MetadataProvenance
from kops.protocol import messages
from kops.protocol.errors import by_code, by_name
from kops.protocol.messages.alter_share_group_offsets_request import (
    AlterShareGroupOffsetsRequestPartition,
    AlterShareGroupOffsetsRequestTopic,
)
from kops.protocol.messages.delete_share_group_offsets_request import DeleteShareGroupOffsetsRequestTopic
from kops.protocol.messages.describe_share_group_offsets_request import (
    DescribeShareGroupOffsetsRequestGroup,
    DescribeShareGroupOffsetsRequestTopic,
)
from kops.records.log_offsets import TopicPartition
from tests.support.coordinators.manual_runtime import ManualRuntime

TOPIC, TOPIC_ID, GROUP = "t", bytes(15) + b"\1", "g"
GROUP_KEY, STATE_KEY = TopicPartition("__consumer_offsets", 0), TopicPartition(SHARE_TOPIC, 0)
SERVED: dict[str, Callable[[ShareCoordinatorService, Any], Promise[Any]]] = {
    "initialize_state": ShareCoordinatorService.initialize_state,
    "delete_state": ShareCoordinatorService.delete_state,
    "read_summary": ShareCoordinatorService.read_summary,
}


class Both:
    """The coordinators of groups and of share state. As the persister of the first, it asks the second or answers with `failure`."""

    def __init__(self) -> None:
        self.groups = ManualRuntime(
            lambda key, timeline, timer, executor: GroupCoordinatorShard(
                timeline, timer, executor, lambda: self.groups.timers.now_ms, lambda: "id", GroupCoordinatorConfig(), lambda group: None
            ),
            auto_commit=True,
        )
        self.states = ManualRuntime(
            lambda key, timeline, timer, executor: ShareCoordinatorShard(
                timeline, ShareCoordinatorConfig(2, 1000), lambda: self.states.timers.now_ms
            ),
            auto_commit=True,
        )
        self.groups.activate(GROUP_KEY)
        self.states.activate(STATE_KEY)
        self.image: Any = EMPTY
        self.deleted: list[tuple[TopicPartition, int]] = []
        self.deletion: Promise[None] = Promise.of(None)
        self.state = ShareCoordinatorService(self.states.runtime, lambda key: 0, self._delete_records)
        self.failure: KopsError | int | None = None
        self.ends: dict[TopicPartition, EndOffset] = {}
        around = ShareSurroundings(lambda: self, lambda: self, lambda: ImageView(self.image), self.groups.timers.call_soon)  # type: ignore[arg-type, return-value]
        self.service = GroupCoordinatorService(self.groups.runtime, GroupCoordinatorConfig(), lambda group: 0, around)
        self.change(messages.TopicRecord(TOPIC, TOPIC_ID), *(self._partition(number) for number in range(2)))

    def _partition(self, number: int) -> messages.PartitionRecord:
        return messages.PartitionRecord(number, TOPIC_ID, replicas=[1], isr=[1], leader=1)

    def _delete_records(self, key: TopicPartition, offset: int) -> Promise[None]:
        self.deleted.append((key, offset))
        return self.deletion

    def change(self, *records: Any) -> MetadataDelta:
        """Apply new metadata."""
        delta = MetadataDelta(self.image)
        for record in records:
            delta.replay(record)
        self.image = delta.apply(MetadataProvenance(self.image.offset + 1, 1, 0, True))
        for each in (self.groups, self.states):
            each.runtime.on_metadata_update(DeltaView(delta), ImageView(self.image))
        return delta

    def turn(self) -> None:
        """Let both write, and run what follows from it."""
        for _ in range(4):
            for each in (self.groups, self.states):
                each.timers.turn()

    def done(self, promise: Promise[Any]) -> Any:
        self.turn()
        return promise.result()

    # the persister, and the ends of partitions

    def __getattr__(self, name: str) -> Any:
        if name not in SERVED:
            raise AttributeError(name)
        return lambda request: self._answer(name, request)

    def _answer(self, name: str, request: Any) -> Promise[Any]:
        if isinstance(self.failure, KopsError):
            return Promise.failed(self.failure)
        promise = SERVED[name](self.state, request)
        if self.failure is not None:
            response = self.done(promise)
            response.results[0].partitions[-1].error_code = self.failure
        return promise

    def find(self, partitions: list[TopicPartition]) -> Promise[dict[TopicPartition, EndOffset]]:
        return Promise.of({key: self.ends.get(key, EndOffset(10)) for key in partitions})

    # requests

    def beat(self, epoch: int, topics: list[str] | None = None) -> messages.ShareGroupHeartbeatResponse:
        context = RequestContext(1, "client", "/127.0.0.1", 76)
        request = messages.ShareGroupHeartbeatRequest(GROUP, "member", epoch, None, topics)
        response: messages.ShareGroupHeartbeatResponse = self.done(self.service.share.heartbeat(context, request))
        return response

    def alter(self, *offsets: int) -> messages.AlterShareGroupOffsetsResponse:
        partitions = [AlterShareGroupOffsetsRequestPartition(number, offset) for number, offset in enumerate(offsets)]
        request = messages.AlterShareGroupOffsetsRequest(GROUP, [AlterShareGroupOffsetsRequestTopic(TOPIC, partitions)])
        response: messages.AlterShareGroupOffsetsResponse = self.done(self.service.share.alter_offsets(GROUP, request))
        return response

    def offsets(self) -> list[tuple[int, int, int, int]]:
        (topic,) = self.done(self.service.share.describe_all_offsets(GROUP)).topics
        return [(one.partition_index, one.start_offset, one.lag, one.error_code) for one in topic.partitions]

    def delete_offsets(self) -> messages.DeleteShareGroupOffsetsResponse:
        request = messages.DeleteShareGroupOffsetsRequest(GROUP, [DeleteShareGroupOffsetsRequestTopic(TOPIC)])
        response: messages.DeleteShareGroupOffsetsResponse = self.done(self.service.share.delete_offsets(request))
        return response

    def delete_group(self) -> str:
        (result,) = self.done(self.service.delete_groups(RequestContext(2, "client", "/127.0.0.1", 42), [GROUP]))
        return by_code(result.error_code).name


def code(name: str) -> int:
    return by_name(name).code


def test_a_member_gets_partitions_when_their_state_is_initialized() -> None:
    both = Both()
    first = both.beat(0, [TOPIC])
    assert first.assignment is not None and first.assignment.topic_partitions == []
    both.groups.timers.advance(1500)
    second = both.beat(first.member_epoch)
    assert second.assignment is not None and [topic.partitions for topic in second.assignment.topic_partitions] == [[0, 1]]
    assert both.offsets() == [(0, -1, -1, 0), (1, -1, -1, 0)]


def test_state_that_cannot_be_initialized_is_tried_again() -> None:
    for failure in (code("NOT_COORDINATOR"), KopsError("no persister")):
        both = Both()
        both.failure = failure
        epoch = both.beat(0, [TOPIC]).member_epoch
        both.groups.timers.advance(1500)
        answer = both.beat(epoch)
        assert answer.assignment is None, "nothing was initialized"
        both.failure = None
        both.beat(epoch)
        both.groups.timers.advance(1500)
        assert both.beat(epoch).assignment is not None


def test_offsets_that_the_persister_refuses() -> None:
    both = Both()
    both.failure = code("FENCED_STATE_EPOCH")
    response = both.alter(3, 4)
    assert [one.error_code for one in response.responses[0].partitions] == [0, code("FENCED_STATE_EPOCH")]
    both.failure = ApiError("INVALID_REQUEST", "nonsense")
    response = both.alter(3, 4)
    assert (response.error_code, response.error_message) == (code("INVALID_REQUEST"), "nonsense")
    assert [one.error_code for one in response.responses[0].partitions] == [code("INVALID_REQUEST")] * 2
    both.failure = None
    assert [one.error_code for one in both.alter(3, 4).responses[0].partitions] == [0, 0]
    assert both.offsets() == [(0, 3, 7, 0), (1, 4, 6, 0)]


def test_the_lag_of_partitions_whose_end_is_not_known() -> None:
    both = Both()
    both.alter(3, 4)
    both.ends[TopicPartition(TOPIC, 1)] = EndOffset(-1, "LEADER_NOT_AVAILABLE")
    assert both.offsets() == [(0, 3, 7, 0), (1, 0, -1, code("LEADER_NOT_AVAILABLE"))]
    both.failure = code("NOT_COORDINATOR")
    assert both.offsets() == [(0, 3, 7, 0), (1, -1, -1, 0)], "an error of the persister is told as no offset"
    both.failure = None
    both.alter(-(2**63))
    assert both.offsets()[0] == (0, -(2**63), 10 - 2**63, 0), "as in Java, the lag overflows"
    asked = DescribeShareGroupOffsetsRequestGroup(GROUP, [DescribeShareGroupOffsetsRequestTopic("absent", [2])])
    (topic,) = both.done(both.service.share.describe_offsets(asked)).topics
    assert [(one.partition_index, one.start_offset, one.lag) for one in topic.partitions] == [(2, -1, -1)]


def test_offsets_and_groups_stay_where_their_state_stays() -> None:
    both = Both()
    both.alter(3, 4)
    both.failure = code("NOT_COORDINATOR")
    response = both.delete_offsets()
    assert [(topic.topic_name, topic.error_code) for topic in response.responses] == [(TOPIC, code("NOT_COORDINATOR"))]
    assert both.delete_group() == "NOT_COORDINATOR"
    both.failure = KopsError("no persister")
    assert both.delete_offsets().error_code == code("UNKNOWN_SERVER_ERROR")
    assert both.delete_group() == "UNKNOWN_SERVER_ERROR"
    both.failure = None
    assert [topic.error_code for topic in both.delete_offsets().responses] == [0]
    assert both.delete_group() == "NONE"
    assert both.delete_group() == "GROUP_ID_NOT_FOUND"


def test_a_group_without_partitions_does_not_need_the_persister() -> None:
    """The group has a topic without partitions. The persister refuses to delete its state, and Kafka looks for errors of partitions only
    (GroupCoordinatorService.deleteShareGroup)."""
    both = Both()
    both.alter()
    both.failure = KopsError("Delete share group parameters partitions cannot be null or empty.")
    assert both.delete_group() == "NONE"


def test_deleted_topics_leave_both_coordinators() -> None:
    both = Both()
    both.alter(3, 4)
    both.change(messages.RemoveTopicRecord(TOPIC_ID))
    both.service.share.on_topics_deleted([TOPIC_ID])
    both.state.on_topics_deleted([TOPIC_ID])
    both.turn()
    assert both.done(both.service.share.describe_all_offsets(GROUP)).topics == []
    shard = both.states.runtime._contexts[STATE_KEY].active.shard
    assert list(shard._states) == []


def test_errors_of_the_log_are_those_of_partitions() -> None:
    both = Both()
    both.states.log.failures.append(ApiError("NOT_LEADER_OR_FOLLOWER"))
    response = both.alter(3)
    assert [by_code(one.error_code).name for one in response.responses[0].partitions] == ["NOT_COORDINATOR"]
    both.states.runtime.schedule_unload_operation(STATE_KEY, 2)
    data = messages.read_share_group_state_summary_request.PartitionData(0, 0)
    topics = [messages.read_share_group_state_summary_request.ReadStateSummaryData(TOPIC_ID, [data])]
    (topic,) = both.done(both.state.read_summary(messages.ReadShareGroupStateSummaryRequest(GROUP, topics))).results
    text = "Unable to read share group state summary: This is not the correct coordinator."
    assert [(one.error_code, one.error_message) for one in topic.partitions] == [(code("NOT_COORDINATOR"), text)]
    (topic,) = answer_state_request(None, messages.ReadShareGroupStateSummaryRequest(GROUP, topics)).result().results
    assert topic.partitions[0].error_message == "Share coordinator is not available."


def test_the_log_is_cut_before_the_oldest_snapshot() -> None:
    both = Both()
    both.alter(3, 4)
    assert both.done(both.state.prune()) is None
    assert both.deleted == [], "the first snapshot is the first record"
    both.alter(5, 6)
    both.done(both.state.prune())
    assert both.deleted == [(STATE_KEY, 2)]
    both.done(both.state.prune())
    assert both.deleted == [(STATE_KEY, 2)], "that was done"
    both.states.timers.advance(2000)
    both.done(both.state.snapshot_cold_partitions())
    both.deletion = Promise.failed(ApiError("NOT_LEADER_OR_FOLLOWER"))
    promise = both.state.prune()
    both.turn()
    assert both.deleted[1:] == [(STATE_KEY, 4)]
    assert promise.is_done
    both.deletion = Promise.of(None)
    both.done(both.state.prune())
    assert both.deleted[1:] == [(STATE_KEY, 4)] * 2, "what failed is tried again"
