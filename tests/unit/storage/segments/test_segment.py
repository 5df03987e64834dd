"""Segments and their indexes as a broker holds them: appending, looking up, cutting, recovering, renaming."""

from __future__ import annotations

import pytest

from kops.config.topic import TopicConfig
from kops.files import MemoryFiles
from kops.records import BatchBuilder, BytesSource
from kops.records.crc import crc32, crc32c
from kops.records.scanning.scanner import HELD_UNCHECKED
from kops.storage.failures.load_errors import CorruptIndexError, CorruptRecordError, InvalidOffsetError, LoadError, NoSuchFileError
from kops.storage.log_append import memory_batches
from kops.storage.producers.state import ProducerState
from kops.storage.segment_files.file_records import LogView, ensure_valid
from kops.storage.segment_files.index_entries import OffsetPosition, OffsetSpan, TimestampOffset
from kops.storage.segment_files.mapped_index import MappedOffsetIndex, MappedTimeIndex
from kops.storage.segment_files.transaction_index import AbortedTxn, TransactionIndex
from kops.storage.segments.epoch_cache import LeaderEpochFileCache
from kops.storage.segments.recovery import rebuild_indexes
from kops.storage.segments.segment import LogSegment, LogSegments, SegmentOverflowError

DIRECTORY = "/t-0"
ZERO = f"{DIRECTORY}/{0:020d}"


def batch(offset: int, count: int = 1, *, timestamp: int = 1000, epoch: int = 0, magic: int = 2, value: bytes = b"v") -> bytes:
    if magic < 2:
        builder = BatchBuilder(magic=magic, base_offset=offset)
    else:
        builder = BatchBuilder(base_offset=offset, partition_leader_epoch=epoch)
    for number in range(count):
        builder.append(timestamp + number, None, value)
    return builder.build()


def log_of(*offsets: int, step: int = 10) -> bytes:
    return b"".join(batch(offset, timestamp=1000 + number * step) for number, offset in enumerate(offsets))


SIZE = len(batch(0))


@pytest.fixture
def files() -> MemoryFiles:
    files = MemoryFiles(now_ms=lambda: 77)
    files.mkdir(DIRECTORY)
    return files


def segment_of(files: MemoryFiles, data: bytes = b"", *, base: int = 0, interval: int = 0, max_index_size: int = 240) -> LogSegment:
    files.write_all(f"{DIRECTORY}/{base:020d}.log", data)
    config = TopicConfig(index_interval_bytes=interval, segment_index_bytes=max_index_size)
    return LogSegment(files, DIRECTORY, base, config, already_exists=True)


def recovered(files: MemoryFiles, data: bytes, **options: int) -> LogSegment:
    segment = segment_of(files, data, **options)
    segment.recover(ProducerState(), LeaderEpochFileCache(files, DIRECTORY))
    return segment


# the log ------------------------------------------------------------------------------------------------------------------------------


def test_the_walk_ends_silently_at_what_is_not_whole() -> None:
    data = log_of(0, 1, 2)
    for cut in range(1, SIZE):
        assert [found.base_offset for found in LogView(BytesSource(data[:-cut]), "x").batches()] == [0, 1]


@pytest.mark.parametrize("length", [13, 0, -1, -(2**31)])
def test_a_length_below_the_smallest_is_an_error(length: int) -> None:
    data = log_of(0) + b"\0" * 8 + length.to_bytes(4, "big", signed=True) + b"\0" * 20
    walk = LogView(BytesSource(data), "x").batches()
    assert next(walk).base_offset == 0
    with pytest.raises(CorruptRecordError, match=f"record size {length} smaller than minimum"):
        next(walk)


def test_a_batch_too_small_for_its_header_fails_when_it_is_read() -> None:
    data = log_of(0) + b"\0" * 7 + b"\x09" + (14).to_bytes(4, "big") + b"\0\0\0\0\x02" + b"\0" * 9
    small = list(LogView(BytesSource(data), "x").batches())[-1]
    assert small.base_offset == 9
    with pytest.raises(LoadError, match="Failed to load record batch"):
        _ = small.last_offset
    with pytest.raises(CorruptRecordError, match="smaller than the minimum"):
        ensure_valid(small)


