"""Formatting compared with the real StorageTool: the same files byte for byte (except times and random ids), the same messages, the same
rejections.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from kops.broker.quorum.format import FormatError, FormatOptions, format_node
from kops.broker.quorum.metadata_directory import open_directories
from kops.config import BrokerConfig
from kops.files import OsFiles
from kops.metadata.raft.log.control_records import read_snapshot_header
from kops.records import read_batches
from tests.support.kafka.oracle import Oracle

TOOL = "kafka.tools.StorageTool"
CLUSTER_ID = "4L6g3nShT-eMCtK--X86sw"
NOW_MS = 1_700_000_000_123
VOTERS = "3000@127.0.0.1:9093:JEXY6aqzQY-32P5TStzaFg,3001@[::1]:9094:MvDxzVmcRsaTz33bUuRU6A"
STATIC = {"controller.quorum.voters": "3000@localhost:9093,3001@localhost:9094"}
DYNAMIC = {"controller.quorum.bootstrap.servers": "127.0.0.1:9093"}
PLAIN = FormatOptions(CLUSTER_ID)
FILES = OsFiles()


@dataclass(frozen=True)
class Case:
    """Settings beyond the usual ones, and options in the form of each side. `dirs` are names of log directories."""

    settings: Mapping[str, str] = field(default_factory=lambda: DYNAMIC)
    arguments: Sequence[str] = ()
    options: FormatOptions = PLAIN
    dirs: Sequence[str] = ("data",)
    metadata_dir: str | None = None


def standalone(**more: object) -> FormatOptions:
    return FormatOptions(CLUSTER_ID, standalone=True, **more)  # type: ignore[arg-type]


GOOD = {
    "standalone": Case(arguments=["--standalone"], options=standalone()),
    "voter": Case(arguments=["--initial-controllers", VOTERS], options=FormatOptions(CLUSTER_ID, initial_controllers=VOTERS)),
    "no voter": Case(
        {**DYNAMIC, "node.id": "7", "listeners": "CONTROLLER://127.0.0.1:9095"},
        ["--initial-controllers", VOTERS],
        FormatOptions(CLUSTER_ID, initial_controllers=VOTERS),
    ),
    "no initial controllers": Case(arguments=["--no-initial-controllers"], options=FormatOptions(CLUSTER_ID, no_initial_controllers=True)),
    "static": Case(STATIC),
    "broker": Case(
        {**DYNAMIC, "process.roles": "broker", "node.id": "1", "listeners": "PLAINTEXT://127.0.0.1:9092"}, dirs=("a", "b", "c", "d")
    ),
    "metadata elsewhere": Case(STATIC, dirs=("a", "b"), metadata_dir="meta"),
    "old release": Case(STATIC, ["--release-version", "3.6"], FormatOptions(CLUSTER_ID, "3.6")),
    "older record": Case(STATIC, ["--release-version", "3.7-IV1"], FormatOptions(CLUSTER_ID, "3.7-IV1")),
    "patch release": Case(STATIC, ["--release-version", "4.0.1"], FormatOptions(CLUSTER_ID, "4.0.1")),
    "features": Case(
        arguments=["--standalone", "--feature", "transaction.version=1", "--feature", "group.version=0"],
        options=standalone(features={"transaction.version": 1, "group.version": 0}),
    ),
    "level of the version": Case(
        STATIC, ["--feature", "metadata.version=20"], FormatOptions(CLUSTER_ID, features={"metadata.version": 20})
    ),
    "kraft.version": Case(arguments=["--standalone", "--feature", "kraft.version=1"], options=standalone(features={"kraft.version": 1})),
}
BAD = {
    "no flag": Case(),
    "voters and flag": Case(STATIC, ["--standalone"], standalone()),
    "standalone broker": Case(
        {**DYNAMIC, "process.roles": "broker", "node.id": "1", "listeners": "PLAINTEXT://127.0.0.1:9092"}, ["--standalone"], standalone()
    ),
    "unknown release": Case(STATIC, ["--release-version", "3.2"], FormatOptions(CLUSTER_ID, "3.2")),
    "unstable release": Case(STATIC, ["--release-version", "4.4"], FormatOptions(CLUSTER_ID, "4.4")),
    "unknown feature": Case(STATIC, ["--feature", "tea.version=1"], FormatOptions(CLUSTER_ID, features={"tea.version": 1})),
    "version twice": Case(
        STATIC,
        ["--release-version", "4.0", "--feature", "metadata.version=20"],
        FormatOptions(CLUSTER_ID, "4.0", {"metadata.version": 20}),
    ),
    "static kraft.version": Case(STATIC, ["--feature", "kraft.version=1"], FormatOptions(CLUSTER_ID, features={"kraft.version": 1})),
    "dynamic kraft.version": Case(
        arguments=["--standalone", "--feature", "kraft.version=0"], options=standalone(features={"kraft.version": 0})
    ),
}
BAD_LEVELS = {
    "unstable level": Case(STATIC, ["--feature", "metadata.version=31"], FormatOptions(CLUSTER_ID, features={"metadata.version": 31})),
    "no such level": Case(STATIC, ["--feature", "metadata.version=99"], FormatOptions(CLUSTER_ID, features={"metadata.version": 99})),
    "level of a feature": Case(STATIC, ["--feature", "group.version=9"], FormatOptions(CLUSTER_ID, features={"group.version": 9})),
    "dependency": Case(
        STATIC,
        ["--release-version", "3.6", "--feature", "eligible.leader.replicas.version=1"],
        FormatOptions(CLUSTER_ID, "3.6", {"eligible.leader.replicas.version": 1}),
    ),
}
BAD_VOTERS = (
    "",
    "1",
    "x@h:1:JEXY6aqzQY-32P5TStzaFg",
    "-1@h:1:JEXY6aqzQY-32P5TStzaFg",
    "1@",
    "1@[::1:9",
    "1@h",
    "1@[::1]9:9",
    "1@h:9",
    "1@h:x:JEXY6aqzQY-32P5TStzaFg",
    "1@h:70000:JEXY6aqzQY-32P5TStzaFg",
    "1@h:9:abc",
    "1@h:9:JEXY6aqzQY-32P5TStzaFg,1@i:9:MvDxzVmcRsaTz33bUuRU6A",
)


def properties(case: Case, root: Path) -> dict[str, str]:
    """Return the node's settings with its directories below `root`."""
    values = {
        "process.roles": "controller",
        "node.id": "3000",
        "listeners": "CONTROLLER://127.0.0.1:9093",
        "controller.listener.names": "CONTROLLER",
        "log.dirs": ",".join(str(root / name) for name in case.dirs),
        **case.settings,
    }
    return values if case.metadata_dir is None else {**values, "metadata.log.dir": str(root / case.metadata_dir)}


