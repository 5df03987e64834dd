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
from kops.environment import java_environment
from kops.forensics.verify.run import verify
from tests.support import corpus

pytestmark = [pytest.mark.slow, pytest.mark.java, pytest.mark.timeout(600)]
_MEMORY = "512m"
_WAIT_S = 240


class Cluster:
    """A standalone master on loopback and two workers with one core each. They are ended by pid."""

    def __init__(self, root: Path) -> None:
        from pyspark.find_spark_home import _find_spark_home

        self.root = root
        self.environment = {
            **{name: value for name, value in java_environment().items() if not name.startswith(("PYSPARK_", "PYTHON"))},
            "SPARK_LOCAL_IP": "127.0.0.1",
            "SPARK_HOME": _find_spark_home(),
            "SPARK_MASTER_OPTS": "-Dspark.master.rest.enabled=false",
        }
        self._class = str(Path(self.environment["SPARK_HOME"]) / "bin" / "spark-class")
        self.processes: dict[str, subprocess.Popen[bytes]] = {}

    def start(self) -> None:
        """Start the cluster. The master says which port it listens on."""
        self._start("master", "org.apache.spark.deploy.master.Master", "--host", "127.0.0.1", "--port", "0", "--webui-port", "0")
        wait_until(lambda: self._said("master", r"spark://127\.0\.0\.1:\d+"), "the master listens")
        self.url = self._said("master", r"spark://127\.0\.0\.1:\d+")
        for name in ("one", "two"):
            folder = str(self.root / name)
            options = ("--host", "127.0.0.1", "--webui-port", "0", "-c", "1", "-m", _MEMORY, "-d", folder)
            self._start(f"worker-{name}", "org.apache.spark.deploy.worker.Worker", *options, self.url)
        wait_until(
            lambda: all(self._said(f"worker-{name}", "Successfully registered with master") for name in ("one", "two")), "two workers"
        )

    def _start(self, name: str, *command: str) -> None:
        with open(self.root / f"{name}.log", "wb") as log:
            self.processes[name] = subprocess.Popen([self._class, *command], env=self.environment, stdout=log, stderr=log)

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
    """Provide a log directory with damage in some of 100 partitions, so that a task for each takes a while."""
    root = tmp_path_factory.mktemp("many")
    damaged = corpus.load("damage-4.3.0-two-flips").root / "before"
    segment = next(path for path in sorted((corpus.load("v2-4.3.0-codec-lz4").root / "data").glob("*/*.log")) if path.stat().st_size)
    for number in range(100):
        if number % 40 == 20:
            shutil.copytree(next(path for path in damaged.iterdir() if path.is_dir()), root / f"t-{number}")
        else:
            (root / f"t-{number}").mkdir()
            shutil.copy(segment, root / f"t-{number}" / segment.name)
    return root


def expected(folder: Path, level: str) -> object:
    return json.loads(json.dumps(verify([str(folder)], level).to_json()))


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
