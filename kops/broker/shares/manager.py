"""The interface of request handlers to the share partitions of a broker. Source: SharePartitionManager."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from kops.broker.shares.log_reader import ShareLogReader, as_api_error, led_partition, offset_for_timestamp
from kops.broker.shares.parked import ParkedShareFetch
from kops.broker.shares.partitions import SharePartitions
from kops.broker.shares.settings import ShareGroupSettings
from kops.coordinators.runtime.promise import Promise
from kops.coordinators.share.fetching.delayed import DelayedShareFetch
from kops.coordinators.share.fetching.share_fetch import Results, ShareFetch
from kops.coordinators.share.key import SharePartitionKey
from kops.coordinators.share.partition.acknowledging import AcknowledgementBatch
from kops.coordinators.share.partition.share_partition import SharePartition, Surroundings
from kops.coordinators.share.responses import MESSAGES
from kops.coordinators.share.sessions.dividing import rotated
from kops.coordinators.share.sessions.session import SessionKey, TopicIdPartition
from kops.coordinators.share.sessions.session_cache import ShareSessionCache
from kops.errors import ApiError, KopsError
from kops.protocol.errors import by_name
from kops.protocol.messages.share_acknowledge_response import PartitionData as Acknowledged
from kops.replication.waiting.purgatory import DelayedOperation, DelayedOperationPurgatory

if TYPE_CHECKING:
    from kops.broker.network.events.loop import Loop
    from kops.broker.replicas.manager import ReplicaManager
    from kops.config import BrokerConfig
    from kops.coordinators.share.partition.persisting import PartitionPersister
    from kops.replication.leading.fetch import FetchParams

log = logging.getLogger(__name__)

_FENCING: Final = frozenset({"NOT_LEADER_OR_FOLLOWER", "FENCED_STATE_EPOCH", "GROUP_ID_NOT_FOUND", "UNKNOWN_TOPIC_OR_PARTITION"})
"""Errors after which a share partition must be loaded again, here or on another broker."""
_NOT_YET: Final = "LEADER_NOT_AVAILABLE"
_ACQUIRE_MODES: Final = (False, True)
"""For each acquire mode, whether the number of records is a hard limit."""
_TYPES: Final = {1: "Accept", 2: "Release", 3: "Reject", 4: "Renew"}
Acknowledgements = Mapping[TopicIdPartition, Sequence[AcknowledgementBatch]]


@dataclass(frozen=True, slots=True)
class Around:
    """The parts of the broker that the manager uses. `settings_of` returns the settings of a group, or None if it has none."""

    loop: Loop
    replicas: ReplicaManager
    config: Callable[[], BrokerConfig]
    settings_of: Callable[[str], Mapping[str, Any] | None]
    persister: PartitionPersister
    random_below: Callable[[int], int]


class Wanted(NamedTuple):
    """The request of a member. `acquire_mode` is the number in the request."""

    member: SessionKey
    session_epoch: int
    params: FetchParams
    acquire_mode: int
    max_records: int
    batch_size: int
    parts: Sequence[TopicIdPartition]


class SharePartitionManager:
    """Manages sessions, share partitions and waiting fetches."""

    def __init__(self, around: Around) -> None:
        self._around = around
        self.sessions = ShareSessionCache(around.config()["group.share.max.share.sessions"])
        self.sessions.on_member_left = self.release_session
        self.partitions = SharePartitions(around.replicas, self._go_on)
        self.sessions.on_group_empty = self.partitions.remove_group
        self.purgatory: DelayedOperationPurgatory[DelayedOperation] = DelayedOperationPurgatory(around.replicas.timer)
        around.replicas.purgatories.share_fetch = self.purgatory
        self.expired_count = 0
        self.acknowledged_counts = dict.fromkeys(_TYPES.values(), 0)
        """Counts of records by acknowledge type."""

    def settings(self, group_id: str) -> ShareGroupSettings:
        """The settings of a group."""
        return ShareGroupSettings(group_id, self._around.settings_of, self._around.config)

    # fetches ----------------------------------------------------------------------------------------------------------------------

    def fetch(self, wanted: Wanted) -> Promise[Results]:
        """Acquire records for a member, now or when there are enough. Raises ApiError for an unknown mode."""
        if wanted.acquire_mode not in range(len(_ACQUIRE_MODES)):
            raise ApiError("UNKNOWN_SERVER_ERROR", f"Unknown share acquire mode id: {wanted.acquire_mode}")
        params = wanted.params
        fetch = ShareFetch(
            wanted.member.group_id,
            wanted.member.member_id,
            rotated(wanted.parts, wanted.session_epoch),
            params.max_bytes,
            params.min_bytes,
            wanted.max_records,
            wanted.batch_size,
            _ACQUIRE_MODES[wanted.acquire_mode],
        )
        if not fetch.parts or not fetch.max_fetch_records or not fetch.max_bytes:
            fetch.complete({})
            return fetch.results
        found, keys = self._load(fetch)
        stats = self._around.replicas.stats
        for topic in _topics(fetch.parts):
            stats.of(topic).total_share_fetch_requests += 1
        fetch.results.when_done(lambda *_: self._count_failed(fetch))
        if fetch.is_hopeless:
            fetch.complete({})
            return fetch.results
        group_id = fetch.group_id
        delayed = DelayedShareFetch(
            fetch,
            found,
            ShareLogReader(self._around.replicas, params),
            self._around.random_below,
            lambda part, error: self._maybe_fence(_key(group_id, part), error),
            lambda parts: self._around.loop.call_soon(partial(self._released, group_id, tuple(parts))),
        )
        self.purgatory.try_complete_else_watch(ParkedShareFetch(params.max_wait_ms, delayed, self._expired), keys)
        return fetch.results

    def after(self, delay_ms: int, run: Callable[[], object]) -> None:
        """Call later. A member that cannot get a session is answered after its maximum wait, so that it does not retry at once."""
        self._around.loop.call_later(delay_ms, run)

    def _load(self, fetch: ShareFetch) -> tuple[dict[TopicIdPartition, SharePartition], list[Any]]:
        """Return the share partitions of a fetch, whose state may still be loading, and the keys under which the fetch waits."""
        found: dict[TopicIdPartition, SharePartition] = {}
        keys: list[Any] = []
        for part in fetch.parts:
            key = _key(fetch.group_id, part)
            try:
                share_partition = self._get_or_create(key, part)
            except KopsError as error:
                fetch.errors[part] = as_api_error(error)
                continue
            keys += [key, (part.topic, part.partition)]
            initialized = share_partition.maybe_initialize()
            was_done = initialized.is_done
            initialized.when_done(partial(self._initialized, fetch, part, was_done=was_done))
            found[part] = share_partition
        return found, keys

    def _get_or_create(self, key: SharePartitionKey, part: TopicIdPartition) -> SharePartition:
        known = self.partitions.get(key)
        if known is not None:
            return known
        around = self._around
        partition = led_partition(around.replicas, part)
        leader_epoch = partition.leader_epoch
        settings = self.settings(key.group_id)

        def initial_offset() -> int:
            return offset_for_timestamp(around.replicas, part, settings.reset_timestamp(around.loop.now_ms()), leader_epoch)

        surroundings = Surroundings(
            settings,
            around.persister,
            lambda: int(around.loop.monotonic_ms()),
            around.loop.call_later,
            initial_offset,
            lambda: self._go_on(key),
        )
        assert part.topic is not None, "the topic is known"
        share_partition = SharePartition(key, part.topic, leader_epoch, surroundings)
        self.partitions.add(key, share_partition, partition)
        return share_partition

    def _initialized(self, fetch: ShareFetch, part: TopicIdPartition, _: None, error: KopsError | None, *, was_done: bool) -> None:
        key = _key(fetch.group_id, part)
        if error is not None:
            failure = as_api_error(error)
            if failure.name != _NOT_YET:
                self.partitions.remove(key)
                log.debug("Error initializing share partition %s: %s", key.coordinator_key, failure)
                fetch.errors[part] = failure
        if not was_done:
            self._go_on(key)

    def _count_failed(self, fetch: ShareFetch) -> None:
        for topic in _topics(fetch.errors):
            self._around.replicas.stats.of(topic).failed_share_fetch_requests += 1

    def _expired(self) -> None:
        self.expired_count += 1

    def _go_on(self, key: SharePartitionKey) -> None:
        """Try the waiting fetches of a share partition again, after a change."""
        self.purgatory.check_and_complete(key)

    def _released(self, group_id: str, parts: Iterable[TopicIdPartition]) -> None:
        """Let other fetches read the partitions of a completed fetch."""
        for part in parts:
            self._go_on(_key(group_id, part))
            self.purgatory.check_and_complete((part.topic, part.partition))

    # acknowledgements -------------------------------------------------------------------------------------------------------------

    def acknowledge(self, member: SessionKey, acknowledgements: Acknowledgements) -> Promise[dict[TopicIdPartition, Acknowledged]]:
        """Acknowledge records. The promise completes when all of them are persisted."""
        done = _Results(list(acknowledgements))
        for part, batches in acknowledgements.items():
            share_partition = self.partitions.get(_key(member.group_id, part))
            if share_partition is None:
                done.add(part, ApiError("UNKNOWN_TOPIC_OR_PARTITION", MESSAGES["UNKNOWN_TOPIC_OR_PARTITION"]))
                continue
            share_partition.acknowledge(member.member_id, batches).when_done(partial(self._acknowledged, member, part, batches, done))
            self._go_on(_key(member.group_id, part))
        stats = self._around.replicas.stats
        for topic in _topics(acknowledgements):
            stats.of(topic).total_share_acknowledgement_requests += 1
        done.promise.when_done(lambda *_: self._count_refused(done.failed))
        return done.promise

    def _acknowledged(
        self,
        member: SessionKey,
        part: TopicIdPartition,
        batches: Sequence[AcknowledgementBatch],
        done: _Results,
        _: None,
        error: KopsError | None,
    ) -> None:
        if error is None:
            for batch in batches:
                repeats = batch.last_offset - batch.first_offset + 1 if len(batch.types) == 1 else 1
                for each in batch.types:
                    if each in _TYPES:
                        self.acknowledged_counts[_TYPES[each]] += repeats
            done.add(part, None)
            return
        failure = as_api_error(error)
        self._maybe_fence(_key(member.group_id, part), failure)
        done.add(part, failure)

    def _count_refused(self, failed: Iterable[TopicIdPartition]) -> None:
        for topic in _topics(failed):
            self._around.replicas.stats.of(topic).failed_share_acknowledgement_requests += 1

    # the ends of sessions ---------------------------------------------------------------------------------------------------------

    def release_session(self, member: SessionKey) -> None:
        """End a member's session and release its records."""
        session = self.sessions.get(member)
        if session is None:
            log.error("Share session error for %s of group %s: no such share session found", member.member_id, member.group_id)
            return
        parts = session.parts
        self.sessions.remove(member)
        for part in parts:
            key = _key(member.group_id, part)
            share_partition = self.partitions.get(key)
            if share_partition is None:
                log.error("No share partition %s found while releasing acquired topic partitions", key.coordinator_key)
                continue
            share_partition.release_acquired_records(member.member_id).when_done(partial(self._session_released, key))
            self._go_on(key)

    def _session_released(self, key: SharePartitionKey, _: None, error: KopsError | None) -> None:
        if error is not None:
            log.info("Releasing the records of %s failed: %s", key.coordinator_key, error)
            self._maybe_fence(key, as_api_error(error))

    def switch_off(self) -> None:
        """Remove everything, because the cluster's `share.version` no longer supports share groups."""
        self.sessions.remove_all()
        self.partitions.remove_all()

    def close(self) -> None:
        """Close: no lock expires and nothing is written any more."""
        for share_partition in self.partitions:
            share_partition.close()

    def _maybe_fence(self, key: SharePartitionKey, error: ApiError) -> None:
        if error.name in _FENCING:
            log.info("The share partition with key %s is fenced: %s", key.coordinator_key, error)
            self.partitions.remove(key)


class _Results:
    """Collects the results of several partitions."""

    def __init__(self, parts: Sequence[TopicIdPartition]) -> None:
        self.promise: Promise[dict[TopicIdPartition, Acknowledged]] = Promise()
        self.failed: list[TopicIdPartition] = []
        self._found: dict[TopicIdPartition, Acknowledged | None] = dict.fromkeys(parts)
        self._left = len(parts)

    def add(self, part: TopicIdPartition, error: ApiError | None) -> None:
        """Add the result of a partition."""
        result = Acknowledged(part.partition)
        if error is not None:
            self.failed.append(part)
            result.error_code = by_name(error.name).code
            result.error_message = error.message or None
        self._found[part] = result
        self._left -= 1
        if not self._left:
            self.promise.complete({each: found for each, found in self._found.items() if found is not None})


def _key(group_id: str, part: TopicIdPartition) -> SharePartitionKey:
    return SharePartitionKey(group_id, part.topic_id, part.partition)


def _topics(parts: Iterable[TopicIdPartition]) -> dict[str, None]:
    return dict.fromkeys(part.topic for part in parts if part.topic is not None)
