"""Scans on a standalone cluster whose executors have no kops. Its code is sent to them, and the verdicts are those of `kops log`."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from kops._compiled import HOT_MODULES, status
from kops.cli.main import main
from kops.environment import java_environment
from kops.forensics.carve.run import FRAGMENTS_FILE
from kops.forensics.verify.run import verify
from tests.spark.jobs.test_scan_recover import tree
from tests.spark.running.killed_jobs import KILLER
from tests.support import corpus
from tests.support.corpus import PROJECT
from tests.support.images import DiskImage
from tests.support.rings import sample

pytestmark = [pytest.mark.slow, pytest.mark.java, pytest.mark.timeout(2400)]
_MEMORY = "512m"
_WAIT_S = 240


class Cluster:
    """A standalone master on loopback and two workers with one core each, on hosts of their own. They are ended by pid."""

    def __init__(self, root: Path) -> None:
        from pyspark.find_spark_home import _find_spark_home

        self.root = root
        self.environment = {
            **{name: value for name, value in java_environment().items() if not name.startswith(("PYSPARK_", "PYTHON"))},
            "SPARK_LOCAL_IP": "127.0.0.1",
            "SPARK_HOME": _find_spark_home(),
            "SPARK_MASTER_OPTS": "-Dspark.master.rest.enabled=false",
            # Executors inherit them. They live for a moment.
            "JAVA_TOOL_OPTIONS": "-XX:+UseSerialGC -XX:TieredStopAtLevel=1",
        }
        self._class = str(Path(self.environment["SPARK_HOME"]) / "bin" / "spark-class")
        self.processes: dict[str, subprocess.Popen[bytes]] = {}

    def start(self) -> None:
        """Start the cluster. The master says which port it listens on."""
        self._start("master", "org.apache.spark.deploy.master.Master", "--host", "127.0.0.1", "--port", "0", "--webui-port", "0")
        wait_until(lambda: self._said("master", r"spark://127\.0\.0\.1:\d+"), "the master listens")
        self.url = self._said("master", r"spark://127\.0\.0\.1:\d+")
        for name, host in (("one", "127.0.0.1"), ("two", "127.0.0.2")):
            folder = str(self.root / name)
            options = ("--host", host, "--webui-port", "0", "-c", "1", "-m", _MEMORY, "-d", folder)
            self._start(f"worker-{name}", "org.apache.spark.deploy.worker.Worker", *options, self.url, host=host)
        wait_until(
            lambda: all(self._said(f"worker-{name}", "Successfully registered with master") for name in ("one", "two")), "two workers"
        )

    def _start(self, name: str, *command: str, host: str = "127.0.0.1") -> None:
        environment = {**self.environment, "SPARK_LOCAL_IP": host}
        with open(self.root / f"{name}.log", "wb") as log:
            self.processes[name] = subprocess.Popen([self._class, *command], env=environment, stdout=log, stderr=log)

    def _said(self, name: str, pattern: str) -> str:
        assert self.processes[name].poll() is None, (self.root / f"{name}.log").read_text()
        found = re.search(pattern, (self.root / f"{name}.log").read_text())
        return found[0] if found else ""

    def stop(self) -> None:
        for process in self.processes.values():
            process.terminate()
        for process in self.processes.values():
            process.wait(timeout=60)


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    found = Cluster(tmp_path_factory.mktemp("standalone"))
    try:
        found.start()
        yield found
    finally:
        found.stop()


@pytest.fixture(scope="module")
def bare(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Provide an interpreter without packages, like that of executors that nobody has prepared."""
    folder = tmp_path_factory.mktemp("bare")
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(folder)], check=True)
    python = str(folder / "bin" / "python")
    assert subprocess.run([python, "-c", "import kops"], cwd="/", capture_output=True, check=False).returncode == 1
    return python


