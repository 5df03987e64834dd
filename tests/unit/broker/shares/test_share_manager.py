"""Members of a share group at a broker: they acquire, acknowledge, wait, lose their locks and close their connections, and leaders move."""

from __future__ import annotations

from typing import Any

import pytest

from kops.coordinators.share.batches import StateBatch
from kops.coordinators.share.key import SharePartitionKey
from kops.coordinators.share.partition.persisting import PersistedState
from kops.protocol.messages import FeatureLevelRecord, ShareFetchResponse
from kops.protocol.messages.share_fetch_request import ForgottenTopic
from kops.records.build import end_txn_marker
from kops.records.validation.validate import AppendOrigin
from tests.support.parts.groups.sharing import (
    ACCEPT,
    GROUP,
    REJECT,
    RELEASE,
    RENEW,
    Sharing,
    acknowledged,
    acquired,
    errors,
)
from tests.support.parts.managing import batch
from tests.support.parts.replicas import TOPIC_ID, TP

KEY = SharePartitionKey(GROUP, TOPIC_ID, 0)


def test_records_are_acquired_and_acknowledged() -> None:
    sharing = Sharing()
    data = batch(3)
    sharing.broker.produce(data)
    member = sharing.member("a")
    answers = member.fetch()
    assert acquired(answers) == [(0, 2, 1)]
    (response,) = answers
    assert response.acquisition_lock_timeout_ms == 30_000
    records = response.responses[0].partitions[0].records
    assert records is not None
    assert isinstance(records, memoryview | bytes) and bytes(records)[61:] == data[61:]
    assert errors(member.acknowledge([(0, 1, [ACCEPT]), (2, 2, [REJECT])])) == ["NONE", "NONE"]
    assert sharing.states.states[KEY].start_offset == 0
    assert sharing.states.states[KEY].batches == [StateBatch(0, 1, 1, 2), StateBatch(2, 2, 1, 4)]
    manager = sharing.managers[1]
    assert manager.acknowledged_counts == {"Accept": 2, "Release": 0, "Reject": 1, "Renew": 0}
    share_partition = manager.partitions.get(KEY)
    assert share_partition is not None and share_partition.cache.start_offset == 3
    stats = sharing.broker.manager.stats.of("orders")
    assert (stats.total_share_fetch_requests, stats.total_share_acknowledgement_requests, stats.bytes_out) == (1, 1, len(data))


def test_two_members_share_a_partition() -> None:
    sharing = Sharing()
    first, second = sharing.member("a"), sharing.member("b")
    sharing.broker.produce(batch(2))
    assert acquired(first.fetch()) == [(0, 1, 1)]
    waiting = second.fetch()
    assert waiting == []
    sharing.broker.produce(batch(2))
    sharing.loop.turn()
    assert acquired(waiting) == [(2, 3, 1)]
    # The other member gets the released records at once.
    waiting = second.fetch()
    assert waiting == []
    assert errors(first.acknowledge([(0, 1, [RELEASE])])) == ["NONE", "NONE"]
    assert acquired(waiting) == [(0, 1, 2)]
    # Nothing waits any more, under any key.
    sharing.loop.turn()
    assert sharing.managers[1].purgatory.watched_count == 0


def test_a_fetch_waits_for_enough_and_not_for_ever() -> None:
    sharing = Sharing()
    member = sharing.member("a")
    answers = member.fetch(min_bytes=200)
    sharing.broker.produce(batch(1))
    sharing.loop.advance(499)
    assert answers == []
    sharing.loop.advance(1)
    assert acquired(answers) == [(0, 0, 1)]
    assert sharing.managers[1].expired_count == 1
    empty = member.fetch()
    sharing.loop.advance(500)
    assert acquired(empty) == [] and errors(empty) == ["NONE"]


def test_locks_run_out_until_nobody_gets_the_record() -> None:
    sharing = Sharing()
    sharing.broker.produce(batch(1))
    member = sharing.member("a")
    counts = acquired(member.fetch())
    while counts[-1][2] < 5:
        waiting = member.fetch(max_wait_ms=40_000)
        sharing.loop.advance(30_000)
        counts += acquired(waiting)
    assert [count for _, _, count in counts] == [1, 2, 3, 4, 5]
    sharing.loop.advance(30_000)
    assert [write.batches for write in sharing.states.writes] == [
        [StateBatch(0, 0, count, 4 if count == 5 else 0)] for count in range(1, 6)
    ]
    waiting = member.fetch()
    assert waiting == []
    sharing.broker.produce(batch(1))
    sharing.loop.turn()
    assert acquired(waiting) == [(1, 1, 1)]


