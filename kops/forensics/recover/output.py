"""Prepares the output directory of a recovery or of carving, and finds the partitions that an earlier recovery completed in it."""

from __future__ import annotations

import json
import os
import posixpath
from collections.abc import Iterable
from typing import Any, Final

from kops.errors import UsageError
from kops.files import Files
from kops.forensics.recover.copies.merge import Conflict
from kops.forensics.recover.report import RecoveredPartition, RecoverReport
from kops.forensics.recover.write import PARTIAL, remove_tree

__all__ = ["REPORT_FILE", "SCHEMA", "make_out", "partition_from", "prepare_out", "refuse_overlap", "write_report"]

SCHEMA: Final = "kops.recover/v1"
REPORT_FILE: Final = "kops-recover.json"


def refuse_overlap(files: Files, paths: Iterable[str | os.PathLike[str]], target: str) -> None:
    """Reject an output inside an input, and an input inside the output, which --force could replace. Raises UsageError.

    Symbolic links are followed.
    """
    out = os.path.realpath(target)
    for path in paths:
        name = os.fspath(path)
        real = os.path.realpath(files.absolute(name))
        if out == real or out.startswith(real.rstrip("/") + "/"):
            raise UsageError(f"--out {target} is inside {name}, which is only read; choose a directory outside")
        if real.startswith(out.rstrip("/") + "/"):
            raise UsageError(f"{name} is inside --out {target}; choose another directory")


def prepare_out(files: Files, target: str, report: RecoverReport, *, force: bool, resume: bool) -> dict[str, RecoveredPartition]:
    """Make the directory. Returns the partitions that an earlier run completed."""
    names = make_out(files, target, may_have_files=force or resume)
    return _earlier(files, target, report) if resume and names else {}


def make_out(files: Files, target: str, *, may_have_files: bool) -> list[str]:
    """Make the directory with its parents, or remove from it what an interrupted run did not complete; -> the names that it had.

    Raises UsageError if it is a file, or if it must be empty and is not.
    """
    missing: list[str] = []
    while not files.exists(path := posixpath.dirname(missing[0]) if missing else target):
        missing.insert(0, path)
    for path in missing:
        files.mkdir(path)
    if not files.stat(target).is_dir:
        raise UsageError(f"--out {target}: is a file; a directory is needed")
    names = files.list(target)
    if names and not may_have_files:
        raise UsageError(f"--out {target}: is not empty; --resume continues an interrupted run, --force writes into it anyway")
    for name in names:
        if name.endswith(PARTIAL):
            remove_tree(files, posixpath.join(target, name))
    return names


def _earlier(files: Files, target: str, report: RecoverReport) -> dict[str, RecoveredPartition]:
    path = posixpath.join(target, REPORT_FILE)
    if not files.exists(path):
        raise UsageError(f"--out {target}: there is no {REPORT_FILE} of an earlier run, so there is nothing to resume")
    try:
        document = json.loads(files.read_all(path))
        same = (document["as"], document["renumbered"]) == (report.shape, report.renumbered)
        rows = [row for row in document["partitions"] if row["complete"]]
        found = {row["partition"]: partition_from(row) for row in rows if files.exists(row["output"])}
    except (ValueError, KeyError, TypeError) as error:
        raise UsageError(f"{path}: not the report of an earlier run ({error!r})") from error
    if not same:
        raise UsageError(f"{path}: the earlier run wrote --as {document['as']}; resume it with the same options")
    return found


def partition_row(data: bytes) -> RecoveredPartition:
    """Read the result of a partition that a task wrote as JSON. Raises ValueError, KeyError or TypeError if it is not one."""
    return partition_from(json.loads(data))


def partition_from(row: dict[str, Any]) -> RecoveredPartition:
    """Return the result for a row of a report. Raises KeyError, TypeError or ValueError if it is not one."""
    return RecoveredPartition(
        row["partition"],
        row["output"],
        row["sources"],
        row["batches"],
        row["records"],
        row["bytes"],
        row["first_offset"],
        row["last_offset"],
        [(first, last) for first, last in row["lost"]],
        [(first, last) for first, last in row["gaps"]],
        row["damaged"],
        row["notes"],
        row["compacted"],
        row["complete"],
        [
            Conflict(each["first_offset"], each["last_offset"], each["why"], each["kept_epoch"], each["other_epoch"], each["copy"])
            for each in row["conflicts"]
        ],
    )


def write_report(files: Files, report: RecoverReport) -> None:
    """Write the report into the output directory."""
    document = {"schema": SCHEMA, **report.to_json()}
    files.write_atomic(posixpath.join(report.out, REPORT_FILE), json.dumps(document, indent=1).encode() + b"\n")