def test_a_header_that_the_file_cuts_is_passed_over_until_it_is_read() -> None:
    """There are two batches of 26 bytes at the file's end. The iteration continues after the first one although its
    header is incomplete.
    """
    small = (14).to_bytes(4, "big") + b"\0\0\0\0\x02" + b"\0" * 9
    data = log_of(0) + b"".join(offset.to_bytes(8, "big") + small for offset in (7, 8))
    view = LogView(BytesSource(data), "x")
    assert [(found.base_offset, found.position) for found in view.batches()] == [(0, 0), (7, SIZE), (8, SIZE + 26)]
    assert view.search_for_offset(7, 0) == OffsetSpan(7, SIZE, 26)
    for found in list(view.batches())[1:]:
        for field in ("attributes", "max_timestamp", "producer_id", "next_offset"):
            with pytest.raises(LoadError, match=f"Failed to load record batch at position {found.position}"):
                getattr(found, field)
        assert len(found.data()) == 26
    with pytest.raises(LoadError, match="Failed to load record batch"):
        ProducerState().load_batches(view.batches())


def test_a_negative_magic_is_an_old_message_whose_timestamp_fails_until_it_was_read() -> None:
    data = bytearray(batch(5, timestamp=1234, magic=1))
    data[16] = 0xFE
    data[12:16] = crc32(bytes(data[16:])).to_bytes(4, "big")
    found = LogView(BytesSource(bytes(data)), "x").first_batch()
    assert found is not None
    assert (found.magic, found.base_offset, found.last_offset) == (-2, 5, 5)
    with pytest.raises(LoadError, match="Invalid magic used in LegacyRecord: -2"):
        _ = found.max_timestamp
    ensure_valid(found)
    assert found.max_timestamp == 1234


@pytest.mark.parametrize(
    ("offset", "delta", "last", "following"), [(2**63 - 1, 0, 2**63 - 1, -(2**63)), (-(2**63), -1, 2**63 - 1, -(2**63))]
)
def test_offsets_wrap_as_longs_do(offset: int, delta: int, last: int, following: int) -> None:
    data = bytearray(batch(0))
    data[:8] = offset.to_bytes(8, "big", signed=True)
    data[23:27] = delta.to_bytes(4, "big", signed=True)
    found = LogView(BytesSource(bytes(data)), "x").first_batch()
    assert found is not None
    assert (found.base_offset, found.last_offset, found.next_offset) == (offset, last, following)


def test_a_large_batch_whose_checksum_is_wrong_is_read_in_pieces() -> None:
    data = bytearray(batch(3) + bytes(HELD_UNCHECKED))
    data[8:12] = (len(data) - 12).to_bytes(4, "big")
    reads: list[int] = []

    class Counting(BytesSource):
        def read(self, position: int, size: int) -> bytes:
            reads.append(size)
            return super().read(position, size)

    found = LogView(Counting(bytes(data)), "x").first_batch()
    assert found is not None
    assert (found.base_offset, found.size) == (3, len(data))
    stored = int.from_bytes(data[17:21], "big")
    with pytest.raises(CorruptRecordError, match=rf"stored crc = {stored}, computed crc = {crc32c(bytes(data[21:]))}\)"):
        ensure_valid(found)
    assert max(reads) <= 1 << 20
    assert bytes(found.data()) == data


def test_search_for_offset() -> None:
    view = LogView(BytesSource(batch(0, 5) + batch(10, 5) + batch(20)), "x")
    first, second, third = (found.position for found in view.batches())
    found = {target: span and span.position for target in (0, 4, 5, 9, 10, 14, 15, 20, 21) for span in [view.search_for_offset(target, 0)]}
    assert found == {0: first, 4: first, 5: second, 9: second, 10: second, 14: second, 15: third, 20: third, 21: None}
    assert view.search_for_offset(3, second) == OffsetSpan(10, second, third - second)


