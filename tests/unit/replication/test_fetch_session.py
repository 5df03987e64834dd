"""Incremental fetches on both sides: what is sent, what is answered, and which session goes when the cache is full. Also the controller's
queue.
"""

from __future__ import annotations

import itertools

import pytest

from kops.protocol import errors
from kops.protocol.messages.alter_partition_response import AlterPartitionResponse, TopicData
from kops.protocol.messages.alter_partition_response import PartitionData as AnsweredPartition
from kops.protocol.messages.fetch_response import FetchResponse, PartitionData
from kops.records.log_offsets import TopicPartition
from kops.replication.following.fetch_session_handler import FetchSessionHandler
from kops.replication.leading.alter_partition import AlterPartitionManager
from kops.replication.leading.fetch import FetchInfo
from kops.replication.leading.fetch_context import FetchContext, FetchManager, IncrementalFetchContext, SessionErrorContext
from kops.replication.leading.fetch_session import INITIAL, LEGACY, FetchMetadata, FetchSessionCache, TopicIdPartition, next_epoch
from kops.replication.leading.isr import BrokerState, LeaderAndIsr, ProposedIsr

ID = bytes(range(16))
OTHER_ID = bytes(range(1, 17))
PARTS = [TopicIdPartition(ID, "orders", number) for number in range(3)]


def manager(max_entries: int = 2) -> FetchManager:
    ids = itertools.count(1)
    return FetchManager(FetchSessionCache(max_entries, 1_000, lambda: next(ids)), lambda: 5_000)


def info(offset: int, topic_id: bytes = ID) -> FetchInfo:
    return FetchInfo(offset, 0, 1000, 5, 4, topic_id)


def row(**given: object) -> PartitionData:
    data = PartitionData(high_watermark=10, log_start_offset=0)
    for name, value in given.items():
        setattr(data, name, value)
    return data


def new_context(fetches: FetchManager, metadata: FetchMetadata, *parts: TopicIdPartition, version: int = 18) -> FetchContext:
    data = {part: info(7) for part in parts}
    return fetches.new_context(version, metadata, data, [], {ID: "orders"}.get, is_from_follower=False)


def begin(fetches: FetchManager, *parts: TopicIdPartition) -> int:
    return new_context(fetches, INITIAL, *parts).respond({part: row() for part in parts}).session_id


def partitions(response: FetchResponse) -> list[int]:
    return [data.partition_index for topic in response.responses for data in topic.partitions]


def test_a_session_answers_what_is_new() -> None:
    fetches = manager()
    session_id = begin(fetches, *PARTS)
    assert (session_id, fetches.cache.partition_count) == (1, 3)
    context = new_context(fetches, FetchMetadata(1, 1))
    assert [part for part, _ in context.partitions()] == PARTS
    assert context.fetch_offset(PARTS[0]) == 7
    updates = {PARTS[0]: row(records=b"x"), PARTS[1]: row(), PARTS[2]: row(high_watermark=11)}
    assert partitions(context.respond(updates)) == [0, 2]
    # A partition that had records comes last now.
    context = new_context(fetches, FetchMetadata(1, 2))
    assert [part.partition for part, _ in context.partitions()] == [1, 2, 0]
    failed = {PARTS[0]: row(error_code=6), PARTS[1]: row(log_start_offset=1), PARTS[2]: row(high_watermark=11, preferred_read_replica=3)}
    assert partitions(context.respond(failed)) == [0, 1, 2]
    # The end of an error is reported, too.
    context = new_context(fetches, FetchMetadata(1, 3))
    assert partitions(context.respond({PARTS[0]: row(), PARTS[1]: row(log_start_offset=1)})) == [0]


def test_a_request_that_comes_twice() -> None:
    fetches = manager()
    begin(fetches, *PARTS)
    first = new_context(fetches, FetchMetadata(1, 1))
    second = new_context(fetches, FetchMetadata(1, 1))
    assert isinstance(second, SessionErrorContext)
    assert second.respond({}).error_code == errors.by_name("INVALID_FETCH_SESSION_EPOCH").code
    assert first.respond({}).error_code == 0
    new_context(fetches, FetchMetadata(1, 2))
    assert first.respond({PARTS[0]: row(records=b"x")}).error_code == errors.by_name("INVALID_FETCH_SESSION_EPOCH").code


@pytest.mark.parametrize(
    ("metadata", "version", "error"),
    [
        (FetchMetadata(9, 1), 18, "FETCH_SESSION_ID_NOT_FOUND"),
        (FetchMetadata(1, 2), 18, "INVALID_FETCH_SESSION_EPOCH"),
        (FetchMetadata(1, 1), 12, "FETCH_SESSION_TOPIC_ID_ERROR"),
    ],
)
def test_sessions_that_do_not_fit(metadata: FetchMetadata, version: int, error: str) -> None:
    fetches = manager()
    begin(fetches, *PARTS)
    context = new_context(fetches, metadata, version=version)
    assert isinstance(context, SessionErrorContext)
    assert context.error == error


def test_sessions_end() -> None:
    fetches = manager()
    begin(fetches, *PARTS)
    emptied = fetches.new_context(18, FetchMetadata(1, 1), {}, PARTS, lambda _: None, is_from_follower=False)
    assert not isinstance(emptied, IncrementalFetchContext)
    assert (len(fetches.cache), fetches.cache.partition_count) == (0, 0)
    session_id = begin(fetches, *PARTS)
    last = new_context(fetches, FetchMetadata(session_id, -1), PARTS[0])
    assert last.respond({PARTS[0]: row()}).session_id == 0
    assert len(fetches.cache) == 0
    assert new_context(fetches, LEGACY, PARTS[0]).fetch_offset(PARTS[0]) == 7