def write(values: Mapping[str, str], path: Path) -> Path:
    path.write_text("".join(f"{name}={value}\n" for name, value in values.items()))
    return path


@contextmanager
def at(tmp_path: Path, whose: str) -> Iterator[Path]:
    """Move the directories of one side, for a while, to the path that both use. The hash of the path decides what is done first."""
    root, kept = tmp_path / "node", tmp_path / whose
    if kept.exists():
        kept.rename(root)
    yield root
    if root.exists():
        root.rename(kept)


def kafka(oracle: Oracle, case: Case, tmp_path: Path) -> str:
    """Return the output of the real tool."""
    with at(tmp_path, "kafka") as root:
        config = write(properties(case, root), tmp_path / "kafka.properties")
        ran = oracle.run(TOOL, ["format", "--cluster-id", CLUSTER_ID, "--config", str(config), *case.arguments])
    return ran.text.strip()


def kops(case: Case, tmp_path: Path) -> str:
    """Return the output of kops. Rejections are included."""
    with at(tmp_path, "kops") as root:
        config = BrokerConfig.from_properties(properties(case, root))
        try:
            return "\n".join(format_node(FILES, config, case.options, now_ms=NOW_MS))
        except FormatError as error:
            return str(error)


def masked(path: Path) -> bytes:
    """Return a file's bytes without times, their checksums and random ids."""
    data = bytearray(path.read_bytes())
    if path.name == "meta.properties":
        text = re.sub(r"(?m)^#\w.*$", "#DATE", data.decode())
        return re.sub(r"directory.id=(?!JEXY6).*", "directory.id=RANDOM", text).encode()
    batches = read_batches(bytes(data))
    position = 0
    for index, batch in enumerate(batches):
        for start, size in ((17, 4), (27, 16)):  # the CRC, the first and the last timestamp
            data[position + start : position + start + size] = bytes(size)
        if index == 0:
            time = read_snapshot_header(batch).to_bytes(8, "big")
            data[:] = data.replace(time, bytes(8))
        position += batch.size
    return bytes(data)


