"""Offset, time and transaction index as values."""

from __future__ import annotations

import struct

import pytest

from kops.errors import DecodeError
from kops.files import FaultyFiles, MemoryFiles
from kops.storage.failures.load_errors import InvalidOffsetError
from kops.storage.segment_files.mapped_index import MappedOffsetIndex
from kops.storage.segment_files.offset_index import OffsetIndex, OffsetPosition, build_offset_index, read_offset_index, write_offset_index
from kops.storage.segment_files.time_index import TimeIndex, TimestampOffset, build_time_index, read_time_index, write_time_index
from kops.storage.segment_files.transaction_index import (
    AbortedTxn,
    check_transaction_index,
    collect_aborted_txns,
    read_transaction_index,
    write_transaction_index,
)

OFFSETS = [(110, 0), (120, 500), (130, 900), (145, 1400)]
TIMES = [(1000, 110), (2000, 120), (2500, 145)]


@pytest.mark.parametrize("entries", [0, 1, 8191, 8192, 8193, 20_000])
@pytest.mark.parametrize("zeros", [0, 8, 65_520, 65_536, 65_544, 300_000])
def test_a_preallocated_tail_does_not_count(entries: int, zeros: int) -> None:
    data = struct.pack(">2i", 1, 0) * entries
    assert read_offset_index(data + bytes(zeros), 100).written == entries


def test_offset_index() -> None:
    index = build_offset_index(100, OFFSETS)
    assert index.data == struct.pack(">8i", 10, 0, 20, 500, 30, 900, 45, 1400)
    assert (index.entries, len(index), index.written, index.last_offset) == (4, 4, 4, 145)
    assert list(index) == OFFSETS
    assert index[1] == OffsetPosition(120, 500)
    assert [list(column) for column in index.columns()] == [[10, 20, 30, 45], [0, 500, 900, 1400]]
    for slot in (-1, 4):
        with pytest.raises(IndexError):
            index[slot]
    index.sanity_check()


@pytest.mark.parametrize(("offset", "entry"), [(0, (100, 0)), (109, (100, 0)), (110, (110, 0)), (129, (120, 500)), (1000, (145, 1400))])
def test_offset_lookup(offset: int, entry: tuple[int, int]) -> None:
    assert build_offset_index(100, OFFSETS).lookup(offset) == entry


@pytest.mark.parametrize(
    ("position", "entry"), [(-1, (110, 0)), (0, (120, 500)), (1, (120, 500)), (500, (120, 500)), (1400, (145, 1400)), (1401, None)]
)
def test_upper_bound(position: int, entry: tuple[int, int] | None) -> None:
    assert build_offset_index(100, OFFSETS).upper_bound(position) == entry
    assert build_offset_index(100, []).upper_bound(position) is None


@pytest.mark.parametrize(("offset", "left"), [(100, 0), (110, 0), (111, 1), (120, 1), (144, 3), (145, 3), (146, 4)])
def test_truncate(offset: int, left: int) -> None:
    assert list(build_offset_index(100, OFFSETS).truncated_to(offset)) == OFFSETS[:left]
    times = build_time_index(100, [(i, o) for i, (o, _) in enumerate(OFFSETS)])
    assert [entry.offset for entry in times.truncated_to(offset)] == [o for o, _ in OFFSETS[:left]]


def test_empty_indexes() -> None:
    offsets, times = read_offset_index(b"", 7), read_time_index(b"", 7)
    assert (offsets.entries, offsets.written, offsets.last_offset, offsets.lookup(9)) == (0, 0, 7, (7, 0))
    assert (times.entries, times.written, times.last_entry, times.lookup(9)) == (0, 0, (-1, 7), (-1, 7))
    offsets.sanity_check()
    times.sanity_check()


def test_preallocated_zeros_are_entries() -> None:
    """Kafka sees such an index after a kill: its last entry is the base offset, and a time index fails its check."""
    offsets = read_offset_index(build_offset_index(100, OFFSETS).data + bytes(80), 100)
    assert (offsets.entries, offsets.written, offsets.last_offset) == (14, 4, 100)
    offsets.sanity_check()
    times = read_time_index(build_time_index(100, TIMES).data + bytes(120), 100)
    assert (times.entries, times.written, times.last_entry) == (13, 3, (0, 100))
    with pytest.raises(DecodeError, match="last timestamp 0"):
        times.sanity_check()


