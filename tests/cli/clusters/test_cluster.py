"""`kops cluster`: create, inspect, break, repair and remove real brokers from the command line."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from kops.cluster.launch import UpRequest, bring_up, clean_up, orphans, stop_supervisor, supervision
from kops.cluster.layout import ports
from kops.cluster.layout.directory import ClusterDirectory
from kops.cluster.layout.ports import find_base
from kops.cluster.processes.processes import supervised
from kops.files import OsFiles
from tests.cli.conftest import PROJECT, Ran
from tests.support.nodes import librdkafka as kafka
from tests.support.patience import until

Kops = Callable[..., Ran]
WAIT_S = 120


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Provide an empty working directory. No cluster below it is left behind."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    yield tmp_path
    for path in tmp_path.glob("*"):
        directory = ClusterDirectory(str(path))
        running = supervision(directory)
        if running is not None:
            stop_supervisor(running, kill=True)
        clean_up(directory, kill=True)


def processes(directory: Path) -> list[int]:
    """Return the processes of a cluster: the supervisor and the brokers."""
    return sorted(pid for pid, line in supervised() if f" {directory}" in line)


def status(kops: Kops, *arguments: str) -> dict[str, Any]:
    """Return what `kops cluster status --format json` prints."""
    found: dict[str, Any] = json.loads(kops("cluster", "status", "--format", "json", *arguments).text)
    return found


def test_a_cluster_of_one(kops: Kops, here: Path) -> None:
    ran = kops("cluster", "up", "-n", "1", "--seed-topic", "orders:2:1", "--config", "num.partitions=4")
    assert ran.code == 0, ran.err
    address = ran.text.strip()
    data = here / "kops-data"
    assert ran.err.startswith(f"1 broker in {data}, ")
    assert {name: len(found) for name, found in kafka.topics(address).items()} == {"orders": 2}

    again = kops("cluster", "up")
    assert (again.code, again.text.strip()) == (0, address)
    assert "is already up (supervisor: process" in again.err
    assert kops("cluster", "up", "-n", "2").err.startswith(f"kops: error: {data} is up with 1 broker: kops cluster broker add")
    assert kops("cluster", "up", "--config", "num.partitions=5").code == 2
    assert kops("cluster", "purge", "--yes").code == 1

    found = status(kops)
    assert (found["schema"], found["state"], found["controller"], found["bootstrap_servers"]) == ("kops.cluster/v1", "up", 1, address)
    (broker,) = found["brokers"]
    assert (broker["id"], broker["address"], broker["state"], broker["controller"]) == (1, address, "running", True)
    assert processes(data) == sorted([found["supervisor"], broker["pid"]])
    assert kops("cluster", "env").text == f"export BOOTSTRAP_SERVERS={address}\n"
    (row,) = [one for one in json.loads(kops("cluster", "ls", "--format", "json").text)["clusters"] if one["data_dir"] == str(data)]
    assert (row["state"], row["brokers"], row["running"]) == ("up", 1, 1)
    assert "[BrokerServer id=1] started" in kops("cluster", "logs").text
    assert len(kops("cluster", "logs", "1", "-n", "2").text.splitlines()) == 2

    down = kops("cluster", "down")
    assert (down.code, down.err) == (0, "broker 1: stopped\n")
    assert processes(data) == []
    assert (data / "broker-1" / ".kafka_cleanshutdown").exists()
    assert sorted(os.listdir(data / ".kops")) == ["broker-1.json", "broker-1.out", "command.lock", "supervisor.lock", "supervisor.out"]
    assert kops("cluster", "down").err == f"{data} is down\n"
    assert kops("cluster", "status").code == 1
    assert kops("cluster", "broker", "stop", "1").err == f"kops: error: {data}: the cluster is down (kops cluster up starts it)\n"
    assert kops("cluster", "purge").err == "nothing was removed; --yes does it\n"
    assert kops("cluster", "purge", "--yes").err == f"{data} was removed\n"
    assert list(here.iterdir()) == []
    assert kops("cluster", "down", "--data-dir", "kops-data").code == 3


def test_ctrl_c_while_a_cluster_stops_says_how_to_go_on(kops: Kops, here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(*_: object, **__: object) -> list[str]:
        raise KeyboardInterrupt

    monkeypatch.setattr("kops.cluster.launch.take_down", interrupted)
    ran = kops("cluster", "down", "-d", "a b")
    assert (ran.code, ran.err) == (130, f"kops: interrupted. To resume: kops cluster down --data-dir '{here / 'a b'}'\n")


def test_what_goes_wrong_leaves_nothing(kops: Kops, here: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        ran = kops("cluster", "up", "-n", "1", "--port-base", str(port))
    assert ran.code == 1
    assert ran.err.startswith(f"kops: error: port {port} is taken by process {os.getpid()} (")
    for arguments, code, words in (
        (("--config", "num.partition=1"), 2, "--config: unknown setting num.partition; did you mean num.partitions"),
        (("--config", "broker.id=1"), 2, "--config broker.id: kops sets it"),
        (("--config", "num.partitions=0"), 2, "--config: num.partitions=0: not allowed; allowed: 1 or more"),
        (("--config", "log.roll.ms=0"), 2, "kops: error: --config: requirement failed: log.roll.ms must be greater than or equal to 1"),
        (("--config", "authorizer.class.name=X"), 2, "kops: error: --config: authorizer.class.name=X: there is no authorizer"),
        (
            ("--config", "listener.name.plaintext.max.connections=x"),
            2,
            "kops: error: --config: listener.name.plaintext.max.connections=x: not a 32-bit integer",
        ),
        (("--port-base", "70000"), 2, "--port-base 70000: allowed are 1 to"),
        (("-n", "0"), 2, "0 brokers: allowed are 1 to 100"),
        (("--seed-topic", "a:1:9"), 2, "--seed-topic a:1:9: replication factor 9"),
        (("--ephemeral", "--data-dir", "x"), 2, "give only one of --ephemeral and --data-dir"),
        (("--seed-topic", "a", "--no-wait"), 2, "--seed-topic cannot be used with --no-wait"),
        (("--server-properties", "nowhere"), 3, "--server-properties nowhere: no such file"),
        (("--data-dir", ""), 2, "the name of the cluster's directory is empty"),
        (("--data-dir", "a,b"), 2, "log.dirs can't name a directory with a comma"),
        (("--data-dir", "a/b\0c"), 1, ""),
    ):
        ran = kops("cluster", "up", *arguments)
        assert (ran.code, ran.out) == (code, b"") or not words
        assert words in ran.err
        assert ran.err.count("\n") == 1
        assert list(here.iterdir()) == []
    (here / "mine").mkdir()
    (here / "mine" / "notes").write_text("")
    ran = kops("cluster", "up", "--data-dir", "mine")
    assert "is not empty and holds no kops cluster (notes); choose another --data-dir" in ran.err
    assert os.listdir(here / "mine") == ["notes"]


@pytest.mark.slow
def test_the_settings_of_plug_ins_are_kept(kops: Kops, here: Path) -> None:
    """Kafka accepts settings that it does not know. Only a command line rejects them."""
    (here / "server.properties").write_text("super.users=User:admin\nnum.partition=2\n")
    ran = kops("cluster", "up", "-n", "1", "--server-properties", "server.properties")
    kept = "it is kept for plug-ins of Kafka, but has no effect in kops"
    assert (ran.code, ran.err.splitlines()[:2]) == (
        0,
        [
            f"kops: warning: server.properties: unknown setting super.users: {kept}",
            f"kops: warning: server.properties: unknown setting num.partition: {kept}; did you mean num.partitions?",
        ],
    )
    own = ClusterDirectory(str(here / "kops-data"))
    assert {key: own.properties(1).get(key) for key in ("super.users", "num.partition")} == {
        "super.users": "User:admin",
        "num.partition": "2",
    }
    assert "super.users has no effect: a node of Kafka 4.3 has no such setting" in kops("cluster", "logs").text
    assert kops("cluster", "down").code == 0
    again = kops("cluster", "up", "--config", "num.partitions=2")
    path = own.properties_path(1)
    assert (again.code, again.err.splitlines()[0]) == (0, f"{path}: unknown setting super.users: {kept}")
    assert kops("cluster", "kill").code == 0
    refused = kops("cluster", "up", "--config", "log.roll.ms=0")
    assert (refused.code, refused.err) == (2, "kops: error: --config: requirement failed: log.roll.ms must be greater than or equal to 1\n")
    refused = kops("cluster", "up", "--config", "super.users=User:admin")
    assert (refused.code, "--config: unknown setting super.users; none of the" in refused.err) == (2, True)


@pytest.mark.slow
def test_a_broker_that_dies_at_once_says_why(kops: Kops, here: Path) -> None:
    assert kops("cluster", "up", "-n", "1").code == 0
    assert kops("cluster", "down").code == 0
    data = here / "kops-data"
    before = sorted(os.listdir(data))
    with OsFiles().lock(str(data / "broker-1")):
        ran = kops("cluster", "up")
    assert ran.code == 1
    assert ran.err.startswith("kops: error: broker 1 ended while it started: exit code 1: Node 1 does not start, it could not ")
    assert (ran.err.count("\n"), "\\n" in ran.err) == (1, False)
    assert processes(data) == []
    assert sorted(os.listdir(data)) == before
    assert "\nbroker 1: Node 1 does not start, it could not " in kops("cluster", "status").err
    assert kops("cluster", "up").code == 0
    os.kill(status(kops)["brokers"][0]["pid"], signal.SIGKILL)
    until(lambda: status(kops)["brokers"][0]["state"] == "ended")
    said = kops("cluster", "status").err
    assert said.endswith("\nbroker 1 has ended: killed by SIGKILL (kops cluster broker start 1)\n")
    assert kops("cluster", "broker", "start", "1").code == 0
    assert kops("cluster", "kill").err == "broker 1: killed\n"
    assert not (data / "broker-1" / ".kafka_cleanshutdown").exists()


@pytest.mark.slow
def test_what_a_killed_supervisor_leaves_is_found_and_cleaned(kops: Kops, here: Path) -> None:
    assert kops("cluster", "up", "-n", "1").code == 0
    data = here / "kops-data"
    first = status(kops)
    os.kill(first["supervisor"], signal.SIGKILL)
    until(lambda: processes(data) == [first["brokers"][0]["pid"]])
    orphaned = status(kops)
    assert (orphaned["state"], orphaned["controller"], orphaned["brokers"][0]["state"]) == ("orphaned", 1, "orphaned")
    assert "the supervisor was killed: kops cluster restart" in kops("cluster", "status").err
    ran = kops("cluster", "broker", "stop", "1")
    assert ran.code == 1
    assert "was killed, its brokers are still running: kops cluster restart, or kops cluster down" in ran.err
    assert kops("cluster", "purge", "--yes").code == 1
    ran = kops("cluster", "up")
    assert ran.code == 0
    assert f"broker 1 of a killed supervisor (process {first['brokers'][0]['pid']}) was stopped" in ran.err
    for pid in processes(data):
        os.kill(pid, signal.SIGKILL)
    # A process that is ending has no command line any more, but still exists.
    until(lambda: not processes(data) and not orphans(ClusterDirectory(str(data))))
    assert kops("cluster", "down").err == f"{data} is down\n"
    assert not (data / ".kops" / "control").exists()


def test_a_port_that_is_taken_behind_the_check(kops: Kops, here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ports, "is_free", lambda *_: True)
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        ran = kops("cluster", "up", "-n", "1", "--port-base", str(port))
    assert (ran.code, f"listen on 127.0.0.1:{port}: Address already in use\n" in ran.err) == (1, True), ran.err
    assert not (here / "kops-data").exists()


@pytest.mark.slow
def test_a_cluster_that_does_not_come_up_is_given_up(kops: Kops, here: Path) -> None:
    assert kops("cluster", "up", "-n", "1").code == 0
    assert kops("cluster", "down").code == 0
    directory = ClusterDirectory("kops-data")
    properties = directory.properties(1)
    # Nobody listens at two of the voters, so no controller can be elected.
    voters = f"{properties['controller.quorum.voters']},2@127.0.0.1:1,3@127.0.0.1:2"
    directory.write_properties(1, {**properties, "controller.quorum.voters": voters})
    ran = kops("cluster", "up", "--timeout", "1")
    assert ran.code == 4
    assert ran.err.startswith("kops: error: broker 1 did not serve within 1 s; its last lines (")
    assert processes(here / "kops-data") == []
    command = [sys.executable, "-m", "kops", "cluster", "up"]
    environment = {**os.environ, "PYTHONPATH": str(PROJECT)}
    process = subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    until(lambda: len(processes(here / "kops-data")) == 2)
    process.send_signal(signal.SIGINT)
    assert process.communicate(timeout=WAIT_S) == ("", "kops: interrupted\n")
    assert process.returncode == 130
    assert processes(here / "kops-data") == []
    with subprocess.Popen([*command, "--foreground"], env=environment) as killed:
        until(lambda: len(processes(here / "kops-data")) >= 1)
        killed.kill()
    until(lambda: not processes(here / "kops-data"))


@pytest.mark.slow
def test_a_directory_that_is_removed_takes_its_processes_along(kops: Kops, here: Path) -> None:
    assert kops("cluster", "up", "-n", "1").code == 0
    first = processes(here / "kops-data")
    assert len(first) == 2
    os.rename("kops-data", "removed")
    assert kops("cluster", "up", "-n", "1").code == 0
    second = sorted(set(processes(here / "kops-data")) - set(first))
    until(lambda: processes(here / "kops-data") == second)
    assert status(kops)["state"] == "up"


def start_in_foreground(here: Path) -> tuple[subprocess.Popen[str], Path]:
    """Run `kops cluster up --foreground --ephemeral` in a separate process. Return the process and the directory that it has made."""
    command = [sys.executable, "-m", "kops", "cluster", "up", "-n", "1", "--ephemeral", "--foreground", "--format", "jsonl"]
    environment = {**os.environ, "PYTHONPATH": str(PROJECT), "TMPDIR": str(here)}
    process = subprocess.Popen(command, cwd=here, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert process.stdout is not None
    return process, Path(json.loads(process.stdout.readline())["data_dir"])


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGKILL])
def test_the_end_of_the_foreground_is_the_end_of_the_cluster(here: Path, number: signal.Signals) -> None:
    process, data = start_in_foreground(here)
    assert process.stderr is not None
    assert len(processes(data)) == 2
    while process.stderr.readline() != "Ctrl-C stops the cluster\n":
        assert process.poll() is None
    process.send_signal(number)
    _, words = process.communicate(timeout=WAIT_S)
    if number is signal.SIGINT:
        assert (process.returncode, words.splitlines()[0], words.splitlines()[-1]) == (0, "stopping", "stopped")
    until(lambda: not processes(data) and not data.exists())


@pytest.mark.slow
def test_a_cluster_of_three_lives(kops: Kops, here: Path) -> None:
    data = here / "kops-data"
    (here / "server.properties").write_text("node.id=9\nlog.dirs=/nowhere\nlog.retention.hours=5\nnum.partitions=2\n")
    ran = kops("cluster", "up", "--server-properties", "server.properties", "--config", "num.partitions=3", "--seed-topic", "orders:3")
    assert ran.code == 0, ran.err
    assert "server.properties: node.id, log.dirs: ignored, because kops sets this for each broker" in ran.err
    bootstrap = ran.text.strip()
    directory = ClusterDirectory(str(data))
    assert {key: directory.properties(2)[key] for key in ("log.retention.hours", "num.partitions")} == {
        "log.retention.hours": "5",
        "num.partitions": "3",
    }
    sent = kafka.Acknowledged(bootstrap)
    sent.send("orders", 200)
    sent.flush()

    assert kops("cluster", "broker", "kill", "2").err == "broker 2 was killed\n"
    assert [broker["state"] for broker in status(kops)["brokers"]] == ["running", "stopped", "running"]
    assert status(kops)["state"] == "partly"
    assert f"{data} is partly up (cluster " in kops("cluster", "status").err
    sent.send("orders", 200)
    sent.flush()
    assert kops("cluster", "broker", "start", "2").code == 0
    assert kops("cluster", "broker", "stop", "2", "3").err == "broker 2 was stopped\nbroker 3 was stopped\n"
    assert "broker 2 is stopped (kops cluster broker start 2 starts it)" in kops("cluster", "up").err
    assert kops("cluster", "broker", "start", "3", "2").code == 0
    assert kops("cluster", "broker", "start", "4").err == f"kops: error: {data}: no broker 4; there are 1, 2, 3\n"
    assert kops("cluster", "broker", "stop", "1", "1").code == 2

    assert kops("cluster", "broker", "pause", "3").code == 0
    assert [broker["state"] for broker in status(kops)["brokers"]] == ["running", "running", "paused"]
    assert kops("cluster", "broker", "pause", "3").err == "kops: error: broker 3 is paused: only a running one can be paused\n"
    assert kops("cluster", "broker", "resume", "3").code == 0
    assert kops("cluster", "broker", "resume", "3").err == "kops: error: broker 3 is running, not paused\n"

    os.kill(status(kops)["brokers"][0]["pid"], signal.SIGKILL)
    until(lambda: status(kops)["brokers"][0]["state"] == "ended")
    assert status(kops)["brokers"][0]["exit_code"] == -signal.SIGKILL
    assert kops("cluster", "restart", "--rolling").code == 0
    assert kops("cluster", "restart").text.strip() == bootstrap
    assert kafka.read_all(bootstrap, "orders") == sorted(sent.rows["orders"])
    assert kops("cluster", "down").code == 0


@pytest.mark.slow
def test_brokers_come_and_go(kops: Kops, here: Path) -> None:
    bootstrap = kops("cluster", "up", "-n", "1").text.strip()
    ran = kops("cluster", "broker", "add", "--config", "broker.rack=b")
    assert (ran.code, ran.text) == (0, "2\n"), ran.err
    two = status(kops)["brokers"][1]
    assert (two["roles"], two["state"]) == (["broker"], "running")
    kafka.create_topic(bootstrap, "orders", 1, 2)
    ran = kops("cluster", "broker", "remove", "2")
    assert ran.code == 1
    assert "broker 2 has replicas of orders-0: move them (kops partition reassign), or --force" in ran.err
    assert "broker 1 votes in the quorum" in kops("cluster", "broker", "remove", "1").err
    assert kops("cluster", "broker", "remove", "2", "--force").err == "broker 2 was removed\n"
    assert [broker["id"] for broker in status(kops)["brokers"]] == [1]
    assert sorted(os.listdir(here / "kops-data")) == [".kops", "1.properties", "broker-1"]
    assert kops("cluster", "broker", "add", "--config", "no.such=1").code == 2
    assert sorted(os.listdir(here / "kops-data")) == [".kops", "1.properties", "broker-1"]


@pytest.mark.slow
def test_two_side_by_side(kops: Kops, here: Path) -> None:
    first = kops("cluster", "up", "-n", "1", "--data-dir", "a").text.strip()
    second = kops("cluster", "up", "-n", "1", "--data-dir", "b").text.strip()
    assert first != second
    kafka.create_topic(first, "first", 1, 1)
    assert list(kafka.topics(second)) == []
    ran = kops("cluster", "env")
    assert (ran.code, "several clusters run" in ran.err) == (2, True)
    assert kops("cluster", "down", "-d", "b").code == 0
    # Its ports are taken by now. The command says so, and uses other ports if it is asked to.
    with socket.create_server(("127.0.0.1", int(second.rpartition(":")[2]))):
        assert f"port {second.rpartition(':')[2]} is taken" in kops("cluster", "up", "-d", "b").err
        base = find_base(1)
        assert kops("cluster", "up", "-d", "b", "--port-base", str(base)).text == f"127.0.0.1:{base}\n"
    assert kops("cluster", "status", "-d", "a").code == 0


@pytest.mark.slow
def test_two_that_start_at_the_same_moment(kops: Kops, here: Path) -> None:
    environment = {**os.environ, "PYTHONPATH": str(PROJECT)}
    commands = [[sys.executable, "-m", "kops", "cluster", "up", "-n", "1", "-d", name] for name in ("a", "b", "c")]
    starting = [subprocess.Popen(command, cwd=here, env=environment, stdout=subprocess.PIPE, text=True) for command in commands]
    servers = {process.communicate(timeout=WAIT_S)[0] for process in starting}
    assert [process.returncode for process in starting] == [0, 0, 0]
    assert len(servers) == 3


@pytest.mark.slow
def test_a_temporary_directory_and_a_long_name(kops: Kops, here: Path) -> None:
    ran = kops("cluster", "up", "-n", "1", "--ephemeral", "--format", "json")
    path = json.loads(ran.text)["data_dir"]
    assert status(kops, "-d", path)["ephemeral"]
    assert kops("cluster", "down", "-d", path).code == 0
    assert not os.path.exists(path)
    # The address of the supervisor's socket may be shorter than a path may be.
    name = "d" * 150
    assert kops("cluster", "up", "-n", "1", "-d", name).code == 0
    socket_path = ClusterDirectory(name).read_state(ClusterDirectory(name).supervisor_path)["socket"]
    assert status(kops, "-d", name)["state"] == "up"
    assert kops("cluster", "kill", "-d", name).code == 0
    assert not os.path.exists(os.path.dirname(socket_path))


@pytest.mark.slow
@pytest.mark.parametrize("limit", [600, 60_000])
def test_a_disk_that_is_full_leaves_nothing(here: Path, limit: int) -> None:
    """A limit on the size of files imitates the full disk. The command itself meets the first limit, a broker the second."""
    import resource

    # Python would leave half a file of byte code, and then every later start of kops would fail.
    environment = {**os.environ, "PYTHONPATH": str(PROJECT), "PYTHONDONTWRITEBYTECODE": "1"}

    (here / "orders").mkdir()
    command = [sys.executable, "-m", "kops", "cluster", "up", "-n", "1", "--seed-topic", "orders:100:1"]
    done = subprocess.run(
        command,
        cwd=here,
        env=environment,
        capture_output=True,
        text=True,
        timeout=WAIT_S,
        check=False,
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit)),
    )
    assert done.returncode == 1, done.stdout
    assert done.stderr.startswith("kops: error: ")
    assert not (here / "kops-data").exists()
    assert processes(here / "kops-data") == []


@pytest.mark.slow
def test_a_directory_of_another_cluster_is_refused(kops: Kops, here: Path) -> None:
    for name in ("a", "b"):
        bring_up(ClusterDirectory(name), UpRequest(1))
        assert kops("cluster", "down", "-d", name).code == 0
    os.rename(here / "a" / "broker-1", here / "aside")
    os.rename(here / "b" / "broker-1", here / "a" / "broker-2")
    os.rename(here / "aside", here / "a" / "broker-1")
    one = ClusterDirectory(str(here / "a"))
    one.write_properties(2, {**one.properties(1), "node.id": "2", "log.dirs": one.log_dir(2)})
    ran = kops("cluster", "up", "-d", "a")
    assert (ran.code, "belongs to node 1" in ran.err) == (2, True)
    assert processes(here / "a") == []