def tree(root: Path) -> dict[str, tuple[int, bytes]]:
    """Return all files below a directory with their permission bits and bytes."""
    found = [path for path in sorted(root.rglob("*")) if path.is_file()]
    return {str(path.relative_to(root)): (path.stat().st_mode & 0o777, masked(path)) for path in found}


@pytest.mark.parametrize("name", GOOD)
def test_the_same_files(name: str, oracle: Oracle, tmp_path: Path) -> None:
    case = GOOD[name]
    assert kops(case, tmp_path) == kafka(oracle, case, tmp_path)
    real, ours = tree(tmp_path / "kafka"), tree(tmp_path / "kops")
    if case.options.standalone:
        # The voter's directory id is random, and is also in the snapshot. Its meta.properties has the same id.
        snapshot = "data/__cluster_metadata-0/00000000000000000000-0000000000.checkpoint"
        assert (real[snapshot][0], len(real.pop(snapshot)[1])) == (ours[snapshot][0], len(ours.pop(snapshot)[1]))
    assert ours == real


@pytest.mark.parametrize("name", GOOD)
def test_both_take_it(name: str, oracle: Oracle, tmp_path: Path) -> None:
    """kafka-storage info finds nothing wrong with what kops has formatted, and kops starts on what Kafka has formatted."""
    case = GOOD[name]
    kops(case, tmp_path)
    config = write(properties(case, tmp_path / "kops"), tmp_path / "kops.properties")
    told = oracle.run(TOOL, ["info", "--config", str(config)]).text
    assert "problem" not in told
    assert CLUSTER_ID in told
    kafka(oracle, case, tmp_path)
    opened = open_directories(FILES, BrokerConfig.from_properties(properties(case, tmp_path / "kafka")), lambda: NOW_MS)
    ours = open_directories(FILES, BrokerConfig.from_properties(properties(case, tmp_path / "kops")), lambda: NOW_MS)
    assert (opened.cluster_id, opened.bootstrap) == (ours.cluster_id, ours.bootstrap)


@pytest.mark.parametrize("name", BAD)
def test_the_same_refusals(name: str, oracle: Oracle, tmp_path: Path) -> None:
    case = BAD[name]
    assert kops(case, tmp_path) == kafka(oracle, case, tmp_path)
    assert not (tmp_path / "kops").exists()


@pytest.mark.parametrize("name", BAD_LEVELS)
def test_levels_that_are_none(name: str, oracle: Oracle, tmp_path: Path) -> None:
    """If the exception is not one of the tool's own, the tool ends with it. Its output contains kops's message."""
    case = BAD_LEVELS[name]
    config = write(properties(case, tmp_path / "kafka"), tmp_path / "kafka.properties")
    ran = oracle.run(TOOL, ["format", "--cluster-id", CLUSTER_ID, "--config", str(config), *case.arguments])
    assert kops(case, tmp_path) in f"{ran.text}{ran.error}"


@pytest.mark.parametrize("voters", BAD_VOTERS)
def test_voters_that_are_none(voters: str, oracle: Oracle, tmp_path: Path) -> None:
    case = Case(arguments=[f"--initial-controllers={voters}"], options=FormatOptions(CLUSTER_ID, initial_controllers=voters))
    config = write(properties(case, tmp_path / "kafka"), tmp_path / "kafka.properties")
    ran = oracle.run(TOOL, ["format", "--cluster-id", CLUSTER_ID, "--config", str(config), *case.arguments])
    assert (ran.error or "").removeprefix("java.lang.IllegalArgumentException: ") == kops(case, tmp_path)


def test_a_second_time(oracle: Oracle, tmp_path: Path) -> None:
    case = Case(STATIC, dirs=("b", "a"))
    kops(case, tmp_path)
    kafka(oracle, case, tmp_path)
    # The hashes of their paths decide which of them is reported, and the paths differ between the two calls.
    again, theirs = (re.sub("/[ab] is", "/* is", said) for said in (kops(case, tmp_path), kafka(oracle, case, tmp_path)))
    assert again == theirs
    assert "is already formatted" in again
    ignoring = Case(STATIC, ["--ignore-formatted"], FormatOptions(CLUSTER_ID, ignore_formatted=True), ("b", "a"))
    assert kops(ignoring, tmp_path) == kafka(oracle, ignoring, tmp_path)
    more = Case(STATIC, ["--ignore-formatted"], FormatOptions(CLUSTER_ID, ignore_formatted=True), ("b", "a", "c"))
    assert kops(more, tmp_path) == kafka(oracle, more, tmp_path)
    assert tree(tmp_path / "kops") == tree(tmp_path / "kafka")
