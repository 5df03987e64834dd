"""Share groups: members join and leave, topics are initialized before they are assigned, offsets are altered and deleted."""

from __future__ import annotations

from typing import Any

import pytest

from kops.coordinators.groups.context import RequestContext
from kops.coordinators.runtime.result import CoordinatorResult
from kops.errors import ApiError
from kops.protocol.messages import alter_share_group_offsets_request as altering
from kops.protocol.messages import delete_share_group_offsets_request as deleting
from kops.protocol.messages.share_group_heartbeat_request import ShareGroupHeartbeatRequest
from kops.protocol.messages.share_group_state_partition_metadata_value import ShareGroupStatePartitionMetadataValue
from tests.support.parts.groups.coordinator_images import Image
from tests.support.parts.groups.group_shard import GroupShard

ORDERS = bytes(range(16))
CONTEXT = RequestContext(1, "client", "/127.0.0.1", 76)


class ShareShard(GroupShard):
    """A shard with a topic of two partitions."""

    def __init__(self, **settings: Any) -> None:
        super().__init__(group_share_assignment_interval_ms=0, **settings)
        self.shard.on_loaded(Image({"orders": (ORDERS, 2)}))

    def run(self, result: CoordinatorResult[Any]) -> Any:
        self.timeline.offset = len(self.log)
        self.write(result)
        self.commit()
        return result.response

    def heartbeat(self, member_id: str, epoch: int, *names: str) -> Any:
        request = ShareGroupHeartbeatRequest("g", member_id, epoch, None, list(names) or None)
        return self.run(self.shard.share_group_heartbeat(CONTEXT, request))

    def initialized(self) -> None:
        self.run(self.shard.initialize_share_group_state("g", {ORDERS: [0, 1]}))

    @property
    def assigned(self) -> dict[str, list[int]]:
        (group,) = self.shard.share_group_describe(["g"])
        return {
            member.member_id: [number for topic in member.assignment.topic_partitions for number in topic.partitions]
            for member in group.members
        }


def test_partitions_are_initialized_before_they_are_assigned() -> None:
    shard = ShareShard()
    response, initialize = shard.heartbeat("m1", 0, "orders")
    assert response.assignment.topic_partitions == []
    (topic,) = initialize.topics
    assert [(each.partition, each.start_offset) for each in topic.partitions] == [(0, -1), (1, -1)]
    assert topic.partitions[0].state_epoch == response.member_epoch
    assert shard.heartbeat("m1", response.member_epoch)[1] is None
    shard.initialized()
    response, _ = shard.heartbeat("m1", response.member_epoch)
    assert [(each.topic_id, each.partitions) for each in response.assignment.topic_partitions] == [(ORDERS, [0, 1])]
    assert shard.assigned == {"m1": [0, 1]}


def test_initialization_is_tried_again_after_a_while_or_a_failure() -> None:
    shard = ShareShard()
    epoch = shard.heartbeat("m1", 0, "orders")[0].member_epoch
    shard.now_ms += 30_000
    assert shard.heartbeat("m1", epoch)[1] is not None
    shard.run(shard.shard.uninitialize_share_group_state("g", {ORDERS: [1]}))
    (topic,) = shard.heartbeat("m1", epoch)[1].topics
    assert [each.partition for each in topic.partitions] == [1]


def test_epochs_and_sizes_are_checked() -> None:
    shard = ShareShard(group_share_max_size=1)
    with pytest.raises(ApiError, match="Share group g not found"):
        shard.heartbeat("m1", 3)
    epoch = shard.heartbeat("m1", 0, "orders")[0].member_epoch
    with pytest.raises(ApiError) as caught:
        shard.heartbeat("m1", epoch + 1)
    assert caught.value.name == "FENCED_MEMBER_EPOCH"
    with pytest.raises(ApiError, match="maximum capacity of 1 members"):
        shard.heartbeat("m2", 0, "orders")


def test_members_leave() -> None:
    shard = ShareShard()
    shard.heartbeat("m1", 0, "orders")
    assert shard.heartbeat("m1", -1)[0].member_epoch == -1
    (group,) = shard.shard.share_group_describe(["g"])
    assert (group.group_state, group.members) == ("Empty", [])


def test_offsets_of_empty_groups_are_altered_and_deleted() -> None:
    shard = ShareShard()
    parts = [altering.AlterShareGroupOffsetsRequestPartition(number, 7) for number in (1, 5)]
    request = altering.AlterShareGroupOffsetsRequest("g", [altering.AlterShareGroupOffsetsRequestTopic("orders", parts)])
    response, initialize = shard.run(shard.shard.alter_share_group_offsets("g", request))
    assert [each.error_code for each in response.responses[0].partitions] == [0, 3]
    assert [(each.partition, each.start_offset) for each in initialize.topics[0].partitions] == [(1, 7)]
    shard.initialized()
    names = [deleting.DeleteShareGroupOffsetsRequestTopic(name) for name in ("orders", "no")]
    delete = deleting.DeleteShareGroupOffsetsRequest("g", names)
    error, wrong, state = shard.run(shard.shard.initiate_delete_share_group_offsets("g", delete))
    assert error is None
    assert ([topic.topic_name for topic in wrong], len(state.topics[0].partitions)) == (["no"], 2)
    done = shard.run(shard.shard.complete_delete_share_group_offsets("g", {ORDERS: "orders"}, wrong))
    assert [topic.topic_name for topic in done.responses] == ["orders", "no"]
    assert shard.shard.initialized_share_group_partitions("g") == {}


def test_what_is_initialized_again_is_not_deleted_any_more() -> None:
    shard = ShareShard()
    part = altering.AlterShareGroupOffsetsRequestPartition(0, 7)
    alter = altering.AlterShareGroupOffsetsRequest("g", [altering.AlterShareGroupOffsetsRequestTopic("orders", [part])])
    shard.run(shard.shard.alter_share_group_offsets("g", alter))
    shard.initialized()
    delete = deleting.DeleteShareGroupOffsetsRequest("g", [deleting.DeleteShareGroupOffsetsRequestTopic("orders")])
    found = []
    for operation, request in (("initiate_delete_share_group_offsets", delete), ("alter_share_group_offsets", alter)):
        shard.run(getattr(shard.shard, operation)("g", request))
        value = shard.log[-1].value
        assert isinstance(value, ShareGroupStatePartitionMetadataValue)
        found.append((len(value.initializing_topics), len(value.deleting_topics)))
    assert found == [(0, 1), (1, 0)]


def test_a_group_is_deleted_with_its_state() -> None:
    shard = ShareShard()
    shard.heartbeat("m1", 0, "orders")
    shard.initialized()
    refused = shard.run(shard.shard.share_partition_delete_requests(["g", "no"]))
    assert refused["g"].name == "NON_EMPTY_GROUP"
    shard.heartbeat("m1", -1)
    requests = shard.run(shard.shard.share_partition_delete_requests(["g"]))
    assert [each.partition for each in requests["g"].topics[0].partitions] == [0, 1]
    shard.run(shard.shard.delete_groups(CONTEXT, ["g"]))
    assert shard.shard.share_group_describe(["g"])[0].error_message == "Group g not found."
