"""`spark.readStream.format("kafkalog")`: a stream of the records that brokers are writing (Spark's Python `DataSourceStreamReader`).

`kops.spark.tail.planning` decides, and `kops.spark.source.ranges` reads. Spark keeps the offsets in its checkpoint and requests the same
range again after a failure; the range then has the same rows. So nothing is lost or repeated if the sink is idempotent.

Spark has one limit for a stream (`ReadLimit`). If offsets and bytes are both limited, Spark gets the limit of offsets.
"""

from __future__ import annotations

import errno
import time
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

from pyspark import TaskContext
from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadLimit, ReadMaxBytes, ReadMaxRows, SupportsTriggerAvailableNow

from kops.files.any_files import AnyFiles
from kops.files.urls import connect, connections
from kops.spark.sockets import widen
from kops.spark.source.ranges import HOW_TO_GO_ON, DataLossError, Place, Work, read_range
from kops.spark.source.rows import Wanted
from kops.spark.source.stream_options import StreamOptions
from kops.spark.tail.look import Lookout, Seen
from kops.spark.tail.places import cut, weigh
from kops.spark.tail.planning import Limits, Loss, Range, Step, View, can_serve, first_positions, next_positions, ranges
from kops.spark.tail.positions import Key, Positions, read_positions

if TYPE_CHECKING:
    import pyarrow as pa

_LOOK_SECONDS: Final = 1.0
"""How long a listing of the directories is used. It costs 0.2 s of CPU for 600 replicas. A broker writes high watermarks every 5 s."""
_AGAIN_SECONDS: Final = 0.2
"""How long after a loss the directories are looked at again before it is reported."""
_SMALL: Final = 4 << 20
"""Ranges smaller than this share a task, until it has this many bytes."""


class StreamTask(InputPartition):  # type: ignore[misc] # pyspark is not followed
    """The ranges that one task reads."""

    def __init__(self, work: list[Work]) -> None:
        super().__init__(None)
        self.work = work


class KafkaLogStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):  # type: ignore[misc] # as above
    """Plans on the driver, in a process that lives as long as the query; `read` runs on the executors."""

    def __init__(self, options: StreamOptions, columns: tuple[str, ...]) -> None:
        self.options = options
        self.columns = columns
        self.connections = connections()
        self._files: AnyFiles | None = None
        self._lookout: Lookout | None = None
        self._seen: dict[Key, list[Seen]] = {}
        self._looked_at: float | None = None
        self._is_frozen = False

    def __getstate__(self) -> dict[str, Any]:
        """Leave out the state of the driver: a task needs only the options."""
        return {**self.__dict__, "_files": None, "_lookout": None, "_seen": {}, "_looked_at": None}

    def initialOffset(self) -> dict[str, Any]:  # noqa: N802 the name is Spark's
        """Return the offsets at which a new query begins."""
        return first_positions(self.options.starting, self._views(self._look())).document()

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802
        """The limit that the options set."""
        limits = self.options.limits
        if limits.offsets is not None:
            return ReadMaxRows(limits.offsets)
        return ReadAllAvailable() if limits.bytes is None else ReadMaxBytes(limits.bytes)

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
        """Let the query end at the offsets that the logs have now."""
        self._look()
        self._is_frozen = True

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:  # noqa: N802
        """Return the end of the micro-batch that begins at `start`."""
        limits = Limits() if isinstance(limit, ReadAllAvailable) else self.options.limits
        begin = read_positions(start)
        step = self._step(begin, limits, is_fresh=False)
        if step.losses and not self._is_frozen:
            # The files of a broker are not looked at in one instant, and directories are renamed: a loss is one that stays.
            self.pause()
            step = self._step(begin, limits, is_fresh=True)
        if step.losses and self.options.fails:
            more = f" (and {len(step.losses) - 1} other partitions)" if len(step.losses) > 1 else ""
            raise DataLossError(f"{step.losses[0]}{more}; {HOW_TO_GO_ON}")
        return start if step.end == begin else step.end.document()

    def pause(self) -> None:
        """Wait a moment before a second look."""
        time.sleep(_AGAIN_SECONDS)

    def reportLatestOffset(self) -> dict[str, Any] | None:  # noqa: N802
        """Return how far the logs could be read, for the progress of the query."""
        return first_positions(-1, self._views(self._seen)).document() if self._seen else None

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[StreamTask]:
        """The tasks of the micro-batch from `start` to `end`."""
        asked = ranges(read_positions(start), read_positions(end))
        seen = self._look(is_fresh=False)
        tasks: list[StreamTask] = []
        taken = _SMALL
        for each in asked:
            replicas = self._replicas(each, seen.get(each.key, []))
            for piece, size in self._pieces(each, replicas):
                if taken + size > _SMALL:
                    tasks.append(StreamTask([]))
                    taken = 0
                taken += size
                tasks[-1].work.append(Work(piece, tuple(Place(one.replica.directory.path, one.replica.broker) for one in replicas)))
        return tasks

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The rows of one task."""
        if not isinstance(partition, StreamTask):
            return
        if TaskContext.get() is not None:
            widen()
        connect(self.connections)
        options, files = self.options, AnyFiles(growing=True)
        wanted = Wanted(options.mode, self.columns, control=options.mode != "records" or options.include_control)
        for work in partition.work:
            yield from read_range(files, work, wanted, is_committed=options.is_committed, fails=options.fails)

    def commit(self, end: dict[str, Any]) -> None:
        """Do nothing: no state is kept for ranges that were read."""

    def _step(self, begin: Positions, limits: Limits, *, is_fresh: bool) -> Step:
        seen = self._look(is_fresh=is_fresh)
        return next_positions(
            begin,
            self._views(seen),
            limits,
            lambda key, start, end: weigh(self.files, seen[key][0].segments, start, end),
            lambda key, start, size: cut(self.files, seen[key][0].segments, start, size),
        )

    @property
    def files(self) -> AnyFiles:
        """The files of the driver, with the last listing of objects."""
        if self._files is None:
            connect(self.connections)
            self._files = AnyFiles(ahead=True, growing=True)
        return self._files

    def _look(self, *, is_fresh: bool = True) -> dict[Key, list[Seen]]:
        """The replicas of each partition, from a recent listing."""
        if self._lookout is None:
            options = self.options
            self._lookout = Lookout(self.files, options.paths, options.wants, options.bound, is_committed=options.is_committed)
            self._seen = self._lookout.first_look()
        elif not self._is_frozen and (is_fresh or self._looked_at is None or time.monotonic() - self._looked_at > _LOOK_SECONDS):
            self._seen = self._look_again(self._lookout)
        else:
            return self._seen
        self._looked_at = time.monotonic()
        return self._seen

    def _look_again(self, lookout: Lookout) -> dict[Key, list[Seen]]:
        """List everything anew. What replaces an object while it is read is seen the next time."""
        for is_last in (False, False, True):
            self.files.forget()
            try:
                return lookout.look()
            except OSError as error:
                if error.errno != errno.ESTALE or is_last:
                    raise
        raise AssertionError("unreachable")

    @staticmethod
    def _views(seen: Mapping[Key, list[Seen]]) -> dict[Key, View]:
        return {key: replicas[0].view for key, replicas in seen.items()}

    def _replicas(self, asked: Range, seen: Sequence[Seen]) -> list[Seen]:
        """The replicas that have a range. If none has all of it, the task reports what is missing in the serving one."""
        found = [each for each in seen if can_serve(each.view, asked)]
        if not found and self.options.fails and asked.begin < asked.end:
            reason = f"no replica has the offsets {asked.begin} to {asked.end - 1} of this query's checkpoint any longer"
            raise DataLossError(f"{Loss(asked.key, asked.begin, asked.end - 1, reason)}; {HOW_TO_GO_ON}")
        return found or list(seen[:1])

    def _pieces(self, asked: Range, replicas: Sequence[Seen]) -> Iterator[tuple[Range, int]]:
        """Divide a range into pieces of about `taskBytes`; returns them with their sizes."""
        if not replicas or asked.begin >= asked.end:
            yield asked, 1
            return
        segments, target = replicas[0].segments, self.options.task_bytes
        begin, left, loss = asked.begin, weigh(self.files, replicas[0].segments, asked.begin, asked.end), asked.loss
        while left > target:
            end = cut(self.files, segments, begin, target)
            if not begin < end < asked.end:
                break
            yield asked._replace(begin=begin, end=end, loss=loss), target
            begin, left, loss = end, left - target, None
        yield asked._replace(begin=begin, loss=loss), max(left, 1)
