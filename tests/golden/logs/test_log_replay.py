"""A log that gets the batches of a broker's log, in the same order, leaves the broker's files byte for byte.

One batch is one append, because the corpus's producers sent one batch per request. The batch as it was sent is known, except for what the
broker overwrote: its offset and leader epoch, and with LogAppendTime its largest timestamp. The clock is later than all timestamps, or
shows the batch's own if the log's time counts. After the last action of the case's script, the log is stopped cleanly.

Compacted cases are not compared, because some of their batches are gone (the cleaner's tests use them). Batches that the broker
recompressed (gzip, two cases) are sent uncompressed. Java and Python use the same zlib, so even these bytes are equal. zlib-ng compresses
differently: with it, the tests compare the records, and the files that do not depend on sizes.
"""

from __future__ import annotations

import struct
import zlib

import pytest

from kops.config.topic import TopicConfig, topic_config
from kops.files import MemoryFiles
from kops.records import Batch, BatchBuilder, Record
from kops.records.batch import TIMESTAMP_TYPE_MASK
from kops.records.crc import crc32c
from kops.records.scanning.scanner import read_batches
from kops.records.validation.validate import AppendOrigin
from kops.storage.formats.names import parse_log_file
from kops.storage.formats.partition_metadata import read_partition_metadata
from kops.storage.log_dir_failure import LogDirFailureChannel
from kops.storage.scheduler import Scheduler
from kops.storage.unified_log import UnifiedLog
from tests.support import corpus

WRITTEN_BY = ("3.9.1", "4.3.0")
CASES = [case for case in corpus.cases("v2") if corpus.index()[case]["kafka"] in WRITTEN_BY and "-compacted" not in case]
RECOMPRESSED = [case for case in CASES if case.endswith("broker-recompress")]


def settings(case: corpus.Case) -> TopicConfig:
    """Return the topic's settings. Since 4.0, a segment size as small as here needs another name."""
    config = dict(case.json["config"])
    if "segment.bytes" in config:
        config["internal.segment.bytes"] = config.pop("segment.bytes")
    return topic_config(config)


def as_sent(batch: Batch) -> bytes:
    """Return the batch as its producer sent it, as far as the log shows that."""
    data = bytearray(batch.data())
    struct.pack_into(">q", data, 0, 0)
    struct.pack_into(">i", data, 12, -1)
    if batch.attributes & TIMESTAMP_TYPE_MASK:
        struct.pack_into(">h", data, 21, batch.attributes & ~TIMESTAMP_TYPE_MASK)
        struct.pack_into(">q", data, 35, batch.base_timestamp)
    struct.pack_into(">I", data, 17, crc32c(memoryview(data)[21:]))
    return bytes(data)


def uncompressed(batch: Batch) -> bytes:
    builder = BatchBuilder()
    for record in batch.records():
        builder.append(record.timestamp, record.key, record.value, record.headers)
    return builder.build()


def records(data: bytes) -> list[tuple[int, int, list[Record]]]:
    return [(batch.attributes, batch.partition_leader_epoch, batch.records()) for batch in read_batches(data)]


class Replay:
    """A log in memory that accepts a case's batches."""

    def __init__(self, case: corpus.Case) -> None:
        self.case = case
        self.name = f"{case.json['topic']}-{case.json['partition']}"
        self.folder = next(folder for folder in (case.root / "data").rglob(self.name) if folder.is_dir())
        self.broker_files = {path.name: path.read_bytes() for path in self.folder.iterdir()}
        self.batches = [
            batch
            for name in sorted(self.broker_files)
            if (parsed := parse_log_file(name)) and parsed.kind == "log"
            for batch in read_batches(self.broker_files[name])
        ]
        self.now_ms = max((batch.max_timestamp for batch in self.batches), default=0) + 1
        self.files = MemoryFiles(now_ms=lambda: self.now_ms)
        self.files.mkdir("/logs")
        self.scheduler = Scheduler(lambda: self.now_ms)
        self.failures = LogDirFailureChannel()
        self.log = UnifiedLog.open(
            self.files,
            f"/logs/{self.name}",
            settings(case),
            now_ms=lambda: self.now_ms,
            scheduler=self.scheduler,
            failures=self.failures,
            topic_id=read_partition_metadata(self.broker_files["partition.metadata"]).topic_id,
        )
        self.log.assign_epoch_start_offset(self.batches[0].partition_leader_epoch if self.batches else 0, 0)

    def append(self, batch: Batch, data: bytes) -> None:
        if batch.attributes & TIMESTAMP_TYPE_MASK:
            self.now_ms = batch.max_timestamp
        epoch, producer_id = batch.partition_leader_epoch, batch.producer_id
        if batch.is_control:
            known = self.log.producers.entry_or_empty(producer_id).producer_epoch
            version = 2 if batch.producer_epoch > known else 0
            info = self.log.append_as_leader(data, epoch, origin=AppendOrigin.COORDINATOR, transaction_version=version)
        elif batch.is_transactional:
            guard = self.log.maybe_start_transaction_verification(
                producer_id, batch.base_sequence, batch.producer_epoch, supports_epoch_bump=self.case.json["kafka"] >= "4"
            )
            info = self.log.append_as_leader(data, epoch, verification_guard=guard)
        else:
            info = self.log.append_as_leader(data, epoch)
        assert (info.first_offset, info.last_offset) == (batch.base_offset, batch.last_offset)
        self.log.update_high_watermark(self.log.log_end_offset)
        self.scheduler.run_due()

    def finish(self) -> dict[str, bytes]:
        """Do what the script did after the appends, stop as a broker does, and return the files."""
        for line in self.case.json["script"]:
            if line.startswith("deleterecords"):
                self.log.maybe_increment_log_start_offset(int(line.rpartition("offset=")[2]), "delete records")
        if "retention.bytes" in self.case.json["config"]:
            self.log.delete_old_segments()
        self.scheduler.run_due()
        self.log.flush(force_flush_active_segment=True)
        self.log.close()
        assert not self.failures.offline
        return {path.rpartition("/")[2]: self.files.read_all(path) for path in self.files.walk(self.log.directory)}


@pytest.mark.parametrize("case_id", CASES)
def test_the_same_batches_leave_the_same_files(case_id: str) -> None:
    replay = Replay(corpus.load(case_id))
    for batch in replay.batches:
        replay.append(batch, uncompressed(batch) if case_id in RECOMPRESSED else as_sent(batch))
    written = replay.finish()
    assert sorted(written) == sorted(replay.broker_files)
    expected = replay.broker_files
    if case_id in RECOMPRESSED and "ng" in zlib.ZLIB_RUNTIME_VERSION:
        logs = [name for name in written if name.endswith(".log")]
        assert [records(written[name]) for name in logs] == [records(expected[name]) for name in logs]
        expected = {name: data for name, data in expected.items() if not name.endswith((".log", ".index", ".timeindex"))}
    different = [name for name in sorted(expected) if written[name] != expected[name]]
    assert not different