def test_who_goes_when_the_cache_is_full() -> None:
    ids = itertools.count(1)
    cache = FetchSessionCache(2, 1_000, lambda: next(ids))

    def create(now_ms: int, size: int, *, privileged: bool = False) -> int:
        return cache.maybe_create(now_ms, size, list, privileged=privileged, uses_topic_ids=True)

    assert [create(0, 1), create(0, 2)] == [1, 2]
    # New sessions of clients are protected from clients for a while, but not from followers.
    assert create(1_000, 5) == 0
    assert create(1_000, 5, privileged=True) == 3
    assert cache.get(1) is None
    # A session that was not used for long is evicted for any other.
    assert create(1_001, 1) == 4
    assert (cache.get(2), cache.evictions) == (None, 2)
    assert create(1_001, 0, privileged=True) == 5
    assert create(1_002, 9) == 0


def test_epochs_begin_again_at_one() -> None:
    assert [next_epoch(epoch) for epoch in (0, 5, 2**31 - 1, -1)] == [1, 6, 1, -1]


def test_a_client_says_what_changed() -> None:
    handler = FetchSessionHandler()
    first, second, third = (TopicPartition("orders", number) for number in range(3))
    built = handler.build({first: info(0), second: info(0)})
    assert (built.metadata, list(built.to_send)) == (INITIAL, [first, second])
    full = FetchContext({}).respond({PARTS[0]: row(), PARTS[1]: row()})
    full.session_id = 77
    assert handler.handle_response(full, 18)
    built = handler.build({first: info(5), third: info(0)})
    assert (built.metadata, list(built.to_send), built.to_forget) == (FetchMetadata(77, 1), [third, first], [PARTS[1]])
    built = handler.build({first: info(5, OTHER_ID), third: info(0)})
    assert (list(built.to_send), built.to_replace) == ([first], [PARTS[0]])
    handler.handle_error()
    assert handler.next_metadata == FetchMetadata(77, 0)


@pytest.mark.parametrize(
    ("error", "after"), [("FETCH_SESSION_ID_NOT_FOUND", INITIAL), ("INVALID_FETCH_SESSION_EPOCH", FetchMetadata(77, 0))]
)
def test_a_client_begins_again_after_errors(error: str, after: FetchMetadata) -> None:
    handler = FetchSessionHandler()
    handler.next_metadata = FetchMetadata(77, 3)
    assert not handler.handle_response(FetchResponse(error_code=errors.by_name(error).code), 18)
    assert handler.next_metadata == after


def test_responses_that_do_not_fit() -> None:
    handler = FetchSessionHandler()
    handler.build({TopicPartition("orders", 0): info(0)})
    assert not handler.handle_response(FetchContext({}).respond({PARTS[1]: row()}), 18)
    assert not handler.handle_response(FetchResponse(throttle_time_ms=5), 18)
    assert not handler.handle_response(
        FetchContext({}).respond({TopicIdPartition(OTHER_ID, PARTS[0].topic, PARTS[0].partition): row()}), 18
    )
    assert handler.next_metadata == INITIAL
    assert handler.handle_response(FetchContext({}).respond({PARTS[0]: row()}), 18)


def test_changes_of_in_sync_sets_go_one_request_at_a_time() -> None:
    waiting: list[None] = []
    changes = AlterPartitionManager(1, lambda: 10, lambda: waiting.append(None))
    told: list[LeaderAndIsr | str] = []
    proposed = ProposedIsr(1, 5, (BrokerState(1, 10), BrokerState(2, -1)), 0, 7)
    changes.submit(ID, 0, proposed, told.append)
    changes.submit(ID, 0, proposed, told.append)
    assert told == ["OPERATION_NOT_ATTEMPTED"]
    request = changes.next_request(100)
    assert request is not None
    assert (request.broker_epoch, request.topics[0].partitions[0].partition_epoch) == (10, 7)
    changes.submit(ID, 1, proposed, told.append)
    assert (changes.next_request(100), changes.next_due_ms) == (None, None)
    changes.on_failure(100)
    assert (changes.next_request(149), changes.next_due_ms) == (None, 150)
    request = changes.next_request(150)
    assert request is not None
    assert [each.partition_index for each in request.topics[0].partitions] == [0, 1]
    changes.on_response(AlterPartitionResponse(error_code=errors.by_name("STALE_BROKER_EPOCH").code), 150)
    assert changes.next_request(200) is not None
    rows = [AnsweredPartition(0, 0, 1, 5, [1, 2], 0, 8)]
    changes.on_response(AlterPartitionResponse(topics=[TopicData(topic_id=ID, partitions=rows)]), 200)
    assert told[1:] == [LeaderAndIsr(1, 5, (1, 2), 0, 8)]
    assert changes.next_request(200) is not None
    rows = [AnsweredPartition(1, errors.by_name("INVALID_UPDATE_VERSION").code, 1, 5, [], 0, 8)]
    changes.on_response(AlterPartitionResponse(topics=[TopicData(topic_id=ID, partitions=rows)]), 201)
    assert told[2:] == ["INVALID_UPDATE_VERSION"]
    assert changes.next_due_ms is None
