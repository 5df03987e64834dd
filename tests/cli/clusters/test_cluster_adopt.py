"""`kops cluster format` and `kops cluster adopt`: format directories, and adopt directories, including those of Apache Kafka."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from kops.cluster.launch import UpRequest, bring_up, take_down
from kops.cluster.layout.directory import ClusterDirectory
from kops.files import OsFiles
from tests.cli.conftest import Ran
from tests.support import corpus
from tests.support.nodes import librdkafka as kafka

Kops = Callable[..., Ran]
HASTE = ("--config", "broker.session.timeout.ms=1000", "--config", "broker.heartbeat.interval.ms=200")


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Provide an empty working directory."""
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_a_directory_is_formatted_as_kafkas_tool_does(kops: Kops, here: Path) -> None:
    ran = kops("cluster", "format", "one", "--node-id", "4", "--cluster-id", "Y29ycHVzLWNsdXN0ZXItMQ", "--release-version", "4.2")
    assert (ran.code, ran.err) == (0, "cluster Y29ycHVzLWNsdXN0ZXItMQ\n")
    assert f"Formatting metadata directory {here / 'one'} with metadata.version 4.2-IV1." in ran.text
    assert sorted(os.listdir("one")) == ["bootstrap.checkpoint", "meta.properties"]
    text = (here / "one" / "meta.properties").read_text()
    assert "node.id=4\n" in text
    assert "cluster.id=Y29ycHVzLWNsdXN0ZXItMQ\n" in text
    again = kops("cluster", "format", "one", "--node-id", "4", "--cluster-id", "Y29ycHVzLWNsdXN0ZXItMQ")
    assert (again.code, "is already formatted. Use --ignore-formatted" in again.err) == (1, True)
    assert kops("cluster", "format", "one", "--node-id", "4", "-t", "Y29ycHVzLWNsdXN0ZXItMQ", "--ignore-formatted").code == 0
    (here / "server.properties").write_text(
        "process.roles=broker,controller\nnode.id=2\nlisteners=PLAINTEXT://:9092,CONTROLLER://:9093\ncontroller.listener.names=CONTROLLER\n"
        f"controller.quorum.bootstrap.servers=localhost:9093\nlog.dirs={here / 'a'},{here / 'b'}\nsuper.users=User:admin\n"
    )
    refused = kops("cluster", "format", "-c", "server.properties")
    assert (refused.code, "you must specify one of the following: --standalone" in refused.err) == (1, True)
    assert not (here / "a").exists()
    ran = kops("cluster", "format", "-c", "server.properties", "--standalone", "--format", "json")
    assert json.loads(ran.text)["schema"] == "kops.cluster.format/v1"
    assert "kops: warning: server.properties: unknown setting super.users: it is kept" in ran.err
    assert sorted(os.listdir("a")) == ["__cluster_metadata-0", "bootstrap.checkpoint", "meta.properties"]
    assert sorted(os.listdir("b")) == ["bootstrap.checkpoint", "meta.properties"]


@pytest.mark.parametrize(
    ("arguments", "code", "words"),
    [
        ((), 2, "no directory: give DIR"),
        (("x", "--feature", "group.version"), 2, "--feature group.version: allowed is NAME=LEVEL"),
        (("x", "--feature", "no.such=1"), 1, "Unsupported feature: no.such"),
        (("x", "--release-version", "9.9"), 1, "Unknown metadata.version '9.9'"),
        (("-c", "nowhere"), 3, "--server-properties nowhere: no such file"),
    ],
)
def test_formatting_that_makes_no_sense_leaves_nothing(kops: Kops, here: Path, arguments: tuple[str, ...], code: int, words: str) -> None:
    ran = kops("cluster", "format", *arguments)
    assert (ran.code, ran.out) == (code, b"")
    assert words in ran.err
    assert list(here.iterdir()) == []


def test_a_clusters_own_directory_is_not_formatted(kops: Kops, here: Path) -> None:
    (here / "c").mkdir()
    ClusterDirectory("c").write_properties(1, {"node.id": "1"})
    ran = kops("cluster", "format", "c")
    assert (ran.code, "is a cluster's directory" in ran.err) == (2, True)
    assert kops("cluster", "format", "a,b").code == 2
    assert sorted(os.listdir(here)) == ["c"]


def test_what_is_taken_over_keeps_its_ids_and_places(kops: Kops, here: Path) -> None:
    for node_id in ("3", "7"):
        assert kops("cluster", "format", f"disk{node_id}", "--node-id", node_id, "-t", "Y29ycHVzLWNsdXN0ZXItMQ", "-q").code == 0
    ran = kops("cluster", "adopt", "disk7", "disk3", "-d", "taken", "--port-base", "20000", "--config", "num.partitions=3")
    assert ran.code == 0, ran.err
    taken = ClusterDirectory("taken")
    assert taken.node_ids() == taken.voter_ids() == [3, 7]
    properties = taken.properties(7)
    assert properties["log.dirs"] == str(here / "disk7")
    assert properties["controller.quorum.voters"] == "3@127.0.0.1:20100,7@127.0.0.1:20101"
    assert properties["listeners"] == "PLAINTEXT://127.0.0.1:20001,CONTROLLER://127.0.0.1:20101"
    assert {key for key in properties if not key.startswith(("listener", "controller", "advertised", "inter"))} == {
        "process.roles",
        "node.id",
        "log.dirs",
        "num.partitions",
    }
    ran = kops("cluster", "purge", "--yes", "-d", "taken")
    assert f"but for {here / 'disk3'}, {here / 'disk7'}" in ran.err
    assert sorted(os.listdir(here)) == ["disk3", "disk7"]


