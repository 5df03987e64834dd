"""The leader-epoch cache: monotonic entries (KIP-101), answers to OffsetForLeaderEpoch (KIP-279, KIP-320), and its file."""

from __future__ import annotations

import errno

import pytest

from kops.files import FaultyFiles, MemoryFiles
from kops.storage.failures.load_errors import KafkaStorageError, LoadError
from kops.storage.formats.leader_epoch_checkpoint import EpochEntry
from kops.storage.segments.epoch_cache import FILE_NAME, LeaderEpochFileCache

DIRECTORY = "/t-0"
PATH = f"{DIRECTORY}/{FILE_NAME}"


@pytest.fixture
def files() -> MemoryFiles:
    files = MemoryFiles()
    files.mkdir(DIRECTORY)
    return files


def cache_of(files: MemoryFiles, *entries: tuple[int, int]) -> LeaderEpochFileCache:
    cache = LeaderEpochFileCache(files, DIRECTORY)
    for epoch, offset in entries:
        cache.assign(epoch, offset)
    return cache


def pairs(cache: LeaderEpochFileCache) -> list[tuple[int, int]]:
    return [(entry.epoch, entry.start_offset) for entry in cache.entries]


def test_opening_makes_the_file(files: MemoryFiles) -> None:
    assert LeaderEpochFileCache(files, DIRECTORY).entries == ()
    assert files.read_all(PATH) == b""


def test_assigning_writes_at_once(files: MemoryFiles) -> None:
    cache_of(files, (0, 0), (2, 17))
    assert files.read_all(PATH) == b"0\n2\n0 0\n2 17\n"
    assert pairs(LeaderEpochFileCache(files, DIRECTORY)) == [(0, 0), (2, 17)]
    assert files.list(DIRECTORY) == [FILE_NAME]


@pytest.mark.parametrize(
    ("new", "left"),
    [
        ((5, 40), [(1, 10), (3, 20), (5, 40)]),
        ((3, 25), [(1, 10), (3, 20)]),  # the same epoch at a later offset changes nothing
        ((3, 15), [(1, 10), (3, 15)]),  # the same epoch at an earlier offset moves it
        ((4, 20), [(1, 10), (4, 20)]),  # an epoch without records is replaced
        ((4, 5), [(4, 5)]),  # entries at later offsets are removed
        ((2, 15), [(1, 10), (2, 15)]),  # and so are larger epochs
        ((0, 30), [(0, 30)]),
        ((2, 30), [(1, 10), (2, 30)]),
    ],
)
def test_entries_stay_increasing(files: MemoryFiles, new: tuple[int, int], left: list[tuple[int, int]]) -> None:
    cache = cache_of(files, (1, 10), (3, 20))
    cache.assign(*new)
    assert pairs(cache) == left


@pytest.mark.parametrize("entry", [(-1, 0), (0, -1)])
def test_negative_entries_are_refused(files: MemoryFiles, entry: tuple[int, int]) -> None:
    with pytest.raises(LoadError, match="Received invalid partition leader epoch entry"):
        cache_of(files, entry)


@pytest.mark.parametrize(
    ("epoch", "answer"),
    [
        (-1, (-1, -1)),  # a follower without any epoch
        (0, (0, 10)),  # before the first known epoch: the start of that one
        (1, (1, 20)),
        (2, (1, 20)),  # an epoch that never wrote here: the previous one
        (3, (3, 35)),
        (4, (3, 35)),
        (5, (5, 99)),  # the newest: up to the end of the log
        (6, (-1, -1)),  # unknown
    ],
)
def test_end_offset_for(files: MemoryFiles, epoch: int, answer: tuple[int, int]) -> None:
    assert cache_of(files, (1, 10), (3, 20), (5, 35)).end_offset_for(epoch, 99) == answer


def test_end_offset_of_an_empty_cache(files: MemoryFiles) -> None:
    assert cache_of(files).end_offset_for(0, 7) == (-1, -1)


def test_lookups(files: MemoryFiles) -> None:
    cache = cache_of(files, (1, 10), (3, 20))
    assert [cache.epoch_for_offset(offset) for offset in (9, 10, 19, 20, 500)] == [None, 1, 1, 3, 3]
    assert cache.entry(3) == EpochEntry(3, 20)
    assert cache.entry(2) is None
    assert cache.previous_entry(3) == EpochEntry(1, 10)
    assert cache.previous_entry(1) is None
    assert cache.next_entry(1) == EpochEntry(3, 20)
    assert cache.next_entry(3) is None
    assert cache.earliest_entry == EpochEntry(1, 10)
    assert cache.latest_epoch == 3


@pytest.mark.parametrize(
    ("end", "left"),
    [(36, [(1, 10), (3, 20), (5, 35)]), (35, [(1, 10), (3, 20)]), (11, [(1, 10)]), (10, []), (-1, [(1, 10), (3, 20), (5, 35)])],
)
def test_cutting_the_end(files: MemoryFiles, end: int, left: list[tuple[int, int]]) -> None:
    cache = cache_of(files, (1, 10), (3, 20), (5, 35))
    cache.truncate_from_end(end)
    assert pairs(cache) == left


