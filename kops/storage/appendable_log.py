"""The appending half of one partition's log: checks, offsets, epochs, producers (Kafka UnifiedLog.append).

`kops.storage.unified_log` adds opening, rolling, truncation and deletion. This is a hot module (see `kops._compiled`). The code that runs
for every append is in functions: in a class with interpreted subclasses, compiled code looks up methods by name.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Final

from mypy_extensions import mypyc_attr

from kops.config.values.java import INT_MAX, LONG_MAX
from kops.errors import ApiError
from kops.records.batch import Batch
from kops.records.crc import crc32c_function
from kops.records.validation.validate import AppendOrigin, ValidationRules, validate_records
from kops.storage.log_append import OFFSETS_GIVEN, LogAppendInfo, analyze_records, check_given_offsets, continue_epoch, have_producers
from kops.storage.log_end import STORAGE_ERRORS, LogEnd, append_to
from kops.storage.log_offsets import UNKNOWN_OFFSET
from kops.storage.producers.append import TV_UNKNOWN
from kops.storage.producers.checks import ProducerAnalysis, analyze_append
from kops.storage.producers.verification import NO_GUARD
from kops.storage.readable_log import ReadableLog
from kops.storage.segment_files.transaction_index import AbortedTxn
from kops.storage.segments.segment import LogSegment

if TYPE_CHECKING:
    from kops.config import TopicConfig
    from kops.storage.local_log import LocalLog
    from kops.storage.producers.append import CompletedTxn
    from kops.storage.producers.verification import VerificationGuard
    from kops.storage.start.loaded_log import LoadedLog

_REPLICATION: Final = AppendOrigin.REPLICATION
_NO_GUARD: Final = NO_GUARD
_NO_PRODUCERS: Final = ProducerAnalysis([], [], None)


@mypyc_attr(allow_interpreted_subclasses=True)
class AppendableLog(ReadableLog, ABC):
    """The appending half of `UnifiedLog`."""

    def __init__(self, loaded: LoadedLog, local: LocalLog) -> None:
        super().__init__(loaded, local)
        self._appending = local.storage("appending records to")
        self._metadata_due = False
        # The values that every append reads, kept where compiled code reaches them directly.
        self._crc32c = crc32c_function()
        self._offline = local.failures.offline
        self._ongoing_txns, self._unreplicated_txns = loaded.producers.ongoing_txns, loaded.producers.unreplicated_txns
        self._set_rules(local.config)

    def _set_rules(self, config: TopicConfig) -> None:
        self._segment_size, self._max_segment_ms = config.segment_size, config.max_segment_ms
        self._max_message_bytes = config.max_message_bytes
        self._flush_messages = config.flush_messages
        self._flushes_by_messages = config.flush_messages != LONG_MAX
        self._rules = ValidationRules(
            topic_partition=self._local.topic_partition,
            compacted=config.compact,
            timestamp_type=config.message_timestamp_type,
            timestamp_before_max_ms=config.message_timestamp_before_max_ms,
            timestamp_after_max_ms=config.message_timestamp_after_max_ms,
            compression_type=config.compression_type,
            gzip_level=config.compression_gzip_level,
            lz4_level=config.compression_lz4_level,
            zstd_level=config.compression_zstd_level,
        )

    @abstractmethod
    def roll(self, expected_next_offset: int | None = None) -> LogSegment:
        """Begin a new segment."""

    @abstractmethod
    def flush(self, *, force_flush_active_segment: bool) -> None:
        """Flush everything up to the log's end to the disk."""

    @abstractmethod
    def _flush_metadata_file(self) -> None:
        """Write `partition.metadata` if it has not been written yet."""

    # appending --------------------------------------------------------------------------------------------------------------------

    def append_as_leader(
        self,
        data: bytes | bytearray | memoryview,
        leader_epoch: int,
        *,
        origin: AppendOrigin = AppendOrigin.CLIENT,
        verification_guard: VerificationGuard | None = None,
        transaction_version: int = TV_UNKNOWN,
    ) -> LogAppendInfo:
        """Validate batches, assign their offsets and write them.

        A duplicate of an idempotent producer's batch is not written again. Its answer has the offsets and the time of the first append.
        Raises ApiError for errors of a client, and KafkaStorageError.
        """
        guard = _NO_GUARD if verification_guard is None else verification_guard
        return _append(self, data, leader_epoch, origin, guard, transaction_version)

    def append_as_follower(self, data: bytes | bytearray | memoryview, leader_epoch: int) -> LogAppendInfo:
        """Write batches with the offsets that the leader assigned. A batch that is cut off at the end, or that has a later epoch than
        `leader_epoch`, is omitted.

        Raises UnexpectedAppendOffsetError, OffsetsOutOfOrderError, ApiError CORRUPT_MESSAGE, KafkaStorageError.
        """
        return _append(self, data, leader_epoch, _REPLICATION, _NO_GUARD, TV_UNKNOWN)

    def _assign_offsets(
        self, content: bytes, batches: list[Batch], info: LogAppendInfo, leader_epoch: int, origin: AppendOrigin
    ) -> tuple[bytes, list[Batch]]:
        info.first_offset = self._local.log_end_offset
        valid = validate_records(content, batches, self._rules, info.first_offset, self.now_ms(), leader_epoch, origin)
        info.max_timestamp = valid.max_timestamp
        info.last_offset = valid.next_offset - 1
        info.log_append_time_ms = valid.log_append_time_ms
        info.converted_count = valid.converted_count
        info.temporary_memory_bytes = valid.temporary_memory_bytes
        if valid.size_changed:
            limit = self.config.max_message_bytes
            for batch in valid.batches:
                if batch.size > limit:
                    reason = (
                        f"Message batch size is {batch.size} bytes in append to"
                        f"partition {self.topic_partition} which exceeds the maximum configured size of {limit}."
                    )
                    raise ApiError("MESSAGE_TOO_LARGE", reason)
        return valid.data, valid.batches

    def _assign_epochs(self, batches: list[Batch]) -> None:
        latest = self.epochs.latest_entry
        for batch in batches:
            if batch.magic > 1:
                epoch = batch.partition_leader_epoch
                if latest is None or epoch != latest[0] or batch.base_offset < latest[1]:
                    self.epochs.assign(epoch, batch.base_offset)
                    latest = self.epochs.latest_entry
            elif latest is not None:
                self.warn(f"{self.topic_partition}: clearing leader epoch cache after unexpected append with message format v{batch.magic}")
                self.epochs.clear_and_flush()
                latest = None

    def _answer_duplicate(self, info: LogAppendInfo, analysis: ProducerAnalysis) -> LogAppendInfo:
        first = analysis.duplicate
        if first is not None:
            info.first_offset, info.last_offset = first.first_offset, first.last_offset
            info.log_append_time_ms = first.timestamp
            info.log_start_offset = self.log_start_offset
            info.is_duplicate = True
        return info

    def _update_producers(self, analysis: ProducerAnalysis, segment: LogSegment) -> None:
        for producer in analysis.updated:
            self.producers.update(producer)
        for completed in analysis.completed:
            self._complete_transaction(completed, segment)

    def _complete_transaction(self, completed: CompletedTxn, segment: LogSegment) -> None:
        last_stable_offset = self.producers.last_stable_offset(completed)
        if completed.is_aborted:
            txn = AbortedTxn(completed.producer_id, completed.first_offset, completed.last_offset, last_stable_offset)
            segment.txn_index.append(txn)
        self.producers.complete_txn(completed)


