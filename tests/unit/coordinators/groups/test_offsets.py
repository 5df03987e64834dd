"""Offsets without Kafka beside them: committed, pending, deleted, expired."""

from __future__ import annotations

import pytest

from kops.coordinators.groups.context import RequestContext
from kops.errors import ApiError
from kops.protocol.errors import by_code
from kops.protocol.messages.offset_commit_request import OffsetCommitRequest, OffsetCommitRequestPartition, OffsetCommitRequestTopic
from kops.protocol.messages.offset_commit_value import OffsetCommitValue
from kops.protocol.messages.offset_delete_request import OffsetDeleteRequest, OffsetDeleteRequestPartition, OffsetDeleteRequestTopic
from kops.protocol.messages.offset_fetch_request import OffsetFetchRequestGroup, OffsetFetchRequestTopics
from kops.protocol.messages.txn_offset_commit_request import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
)
from tests.support.parts.groups.group_shard import GroupShard

CONTEXT = RequestContext(9, "c", "/h", 8)


def commit(shard: GroupShard, offset: int, *, retention_ms: int = -1, metadata: str | None = None) -> int:
    """Commit for one partition of a simple group, and return the error code."""
    partition = OffsetCommitRequestPartition(0, offset, committed_metadata=metadata)
    request = OffsetCommitRequest("g", retention_time_ms=retention_ms, topics=[OffsetCommitRequestTopic("t", partitions=[partition])])
    response = shard.write(shard.shard.commit_offset(CONTEXT, request))
    code: int = response.topics[0].partitions[0].error_code
    return code


def commit_in_transaction(shard: GroupShard, offset: int) -> None:
    topics = [TxnOffsetCommitRequestTopic("t", [TxnOffsetCommitRequestPartition(0, offset)])]
    result = shard.shard.commit_transactional_offset(CONTEXT, TxnOffsetCommitRequest("x", "g", 7, 0, topics=topics))
    for record in result.records:
        shard.shard.replay(len(shard.log), 7, 0, record)
        shard.log.append(record)
    shard.commit()


def fetch(shard: GroupShard, *, require_stable: bool = False) -> tuple[int, str]:
    topics = [OffsetFetchRequestTopics("t", partition_indexes=[0])]
    found = shard.shard.fetch_offsets(OffsetFetchRequestGroup("g", topics=topics), require_stable=require_stable)
    partition = found.topics[0].partitions[0]
    return partition.committed_offset, by_code(partition.error_code).name


def test_committed_offsets_are_fetched() -> None:
    """This also works without a group. A group that only keeps offsets is listed without a protocol."""
    shard = GroupShard()
    assert fetch(shard) == (-1, "NONE")
    assert commit(shard, 5) == 0
    assert fetch(shard) == (5, "NONE")
    assert [(group.group_id, group.protocol_type, group.group_state) for group in shard.shard.list_groups([], [])] == [("g", "", "Empty")]


def test_long_metadata_is_refused() -> None:
    """The length is counted as in Java, in UTF-16."""
    shard = GroupShard(offset_metadata_max_bytes=4)
    assert by_code(commit(shard, 5, metadata="\U0001f600" * 3)).name == "OFFSET_METADATA_TOO_LARGE"
    assert commit(shard, 5, metadata="\U0001f600" * 2) == 0


def test_an_unknown_member_cannot_commit() -> None:
    """A commit with a generation needs an existing group."""
    with pytest.raises(ApiError, match="Group g not found"):
        GroupShard().shard.commit_offset(CONTEXT, OffsetCommitRequest("g", 3, "m"))


@pytest.mark.parametrize(("is_commit", "offset"), [(True, 9), (False, 5)])
def test_offsets_of_transactions(is_commit: bool, offset: int) -> None:
    """They are pending until the marker. A client that requires stable offsets gets an error until then."""
    shard = GroupShard()
    commit(shard, 5)
    commit_in_transaction(shard, 9)
    assert fetch(shard) == (5, "NONE") and fetch(shard, require_stable=True) == (-1, "UNSTABLE_OFFSET_COMMIT")
    shard.shard.replay_end_transaction_marker(7, 0, is_commit)
    shard.timeline.forget_up_to(len(shard.log))
    assert fetch(shard) == fetch(shard, require_stable=True) == (offset, "NONE")


def test_a_newer_commit_outlives_the_transaction() -> None:
    """The last write counts, whenever the transaction ends."""
    shard = GroupShard()
    commit_in_transaction(shard, 9)
    commit(shard, 5)
    shard.shard.replay_end_transaction_marker(7, 0, True)
    assert fetch(shard, require_stable=True) == (5, "NONE")


def test_offsets_expire() -> None:
    """They expire after the retention, or at the time that the commit gave. The group is deleted with the last one."""
    shard = GroupShard(offsets_retention_minutes=1, offsets_retention_check_interval_ms=1000)
    commit(shard, 5, retention_ms=90_000)
    value = shard.log[-1].value
    assert isinstance(value, OffsetCommitValue) and (value.expire_timestamp, shard.log[-1].version) == (91_000, 1)
    shard.advance(89_000)
    assert fetch(shard) == (5, "NONE")
    shard.advance(2000)
    assert fetch(shard) == (-1, "NONE") and shard.shard.list_groups([], []) == []
    assert [record.value for record in shard.log[-2:]] == [None, None]


def test_offsets_are_deleted() -> None:
    """Offsets are deleted one by one, or with the group."""
    shard = GroupShard()
    commit(shard, 5)
    topics = [OffsetDeleteRequestTopic("t", [OffsetDeleteRequestPartition(0), OffsetDeleteRequestPartition(1)])]
    result = shard.shard.delete_offsets(CONTEXT, OffsetDeleteRequest("g", topics))
    shard.write(result)
    assert len(result.records) == 1 and fetch(shard) == (-1, "NONE")
    commit(shard, 6)
    results = shard.write(shard.shard.delete_groups(CONTEXT, ["g", "nowhere"]))
    assert [by_code(result.error_code).name for result in results] == ["NONE", "GROUP_ID_NOT_FOUND"]
    assert shard.shard.list_groups([], []) == []
