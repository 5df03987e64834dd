"""`kops scan verify`: whatever Spark says, the verdict is that of `kops log verify`; and it runs under spark-submit on a cluster."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from kops.environment import java_environment
from kops.forensics.verify.run import verify
from tests.support import corpus
from tests.support.rings import sample

LEVELS = ("quick", "crc", "deep", "full")


def _folders(kind: str, folder: str, some: bool) -> list[str]:
    """A folder of each case; with `some` of a case of every third family, for a task of Spark's costs more than its work."""
    case_ids = sorted(sample(__name__, corpus.cases(kind)))[::3] if some else corpus.cases(kind)
    return [str(corpus.load(case_id).root / folder) for case_id in case_ids]


@pytest.mark.parametrize(
    ("level", "some"),
    [pytest.param("full", True, id="full-some"), *(pytest.param(each, False, id=each, marks=pytest.mark.slow) for each in LEVELS)],
)
def test_the_verdict_over_the_damaged_corpus(spark: Any, level: str, some: bool) -> None:
    from kops.spark.jobs.verify import scan_verify

    paths = _folders("damage", "before", some)
    expected = verify(paths, level)
    assert len(expected.findings) > (8 if some else 30)
    assert scan_verify(spark, paths, level, task_bytes=1500 if some else 500).to_json() == expected.to_json()


@pytest.mark.parametrize(
    ("level", "some"),
    [pytest.param("crc", True, id="crc-some"), *(pytest.param(each, False, id=each, marks=pytest.mark.slow) for each in ("crc", "full"))],
)
def test_the_verdict_over_the_rest_of_the_corpus(spark: Any, level: str, some: bool) -> None:
    from kops.spark.jobs.verify import scan_verify

    for kind, folder in (("format", "data"), ("broker-damage", "before"), ("cluster", "nodes")):
        paths = _folders(kind, folder, some)[:40]
        assert scan_verify(spark, paths, level, task_bytes=3000).to_json() == verify(paths, level).to_json()


def test_splitting_does_not_change_the_verdict(spark: Any) -> None:
    from kops.forensics.verify import parts as splits
    from kops.spark.jobs.verify import scan_verify

    case = corpus.load("v2-4.3.0-large")
    paths = [str(case.root / "data")]
    assert splits.part_bytes(2, [10], 400, 1) <= 400
    assert scan_verify(spark, paths, "full", task_bytes=400).to_json() == verify(paths, "full").to_json()


