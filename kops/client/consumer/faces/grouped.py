"""The consumer of `kops topic consume --group`: a `kops.Consumer` that returns whole batches, and commits what the reader has finished.

Source: Kafka's ConsoleConsumer (ConsumerWrapper). One difference is intended: it commits the records that the reader has finished (`done`),
not those that `read` has returned, so records that were not written anywhere are not lost.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from kops.client.client import WAITING_MS
from kops.client.config.consumer import CONSUMER_CONFIG_DEF
from kops.client.consumer.errors import LogTruncationError, NoOffsetForPartitionError, OffsetOutOfRangeError
from kops.client.consumer.faces.blocking import Consumer
from kops.client.consumer.faces.driving import ListenerError
from kops.client.consumer.options import NO_EFFECT
from kops.client.consumer.records import OffsetAndMetadata
from kops.client.errors import KafkaError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from kops.client.consumer.core.collecting import Fetched
    from kops.client.settings import ClientSettings
    from kops.records.log_offsets import TopicPartition

_LAST_S: Final = 5.0  # the time in which a member that closes tries to commit, and then to leave
_OWN: Final = ("auto.offset.reset", "bootstrap.servers", "enable.auto.commit", "group.id", "key.deserializer", "value.deserializer")


class GroupReader(Consumer):
    """A member of a group. `on_change(taken, given)` reports assigned and revoked partitions.

    `start_offsets(keys)` returns where to begin in partitions without a committed offset; without it, that is an error. It also returns
    where to continue if a position is out of range, which `on_reset(key, position, start)` reports. `settle()` is called before each
    commit: the reader must then complete the records that it has reported (`done`). Without `commit_interval_ms`, only `finish` commits.
    """

    def __init__(
        self,
        settings: ClientSettings,
        group_id: str,
        topic: str,
        *,
        start_offsets: Callable[[Sequence[TopicPartition]], Mapping[TopicPartition, int]] | None,
        commit_interval_ms: int | None,
        settle: Callable[[], object],
        on_change: Callable[[Sequence[TopicPartition], Sequence[TopicPartition]], object],
        on_reset: Callable[[TopicPartition, int, int], object],
        on_trouble: Callable[[str], object],
        on_wait: Callable[[str], object],
    ) -> None:
        names = CONSUMER_CONFIG_DEF.keys.keys() - {*_OWN, *NO_EFFECT}
        super().__init__(
            {name: text for name, text in settings.given.items() if name in names},
            bootstrap_servers=",".join(settings.bootstrap_servers),
            group_id=group_id,
            auto_offset_reset="none",
            enable_auto_commit=False,
        )
        self.is_assigned = False  # whether the group has assigned partitions to this member, possibly none
        self._start_offsets = start_offsets
        self._interval_ms = commit_interval_ms
        self._settle, self._on_change, self._on_reset = settle, on_change, on_reset
        self._on_trouble, self._on_wait = on_trouble, on_wait
        self._prefix = f"group {group_id}: "
        self._done: dict[TopicPartition, int] = {}
        self._returned: dict[TopicPartition, int] = {}  # the offset after the last record that `read` has returned
        self._committed: dict[TopicPartition, int] = {}
        self._commit_ms = self._now_ms() + (commit_interval_ms or 0)
        self._heard_ms = self._now_ms()
        self._is_committing = self._is_ending = False
        self.subscribe([topic], self)

    @property
    def positions(self) -> dict[TopicPartition, int | None]:
        """The offset of the next record of each partition that this member reads, None before it is known."""
        partitions = self._core.subscriptions.partitions
        return {key: None if state.position is None else state.position.offset for key, state in partitions.items()}

    def done(self, key: TopicPartition, next_offset: int) -> None:
        """Report that the reader has finished all records before this offset."""
        self._done[key] = next_offset

    def read(self, timeout: float) -> list[Fetched]:
        """Return the next records, or wait up to `timeout` seconds for some. Meanwhile, take part in the group, and commit.

        Raises KafkaError, and the errors of `settle` and `start_offsets`.
        """
        self._commit_in_time()
        try:
            found = self._poll(self._core.poll_parts, timeout) or []
        except NoOffsetForPartitionError as error:
            if self._start_offsets is None:
                raise
            for key, start in self._start_offsets(error.partitions).items():
                self.seek(key, start)
            return []
        except OffsetOutOfRangeError as error:
            self._continue(error)
            return []
        except ListenerError as error:
            raise error.__cause__ or error from None
        for one in found:
            self._returned[one.key] = one.records[-1].offset + 1
        self._tell_waits(bool(found))
        return found

    def finish(self, *, commits: bool) -> None:
        """Commit, and leave the group. Failures are passed to `on_trouble`, not raised."""
        self._is_ending = True
        try:
            if commits:
                self._commit_now()
        finally:
            self.close(_LAST_S)

    # the group

    def on_partitions_assigned(self, keys: Sequence[TopicPartition]) -> None:
        """Begin to read partitions."""
        self.is_assigned = True
        self._on_change(keys, ())

    def on_partitions_revoked(self, keys: Sequence[TopicPartition]) -> None:
        """Commit, and stop reading partitions."""
        if self._interval_ms is not None and not self._is_ending:
            self._commit_now()
        self._forget(keys)

    def on_partitions_lost(self, keys: Sequence[TopicPartition]) -> None:
        """Stop reading partitions that may already belong to others."""
        if keys:
            self._on_trouble(f"{self._prefix}it continued without this member: records since the last commit are read again")
        self._forget(keys)

    def _forget(self, keys: Sequence[TopicPartition]) -> None:
        self.is_assigned = False
        for key in keys:
            for offsets in (self._done, self._returned, self._committed):
                offsets.pop(key, None)
        if keys and not self._is_ending:
            self._on_change((), keys)

    def _continue(self, error: OffsetOutOfRangeError) -> None:
        """Continue where a log was cut off, or where records without a committed offset begin."""
        divergent = error.divergent_offsets if isinstance(error, LogTruncationError) else {}
        starts = {key: one.offset for key, one in divergent.items()}
        missing = [key for key in error.offsets if key not in starts]
        if missing:
            if self._start_offsets is None:
                raise error
            starts.update(self._start_offsets(missing))
        for key, start in starts.items():
            self.seek(key, start)
            self._on_reset(key, error.offsets[key], start)

    def _tell_waits(self, has_records: bool) -> None:
        """Report what the member waits for, if it waits for long."""
        now_ms = self._now_ms()
        if has_records or (self.is_assigned and self._failing() == ""):
            self._heard_ms = now_ms
        elif now_ms - self._heard_ms >= WAITING_MS:
            why = self._failing() or self._driver.reason()
            if why:
                self._on_wait(f"{self._prefix}{why}")

    def _failing(self) -> str:
        """Return why nodes can't be reached, or an empty text."""
        network = self._network
        failing = [node for node in self._core.metadata.cluster.nodes.values() if network.is_failing(node)]
        return "; ".join(f"no answer from {node.address}: {network.reason(node)}" for node in failing)

    # commits

    def _news(self) -> Mapping[TopicPartition, OffsetAndMetadata]:
        """Return the finished offsets that are not committed yet. As in Kafka, they include transaction markers."""
        found: dict[TopicPartition, OffsetAndMetadata] = {}
        for key, consumed in self._core.subscriptions.consumed().items():
            done = self._done.get(key)
            if done == self._returned.get(key):
                one = consumed
            elif done is not None:
                one = OffsetAndMetadata(done)
            else:
                continue
            if one.offset != self._committed.get(key):
                found[key] = one
        return found

    def _commit_in_time(self) -> None:
        """Commit periodically, without waiting for the answer."""
        now_ms = self._now_ms()
        if self._interval_ms is None or now_ms < self._commit_ms or self._is_committing or not self.is_assigned:
            return
        self._commit_ms = now_ms + self._interval_ms
        self._settle()
        offsets = self._news()
        if offsets and self._core.commits.member.identity() is not None:
            self._is_committing = True
            self.commit_async(dict(offsets.items()), self._commit_ended)

    def _commit_ended(self, offsets: Mapping[TopicPartition, OffsetAndMetadata], error: Exception | None) -> None:
        self._is_committing = False
        if error is None:
            self._remember(offsets)
        elif not (isinstance(error, KafkaError) and error.retriable):
            self._on_trouble(f"{self._prefix}offsets were not committed: {error}")

    def _commit_now(self) -> None:
        """Commit, and wait for the answer. A failure is reported; the next owner of the partitions reads those records again."""
        self._settle()
        offsets = self._news()
        if not offsets:
            return
        try:
            self.commit(dict(offsets.items()), _LAST_S)
        except KafkaError as error:
            self._on_trouble(f"{self._prefix}offsets were not committed: {error}")
        else:
            self._remember(offsets)

    def _remember(self, offsets: Mapping[TopicPartition, OffsetAndMetadata]) -> None:
        self._committed.update((key, one.offset) for key, one in offsets.items() if key in self._core.subscriptions.partitions)