def test_a_search_reads_headers_only() -> None:
    reads: list[int] = []

    class Counting(BytesSource):
        def read(self, position: int, size: int) -> bytes:
            reads.append(size)
            return super().read(position, size)

    data = batch(0, value=bytes(1 << 20)) + batch(1, 2, value=bytes(1 << 20)) + batch(3)
    view = LogView(Counting(data), "x")
    second = view.search_for_offset(2, 0)
    assert second is not None
    assert (second.offset, second.size) == (1, len(batch(1, 2, value=bytes(1 << 20))))
    assert view.search_for_offset(3, 0) == OffsetSpan(3, len(data) - SIZE, SIZE)
    assert sum(reads) < 64 * 1024


def test_slices_are_cut_at_the_end_and_checked() -> None:
    view = LogView(BytesSource(log_of(0, 1, 2)), "x")
    assert [found.base_offset for found in view.slice(SIZE, 10**6).batches()] == [1, 2]
    assert [found.base_offset for found in view.slice(SIZE, SIZE).batches()] == [1]
    assert [found.base_offset for found in view.slice(SIZE, 2**31 - 1).batches()] == [1, 2]
    for position, size in ((-1, 1), (3 * SIZE + 1, 1), (0, -1)):
        with pytest.raises(LoadError):
            view.slice(position, size)


@pytest.mark.parametrize("magic", [0, 1])
@pytest.mark.parametrize("codec", ["gzip", "snappy", "lz4"])
def test_the_first_offset_of_an_old_compressed_set_is_inside(magic: int, codec: str) -> None:
    builder = BatchBuilder(magic=magic, codec=codec, base_offset=40)
    for number in range(3):
        builder.append(1000 + number, b"k", b"v")
    found = LogView(BytesSource(builder.build()), "x").first_batch()
    assert found is not None
    assert (found.base_offset, found.last_offset, found.max_timestamp) == (40, 42, 1002 if magic else -1)


# indexes ------------------------------------------------------------------------------------------------------------------------------


def test_an_index_is_preallocated_and_trimmed(files: MemoryFiles) -> None:
    index = MappedOffsetIndex(files, "/i", 100, 35)
    assert files.stat("/i").size == 32
    index.append(103, 7)
    index.append(110, 9)
    index.close()
    assert files.read_all("/i") == b"\0\0\0\x03\0\0\0\x07\0\0\0\x0a\0\0\0\x09"


def test_offset_index_lookup(files: MemoryFiles) -> None:
    index = MappedOffsetIndex(files, "/i", 100, 80)
    assert index.lookup(105) == OffsetPosition(100, 0)
    for offset, position in ((103, 7), (110, 9), (120, 30)):
        index.append(offset, position)
    assert [index.lookup(offset).offset for offset in (99, 102, 103, 109, 110, 119, 500)] == [100, 100, 103, 103, 110, 110, 120]


def test_offset_index_refuses(files: MemoryFiles) -> None:
    index = MappedOffsetIndex(files, "/i", 100, 16)
    index.append(103, 7)
    with pytest.raises(InvalidOffsetError):
        index.append(103, 9)
    with pytest.raises(LoadError) as caught:
        index.append(100 + 2**31, 9)
    assert caught.value.exception == "org.apache.kafka.common.errors.IndexOffsetOverflowException"
    index.append(104, 9)
    with pytest.raises(LoadError, match="full index"):
        index.append(105, 9)


def test_time_index_takes_growing_timestamps_only(files: MemoryFiles) -> None:
    index = MappedTimeIndex(files, "/i", 100, 60)
    assert index.last_entry == TimestampOffset(-1, 100)
    index.maybe_append(-1, 100)
    index.maybe_append(50, 103)
    index.maybe_append(50, 110)
    assert index.entries == 1
    index.maybe_append(60, 112)
    assert [index.lookup(timestamp).offset for timestamp in (49, 50, 59, 60, 99)] == [100, 103, 103, 112, 112]
    with pytest.raises(InvalidOffsetError):
        index.maybe_append(70, 111)
    with pytest.raises(LoadError) as caught:
        index.maybe_append(59, 113)
    assert caught.value.exception == "java.lang.IllegalStateException"


