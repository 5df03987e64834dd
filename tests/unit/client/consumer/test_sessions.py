"""Fetch sessions without a broker: what a request lists after each kind of answer (Kafka's FetchSessionHandlerTest)."""

from __future__ import annotations

from kops.client.consumer.core.sessions import FetchSession, Wanted
from kops.protocol.declaration import ZERO_UUID
from kops.records.log_offsets import TopicPartition

A, B, C = (TopicPartition(name, 0) for name in "abc")
IDS = {key: bytes([index + 1]) * 16 for index, key in enumerate((A, B, C))}


def wanted(*keys: TopicPartition, offset: int = 0) -> dict[TopicPartition, Wanted]:
    return {key: Wanted(IDS[key], offset, 100, 5) for key in keys}


def test_a_session_lists_only_what_has_changed() -> None:
    session = FetchSession()
    full = session.build(wanted(A, B))
    assert (full.session_id, full.epoch, list(full.send), full.forgotten, full.can_use_ids) == (0, 0, [A, B], [], True)
    assert session.accept(123, [A, B])
    same = session.build(wanted(A, B))
    assert (same.session_id, same.epoch, same.send, same.forgotten) == (123, 1, {}, [])
    assert session.accept(123, [])
    changed = session.build(wanted(A, offset=7) | wanted(C))
    assert (changed.epoch, list(changed.send), changed.forgotten) == (2, [C, A], [(IDS[B], B)])
    assert set(changed.partitions) == {A, C}
    assert session.accept(123, [A])


def test_a_session_begins_again_after_errors() -> None:
    session = FetchSession()
    session.build(wanted(A))
    assert session.accept(9, [A])
    session.failed()  # no answer: the broker closes the old session and makes a new one
    again = session.build(wanted(A))
    assert (again.session_id, again.epoch, list(again.send)) == (9, 0, [A])
    session.refused("FETCH_SESSION_ID_NOT_FOUND")
    assert (session.session_id, session.epoch) == (0, 0)
    session.build(wanted(A))
    assert session.accept(10, [A])
    session.refused("INVALID_FETCH_SESSION_EPOCH")
    assert (session.session_id, session.epoch) == (10, 0)
    session.build(wanted(A))
    assert not session.accept(11, [A, B])  # a full answer has exactly the partitions of the request
    assert not session.accept(0, [])
    assert (session.session_id, session.epoch) == (0, 0)


def test_answers_of_a_session() -> None:
    session = FetchSession()
    session.build(wanted(A))
    assert session.accept(5, [A])
    session.build(wanted(A))
    assert not session.accept(5, [B])  # never asked for
    assert session.epoch == 0
    session.build(wanted(A))
    assert session.accept(6, [A])
    session.epoch = 0x7FFF_FFFF
    session.build(wanted(A))
    assert session.accept(6, []) and session.epoch == 1
    session.build(wanted(A))
    assert session.accept(0, [A]) and session.epoch == 0  # the broker has closed it
    session.build(wanted(A))
    assert session.accept(7, [A])
    session.close()
    last = session.build({})
    assert (last.session_id, last.epoch, last.send) == (7, -1, {})


def test_topic_ids() -> None:
    session = FetchSession()
    assert not session.build({A: Wanted(ZERO_UUID, 0, 100, 5)}).can_use_ids
    assert session.accept(5, [A])
    assert session.build(wanted(A)).can_use_ids  # the id is known now, so the partition is sent again
    assert session.accept(5, [])
    new = b"\x09" * 16
    replaced = session.build({A: Wanted(new, 0, 100, 5)})  # a topic that was deleted and made again
    assert (list(replaced.send), replaced.forgotten) == ([A], [(IDS[A], A)])
    assert session.names == {new: "a"}
