"""The loader's paths for directories that the corpus has no case for."""

from __future__ import annotations

from pathlib import Path

import pytest

from kops.config.topic import TopicConfig
from kops.files import MemoryFiles, OsFiles, OverlayFiles
from kops.records import BatchBuilder
from kops.storage.failures.load_errors import LoadError
from kops.storage.start.loader import LoadedLog, load_partition
from kops.storage.start.log_dirs import LoadOptions, LogDirStart, start_log_dirs

DIRECTORY = "/logs/orders-3"
NOW_MS = 1_700_000_000_000


def batch(offset: int, *, producer: int = -1, sequence: int = 0, transactional: bool = False, epoch: int = 0) -> bytes:
    builder = BatchBuilder(
        base_offset=offset,
        producer_id=producer,
        producer_epoch=0 if producer >= 0 else -1,
        base_sequence=sequence if producer >= 0 else -1,
        transactional=transactional,
        partition_leader_epoch=epoch,
    )
    builder.append(NOW_MS + offset, b"k", b"v")
    return builder.build()


def log_of(*offsets: int) -> bytes:
    return b"".join(batch(offset) for offset in offsets)


@pytest.fixture
def files() -> MemoryFiles:
    files = MemoryFiles(now_ms=lambda: NOW_MS)
    files.mkdir("/logs")
    files.mkdir(DIRECTORY)
    return files


def write(files: MemoryFiles, base: int, data: bytes, suffix: str = ".log", directory: str = DIRECTORY) -> None:
    files.write_all(f"{directory}/{base:020d}{suffix}", data)


def load(files: MemoryFiles, directory: str = DIRECTORY, *, clean: bool = False, recovery_point: int = 0, start: int = 0) -> LoadedLog:
    return load_partition(
        files,
        directory,
        TopicConfig(index_interval_bytes=0, segment_index_bytes=2400),
        clean_shutdown=clean,
        recovery_point=recovery_point,
        log_start_offset=start,
        now_ms=NOW_MS,
    )


def names(files: MemoryFiles, kind: str = "") -> list[str]:
    return [name for name in files.list(DIRECTORY) if name.endswith(kind)]


def test_an_empty_directory_becomes_an_empty_log(files: MemoryFiles) -> None:
    log = load(files, start=12)
    assert (log.log_start_offset, log.log_end_offset, log.segments.base_offsets) == (12, 12, [12])
    log.close()
    assert names(files) == [
        "00000000000000000012.index",
        "00000000000000000012.log",
        "00000000000000000012.timeindex",
        "leader-epoch-checkpoint",
    ]


def test_a_directory_that_is_missing_is_made(files: MemoryFiles) -> None:
    assert load(files, "/logs/other-0").log_end_offset == 0
    assert files.exists("/logs/other-0/00000000000000000000.log")


def test_a_name_that_is_no_partition(files: MemoryFiles) -> None:
    with pytest.raises(LoadError) as caught:
        load(files, "/logs/nothing")
    assert caught.value.exception == "org.apache.kafka.common.KafkaException"
    assert caught.value.kind == "broker-does-not-start"


def test_a_log_that_ends_before_its_start_is_given_up(files: MemoryFiles) -> None:
    write(files, 0, log_of(0, 1))
    write(files, 2, log_of(2, 3))
    log = load(files, start=9)
    assert (log.log_start_offset, log.log_end_offset, log.segments.base_offsets) == (9, 9, [9])
    assert [action.file for action in log.actions if action.kind == "segment-removed"] == [
        "00000000000000000000.log",
        "00000000000000000002.log",
    ]
    assert names(files, ".log.deleted") == ["00000000000000000000.log.deleted", "00000000000000000002.log.deleted"]
    assert log.epochs.entries == ()


def test_a_start_within_the_log_is_kept(files: MemoryFiles) -> None:
    write(files, 0, log_of(0, 1, 2, 3))
    log = load(files, start=2)
    assert (log.log_start_offset, log.log_end_offset) == (2, 4)
    assert [tuple(entry) for entry in log.epochs.entries] == [(0, 2)]