def test_the_last_slot_of_a_time_index_is_for_closing(files: MemoryFiles) -> None:
    index = MappedTimeIndex(files, "/i", 0, 24)
    index.maybe_append(1, 1)
    with pytest.raises(LoadError, match="full time index"):
        index.maybe_append(2, 2)
    index.maybe_append(2, 2, skip_full_check=True)
    assert index.entries == 2


@pytest.mark.parametrize(("offset", "left"), [(99, 0), (102, 0), (103, 0), (104, 1), (110, 1), (111, 2), (500, 3)])
def test_cutting_indexes(files: MemoryFiles, offset: int, left: int) -> None:
    offsets, times = MappedOffsetIndex(files, "/i", 100, 80), MappedTimeIndex(files, "/t", 100, 80)
    for number, entry in enumerate((103, 110, 120)):
        offsets.append(entry, number)
        times.maybe_append(number, entry)
    offsets.truncate_to(offset)
    times.truncate_to(offset)
    assert (offsets.entries, times.entries) == (left, left)
    assert offsets.last_offset == [100, 103, 110, 120][left]


def test_what_stands_behind_the_entries_stays_until_it_is_trimmed(files: MemoryFiles) -> None:
    """A rebuild that ends halfway leaves old entries after the new ones, like the mapping of a broker."""
    files.write_all("/i", bytes(range(32)))
    index = MappedOffsetIndex(files, "/i", 0, 48)
    index.reset()
    index.append(5, 6)
    index.close_handler()
    assert files.read_all("/i") == b"\0\0\0\x05\0\0\0\x06" + bytes(range(8, 32)) + bytes(16)


def test_an_index_larger_than_its_setting(files: MemoryFiles) -> None:
    files.write_all("/i", bytes(32))
    index = MappedOffsetIndex(files, "/i", 0, 16)
    with pytest.raises(LoadError, match="the index has 32 bytes of entries, which do not fit into 16"):
        index.resize(16)


def test_transaction_index(files: MemoryFiles) -> None:
    index = TransactionIndex(files, "/x", 10)
    assert not files.exists("/x")
    index.append(AbortedTxn(1, 10, 12, 13))
    index.append(AbortedTxn(2, 14, 19, 20))
    with pytest.raises(LoadError, match="must increase sequentially"):
        index.append(AbortedTxn(2, 14, 19, 20))
    index.truncate_to(15)
    assert list(index.entries()) == [AbortedTxn(1, 10, 12, 13)]
    index.sanity_check()
    with pytest.raises(CorruptIndexError):
        TransactionIndex(files, "/x", 13).sanity_check()
    index.reset()
    assert files.stat("/x").size == 0


# segments -----------------------------------------------------------------------------------------------------------------------------


def test_recovery_builds_the_indexes(files: MemoryFiles) -> None:
    segment = recovered(files, log_of(0, 1, 2, 3), interval=SIZE)
    assert [segment.offset_index.entry(slot) for slot in range(segment.offset_index.entries)] == [(2, 2 * SIZE)]
    assert [segment.time_index.entry(slot) for slot in range(segment.time_index.entries)] == [(1020, 2), (1030, 3)]
    assert segment.read_next_offset() == 4
    assert files.list(DIRECTORY) == [f"{0:020d}.index", f"{0:020d}.log", f"{0:020d}.timeindex", "leader-epoch-checkpoint"]


def test_recovery_cuts_at_the_first_bad_batch(files: MemoryFiles) -> None:
    data = bytearray(log_of(0, 1, 2, 3))
    data[2 * SIZE + 62] ^= 1
    segment = segment_of(files, bytes(data))
    assert segment.recover(ProducerState(), LeaderEpochFileCache(files, DIRECTORY)) == 2 * SIZE
    assert segment.read_next_offset() == 2
    assert isinstance(segment.damage, CorruptRecordError)
    assert files.stat(ZERO + ".log").size == 2 * SIZE


def test_recovery_assigns_new_leader_epochs(files: MemoryFiles) -> None:
    epochs = LeaderEpochFileCache(files, DIRECTORY)
    data = batch(0, epoch=1) + batch(1, epoch=1) + batch(2, epoch=4) + batch(3, epoch=2) + batch(4, epoch=-1)
    segment_of(files, data).recover(ProducerState(), epochs)
    assert [tuple(entry) for entry in epochs.entries] == [(1, 0), (4, 2)]