def _append(
    log: AppendableLog,
    data: bytes | bytearray | memoryview,
    leader_epoch: int,
    origin: AppendOrigin,
    guard: VerificationGuard,
    transaction_version: int,
) -> LogAppendInfo:
    if log._metadata_due:
        log._flush_metadata_file()
    local: LogEnd = log._local
    content = data if type(data) is bytes else bytes(data)
    info, batches = analyze_records(
        content, origin, leader_epoch, local.topic_partition, log.log_start_offset, log._max_message_bytes, log._crc32c
    )
    valid_bytes = info.valid_bytes
    if valid_bytes <= 0:
        return info
    fetched = content
    if valid_bytes != len(content):
        content = content[:valid_bytes]
    if log._offline:
        log._appending.begin()
    # Equivalent to `with log._appending`, but without its calls.
    try:
        if local.is_closed:
            local.check_open()
        if origin not in OFFSETS_GIVEN:
            content, batches = log._assign_offsets(content, batches, info, leader_epoch, origin)
        else:
            check_given_offsets(info, fetched, local.topic_partition, local.log_end_offset)
        if not continue_epoch(batches, log.epochs.latest_entry):
            log._assign_epochs(batches)
        size = len(content)
        if size > log._segment_size:
            reason = (
                f"Message batch size is {size} bytes in append to partition {local.topic_partition}, "
                f"which exceeds the maximum configured segment size of {log._segment_size}."
            )
            raise ApiError("RECORD_LIST_TOO_LARGE", reason)
        segment = _segment_for(log, local, size, info)
        analysis = _NO_PRODUCERS
        if have_producers(batches):
            analysis = analyze_append(log.producers, batches, origin=origin, guard=guard, transaction_version=transaction_version)
        if analysis.duplicate is not None:
            return log._answer_duplicate(info, analysis)
        end_offset = info.last_offset + 1
        append_to(local, segment, end_offset, content, batches)
        if log._high_watermark.message_offset >= end_offset:
            log._set_high_watermark(local.next_offset)
        if analysis.updated:
            log._update_producers(analysis, segment)
        log.producers.map_end_offset = end_offset
        if log._ongoing_txns or log._unreplicated_txns or log._first_unstable is not None:
            log._update_first_unstable_offset()
        if log._flushes_by_messages and end_offset - local.recovery_point >= log._flush_messages:
            log.flush(force_flush_active_segment=False)
    except STORAGE_ERRORS as error:
        log._appending.failed(error)
        raise
    return info


def _segment_for(log: AppendableLog, local: LogEnd, size: int, info: LogAppendInfo) -> LogSegment:
    """Return the active segment, or a new one if these bytes do not fit into it."""
    segment = local.segments.active
    age_ms = log._max_segment_ms
    if not segment.should_roll(size, info.max_timestamp, info.last_offset, log._segment_size, age_ms, log.now_ms):
        return segment
    # The old formats give a follower no first offset, so the new segment gets the lowest possible offset.
    return log.roll(info.last_offset - INT_MAX if info.first_offset == UNKNOWN_OFFSET else info.first_offset)
