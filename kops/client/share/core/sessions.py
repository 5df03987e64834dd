"""The share session with one node: its epoch, its partitions, and what the next request has to say about them.

Source: Kafka's ShareSessionHandler, ShareRequestMetadata, ShareFetchRequest.Builder and ShareAcknowledgeRequest.Builder (forConsumer).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from kops.client.share.core.acknowledgements import Acknowledgements, TopicIdPartition
from kops.config.values.java import INT_MAX
from kops.protocol.messages import ShareAcknowledgeRequest, ShareFetchRequest
from kops.protocol.messages.share_acknowledge_request import AcknowledgementBatch as AckBatchOfAcknowledge
from kops.protocol.messages.share_acknowledge_request import AcknowledgePartition, AcknowledgeTopic
from kops.protocol.messages.share_fetch_request import AcknowledgementBatch as AckBatchOfFetch
from kops.protocol.messages.share_fetch_request import FetchPartition, FetchTopic, ForgottenTopic
from kops.records.log_offsets import TopicPartition

if TYPE_CHECKING:
    from collections.abc import Iterable

INITIAL_EPOCH: Final = 0
FINAL_EPOCH: Final = -1
BATCH_OPTIMIZED: Final = 0
RECORD_LIMIT: Final = 1
_RESTARTS: Final = ("SHARE_SESSION_NOT_FOUND", "INVALID_SHARE_SESSION_EPOCH")


@dataclass(frozen=True, slots=True)
class FetchLimits:
    """What a fetch asks for. Times are ms."""

    group_id: str
    max_wait_ms: int
    min_bytes: int
    max_bytes: int
    max_poll_records: int
    acquire_mode: int
    checks_crcs: bool


class ShareSession:
    """The session with one node. Partitions are added anew for each fetch: those that are not are forgotten."""

    def __init__(self, member_id: str) -> None:
        self.member_id = member_id
        self.epoch = INITIAL_EPOCH
        self.partitions: dict[TopicPartition, TopicIdPartition] = {}
        self._next: dict[TopicPartition, TopicIdPartition] = {}
        self._acknowledgements: dict[TopicIdPartition, Acknowledgements] = {}

    @property
    def is_new(self) -> bool:
        """Whether the next fetch opens the session. It can't carry acknowledgements."""
        return self.epoch == INITIAL_EPOCH

    # what the next request has

    def add(self, partition: TopicIdPartition, acknowledgements: Acknowledgements | None = None) -> None:
        """Fetch a partition, and acknowledge records of it."""
        self._next[TopicPartition(partition.topic, partition.partition)] = partition
        if acknowledgements is not None:
            self._acknowledgements[partition] = acknowledgements

    def acknowledge_only(self, partition: TopicIdPartition, acknowledgements: Acknowledgements) -> None:
        """Acknowledge records of a partition that is not fetched."""
        self._acknowledgements[partition] = acknowledgements

    def fetch_request(self, limits: FetchLimits, *, may_skip: bool) -> ShareFetchRequest | None:
        """Return the next ShareFetch. With `may_skip`, it fetches nothing, and is None if it would not say anything else either."""
        added, removed = self._compare()
        acknowledgements = self._take_acknowledgements()
        if may_skip and not added and not removed and not acknowledgements:
            return None
        renews = any(one.has_renewals for one in acknowledgements.values())
        is_fetching = not renews and not may_skip
        return ShareFetchRequest(
            group_id=limits.group_id,
            member_id=self.member_id,
            share_session_epoch=self.epoch,
            max_wait_ms=limits.max_wait_ms if is_fetching else 0,
            min_bytes=limits.min_bytes if is_fetching else 0,
            max_bytes=limits.max_bytes if is_fetching else 0,
            max_records=limits.max_poll_records if is_fetching else 0,
            batch_size=limits.max_poll_records if is_fetching else 0,
            share_acquire_mode=limits.acquire_mode,
            is_renew_ack=renews,
            topics=_fetched_topics(added if self.epoch != FINAL_EPOCH else (), acknowledgements),
            forgotten_topics_data=_forgotten_topics(removed),
        )

    def _compare(self) -> tuple[list[TopicIdPartition], list[TopicIdPartition]]:
        """Make the session's partitions those that were added. Returns (new ones, forgotten ones)."""
        wanted, self._next = self._next, {}
        if self.is_new:
            self.partitions.update(wanted)
            return list(self.partitions.values()), []
        removed: list[TopicIdPartition] = []
        replaced: list[TopicIdPartition] = []
        added: dict[TopicPartition, TopicIdPartition] = dict(wanted)
        kept: dict[TopicPartition, TopicIdPartition] = {}
        for key, known in self.partitions.items():
            now = added.pop(key, None)
            if now is None:
                removed.append(known)
                continue
            kept[key] = now
            if now != known:  # the topic was created again
                added[key] = now
                replaced.append(known)
        self.partitions = {**kept, **added}
        return list(added.values()), removed + replaced

    def acknowledge_request(self, group_id: str) -> ShareAcknowledgeRequest | None:
        """Return the next ShareAcknowledge, or None in a session that is not open: then the locks are gone."""
        if self.is_new:
            self._next.clear()
            self._acknowledgements.clear()
            return None
        acknowledgements = self._take_acknowledgements()
        return ShareAcknowledgeRequest(
            group_id=group_id,
            member_id=self.member_id,
            share_session_epoch=self.epoch,
            is_renew_ack=any(one.has_renewals for one in acknowledgements.values()),
            topics=_acknowledged_topics(acknowledgements),
        )

    def _take_acknowledgements(self) -> dict[TopicIdPartition, Acknowledgements]:
        taken, self._acknowledgements = self._acknowledgements, {}
        return {partition: one for partition, one in taken.items() if len(one)}

    # answers

    def fetched(self, error: str) -> bool:
        """Handle the error of a ShareFetch (NONE: there is none). Returns whether its partitions can be read."""
        return self._answered(error, error in _RESTARTS or error == "SHARE_SESSION_LIMIT_REACHED")

    def acknowledged(self, error: str) -> bool:
        """Handle the error of a ShareAcknowledge. Returns whether its partitions can be read."""
        return self._answered(error, error in _RESTARTS)

    def _answered(self, error: str, restarts: bool) -> bool:
        if restarts:
            self.epoch = INITIAL_EPOCH
        elif self.epoch != FINAL_EPOCH:
            self.epoch = self.epoch + 1 if self.epoch < INT_MAX else 1
        return error == "NONE"

    def failed(self) -> None:
        """Open the session again, because a request was not answered."""
        self.epoch = INITIAL_EPOCH

    def close(self) -> None:
        """Let the next request end the session."""
        self.epoch = FINAL_EPOCH