def test_segments_below_the_recovery_point_are_believed(files: MemoryFiles) -> None:
    write(files, 0, log_of(0, 1))
    write(files, 2, log_of(2, 3))
    load(files).close()
    bad = bytearray(log_of(0, 1))
    bad[65] ^= 1
    write(files, 0, bytes(bad))
    log = load(files, recovery_point=2)
    assert log.log_end_offset == 4
    assert [action.file for action in log.actions] == ["00000000000000000002.log"]
    log.close()
    assert load(files).log_end_offset == 0


def test_what_was_recovered_is_not_flushed(files: MemoryFiles) -> None:
    """The recovery point stays until the next flush. A clean stop counts as one."""
    write(files, 0, log_of(0, 1, 2, 3))
    assert load(files, recovery_point=2).recovery_point == 2
    assert load(files, recovery_point=9).recovery_point == 4
    assert load(files, recovery_point=2, clean=True).recovery_point == 4


def test_an_index_without_its_log_is_removed(files: MemoryFiles) -> None:
    for suffix in (".index", ".timeindex", ".txnindex"):
        write(files, 7, b"", suffix)
    log = load(files)
    assert [(action.kind, action.file) for action in log.actions] == [
        ("file-removed", f"{7:020d}{suffix}") for suffix in (".index", ".timeindex", ".txnindex")
    ]


def test_a_swap_that_was_interrupted_is_completed(files: MemoryFiles) -> None:
    """A compacted segment replaces the two that it was made from."""
    write(files, 0, log_of(0, 1))
    write(files, 2, log_of(2, 3))
    write(files, 4, log_of(4, 5))
    load(files).close()
    write(files, 0, log_of(1, 3), ".log.swap")
    log = load(files, recovery_point=4)
    assert log.segments.base_offsets == [0, 4]
    assert log.log_end_offset == 6
    first = log.segments.first
    assert first is not None
    assert [found.base_offset for found in first.log.batches()] == [1, 3]


def test_a_split_that_was_interrupted_is_undone(files: MemoryFiles) -> None:
    write(files, 0, log_of(0, 1, 2, 3))
    write(files, 0, log_of(0, 1), ".log.cleaned")
    write(files, 2, log_of(2, 3), ".log.swap")
    log = load(files)
    assert log.segments.base_offsets == [0]
    assert log.log_end_offset == 4
    assert not [name for name in names(files) if name.endswith((".swap", ".cleaned"))]


def test_offsets_too_far_apart_are_split(files: MemoryFiles) -> None:
    far = 2**31 + 5
    write(files, 0, log_of(0, 1, far, far + 1))
    log = load(files)
    assert log.segments.base_offsets == [0, far]
    assert log.log_end_offset == far + 2
    assert "segment-split" in [action.kind for action in log.actions]
    assert not names(files, ".cleaned")


def test_offsets_that_go_back_empty_the_segment(files: MemoryFiles) -> None:
    for base, data in ((0, log_of(0, 1)), (2, log_of(2, 5, 4)), (6, log_of(6))):
        write(files, base, data)
        write(files, base, b"", ".index")
    log = load(files)
    assert log.segments.base_offsets == [0, 2]
    assert log.log_end_offset == 2
    assert [(action.kind, action.file) for action in log.actions if action.kind in ("segment-emptied", "segment-removed")] == [
        ("segment-emptied", "00000000000000000002.log"),
        ("segment-removed", "00000000000000000006.log"),
    ]


def test_offsets_that_go_back_end_the_start_where_the_index_is_missing_too(files: MemoryFiles) -> None:
    """Opening the segment then recovers it, and nothing catches the resulting exception."""
    write(files, 2, log_of(2, 5, 4))
    with pytest.raises(LoadError) as caught:
        load(files)
    assert caught.value.exception == "org.apache.kafka.common.errors.InvalidOffsetException"


def test_a_deleted_partition_is_not_recovered(files: MemoryFiles) -> None:
    directory = "/logs/orders-3.0123456789abcdef0123456789abcdef-delete"
    files.mkdir(directory)
    write(files, 0, log_of(0) + b"torn", directory=directory)
    write(files, 0, b"", ".index", directory=directory)
    log = load(files, directory)
    assert log.log_end_offset == 0
    assert log.segments.active.size == len(log_of(0)) + 4


def test_open_transactions_come_back(files: MemoryFiles) -> None:
    write(files, 0, batch(0, producer=5, transactional=True) + batch(1, producer=6))
    log = load(files)
    assert log.producers.first_unstable_offset == 0
    log.close()
    again = load(files, clean=True)
    assert sorted(again.producers.producers) == [5, 6]
    assert again.producers.first_unstable_offset == 0
    assert again.locate(1) == (0, len(batch(0, producer=5, transactional=True)))