@pytest.fixture(scope="module")
def many(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Provide a log directory with damage in some of 50 partitions, so that a task for each takes a while."""
    root = tmp_path_factory.mktemp("many")
    damaged = corpus.load("damage-4.3.0-two-flips").root / "before"
    segment = next(path for path in sorted((corpus.load("v2-4.3.0-codec-lz4").root / "data").glob("*/*.log")) if path.stat().st_size)
    for number in range(50):
        if number % 40 == 20:
            shutil.copytree(next(path for path in damaged.iterdir() if path.is_dir()), root / f"t-{number}")
        else:
            (root / f"t-{number}").mkdir()
            shutil.copy(segment, root / f"t-{number}" / segment.name)
    return root


def expected(folder: Path, level: str) -> object:
    return json.loads(json.dumps(verify([str(folder)], level).to_json()))


@pytest.fixture(scope="module")
def brokers(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    """Provide the directories of three brokers, one of them damaged."""
    root = tmp_path_factory.mktemp("brokers")
    found = [corpus.load("cluster-4.3.0").copy(root / name, f"nodes/{name}") for name in ("n1", "n2", "n3")]
    log = found[1] / "orders-epochs-0" / f"{0:020d}.log"
    data = bytearray(log.read_bytes())
    data[1900] ^= 1
    log.write_bytes(bytes(data))
    return [str(each) for each in found]


@pytest.fixture(scope="module")
def images(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    """Provide two disk images with pieces of damaged logs, which are searched in several ranges."""
    root = tmp_path_factory.mktemp("images")
    found = []
    for number in range(2):
        image = DiskImage(number)
        for place, case_id in enumerate([each for each in corpus.cases("damage") if "4.3.0" in each][number::8]):
            image.foreign(5000)
            for log in sorted((corpus.load(case_id).root / "before").glob("*/*.log")):
                image.piece(log.read_bytes())
            image.data += bytes(3 << 20 if place % 3 == 0 else 0)
        found.append(str(image.write(root / f"disk-{number}.img")))
    return found


QUESTIONS = {
    "stats": ("--deep", "--now", "2030-01-01T00:00Z"),
    "grep": ("--key", "^key-"),
    "timeline": ("--every", "1s"),
    "offsets": (),
    "txns": ("--empty",),
    "diff": ("--replicas",),
}
"""Jobs that `kops log` has, too."""
ONLY_ON_SPARK = {"producers": (), "keys": ("--top", "0")}
WRITING = ("recover", "carve")
KILLED = ("verify", "recover", "carve", "keys")
CASES = [case_id for case_id in corpus.cases("damage") if "4.3.0" in case_id]
Command = tuple[str, str, list[str]]


def commands_of(asked: dict[str, list[str]], out: Path, *, everywhere: bool) -> list[Command]:
    """Return what `killed_jobs` runs: every job, an executor killed in one of each kind or `everywhere`, the writing ones with a slow task,
    and the jobs that only Spark has once more with other tasks."""
    small = {"verify": "200000", "carve": "4194304"}
    commands = []
    for name, words in asked.items():
        kind = "kill" if everywhere or name in KILLED else ""
        more = ["--out", str(out / name)] if name in WRITING else []
        commands.append((name, kind, [*words, *more, "--task-bytes", small.get(name, "2000")]))
    for name in WRITING:
        commands.append(
            (f"slow-{name}", "slow", [*asked[name], "--out", str(out / f"slow-{name}"), "--task-bytes", small.get(name, "2000")])
        )
    return [*commands, *((f"{name}-again", "", asked[name]) for name in ONLY_ON_SPARK)]


def test_executors_are_killed_and_slow_tasks_run_twice(
    cluster: Cluster, brokers: list[str], images: list[str], tmp_path: Path, pytestconfig: pytest.Config
) -> None:
    """The answers of all jobs are those of `kops log`. Of jobs that it lacks, they do not depend on how the work is divided.

    Workers start other executors. The job verify is about the whole damaged corpus, the others about a cluster and some damaged logs. With
    `--seeds` they are about all damaged logs, and an executor is killed in each job: to start another one costs several seconds of CPU.
    """
    folder, is_long = tmp_path / "run", pytestconfig.getoption("--seeds") is not None
    (folder / "killer").mkdir(parents=True)
    (folder / "killer" / "sitecustomize.py").write_text(KILLER)
    damaged = [str(corpus.load(case_id).root / "before") for case_id in corpus.cases("damage")]
    paths = [
        *brokers,
        *(str(corpus.load(case_id).root / "before") for case_id in (CASES if is_long else sorted(sample(__name__, CASES))[:3])),
    ]
    asked = {name: [name, *words, "--format", "jsonl", *paths] for name, words in (QUESTIONS | ONLY_ON_SPARK).items()}
    asked["verify"] = ["verify", "--level", "full", "--format", "jsonl", *damaged]
    asked["recover"] = ["recover", "--format", "jsonl", *paths]
    asked["carve"] = ["carve", "--format", "jsonl", *images]
    commands = commands_of(asked, tmp_path, everywhere=is_long)
    (folder / "commands.json").write_text(json.dumps(commands))
    ran = subprocess.run(
        [sys.executable, "-m", "tests.spark.running.killed_jobs", cluster.url, folder, _MEMORY],
        env=cluster.environment,
        cwd=PROJECT,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        check=False,
        timeout=_WAIT_S * 8,
    )
    assert ran.returncode == 0, ran.stdout.decode()
    assert {path.stem for path in folder.glob("*.killed")} == {name for name, kind, _ in commands if kind == "kill"}
    assert {path.stem for path in folder.glob("*.twice")} == {f"slow-{name}" for name in WRITING}

    def answer(name: str) -> tuple[int, str]:
        return int((folder / f"{name}.code").read_text()), (folder / f"{name}.out").read_text()

    for name in (*QUESTIONS, "verify"):
        code = main(["log", *asked[name], "-o", str(tmp_path / f"{name}.log")])
        assert answer(name) == (code, (tmp_path / f"{name}.log").read_text()), name
        assert answer(name)[1], name
    for name in ONLY_ON_SPARK:
        assert answer(name) == answer(f"{name}-again")
        assert answer(name)[1], name
    for name in WRITING:
        code = main(["log", *asked[name], "--out", str(tmp_path / "log" / name), "-o", str(tmp_path / f"{name}.log")])
        for ran_as in (name, f"slow-{name}"):
            assert answer(ran_as)[0] == code, ran_as
            assert tree(tmp_path / ran_as) == tree(tmp_path / "log" / name) != {}, ran_as
            assert sorted(os.listdir(tmp_path / ran_as)) == sorted(os.listdir(tmp_path / "log" / name)), "nothing is left of attempts"
    lists = [(tmp_path / ran_as / FRAGMENTS_FILE).read_bytes() for ran_as in ("carve", "slow-carve", "log/carve")]
    assert lists[0] == lists[1] == lists[2] != b""


def test_the_printed_line_brings_kops_along_and_a_worker_is_killed(cluster: Cluster, bare: str, many: Path, tmp_path: Path) -> None:
    """This is one run, because each starts four JVMs. The executors run kops interpreted, which is reported once."""
    confs = [f"spark.pyspark.python={bare}", f"spark.executor.memory={_MEMORY}", "spark.executorEnv.KOPS_PURE=1"]
    options = ["--print-submit", "--master", cluster.url, *(word for each in confs for word in ("--conf", each))]
    scan = ["--level", "full", "--format", "json", "-o", str(tmp_path / "report"), "--task-bytes", "1", str(many)]
    command = [sys.executable, "-m", "kops", "scan", "verify", *options, *scan]
    line = subprocess.run(command, env=cluster.environment, check=True, stdout=subprocess.PIPE).stdout.decode().strip()
    process = subprocess.Popen(
        ["/bin/sh", "-c", f"exec env {line}"],
        env=cluster.environment,
        cwd=tmp_path,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,  # spark-submit joins them in any case
    )
    try:
        # Stage 0 looks up what the executors have.
        wait_until(lambda: process.poll() is not None or tasks_begun(cluster, "two", stage=1) > 2, "tasks run")
        assert process.poll() is None, process.communicate()
        os.kill(cluster.processes["worker-two"].pid, signal.SIGKILL)
        said = process.communicate(timeout=_WAIT_S)[0].decode()
    finally:
        process.kill()
    assert process.returncode == 4, said
    assert json.loads((tmp_path / "report").read_bytes()) == expected(many, "full")
    is_compiled = all(status(name).state == "compiled" for name in HOT_MODULES)
    assert said.count("kops runs interpreted on") == is_compiled
    assert "Traceback" not in said


def wait_until(holds: Callable[[], object], what: str) -> None:
    """Wait until a condition holds. A loaded machine takes its time to start a JVM."""
    deadline = time.monotonic() + _WAIT_S
    while not holds():
        assert time.monotonic() < deadline, f"not in {_WAIT_S} s: {what}"
        time.sleep(0.05)


def tasks_begun(cluster: Cluster, worker: str, *, stage: int) -> int:
    """Return how many tasks of a stage the executors of a worker report as begun."""
    logs = (cluster.root / worker).glob("app-*/*/stderr")
    return sum(len(re.findall(rf"Running task \d+\.0 in stage {stage}\.0", path.read_text())) for path in logs)
