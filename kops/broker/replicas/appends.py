"""Appends and deletions for clients: Produce and DeleteRecords, answered at once or when the replicas have followed.

Source: Kafka's ReplicaManager (appendRecords, appendToLocalLog, maybeAddDelayedProduce, addCompletePurgatoryAction, deleteRecords). Kafka
checks the requests that wait for an appended partition when the request is handled (ActionQueue). Here, requests that wait for a high
watermark are checked after the answer, and fetches that wait for a log's end at the end of the loop's turn. So one fetch takes everything
that was appended in that turn. While several requests wait for replicas, or if several have appended in the turn, as coordinators do, these
fetches are checked one turn later: a fetch then also takes what the requests that have arrived meanwhile append, and the followers ask less
often.
"""

from __future__ import annotations

import logging
from time import monotonic
from typing import TYPE_CHECKING, Final

from kops.broker.replicas.hosted_partitions import error_name, name_of
from kops.config.values.topic_names import INTERNAL_TOPICS
from kops.errors import ApiError, KopsError
from kops.protocol.declaration import ZERO_UUID
from kops.records.batch import Batch
from kops.records.validation.validate import AppendOrigin
from kops.replication.leading.partition import TRANSACTION_VERSION_UNKNOWN
from kops.replication.waiting.delayed import AwaitedDeletion, DelayedDeleteRecords, DelayedProduce, PartitionResponse

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from kops.broker.replicas.hosted_partitions import HostedPartitions
    from kops.protocol.primitives import Buffer
    from kops.records.log_offsets import TopicPartition
    from kops.replication.waiting.delayed import Purgatories
    from kops.storage.producers.verification import VerificationGuard

log = logging.getLogger(__name__)

ProduceAnswer = dict["TopicPartition", PartitionResponse]
DeletionAnswer = dict["TopicPartition", AwaitedDeletion]

_ACKS: Final = (-1, 1, 0)
_ALL: Final = -1
_WITHOUT_LOG_START: Final = frozenset(
    {
        "UNKNOWN_TOPIC_OR_PARTITION",
        "NOT_LEADER_OR_FOLLOWER",
        "MESSAGE_TOO_LARGE",
        "RECORD_LIST_TOO_LARGE",
        "CORRUPT_MESSAGE",
        "KAFKA_STORAGE_ERROR",
        "UNKNOWN_TOPIC_ID",
    }
)
"""Errors whose answers do not contain the log's start: the client did not find the leader or sent records that no log takes."""
_OF_TRANSACTIONS: Final = {"INVALID_TXN_STATE": logging.INFO, "INVALID_PRODUCER_EPOCH": logging.DEBUG}
"""Errors that a program can rarely explain, and how they are logged. The first one ends the producer."""
_BUSY_COUNT: Final = 4
"""With so many requests that wait for replicas, or append in a turn, the CPU of a fetch for each matters more than the time of a turn."""
_NO_GUARDS: Final[Mapping[TopicPartition, VerificationGuard]] = {}
_NO_IDS: Final[Mapping[str, bytes]] = {}


