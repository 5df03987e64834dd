"""A log directory that a log of kops writes to, with the checkpoints of a broker, and a stream that reads it without Spark.

`Query` calls the reader as Spark's engine does (`MicroBatchExecution`): it plans a batch, keeps start and end, reads, and commits.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pyspark.sql.streaming.datasource import ReadAllAvailable

from kops.config.topic import TopicConfig
from kops.files import OsFiles
from kops.records.validation.validate import AppendOrigin
from kops.spark.source.schemas import SCHEMAS
from kops.spark.source.stream import KafkaLogStreamReader
from kops.spark.source.stream_options import read_stream_options
from kops.storage.formats.checkpoints import TopicPartition, read_offset_checkpoint, write_offset_checkpoint
from kops.storage.log_dir_failure import LogDirFailureChannel
from kops.storage.scheduler import Scheduler
from kops.storage.unified_log import UnifiedLog
from tests.support.logs.twins.open_log import NOW, batch, marker

CLUSTER_ID = "MkU3OEVBNTcwNTJENDM2Qk"
TOPIC_ID = "AAAAAAAAAAAAAAAAAAAAAQ"
OTHER_ID = "AAAAAAAAAAAAAAAAAAAAAg"


class LiveLog:
    """A partition's log in a broker's log directory. `keep` writes the broker's checkpoints, as a broker does every few seconds."""

    def __init__(self, log_dir: Path, topic: str = "orders", partition: int = 0, *, topic_id: str = TOPIC_ID, broker: int = 1) -> None:
        self.log_dir = log_dir
        self.key = TopicPartition(topic, partition)
        self.path = log_dir / f"{topic}-{partition}"
        self.files = OsFiles()
        log_dir.mkdir(parents=True, exist_ok=True)
        (log_dir / "meta.properties").write_text(f"version=1\ncluster.id={CLUSTER_ID}\nnode.id={broker}\n")
        self.scheduler = Scheduler(lambda: NOW)
        config = TopicConfig(index_interval_bytes=300, internal_segment_bytes=1 << 20)
        self.log = UnifiedLog.open(
            self.files,
            str(self.path),
            config,
            now_ms=lambda: NOW,
            scheduler=self.scheduler,
            failures=LogDirFailureChannel(),
            topic_id=topic_id,
            verify_transactions=False,
        )
        self.keep()

    def append(self, *values: bytes, epoch: int = 0, is_kept: bool = True, **fields: Any) -> None:
        """Append a batch for each value. Each batch has two records, with the value and its offset within the batch."""
        for value in values:
            data = batch(2, value=value, **fields)
            self.log.append_as_leader(data, epoch)
        if is_kept:
            self.keep()

    def end(self, producer_id: int, *, commit: bool, is_kept: bool = True) -> None:
        """End a transaction."""
        data = marker(producer_id, commit=commit)
        self.log.append_as_leader(data, 0, origin=AppendOrigin.COORDINATOR, transaction_version=0)
        if is_kept:
            self.keep()

    def keep(self, high_watermark: int | None = None) -> None:
        """Write the high watermark (by default the log's end) and the log start offset."""
        self.log.update_high_watermark(self.log.log_end_offset if high_watermark is None else high_watermark)
        self._write("replication-offset-checkpoint", self.log.high_watermark)
        self._write("log-start-offset-checkpoint", self.log.log_start_offset)

    def delete_before(self, offset: int) -> None:
        """Delete records as DeleteRecords does, and the segments below."""
        self.log.maybe_increment_log_start_offset(offset)
        self.log.delete_old_segments()
        self.keep()

    def delete_topic(self) -> None:
        """Delete the directory at once."""
        self.log.close()
        shutil.rmtree(self.path)

    def _write(self, name: str, offset: int) -> None:
        path = self.log_dir / name
        offsets = dict(read_offset_checkpoint(path.read_bytes())) if path.exists() else {}
        path.write_bytes(write_offset_checkpoint({**offsets, self.key: offset}))


class Query:
    """A stream of the directories. `restart` lets it read a batch again that was planned and not committed."""

    def __init__(self, *log_dirs: Path, **options: str) -> None:
        self.options = {"path": ",".join(map(str, log_dirs)), "startingOffsets": "earliest", **options}
        self.reader: KafkaLogStreamReader = self._new()
        self.start: dict[str, Any] | None = None
        self.planned: dict[str, Any] | None = None
        self.rows: list[dict[str, Any]] = []

    def _new(self) -> KafkaLogStreamReader:
        options = read_stream_options(self.options)
        return KafkaLogStreamReader(options, tuple(SCHEMAS[options.mode]))

    def restart(self) -> None:
        """Start from the checkpoint, as in a new process."""
        self.reader = self._new()
        self.start, self.planned = json.loads(json.dumps([self.start, self.planned]))

    def batch(self, *, commits: bool = True, everything: bool = False) -> list[dict[str, Any]]:
        """Run one micro-batch. Return no rows if there is nothing new."""
        self.reader._looked_at = None
        if self.start is None:
            self.start = self.reader.initialOffset()
        if self.planned is None:
            limit = ReadAllAvailable() if everything else self.reader.getDefaultReadLimit()
            end = self.reader.latestOffset(json.loads(json.dumps(self.start)), limit)
            if json.dumps(end) == json.dumps(self.start):
                return []
            self.planned = end
        tasks = self.reader.partitions(self.start, self.planned)
        rows = [row for task in tasks for found in self.reader.read(task) for row in found.to_pylist()]
        if commits:
            self.start, self.planned = self.planned, None
            self.rows += rows
        return rows

    def drain(self) -> list[dict[str, Any]]:
        """Run micro-batches until there is nothing new."""
        begin = len(self.rows)
        while True:
            before = json.dumps(self.start)
            self.batch()
            if json.dumps(self.start) == before:
                return self.rows[begin:]


def values(rows: list[Mapping[str, Any]] | list[dict[str, Any]]) -> list[bytes]:
    """Return the values of the records."""
    return [bytes(row["value"]) for row in rows if row["damage"] is None]


def offsets(rows: list[Mapping[str, Any]] | list[dict[str, Any]]) -> list[int]:
    """Return the offsets of the records."""
    return [row["offset"] for row in rows if row["damage"] is None]


def damages(rows: list[Mapping[str, Any]] | list[dict[str, Any]]) -> list[tuple[Any, ...]]:
    """Return code and offsets of the damage."""
    return [(row["damage"]["code"], row["damage"]["baseOffset"], row["damage"]["lastOffset"]) for row in rows if row["damage"] is not None]
