"""Share sessions: epochs, what a member gets again, and how bytes are divided."""

from __future__ import annotations

import pytest

from kops.coordinators.share.sessions.contexts import FetchRequest, new_context, on_acknowledge
from kops.coordinators.share.sessions.dividing import max_bytes, rotated
from kops.coordinators.share.sessions.session import SessionKey, TopicIdPartition, has_records, next_epoch
from kops.coordinators.share.sessions.session_cache import ShareSessionCache
from kops.errors import ApiError
from kops.protocol.messages.share_fetch_response import PartitionData

KEY = SessionKey("g", "m")
FIRST, SECOND = (TopicIdPartition(bytes(16), partition, "orders") for partition in range(2))


def request(epoch: int, *wanted: TopicIdPartition, connection_id: str = "c") -> FetchRequest:
    return FetchRequest(KEY, epoch, wanted, (), False, connection_id)


def test_empty_results_are_told_once() -> None:
    cache = ShareSessionCache(1)
    new_context(cache, request(0, FIRST))
    context = new_context(cache, request(1, SECOND))
    assert context.fetch_parts().known == [FIRST, SECOND]
    results = {FIRST: PartitionData(records=b""), SECOND: PartitionData(records=b"")}
    assert [part.partition_index for part in context.respond(results).responses[0].partitions] == [1]
    context = new_context(cache, request(2))
    assert context.respond(results).responses == []
    context = new_context(cache, request(3))
    assert len(context.respond({FIRST: PartitionData(records=b"x"), SECOND: PartitionData(records=b"")}).responses) == 1
    assert new_context(cache, request(4)).fetch_parts().known == [SECOND, FIRST]


def test_an_empty_slice_of_a_file_has_no_records() -> None:
    class Slice:
        def __init__(self, size: int) -> None:
            self.size = size

    assert [has_records(PartitionData(records=records)) for records in (None, b"", Slice(0), Slice(7))] == [False, False, False, True]


def test_epochs() -> None:
    cache = ShareSessionCache(1)
    with pytest.raises(ApiError, match="SHARE_SESSION_NOT_FOUND"):
        new_context(cache, request(1))
    new_context(cache, request(0, FIRST))
    with pytest.raises(ApiError, match="INVALID_SHARE_SESSION_EPOCH"):
        on_acknowledge(cache, KEY, 2)
    on_acknowledge(cache, KEY, 1)
    assert new_context(cache, request(-1)).is_final
    with pytest.raises(ApiError, match="SHARE_SESSION_LIMIT_REACHED"):
        new_context(cache, request(0)._replace(key=SessionKey("g", "other")))
    assert [next_epoch(epoch) for epoch in (-1, 0, 2**31 - 1)] == [-1, 1, 1]


def test_a_connection_that_closes_ends_its_own_session_only() -> None:
    cache = ShareSessionCache(2)
    left: list[object] = []
    cache.on_member_left, cache.on_group_empty = left.append, left.append
    new_context(cache, request(0, FIRST, connection_id="old"))
    new_context(cache, request(0, FIRST, connection_id="new"))
    cache.on_disconnect("old")
    assert (len(cache), left) == (1, [])
    cache.on_disconnect("new")
    assert (len(cache), cache.partition_count, left) == (0, 0, [KEY, "g"])


def test_bytes_are_divided() -> None:
    assert max_bytes(11, "abc", 3, lambda count: 1) == {"a": 3, "b": 5, "c": 3}
    assert max_bytes(2, "abc", 3, lambda count: 2) == {"a": 1, "b": 0, "c": 1}
    assert ["".join(rotated("abc", epoch)) for epoch in (0, 1, 3, 5)] == ["abc", "bca", "abc", "cab"]
