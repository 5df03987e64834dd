"""Reads a coordinator's partition from its start to its end, in short pieces between the other work of the loop.

Source: Kafka's CoordinatorLoaderImpl, which uses a thread. The high watermark may move meanwhile; records below it are committed.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Final

from kops.coordinators.runtime.events import failure_of
from kops.coordinators.runtime.promise import Promise
from kops.coordinators.runtime.records import RecordReader
from kops.coordinators.runtime.surroundings import LoadSummary
from kops.errors import ApiError, DecodeError, KopsError
from kops.protocol.record_values import UNKNOWN_TYPE
from kops.records.log_offsets import Isolation
from kops.records.record import read_control_record

if TYPE_CHECKING:
    from kops.broker.network.events.loop import Loop
    from kops.broker.replicas.hosted_partitions import HostedPartitions
    from kops.coordinators.runtime.surroundings import CoordinatorPlayback
    from kops.records.batch import Batch
    from kops.records.log_offsets import TopicPartition
    from kops.replication.log import ReplicaLog

log = logging.getLogger(__name__)

COMMIT_INTERVAL_OFFSETS: Final = 16_384
_PIECE_MS: Final = 10
_RECORDS_BETWEEN_LOOKS: Final = 256
_NOT_LED: Final = -1


class LogLoader:
    """See `kops.coordinators.runtime.surroundings.CoordinatorLoader`. `types` are the topic's record types (kops.protocol.registry)."""

    def __init__(self, loop: Loop, hosted: HostedPartitions, types: Mapping[int, str], buffer_bytes: int) -> None:
        self._loop = loop
        self._hosted = hosted
        self.reader = RecordReader(types)
        self._buffer_bytes = buffer_bytes
        self._is_closed = False

    def load(self, key: TopicPartition, playback: CoordinatorPlayback) -> Promise[LoadSummary]:
        """Replay all records. The promise fails with NOT_LEADER_OR_FOLLOWER, or with the error of a record."""
        promise: Promise[LoadSummary] = Promise()
        load = _Load(self, key, playback)
        steps = load.steps()

        def piece() -> None:
            deadline_ms = self._loop.monotonic_ms() + _PIECE_MS
            for _ in steps:
                if self._is_closed:
                    raise KopsError("Coordinator loader is closed.")
                if self._loop.monotonic_ms() >= deadline_ms:
                    self._loop.call_soon(go_on)
                    return
            duration_ms = int(self._loop.monotonic_ms() - started_ms)
            promise.complete(LoadSummary(load.record_count, load.size_bytes, duration_ms))

        def go_on() -> None:
            error = failure_of(piece, log, f"Loading {key.topic}-{key.partition}")
            if error is not None:
                promise.fail(error)

        started_ms = self._loop.monotonic_ms()
        self._loop.call_soon(go_on)
        return promise

    def close(self) -> None:
        """Stop all loads."""
        self._is_closed = True

    def log_of(self, key: TopicPartition) -> ReplicaLog | None:
        """Return the log of a partition, whether or not this broker leads it."""
        partition = self._hosted.online.get(key)
        return None if partition is None else partition.log

    def log_end_offset(self, key: TopicPartition) -> int:
        """Return the log end offset, or -1 if this broker does not lead the partition."""
        partition = self._hosted.online.get(key)
        leader_log = None if partition is None else partition.leader_log
        return _NOT_LED if leader_log is None else leader_log.log_end_offset

    @property
    def buffer_bytes(self) -> int:
        """The number of bytes to read at once."""
        return self._buffer_bytes


class _Load:
    """One load."""

    def __init__(self, loader: LogLoader, key: TopicPartition, playback: CoordinatorPlayback) -> None:
        self._loader = loader
        self._key = key
        self._playback = playback
        self._name = f"{key.topic}-{key.partition}"
        self._committed = -1
        self.record_count = 0
        self.size_bytes = 0

    def steps(self) -> Iterator[None]:
        """Replay the log step by step. Between two steps the loop may do other work."""
        loader, key = self._loader, self._key
        replica_log = loader.log_of(key)
        if replica_log is None:
            raise ApiError("NOT_LEADER_OR_FOLLOWER", f"Could not load records from {self._name} because the log does not exist.")
        offset = replica_log.log_start_offset
        committed_before = replica_log.high_watermark
        while offset < loader.log_end_offset(key):
            fetched = replica_log.read(offset, loader.buffer_bytes, Isolation.LOG_END, min_one_batch=True)
            if not fetched.size:
                break
            for batch in fetched.records.batches():
                self._playback.settle(batch.next_offset <= committed_before)
                yield from self._replay_control(batch) if batch.is_control else self._replay(batch)
                offset = batch.next_offset
                self.size_bytes += batch.size
                self._progress(replica_log, offset)
                yield
        if loader.log_end_offset(key) == _NOT_LED:
            reason = f"Stopped loading records from {self._name} because the partition is not online or is no longer the leader."
            raise ApiError("NOT_LEADER_OR_FOLLOWER", reason)

    def _progress(self, replica_log: ReplicaLog, offset: int) -> None:
        """Report how far the log is replayed and committed."""
        high_watermark = replica_log.high_watermark
        if offset >= high_watermark:
            self._playback.update_last_written_offset(offset)
            if high_watermark > self._committed:
                self._playback.update_last_committed_offset(high_watermark)
                self._committed = high_watermark
        elif offset - self._committed >= COMMIT_INTERVAL_OFFSETS:
            self._playback.update_last_written_offset(offset)
            self._playback.update_last_committed_offset(offset)
            self._committed = offset

    def _replay_control(self, batch: Batch) -> Iterator[None]:
        for record in batch.iterate():
            self.record_count += 1
            control = read_control_record(record)
            if control.type in ("COMMIT", "ABORT"):
                is_commit = control.type == "COMMIT"
                self._playback.replay_end_transaction_marker(record.offset, batch.producer_id, batch.producer_epoch, is_commit)
        yield

    def _replay(self, batch: Batch) -> Iterator[None]:
        read, replay = self._loader.reader.read, self._playback.replay
        producer_id, producer_epoch = batch.producer_id, batch.producer_epoch
        number = 0
        for number, (offset, _, _, key, value, _, _, _, _, _) in enumerate(batch.iterate(), 1):
            try:
                found = read(key or b"", value)
            except DecodeError as error:
                if error.code != UNKNOWN_TYPE:
                    raise KopsError(f"Deserializing the record at offset {offset} of {self._name} failed: {error}") from error
                text = "%s while loading offsets and group metadata from %s. Ignoring it. It could be a left over from an aborted upgrade."
                log.warning(text, error.reason, self._name)
            else:
                replay(offset, producer_id, producer_epoch, found)
            if number % _RECORDS_BETWEEN_LOOKS == 0:
                yield
        self.record_count += number
