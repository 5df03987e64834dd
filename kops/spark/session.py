"""Starts a Spark session for a scan: finds Java, uses this interpreter for Python workers, no UI, and on this machine only loopback.

Under `spark-submit` its session is used as it is.
"""

from __future__ import annotations

import atexit
import os
import re
import sys
import tempfile
from contextlib import suppress
from typing import TYPE_CHECKING

from kops.environment import java_environment
from kops.errors import KopsError, MissingDependencyError, UsageError
from kops.spark.shipping import needs_shipping, shipped_settings
from kops.spark.sockets import can_be_wide

if TYPE_CHECKING:
    from pyspark import SparkContext
    from pyspark.sql import SparkSession

SETTINGS = {
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.sql.python.filterPushdown.enabled": "true",
    "spark.task.maxFailures": "4",
    # The buffer between the JVM and its Python workers. With the default of 64 KiB a record costs a quarter more CPU. Larger buffers save
    # no more, and one of a megabyte is a humongous object for G1.
    "spark.buffer.size": "262144",
}
"""The settings of kops for a session of its own, on any master. A caller's `--conf` takes precedence."""
_LOOPBACK = {"spark.driver.bindAddress": "127.0.0.1", "spark.driver.host": "127.0.0.1"}


def _stop(context: SparkContext) -> None:
    """Stop Spark. After a second Ctrl-C, the first one's stop may have removed the accumulators' socket and not noted it."""
    with suppress(FileNotFoundError):
        context.stop()


def spark_session(
    master: str | None = None, app_name: str = "kops", settings: dict[str, str] | None = None, *, light: bool = False
) -> SparkSession:
    """The running session, that of `spark-submit`, or a new one on `master` (default `local[*]`).

    `light`: for work in Python alone, such as `kops scan verify`: a JVM that compiles little and collects garbage with one thread costs
    half as much.

    Raises MissingDependencyError if pyspark or a Java is missing, with the remedy, and UsageError for a master that Spark does not know
    or that scans can't run on, before anything is started. If executors lack something, a warning on stderr says what.
    """
    chosen = checked_master(master)
    try:
        from pyspark.sql import SparkSession
    except ImportError as error:
        raise MissingDependencyError(f"Spark is not installed ({error.name}): pip install 'kops[spark]'") from error
    builder = SparkSession.builder.appName(app_name)
    if not _is_submitted():
        os.environ.update({key: value for key, value in java_environment().items() if key in ("JAVA_HOME", "PATH")})
        _set_interpreters(settings or {})
        if is_here(chosen):
            os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
        os.environ.setdefault(
            "PYSPARK_SUBMIT_ARGS", f'--driver-java-options "{_LIGHT if light else _ROWS}" --driver-memory {DRIVER_MEMORY} pyspark-shell'
        )
        builder = builder.master(chosen)
        wanted = settings or {}
        for key, value in {**settings_for(chosen), **wanted, **shipped_settings(chosen, wanted)}.items():
            builder = builder.config(key, value)
        session = _start(builder)
        # A program that ends without stopping the session would leave the socket of Spark's accumulators in /tmp. Stopping twice does
        # nothing.
        atexit.register(_stop, session.sparkContext)
    else:
        session = builder.getOrCreate()
        session.sparkContext.setLogLevel("ERROR")
    if needs_shipping(session.sparkContext.master):
        from kops.spark.executors import prepare_executors

        prepare_executors(session, _warn)
    return session


def _warn(text: str) -> None:
    print(f"kops: warning: {text}", file=sys.stderr)


def settings_for(master: str) -> dict[str, str]:
    """Return the settings of kops for a session of its own on this master."""
    found = dict(SETTINGS)
    if is_here(master):
        # Instead of TCP over loopback between the JVM and its workers: a tenth less CPU for a record.
        found |= {**_LOOPBACK, "spark.python.unix.domain.socket.enabled": str(can_be_wide()).lower()}
    return found


def is_here(master: str) -> bool:
    """Whether the executors are on this machine. Those on others could not reach a driver that listens on loopback."""
    return master.startswith("local") or all(each in _HERE for each in re.findall(r"(?:spark://|,)(\[[^\]]*\]|[^:,/]+)", master) or [""])