def test_a_log_from_before_snapshots_is_not_scanned_after_a_clean_stop(files: MemoryFiles) -> None:
    write(files, 0, batch(0, producer=5))
    write(files, 0, b"", ".index")
    log = load(files, clean=True)
    assert log.producers.producers == {}
    assert names(files, ".snapshot") == ["00000000000000000001.snapshot"]


def test_a_name_with_fewer_digits_makes_a_file_with_all(files: MemoryFiles) -> None:
    files.write_all(f"{DIRECTORY}/5.log", log_of(5))
    log = load(files)
    assert log.segments.base_offsets == [5]
    assert log.log_end_offset == 5
    assert names(files, ".log") == ["00000000000000000005.log", "5.log"]


def test_a_segment_beyond_two_gibibytes(files: MemoryFiles) -> None:
    with files.open(f"{DIRECTORY}/00000000000000000000.log", "create") as file:
        file.truncate(2**31)
    with pytest.raises(LoadError, match="larger than the maximum"):
        load(files)


@pytest.mark.parametrize(
    ("text", "exception", "kind"),
    [
        (b"version: 0\ntopic_id", "org.apache.kafka.common.errors.KafkaStorageException", "log-dir-offline"),
        (b"", "java.lang.NullPointerException", "broker-does-not-start"),
        (b"version: 0\ntopic_id: short\n", "java.lang.IllegalArgumentException", "broker-does-not-start"),
    ],
)
def test_partition_metadata_that_is_wrong(files: MemoryFiles, text: bytes, exception: str, kind: str) -> None:
    files.write_all(f"{DIRECTORY}/partition.metadata", text)
    with pytest.raises(LoadError) as caught:
        load(files)
    assert (caught.value.exception, caught.value.kind) == (exception, kind)


def test_the_topic_id_is_read(files: MemoryFiles) -> None:
    files.write_all(f"{DIRECTORY}/partition.metadata", b"version: 0\ntopic_id: 015ff02115924efb84e8bw\n")
    assert load(files).topic_id == "015ff02115924efb84e8bw"
    assert load(MemoryFiles(), "/orders-0").topic_id is None


def test_closing_handlers_writes_nothing(files: MemoryFiles) -> None:
    write(files, 0, log_of(0, 1))
    log = load(files)
    before = {name: files.read_all(f"{DIRECTORY}/{name}") for name in names(files)}
    log.close_handlers()
    assert before == {name: files.read_all(f"{DIRECTORY}/{name}") for name in names(files)}
    assert files.stat(f"{DIRECTORY}/00000000000000000000.index").size == 2400


@pytest.mark.parametrize(
    ("name", "words"), [("foo.swap", "the file foo.swap does not begin"), ("notes.txt.swap", "the file notes.txt.swap does not")]
)
def test_a_swap_file_needs_an_offset(files: MemoryFiles, name: str, words: str) -> None:
    write(files, 0, log_of(0, 1))
    files.write_all(f"{DIRECTORY}/{name}", b"")
    with pytest.raises(LoadError, match=words):
        load(files)
    assert name in names(files)


def test_links_that_lead_nowhere_are_passed_over(tmp_path: Path) -> None:
    """As with java.io.File, such a link counts neither as a directory among the partitions nor as a producer snapshot."""
    partition = tmp_path / "orders-3"
    partition.mkdir()
    (partition / f"{0:020d}.log").write_bytes(log_of(0, 1))
    (tmp_path / "backup-link").symlink_to("/nowhere")
    (partition / f"{1:020d}.snapshot").symlink_to("/nowhere")
    (partition / f"{9:020d}.snapshot").symlink_to(f"{9:020d}.snapshot")
    files = OverlayFiles(OsFiles(read_only=True))
    start = LogDirStart(str(tmp_path))
    broker = start_log_dirs(files, [start], LoadOptions(config=lambda topic: TopicConfig(), now_ms=NOW_MS))
    assert (broker.outcome, start.outcome) == ("started", "started")
    assert [(each.name.topic, each.outcome, each.log and each.log.log_end_offset) for each in start.partitions] == [("orders", "loaded", 2)]
