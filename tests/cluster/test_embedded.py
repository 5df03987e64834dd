"""A cluster inside this process. It becomes ready, is used, fails and recovers, and leaves nothing behind."""

from __future__ import annotations

import asyncio
import os
import re
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

import kops
from kops.cluster.launch import UpRequest, bring_up, take_down
from kops.cluster.layout import ports
from kops.cluster.layout.directory import ClusterDirectory
from kops.errors import KopsError, NotFoundError, UsageError
from tests.support.nodes import librdkafka as kafka
from tests.support.patience import until

PROJECT = Path(__file__).resolve().parent.parent.parent


def held() -> tuple[int, int, list[str]]:
    """Return the number of open descriptors, the number of threads, and the temporary directories."""
    return len(os.listdir("/proc/self/fd")), threading.active_count(), os.listdir(tempfile.gettempdir())


@pytest.fixture(autouse=True)
def nothing_is_left(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Check after each test that it has left no thread, descriptor or directory."""
    (tmp_path / "temporary").mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "temporary"))
    with kops.Cluster(1):  # this imports and opens what stays
        pass
    before = held()
    yield
    after = held()
    # Less is no fault: a thread of an earlier test may have ended meanwhile.
    assert after[0] <= before[0]
    assert after[1] <= before[1]
    assert after[2] == before[2]


def test_it_is_there_and_gone() -> None:
    with kops.Cluster(brokers=3, topics=["orders:2:3"], config={"num.partitions": "4"}) as cluster:
        assert len(cluster.bootstrap_servers.split(",")) == 3
        assert cluster.broker_ids == cluster.running_ids == [1, 2, 3]
        assert cluster.controller_id in (1, 2, 3)
        assert cluster.address(2) in cluster.bootstrap_servers
        cluster.create_topic("payments", 3, 2, config={"retention.ms": "1000000"})
        cluster.create_topic("payments", 3)
        path = cluster.data_dir
        assert sorted(os.listdir(path)) == ["1.properties", "2.properties", "3.properties", "broker-1", "broker-2", "broker-3"]
        topics = kafka.topics(cluster.bootstrap_servers)
        assert {name: len(found) for name, found in topics.items()} == {"orders": 2, "payments": 3}
        sent = kafka.Acknowledged(cluster.bootstrap_servers)
        sent.send("orders", 100)
        sent.flush()
        assert kafka.read_all(cluster.bootstrap_servers, "orders") == sorted(sent.rows["orders"])
    assert not os.path.exists(path)
    with pytest.raises(KopsError, match="is not running"):
        _ = cluster.bootstrap_servers
    cluster.stop()


def test_a_topic_is_known_to_all_brokers_when_it_is_created() -> None:
    with kops.Cluster(3) as cluster:
        for number in range(20):
            cluster.create_topic(f"orders-{number}", 3)
            known = [node.broker.parts.cache.partition_count(f"orders-{number}") for node in cluster._nodes.values() if node.broker]
            assert known == [3, 3, 3]


def tcp_connections(ports: set[int]) -> int:
    """Return how many established TCP connections this process has with one of these ports at its own end."""
    own = {os.readlink(entry.path) for entry in os.scandir("/proc/self/fd") if os.path.lexists(entry.path)}
    lines = [line.split() for line in Path("/proc/net/tcp").read_text().splitlines()[1:]]
    return sum(f"socket:[{line[9]}]" in own and line[3] == "01" and int(line[1].split(":")[1], 16) in ports for line in lines)


def test_the_nodes_reach_each_other_without_tcp() -> None:
    with kops.Cluster(3, topics=["orders:3:3"]) as cluster:
        settings = [cluster.directory.properties(node_id) for node_id in cluster.broker_ids]
        all_ports = {int(port) for each in settings for port in re.findall(r":(\d+)", each["listeners"])}
        assert len(all_ports) == 6
        sent = kafka.Acknowledged(cluster.bootstrap_servers)
        sent.send("orders", 50)
        sent.flush()
        assert tcp_connections(all_ports) > 0
        sent.close()
        until(lambda: tcp_connections(all_ports) == 0)
        cluster.kill_broker(2)
        cluster.start_broker(2)
        cluster.stop_broker(3)
        until(lambda: tcp_connections(all_ports) == 0)


@pytest.mark.slow
def test_brokers_are_stopped_killed_and_started() -> None:
    with kops.Cluster(3, topics=["orders:3:3"]) as cluster:
        sent = kafka.Acknowledged(cluster.bootstrap_servers)
        sent.send("orders", 50)
        sent.flush()
        cluster.stop_broker(2)
        assert cluster.running_ids == [1, 3]
        sent.send("orders", 50)
        sent.flush()
        cluster.start_broker(2)
        cluster.kill_broker(3)
        sent.send("orders", 50)
        sent.flush()
        with pytest.raises(KopsError, match="broker 3 is not running"):
            cluster.kill_broker(3)
        with pytest.raises(KopsError, match="broker 2 is running"):
            cluster.start_broker(2)
        with pytest.raises(NotFoundError, match="no broker 4; there are 1, 2, 3"):
            cluster.stop_broker(4)
        cluster.start_broker(3)
        assert kafka.read_all(cluster.bootstrap_servers, "orders") == sorted(sent.rows["orders"])
        assert len(sent.rows["orders"]) == 150


def test_coroutines() -> None:
    async def use() -> list[int]:
        async with kops.Cluster(3) as cluster:
            await cluster.create_topic("orders", 2)
            await cluster.kill_broker(1)
            running = cluster.running_ids
            await cluster.start_broker(1)
            assert await cluster.controller_id() in (1, 2, 3)
            assert os.path.isdir(cluster.data_dir)
            assert cluster.address(1) in cluster.bootstrap_servers
            with pytest.raises(KopsError, match="broker 1 is running"):
                await cluster.start_broker(1)
            await cluster.stop_broker(2)
        return [*running, len(cluster.cluster._nodes)]

    assert asyncio.run(use()) == [2, 3, 0]


def test_two_side_by_side() -> None:
    with kops.Cluster(1) as one, kops.Cluster(1) as two:
        one.create_topic("a")
        two.create_topic("b")
        assert list(kafka.topics(one.bootstrap_servers)) == ["a"]
        assert list(kafka.topics(two.bootstrap_servers)) == ["b"]
        with pytest.raises(KopsError, match="is already running"):
            one.start()


@pytest.mark.parametrize(
    ("wanted", "words"),
    [
        ({"brokers": 0}, "allowed are 1 to 100"),
        ({"config": {"num.partition": "1"}}, "unknown setting num.partition"),
        ({"config": {"node.id": "1"}}, "kops sets it"),
        ({"brokers": 1, "topics": ["orders:1:2"]}, "replication factor 2"),
        ({"topics": "orders:1:4"}, "replication factor 4"),
        ({"config": {"log.roll.ms": "1", "process.roles": "broker"}}, "kops sets it"),
        ({"timeout_s": 0}, "timeout_s 0: allowed is"),
    ],
)
def test_what_makes_no_sense_is_refused_before_the_start(wanted: dict[str, object], words: str) -> None:
    with pytest.raises(UsageError, match=words):
        kops.Cluster(**wanted)  # type: ignore[arg-type]


def test_a_port_that_is_taken_meanwhile_is_no_matter(monkeypatch: pytest.MonkeyPatch) -> None:
    import socket

    with socket.create_server(("127.0.0.1", 0)) as sock:
        found = [[sock.getsockname()[1], ports.free_ports(1)[0]], ports.free_ports(2)]
        monkeypatch.setattr(ports, "free_ports", lambda count: found.pop(0))
        with kops.Cluster(1) as cluster:
            assert str(sock.getsockname()[1]) not in cluster.bootstrap_servers
    assert found == []


def test_its_directory_may_stay(tmp_path: Path) -> None:
    path = tmp_path / "data"
    with kops.Cluster(2, data_dir=path, topics=["orders:1:2"]) as cluster:
        sent = kafka.Acknowledged(cluster.bootstrap_servers)
        sent.send("orders", 20)
        sent.flush()
    assert (path / "broker-1" / ".kafka_cleanshutdown").exists()
    directory = ClusterDirectory(str(path))
    bootstrap = bring_up(directory, UpRequest()).bootstrap_servers
    try:
        assert kafka.read_all(bootstrap, "orders") == sorted(sent.rows["orders"])
        with pytest.raises(KopsError, match="is up"):
            kops.Cluster(data_dir=path).start()
    finally:
        take_down(directory)
    with pytest.raises(UsageError, match="has 2 brokers, not 3"):
        kops.Cluster(3, data_dir=path).start()
    with kops.Cluster(data_dir=path, config={"num.partitions": "5"}) as cluster:
        assert kafka.read_all(cluster.bootstrap_servers, "orders") == sorted(sent.rows["orders"])
        cluster.kill()
    assert not (path / "broker-1" / ".kafka_cleanshutdown").exists()
    assert directory.properties(1)["num.partitions"] == "5"


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
def test_a_fault_of_the_loop_is_told_and_does_not_hang() -> None:
    def fault() -> None:
        raise ZeroDivisionError("a bug")

    cluster = kops.Cluster(1).start()
    thread = cluster._thread
    assert thread is not None
    with pytest.raises(KopsError, match="the cluster has failed: ZeroDivisionError: a bug"):
        thread.ask(lambda future: fault(), 60)
    with pytest.raises(KopsError, match="the cluster has failed"):
        cluster.stop()
    cluster.stop()


def test_the_same_methods_for_coroutines() -> None:
    sync = {name for name in vars(kops.Cluster) if not name.startswith("_")}
    face = {name for name in vars(kops.AsyncCluster) if not name.startswith("_")}
    assert face == sync - {"directory", "kill"}


def test_a_start_that_is_cancelled_leaves_nothing() -> None:
    async def cancel() -> None:
        task = asyncio.create_task(kops.Cluster(1).__aenter__())
        await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(cancel())
    assert [thread.name for thread in threading.enumerate() if thread.name == "kops-cluster"] == []


def test_the_end_of_the_interpreter_is_its_end(tmp_path: Path) -> None:
    """Until then, no coordinator was needed, so none was imported."""
    script = (
        "import kops, sys; one = kops.Cluster(1, topics=['t:1']).start(); two = kops.Cluster(1, data_dir='kept').start(); print(one, two); "
        "print(*[name for name in sys.modules if name.startswith(('kops.coordinators', 'kops_coordinators'))])"
    )
    done = subprocess.run(
        [sys.executable, "-c", script],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(PROJECT), "TMPDIR": str(tmp_path / "temporary")},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")
    clusters, coordinators = done.stdout.splitlines()
    assert clusters.startswith("<kops.Cluster at 127.0.0.1:")
    assert coordinators == ""
    assert os.listdir(tmp_path / "temporary") == []
    with kops.Cluster(data_dir=tmp_path / "kept") as cluster:
        assert cluster.running_ids == [1]