@pytest.mark.parametrize(
    ("start", "left"), [(9, [(1, 10), (3, 20)]), (10, [(1, 10), (3, 20)]), (15, [(1, 15), (3, 20)]), (20, [(3, 20)]), (99, [(3, 99)])]
)
def test_cutting_the_beginning_keeps_the_epoch_that_is_written_there(files: MemoryFiles, start: int, left: list[tuple[int, int]]) -> None:
    cache = cache_of(files, (1, 10), (3, 20))
    cache.truncate_from_start(start)
    assert pairs(cache) == left


def test_cutting_reaches_the_file_on_flush(files: MemoryFiles) -> None:
    cache = cache_of(files, (1, 10), (3, 20))
    cache.truncate_from_end(20)
    assert files.read_all(PATH) == b"0\n2\n1 10\n3 20\n"
    cache.flush()
    assert files.read_all(PATH) == b"0\n1\n1 10\n"
    cache.clear_and_flush()
    assert files.read_all(PATH) == b"0\n0\n"


def test_a_flush_that_changes_nothing_takes_away_what_a_crash_left(files: MemoryFiles) -> None:
    cache = cache_of(files, (1, 10))
    files.write_all(f"{PATH}.tmp", b"0\n1")
    cache.flush()
    assert files.exists(f"{PATH}.tmp")
    cache.truncate_from_start(10)
    cache.flush()
    assert (files.exists(f"{PATH}.tmp"), files.read_all(PATH)) == (False, b"0\n1\n1 10\n")


@pytest.mark.parametrize("text", [b"1\n0\n", b"x\n", b"0\ny\n", b"0\n1\n0 0 0\n", b"0\n1\n 0 0\n", b"0\n2\n0 0\n", b"0\n1\n0 0\xff\n"])
def test_a_malformed_file_is_an_io_error(files: MemoryFiles, text: bytes) -> None:
    files.write_all(PATH, text)
    with pytest.raises(KafkaStorageError) as caught:
        LeaderEpochFileCache(files, DIRECTORY)
    assert caught.value.kind == "log-dir-offline"
    assert caught.value.exception == "org.apache.kafka.common.errors.KafkaStorageException"


@pytest.mark.parametrize(
    ("text", "exception"),
    [
        (b"0\n1\n0 x\n", "java.lang.NumberFormatException"),
        (b"0\n1\n2147483648 0\n", "java.lang.NumberFormatException"),
        (b"0\n-1\n", "java.lang.IllegalArgumentException"),
        (b"0\n1\n0 -4\n", "java.lang.IllegalArgumentException"),
    ],
)
def test_a_number_that_is_none_ends_the_start(files: MemoryFiles, text: bytes, exception: str) -> None:
    files.write_all(PATH, text)
    with pytest.raises(LoadError) as caught:
        LeaderEpochFileCache(files, DIRECTORY)
    assert caught.value.exception == exception
    assert caught.value.kind == "broker-does-not-start"


def test_entries_out_of_order_in_the_file_are_assigned_one_by_one(files: MemoryFiles) -> None:
    files.write_all(PATH, b"0\n3\n3 9\n1 5\n2 30\n")
    assert pairs(LeaderEpochFileCache(files, DIRECTORY)) == [(1, 5), (2, 30)]


@pytest.mark.parametrize("operation", range(1, 6))
def test_a_write_that_fails_is_an_io_error(files: MemoryFiles, operation: int) -> None:
    """The operations are creating the temporary file, truncating, writing and syncing it, and renaming it."""
    cache_of(files, (0, 0))
    faulty = FaultyFiles(files, at=operation, error=errno.EIO)
    cache = LeaderEpochFileCache(faulty, DIRECTORY)
    with pytest.raises(KafkaStorageError):
        cache.assign(1, 7)
    assert files.read_all(PATH) == b"0\n1\n0 0\n"


def test_a_flush_behind_a_renamed_directory_writes_nothing(files: MemoryFiles) -> None:
    """A stray log is renamed while the loop flushes what its load has cut off."""
    cache = cache_of(files, (0, 0), (1, 10))
    cache.truncate_from_end(5)
    files.rename(DIRECTORY, "/t-0-stray")
    cache.flush()
    assert not files.exists(DIRECTORY)
    assert not cache.flush_due


def test_a_flush_that_fails_in_its_directory_is_told(files: MemoryFiles) -> None:
    cache_of(files, (0, 0), (1, 10))
    cache = LeaderEpochFileCache(FaultyFiles(files, at=1, error=errno.ENOENT), DIRECTORY)
    cache.truncate_from_end(5)
    with pytest.raises(KafkaStorageError):
        cache.flush()