def test_a_renewed_lock_holds_longer() -> None:
    sharing = Sharing()
    sharing.broker.produce(batch(2))
    member, other = sharing.member("a"), sharing.member("b")
    assert acquired(member.fetch()) == [(0, 1, 1)]
    sharing.loop.advance(20_000)
    zeros: dict[str, Any] = {"max_wait_ms": 0, "min_bytes": 0, "max_bytes": 0, "max_records": 0, "is_renew_ack": True}
    renewed = member.fetch(acks=[(0, 0, [RENEW])], **zeros)
    assert acknowledged(renewed) == [("NONE", None)]
    sharing.loop.advance(15_000)
    assert acquired(other.fetch()) == [(1, 1, 2)]
    refused = member.fetch(acks=[(0, 0, [RENEW])], **(zeros | {"max_bytes": 1}))
    assert errors(refused) == ["INVALID_REQUEST"]


def test_acknowledgements_come_with_a_fetch() -> None:
    sharing = Sharing()
    sharing.broker.produce(batch(2))
    member = sharing.member("a")
    assert acquired(member.fetch()) == [(0, 1, 1)]
    sharing.broker.produce(batch(1))
    answers = member.fetch(acks=[(0, 1, [ACCEPT])])
    assert acquired(answers) == [(2, 2, 1)] and acknowledged(answers) == [("NONE", None)]
    # Wrong acknowledgements do not delay the fetch.
    sharing.broker.produce(batch(1))
    answers = member.fetch(acks=[(7, 7, [ACCEPT])])
    assert acquired(answers) == [(3, 3, 1)]
    ((error, text),) = acknowledged(answers)
    assert error == "INVALID_REQUEST" and text is not None
    assert errors(member.fetch(epoch=0, acks=[(0, 0, [ACCEPT])])) == ["INVALID_REQUEST"]


@pytest.mark.parametrize(
    "acks",
    [[(1, 0, [1])], [(3, 4, [1]), (0, 1, [1])], [(0, 1, [])], [(0, 2, [1, 1])], [(0, 0, [5])], [(0, 0, [-1])], [(0, 0, [4])]],
    ids=str,
)
def test_acknowledgements_that_make_no_sense(acks: list[tuple[int, int, list[int]]]) -> None:
    sharing = Sharing()
    sharing.broker.produce(batch(5))
    member = sharing.member("a")
    member.fetch()
    assert errors(member.acknowledge(acks)) == ["NONE", "INVALID_REQUEST"]
    assert sharing.states.writes == []


def test_a_closed_connection_releases_what_was_acquired() -> None:
    sharing = Sharing()
    sharing.broker.produce(batch(2))
    first, second = sharing.member("a"), sharing.member("b")
    assert acquired(first.fetch()) == [(0, 1, 1)]
    waiting = second.fetch()
    sharing.broker.parts.shares.on_disconnect("a")
    assert acquired(waiting) == [(0, 1, 2)]
    assert len(sharing.managers[1].sessions) == 1
    sharing.broker.parts.shares.on_disconnect("b")
    assert len(sharing.managers[1].partitions) == 0  # no member of the group is left


def test_a_session_that_ends_releases_what_was_acquired() -> None:
    sharing = Sharing()
    sharing.broker.produce(batch(2))
    first, second = sharing.member("a"), sharing.member("b")
    assert acquired(first.fetch()) == [(0, 1, 1)]
    assert errors(first.acknowledge([(0, 0, [ACCEPT])], epoch=-1)) == ["NONE", "NONE"]
    assert acquired(second.fetch()) == [(1, 1, 2)]
    assert errors(first.acknowledge([(0, 0, [ACCEPT])], epoch=-1)) == ["SHARE_SESSION_NOT_FOUND"]
    assert errors(second.fetch(epoch=-1)) == ["NONE"]
    assert len(sharing.managers[1].sessions) == 0


def test_sessions_and_their_errors() -> None:
    sharing = Sharing()
    member = sharing.member("a")
    assert errors(member.fetch(epoch=3)) == ["SHARE_SESSION_NOT_FOUND"]
    assert errors(member.acknowledge([(0, 0, [1])], epoch=0)) == ["INVALID_SHARE_SESSION_EPOCH"]
    sharing.broker.produce(batch(1))
    assert acquired(member.fetch()) == [(0, 0, 1)]
    assert errors(member.fetch(epoch=7)) == ["INVALID_SHARE_SESSION_EPOCH"]
    assert errors(member.acknowledge([(0, 0, [1])], epoch=7)) == ["INVALID_SHARE_SESSION_EPOCH"]
    assert errors(sharing.member("x" * 37).fetch()) == ["INVALID_REQUEST"]
    assert errors(sharing.member("").fetch()) == ["INVALID_REQUEST"]
    assert errors(member.fetch(group_id=None)) == ["INVALID_REQUEST"]
    assert errors(sharing.member("b").fetch(share_acquire_mode=2)) == ["UNKNOWN_SERVER_ERROR"]
    forgets = [ForgottenTopic(TOPIC_ID, [0])]
    assert errors(member.fetch(epoch=1, topics=[], forgotten_topics_data=forgets)) == ["NONE"]
    assert sharing.managers[1].sessions.partition_count == 1  # that of b
    assert errors(sharing.member("c").fetch(partitions=[0, 0])) == ["UNKNOWN_SERVER_ERROR"]


