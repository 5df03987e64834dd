"""Measurements in a running Spark session. The CPU is that of the whole process tree: driver, JVM and Python workers (`/proc`).

    python -m tests.bench.spark QUESTION LOG MASTER ROUNDS

Prints one JSON list of figures. The questions are:

- `verify`: `kops scan verify` against `kops log verify`, both in this process after warm-up runs, on the log directory around LOG's
  partition.
- `deep`: the same at level deep.
- `recover`: `kops scan recover` against `kops log recover`, on that log directory.
- `carve`: `kops scan carve` against `kops log carve`; the image is LOG.
- `tasks`: `scan verify` with many small tasks and with few.
- `slope`: `scan verify` of 1 to 16 segments like LOG.
- `records`: rows of records of that log directory, through Spark and without it, and Kafka's own tool on LOG alone, which shows how fast
  the machine is.
"""

from __future__ import annotations

import json
import os
import statistics
import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

from kops.files import OsFiles
from kops.forensics.carve.run import carve
from kops.forensics.recover.run import recover
from kops.forensics.verify.parts import Part
from kops.forensics.verify.run import verify
from kops.spark import register, spark_session
from kops.spark.jobs.lost.carve import scan_carve
from kops.spark.jobs.recover import scan_recover
from kops.spark.jobs.verify import scan_verify
from kops.spark.source.rows import Source, Wanted, read_parts
from tests.bench.data import linked
from tests.bench.measure import dump_log_segments, run

WARM = 3  # runs that the JVM needs to compile its code
TICK = os.sysconf("SC_CLK_TCK")


def tree_cpu_s(without: int | None = None) -> float:
    """Return the CPU seconds of this process and all its descendants, including those that have ended. One of them can be left out."""
    parents: dict[int, int] = {}
    spent: dict[int, float] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdecimal():
            try:
                fields = (entry / "stat").read_text().rpartition(")")[2].split()
            except OSError:
                continue  # the process has ended
            parents[int(entry.name)] = int(fields[1])
            spent[int(entry.name)] = sum(int(field) for field in fields[11:15]) / TICK
    ours = {os.getpid()}
    while found := {pid for pid, parent in parents.items() if parent in ours and pid != without} - ours:
        ours |= found
    return sum(spent[pid] for pid in ours)


def timed(work: dict[str, Callable[[], object]], rounds: int) -> list[tuple[str, float, float]]:
    """Return (name, CPU seconds, wall seconds) of each function. The values are medians of rounds in which the functions run one after the
    other.
    """
    taken: dict[str, list[tuple[float, float]]] = {name: [] for name in work}
    for _ in range(rounds):
        for name, each in work.items():
            began, started = tree_cpu_s(), time.perf_counter()
            each()
            wall = time.perf_counter() - started
            taken[name].append((tree_cpu_s() - began, wall))
    return [(name, statistics.median(cpu for cpu, _ in runs), statistics.median(wall for _, wall in runs)) for name, runs in taken.items()]


def slope(spark: Any, log: str, rounds: int) -> list[tuple[str, float, float]]:
    """Run `kops scan verify` on more and more segments of the size of LOG."""
    kind, size = Path(log).parent.parent.name.split("-")[:2]
    folders = {count: str(linked(kind, int(size), count)) for count in (1, 2, 4, 8, 16)}

    def scan(folder: str) -> None:
        assert not scan_verify(spark, [folder]).has_problems

    for _ in range(WARM):
        scan(folders[4])
    return timed({f"{count} segments": partial(scan, folder) for count, folder in folders.items()}, rounds)


def saving(question: str, spark: Any, log: str) -> tuple[Callable[[], None], Callable[[], None]]:
    """Return the work of kops and that of Spark for a question whose answer is written: `recover` or `carve`."""
    everything = os.path.dirname(os.path.dirname(log))
    out = Path(everything).with_name("recovered" if question == "recover" else "carved-by-scan")

    def recover_here() -> None:
        assert not recover([everything], out, force=True).lossy

    def recover_on_spark() -> None:
        assert not scan_recover(spark, [everything], out, force=True).lossy

    def carve_here() -> None:
        assert carve([log], out, force=True).logs

    def carve_on_spark() -> None:
        assert scan_carve(spark, [log], out, force=True).logs

    return (recover_here, recover_on_spark) if question == "recover" else (carve_here, carve_on_spark)


def main() -> None:
    """Answer one question."""
    question, log, master, rounds = sys.argv[1], sys.argv[2], sys.argv[3], int(sys.argv[4])
    everything = os.path.dirname(os.path.dirname(log))
    level = "deep" if question == "deep" else "crc"
    spark = spark_session(master, settings={"spark.driver.memory": "2g"}, light=question != "records")
    spark.range(1).rdd.map(lambda row: row).collect()  # the first Python worker
    if question in ("recover", "carve"):
        ours, sparks = saving(question, spark, log)
    elif question == "tasks":

        def ours() -> None:
            assert not scan_verify(spark, [everything], level, task_bytes=1 << 40).has_problems

        def sparks() -> None:
            assert not scan_verify(spark, [everything], level, task_bytes=1).has_problems
    elif question != "records":

        def ours() -> None:
            assert not verify([everything], level).has_problems

        def sparks() -> None:
            assert not scan_verify(spark, [everything], level).has_problems
    else:
        register(spark)
        logs = [(str(path), path.stat().st_size) for path in sorted(Path(everything).glob("*/*.log"))]
        parts = [(Part(0, path, 0, size), Source(path, "bench", 0, 0, "live", size)) for path, size in logs]
        columns = ("key", "value", "topic", "partition", "offset", "timestamp", "timestampType")

        def ours() -> None:
            assert sum(batch.num_rows for batch in read_parts(OsFiles(read_only=True), parts, Wanted("records", columns)))

        frame = spark.read.format("kafkalog").schema(
            "key binary, value binary, topic string, partition int, offset bigint, timestamp timestamp, timestampType int"
        )

        def sparks() -> None:
            frame.load(everything).write.format("noop").mode("overwrite").save()

    if question == "slope":
        print(json.dumps(slope(spark, log, rounds)))
        spark.stop()
        return
    for _ in range(WARM):
        sparks()
    ours()
    other = "few tasks" if question == "tasks" else "without Spark"
    work: dict[str, Callable[[], object]] = {f"Spark {master}": sparks, other: ours}
    if question == "records":
        work["kafka-dump-log"] = lambda: run(dump_log_segments("--files", log))
    figures = timed(work, rounds)
    spark.stop()
    print(json.dumps(figures))


if __name__ == "__main__":
    main()