def test_a_part_of_an_entry_at_the_end() -> None:
    offsets = OffsetIndex(100, build_offset_index(100, OFFSETS).data + b"abc")
    assert (offsets.entries, list(offsets), len(offsets.columns().positions)) == (4, OFFSETS, 4)
    assert write_offset_index(offsets) == offsets.data[:-3]
    times = TimeIndex(100, build_time_index(100, TIMES).data + b"abcdefgh")
    assert (times.entries, list(times), len(times.columns().timestamps)) == (3, TIMES, 3)
    assert write_time_index(times) == times.data[:-8]
    for index, code, position in ((offsets, "corrupt-offset-index", 32), (times, "corrupt-time-index", 36)):
        with pytest.raises(DecodeError, match="not a multiple") as error:
            index.sanity_check("x.index")
        assert (error.value.code, error.value.position, error.value.file) == (code, position, "x.index")


def test_last_offset_below_the_base() -> None:
    with pytest.raises(DecodeError, match=r"last offset 95 .* less than the base offset 100"):
        OffsetIndex(100, struct.pack(">4i", 1, 0, -5, 10)).sanity_check()
    OffsetIndex(100, struct.pack(">4i", -5, 0, 1, 10)).sanity_check()
    with pytest.raises(DecodeError, match="last offset 95"):
        TimeIndex(100, struct.pack(">qi", 5, -5)).sanity_check()


def test_offsets_wrap_as_longs_do() -> None:
    assert OffsetIndex(2**63 - 1, struct.pack(">ii", 1, 0))[0].offset == -(2**63)
    assert next(iter(TimeIndex(2**63 - 1, struct.pack(">qi", 0, 1)))).offset == -(2**63)


def test_what_no_entry_can_hold() -> None:
    for offset in (99, 100 + 2**31):
        with pytest.raises(OverflowError):
            build_offset_index(100, [(offset, 0)])
        with pytest.raises(OverflowError):
            build_time_index(100, [(0, offset)])


def test_time_index() -> None:
    index = build_time_index(100, TIMES)
    assert index.data == struct.pack(">qiqiqi", 1000, 10, 2000, 20, 2500, 45)
    assert (index.entries, len(index), index.written, index.last_entry) == (3, 3, 3, TimestampOffset(2500, 145))
    assert list(index) == TIMES
    assert [list(column) for column in index.columns()] == [[1000, 2000, 2500], [10, 20, 45]]
    index.sanity_check()
    for slot in (-1, 3):
        with pytest.raises(IndexError):
            index[slot]


@pytest.mark.parametrize(("timestamp", "entry"), [(999, (-1, 100)), (1000, (1000, 110)), (2499, (2000, 120)), (9999, (2500, 145))])
def test_time_lookup(timestamp: int, entry: tuple[int, int]) -> None:
    assert build_time_index(100, TIMES).lookup(timestamp) == entry