def _fetched_topics(added: Iterable[TopicIdPartition], acknowledgements: dict[TopicIdPartition, Acknowledgements]) -> list[FetchTopic]:
    topics: dict[bytes, dict[int, FetchPartition]] = {}
    for one in added:
        topics.setdefault(one.topic_id, {})[one.partition] = FetchPartition(one.partition)
    for one, acks in acknowledgements.items():
        partitions = topics.setdefault(one.topic_id, {})
        batches = [AckBatchOfFetch(*batch) for batch in acks.batches()]
        partitions.setdefault(one.partition, FetchPartition(one.partition)).acknowledgement_batches = batches
    return [FetchTopic(topic_id, list(partitions.values())) for topic_id, partitions in topics.items()]


def _acknowledged_topics(acknowledgements: dict[TopicIdPartition, Acknowledgements]) -> list[AcknowledgeTopic]:
    topics: dict[bytes, list[AcknowledgePartition]] = {}
    for one, acks in acknowledgements.items():
        batches = [AckBatchOfAcknowledge(*batch) for batch in acks.batches()]
        topics.setdefault(one.topic_id, []).append(AcknowledgePartition(one.partition, batches))
    return [AcknowledgeTopic(topic_id, partitions) for topic_id, partitions in topics.items()]


def _forgotten_topics(removed: list[TopicIdPartition]) -> list[ForgottenTopic]:
    topics: dict[bytes, list[int]] = {}
    for one in removed:
        topics.setdefault(one.topic_id, []).append(one.partition)
    return [ForgottenTopic(topic_id, partitions) for topic_id, partitions in topics.items()]
