"""Verifies so many segments that their plan and results do not fit into memory at once: some log directories after the others.

The paths are listed once. What the listing says about a log directory is kept packed, in some 50 bytes a segment, until its turn. Then
its segments are planned, read and judged, and only the findings stay. So memory depends on the largest group, not on the number of
segments. At level full the log directories are also compared with each other. That needs something of each partition, but of no segment.

The verdict is that of `kops.forensics.verify.run`, whose functions do the work.
"""

from __future__ import annotations

import pickle
import zlib
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from os import PathLike, fspath
from os.path import dirname
from typing import Any, Final

from kops.files import Files
from kops.forensics.findings.finding import sort_findings
from kops.forensics.inventory.tree import Inventory, LogDir, PartitionDir, refuse_foreign, walk_paths
from kops.forensics.verify.checks.dirs import DirContext, check_dirs
from kops.forensics.verify.facts.facts import FULL
from kops.forensics.verify.partition import SegmentResult, SegmentTask
from kops.forensics.verify.run import VerifyReport, check_level, check_partitions, count_results, plan_inventory

GROUP_SEGMENTS: Final = 20_000
"""Log directories are put together up to this number of segments. One that has more is a group of its own."""
_PACKED_SEGMENTS: Final = 500
_FASTEST: Final = 1

Read = Callable[[str, list[SegmentTask]], Mapping[str, SegmentResult]]
"""Reads the segments of a group. The text says which group of how many it is; it is empty if there is one group only."""


class Groups:
    """The log directories below some paths, in groups. What belongs to no log directory is in the last group.

    Raises UsageError for an unknown level and for a path without any of Kafka's files, NotFoundError for a missing path.
    """

    def __init__(self, paths: Sequence[str | PathLike[str]], level: str, files: Files, most: int = GROUP_SEGMENTS) -> None:
        """List the paths."""
        check_level(level)
        self.paths = [fspath(path) for path in paths]
        self._packed: deque[list[_Packed]] = deque()
        self._outlines: list[bytes] = []
        names, group = Inventory(), Inventory()
        taken = 0
        for piece in walk_paths(paths, files):
            names.log_dirs += [LogDir(each.path) for each in piece.log_dirs]
            if level == FULL:
                self._outlines += [_pack(_outline(each)) for each in piece.log_dirs]
            count = sum(len(partition.segments) for each in piece.log_dirs for partition in each.partitions)
            if taken and count and taken + count > most:
                self._close(group)
                taken = 0
            for name in ("log_dirs", "loose_partitions", "loose_files", "problems"):
                getattr(group, name).extend(getattr(piece, name))
            names.loose_partitions += piece.loose_partitions
            names.loose_files += piece.loose_files
            names.problems += piece.problems
            piece.log_dirs.clear()
            taken += count
            if taken >= most:  # Now, because the next log directory takes memory, too.
                self._close(group)
                taken = 0
        listed = {each.path for each in names.log_dirs}
        if any(dirname(dirname(each.path)) in listed for each in names.loose_files):
            # A file was named by itself, and with its directory, too. The plan of both together knows that it is one file.
            group.log_dirs[:0] = [each.unpack() for packed in self._packed for each in packed]
            self._packed.clear()
        self._last: Inventory | None = None if self._packed and group == Inventory() else group
        refuse_foreign(paths, names, files)

    def __len__(self) -> int:
        """The number of groups that were not taken yet."""
        return len(self._packed) + (self._last is not None)

    def take(self) -> Inventory:
        """Return the next group, which is no longer kept here."""
        if self._packed:
            return Inventory([each.unpack() for each in self._packed.popleft()])
        assert self._last is not None, "all groups were taken"
        last, self._last = self._last, None
        return last

    def outlines(self) -> list[LogDir]:
        """All log directories at level full, without segments."""
        return [_unpack(each) for each in self._outlines]

    def _close(self, group: Inventory) -> None:
        self._packed.append([_Packed(each) for each in group.log_dirs])
        group.log_dirs.clear()


class _Packed:
    """A log directory in little memory. To pack a few partitions at a time takes little, too."""

    def __init__(self, log_dir: LogDir) -> None:
        self._rest = _pack(replace(log_dir, partitions=[]))
        self._partitions: list[bytes] = []
        some: list[PartitionDir] = []
        count = 0
        for each in log_dir.partitions:
            some.append(each)
            count += len(each.segments)
            if count >= _PACKED_SEGMENTS:
                self._partitions.append(_pack(some))
                some, count = [], 0
        self._partitions.append(_pack(some))

    def unpack(self) -> LogDir:
        found: LogDir = _unpack(self._rest)
        for each in self._partitions:
            found.partitions += _unpack(each)
        return found


def verify_groups(groups: Groups, level: str, read: Read, files: Files) -> VerifyReport:
    """Verify one group after the other. `read` reads the segments of one, perhaps in other processes."""
    report = VerifyReport(groups.paths, level)
    contexts: list[DirContext] = []
    count = len(groups)
    for number in range(1, count + 1):
        which = f"{number} of {count}" if count > 1 else ""
        contexts += _verify_group(report, groups.take(), partial(read, which), files)
    if level == FULL:
        report.findings += check_dirs(groups.outlines(), contexts, files)
    report.findings = sort_findings(report.findings)
    return report


def _verify_group(
    report: VerifyReport, inventory: Inventory, read: Callable[[list[SegmentTask]], Mapping[str, SegmentResult]], files: Files
) -> list[DirContext]:
    """Add what one group has to the report. Returns what is compared between log directories."""
    plan = plan_inventory(report.paths, report.level, inventory, files)
    results = read(plan.tasks)
    count_results(report, results)
    report.findings += check_partitions(plan, results, files)
    return plan.dirs if report.level == FULL else []


def _outline(log_dir: LogDir) -> LogDir:
    """What is compared between log directories: names, and files that belong to no segment."""
    return replace(log_dir, partitions=[replace(each, segments=[]) for each in log_dir.partitions])


def _pack(value: LogDir | list[PartitionDir]) -> bytes:
    return zlib.compress(pickle.dumps(value, pickle.HIGHEST_PROTOCOL), _FASTEST)


def _unpack(data: bytes) -> Any:
    return pickle.loads(zlib.decompress(data))
