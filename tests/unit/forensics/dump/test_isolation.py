"""Which batches and records a consumer with an isolation level gets."""

from __future__ import annotations

from kops.forensics.dump.isolation import READ_COMMITTED, READ_UNCOMMITTED, ConsumerView
from kops.records import Batch, BatchBuilder


def data(base_offset: int, count: int = 2) -> Batch:
    builder = BatchBuilder(base_offset=base_offset)
    for _ in range(count):
        builder.append(1, b"k", b"v")
    return Batch(builder.build())


def marker(base_offset: int) -> Batch:
    builder = BatchBuilder(base_offset=base_offset, producer_id=1, producer_epoch=0, control=True, transactional=True)
    builder.append_end_txn_marker(1, True, 0)
    return Batch(builder.build())


def test_markers_are_shown_to_nobody() -> None:
    for isolation in (READ_UNCOMMITTED, READ_COMMITTED):
        assert not ConsumerView(isolation, 0, 100).shows(marker(4))


def test_the_start_of_the_log_and_the_last_stable_offset() -> None:
    view = ConsumerView(READ_COMMITTED, 4, 8)
    assert [offset for offset in range(0, 12, 2) if view.shows(data(offset))] == [4, 6]
    assert view.shows(data(3))
    assert [offset for offset in range(12) if view.shows_offset(offset)] == [4, 5, 6, 7]
    assert [offset for offset in range(0, 12, 2) if ConsumerView(READ_UNCOMMITTED, 4, 8).shows(data(offset))] == [4, 6, 8, 10]