class ReplicaAppends:
    """The part of a ReplicaManager that writes."""

    def __init__(self, hosted: HostedPartitions, purgatories: Purgatories, call_soon: Callable[[Callable[[], object]], object]) -> None:
        self._hosted = hosted
        self._purgatories = purgatories
        self._call_soon = call_soon
        self._grown: dict[TopicPartition, None] = {}  # In this turn.
        self._append_count = 0  # In this turn. The writes of coordinators wait for replicas, too, but not as requests.

    def append_records(
        self,
        records: Mapping[TopicPartition, Buffer],
        required_acks: int,
        timeout_ms: int,
        done: Callable[[ProduceAnswer], None],
        *,
        internal_topics_allowed: bool = False,
        origin: AppendOrigin = AppendOrigin.CLIENT,
        guards: Mapping[TopicPartition, VerificationGuard] = _NO_GUARDS,
        transaction_version: int = TRANSACTION_VERSION_UNKNOWN,
        topic_ids: Mapping[str, bytes] = _NO_IDS,
        count_conversion: Callable[[float, int], object] | None = None,
    ) -> None:
        """Append to the partitions that this broker leads. `done` gets the answers, with acks=all (-1) when all are replicated.

        `topic_ids` are the ids by which the request names the topics, if it does: UNKNOWN_TOPIC_ID if a partition is another topic's.
        `count_conversion` gets the extra cost of a partition's records: the ms of recompressing them, and temporary memory.
        """
        if required_acks not in _ACKS:
            done({key: PartitionResponse("INVALID_REQUIRED_ACKS") for key in records})
            return
        online, stats_of = self._hosted.online, self._hosted.stats.of
        answers: ProduceAnswer = {}
        grown: list[tuple[TopicPartition, bool]] = []
        is_replicated = False
        for key, data in records.items():
            stats = stats_of(key.topic)
            stats.total_produce_requests += 1
            begin_s = monotonic()
            try:
                partition = online.get(key)
                if partition is None or topic_ids or key.topic in INTERNAL_TOPICS:
                    self._check(key, topic_ids, internal_topics_allowed=internal_topics_allowed)
                    partition = self._hosted.get_or_raise(key)
                appended = partition.append_records_to_leader(
                    data, required_acks, origin=origin, verification_guard=guards.get(key), transaction_version=transaction_version
                )
            except KopsError as error:
                answers[key] = self._failure(key, error, data)
                continue
            info, high_watermark_increased = appended.info, appended.high_watermark_increased
            stats.bytes_in += len(data)
            stats.messages_in += info.last_offset - info.first_offset + 1  # A request without a batch was rejected earlier.
            if info.temporary_memory_bytes and count_conversion is not None:
                stats.produce_message_conversions += info.converted_count
                count_conversion((monotonic() - begin_s) * 1000 if info.converted_count else 0.0, info.temporary_memory_bytes)
            grown.append((key, high_watermark_increased))
            self._hosted.append_count += 1
            # A duplicate batch may be replicated already.
            is_replicated |= high_watermark_increased or info.is_duplicate
            answers[key] = PartitionResponse(
                "NONE", info.first_offset, info.log_append_time_ms, info.log_start_offset, info.last_offset + 1
            )
        purgatories = self._purgatories
        if required_acks == _ALL and grown:
            operation = DelayedProduce(timeout_ms, answers, self._hosted.get_or_raise, done)
            if is_replicated:
                purgatories.produce.try_complete_else_watch(operation, list(answers))
            else:
                purgatories.produce.watch(operation, list(answers))
        else:
            done(answers)
        if grown:
            self._tell_later(grown)

    def _tell_later(self, grown: Sequence[tuple[TopicPartition, bool]]) -> None:
        """Check who waits for the high watermarks that have risen, and at the end of the turn the followers of the other partitions."""
        has_followers = False
        for key, increased in grown:
            if increased:
                self._purgatories.check_and_complete_all(key)
            else:
                has_followers = True
                if not self._grown:
                    self._call_soon(self._end_turn)
                self._grown[key] = None
        self._append_count += has_followers

    def _end_turn(self) -> None:
        """Check the fetches that wait for the ends of logs, or, while this broker is busy, let them wait for the next turn's appends."""
        if self._purgatories.produce.delayed_count >= _BUSY_COUNT or self._append_count >= _BUSY_COUNT:
            self._call_soon(self._tell_followers)
        else:
            self._tell_followers()

    def _tell_followers(self) -> None:
        """Check the fetches that wait for the ends of logs to which something was appended."""
        grown, self._grown = self._grown, {}
        self._append_count = 0
        for key in grown:
            self._purgatories.fetch.check_and_complete(key)

    def _check(self, key: TopicPartition, topic_ids: Mapping[str, bytes], *, internal_topics_allowed: bool) -> None:
        if not internal_topics_allowed and key.topic in INTERNAL_TOPICS:
            raise ApiError("INVALID_TOPIC_EXCEPTION", f"Cannot append to internal topic {key.topic}")
        topic_id = topic_ids.get(key.topic, ZERO_UUID)
        if topic_id not in (ZERO_UUID, self._hosted.get_or_raise(key).topic_id):
            raise ApiError("UNKNOWN_TOPIC_ID", f"Partition {name_of(key)}'s topic id doesn't match the one on disk.")

    def _failure(self, key: TopicPartition, error: KopsError, data: Buffer) -> PartitionResponse:
        name = error_name(error)
        if name == "MESSAGE_TOO_LARGE":
            self._hosted.stats.of(key.topic).bytes_rejected += len(data)
        if name in _WITHOUT_LOG_START or name == "INVALID_TOPIC_EXCEPTION":
            return PartitionResponse(name)
        self._hosted.stats.of(key.topic).failed_produce_requests += 1
        if name in _OF_TRANSACTIONS:
            first = Batch(bytes(data))
            who = f"producer {first.producer_id} with epoch {first.producer_epoch} and sequence {first.base_sequence}"
            log.log(_OF_TRANSACTIONS[name], "Rejected records of %s for partition %s: %s: %s", who, name_of(key), name, error)
        if name == "UNKNOWN_SERVER_ERROR":
            log.error("Error processing append operation on partition %s", name_of(key), exc_info=error)
        partition = self._hosted.online.get(key)
        leader_log = None if partition is None else partition.leader_log
        answer = PartitionResponse(name, log_start_offset=-1 if leader_log is None else leader_log.log_start_offset)
        if isinstance(error, ApiError) and error.record_errors:
            answer.record_errors, answer.error_message = error.record_errors, error.message
        return answer

    def delete_records(
        self,
        offsets: Mapping[TopicPartition, int],
        timeout_ms: int,
        done: Callable[[DeletionAnswer], None],
        *,
        internal_topics_allowed: bool = False,
    ) -> None:
        """Move the starts of logs to these offsets (-1: high watermark). `done` gets the answers when no live replica starts earlier."""
        answers: DeletionAnswer = {}
        is_waiting = False
        for key, offset in offsets.items():
            try:
                if not internal_topics_allowed and key.topic in INTERNAL_TOPICS:
                    raise ApiError("INVALID_TOPIC_EXCEPTION", f"Cannot delete records of internal topic {key.topic}")
                deleted = self._hosted.get_or_raise(key).delete_records(offset)
            except KopsError as error:
                answers[key] = AwaitedDeletion(-1, -1, error_name(error))
                continue
            answers[key] = AwaitedDeletion(deleted.requested_offset, deleted.low_watermark, "NONE")
            is_waiting |= deleted.low_watermark < deleted.requested_offset
        if is_waiting:
            operation = DelayedDeleteRecords(timeout_ms, answers, self._hosted.get_or_unknown, done)
            self._purgatories.delete_records.try_complete_else_watch(operation, list(answers))
        else:
            done(answers)
