"""The time and memory of a scan's driver without Spark: listing, planning and judging many segments (100,000 by default).

    python -m tests.bench.planning [SEGMENTS [JOB]]

JOB is verify (the default), stats, keys, grep, timeline, producers, offsets, txns, diff, recover, or records (the data source). All but
verify run as they are, with a stand-in for Spark that runs their tasks here, on files that are empty. So the answers are small ones.

The listing is simulated. The brokers, with 50 segments in each partition, exist only in memory. Each log has the size of a segment of 1 GiB
and an offset index. The results are those of intact segments. So the figures are those of kops without Spark and without files. Each line
has the step, CPU seconds and peak memory in MiB.
"""

from __future__ import annotations

import errno
import os
import resource
import sys
import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import ExitStack
from functools import partial
from typing import Any
from unittest.mock import patch

from kops.files import FileStat, MemoryFiles, Mode
from kops.files.tree import TreeFile
from kops.forensics.questions.search import Search
from kops.forensics.verify.facts.facts import CRC, SegmentFacts
from kops.forensics.verify.facts.window import Head
from kops.forensics.verify.groups import Groups, verify_groups
from kops.forensics.verify.partition import SegmentResult, SegmentTask
from kops.forensics.verify.parts import TASK_BYTES
from kops.spark.jobs.verify import plan_parts
from kops.spark.packed import PackedResults
from tests.bench.data import FIRST_TIMESTAMP

SEGMENTS_A_PARTITION = 50
PARTITIONS_A_BROKER = 500
CORES = 400


def main() -> None:
    """List, plan and judge, and print the figures."""
    segments = int(sys.argv[1]) if len(sys.argv) > 1 else 100_000
    job = sys.argv[2] if len(sys.argv) > 2 else "verify"
    copies = 2 if job in ("diff", "recover") else 1
    listing = Listing(segments, copies=copies)
    paths = [f"/b{number}" for number in range(listing.brokers)]
    print(f"{segments:,} segments of 1 GiB, {listing.brokers} brokers")
    began, before = time.process_time(), peak_mib()
    if job != "verify":
        run_job(job, listing, paths)
        show(job, began, before)
        return
    groups = Groups(paths, CRC, listing)
    show(f"list (verify), {len(groups)} groups", began, before)
    began, before = time.process_time(), peak_mib()
    spent: list[float] = []
    report = verify_groups(groups, CRC, partial(simulated, listing, spent=spent), listing)
    assert report.segments == segments and not report.findings
    show("plan, divide into tasks and judge", began + sum(spent), before)
    print(f"  {'(and the results were made and packed in':50} {sum(spent):6.1f} s CPU)")


def run_job(job: str, listing: Listing, folders: Sequence[str]) -> None:
    """Run a job on this listing, up to the DataFrame or the answers that its driver has."""
    from kops.spark.jobs import diff, grep, offsets, producers, recover, replicas, statistics, timeline, txns
    from kops.spark.source import data_source
    from kops.spark.source.options import read_options

    spark: Any = NoSpark()
    jobs: dict[str, Callable[[], object]] = {
        "stats": lambda: statistics.collect_stats(spark, folders, 0),
        "keys": lambda: statistics.count_rows(spark, folders, (), TASK_BYTES, None),
        "grep": lambda: grep.search_rows(spark, folders, Search(), (), None, TASK_BYTES, None),
        "timeline": lambda: timeline.events_frame(spark, folders),
        "producers": lambda: producers.producers(spark, folders),
        "offsets": lambda: offsets.offsets(spark, folders),
        "txns": lambda: txns.scan_txns(spark, folders),
        "diff": lambda: diff.scan_diff(spark, folders),
        "recover": lambda: recover.scan_recover(spark, folders, "/out", plan=True),
        "records": lambda: data_source.KafkaLogReader(read_options({"path": ",".join(folders)}), ("value",)).partitions(),
    }
    with ExitStack() as patched:
        for module in (diff, grep, offsets, producers, recover, replicas, statistics, timeline, txns, data_source):
            for name in {"driver_files", "task_files"} & set(vars(module)):
                patched.enter_context(patch.object(module, name, lambda *_: listing))
        jobs[job]()


