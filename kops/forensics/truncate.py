"""Truncates a partition's log at an offset, with a plan, for `kops log truncate`.

The log engine itself truncates a copy in memory (`UnifiedLog.truncate_to` on `OverlayFiles`). The differences are the steps of the plan.
A journal (`kops.forensics.plans.journal`) carries them out and keeps everything that is removed, so a rollback can undo them. Checkpoints
of the log directory with offsets above the cut are lowered to it; the cleaner's is lowered to the last segment, which is never clean.
"""

from __future__ import annotations

import posixpath
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from typing import Any, Final

from kops.config import TopicConfig
from kops.config.values.java import LONG_MAX
from kops.errors import UsageError
from kops.files import Files, OsFiles, OverlayFiles
from kops.forensics.inventory.tree import open_partition
from kops.forensics.lines.appending import partition_state
from kops.forensics.lines.importing import open_log, read_checkpoint
from kops.forensics.plans.journal import apply_plan, locked, resume, unfinished_journals
from kops.forensics.plans.plan import Copy, Data, Part, Plan, Put, Remove
from kops.records import Damage, scan
from kops.storage.formats.checkpoints import write_offset_checkpoint
from kops.storage.formats.names import (
    CLEANER_OFFSET_CHECKPOINT,
    LOG_START_OFFSET_CHECKPOINT,
    RECOVERY_POINT_CHECKPOINT,
    REPLICATION_OFFSET_CHECKPOINT,
)

CHECKPOINTS: Final = (RECOVERY_POINT_CHECKPOINT, REPLICATION_OFFSET_CHECKPOINT, LOG_START_OFFSET_CHECKPOINT)
_LATER_MS: Final = 1 << 50


@dataclass(slots=True)
class TruncateReport:
    """The records that a truncation removes. `first_lost` to `last_lost` are log offsets, None if nothing is removed. Times are ms.

    `log_end_offset` is the end before, `new_end_offset` the end afterwards. The latter is below `offset` if `offset` is in the middle of a
    batch, because batches are removed whole. `damaged` counts damaged places in the removed part.
    """

    directory: str
    offset: int
    log_start_offset: int
    log_end_offset: int
    new_end_offset: int
    first_lost: int | None = None
    last_lost: int | None = None
    batches: int = 0
    records: int = 0
    bytes: int = 0
    max_timestamp: int = -1
    damaged: int = 0
    segments: list[str] = field(default_factory=list)
    journal: str | None = None

    def to_json(self) -> dict[str, Any]:
        """The document `kops.truncate/v1` without its schema and plan."""
        return asdict(self)


def plan_truncate(
    files: Files, directory: str, offset: int, config: TopicConfig, *, now_ms: Callable[[], int]
) -> tuple[Plan, TruncateReport]:
    """Return the steps that cut the log at `offset`, and the records that they lose. Writes nothing.

    UsageError for an offset below the log's start, NotFoundError, KopsError if a broker could not open the log, OSError.
    """
    directory = files.absolute(directory)
    state = partition_state(files, directory)
    overlay = OverlayFiles(files, now_ms=now_ms)
    # Ignore the recovery point: a recovery would cut more than requested.
    log, scheduler = open_log(overlay, directory, config, now_ms, log_start_offset=state.log_start_offset, recovery_point=LONG_MAX)
    if offset < log.log_start_offset:
        raise UsageError(f"--to {offset}: {directory} begins at offset {log.log_start_offset}")
    plan = Plan(posixpath.dirname(directory))
    report = TruncateReport(directory, offset, log.log_start_offset, log.log_end_offset, log.log_end_offset)
    if offset >= log.log_end_offset:
        return plan, report
    _count_lost(files, report)
    # Cut at the beginning of the batch that holds the offset, so that snapshot and epochs fit the real end of the log.
    report.new_end_offset = offset if report.first_lost is None else min(offset, report.first_lost)
    log.truncate_to(report.new_end_offset)
    log.close()
    scheduler.run_due(now_ms() + _LATER_MS)
    _add_steps(files, overlay, directory, plan)
    limits = dict.fromkeys(CHECKPOINTS, report.new_end_offset) | {CLEANER_OFFSET_CHECKPOINT: log.segments.active.base_offset}
    _add_checkpoints(files, plan, state.topic_partition, limits)
    if report.first_lost is not None and report.first_lost < offset:
        plan.notes.append(f"offset {offset} is in the batch that begins at {report.first_lost}; batches are removed whole")
    return plan, report


def truncate(
    directory: str,
    offset: int,
    config: TopicConfig,
    *,
    files: Files | None = None,
    journal: str | None = None,
    now_ms: Callable[[], int],
) -> tuple[Plan, TruncateReport]:
    """Plan and apply, under the lock of the log directory. An interrupted repair or truncation is finished first.

    `journal`: the directory for journals (default: next to the log directory). Raises LockHeldError, and what `plan_truncate` raises.
    """
    writer = files if files is not None else OsFiles()
    log_dir = posixpath.dirname(writer.absolute(directory))
    with locked(writer, log_dir):
        for found in unfinished_journals(writer, log_dir, journal):
            resume(writer, found)
        plan, report = plan_truncate(writer, directory, offset, config, now_ms=now_ms)
        done = apply_plan(writer, plan, journal=journal, now_ms=now_ms)
        report.journal = done.path if done is not None else None
    return plan, report


def _count_lost(files: Files, report: TruncateReport) -> None:
    segments = open_partition(report.directory, files).live_segments
    for i, segment in enumerate(segments):
        if segment.log is None or (i + 1 < len(segments) and segments[i + 1].base_offset <= report.offset):
            continue
        before = report.bytes
        with files.open(segment.log.path) as log:
            for item in scan(log, check_crc=False):
                if isinstance(item, Damage):
                    report.damaged += report.first_lost is not None
                elif report.first_lost is not None or item.last_offset >= report.offset:
                    report.first_lost = item.base_offset if report.first_lost is None else report.first_lost
                    report.last_lost = item.last_offset
                    report.batches += 1
                    report.bytes += item.size
                    report.max_timestamp = max(report.max_timestamp, item.max_timestamp)
                    if not item.is_control:
                        report.records += sum(1 for _ in item.iterate()) if item.count is None else max(0, item.count)
        if report.bytes > before:
            report.segments.append(segment.log.name)


def _add_steps(files: Files, overlay: OverlayFiles, directory: str, plan: Plan) -> None:
    changes = overlay.changes(directory)
    for path in (*changes.changed, *changes.created):
        size = overlay.stat(path).size
        parts: tuple[Part, ...]
        if path.endswith(".log") and path in changes.changed:
            parts = (Copy(path, 0, size),)
            plan.steps.append(Put(path, "cut-log", "the part at and above the offset is removed", False, parts, files.stat(path).mtime_ms))
        else:
            parts = (Data(overlay.read_all(path)),)
            plan.steps.append(Put(path, "write-side-file", "it must agree with the cut log", True, parts))
    for path in changes.removed:
        plan.steps.append(Remove(path, "remove-file", "it belongs to the part above the offset", not path.endswith(".log")))


def _add_checkpoints(files: Files, plan: Plan, name: object, limits: dict[str, int]) -> None:
    for checkpoint, end in limits.items():
        offsets = read_checkpoint(files, plan.log_dir, checkpoint)
        changed = {key: min(value, end) if key == name else value for key, value in offsets.items()}
        if changed != offsets:
            path = posixpath.join(plan.log_dir, checkpoint)
            parts = (Data(write_offset_checkpoint(changed)),)
            plan.steps.append(Put(path, "write-checkpoint", "it must not be beyond the log's end", True, parts))
