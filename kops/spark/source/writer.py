"""`df.write.format("kafkalog").mode("append").save(log_dir)`: appends rows as records to logs, offline.

Tasks write their rows into files next to the log directory. The commit on the driver takes the directory's lock, so it fails while a broker
runs there, and appends them with the log engine, as `kops log append` does: settings, rolling, indexes, producer snapshots and leader
epochs are those of a broker. Spark's plan decides the order: rows are appended in the order of their tasks, and within a task as they come.
If a partition rejects its rows, the partitions before it keep theirs.

Columns as in Spark's Kafka connector: `topic` (or the option), `partition` (default 0), `key`, `value`, `headers`, `timestamp`.
"""

from __future__ import annotations

import base64
import json
import os
import shutil
import time
import uuid
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from pyspark import TaskContext
from pyspark.sql.datasource import DataSourceWriter, WriterCommitMessage

from kops.config.topic import topic_config
from kops.errors import DecodeError, UsageError
from kops.files import OsFiles
from kops.files.urls import is_url
from kops.forensics.lines.appending import AppendOptions, AppendReport, append_lines
from kops.forensics.lines.exporting import Document
from kops.forensics.plans.journal import locked
from kops.records.compression import codec_id
from kops.storage.formats.names import parse_partition_dir

if TYPE_CHECKING:
    from pyspark.sql import Row
    from pyspark.sql.types import StructType

STAGING: Final = ".kops-write-"
"""The suffix of the directory for the rows of tasks, after the name of the log directory. A broker would not start with it inside."""
COLUMNS: Final = {
    "topic": ("string",),
    "partition": ("int",),
    "key": ("binary", "string"),
    "value": ("binary", "string"),
    "headers": ("array<struct<key:string,value:binary>>",),
    "timestamp": ("timestamp",),
}
OPTIONS: Final = ("path", "topic", "compression", "batchSize", "leaderEpoch")
_BUFFER: Final = 1 << 20


class WriteOptions(NamedTuple):
    """The options of one `save`. Every other option with a dot in its name is a setting of the topic (`segment.bytes`)."""

    path: str
    topic: str | None
    append: AppendOptions
    settings: dict[str, str]


def read_write_options(given: Mapping[str, str]) -> WriteOptions:
    """Check what was given. Raises UsageError that names the option, also for an unknown one."""
    known = {name.lower(): name for name in OPTIONS}
    options: dict[str, str] = {}
    settings: dict[str, str] = {}
    for name, value in given.items():
        if name.lower() in known:
            options[known[name.lower()]] = str(value)
        elif "." in name:
            settings[name] = str(value)
        else:
            raise UsageError(f"kafkalog has no option {name} for writing; it has {', '.join(OPTIONS)} and settings of topics")
    if is_url(options.get("path", "")):
        raise UsageError(f"{options['path']}: records are appended to a log directory of a file system, under its lock; name a local path")
    if not options.get("path"):
        raise UsageError('kafkalog needs a log directory: df.write.format("kafkalog").mode("append").save("/data/kafka")')
    numbers = {name: _number(name, options[name]) for name in ("batchSize", "leaderEpoch") if name in options}
    compression = options.get("compression", "none")
    try:
        codec_id(compression)
    except DecodeError as error:
        raise UsageError(f"compression={compression}: {error}") from error
    append = AppendOptions(numbers.get("leaderEpoch"), compression, numbers.get("batchSize", 16384))
    topic_config(settings)
    return WriteOptions(os.path.abspath(options["path"]), options.get("topic"), append, settings)


def _number(name: str, text: str) -> int:
    if not text.isdecimal() or (name == "batchSize" and int(text) < 1):
        raise UsageError(f"{name}={text}: not a number of at least {'1' if name == 'batchSize' else '0'} or more")
    return int(text)


def check_columns(schema: StructType, topic: str | None) -> None:
    """Raise UsageError if the rows can't be records."""
    kinds = {each.name: each.dataType.simpleString() for each in schema.fields}
    for name, kind in kinds.items():
        if name not in COLUMNS:
            raise UsageError(f"a record has no column {name}; it has {', '.join(COLUMNS)}; select those")
        if kind not in COLUMNS[name]:
            raise UsageError(f"column {name} is {kind}; it must be {' or '.join(COLUMNS[name])}")
    if "value" not in kinds:
        raise UsageError("there is no column value")
    if "topic" not in kinds and topic is None:
        raise UsageError("there is no column topic; name the topic with the option topic")