def test_paths_are_named_as_they_were_given(spark: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """The workers have a working directory of their own."""
    from kops.spark.jobs.verify import scan_verify

    case = corpus.load("damage-4.3.0-index-garbage-old")
    monkeypatch.chdir(case.root)
    (partition,) = (path for path in (case.root / "before").iterdir() if path.is_dir())
    for paths in (["before"], ["./before/"], [f"before/../before/{partition.name}"], [Path("before")]):
        expected = verify(paths, "full").to_json()
        assert scan_verify(spark, paths, "full", task_bytes=500).to_json() == expected
        findings = expected["findings"]
        assert isinstance(findings, list) and findings
        assert not any(found["file"].startswith("/") for found in findings)


@pytest.mark.parametrize(
    ("master", "known"),
    [
        *((each, True) for each in ("local", "local[1]", "local[*]", "local[2,3]", "local[*, 3]", "local-cluster[2,1,512]", "yarn")),
        *((each, True) for each in ("spark://127.0.0.1:7077", "spark://a:7077,b:7077", "spark://[::1]:7077", "k8s://https://a:443")),
        *((each, False) for each in ("foo", "local[]", "local[0]", "local[-1]", "local[x]", "Local", "local[1", "spark://", "spark://a")),
        *((each, False) for each in ("spark://a:x", "spark://a:7077/", "k8s://", "yarn-client", "http://a:7077", " local")),
    ],
)
def test_a_master_that_spark_does_not_know(
    master: str, known: bool, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Told before anything is started; that of `spark-submit` is its own affair."""
    import kops.spark.session as session
    from kops.cli.main import main
    from kops.errors import MissingDependencyError

    started = []

    def start(builder: Any) -> Any:
        started.append(builder)
        raise MissingDependencyError("not in this test")

    monkeypatch.setattr(session, "_start", start)
    monkeypatch.setattr(session, "_is_submitted", lambda: False)
    monkeypatch.delenv("MASTER", raising=False)
    monkeypatch.setenv("PYSPARK_SUBMIT_ARGS", "pyspark-shell")  # so that what is set there goes again
    code = main(["scan", "verify", "--master", master, "/nowhere"])
    assert (code, bool(started)) == ((8, True) if known else (16, False))
    told = capsys.readouterr().err
    if not known:
        assert told.startswith(f"kops: error: --master {master}: not a Spark master; allowed: local, local[N]")
        monkeypatch.setenv("MASTER", master)
        assert main(["scan", "verify", "/nowhere"]) == 16
        assert f"MASTER={master} in the environment: not a Spark master" in capsys.readouterr().err
        monkeypatch.setattr(session, "_is_submitted", lambda: True)
        assert session.checked_master(master) == master


@pytest.fixture(scope="module")
def standalone() -> Iterator[str]:
    """A standalone master on loopback with two workers; ended by pid."""
    from pyspark.find_spark_home import _find_spark_home

    environment = {**java_environment(), "SPARK_LOCAL_IP": "127.0.0.1", "SPARK_HOME": _find_spark_home(), "PYSPARK_PYTHON": sys.executable}
    environment["SPARK_MASTER_OPTS"] = "-Dspark.master.rest.enabled=false"
    spark_class = str(Path(environment["SPARK_HOME"]) / "bin" / "spark-class")
    processes: list[subprocess.Popen[bytes]] = []
    port = _free_port()
    master = f"spark://127.0.0.1:{port}"
    try:
        start = [spark_class, "org.apache.spark.deploy.master.Master", "--host", "127.0.0.1", "--port", str(port), "--webui-port", "0"]
        processes.append(subprocess.Popen(start, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL))
        _wait_for(port)
        for _ in range(2):
            worker = [
                spark_class,
                "org.apache.spark.deploy.worker.Worker",
                "--host",
                "127.0.0.1",
                "--webui-port",
                "0",
                "-c",
                "1",
                "-m",
                "512m",
                master,
            ]
            processes.append(subprocess.Popen(worker, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL))
        yield master
    finally:
        for process in processes:
            process.terminate()
        for process in processes:
            process.wait(timeout=30)


def _free_port() -> int:
    import socket

    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def _wait_for(port: int) -> None:
    import socket

    deadline = time.monotonic() + 60
    while True:
        with socket.socket() as probe:
            if probe.connect_ex(("127.0.0.1", port)) == 0:
                return
        assert time.monotonic() < deadline, "the standalone master does not listen"
        time.sleep(0.1)


@pytest.mark.slow
@pytest.mark.java
def test_spark_submit_on_a_standalone_master_with_two_workers(standalone: str) -> None:
    from pyspark.find_spark_home import _find_spark_home

    import kops.cli.scan_job as job

    paths = _folders("damage", "before", True)
    environment = {
        **java_environment(),
        "SPARK_LOCAL_IP": "127.0.0.1",
        "PYSPARK_PYTHON": sys.executable,
        "PYSPARK_DRIVER_PYTHON": sys.executable,
    }
    submit = str(Path(_find_spark_home()) / "bin" / "spark-submit")
    conf = ["spark.driver.bindAddress=127.0.0.1", "spark.driver.host=127.0.0.1", "spark.ui.enabled=false", "spark.executor.memory=512m"]
    # spark-submit joins a Python driver's stderr with its stdout, hence -q.
    command = [submit, "--master", standalone, *(word for each in conf for word in ("--conf", each)), str(job.__file__)]
    done = subprocess.run(
        [*command, "verify", "-q", "--format", "json", "--level", "deep", "--task-bytes", "500", *paths],
        env={**os.environ, **environment},
        capture_output=True,
        timeout=240,
        check=False,
    )
    assert done.returncode == 4, done.stderr.decode()[-2000:]
    expected = verify(paths, "deep").to_json()
    assert json.loads(done.stdout) == json.loads(json.dumps(expected))


@pytest.mark.slow
@pytest.mark.java
def test_the_command_line(tmp_path: Path) -> None:
    case = corpus.load("damage-4.3.0-two-flips")
    command = [sys.executable, "-m", "kops", "scan", "verify", "--master", "local[1]", "--format", "json", str(case.root / "before")]
    done = subprocess.run(command, capture_output=True, timeout=120, check=False, cwd=tmp_path)
    assert done.returncode == 4, done.stderr.decode()
    assert json.loads(done.stdout) == json.loads(json.dumps(verify([str(case.root / "before")]).to_json()))
    assert b"WARN" not in done.stderr
    assert list(tmp_path.iterdir()) == []


@pytest.fixture(scope="module")
def many(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A log directory with 400 partitions: seconds of work for one core with a task for each."""
    root = tmp_path_factory.mktemp("many")
    case = corpus.load("v2-4.3.0-codec-none")
    segment = next(path for path in sorted((case.root / "data").glob("*/*.log")) if path.stat().st_size)
    for number in range(400):
        (root / f"t-{number}").mkdir()
        shutil.copy(segment, root / f"t-{number}" / segment.name)
    return root


def _session_of(leader: int) -> dict[int, str]:
    """The processes of a session (setsid), pid to command line."""
    found = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdecimal():
            try:
                if int((entry / "stat").read_text().rpartition(")")[2].split()[3]) == leader:
                    found[int(entry.name)] = (entry / "cmdline").read_bytes().replace(b"\0", b" ").decode()
            except OSError:
                continue  # it has ended
    return found


@pytest.mark.slow
@pytest.mark.java
@pytest.mark.parametrize("moment", ["start", "work", "impatient"])
def test_ctrl_c(many: Path, tmp_path: Path, moment: str) -> None:
    command = [sys.executable, "-m", "kops", "scan", "verify", "--master", "local[1]", "--task-bytes", "1", str(many)]
    environment = {**os.environ, "SPARK_LOCAL_DIRS": str(tmp_path / "spark"), "TMPDIR": str(tmp_path)}
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=environment, start_new_session=True)
    wanted = "java" if moment == "start" else "pyspark.daemon"
    deadline = time.monotonic() + 60
    while not any(wanted in line for line in _session_of(process.pid).values()):
        assert process.poll() is None, process.communicate()
        assert time.monotonic() < deadline
        time.sleep(0.02)
    if moment != "start":
        time.sleep(0.7)  # in the midst of the tasks
    os.killpg(process.pid, signal.SIGINT)  # as a terminal does
    if moment == "impatient":
        time.sleep(0.1)
        os.killpg(process.pid, signal.SIGINT)
    out, err = process.communicate(timeout=60)
    assert (process.returncode, out, err.decode()) == (32, b"", "kops: interrupted\n")
    while _session_of(process.pid):
        assert time.monotonic() < deadline, _session_of(process.pid)
        time.sleep(0.05)
    if moment != "impatient":
        assert [path for path in tmp_path.rglob("*") if path.is_file()] == []
