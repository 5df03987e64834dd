"""`kops scan verify`: the verdict is that of `kops log verify`, whatever Spark does."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from kops.forensics.verify.run import verify
from tests.support import corpus
from tests.support.patience import until, until_taken
from tests.support.rings import sample

GOOD = str(corpus.load("damage-4.3.0-two-flips").root / "before")

LEVELS = ("quick", "crc", "deep", "full")


def _folders(kind: str, folder: str, some: bool) -> list[str]:
    """Return a folder of each case, or with `some` that of every third family, because a task of Spark costs more than its work."""
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
    """The error comes before anything is started. The master of `spark-submit` is not checked."""
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
    monkeypatch.setenv("PYSPARK_SUBMIT_ARGS", "pyspark-shell")  # so that what is set there is removed again
    code = main(["scan", "verify", "--master", master, GOOD])
    assert (code, bool(started)) == ((8, True) if known else (16, False))
    told = capsys.readouterr().err
    if not known:
        assert told.startswith(f"kops: error: --master {master}: not a Spark master; allowed: local, local[N]")
        monkeypatch.setenv("MASTER", master)
        assert main(["scan", "verify", GOOD]) == 16
        assert f"MASTER={master} in the environment: not a Spark master" in capsys.readouterr().err
        monkeypatch.setattr(session, "_is_submitted", lambda: True)
        assert session.checked_master(master) == master


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


def test_spark_connect_is_refused_with_the_reason(capsys: pytest.CaptureFixture[str]) -> None:
    from kops.cli.main import main

    assert main(["scan", "verify", "--master", "sc://127.0.0.1:15002", GOOD]) == 16
    assert "sc://127.0.0.1:15002: scans do not run on Spark Connect, which has no RDDs; name the cluster's own" in capsys.readouterr().err


def test_a_session_of_spark_connect_is_refused_with_the_reason() -> None:
    from pyspark.errors import PySparkAttributeError

    from kops.errors import UsageError
    from kops.spark.jobs.verify import scan_verify

    class Session:
        """As pyspark.sql.connect.session.SparkSession, which needs grpc."""

        def __getattr__(self, name: str) -> Any:
            raise PySparkAttributeError(errorClass="JVM_ATTRIBUTE_NOT_SUPPORTED", messageParameters={"attr_name": name})

    session: Any = Session()
    with pytest.raises(UsageError, match="Spark Connect, whose sessions have no RDDs"):
        scan_verify(session, [corpus.load("damage-4.3.0-two-flips").root / "before"])


@pytest.fixture(scope="module")
def many(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Provide a log directory with 400 partitions: with a task for each, this is seconds of work for one core."""
    root = tmp_path_factory.mktemp("many")
    case = corpus.load("v2-4.3.0-codec-none")
    segment = next(path for path in sorted((case.root / "data").glob("*/*.log")) if path.stat().st_size)
    for number in range(400):
        (root / f"t-{number}").mkdir()
        shutil.copy(segment, root / f"t-{number}" / segment.name)
    return root


def _session_of(leader: int) -> dict[int, str]:
    """Return the processes of a session (setsid): pid → command line."""
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
    # In the middle of the tasks, Spark's daemon has made a worker.
    wanted, many_of_them = ("java", 1) if moment == "start" else ("pyspark.daemon", 2)

    def is_there(lines: dict[int, str]) -> bool:
        assert process.poll() is None, process.communicate()
        return sum(wanted in line for line in lines.values()) >= many_of_them

    until(lambda: _session_of(process.pid), is_there, patience_s=180)
    os.killpg(process.pid, signal.SIGINT)  # as a terminal does
    if moment == "impatient":
        until_taken(process.pid, signal.SIGINT)
        os.killpg(process.pid, signal.SIGINT)
    out, err = process.communicate(timeout=120)
    assert (process.returncode, out, err.decode()) == (32, b"", "kops: interrupted\n")
    until(lambda: not _session_of(process.pid), told=lambda: _session_of(process.pid))
    if moment != "impatient":
        assert [path for path in tmp_path.rglob("*") if path.is_file()] == []