@dataclass
class Staged(WriterCommitMessage):  # type: ignore[misc] # pyspark is not followed
    """The staged rows of a task: its number, its directory, and the number of rows by partition."""

    task: int
    folder: str
    rows: dict[str, int] = field(default_factory=dict)


class KafkaLogWriter(DataSourceWriter):  # type: ignore[misc] # as above
    """Made on the driver; `write` runs in tasks, `commit` and `abort` on the driver."""

    def __init__(self, options: WriteOptions) -> None:
        self.options = options
        self.staging = f"{options.path}{STAGING}{uuid.uuid4().hex}"

    def write(self, iterator: Iterator[Row]) -> Staged:
        """Stage the rows of a task, in files of its own."""
        context = TaskContext.get()
        folder = os.path.join(self.staging, uuid.uuid4().hex)
        os.makedirs(folder)
        staged = Staged(0 if context is None else context.partitionId(), folder)
        waiting: dict[str, list[bytes]] = {}
        size = 0
        for row in iterator:
            name, line = self._line(row.asDict())
            waiting.setdefault(name, []).append(line)
            size += len(line)
            if size >= _BUFFER:
                _spill(staged, waiting)
                size = 0
        _spill(staged, waiting)
        return staged

    def _line(self, row: dict[str, Any]) -> tuple[str, bytes]:
        topic = row.get("topic")
        topic = self.options.topic if topic is None else topic
        partition = row.get("partition")
        name = f"{topic}-{0 if partition is None else partition}"
        try:
            parse_partition_dir(name)
            is_safe = "/" not in name and topic is not None and (partition is None or partition >= 0)
        except DecodeError:
            is_safe = False
        if not is_safe:
            raise UsageError(f"topic {topic}, partition {partition}: not the name of a partition")
        document: dict[str, Any] = {"key": _text(row.get("key")), "value": _text(row["value"])}
        if row.get("headers"):
            document["headers"] = [[each["key"], _text(each["value"])] for each in row["headers"]]
        if row.get("timestamp") is not None:
            document["timestamp"] = int(row["timestamp"].timestamp() * 1000 + 0.5)
        return name, json.dumps(document).encode() + b"\n"

    def commit(self, messages: list[Staged | None]) -> None:
        """Append the staged rows of all tasks, partition by partition, under the lock of the log directory."""
        found = sorted((each for each in messages if each is not None), key=lambda each: each.task)
        files = OsFiles()
        try:
            with locked(files, self.options.path):
                for name in sorted({name for each in found for name in each.rows}):
                    self._append(files, name, [os.path.join(each.folder, name) for each in found if name in each.rows])
        finally:
            self._clean()

    def _append(self, files: OsFiles, name: str, paths: list[str]) -> None:
        directory = os.path.join(self.options.path, name)
        if not files.exists(directory):
            files.mkdir(directory)
        settings = topic_config(self.options.settings)
        append_lines(
            files, _documents(paths), directory, settings, self.options.append, file=name, now_ms=_clock_ms, report=AppendReport(directory)
        )

    def abort(self, messages: list[Staged | None]) -> None:
        """Remove the staged rows of all tasks."""
        self._clean()

    def _clean(self) -> None:
        shutil.rmtree(self.staging, ignore_errors=True)


def _spill(staged: Staged, waiting: dict[str, list[bytes]]) -> None:
    for name, lines in waiting.items():
        with open(os.path.join(staged.folder, name), "ab") as file:
            file.write(b"".join(lines))
        staged.rows[name] = staged.rows.get(name, 0) + len(lines)
    waiting.clear()


def _documents(paths: list[str]) -> Iterator[tuple[int, Document]]:
    number = 0
    for path in paths:
        with open(path, "rb") as file:
            for line in file:
                number += 1
                yield number, json.loads(line)


def _text(value: Any) -> str | None:
    if value is None:
        return None
    return base64.b64encode(value.encode() if isinstance(value, str) else bytes(value)).decode()


def _clock_ms() -> int:
    return time.time_ns() // 1_000_000
