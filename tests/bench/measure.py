"""Run commands one after the other, round by round, and compare their medians: CPU seconds (user and system), wall time, peak memory."""

from __future__ import annotations

import os
import statistics
import subprocess
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from kops.environment import find_java
from tests.support.kafka.kafka_jars import kafka_jars

# Keep the bytecode of modules, as an installed package does.
ENVIRONMENT = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}


@dataclass(slots=True)
class Contender:
    """A command line. `allowed` has the exit codes of success. The output is discarded."""

    name: str
    command: Sequence[str]
    environment: Mapping[str, str] = field(default_factory=dict)
    allowed: tuple[int, ...] = (0,)
    target: str = ""


@dataclass(slots=True)
class Figure:
    """Medians over the rounds. `rss_mib` is the highest peak. `target` is the goal that the table shows."""

    name: str
    cpu_s: float
    wall_s: float
    rss_mib: float
    target: str = ""


def dump_log_segments(*arguments: str) -> Contender:
    """Return a contender that runs Kafka's own tool with the heap that kafka-run-class.sh gives tools."""
    java = str(find_java().java)
    command = [java, "-Xmx256M", "-cp", f"{kafka_jars()}/*", "org.apache.kafka.tools.DumpLogSegments", *arguments]
    return Contender("kafka-dump-log", command)


def run(contender: Contender) -> tuple[float, float, float]:
    """Run a contender and return (CPU seconds, wall seconds, peak MiB), including process start and children. Raises RuntimeError if it
    fails.
    """
    started = time.perf_counter()
    with open(os.devnull, "wb") as nowhere:
        process = subprocess.Popen(
            contender.command,
            stdout=nowhere,
            stderr=subprocess.DEVNULL,
            stdin=subprocess.DEVNULL,
            env={**ENVIRONMENT, **contender.environment},
        )
        _, status, usage = os.wait4(process.pid, 0)
    wall = time.perf_counter() - started
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode not in contender.allowed:
        raise RuntimeError(f"{' '.join(contender.command)}: exit code {process.returncode}")
    return usage.ru_utime + usage.ru_stime, wall, usage.ru_maxrss / 1024


def read_ahead(contender: Contender) -> None:
    """Read the files of a contender into the page cache, so that it does not wait for a disk for which the others need not wait."""
    for word in contender.command[1:]:
        path = Path(word)
        for file in [*path.glob("*.log"), *path.glob("*/*.log")] if path.is_dir() else [path]:
            if file.suffix in (".log", ".timeindex") and file.is_file():
                with open(file, "rb", buffering=0) as source:
                    while source.read(1 << 20):
                        pass


def compare(contenders: Sequence[Contender], rounds: int) -> list[Figure]:
    """Run every contender once in each round, so that a busy moment affects all of them."""
    taken: dict[str, list[tuple[float, float, float]]] = {each.name: [] for each in contenders}
    for _ in range(rounds):
        for each in contenders:
            read_ahead(each)
            taken[each.name].append(run(each))
    return [
        Figure(
            name,
            statistics.median(cpu for cpu, _, _ in values),
            statistics.median(wall for _, wall, _ in values),
            max(rss for _, _, rss in values),
            next(each.target for each in contenders if each.name == name),
        )
        for name, values in taken.items()
    ]
