"""The parts of a cleaning: the offset map, grouping of segments, a full map, unreadable data, and a crash at every step."""

from __future__ import annotations

import hashlib
import random
from dataclasses import replace
from types import ModuleType

import pytest

from kops.config.topic import topic_config
from kops.errors import DecodeError
from kops.files import Crash, FaultyFiles, MemoryFiles, OverlayFiles
from kops.records import BatchBuilder
from kops.records.build import write_batch, write_record
from kops.records.scanning.scanner import read_batches
from kops.storage.cleaning._hot_clean import OffsetMap
from kops.storage.cleaning.cleaner import Cleaner, CleaningAbortedError, CleanRange, group_segments_by_size
from kops.storage.failures.load_errors import CorruptRecordError, LoadError
from kops.storage.unified_log import UnifiedLog
from tests.support.hot import hot, variants
from tests.support.logs.twins import cleaning
from tests.support.logs.twins.cleaning import NOW_MS, SETTINGS

HOT = "kops.storage.cleaning._hot_clean"


@pytest.fixture(params=variants())
def loops(request: pytest.FixtureRequest) -> ModuleType:
    return hot(HOT, request.param)


def cleaner(memory: int = 1 << 16) -> Cleaner:
    return Cleaner(OffsetMap(memory), now_ms=lambda: NOW_MS, io_buffer_bytes=2048)


def records_of(log: UnifiedLog) -> list[tuple[int, bytes | None]]:
    return [(record.offset, record.key) for segment in log.segments for batch in segment.log.batches() for record in batch.records()]


# the offset map -------------------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("memory", [24 * 40, 24 * 1000, 24 * 5000])
def test_the_map_is_a_map(loops: ModuleType, memory: int) -> None:
    rng = random.Random(memory)
    offsets, expected = loops.OffsetMap(memory), {}
    assert offsets.slots == memory // 24
    for number in range(3 * offsets.slots):
        key = b"%d" % rng.randrange(offsets.slots - 1)
        offsets.put(key, number)
        expected[key] = number
        assert offsets.latest_offset == number
    assert offsets.size == len(expected)
    assert offsets.utilization == len(expected) / offsets.slots
    assert {key: offsets.get(key) for key in expected} == expected
    assert offsets.get(b"another") == -1
    offsets.clear()
    assert (offsets.size, offsets.latest_offset, offsets.get(b"1")) == (0, -1, -1)


def test_a_full_map(loops: ModuleType) -> None:
    offsets = loops.OffsetMap(24 * 10)
    for number in range(10):
        offsets.put(b"%d" % number, number)
    assert [offsets.get(b"%d" % number) for number in range(11)] == [*range(10), -1]
    with pytest.raises(ValueError, match="full offset map, entries: 10, slots: 10"):
        offsets.put(b"1", 5)


def test_keys_are_known_by_their_md5(loops: ModuleType) -> None:
    """For Kafka, two keys with the same MD5 are the same."""
    first = bytes.fromhex(
        "d131dd02c5e6eec4693d9a0698aff95c2fcab58712467eab4004583eb8fb7f8955ad340609f4b30283e488832571415a"
        "085125e8f7cdc99fd91dbdf280373c5bd8823e3156348f5bae6dacd436c919c6dd53e2b487da03fd02396306d248cda0"
        "e99f33420f577ee8ce54b67080a80d1ec69821bcb6a8839396f9652b6ff72a70"
    )
    second = bytearray(first)
    for at in (19, 45, 59, 83, 109, 123):
        second[at] ^= 0x80
    assert hashlib.md5(first).digest() == hashlib.md5(second).digest()
    offsets = loops.OffsetMap(24 * 100)
    offsets.put(first, 7)
    assert offsets.get(bytes(second)) == 7