class NoSpark:
    """A stand-in for Spark's session that runs tasks here, and makes no rows."""

    defaultParallelism = CORES  # noqa: N815 - Spark's name
    appName = "kops"  # noqa: N815 - Spark's name

    def __init__(self) -> None:
        self.sparkContext = self.dataSource = self.read = self
        self.items: Iterable[Any] = ()

    def getLocalProperty(self, _: str) -> None:  # noqa: N802 - Spark's name
        """No property is set."""

    def setLocalProperty(self, *_: object) -> None:  # noqa: N802 - Spark's name
        """No property is needed."""

    def parallelize(self, items: list[Any], _: int) -> NoSpark:
        """The input of a stage."""
        self.items = items
        return self

    def map(self, function: Callable[[Any], Any]) -> NoSpark:
        """The work of a stage."""
        self.items = map(function, self.items)
        return self

    def collect(self) -> list[Any]:
        """Run the stage."""
        return list(self.items)

    def register(self, source: type[Any]) -> None:
        """Keep the source of a job's rows, with its plan."""
        self.source = source

    def format(self, _: str) -> NoSpark:
        """The only source."""
        return self

    def load(self) -> type[Any]:
        """Its rows would come from here."""
        return self.source


def simulated(listing: Listing, _which: str, tasks: list[SegmentTask], *, spent: list[float] | None = None) -> PackedResults:
    """Divide a group into tasks, and return the results that intact segments have. Nothing is read. `spent` gets the seconds of the
    latter.
    """
    plan_parts(listing, tasks, CORES, TASK_BYTES)
    began = time.process_time()
    results = PackedResults()
    for task in tasks:
        last = task.base_offset + 999_999
        heads = (
            Head(0, 16384, task.base_offset, task.base_offset + 99, 100, 2),
            Head(task.size - 16384, 16384, last - 99, last, 100, 2),
        )
        facts = SegmentFacts(0, task.size, task.size, task.size, 65536, 1_000_000, *heads, task.base_offset, last, {2}, FIRST_TIMESTAMP)
        results.add(SegmentResult(task, facts))
    if spent is not None:
        spent.append(time.process_time() - began)
    return results


def show(what: str, began: float, before: int) -> None:
    """Print one line."""
    print(f"  {what:50} {time.process_time() - began:6.1f} s CPU  {peak_mib() - before:5} MiB more, {peak_mib()} MiB")


def peak_mib() -> int:
    """Return the peak memory of this process."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss >> 10


class Listing(MemoryFiles):
    """The names and sizes of the brokers' files. Their contents are empty."""

    def __init__(self, segments: int, partitions_a_broker: int = PARTITIONS_A_BROKER, copies: int = 1) -> None:
        super().__init__()
        self.listed = 0
        self.copies = copies
        self.nothing = MemoryFiles()
        self.nothing.open("/empty", "new").close()
        self.partitions_a_broker = partitions_a_broker
        self.partitions = -(-segments // SEGMENTS_A_PARTITION // copies)
        self.brokers = -(-self.partitions // partitions_a_broker) * copies
        self.names = sorted(
            f"{number * 1_000_000:020}{end}" for number in range(SEGMENTS_A_PARTITION) for end in (".index", ".log", ".timeindex")
        )

    def list(self, path: str) -> list[str]:
        """Return the names in a broker's directory or in that of a partition."""
        broker, _, partition = path.removeprefix("/b").partition("/")
        if partition:
            return self.names
        first = int(broker) // self.copies * self.partitions_a_broker
        numbers = range(first, min(first + self.partitions_a_broker, self.partitions))
        return [f"t-{number}" if number else "__consumer_offsets-0" for number in numbers]

    def stat(self, path: str) -> FileStat:
        """Return the type and size that belong to a name."""
        self.listed += 1
        # Numbers of their own, which take memory as those of a file system do.
        if path.endswith(".log"):
            return FileStat((1 << 30) - self.listed % 1000, 1_700_000_000_000 + self.listed, False, 0o644)
        if path.endswith("index"):
            return FileStat((2 << 20) + self.listed % 1000 * 8, 1_700_000_000_000 + self.listed, False, 0o644)
        if "." in path:
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), path)
        return FileStat(0, 0, True, 0o755, is_file=False)

    def open(self, path: str, mode: Mode = "r") -> TreeFile:
        """Return an empty file."""
        return self.nothing.open("/empty", mode)

    def expect(self, known: object) -> None:
        """Nothing changes."""

    def absolute(self, path: str) -> str:
        """The path is absolute."""
        return path

    def exists(self, path: str) -> bool:
        """Return whether `stat` knows the path."""
        return path.endswith((".log", "index")) or "." not in path


if __name__ == "__main__":
    main()
