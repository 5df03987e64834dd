"""Recovers partitions in tasks that may fail, run twice, or run at the same time: the work of `kops scan recover` on an executor.

A task writes a partition under a temporary name, then its result as JSON next to the output, then renames the partition into its place. So
a partition that is in its place is complete and has its result. In a store, where a rename uploads one object after the other, the result
comes last: it says that the partition is complete. A second attempt finds both and discards its own. Nothing is replaced: before any task
starts, the driver removes the partitions that a new run will write again.
"""

from __future__ import annotations

import json
import posixpath
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from kops.errors import KopsError
from kops.files import Files
from kops.files.urls import is_url
from kops.forensics.recover.copies.batches import batches
from kops.forensics.recover.copies.disk import PatientFiles
from kops.forensics.recover.copies.runs import Run
from kops.forensics.recover.output import partition_row
from kops.forensics.recover.partition import Job, salvage_partition
from kops.forensics.recover.report import RecoveredPartition, RecoverReport
from kops.forensics.recover.write import PARTIAL, count_batch, output_path, remove_left, remove_tree, short_name, write_partial

__all__ = ["RESULTS", "Order", "begin_results", "end_results", "plan_partition", "recover_partition", "results_so_far"]

RESULTS: Final = "kops-recover.results"
"""The directory of the results of single partitions, until the report has all of them."""


@dataclass(frozen=True, slots=True)
class Order:
    """The order for a task: what to do with its partitions. It has plain values only, because it is pickled."""

    out: str
    shape: str
    renumbered: bool = False
    is_plan: bool = False

    def report(self) -> RecoverReport:
        """An empty report of this order."""
        return RecoverReport(self.out, self.shape, self.renumbered)


def recover_partition(
    files: Files,
    out_files: Files,
    order: Order,
    job: Job,
    attempt: str,
    salvaged: tuple[RecoveredPartition, list[Run]] | None = None,
) -> RecoveredPartition:
    """Write one partition. `attempt` is a name that no other attempt uses. `salvaged`: what `salvage_partition` has returned.

    A failed read or write is in the result (`failure`), so that one bad disk does not end the work on all others.
    """
    report = order.report()
    output = output_path(report, job.name)
    partial = posixpath.join(order.out, f"{short_name(job.name)}.{attempt}{PARTIAL}")
    try:
        known = known_result(out_files, order, job.name)
        if known is not None:
            return known
        patient = PatientFiles(files)
        entry, runs = salvaged or salvage_partition(patient, job)
        entry.output = output
        write_partial(patient, out_files, report, entry, runs, job.metadata, partial)
        if not is_url(order.out):
            write_result(out_files, order, entry, attempt)
        put_in_place(out_files, partial, output)
        out_files.sync_dir(order.out)
        if is_url(order.out):
            write_result(out_files, order, entry, attempt)
    except (OSError, KopsError) as error:
        remove_left(out_files, partial)
        return failed_partition(order, job, error)
    return entry


def failed_partition(order: Order, job: Job, error: OSError | KopsError) -> RecoveredPartition:
    """The result of a partition that could not be read or written."""
    sources = [path for source in job.sources for path in source.paths]
    failed = RecoveredPartition(job.name, output_path(order.report(), job.name), sources, complete=False)
    failed.failure = str(error)
    return failed


def plan_partition(
    files: Files, order: Order, job: Job, salvaged: tuple[RecoveredPartition, list[Run]] | None = None
) -> RecoveredPartition:
    """Return what `recover_partition` would write and lose. Everything is read, nothing is written."""
    patient = PatientFiles(files)
    try:
        entry, runs = salvaged or salvage_partition(patient, job)
        _count(patient, entry, runs, order.renumbered)
    except (OSError, KopsError) as error:
        entry = RecoveredPartition(job.name, "", [path for source in job.sources for path in source.paths], complete=False)
        entry.failure = str(error)
    entry.output = output_path(order.report(), job.name)
    return entry


def _count(files: Files, entry: RecoveredPartition, runs: list[Run], renumbered: bool) -> None:
    for batch in batches(files, runs, renumbered):
        count_batch(entry, batch)


def put_in_place(files: Files, partial: str, output: str) -> None:
    """Rename it into its place, unless another attempt has done so. A directory can't replace one that is not empty; a file replaces an
    equal one."""
    try:
        files.rename(partial, output)
    except OSError:
        if is_url(output) or not files.exists(output):
            raise  # What is in a store may be half of it.
        remove_tree(files, partial)


# Results of single partitions.


def _result_path(out: str, name: str) -> str:
    return posixpath.join(out, RESULTS, f"{short_name(name)}.json")


def write_result(files: Files, order: Order, entry: RecoveredPartition, attempt: str) -> None:
    """Write to a temporary name first, because another attempt may write the same result at the same time."""
    path = _result_path(order.out, entry.name)
    with files.open(f"{path}.{attempt}", "new") as file:
        file.write(0, json.dumps(entry.to_json()).encode())
        file.sync()
    files.rename(f"{path}.{attempt}", path)


def known_result(files: Files, order: Order, name: str) -> RecoveredPartition | None:
    """The result of a partition that is in its place."""
    path = _result_path(order.out, name)
    if not files.exists(output_path(order.report(), name)) or not files.exists(path):
        return None
    return partition_row(files.read_all(path))


def begin_results(files: Files, order: Order, names: Iterable[str], done: Iterable[str]) -> None:
    """Make the directory of results, and remove the outputs of an earlier run that are not `done`; they are written again."""
    folder = posixpath.join(order.out, RESULTS)
    if not files.exists(folder):
        files.mkdir(folder)
    kept = set(done)
    for name in names:
        if name not in kept:
            remove_left(files, output_path(order.report(), name))
            remove_left(files, _result_path(order.out, name))


def results_so_far(files: Files, order: Order) -> dict[str, RecoveredPartition]:
    """Return the results that tasks of an interrupted run completed."""
    folder = posixpath.join(order.out, RESULTS)
    if not files.exists(folder):
        return {}
    rows = [partition_row(files.read_all(posixpath.join(folder, name))) for name in files.list(folder) if name.endswith(".json")]
    return {row.name: row for row in rows if files.exists(output_path(order.report(), row.name))}


def end_results(files: Files, order: Order) -> None:
    """Remove the results, which are now in the report, and the remains of attempts that were killed.

    A superseded attempt may still be writing. It ends with an error, and the next run removes its remains.
    """
    for name in files.list(order.out):
        if name == RESULTS or name.endswith(PARTIAL):
            try:
                remove_tree(files, posixpath.join(order.out, name))
            except OSError:
                continue
