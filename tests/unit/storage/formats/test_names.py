"""Names in a log directory."""

from __future__ import annotations

import pytest

from kops.config.values.topic_names import topic_name_error
from kops.errors import DecodeError
from kops.storage.formats.names import (
    LogFileName,
    PartitionDir,
    is_index_file,
    log_file_name,
    offset_from_file_name,
    parse_log_file,
    parse_partition_dir,
    partition_dir_name,
)

BASE = "00000000000000000042"


@pytest.mark.parametrize("kind", ["log", "index", "timeindex", "txnindex", "snapshot"])
@pytest.mark.parametrize("suffix", ["", ".deleted", ".cleaned", ".swap"])
def test_files_of_a_segment(kind: str, suffix: str) -> None:
    name = f"{BASE}.{kind}{suffix}"
    parsed = parse_log_file(name)
    assert parsed == LogFileName(kind, 42, suffix)  # type: ignore[arg-type]
    assert parsed is not None
    assert log_file_name(parsed.offset, parsed.kind, parsed.suffix) == name


@pytest.mark.parametrize("suffix", ["", ".deleted", ".part"])
def test_snapshots_of_the_metadata_log(suffix: str) -> None:
    name = f"{BASE}-0000000007.checkpoint{suffix}"
    assert parse_log_file(name) == LogFileName("checkpoint", 42, suffix, 7)  # type: ignore[arg-type]
    assert log_file_name(42, "checkpoint", suffix, epoch=7) == name  # type: ignore[arg-type]


def test_a_snapshot_being_written() -> None:
    assert parse_log_file(f"{BASE}-0000000007-123456.checkpoint.part") == LogFileName("checkpoint", 42, ".part", 7)


def test_the_largest_offset() -> None:
    name = "09223372036854775807.log"
    assert parse_log_file(name) == LogFileName("log", 2**63 - 1)
    assert log_file_name(2**63 - 1, "log") == name
    assert parse_log_file("09223372036854775808.log") is None


@pytest.mark.parametrize(
    "name",
    ["", "a.log", ".log", "42", "42.txt", f"{BASE}.log.bak", f"{BASE}.logs", f"-{BASE}.log", f"{BASE}.log.deleted.swap", "\u0664\u0662.log",
     "leader-epoch-checkpoint", "bootstrap.checkpoint", "42-7.checkpoint", f"{BASE}.log\n", "foo.index"],
)  # fmt: skip
def test_other_files(name: str) -> None:
    assert parse_log_file(name) is None


@pytest.mark.parametrize(
    ("name", "offset"),
    [
        ("42.log", 42),
        ("+42.index", 42),
        ("-7.snapshot", -7),
        (f"{BASE}.log.deleted", 42),
        ("0.", 0),
        ("9223372036854775807.log", 2**63 - 1),
    ],
)
def test_the_offset_as_the_loader_reads_it(name: str, offset: int) -> None:
    assert offset_from_file_name(name) == offset


@pytest.mark.parametrize("name", ["a.log", ".log", "log", " 1.log", "1_0.log", "9223372036854775808.log", "1e3.log", "+.log"])
def test_an_offset_that_ends_the_load(name: str) -> None:
    with pytest.raises(DecodeError) as error:
        offset_from_file_name(name)
    assert error.value.code == "file-name"


@pytest.mark.parametrize(
    ("name", "parsed"),
    [
        ("orders-0", PartitionDir("orders", 0)),
        ("a-b-c-12", PartitionDir("a-b-c", 12)),
        ("a--1", PartitionDir("a-", 1)),
        ("a-+1", PartitionDir("a", 1)),
        ("a b-3", PartitionDir("a b", 3)),
        ("__cluster_metadata-0", PartitionDir("__cluster_metadata", 0)),
        ("orders-0.abc-delete", PartitionDir("orders", 0, "delete", "abc")),
        ("orders-0.abc-future", PartitionDir("orders", 0, "future", "abc")),
        ("or.ders-0.abc-stray", PartitionDir("or.ders", 0, "stray", "abc")),
        ("x-2147483647", PartitionDir("x", 2**31 - 1)),
        ("a-\u0661", PartitionDir("a", 1)),
    ],
)
def test_directories_of_partitions(name: str, parsed: PartitionDir) -> None:
    assert parse_partition_dir(name) == parsed


@pytest.mark.parametrize(
    "name",
    ["", "orders", "orders-", "-0", "-", "orders-zero", "orders-0-delete", "orders-0.-delete", "orders-delete", ".x-delete",
     "o-0.a.b-delete",     "orders-2147483648", "a b-0.x-delete", "orders-0.x-deleted", "orders- 1", "-0.x-future"],
)  # fmt: skip
def test_directories_that_keep_a_broker_from_starting(name: str) -> None:
    with pytest.raises(DecodeError) as error:
        parse_partition_dir(name)
    assert error.value.code == "directory-name"
    assert repr(name)[1:-1] in str(error.value) or name in str(error.value)


def test_a_space_that_java_does_not_know_as_one() -> None:
    assert parse_partition_dir("a\u00a0b-0.x-delete") == PartitionDir("a\u00a0b", 0, "delete", "x")


def test_names_of_directories() -> None:
    assert partition_dir_name("orders", 3) == "orders-3"
    assert partition_dir_name("orders", 3, "future", "abc") == "orders-3.abc-future"
    long = "t" * 249
    unique_id = "0123456789abcdef" * 2
    for state in ("delete", "stray"):
        name = partition_dir_name(long, 3, state, unique_id)
        assert len(name) == 255
        assert name.endswith(f"t-3.{unique_id}-{state}")
    assert partition_dir_name(long, 3, "future", unique_id) == f"{long}-3.{unique_id}-future"


@pytest.mark.parametrize("name", ["a", "A.b_c-9", "...", "t" * 249, "__consumer_offsets"])
def test_topic_names(name: str) -> None:
    assert topic_name_error(name) is None


@pytest.mark.parametrize("name", ["", ".", "..", "t" * 250, "a b", "ä", "a/b", "a\n"])
def test_topic_names_that_are_not_allowed(name: str) -> None:
    assert topic_name_error(name) is not None


def test_kinds() -> None:
    assert [is_index_file(f"{BASE}.{end}") for end in ("index", "timeindex", "txnindex", "log", "index.deleted")] == [
        True,
        True,
        True,
        False,
        False,
    ]
