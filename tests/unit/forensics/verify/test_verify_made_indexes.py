"""Indexes that a plan has just made from a log are compared with it only if it is damaged."""

from __future__ import annotations

import struct

import pytest

from kops.files import MemoryFiles
from kops.forensics.verify.partition import SegmentTask, verify_segment
from kops.records import BatchBuilder
from kops.storage.segments.recovery import rebuild_indexes

LOG, INDEX, TIME_INDEX = (f"/orders-0/00000000000000000000.{kind}" for kind in ("log", "index", "timeindex"))


def codes(log: bytes, index: bytes, time_index: bytes, *, are_made: bool) -> set[str]:
    files = MemoryFiles()
    files.mkdir("/orders-0")
    for path, data in ((LOG, log), (INDEX, index), (TIME_INDEX, time_index)):
        files.write_all(path, data)
    task = SegmentTask(LOG, 0, len(log), "full", INDEX, TIME_INDEX, is_active=True, indexes_are_made=are_made)
    result = verify_segment(task, files)
    assert result.facts is not None and result.facts.batches
    return {found.code for found in result.findings}


def segment() -> tuple[bytes, bytes, bytes]:
    batches = []
    for offset in range(0, 60, 2):
        builder = BatchBuilder(base_offset=offset, partition_leader_epoch=0)
        for number in (offset, offset + 1):
            builder.append(1_700_000_000_000 + number, None, bytes(1000))
        batches.append(builder.build())
    log = b"".join(batches)
    files = MemoryFiles()
    files.write_all("/log", log)
    with files.open("/log") as source:
        made = rebuild_indexes(source, 0)
    return log, made.index, made.timeindex


@pytest.mark.parametrize("are_made", [False, True])
def test_right_indexes_give_no_finding(are_made: bool) -> None:
    assert codes(*segment(), are_made=are_made) == set()


def test_entries_are_not_compared_with_an_intact_log() -> None:
    log, index, time_index = segment()
    wrong = bytearray(index)
    struct.pack_into(">i", wrong, 4, struct.unpack_from(">i", wrong, 4)[0] + 1)
    assert codes(log, bytes(wrong), time_index, are_made=False) == {"index-entry-wrong"}
    assert codes(log, bytes(wrong), time_index, are_made=True) == set()
    # What the index alone shows is seen.
    assert codes(log, index[8:16] + index[:8] + index[16:], time_index, are_made=True) == {"index-disorder"}


@pytest.mark.parametrize("kind", ["damage", "disorder"])
def test_entries_are_compared_with_a_damaged_log(kind: str) -> None:
    log, index, time_index = segment()
    size = len(log) // 30
    if kind == "damage":
        bad = log[: 9 * size + 100] + bytes([log[9 * size + 100] ^ 1]) + log[9 * size + 101 :]
    else:
        bad = log[: 9 * size] + log[10 * size : 11 * size] + log[9 * size : 10 * size] + log[11 * size :]
    wrong = bytearray(index)
    struct.pack_into(">i", wrong, 4, struct.unpack_from(">i", wrong, 4)[0] + 1)
    assert "index-entry-wrong" in codes(bad, bytes(wrong), time_index, are_made=True)