def test_lookup_in_a_long_index() -> None:
    """Kafka searches the last 8 KiB first, then the rest. Entries in both parts are found."""
    index = build_offset_index(0, [(i * 10, i) for i in range(5000)])
    for offset in [0, 1, 9, 10, 39_749, 39_750, 39_751, 39_760, 49_989, 49_990, 10**9]:
        assert index.lookup(offset).position == min(offset // 10, 4999)
        position = offset // 10
        # The very first entry is never compared for equality.
        found = max(position, 1)
        assert index.upper_bound(position) == ((found * 10, found) if found < 5000 else None)


TXNS = [AbortedTxn(7, 0, 12, 13), AbortedTxn(8, 5, 20, 21), AbortedTxn(7, 30, 40, 41)]


def test_transaction_index() -> None:
    data = write_transaction_index(TXNS)
    assert data[:34] == struct.pack(">hqqqq", 0, 7, 0, 12, 13)
    assert read_transaction_index(data) == TXNS
    assert read_transaction_index(data[:-1]) == TXNS[:2]
    check_transaction_index(TXNS, 12)
    with pytest.raises(DecodeError) as error:
        check_transaction_index(TXNS, 13, file="t")
    assert (error.value.code, error.value.position) == ("corrupt-transaction-index", 0)


@pytest.mark.parametrize(("first", "second", "version"), [(0, 5, 0), (0xFF, 1, -1), (0x80, 0, -128)])
def test_only_the_first_byte_of_the_version_counts(first: int, second: int, version: int) -> None:
    data = bytes((first, second)) + write_transaction_index(TXNS[:1])[2:]
    (entry,) = read_transaction_index(data)
    assert entry.version == version
    assert write_transaction_index([entry]) == data


@pytest.mark.parametrize("first", [1, 0x7F])
def test_an_unknown_version(first: int) -> None:
    data = bytearray(write_transaction_index(TXNS))
    data[34] = first
    with pytest.raises(DecodeError) as error:
        read_transaction_index(bytes(data), file="t")
    assert (error.value.code, error.value.position, error.value.file) == ("transaction-index-version", 34, "t")


def test_aborted_transactions_of_a_fetch() -> None:
    assert collect_aborted_txns(TXNS, 0, 5) == ([TXNS[0]], True)
    assert collect_aborted_txns(TXNS, 13, 21) == ([TXNS[1]], True)
    assert collect_aborted_txns(TXNS, 0, 100) == (TXNS, False)
    assert collect_aborted_txns([], 0, 100) == ([], False)


def test_a_full_index_that_is_trimmed_is_in_its_file() -> None:
    """Nothing has to be cut off, but a killed broker must still leave the entries."""
    files = MemoryFiles()
    index = MappedOffsetIndex(files, "/00000000000000000000.index", 0, 16)
    index.append(1, 100)
    index.append(2, 200)
    index.trim_to_valid_size()
    assert files.read_all("/00000000000000000000.index") == bytes.fromhex("000000010000006400000002000000c8")


def test_offsets_of_an_index_increase() -> None:
    files = MemoryFiles()
    index = MappedOffsetIndex(files, "/00000000000000000100.index", 100, 800)
    index.append(100, 0)
    for offset in (100, 99):
        with pytest.raises(InvalidOffsetError, match="no larger than the last offset appended"):
            index.append(offset, 500)
    index.append(101, 500)
    assert (index.entries, index.last_offset) == (2, 101)


def test_an_index_is_synced_when_it_has_changed() -> None:
    """The metadata log is synced with every commit, but its indexes get an entry only now and then."""
    path = "/00000000000000000000.index"
    files = FaultyFiles(MemoryFiles())
    index = MappedOffsetIndex(files, path, 0, 80)
    changes = (lambda: None, lambda: None, lambda: index.append(1, 100), lambda: None, lambda: index.resize(40), lambda: None)
    syncs = []
    for change in changes:
        change()
        index.force()
        syncs.append(sum(operation.startswith("sync ") for operation in files.operations))
    assert syncs == [1, 1, 2, 2, 3, 3]
    # The contents from before may not be on the disk.
    index.close_handler()
    MappedOffsetIndex(files, path, 0, 80).force()
    assert sum(operation.startswith("sync ") for operation in files.operations) == 4


def test_an_index_that_is_built_anew_reads_nothing_of_the_old_one() -> None:
    """A killed broker leaves 10 MiB of zeros, which a recovery must not read. The old contents are overwritten."""
    path = "/00000000000000000000.index"
    files = MemoryFiles()
    files.write_all(path, bytes.fromhex("000000010000006400000002000000c8") + bytes(64))
    index = MappedOffsetIndex(files, path, 0, 80)
    index.reset()
    index.append(5, 500)
    assert index.held_bytes == 8
    index.append(6, 600)
    index.trim_to_valid_size()
    assert files.read_all(path) == bytes.fromhex("00000005000001f40000000600000258")