def _set_interpreters(settings: dict[str, str]) -> None:
    """Set the variables that pyspark reads to Spark's settings for the interpreters, which only spark-submit obeys."""
    for key, variable in (("spark.pyspark.python", "PYSPARK_PYTHON"), ("spark.pyspark.driver.python", "PYSPARK_DRIVER_PYTHON")):
        if key in settings:
            os.environ[variable] = settings[key]
        os.environ.setdefault(variable, sys.executable)


def checked_master(master: str | None) -> str:
    """Return the master of a session of kops's own, if it has a form that Spark accepts. `spark-submit` checks its own."""
    chosen = master or os.environ.get("MASTER") or "local[*]"
    if not _is_submitted() and not any(re.fullmatch(each, chosen) for each in _MASTERS):
        named = f"--master {chosen}" if master else f"MASTER={chosen} in the environment"
        if chosen.startswith("sc://"):
            raise UsageError(f"{named}: scans do not run on Spark Connect, which has no RDDs; {INSTEAD_OF_CONNECT}")
        raise UsageError(
            f"{named}: not a Spark master; allowed: local, local[N], local[*], local[N,FAILURES], spark://HOST:PORT, yarn, k8s://URL"
        )
    return chosen


def _start(builder: SparkSession.Builder) -> SparkSession:
    """Start the session with the JVM's output in a file, because a user can do nothing about it. After a failure it is shown.

    `KOPS_DEBUG=1` leaves them on stderr.
    """
    from py4j.protocol import Py4JError
    from pyspark.errors import PySparkException

    if os.environ.get("KOPS_DEBUG"):
        return builder.getOrCreate()
    with tempfile.TemporaryFile() as words:
        sys.stderr.flush()
        kept = os.dup(2)
        os.dup2(words.fileno(), 2)  # The JVM inherits and keeps it.
        try:
            session = builder.getOrCreate()
            session.sparkContext.setLogLevel("ERROR")
        except (PySparkException, Py4JError, OSError) as error:
            words.seek(0)
            # Spark's message, without its stack trace.
            said = words.read().decode(errors="replace").strip().splitlines()
            last = [line for line in said if not line.startswith(("\tat ", "WARNING: Using incubator"))][-8:]
            why = str(error).splitlines()[0] if str(error) else type(error).__name__
            raise KopsError(f"Spark did not start: {'; '.join([why, *(line.strip() for line in last)])}") from error
        finally:
            os.dup2(kept, 2)
            os.close(kept)
    return session


# Source: Spark's SparkMasterRegex and SparkContext.createTaskScheduler (no threads at all are refused there).
_MASTERS = (
    "local",
    r"local\[(0*[1-9][0-9]*|\*)(\s*,\s*[0-9]+)?\]",
    r"local-cluster\[\s*[0-9]+\s*,\s*[0-9]+\s*,\s*[0-9]+\s*\]",
    r"spark://[^\s/]+:[0-9]+",
    "yarn",
    r"k8s://\S+",
)
INSTEAD_OF_CONNECT = "name the cluster's own master (spark://HOST:PORT, yarn, k8s://URL), or start the scan with spark-submit there"
_HERE = frozenset(("127.0.0.1", "localhost", "[::1]"))
DRIVER_MEMORY = "1g"
_QUIET = "-Dlog4j2.level=error"
# Arrow's own checks of every access: the batches come from kops's workers, and Spark has asked for null before it reads. A tenth less CPU
# a record. The parallel collector has no threads that work beside the task, and a call that goes to one place most of the time is compiled
# as such (the getters of Arrow's vectors): each a twentieth. The latter option is not guaranteed, so it may be missing.
_ROWS = (
    f"{_QUIET} -Darrow.enable_unsafe_memory_access=true -Darrow.enable_null_check_for_get=false"
    " -XX:+UseParallelGC -XX:+IgnoreUnrecognizedVMOptions -XX:TypeProfileMajorReceiverPercent=20"
)
_LIGHT = f"{_QUIET} -XX:+UseSerialGC -XX:TieredStopAtLevel=1"


def _is_submitted() -> bool:
    """Whether `spark-submit` (or a shell) has started this program and brings the settings."""
    return "PYSPARK_GATEWAY_PORT" in os.environ