@pytest.mark.parametrize("slots", [40, 1000, 40_000])
def test_marks_tell_what_the_map_tells(loops: ModuleType, slots: int) -> None:
    rng = random.Random(slots)
    offsets = loops.OffsetMap(24 * slots)
    latest: dict[bytes, int] = {}
    keys: dict[int, bytes] = {}
    offset = first = rng.randrange(1 << 40)
    while len(latest) < slots - 1 and len(keys) < 3 * slots:
        key = b"%d" % rng.randrange(slots)
        offsets.put(key, offset)
        keys[offset], latest[key] = key, offset
        offset += rng.choice((1, 1, 1, 2, 50))
    reach = 24 * slots // 16
    told = offsets.marks(first, 1 << 50)
    assert len(told) <= reach
    for at, key in keys.items():
        if at - first < reach:
            assert told[at - first] == (loops.LATEST if latest[key] == at else loops.SUPERSEDED)
    assert offset - first > reach, "some are beyond what is marked"
    assert {told[at - first] for at in range(first, first + len(told)) if at not in keys} == {0}
    some = rng.choice(list(keys)[: reach // 60])
    assert offsets.marks(some, 3) == told[some - first : some - first + 3]
    assert offsets.marks(first - 1, 5) == offsets.marks(offset, 5) == b""


def test_offsets_that_fall_are_not_marked(loops: ModuleType) -> None:
    offsets = loops.OffsetMap(24 * 1000)
    for number, offset in enumerate((5, 6, 9, 7, 8, 12)):
        offsets.put(b"k", offset)
        assert bool(offsets.marks(5, 9)) == (number < 3)
    assert offsets.get(b"k") == 12
    offsets.clear()
    offsets.put(b"k", 1 << 62)
    assert offsets.marks(1 << 62, 1) == bytes([loops.LATEST])
    offsets.clear()
    offsets.put(b"k", -1)
    offsets.put(b"k", (1 << 63) - 1)
    assert offsets.get(b"k") == (1 << 63) - 1


@pytest.mark.parametrize("keeps_tombstones", [True, False])
def test_records_stay_the_same_with_and_without_marks(loops: ModuleType, keeps_tombstones: bool) -> None:
    rng = random.Random(7)
    keys = [b"%d" % rng.randrange(60) if rng.random() < 0.9 else None for _ in range(200)]
    values = [b"v" if rng.random() < 0.8 else None for _ in keys]
    data = b"".join(write_record(at, 0, key, value) for at, (key, value) in enumerate(zip(keys, values, strict=True)))
    rising, falling = loops.OffsetMap(24 * 5000), loops.OffsetMap(24 * 5000)
    falling.put(b"another", 10)
    falling.put(b"another", 1)
    chosen = []
    for offsets in (rising, falling):
        assert loops.put_keys(offsets, data, 0, len(data), len(keys), 1000, 0, 1 << 40) == (len(data), len(keys))
        offsets.update_latest_offset(1199)
        runs: list[int] = []
        chosen.append((loops.choose(offsets, data, 0, len(data), len(keys), 1000, len(keys), loops.BY_KEY, keeps_tombstones, runs), runs))
    assert chosen[0] == chosen[1]
    assert bool(rising.marks(1050, 1)) and not falling.marks(1050, 1)
    assert 40 < chosen[0][0][1] < 100


# rewritten records ----------------------------------------------------------------------------------------------------------------------


def padded(value: int, size: int) -> bytes:
    """Return a zig-zag varint that is longer than necessary."""
    raw = value << 1
    return bytes([raw >> 7 * at & 0x7F | 0x80 for at in range(size - 1)] + [raw >> 7 * (size - 1)])


def test_numbers_that_are_too_long_are_written_as_kafka_does(loops: ModuleType) -> None:
    plain = write_record(3, 10, b"key", b"value", [("h", b"x")])
    odd = b"\x07" + padded(10, 3) + padded(3, 2) + padded(3, 2) + b"key" + padded(5, 2) + b"value" + padded(1, 2) + padded(1, 2) + b"h"
    odd += padded(1, 2) + b"x"
    data = padded(len(odd), 3) + odd
    parts: list[bytes] = []
    assert loops.rewrite(data, [0, len(data)], 100, False, -1, parts, loops.NO_OFFSET)[:2] == (110, 110)
    assert b"".join(parts) == write_record(3, 0, b"key", b"value", [("h", b"x")])
    parts.clear()
    loops.rewrite(data, [0, len(data)], 100, False, 100, parts, loops.NO_OFFSET)
    assert b"".join(parts) == plain


def test_a_header_name_that_is_no_utf8_is_replaced(loops: ModuleType) -> None:
    data = write_record(0, 0, b"k", None, [(b"a\xff", None)])
    parts: list[bytes] = []
    loops.rewrite(data, [0, len(data)], 5, False, -1, parts, loops.NO_OFFSET)
    assert b"".join(parts) == write_record(0, 0, b"k", None, [("a�", None)])


def test_what_kafkas_builder_refuses(loops: ModuleType) -> None:
    first, second = write_record(1, 0, b"k", b""), write_record(1, 0, b"k", b"")
    with pytest.raises(ValueError, match="Illegal offset"):
        loops.rewrite(first + second, [0, len(first + second)], 5, False, -1, [], loops.NO_OFFSET)
    with pytest.raises(ValueError, match="Invalid negative timestamp"):
        loops.rewrite(first, [0, len(first)], -2, False, -1, [], loops.NO_OFFSET)


# rounds ---------------------------------------------------------------------------------------------------------------------------------


def written(files: MemoryFiles, segments: list[bytes], bases: list[int]) -> UnifiedLog:
    directory = "/logs/orders-0"
    for path in ("/logs", directory):
        files.mkdir(path)
    for base, data in zip(bases, segments, strict=True):
        files.write_all(f"{directory}/{base:020d}.log", data)
    return cleaning.open_log(directory, files, clean=False)


def segment(base: int, keys: list[bytes | None]) -> bytes:
    builder = BatchBuilder(base_offset=base)
    for number, key in enumerate(keys):
        builder.append(NOW_MS - 5000 + number, key, b"v")
    return builder.build()


def test_a_map_that_fills_up_ends_the_round_early() -> None:
    keys: list[bytes | None] = [b"%d" % number for number in range(100)]
    log = written(MemoryFiles(), [segment(0, keys[:60]), segment(60, keys[60:]), segment(100, keys[:50]), b""], [0, 60, 100, 150])
    small = cleaner(24 * 90)
    end, stats = small.clean(log, CleanRange(0, 150))
    assert (end, stats.buffer_utilization) == (81, 81 / 90)
    end, _ = small.clean(log, CleanRange(end, 150))
    assert end == 150
    assert len({key for _, key in records_of(log)}) == len(records_of(log)) == 100


def test_a_map_for_no_entry_is_refused() -> None:
    with pytest.raises(ValueError, match="offset map is too small"):
        cleaner(24)


def test_records_without_a_key_go() -> None:
    log = written(MemoryFiles(), [segment(0, [b"a", None, b"b"]), b""], [0, 3])
    _, stats = cleaner().clean(log, CleanRange(0, 3))
    assert stats.invalid_messages_read == 1
    assert records_of(log) == [(0, b"a"), (2, b"b")]


def test_a_large_batch_among_small_windows() -> None:
    builder = BatchBuilder()
    builder.append(NOW_MS, b"a", b"x" * 50_000)
    log = written(MemoryFiles(), [builder.build() + segment(1, [b"b"]), b""], [0, 2])
    end, _ = cleaner().clean(log, CleanRange(0, 2))
    assert (end, records_of(log)) == (2, [(0, b"a"), (1, b"b")])


def test_what_can_not_be_read_ends_the_round_and_changes_nothing() -> None:
    wrong = write_batch(b"\xff\xff\xff\xff\xff\xff", base_offset=0, last_offset=0, count=1)
    for data, error in ((wrong, DecodeError), (segment(0, [b"a"])[:-1], CorruptRecordError)):
        files = MemoryFiles()
        log = written(files, [segment(0, [b"a"]), b""], [0, 1])
        first = next(iter(log.segments))
        first.log.file.truncate(0)
        first.log.file.write(0, data)
        first.log.size = len(data)
        with pytest.raises(error):
            cleaner().clean(log, CleanRange(0, 1))
        assert files.read_all(first.log.path) == data


def test_an_abort_between_steps_takes_the_new_files_away() -> None:
    files = MemoryFiles()
    log = written(files, [segment(0, [b"a"]), segment(1, [b"a"]), b""], [0, 1, 2])
    steps = cleaner().steps(log, CleanRange(0, 2))
    while not [name for name in files.list(log.directory) if name.endswith(".cleaned")]:
        next(steps)
    with pytest.raises(CleaningAbortedError):
        steps.throw(CleaningAbortedError("enough"))
    assert not [name for name in files.list(log.directory) if name.endswith(".cleaned")]
    assert records_of(log) == [(0, b"a"), (1, b"a")]


def test_segments_are_grouped_up_to_the_sizes_of_one() -> None:
    data = segment(0, [b"a", b"b"])
    log = written(MemoryFiles(), [segment(base, [b"a", b"b"]) for base in range(0, 12, 2)] + [b""], list(range(0, 14, 2)))
    segments = log.segments.values(0, 12)
    config = replace(topic_config(SETTINGS), internal_segment_bytes=3 * len(data))
    assert [[each.base_offset for each in group] for group in group_segments_by_size(segments, config, 12)] == [[0, 2, 4], [6, 8, 10]]
    config = replace(config, internal_segment_bytes=len(data) - 1)
    assert len(group_segments_by_size(segments, config, 12)) == 6
    # The end of the round gives the last offset of the last segment.
    wide = replace(config, internal_segment_bytes=1 << 20)
    assert [len(group) for group in group_segments_by_size(segments, wide, 1 << 31)] == [6]
    assert [len(group) for group in group_segments_by_size(segments, wide, 1 + (1 << 31))] == [5, 1]


def test_an_empty_batch_of_an_old_format_is_refused() -> None:
    """As in Kafka, the round's last batch must stay, but v1 has no empty batches."""
    builder = BatchBuilder(magic=1)
    builder.append(NOW_MS - 5000, None, b"v")
    log = written(MemoryFiles(), [builder.build(), b""], [0, 1])
    with pytest.raises(LoadError, match="Empty batches are only supported"):
        cleaner().clean(log, CleanRange(0, 1))


# a crash at every step ------------------------------------------------------------------------------------------------------------------


def opened(source: MemoryFiles) -> tuple[FaultyFiles, UnifiedLog]:
    """Return the log on a copy of the files in which operations can fail."""
    files = FaultyFiles(OverlayFiles(source))
    return files, cleaning.open_log("/logs/orders-0", files)


def test_a_crash_at_any_step_loses_no_record_that_stays() -> None:
    shape = cleaning.Shape(segments=4, batches=4)
    source = MemoryFiles()
    writer = cleaning.LogWriter(random.Random(3), shape)
    bases, segments = [], []
    for _ in range(shape.segments):
        bases.append(writer.offset)
        segments.append(b"".join(writer.batch() for _ in range(shape.batches)))
    before = written(source, segments, bases)
    span = cleaning.whole(before)
    before.close()
    everything = {record.offset for data in segments for batch in read_batches(data) for record in batch.records()}
    files, log = opened(source)
    begin = len(files.operations)
    cleaner().clean(log, span)
    kept = {offset for offset, _ in records_of(log)}
    assert kept < everything
    assert len(files.operations) - begin > 15
    for at in range(begin + 1, len(files.operations) + 1):
        faulty, log = opened(source)
        faulty.at = at
        with pytest.raises(Crash):
            cleaner().clean(log, span)
        loaded = cleaning.open_log("/logs/orders-0", faulty.base, clean=False)
        found = {offset for offset, _ in records_of(loaded)}
        assert kept <= found <= everything, faulty.operations[at - 1]
        leftovers = [name for name in faulty.base.list("/logs/orders-0") if name.endswith((".cleaned", ".swap"))]
        assert leftovers == [], faulty.operations[at - 1]
