"""Evidence in other files of the offsets that a partition's logs held. With it `recover` sees losses that leave no trace in the logs.

Sources, as in `kops.forensics.verify.run`: a segment's name (it began there, and the one before reached up to it), the first entry of
leader-epoch-checkpoint (Kafka raises it when it deletes the beginning), log-start-offset-checkpoint, and the two checkpoints of the log
directory that are never both ahead of the log: recovery point and high watermark.
"""

from __future__ import annotations

import posixpath
from collections.abc import Iterable, Iterator, Sequence

from kops.errors import KopsError
from kops.files import Files
from kops.forensics.inventory.tree import Inventory, PartitionDir
from kops.forensics.recover.copies.runs import Run
from kops.forensics.verify.checks.log import PartitionContext
from kops.forensics.verify.run import surroundings
from kops.storage.formats.leader_epoch_checkpoint import read_leader_epoch_checkpoint

__all__ = ["Evidence", "evidence_of"]

Range = tuple[int, int]


class Evidence:
    """The evidence of one directory. `context` comes from the log directory's checkpoints."""

    def __init__(self, folder: PartitionDir, context: PartitionContext) -> None:
        self.folder = folder
        self.context = context

    def held(self, files: Files, runs: Sequence[Run], *, compacted: bool) -> Iterator[Range]:
        """Offset ranges (both ends inclusive) that the logs of this folder held and that `runs` may lack. The log cleaner leaves empty
        segments, too."""
        if self.folder.state:
            return
        logs = [segment.log for segment in self.folder.live_segments if segment.log is not None]
        if not logs:
            return
        bases = [log.offset or 0 for log in logs]
        known = self._first_known(files)
        if known is not None and known < bases[0]:
            yield known, bases[0] - 1
        cleaned_to = bases[-1] if compacted else self.context.cleaner_offset or 0
        for log, base, following in zip(logs, bases, bases[1:], strict=False):
            if log.size == 0 and base < following and following > cleaned_to:
                yield base, following - 1
        ours = {log.path for log in logs}
        if not compacted and bases[0] >= cleaned_to:
            first = min((run.base for run in runs if run.path in ours), default=bases[0])
            if first > bases[0]:
                yield bases[0], first - 1
        ends = [run.last + 1 for run in runs if run.path in ours]
        if ends and not compacted and max(ends) < bases[-1] and bases[-1] > cleaned_to:
            yield max(ends), bases[-1] - 1
        end = max([bases[-1], *ends])
        point, high = self.context.recovery_point, self.context.high_watermark
        if point is not None and point == high and point > end:
            yield end, point - 1

    def _first_known(self, files: Files) -> int | None:
        """The first offset of the log, if known."""
        path = posixpath.join(self.folder.path, "leader-epoch-checkpoint")
        try:
            entries = read_leader_epoch_checkpoint(files.read_all(path), file=path)
        except (OSError, KopsError):
            return None
        if not entries:
            return None
        return max(min(entry.start_offset for entry in entries), self.context.log_start or 0)


def evidence_of(inventory: Inventory, files: Files) -> dict[str, Evidence]:
    """Return the evidence by the path of each partition directory. Unreadable checkpoints are ignored."""
    return {folder.path: Evidence(folder, context) for folder, context in surroundings(inventory, files)}


def joined(ranges: Iterable[Range]) -> list[Range]:
    """The same offsets, sorted, each once, neighbours as one range."""
    result: list[Range] = []
    for low, high in sorted(ranges):
        if result and low <= result[-1][1] + 1:
            result[-1] = (result[-1][0], max(high, result[-1][1]))
        else:
            result.append((low, high))
    return result
