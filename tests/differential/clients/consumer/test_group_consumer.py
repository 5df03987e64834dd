"""`kops topic consume --group` on Apache Kafka 4.3.0 and on kops, with members of librdkafka in the same groups."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import uuid
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, TopicPartition
from confluent_kafka.admin import AdminClient

from kops.cli.main import main
from tests.cli.conftest import PROJECT, Ran
from tests.support.kafka.oracle import Oracle
from tests.support.kafka.real_broker import RealBroker
from tests.support.nodes.kops_nodes import KopsNodes
from tests.support.patience import until

pytestmark = pytest.mark.slow
PATIENCE_S = 60
PARTITIONS = 4


class Cluster:
    """A real broker, and a test's requests to it."""

    def __init__(self, bootstrap: str, capsys: pytest.CaptureFixture[bytes] | None = None) -> None:
        self.bootstrap = bootstrap
        self.capsys = capsys
        self.admin = AdminClient({"bootstrap.servers": bootstrap, "log_level": 0})
        self.topic, self.group = f"t-{uuid.uuid4().hex[:8]}", f"g-{uuid.uuid4().hex[:8]}"

    def kops(self, *arguments: str, code: int = 0) -> Ran:
        assert self.capsys is not None
        ended = main([*arguments, "-b", self.bootstrap])
        captured = self.capsys.readouterr()
        ran = Ran(ended, captured.out, captured.err.decode())
        assert ran.code == code, ran.text + ran.err
        return ran

    def make(self, count: int, tmp_path: Path) -> None:
        """Make a topic with this many records."""
        self.kops("topic", "create", self.topic, "--partitions", str(PARTITIONS))
        self.write(range(count), tmp_path)

    def write(self, numbers: range, tmp_path: Path) -> None:
        path = tmp_path / "lines"
        path.write_text("".join(f"{number}\n" for number in numbers))
        for partition in range(PARTITIONS):
            mine = tmp_path / f"lines-{partition}"
            mine.write_text("".join(f"{number}\n" for number in numbers if number % PARTITIONS == partition))
            self.kops("topic", "produce", self.topic, str(mine), "-p", str(partition))

    def make_large(self, tmp_path: Path) -> None:
        """Make a topic with 3,000 records of 1 KB."""
        path = tmp_path / "large"
        path.write_text(f"{'x' * 1000}\n" * 3000)
        self.kops("topic", "produce", self.topic, str(path))

    def consume(self, *arguments: str, code: int = 0) -> list[int]:
        ran = self.kops("topic", "consume", self.topic, "--group", self.group, "--format", "kafka", *arguments, code=code)
        return [int(line) for line in ran.text.split()]

    def start(self, *arguments: str, stdout: Any = subprocess.PIPE) -> subprocess.Popen[bytes]:
        """Start a member in a separate process."""
        command = [
            sys.executable,
            "-m",
            "kops",
            "topic",
            "consume",
            self.topic,
            "--group",
            self.group,
            "-b",
            self.bootstrap,
            "--from-beginning",
        ]
        return subprocess.Popen([*command, "--from-beginning", "-v", *arguments], cwd=PROJECT, stdout=stdout, stderr=subprocess.PIPE)

    def committed(self) -> list[int]:
        """Return the committed offsets by partition."""
        consumer = Consumer({"bootstrap.servers": self.bootstrap, "group.id": self.group, "log_level": 0})
        found = consumer.committed([TopicPartition(self.topic, partition) for partition in range(PARTITIONS)], PATIENCE_S)
        consumer.close()
        return [one.offset for one in found]

    def members(self) -> dict[str, list[int]]:
        """Return the partitions of each member by client id."""
        group = self.admin.describe_consumer_groups([self.group])[self.group].result(PATIENCE_S)
        return {member.client_id: sorted(one.partition for one in member.assignment.topic_partitions) for member in group.members}