def test_too_many_sessions() -> None:
    sharing = Sharing()
    members = [sharing.member(name) for name in "abc"]
    for member in members:
        member.fetch()
    refused = sharing.member("d").fetch()
    sharing.loop.advance(499)
    assert refused == []
    sharing.loop.advance(1)
    assert errors(refused) == ["SHARE_SESSION_LIMIT_REACHED"]


def test_partitions_that_are_not_there() -> None:
    sharing = Sharing()
    sharing.broker.produce(batch(1))
    member = sharing.member("a")
    assert errors(member.fetch(partitions=[0, 7])) == ["NONE", "NONE", "UNKNOWN_TOPIC_OR_PARTITION"]
    assert errors(member.acknowledge([(0, 0, [1])], partition=7)) == ["NONE", "UNKNOWN_TOPIC_OR_PARTITION"]
    assert errors(sharing.member("b").fetch(topic_id=bytes([7]) * 16)) == ["UNKNOWN_SERVER_ERROR"]  # as in Kafka
    assert len(sharing.managers[1].sessions) == 2


def test_records_by_number() -> None:
    sharing = Sharing()
    sharing.broker.produce(batch(5))
    member = sharing.member("a")
    assert acquired(member.fetch(max_records=2, share_acquire_mode=1)) == [(0, 1, 1)]
    assert acquired(member.fetch(max_records=2, share_acquire_mode=1)) == [(2, 3, 1)]
    assert acquired(member.fetch(max_records=0)) == []


def test_aborted_records_are_for_nobody() -> None:
    sharing = Sharing(settings={"share.isolation.level": "read_committed"})
    transaction: dict[str, Any] = {"producer_id": 4, "producer_epoch": 0, "base_sequence": 0, "transactional": True}
    member = sharing.member("a")
    waiting = member.fetch()
    append = sharing.broker.manager.append_records
    guard = sharing.broker.log.maybe_start_transaction_verification(4, 0, 0, supports_epoch_bump=True)
    append({TP: batch(2, **transaction)}, 1, 0, lambda _: None, guards={TP: guard})
    sharing.loop.turn()
    assert waiting == []  # the last stable offset has not moved
    marker = end_txn_marker(0, 1, commit=False, coordinator_epoch=0, producer_id=4, producer_epoch=0)
    append({TP: marker}, 1, 0, lambda _: None, origin=AppendOrigin.COORDINATOR, transaction_version=1)
    sharing.loop.turn()
    assert acquired(waiting) == [(2, 2, 1)]  # the marker, which clients skip
    sharing.broker.produce(batch(1))
    assert acquired(member.fetch()) == [(3, 3, 1)]


@pytest.mark.parametrize(("reset", "expected"), [("earliest", 0), ("latest", 2), ("by_duration:PT0.001S", 2), ("by_duration:P9999D", 0)])
def test_where_a_new_group_begins(reset: str, expected: int) -> None:
    sharing = Sharing(settings={"share.auto.offset.reset": reset})
    sharing.broker.produce(batch(2))
    sharing.loop.advance(1000)
    member = sharing.member("a")
    answers = member.fetch()
    is_late = reset.startswith("by_duration:PT")
    if is_late:
        assert errors(answers) == ["NONE", "OFFSET_NOT_AVAILABLE"]  # there is no later record
    sharing.broker.produce(batch(1, timestamp=sharing.loop.now_ms()))
    sharing.loop.turn()
    if is_late:
        answers = member.fetch()
    assert acquired(answers)[0][0] == expected


def test_the_nodes_settings_are_those_of_a_group_without_its_own() -> None:
    sharing = Sharing()
    sharing.settings = None
    sharing.broker.produce(batch(2))
    member = sharing.member("a")
    waiting = member.fetch()
    assert waiting == []
    sharing.broker.produce(batch(1))
    sharing.loop.turn()
    assert acquired(waiting) == [(2, 2, 1)]


def test_the_state_is_read_from_the_persister() -> None:
    sharing = Sharing()
    sharing.broker.produce(batch(6))
    sharing.states.states[KEY] = PersistedState(3, 1, [StateBatch(1, 2, 1, 2), StateBatch(4, 4, 2, 0)])
    sharing.states.holds = True
    member, other = sharing.member("a"), sharing.member("b")
    waiting, also = member.fetch(), other.fetch()
    assert waiting == also == []
    sharing.states.holds = False
    sharing.states.release()
    sharing.loop.turn()
    assert acquired(waiting) == [(3, 3, 1), (4, 4, 3), (5, 5, 1)]
    assert also == []