def test_recovery_stops_at_offsets_that_go_back(files: MemoryFiles) -> None:
    with pytest.raises(InvalidOffsetError):
        recovered(files, log_of(0, 5, 4))


def test_offsets_that_go_back_pass_between_index_entries(files: MemoryFiles) -> None:
    assert recovered(files, log_of(0, 5, 4), interval=10**6).read_next_offset() == 5


@pytest.mark.parametrize("offset", [2**31 + 5, -3, 4])
def test_recovery_stops_at_offsets_out_of_reach(files: MemoryFiles, offset: int) -> None:
    data = bytearray(log_of(5, 6))
    data[SIZE : SIZE + 8] = offset.to_bytes(8, "big", signed=True)
    with pytest.raises(SegmentOverflowError):
        recovered(files, bytes(data), base=5)


def test_appending_writes_what_recovery_rebuilds(files: MemoryFiles) -> None:
    data = log_of(0, 1, 2, 3, 4, 5, step=-3)
    appended = segment_of(files, interval=2 * SIZE)
    for found in LogView(BytesSource(data), "x").batches():
        appended.append(found.last_offset, found.data(), [found])
    appended.close()
    rebuilt = rebuild_indexes(BytesSource(data), 0, 2 * SIZE)
    assert files.read_all(ZERO + ".log") == data
    assert (rebuilt.index, rebuilt.timeindex) == (files.read_all(ZERO + ".index"), files.read_all(ZERO + ".timeindex"))


def test_truncating(files: MemoryFiles) -> None:
    segment = recovered(files, log_of(0, 1, 2, 3))
    assert segment.truncate_to(2) == 2 * SIZE
    assert segment.read_next_offset() == 2
    assert segment.largest == TimestampOffset(1010, 1)
    assert segment.truncate_to(7) == 0
    segment.append(2, batch(2), list(LogView(BytesSource(batch(2)), "x").batches()))
    assert segment.read_next_offset() == 3


def test_reading(files: MemoryFiles) -> None:
    segment = recovered(files, log_of(0, 1, 2, 3))
    found = segment.read(1, 2 * SIZE, segment.size)
    assert found is not None
    assert found.records is not None
    assert [part.base_offset for part in found.records.batches()] == [1, 2]
    assert found.next_offset == 3
    assert segment.read(4, 100, segment.size) is None
    empty = segment.read(1, 0, segment.size)
    assert empty is not None
    assert empty.records is None
    whole = segment.read(1, 1, segment.size, min_one_batch=True)
    assert whole is not None
    assert whole.next_offset == 2


def test_sanity(files: MemoryFiles) -> None:
    segment = segment_of(files, log_of(0))
    with pytest.raises(NoSuchFileError):
        segment.sanity_check(time_index_newly_created=True)
    files.write_all(ZERO + ".index", b"")
    segment.sanity_check(time_index_newly_created=True)
    assert files.stat(ZERO + ".timeindex").size == 0


def append_to(segment: LogSegment, offset: int) -> None:
    data = batch(offset, timestamp=1000 + offset)
    segment.append(offset, data, list(LogView(BytesSource(data), "x").batches()))
    segment.write_index_entries()


def test_the_indexes_of_a_rolled_segment_are_in_their_files_alone(files: MemoryFiles) -> None:
    never_rolled = MemoryFiles(now_ms=lambda: 77)
    never_rolled.mkdir(DIRECTORY)
    segment, other = segment_of(files), segment_of(never_rolled)
    for offset in range(1, 7):
        append_to(segment, offset)
        append_to(other, offset)
    indexes = segment.offset_index, segment.time_index
    assert [index.held_bytes for index in indexes] == [40, 60]
    segment.on_become_inactive()
    segment.flush()
    assert [segment.offset_index.entry(slot).offset for slot in range(5)] == [2, 3, 4, 5, 6]
    assert segment.time_index.entry(4) == segment.time_index.find_last() == (1006, 6)
    assert segment.translate_offset(4) == OffsetSpan(4, 3 * SIZE, SIZE)
    assert segment.find_offset_by_timestamp(1005, 0) == (1005, 5, 0)
    segment.truncate_to(4)
    assert [index.held_bytes for index in indexes] == [0, 0]
    other.truncate_to(4)
    for written in (segment, other):
        append_to(written, 4)
        append_to(written, 5)
    assert all(index.held_bytes >= index.size > 0 for index in indexes)
    segment.close()
    other.close()
    for kind in ("log", "index", "timeindex"):
        assert files.read_all(f"{ZERO}.{kind}") == never_rolled.read_all(f"{ZERO}.{kind}")