@pytest.fixture(scope="module")
def real(oracle: Oracle, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    folder = tmp_path_factory.mktemp("real")
    with RealBroker(oracle, folder / "run", log_dirs=[folder / "d1"]) as started:
        yield started.bootstrap


@pytest.fixture(scope="module")
def own(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with KopsNodes(tmp_path_factory.mktemp("own"), 1) as nodes:
        yield nodes.bootstrap


@pytest.fixture
def cluster(own: str, capsysbinary: pytest.CaptureFixture[bytes]) -> Cluster:
    """Provide a node of kops."""
    return Cluster(own, capsysbinary)


@pytest.fixture
def kafka(real: str, capsysbinary: pytest.CaptureFixture[bytes]) -> Cluster:
    """Provide a node of Apache Kafka 4.3.0."""
    return Cluster(real, capsysbinary)


@pytest.mark.parametrize(
    ("kind", "protocol"), [("cluster", "classic"), ("cluster", "consumer"), ("kafka", "classic"), ("kafka", "consumer")]
)
def test_a_member_goes_on_at_what_it_printed(request: pytest.FixtureRequest, tmp_path: Path, kind: str, protocol: str) -> None:
    cluster: Cluster = request.getfixturevalue(kind)
    cluster.make(40, tmp_path)
    uses = ["--command-property", f"group.protocol={protocol}"]
    assert cluster.consume(*uses, "-e") == [] and cluster.committed() == [10] * PARTITIONS  # as with Kafka's tool, from the end on
    cluster.group += "-again"
    first = cluster.consume(*uses, "--from-beginning", "-c", "13")
    assert len(first) == 13 and sum(cluster.committed()[n] for n in range(PARTITIONS) if cluster.committed()[n] > 0) == 13
    rest = cluster.consume(*uses, "--from-beginning", "-e")
    assert sorted(first + rest) == list(range(40))
    assert cluster.committed() == [10] * PARTITIONS and cluster.members() == {}
    assert cluster.consume(*uses, "--from-beginning", "-e") == []


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_a_member_that_gets_no_partition_ends(cluster: Cluster, tmp_path: Path, protocol: str) -> None:
    """With `-e`, as soon as the group is stable without partitions for it, and not when it has only not heard of them yet."""
    cluster.make(40, tmp_path)
    uses = ["--command-property", f"group.protocol={protocol}"]
    if protocol == "classic":
        uses += ["--command-property", "partition.assignment.strategy=cooperative-sticky"]
        uses += ["--command-property", "heartbeat.interval.ms=200"]
    others = [cluster.start(*uses, "--command-property", "auto.commit.interval.ms=100") for _ in range(PARTITIONS)]
    until(lambda: sorted(map(len, members(cluster))) == [1] * PARTITIONS, told=lambda: members(cluster))
    assert cluster.consume(*uses, "--from-beginning", "-e") == []
    read_all(cluster, others, 40)
    assert [process.wait(PATIENCE_S) for process in others] == [130] * PARTITIONS


def members(cluster: Cluster) -> list[list[int]]:
    """Return the partitions of each member, whose client ids may be the same."""
    group = cluster.admin.describe_consumer_groups([cluster.group])[cluster.group].result(PATIENCE_S)
    return [[one.partition for one in member.assignment.topic_partitions] for member in group.members]


def test_where_a_member_begins_without_a_valid_offset(cluster: Cluster, tmp_path: Path) -> None:
    cluster.make(40, tmp_path)
    reset = ["--command-property"]
    refused = cluster.kops("topic", "consume", cluster.topic, "--group", cluster.group, *reset, "auto.offset.reset=none", "-e", code=1)
    names = ", ".join(f"{cluster.topic}-{partition}" for partition in range(PARTITIONS))
    assert refused.err == f"kops: error: no offset is committed, and auto.offset.reset is none: {names}\n"
    for flag in ("--from-beginning", "--offset=earliest"):
        both = cluster.kops("topic", "consume", cluster.topic, "--group", cluster.group, *reset, "auto.offset.reset=latest", flag, code=2)
        assert both.err == f"kops: error: {flag.partition('=')[0]} and auto.offset.reset=latest exclude each other\n"
    assert len(cluster.consume(*reset, "auto.offset.reset=by_duration:PT1H", "-c", "8")) == 8
    cluster.kops("topic", "trim", cluster.topic, "--offset", "9")
    again = cluster.kops("topic", "consume", cluster.topic, "--group", cluster.group, "--format", "kafka", "--from-beginning", "-e")
    assert sorted(map(int, again.text.split())) == list(range(36, 40))
    assert "kops: warning" in again.err and again.err.count("any more; continuing at 9") >= 1
    assert cluster.committed() == [10] * PARTITIONS


def read_all(cluster: Cluster, processes: list[subprocess.Popen[bytes]], count: int) -> None:
    """Wait until this many offsets are committed. Then send Ctrl-C to the members."""
    until(lambda: sum(cluster.committed()) >= count, told=cluster.committed)
    for process in processes:
        process.send_signal(signal.SIGINT)


@pytest.mark.parametrize(("kind", "assignor"), [("cluster", "range"), ("kafka", "cooperative-sticky")])
def test_members_of_kops_and_librdkafka_share_the_partitions(
    request: pytest.FixtureRequest, tmp_path: Path, kind: str, assignor: str
) -> None:
    cluster: Cluster = request.getfixturevalue(kind)
    cluster.make(40, tmp_path)
    quick = ["--command-property", "auto.commit.interval.ms=100", "--command-property", "heartbeat.interval.ms=200"]
    strategy = ["--command-property", f"partition.assignment.strategy={assignor}"]
    ours = cluster.start("--format", "kafka", *quick, *strategy, "--command-property", "client.id=ours")
    until(lambda: cluster.committed() == [10] * PARTITIONS, told=cluster.committed)
    settings = {"bootstrap.servers": cluster.bootstrap, "group.id": cluster.group, "client.id": "theirs", "auto.offset.reset": "earliest"}
    theirs = Consumer({**settings, "partition.assignment.strategy": assignor, "heartbeat.interval.ms": 200, "log_level": 0})
    theirs.subscribe([cluster.topic])
    until(lambda: theirs.poll(0.2) is None and [len(one) for one in cluster.members().values()] == [2, 2], told=cluster.members)
    shared = cluster.members()
    assert sorted(shared["ours"] + shared["theirs"]) == [0, 1, 2, 3]
    cluster.write(range(40, 80), tmp_path)
    found: list[int] = []
    until(lambda: poll(theirs, found) and len(found) >= 20, told=lambda: found)
    theirs.close()
    until(lambda: cluster.members().get("ours") == [0, 1, 2, 3], told=cluster.members)
    read_all(cluster, [ours], 80)
    printed, said = ours.communicate(timeout=PATIENCE_S)
    assert ours.returncode == 130, said
    assert said.decode().endswith(f"To resume: kops topic consume {cluster.topic} --group {cluster.group}\n")
    mine = [int(line) for line in printed.split()]
    assert sorted({*mine, *found}) == list(range(80)) and len(mine) + len(found) == 80, said
    assert cluster.members() == {}


def poll(consumer: Consumer, found: list[int]) -> bool:
    message = consumer.poll(0.1)
    if message is not None and message.error() is None:
        found.append(int(message.value()))
    return True


def test_what_a_reader_that_goes_away_has_got_is_committed(cluster: Cluster, tmp_path: Path) -> None:
    cluster.make(40, tmp_path)
    command = f"{sys.executable} -m kops topic consume {cluster.topic} --group {cluster.group} --from-beginning -b {cluster.bootstrap}"
    ran = subprocess.run(
        ["bash", "-c", f"{command} | head -n 3; exit ${{PIPESTATUS[0]}}"], cwd=PROJECT, capture_output=True, timeout=120, check=False
    )
    assert (ran.returncode, ran.stderr, ran.stdout.count(b"\n")) == (0, b"", 3)
    assert cluster.committed() == [10] * PARTITIONS and cluster.members() == {}
    # Records that did not get into the pipe are not committed.
    cluster.make_large(tmp_path)
    ran = subprocess.run(["bash", "-c", f"{command} | (sleep 2; head -n 1)"], cwd=PROJECT, capture_output=True, timeout=120, check=False)
    assert ran.returncode == 0
    done = sum(cluster.committed()) - 40
    assert 0 < done < 3000 and cluster.members() == {}
    left = cluster.kops("topic", "consume", cluster.topic, "--group", cluster.group, "-e").out.count(b"\n")
    assert done + left == 3000


def test_what_a_full_disk_did_not_take_is_not_committed(cluster: Cluster, tmp_path: Path) -> None:
    """After an error it is better to print a record twice than never."""
    cluster.make(40, tmp_path)
    cluster.make_large(tmp_path)
    command = f"{sys.executable} -m kops topic consume {cluster.topic} --group {cluster.group} --from-beginning -b {cluster.bootstrap}"
    full = tmp_path / "full"
    ran = subprocess.run(["bash", "-c", f"ulimit -f 40; {command} > {full}"], cwd=PROJECT, capture_output=True, timeout=120, check=False)
    assert (ran.returncode, ran.stderr.decode()) == (1, "kops: error: cannot write to standard output: File too large\n")
    written: Counter[int] = Counter()
    for line in full.read_text().splitlines()[:-1]:  # the last one is cut off
        written[json.loads(line)["partition"]] += 1
    committed = {partition: max(offset, 0) for partition, offset in enumerate(cluster.committed())}
    assert sum(written.values()) > 20
    assert all(offset <= written[partition] for partition, offset in committed.items()), (committed, written)
    assert cluster.members() == {}


def test_a_killed_member_and_a_static_one(cluster: Cluster, tmp_path: Path) -> None:
    cluster.make(40, tmp_path)
    quick = ["--command-property", "session.timeout.ms=6000", "--command-property", "auto.commit.interval.ms=100"]
    static = [*quick, "--command-property", "group.instance.id=one"]
    killed = cluster.start("--format", "kafka", *static)
    until(lambda: cluster.committed() == [10] * PARTITIONS, told=cluster.committed)
    killed.kill()
    killed.communicate()
    assert len(cluster.members()) == 1
    again = cluster.start("--format", "kafka", *static)
    cluster.write(range(40, 60), tmp_path)
    until(lambda: cluster.committed() == [15] * PARTITIONS, told=cluster.committed)
    fencing = cluster.start("--format", "kafka", *static)
    printed, said = again.communicate(timeout=PATIENCE_S)
    assert again.returncode == 1 and said.endswith(b"another member now has this group.instance.id\n"), said
    assert sorted(map(int, printed.split())) == list(range(40, 60))
    fencing.kill()
    fencing.communicate()
    # The static member stays until its session ends. Then the next member gets its partitions.
    cluster.write(range(60, 80), tmp_path)
    assert sorted(cluster.consume("-c", "20")) == list(range(60, 80))
    assert cluster.members() == {}
