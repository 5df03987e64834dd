"""The directory of a cluster: its files, their owner, and what a failed start leaves."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

from kops.cluster.launch import UpRequest, format_nodes, prepare
from kops.cluster.layout.directory import ClusterDirectory, Undo, check_nodes, check_usable, follow_a_move, move_ports
from kops.errors import KopsError, NotFoundError, UsageError
from kops.files import OsFiles
from kops.files.faulty import FaultyFiles


def make(path: Path, count: int = 3) -> ClusterDirectory:
    directory = ClusterDirectory(str(path))
    os.makedirs(directory.state_dir)
    with Undo() as undo:
        prepare(directory, UpRequest(node_count=count), undo)
        undo.keep()
    return directory


def test_what_a_new_cluster_has(tmp_path: Path) -> None:
    directory = make(tmp_path / "c")
    assert sorted(os.listdir(directory.path)) == [
        ".kops",
        "1.properties",
        "2.properties",
        "3.properties",
        "broker-1",
        "broker-2",
        "broker-3",
    ]
    assert (directory.node_ids(), directory.broker_ids(), directory.voter_ids()) == ([1, 2, 3],) * 3
    assert sorted(os.listdir(directory.log_dir(2))) == ["bootstrap.checkpoint", "meta.properties"]
    assert directory.log_dirs(2) == [directory.log_dir(2)]
    assert len(directory.bootstrap_servers().split(",")) == 3
    assert check_nodes(directory) is not None


def test_settings_survive_their_file(tmp_path: Path) -> None:
    directory = ClusterDirectory(str(tmp_path))
    properties = {"log.dirs": "/d/a b=c:d\\e é", "node.id": "1", " odd key": " odd value"}
    directory.write_properties(1, properties)
    assert directory.properties(1) == properties
    (tmp_path / "2.properties").write_bytes(b"a=\\u1")
    with pytest.raises(UsageError, match=r"2\.properties"):
        directory.properties(2)


def test_only_an_empty_directory_becomes_a_cluster(tmp_path: Path) -> None:
    check_usable(ClusterDirectory(str(tmp_path / "new")))
    check_usable(ClusterDirectory(str(tmp_path)))
    (tmp_path / "file").write_text("")
    with pytest.raises(UsageError, match=r"is not empty and holds no kops cluster \(file\)"):
        check_usable(ClusterDirectory(str(tmp_path)))
    with pytest.raises(UsageError, match="is not a directory"):
        check_usable(ClusterDirectory(str(tmp_path / "file")))
    (tmp_path / "meta.properties").write_text("")
    with pytest.raises(UsageError, match="kops cluster adopt"):
        check_usable(ClusterDirectory(str(tmp_path)))


def test_a_name_that_settings_can_not_hold_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="comma"):
        check_usable(ClusterDirectory(str(tmp_path / "a,b")))
    check_usable(ClusterDirectory(str(tmp_path / " a b ")))
    with pytest.raises(UsageError, match="is empty"):
        ClusterDirectory("")


def test_directories_of_other_nodes_and_clusters_are_refused(tmp_path: Path) -> None:
    one = make(tmp_path / "one")
    other = make(tmp_path / "other")
    os.rename(one.log_dir(2), tmp_path / "aside")
    os.rename(other.log_dir(2), one.log_dir(2))
    with pytest.raises(UsageError, match="another cluster's directory"):
        check_nodes(one)
    os.rename(one.log_dir(2), other.log_dir(2))
    os.rename(one.log_dir(3), one.log_dir(2))
    with pytest.raises(UsageError, match=r"belongs to node 3, .*2\.properties is node 2's"):
        check_nodes(one)
    Path(one.log_dir(2), "meta.properties").write_text("version=x\n")
    with pytest.raises(KopsError, match=r"meta\.properties"):
        check_nodes(one)


def test_a_directory_that_was_moved_is_followed(tmp_path: Path) -> None:
    directory = make(tmp_path / "old", 1)
    os.rename(tmp_path / "old", tmp_path / "new")
    moved = ClusterDirectory(str(tmp_path / "new"))
    assert follow_a_move(moved) == [f"1.properties: log.dirs was {directory.log_dir(1)}, is {moved.log_dir(1)}"]
    assert moved.log_dirs(1) == [moved.log_dir(1)]
    assert follow_a_move(moved) == []
    moved.write_properties(1, {**moved.properties(1), "log.dirs": "/a,/b"})
    assert follow_a_move(moved) == []


def test_ports_move_and_the_rest_stays(tmp_path: Path) -> None:
    directory = make(tmp_path / "c")
    directory.write_properties(2, {**directory.properties(2), "num.partitions": "7"})
    before = directory.properties(2)
    move_ports(directory, 20_000)
    after = directory.properties(2)
    assert directory.bootstrap_servers() == "127.0.0.1:20000,127.0.0.1:20001,127.0.0.1:20002"
    changed = {key for key in after if after[key] != before[key]}
    assert changed == {"listeners", "advertised.listeners", "controller.quorum.voters"}
    assert set(after) == set(before)


def test_what_is_not_there_is_said(tmp_path: Path) -> None:
    directory = make(tmp_path / "c", 2)
    with pytest.raises(NotFoundError, match="no broker 3; there are 1, 2"):
        directory.require_node(3)
    with pytest.raises(NotFoundError, match="no cluster here"):
        ClusterDirectory(str(tmp_path / "nothing")).require()


def test_removed_is_only_what_is_the_clusters_own(tmp_path: Path) -> None:
    directory = make(tmp_path / "c", 2)
    (tmp_path / "c" / "notes.txt").write_text("mine")
    assert directory.remove() == ["notes.txt"]
    assert os.listdir(tmp_path / "c") == ["notes.txt"]
    whole = make(tmp_path / "d", 1)
    assert whole.remove() == []
    assert not (tmp_path / "d").exists()


def test_a_full_disk_leaves_nothing(tmp_path: Path) -> None:
    whole = FaultyFiles(OsFiles())
    counted = ClusterDirectory(str(tmp_path / "counted"), files=whole)
    os.makedirs(counted.state_dir)
    with Undo() as undo:
        prepare(counted, UpRequest(node_count=1), undo)
    steps = len(whole.operations)
    assert steps > 5
    for at in range(1, steps + 1):
        directory = ClusterDirectory(str(tmp_path / "full"), files=FaultyFiles(OsFiles(), at=at, error=errno.ENOSPC))
        os.makedirs(directory.state_dir)
        with pytest.raises(OSError, match="No space left"), Undo() as undo:
            undo.making([directory.path])
            prepare(directory, UpRequest(node_count=1), undo)
        assert sorted(os.listdir(directory.path)) == [".kops"], whole.operations[at - 1]
        os.rmdir(directory.state_dir)
        os.rmdir(directory.path)


def test_nodes_that_are_formatted_stay_as_they_are(tmp_path: Path) -> None:
    directory = make(tmp_path / "c", 1)
    before = Path(directory.log_dir(1), "meta.properties").read_bytes()
    with Undo() as undo:
        assert format_nodes(directory, check_nodes(directory), undo) == check_nodes(directory)
    assert Path(directory.log_dir(1), "meta.properties").read_bytes() == before


def test_what_is_undone_is_only_what_was_made(tmp_path: Path) -> None:
    (tmp_path / "mine").mkdir()
    with Undo() as undo:
        undo.making([str(tmp_path / name) for name in ("mine", "made", "never")])
        (tmp_path / "made").mkdir()
        (tmp_path / "made" / "file").write_text("")
    assert os.listdir(tmp_path) == ["mine"]
    with Undo() as undo:
        undo.making([str(tmp_path / "kept")])
        (tmp_path / "kept").write_text("")
        undo.keep()
    assert sorted(os.listdir(tmp_path)) == ["kept", "mine"]


def test_a_cluster_that_is_there_takes_new_settings(tmp_path: Path) -> None:
    directory = make(tmp_path / "c", 2)
    with Undo() as undo:
        prepare(directory, UpRequest(settings={"num.partitions": "9"}), undo)
        with pytest.raises(UsageError, match="has 2 brokers"):
            prepare(directory, UpRequest(node_count=3), undo)
        with pytest.raises(UsageError, match=r"many"):
            prepare(directory, UpRequest(settings={"num.partitions": "many"}), undo)
    assert [directory.properties(node_id).get("num.partitions") for node_id in (1, 2)] == ["9", "9"]


def test_a_state_file_that_is_half_written_is_none(tmp_path: Path) -> None:
    directory = make(tmp_path / "c", 1)
    path = directory.status_path(1)
    assert directory.read_state(path) == {}
    Path(path).write_text('{"state": "RUN')
    assert directory.read_state(path) == {}
    directory.write_state(path, {"state": "RUNNING"})
    assert directory.read_state(path) == {"state": "RUNNING"}


def test_a_long_path_has_no_socket(tmp_path: Path) -> None:
    assert ClusterDirectory("/d").socket_path == "/d/.kops/control"
    assert ClusterDirectory("/d" * 60).socket_path is None


def test_ids_are_those_of_the_files(tmp_path: Path) -> None:
    for name in ("10.properties", "2.properties", "x.properties", "2.properties.tmp"):
        (tmp_path / name).write_text("process.roles=broker\n")
    assert ClusterDirectory(str(tmp_path)).node_ids() == [2, 10]
    assert ClusterDirectory(str(tmp_path)).voter_ids() == []


@pytest.mark.parametrize("value", ["a://b:1,c=d#e!f", "\\:", "\\\\:", "a\\", " lead", "é\t\n=", ":", "=="])
def test_settings_are_written_as_a_person_writes_them(tmp_path: Path, value: str) -> None:
    directory = ClusterDirectory(str(tmp_path))
    properties = {"key": value, "a:b=c": value, "#k": "v"}
    directory.write_properties(1, properties)
    assert directory.properties(1) == properties
    directory.write_properties(1, {"listeners": "PLAINTEXT://h:1"})
    assert Path(directory.properties_path(1)).read_text().endswith("\nlisteners=PLAINTEXT://h:1\n")