def test_a_controller_that_is_nothing_else_is_shown(kops: Kops, here: Path) -> None:
    corpus.load("cluster-4.3.0").copy(here / "nodes", "nodes")
    assert kops("cluster", "adopt", *(f"nodes/n{node_id}" for node_id in (1, 2, 3, 100)), "--port-base", "20000").code == 0
    ran = kops("cluster", "status", "--format", "json")
    assert ran.code == 1
    shown = [(one["id"], one["address"], one["roles"]) for one in json.loads(ran.text)["brokers"]]
    assert shown[0] == (1, "127.0.0.1:20000", ["broker"])
    assert shown[3] == (100, "127.0.0.1:20103", ["controller"])


def test_a_dynamic_quorum_keeps_its_addresses(kops: Kops, here: Path) -> None:
    assert kops("cluster", "format", "disk", "--standalone", "-q").code == 0
    assert kops("cluster", "adopt", "disk", "-d", "taken", "--port-base", "20000").code == 0
    properties = ClusterDirectory("taken").properties(1)
    assert properties["controller.quorum.bootstrap.servers"] == "127.0.0.1:9192"
    assert properties["listeners"] == "PLAINTEXT://127.0.0.1:20000,CONTROLLER://127.0.0.1:9192"
    assert "controller.quorum.voters" not in properties
    ran = kops("cluster", "up", "-d", "taken", "--port-base", "21000")
    assert (ran.code, "the quorum is dynamic" in ran.err) == (2, True)
    other = "1@example.org:9093:" + "A" * 21 + "B"
    assert kops("cluster", "format", "other", "-I", other.replace("B", "g"), "-q").code == 0
    ran = kops("cluster", "adopt", "other", "-d", "elsewhere")
    assert (ran.code, "node 1 votes at example.org:9093" in ran.err) == (2, True)


def test_directories_that_can_not_be_taken_over(kops: Kops, here: Path) -> None:
    corpus.load("cluster-4.3.0").copy(here / "nodes", "nodes")
    (here / "empty").mkdir()
    kops("cluster", "format", "mine", "--node-id", "9")
    for arguments, code, words in (
        (("empty",), 3, "no meta.properties, so it is not a log directory of Kafka"),
        (("nodes/n1", "nodes/n2"), 2, "node 100 votes in the quorum, but its log directory was not given"),
        (("nodes/n1", "mine"), 2, "belongs to cluster"),
    ):
        ran = kops("cluster", "adopt", *arguments)
        assert (ran.code, ran.out) == (code, b"")
        assert words in ran.err
    with OsFiles().lock(str(here / "mine")):
        ran = kops("cluster", "adopt", "mine")
    assert (ran.code, f"a broker runs on it (process {os.getpid()})" in ran.err) == (1, True)
    old = corpus.load("broker-2.8.2").copy(here / "old")
    meta = next(old.rglob("meta.properties"))
    ran = kops("cluster", "adopt", str(meta.parent))
    assert (ran.code, "only KRaft directories can be adopted" in ran.err) == (2, True)
    assert not (here / "kops-data").exists()


@pytest.mark.slow
def test_brokers_of_apache_kafka_are_taken_over(kops: Kops, here: Path) -> None:
    corpus.load("broker-dir-4.3.0").copy(here, "crash")
    assert kops("cluster", "adopt", "disk1", "disk2", *HASTE).code == 0
    ran = kops("cluster", "up")
    assert ran.code == 0, ran.err
    try:
        bootstrap = ran.text.strip()
        assert sorted(kafka.topics(bootstrap)) == ["clicks-kept", "orders-moving"]
        assert len(kafka.read_all(bootstrap, "orders-moving")) == 150
        kafka.create_topic(bootstrap, "new", 2, 1)
        sent = kafka.Acknowledged(bootstrap)
        sent.send("new", 10)
        sent.flush()
        assert kafka.read_all(bootstrap, "new") == sorted(sent.rows["new"])
    finally:
        kops("cluster", "down")


@pytest.mark.slow
def test_directories_of_a_cluster_are_taken_over_elsewhere(kops: Kops, here: Path) -> None:
    first = ClusterDirectory("first")
    bootstrap = bring_up(first, UpRequest(3)).bootstrap_servers
    kafka.create_topic(bootstrap, "orders", 3, 3)
    sent = kafka.Acknowledged(bootstrap)
    sent.send("orders", 100)
    sent.flush()
    take_down(first)
    for node_id in (1, 2, 3):
        os.rename(first.log_dir(node_id), here / f"disk-{node_id}")
    assert kops("cluster", "adopt", "disk-1", "disk-2", "disk-3", *HASTE).code == 0
    try:
        again = kops("cluster", "up").text.strip()
        assert kafka.read_all(again, "orders") == sorted(sent.rows["orders"])
    finally:
        kops("cluster", "down")
