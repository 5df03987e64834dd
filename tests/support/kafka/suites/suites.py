"""Runs Kafka's own integration tests against nodes of kops.

`java` has classes with the names of Kafka's test clusters, which start nodes of kops instead. They are compiled once and stand before
Kafka's jars on the class path. JUnit's launcher runs the chosen tests in one JVM and writes its report, which comes back as outcomes.

`python -m tests.support.kafka.suites.suites testkit|older|streams FOLDER [CLASS[#METHOD]…]` runs them and prints how they went. Without
classes it runs those in `chosen.py`, which takes minutes.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Final, NamedTuple
from xml.etree import ElementTree

from kops.environment import find_java
from tests.support.corpus import PROJECT
from tests.support.kafka.kafka_jars import CACHE, KAFKA_VERSION, STREAMS_SUITES, STREAMS_VERSION, SUITES, Jars, kafka_jars
from tests.support.kafka.suites.chosen import ALL_OLDER, ALL_STREAMS, ALL_TESTKIT, LEFT_OUT
from tests.support.kafka.suites.older import older_tests

JAVA: Final = Path(__file__).with_name("java")
COMPILER: Final = "org.eclipse.jdt.internal.compiler.batch.Main"
LAUNCHER: Final = "org.junit.platform.console.ConsoleLauncher"
EXTENSIONS: Final = "org.junit.jupiter.api.extension.Extension"


class Suite(NamedTuple):
    """A set of tests: the folders in `java` with the classes that replace Kafka's, the jars, and their version."""

    folders: tuple[str, ...]
    jars: Jars
    version: str
    extensions: tuple[str, ...] = ()
    streams_tests: bool = False
    """Whether the tests need helpers of Kafka Streams' tests. Their jar is not published for this version, so an older one is taken."""
    older_tests: bool = False
    """Whether tests that are published for an older version only stand before those of this version."""


TESTKIT: Final = Suite(("testkit", "streams"), SUITES, KAFKA_VERSION, ("kops.Isolated", "kops.ReleasedVersion"), streams_tests=True)
"""Tests with KafkaClusterTestKit: those with ClusterInstance (tools, requests of groups), and Connect's."""
OLDER: Final = TESTKIT._replace(older_tests=True)
"""Tests of 4.0.0 for consumers and producers, with everything else from the version of `TESTKIT`."""
STREAMS: Final = Suite(("streams",), STREAMS_SUITES, STREAMS_VERSION)
"""Tests with the EmbeddedKafkaCluster of Kafka Streams."""


class Outcome(NamedTuple):
    """How a test went: `Class#method`, `passed`, `failed` or `skipped`, the failure's text, and its time in seconds."""

    name: str
    status: str
    text: str
    seconds: float


def compiled(suite: Suite) -> Path:
    """Compile the classes that replace Kafka's. Return their folder, which is kept beside the jars.

    Raises RuntimeError with the compiler's messages.
    """
    jars = kafka_jars(suite.version, suite.jars)
    sources = sorted(path for folder in ("kops", *suite.folders) for path in (JAVA / folder).rglob("*.java"))
    said = hashlib.sha256(b"".join(path.read_bytes() for path in sources) + "\n".join(suite.extensions).encode()).hexdigest()[:16]
    target = CACHE / f"{jars.name}-{suite.folders[0]}-{said}"
    with open(CACHE / f"{target.name}.lock", "w") as lock:
        fcntl.lockf(lock, fcntl.LOCK_EX)
        if not target.is_dir():
            beside = Path(tempfile.mkdtemp(prefix=f"{target.name}-", dir=CACHE))
            (compiler,) = jars.glob("ecj-*.jar")
            command = [str(find_java().java), "-cp", str(compiler), COMPILER, "-17", "-proc:none", "-nowarn"]
            command += ["-cp", os.pathsep.join(map(str, sorted(jars.glob("*.jar")))), "-d", str(beside), *map(str, sources)]
            done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False)
            if done.returncode:
                shutil.rmtree(beside)
                raise RuntimeError(done.stdout + done.stderr)
            if suite.extensions:
                (beside / "META-INF" / "services").mkdir(parents=True)
                (beside / "META-INF" / "services" / EXTENSIONS).write_text("\n".join(suite.extensions) + "\n")
            beside.rename(target)
    return target