def test_where_appends_began_is_remembered_as_the_log_has_it(files: MemoryFiles) -> None:
    segment = segment_of(files, interval=100, max_index_size=2400)
    for number in range(100):
        data = batch(10 * number, 10)
        segment.append(10 * number + 9, data, list(memory_batches(data)))
    reread = segment_of(files, files.read_all(f"{ZERO}.log"))
    offsets = [*range(0, 1000, 7), *range(600, 1000, 10), 2000]
    assert [segment.translate_offset(offset) for offset in offsets] == [reread.translate_offset(offset) for offset in offsets]
    segment.truncate_to(900)
    data = batch(900, 3) + batch(903, 4)
    segment.append(906, data, list(memory_batches(data)))
    reread = segment_of(files, files.read_all(f"{ZERO}.log"))
    assert [segment.translate_offset(offset) for offset in range(850, 920)] == [
        reread.translate_offset(offset) for offset in range(850, 920)
    ]


def test_what_was_appended_lately_is_found_without_a_look_at_the_file(files: MemoryFiles, monkeypatch: pytest.MonkeyPatch) -> None:
    segment = segment_of(files, max_index_size=2400)
    for number in range(150):
        segment.append(number, batch(number), list(memory_batches(batch(number))))
    searched = []
    monkeypatch.setattr(segment.log, "search_for_offset", lambda offset, position: searched.append(offset))
    found = [segment.translate_offset(offset) for offset in range(151)]
    assert found[86:150] == [OffsetSpan(number, number * SIZE, SIZE) for number in range(86, 150)]
    assert searched == [*range(86), 150]
    segment.on_become_inactive()
    assert [segment.translate_offset(149), searched[-1]] == [None, 149]


def test_suffixes(files: MemoryFiles) -> None:
    segment = recovered(files, log_of(0, 1))
    segment.change_suffixes("", ".deleted")
    assert segment.has_suffix(".deleted")
    assert [name for name in files.list(DIRECTORY) if name.endswith(".deleted")] == [
        f"{0:020d}{kind}.deleted" for kind in (".index", ".log", ".timeindex")
    ]
    segment.delete()
    assert files.list(DIRECTORY) == ["leader-epoch-checkpoint"]
    with pytest.raises(LoadError, match="to end with"):
        segment.change_suffixes(".swap", "")


def test_largest_timestamp_of_an_old_segment_is_its_file_time(files: MemoryFiles) -> None:
    assert recovered(files, batch(0, magic=0)).largest_timestamp == 77


def test_segments_by_offset(files: MemoryFiles) -> None:
    segments = LogSegments()
    assert segments.first is None
    assert segments.last is None
    for base in (10, 0, 25):
        segments.add(segment_of(files, base=base))
    assert segments.base_offsets == [0, 10, 25]
    assert [found and found.base_offset for found in (segments.floor(9), segments.floor(10), segments.lower(10), segments.higher(10))] == [
        0,
        10,
        0,
        25,
    ]
    assert [segment.base_offset for segment in segments.values(12, 25)] == [10]
    assert [segment.base_offset for segment in segments.values(-5, 26)] == [0, 10, 25]
    assert segments.values(7, 7) == []
    with pytest.raises(LoadError):
        segments.values(7, 6)
    segments.remove(10)
    assert 10 not in segments
    assert segments.active.base_offset == 25
    segments.remove(25)
    assert segments.active.base_offset == 0
    again = segment_of(files, base=0)
    segments.add(again)
    assert segments.active is again
    segments.clear()
    assert segments.last is None
    with pytest.raises(IndexError):
        _ = segments.active
