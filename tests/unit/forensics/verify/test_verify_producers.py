"""Sequence numbers of producers, joined from parts of a log that were scanned separately."""

from __future__ import annotations

from pathlib import Path

import pytest

from kops.forensics.verify.facts.producers import ProducerFacts, Seen
from kops.forensics.verify.run import verify
from kops.records import BatchBuilder
from kops.records.build import end_txn_marker

PRODUCER = 9


def part(*batches: tuple[int, int, int]) -> ProducerFacts:
    """Return batches of one producer, three records each, from (base offset, epoch, first sequence number or -1 for a marker)."""
    facts = ProducerFacts()
    for base, epoch, sequence in batches:
        facts._batch(PRODUCER, Seen(epoch, sequence, sequence + 2 if sequence >= 0 else -1, base, base + 2, base * 10, 1))
    return facts


def joined(*parts: ProducerFacts) -> list[tuple[str, int]]:
    whole = ProducerFacts()
    for each in parts:
        whole.extend(each)
    return [(found.kind, found.after.base_offset) for found in whole.breaks]


MARKER = -1


@pytest.mark.parametrize(
    ("batches", "breaks"),
    [
        ([(0, 1, 0), (3, 1, MARKER), (6, 1, 3), (9, 1, 6)], []),
        ([(0, 1, MARKER), (3, 1, 7), (6, 1, 10)], []),  # what came before the log's start is unknown
        ([(0, 1, 0), (3, 1, MARKER), (6, 1, 4)], [("gap", 6)]),
        ([(0, 1, 0), (3, 1, MARKER), (6, 1, 2)], [("duplicate", 6)]),
        ([(0, 1, 0), (3, 2, MARKER), (6, 2, 0)], []),
        ([(0, 1, 0), (3, 2, MARKER), (6, 2, 3)], [("gap", 6)]),
        ([(0, 1, MARKER), (3, 2, 3)], [("gap", 3)]),
        ([(0, 1, MARKER), (3, 1, MARKER), (6, 1, 5), (9, 1, 9)], [("gap", 9)]),
    ],
)
def test_where_the_log_is_cut_into_segments_changes_nothing(batches: list[tuple[int, int, int]], breaks: list[tuple[str, int]]) -> None:
    assert joined(part(*batches)) == breaks
    for cut in range(len(batches) + 1):
        assert joined(part(*batches[:cut]), part(*batches[cut:])) == breaks
        for other in range(cut, len(batches) + 1):
            assert joined(part(*batches[:cut]), part(*batches[cut:other]), part(*batches[other:])) == breaks


def test_a_segment_that_begins_with_a_marker_is_no_gap(tmp_path: Path) -> None:
    """A producer without KIP-890 keeps its epoch, so its sequence numbers continue after the marker."""
    partition = tmp_path / "orders-0"
    partition.mkdir()

    def data(offset: int, sequence: int) -> bytes:
        builder = BatchBuilder(base_offset=offset, producer_id=PRODUCER, producer_epoch=1, base_sequence=sequence, transactional=True)
        for _ in range(5):
            builder.append(1_700_000_000_000, b"key", b"value")
        return builder.build()

    def marker(offset: int) -> bytes:
        return end_txn_marker(offset, 1_700_000_000_000, commit=True, coordinator_epoch=0, producer_id=PRODUCER, producer_epoch=1)

    (partition / f"{0:020d}.log").write_bytes(data(0, 0))
    (partition / f"{5:020d}.log").write_bytes(marker(5) + data(6, 5) + marker(11))
    codes = {found.code for found in verify([partition], level="full").findings}
    assert not codes & {"sequence-gap", "sequence-duplicate"}


def test_a_hole_with_a_marker_behind_it_explains_a_gap(tmp_path: Path) -> None:
    """The lost batch is reported once, as damage. Its missing sequence number is not reported as a second damage."""
    partition = tmp_path / "orders-0"
    partition.mkdir()

    def data(offset: int, sequence: int) -> bytes:
        builder = BatchBuilder(base_offset=offset, producer_id=PRODUCER, producer_epoch=1, base_sequence=sequence, transactional=True)
        builder.append(1_700_000_000_000, b"key", b"value")
        return builder.build()

    lost = bytearray(data(1, 1))
    lost[70] ^= 1
    marker = end_txn_marker(2, 1_700_000_000_000, commit=True, coordinator_epoch=0, producer_id=PRODUCER, producer_epoch=1)
    (partition / f"{0:020d}.log").write_bytes(data(0, 0) + bytes(lost) + marker + data(3, 2))
    codes = {found.code for found in verify([partition], level="full").findings}
    assert "batch-crc-mismatch" in codes and "sequence-gap" not in codes