def test_states_that_cannot_be_written() -> None:
    sharing = Sharing()
    sharing.broker.produce(batch(2))
    member = sharing.member("a")
    assert acquired(member.fetch()) == [(0, 1, 1)]
    sharing.states.error = "COORDINATOR_NOT_AVAILABLE"
    assert errors(member.acknowledge([(0, 0, [ACCEPT])])) == ["NONE", "COORDINATOR_NOT_AVAILABLE"]
    assert len(sharing.managers[1].partitions) == 1
    sharing.states.error = "FENCED_STATE_EPOCH"
    answers = member.acknowledge([(0, 0, [ACCEPT])])
    assert errors(answers) == ["NONE", "NOT_LEADER_OR_FOLLOWER"]
    assert answers[0].responses[0].partitions[0].current_leader.leader_id == 1
    assert [node.node_id for node in answers[0].node_endpoints] == [1]
    assert len(sharing.managers[1].partitions) == 0
    sharing.states.error = ""
    assert errors(member.acknowledge([(0, 0, [ACCEPT])])) == ["NONE", "UNKNOWN_TOPIC_OR_PARTITION"]
    stats = sharing.broker.manager.stats.of("orders")
    assert (stats.total_share_acknowledgement_requests, stats.failed_share_acknowledgement_requests) == (3, 3)
    assert acquired(member.fetch()) == [(0, 1, 1)]


def test_the_leader_moves() -> None:
    sharing = Sharing(1, 2, replicas=(1, 2))
    sharing.broker.produce(batch(2))
    sharing.loop.advance(1000)
    member, waits = sharing.member("a"), sharing.member("b")
    assert acquired(member.fetch()) == [(0, 1, 1)]
    assert errors(member.acknowledge([(0, 0, [ACCEPT])])) == ["NONE", "NONE"]
    waiting = waits.fetch()
    sharing.world.change(leader=2)
    sharing.loop.turn()
    assert len(sharing.managers[1].partitions) == 0
    sharing.loop.advance(500)
    assert acquired(waiting) == []
    answers = member.fetch()
    assert errors(answers) == ["NONE", "NOT_LEADER_OR_FOLLOWER"]
    told = answers[0]
    assert isinstance(told, ShareFetchResponse)
    leader = told.responses[0].partitions[0].current_leader
    assert (leader.leader_id, leader.leader_epoch, [node.node_id for node in told.node_endpoints]) == (2, 1, [2])
    assert acquired(sharing.member("a", node_id=2).fetch()) == [(1, 1, 1)]


def test_the_log_begins_later() -> None:
    sharing = Sharing()
    sharing.broker.produce(batch(3))
    sharing.states.states[KEY] = PersistedState(0, 0)
    sharing.broker.delete_records(2)
    sharing.loop.turn()
    member = sharing.member("a")
    assert acquired(member.fetch()) == []  # the share partition has only learned where the log begins
    assert acquired(member.fetch()) == [(2, 2, 1)]


def test_share_groups_are_switched_off() -> None:
    sharing = Sharing()
    sharing.broker.produce(batch(1))
    member = sharing.member("a")
    assert acquired(member.fetch()) == [(0, 0, 1)]
    sharing.world.replay(FeatureLevelRecord("share.version", 0))
    sharing.broker.parts.shares.on_metadata_update()
    manager = sharing.managers[1]
    assert (len(manager.sessions), len(manager.partitions)) == (0, 0)
    assert errors(member.fetch()) == ["UNSUPPORTED_VERSION"]
    assert errors(member.acknowledge([(0, 0, [ACCEPT])])) == ["UNSUPPORTED_VERSION"]


def test_the_broker_ends() -> None:
    sharing = Sharing()
    sharing.broker.produce(batch(3))
    member = sharing.member("a")
    assert acquired(member.fetch()) == [(0, 2, 1)]
    assert errors(member.acknowledge([(1, 1, [ACCEPT])])) == ["NONE", "NONE"]
    writes = len(sharing.states.writes)
    sharing.broker.parts.shares.close()
    sharing.loop.advance(60_000)
    assert len(sharing.states.writes) == writes


def test_the_topic_is_deleted() -> None:
    sharing = Sharing()
    sharing.broker.produce(batch(1))
    member = sharing.member("a")
    assert acquired(member.fetch()) == [(0, 0, 1)]
    partition = sharing.broker.manager.get_partition_or_raise(TP)
    partition.delete()
    assert len(sharing.managers[1].partitions) == 0
    assert partition.on_deleted == partition.on_failed == partition.on_following == []
