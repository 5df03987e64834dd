"""Paths become a typed tree: partitions, log directories, clusters, names and states, and paths that can't be listed."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from kops.errors import NotFoundError
from kops.files import MemoryFiles, OsFiles
from kops.forensics.inventory.tree import classify, open_partition, open_paths
from tests.support import corpus


def tree(root: Path, *names: str) -> Path:
    for name in names:
        path = root / name
        if name.endswith("/"):
            path.mkdir(parents=True, exist_ok=True)
        else:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.touch()
    return root


@pytest.mark.parametrize(
    ("name", "kind", "offset", "suffix", "epoch"),
    [
        ("00000000000000000042.log", "log", 42, "", None),
        ("00000000000000000042.timeindex.deleted", "timeindex", 42, ".deleted", None),
        ("00000000000000000042.log.swap", "log", 42, ".swap", None),
        ("00000000000000000042.txnindex.cleaned", "txnindex", 42, ".cleaned", None),
        ("00000000000000000042.snapshot", "snapshot", 42, "", None),
        ("00000000000000000042-0000000007.checkpoint", "checkpoint", 42, "", 7),
        ("bootstrap.checkpoint", "bootstrap-checkpoint", None, "", None),
        ("leader-epoch-checkpoint", "leader-epoch-checkpoint", None, "", None),
        ("recovery-point-offset-checkpoint.tmp", "recovery-point-offset-checkpoint", None, ".tmp", None),
        (".kafka_cleanshutdown", "clean-shutdown", None, "", None),
        ("quorum-state", "quorum-state", None, "", None),
        ("saved.log", "log", None, "", None),
        ("notes.txt", "unknown", None, "", None),
        ("log", "unknown", None, "", None),
    ],
)
def test_names(name: str, kind: str, offset: int | None, suffix: str, epoch: int | None) -> None:
    entry = classify(f"/somewhere/{name}")
    assert (entry.kind, entry.offset, entry.suffix, entry.epoch) == (kind, offset, suffix, epoch)


def test_a_partition_by_itself_groups_its_segments(tmp_path: Path) -> None:
    folder = tree(
        tmp_path / "orders-3",
        "00000000000000000010.log",
        "00000000000000000010.index",
        "00000000000000000000.log",
        "00000000000000000000.timeindex",
        "00000000000000000010.snapshot",
        "00000000000000000020.snapshot",
        "00000000000000000000.log.deleted",
        "leader-epoch-checkpoint",
        "partition.metadata",
        "what.is.this",
        "inner/",
    )
    inventory = open_paths([folder])
    (partition,) = inventory.loose_partitions
    assert (partition.topic, partition.partition, partition.state) == ("orders", 3, "")
    assert [(segment.base_offset, segment.state, list(segment.files)) for segment in partition.segments] == [
        (0, "live", ["log", "timeindex"]),
        (10, "live", ["log", "index", "snapshot"]),
        (0, "deleted", ["log"]),
    ]
    assert [segment.base_offset for segment in partition.live_segments] == [0, 10]
    assert {entry.name for entry in partition.files} == {"00000000000000000020.snapshot", "leader-epoch-checkpoint", "partition.metadata"}
    assert [entry.name for entry in partition.unknown] == ["what.is.this"]
    assert partition.subdirs == [str(folder / "inner")]
    assert len(list(inventory.all_files())) == 10


def test_states_of_folders(tmp_path: Path) -> None:
    folder = tree(
        tmp_path / "disk",
        "meta.properties",
        "orders-0.0123456789abcdef0123456789abcdef-delete/00000000000000000000.log",
        "orders-1.0123456789abcdef0123456789abcdef-stray/00000000000000000000.log",
        "orders-2.0123456789abcdef0123456789abcdef-future/00000000000000000000.log",
        "rescue/00000000000000000000.log",
        "lost+found/",
    )
    (log_dir,) = open_paths([folder]).log_dirs
    assert [(part.name, part.state, part.uuid is not None) for part in log_dir.partitions] == [
        ("orders-0", "delete", True),
        ("orders-1", "stray", True),
        ("orders-2", "future", True),
        ("rescue", "", False),
    ]
    assert log_dir.unknown_dirs == [str(folder / "lost+found")]
    assert log_dir.file("meta-properties") is not None


def test_a_cluster_is_all_its_log_dirs() -> None:
    case = corpus.load("cluster-4.3.0")
    inventory = open_paths([case.root / "nodes"])
    assert [Path(log_dir.path).name for log_dir in inventory.log_dirs] == ["n1", "n100", "n2", "n3"]
    assert not inventory.problems
    assert all(partition.topic for partition in inventory.partitions())


def test_brokers_named_like_partitions_are_no_partitions(tmp_path: Path) -> None:
    tree(tmp_path, "broker-1/meta.properties", "broker-1/orders-0/00000000000000000000.log", "broker-2/meta.properties", "1.properties")
    inventory = open_paths([tmp_path])
    assert [Path(log_dir.path).name for log_dir in inventory.log_dirs] == ["broker-1", "broker-2"]
    assert [partition.name for partition in inventory.partitions()] == ["orders-0"]


def test_partitions_without_broker_files_around_them_are_a_log_dir(tmp_path: Path) -> None:
    tree(tmp_path, "orders-0/00000000000000000000.log", "orders-1/00000000000000000000.log")
    (log_dir,) = open_paths([tmp_path]).log_dirs
    assert [partition.partition for partition in log_dir.partitions] == [0, 1]


def test_a_folder_of_other_logs_is_no_partition(tmp_path: Path) -> None:
    tree(tmp_path, "server.log", "orders-0/00000000000000000000.log")
    inventory = open_paths([tmp_path])
    assert [partition.name for partition in inventory.partitions()] == ["orders-0"]


def test_an_empty_partition_and_an_empty_folder(tmp_path: Path) -> None:
    tree(tmp_path, "orders-0/", "nothing/")
    assert [partition.name for partition in open_paths([tmp_path / "orders-0"]).loose_partitions] == ["orders-0"]
    assert not list(open_paths([tmp_path / "nothing"]).partitions())


def test_a_missing_path_is_named() -> None:
    with pytest.raises(NotFoundError, match="/nowhere/at-0: no such file"):
        open_paths(["/nowhere/at-0"])
    with pytest.raises(NotFoundError, match="/nowhere/at-0"):
        open_partition("/nowhere/at-0")


def test_symbolic_links(tmp_path: Path) -> None:
    tree(tmp_path / "real", "orders-0/00000000000000000000.log")
    (tmp_path / "link").symlink_to(tmp_path / "real" / "orders-0")
    assert [len(part.segments) for part in open_paths([tmp_path / "link"]).partitions()] == [1]
    (tmp_path / "real" / "up").symlink_to(tmp_path)
    (tmp_path / "real" / "orders-0" / "dangling.log").symlink_to("/nowhere")
    inventory = open_paths([tmp_path / "real"])
    assert [partition.name for partition in inventory.partitions()].count("orders-0") == 1
    assert [os.path.basename(problem.path) for problem in inventory.problems] == ["dangling.log"]
    (tmp_path / "to-nothing").symlink_to("/nowhere")
    with pytest.raises(NotFoundError, match="points to nothing"):
        open_paths([tmp_path / "to-nothing"])


def test_what_cannot_be_listed_is_told_and_the_rest_is_there(tmp_path: Path) -> None:
    class Locked(OsFiles):
        def list(self, path: Any) -> list[str]:
            if path.endswith("orders-1"):
                raise PermissionError(13, "Permission denied", path)
            return super().list(path)

    tree(tmp_path, "meta.properties", "orders-0/00000000000000000000.log", "orders-1/00000000000000000000.log")
    inventory = open_paths([tmp_path], Locked(read_only=True))
    assert [partition.name for partition in inventory.partitions()] == ["orders-0"]
    (problem,) = inventory.problems
    assert problem.path.endswith("orders-1") and problem.reason == "Permission denied"


def test_it_looks_through_any_files() -> None:
    files = MemoryFiles()
    files.mkdir("/t-0")
    files.write_all("/t-0/00000000000000000000.log", b"abc")
    (partition,) = open_paths(["/t-0"], files).loose_partitions
    assert partition.segments[0].size == 3
