"""`spark.read.format("kafkalog").load("dirA,dirB")`: log directories as a DataFrame (Spark's Python data source API, Arrow batches).

Options: `mode` (`segments`, `batches`, `records`, the default), `taskBytes` (default 512 MiB), `includeDeleted` (also `.deleted`, `.swap`
and the like, and `-delete`, `-stray` directories; default false), `includeControl` (control records in mode `records`; default false, a
consumer does not get them), `recursiveFileLookup` is implied: a directory may be a partition's, a broker's, or one that holds those.
Damage comes out as rows. Filters on topic, partition, offset, baseOffset, lastOffset and timestamp choose what is read; Spark applies
every filter itself, too. A `.schema(…)` of the user's chooses columns.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from pyspark import TaskContext
from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    EqualNullSafe,
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    InputPartition,
    LessThan,
    LessThanOrEqual,
)

from kops.errors import UsageError
from kops.files import OsFiles
from kops.forensics.inventory.tree import FileEntry, Inventory, PartitionDir, open_paths, partition_from
from kops.forensics.verify.parts import TASK_BYTES, Part, pack, split_segment
from kops.spark.sockets import widen
from kops.spark.source.rows import Source, Wanted, read_parts, read_segments
from kops.spark.source.schemas import SCHEMAS, ddl

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql.types import StructType

MODES = tuple(SCHEMAS)
OPTIONS = ("path", "paths", "mode", "taskbytes", "includedeleted", "includecontrol")


class KafkaLogDataSource(DataSource):  # type: ignore[misc] # pyspark is not followed
    """Spark makes one instance for each `load`."""

    @classmethod
    def name(cls) -> str:
        """The name of the format."""
        return "kafkalog"

    def schema(self) -> str:
        """All columns of the mode."""
        return ddl(self._mode())

    def reader(self, schema: StructType) -> KafkaLogReader:
        """A reader of the columns that `schema` has."""
        mode = self._mode()
        unknown = [name for name in schema.names if name not in SCHEMAS[mode]]
        if unknown:
            raise UsageError(f"mode {mode} has no column {unknown[0]}; it has {', '.join(SCHEMAS[mode])}")
        for field in schema.fields:
            kind = SCHEMAS[mode][field.name]
            if field.dataType.simpleString() != kind.replace(": ", ":").replace(", ", ","):
                raise UsageError(f"column {field.name} is {kind}, not {field.dataType.simpleString()}; cast it in the query")
            if not field.nullable:
                raise UsageError(f"column {field.name} is null in rows of damage; leave NOT NULL out")
        return KafkaLogReader(_paths(self.options), mode, tuple(schema.names), dict(self.options))

    def _mode(self) -> str:
        mode = str(self.options.get("mode", "records"))
        if mode not in MODES:
            raise UsageError(f"mode {mode} is not one of {', '.join(MODES)}")
        return mode


def _paths(options: Any) -> list[str]:
    """The paths of `load`: one string with commas, or several."""
    import json

    if options.get("paths"):
        return [os.path.abspath(path) for path in json.loads(options["paths"])]
    paths = [path.strip() for path in str(options.get("path") or "").split(",") if path.strip()]
    if not paths:
        raise UsageError('kafkalog needs a path: spark.read.format("kafkalog").load("/data/kafka")')
    return [os.path.abspath(path) for path in paths]


class Task(InputPartition):  # type: ignore[misc] # as above
    """What one task reads. Plain values only, because it is pickled."""

    def __init__(self, work: list[tuple[Part, Source]]) -> None:
        super().__init__(None)
        self.work = work


class KafkaLogReader(DataSourceReader):  # type: ignore[misc] # as above
    """Plans the tasks on the driver, reads them on the executors."""

    def __init__(self, paths: list[str], mode: str, columns: tuple[str, ...], options: dict[str, str]) -> None:
        self.paths = paths
        self.wanted = Wanted(mode, columns, control=mode != "records" or _flag(options, "includeControl"))
        self.include_deleted = _flag(options, "includeDeleted")
        self.task_bytes = _bytes(options)
        self.topics: frozenset[str] | None = None
        self.partition_ids: frozenset[int] | None = None

    def pushFilters(  # noqa: N802 the name is Spark's
        self, filters: list[Filter]
    ) -> Iterator[Filter]:
        """Use the filters that narrow the reading. All are returned, so Spark also applies them to the rows."""
        for each in filters:
            self._narrow(each)
        yield from filters

    def _narrow(self, condition: Filter) -> None:
        attribute = getattr(condition, "attribute", None)
        if not isinstance(attribute, tuple) or len(attribute) != 1:
            return
        name, value = attribute[0], getattr(condition, "value", None)
        if isinstance(condition, (EqualTo, EqualNullSafe, In)):
            self._equal(name, list(value or ()) if isinstance(condition, In) else [value])
        elif isinstance(condition, (GreaterThan, GreaterThanOrEqual, LessThan, LessThanOrEqual)):
            self._bound(name, value, low=isinstance(condition, (GreaterThan, GreaterThanOrEqual)))

    def _equal(self, name: str, values: Sequence[Any]) -> None:
        known = [value for value in values if value is not None]
        if len(known) != len(values) or not known:
            return
        if name == "topic":
            self.topics = frozenset(known) if self.topics is None else self.topics & frozenset(known)
        elif name == "partition":
            self.partition_ids = frozenset(known) if self.partition_ids is None else self.partition_ids & frozenset(known)
        elif name == "offset":
            self._bound(name, min(known), low=True)
            self._bound(name, max(known), low=False)

    def _bound(self, name: str, value: Any, *, low: bool) -> None:
        """A bound of an offset or time is also a bound for the batches that hold it."""
        if name == "offset" or (name == "lastOffset" and low) or (name == "baseOffset" and not low):
            if low:
                self.wanted = replace(self.wanted, min_offset=max(value, self.wanted.min_offset or 0))
            else:
                self.wanted = replace(
                    self.wanted, max_offset=value if self.wanted.max_offset is None else min(value, self.wanted.max_offset)
                )
        elif name in ("timestamp", "maxTimestamp") and low and hasattr(value, "timestamp"):
            milliseconds = int(value.timestamp() * 1000)
            self.wanted = replace(self.wanted, min_timestamp=max(milliseconds, self.wanted.min_timestamp or 0))

    def partitions(self) -> Sequence[Task]:
        """Tasks of about `taskBytes` each."""
        files = OsFiles(read_only=True)
        parts: list[Part] = []
        sources: list[Source] = []
        for source, index_path in self._segments(open_paths(self.paths, files)):
            number = len(sources)
            sources.append(source)
            if self.wanted.mode == "segments":
                parts.append(Part(number, source.path, 0, source.size))
            else:
                parts += split_segment(files, number, source.path, source.size, index_path, self.task_bytes)
        return [Task([(part, sources[part.number]) for part in content]) for content in pack(parts, None, self.task_bytes)]

    def _segments(self, inventory: Inventory) -> Iterator[tuple[Source, str | None]]:
        for partition in _partition_dirs(inventory):
            if self.topics is not None and partition.topic not in self.topics:
                continue
            if self.partition_ids is not None and partition.partition not in self.partition_ids:
                continue
            live = [each.base_offset for each in partition.live_segments]
            for segment in partition.segments:
                dead = bool(segment.suffix) or partition.state in ("delete", "stray")
                if segment.log is None or (dead and not self.include_deleted):
                    continue
                if not dead and self._is_outside(segment.base_offset, live):
                    continue
                state = segment.state if segment.suffix else (partition.state or "live")
                index = segment.files.get("index")
                log = segment.log
                yield (
                    Source(log.path, partition.topic, partition.partition, segment.base_offset, state, log.size),
                    None if index is None else index.path,
                )

    def _is_outside(self, base_offset: int, live: list[int]) -> bool:
        """Only by the name: a segment whose base offset is above the highest wanted offset."""
        return self.wanted.max_offset is not None and base_offset > self.wanted.max_offset and base_offset in live

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The rows of one task."""
        if not isinstance(partition, Task):
            return  # Spark makes a task of its own when there is nothing to read
        if TaskContext.get() is not None:
            widen()
        files = OsFiles(read_only=True)
        read = read_segments if self.wanted.mode == "segments" else read_parts
        yield from read(files, partition.work, self.wanted)


def _partition_dirs(inventory: Inventory) -> Iterator[PartitionDir]:
    for log_dir in inventory.log_dirs:
        yield from log_dir.partitions
    yield from inventory.loose_partitions
    beside: dict[str, list[FileEntry]] = {}
    for entry in inventory.loose_files:
        beside.setdefault(os.path.dirname(entry.path), []).append(entry)
    for folder, entries in beside.items():
        yield partition_from(folder, entries)


def _flag(options: dict[str, str], name: str) -> bool:
    text = str(options.get(name, options.get(name.lower(), "false"))).lower()
    if text not in ("true", "false"):
        raise UsageError(f"{name}={text}: not one of true, false")
    return text == "true"


def _bytes(options: dict[str, str]) -> int:
    text = str(options.get("taskBytes", options.get("taskbytes", TASK_BYTES)))
    if not text.isdecimal() or int(text) < 1:
        raise UsageError(f"taskBytes={text}: not a number of bytes, 1 or more")
    return int(text)
