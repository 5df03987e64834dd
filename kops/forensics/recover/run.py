"""Recovery: copies every intact batch of damaged logs to another place. The input is not changed.

`recover` reads log directories, partition directories or single files, also several copies of the same partition (other replicas,
leftovers). It takes every readable batch (`kops.forensics.recover.copies`) and writes it at its offset, as segments that Apache Kafka
opens, as jsonl, or as Parquet (`kops.forensics.recover.write`). Each partition gets its name when it is complete. `kops-recover.json` in
the output lists the offsets that were kept and lost. A run with `resume` continues from it.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from typing import Final, Literal

from kops.errors import UsageError
from kops.files import Files, OsFiles
from kops.forensics.recover.copies.disk import PatientFiles
from kops.forensics.recover.jobs import find_jobs
from kops.forensics.recover.output import SCHEMA, prepare_out, write_report
from kops.forensics.recover.partition import Job, salvage_partition
from kops.forensics.recover.report import RecoverReport
from kops.forensics.recover.tables import require_pyarrow
from kops.forensics.recover.write import write_partition

__all__ = ["SCHEMA", "SHAPES", "Shape", "recover"]

Shape = Literal["segment", "jsonl", "parquet"]
SHAPES: Final[tuple[Shape, ...]] = ("segment", "jsonl", "parquet")


def recover(
    paths: Sequence[str | os.PathLike[str]],
    out: str | os.PathLike[str],
    *,
    shape: Shape = "segment",
    renumber: bool = False,
    leftovers: bool = True,
    force: bool = False,
    resume: bool = False,
    files: Files | None = None,
    out_files: Files | None = None,
    on_bytes: Callable[[int], None] | None = None,
    on_total: Callable[[int], None] | None = None,
) -> RecoverReport:
    """Write every intact batch of `paths` below `out`; returns the report, which is also written there.

    `shape`: `segment` (folders that a broker opens), `jsonl` or `parquet`. `renumber`: close the gaps instead of keeping each batch's
    offset. `leftovers`: also look into `.swap`, `.cleaned` and `.deleted` files. `resume`: keep what an earlier run completed. `on_total`
    gets the number of bytes to read, `on_bytes` each step. Raises NotFoundError, UsageError (the output is not empty, is inside the input,
    ...) and OSError. On KeyboardInterrupt the output so far is made usable, the report says so, and `interrupted` is set.
    """
    source_files = files if files is not None else OsFiles(read_only=True)
    writable = out_files if out_files is not None else OsFiles()
    target = writable.absolute(os.fspath(out))
    if shape not in SHAPES:
        raise UsageError(f"--as {shape}: must be one of {', '.join(SHAPES)}")
    if shape == "parquet":
        require_pyarrow()
    jobs, skipped, unreadable = find_jobs(paths, target, source_files, leftovers=leftovers)
    report = RecoverReport(target, shape, renumber, skipped=skipped, unreadable=unreadable)
    done = prepare_out(writable, target, report, force=force, resume=resume)
    if on_total is not None:
        on_total(sum(job.size for job in jobs))
    patient = PatientFiles(source_files)
    for job in jobs:
        if job.name in done:
            report.partitions.append(done[job.name])
            continue
        if not _one(patient, writable, report, job, on_bytes):
            report.interrupted = True
            break
        write_report(writable, report)
    write_report(writable, report)
    return report


def _one(files: PatientFiles, out_files: Files, report: RecoverReport, job: Job, on_bytes: Callable[[int], None] | None) -> bool:
    """Write one partition. Returns False if it was interrupted; the complete part of it is written nevertheless."""
    try:
        entry, runs = salvage_partition(files, job, on_bytes)
        is_undisturbed = write_partition(files, out_files, report, entry, runs, job.metadata)
    except KeyboardInterrupt:
        return False  # The interruption did not come while batches were written, which leaves a usable partition.
    report.partitions.append(entry)
    return entry.complete and is_undisturbed