def run_suite(suite: Suite, work: Path, chosen: Sequence[str], *, left_out: Iterable[str] = (), timeout_s: float = 3600) -> list[Outcome]:
    """Run tests and return their outcomes. `chosen` are `package.Class` and `package.Class#method`, `left_out` patterns for `Class#method`.

    The JVM's output goes to `work/output.txt`. Raises RuntimeError if it left no report.
    """
    jars = kafka_jars(suite.version, suite.jars)
    temporary = work / "tmp"
    temporary.mkdir(parents=True)
    helper = "\t".join([sys.executable, "-m", "tests.support.kafka.suites.nodes"])
    command = [str(find_java().java), "-Xmx1g", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Dfile.encoding=UTF-8"]
    command += [f"-Djava.io.tmpdir={temporary}", f"-Dkops.helper={helper}", f"-Dkops.tree={PROJECT}"]
    command += ["-Dorg.slf4j.simpleLogger.defaultLogLevel=warn", "-Djdk.attach.allowAttachSelf=true"]
    before = [str(older_tests())] if suite.older_tests else []
    behind = map(str, kafka_jars(STREAMS_VERSION, STREAMS_SUITES).glob("kafka-streams-*-test.jar")) if suite.streams_tests else ()
    command += ["-cp", os.pathsep.join([str(compiled(suite)), *before, f"{jars}/*", *behind]), LAUNCHER, "execute"]
    command += ["--disable-banner", "--details=testfeed"]
    command += ["--reports-dir", str(work / "reports"), "--config", "junit.jupiter.extensions.autodetection.enabled=true"]
    command += [f"--exclude-methodname=.*({pattern}).*" for pattern in left_out]
    for name in chosen:
        command += ["--select-method" if "#" in name else "--select-class", name]
    with open(work / "output.txt", "wb") as output:
        subprocess.run(command, cwd=work, stdin=subprocess.DEVNULL, stdout=output, stderr=subprocess.STDOUT, timeout=timeout_s, check=False)
    found = [outcome for path in sorted((work / "reports").glob("TEST-*.xml")) for outcome in outcomes(path)]
    if not found:
        raise RuntimeError((work / "output.txt").read_text(errors="replace")[-5000:])
    return found


def outcomes(report: Path) -> list[Outcome]:
    """Return the outcomes in one of JUnit's reports."""
    found = []
    for case in ElementTree.parse(report).getroot().iter("testcase"):
        trouble = [child for child in case if child.tag in ("failure", "error")]
        status = "failed" if trouble else "skipped" if case.find("skipped") is not None else "passed"
        text = "".join(f"{child.get('type')}: {child.get('message')}\n{child.text or ''}" for child in trouble)
        name = f"{str(case.get('classname')).rpartition('.')[2]}#{case.get('name')}"
        found.append(Outcome(name, status, text, float(case.get("time", "0").replace(",", ""))))
    return found


def main() -> None:
    """Run the tests of the command line, or all. The exit code is 1 if one failed."""
    name, folder, *chosen = sys.argv[1:]
    suite, everything = {"testkit": (TESTKIT, ALL_TESTKIT), "older": (OLDER, ALL_OLDER), "streams": (STREAMS, ALL_STREAMS)}[name]
    found = run_suite(suite, Path(folder), chosen or everything, left_out=() if chosen else LEFT_OUT)
    for outcome in found:
        lines = outcome.text.splitlines()
        print(f"{outcome.status:8}{outcome.seconds:7.1f}  {outcome.name}" + (f"\n{'':17}{lines[0][:300]}" if lines else ""))
    print(*(f"{status}: {sum(outcome.status == status for outcome in found)}" for status in ("passed", "failed", "skipped")))
    sys.exit(any(outcome.status == "failed" for outcome in found))


if __name__ == "__main__":
    main()
