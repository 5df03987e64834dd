"""The consumer of commands: reads partitions from given offsets, and returns whole batches. It uses the connections of a `Client`.

Source: Kafka's KafkaConsumer without groups, as ConsoleConsumer and GetOffsetShell use it. The differences to the other faces are intended:
there is no deserializer, a topic that was deleted is an error, and `Client.tell` reports why a partition can't be read.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from kops.client.client import WAITING_MS
from kops.client.consumer.core.collecting import PLAIN, Collector, Fetched
from kops.client.consumer.core.fetching import Fetcher
from kops.client.consumer.core.offsets import OffsetLookups
from kops.client.consumer.errors import CorruptRecordError
from kops.client.consumer.options import ConsumerOptions
from kops.client.consumer.parts.metadata import ConsumerMetadata
from kops.client.consumer.parts.state import Kind, PartitionState, Phase, Position, Subscriptions
from kops.errors import ApiError, DecodeError, NotFoundError
from kops.protocol.errors import by_name

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from kops.client.client import Client
    from kops.client.consumer.parts.requests import Outgoing
    from kops.protocol.declaration import Message
    from kops.records.log_offsets import TopicPartition

_GONE: Final = ("UNKNOWN_TOPIC_OR_PARTITION", "UNKNOWN_TOPIC_ID")
_GONE_ANSWERS: Final = 5  # after this many answers about its topic, a partition that its leader does not know counts as deleted


class _Trouble:
    """A partition that can't be read: since when, and the metadata at that time."""

    __slots__ = ("since_ms", "version")

    def __init__(self, since_ms: float, version: int) -> None:
        self.since_ms = since_ms
        self.version = version


class BatchConsumer:
    """Reads partitions from given offsets. Only one thread may use it.

    `on_reset(key, offset)` is called if the records at a position are gone (retention, a trim) and reading continues at the log's start.
    """

    def __init__(
        self,
        client: Client,
        positions: Mapping[TopicPartition, int],
        *,
        on_reset: Callable[[TopicPartition, int], object] = lambda key, offset: None,
    ) -> None:
        self.client = client
        self._options = options = ConsumerOptions.of_command(client.settings)
        self._subscriptions = Subscriptions(options.reset)
        self._subscriptions.set_kind(Kind.ASSIGNED)
        self._metadata = ConsumerMetadata((), options, client.draw, self._subscriptions)
        self._metadata.begin_with(client.metadata, client.now_ms())
        self._offsets = OffsetLookups(options, self._metadata, self._subscriptions, client.network, lambda: 0)
        self._fetcher = Fetcher(options, self._metadata, self._subscriptions, client.network, self._offsets.use_leader)
        self._collector = Collector(options, self._metadata, self._subscriptions, self._fetcher.completed, PLAIN)
        self._on_reset = on_reset
        self._positions: dict[TopicPartition, int] = {}  # the last ones that were known
        self._resets: set[TopicPartition] = set()
        self._troubles: dict[TopicPartition, _Trouble] = {}
        for key, position in positions.items():
            self.add(key, position)

    @property
    def positions(self) -> dict[TopicPartition, int]:
        """The offset of the next record of each partition."""
        for key, state in self._subscriptions.partitions.items():
            if state.position is not None:
                self._positions[key] = state.position.offset
        return dict(self._positions)

    def add(self, key: TopicPartition, position: int) -> None:
        """Start reading a partition, or begin again at another offset."""
        partitions = self._subscriptions.partitions
        if key not in partitions:
            self._subscriptions.assign([*partitions, key])
        self._subscriptions.state(key).seek(Position(position))
        self._positions[key] = position
        self._offsets.forget_leaders()
        if key not in self._metadata.cluster.leaders:
            self._metadata.want_soon()

    def drop(self, key: TopicPartition) -> None:
        """Stop reading a partition."""
        self._subscriptions.assign([one for one in self._subscriptions.partitions if one != key])
        self._positions.pop(key, None)
        self._troubles.pop(key, None)
        self._resets.discard(key)

    def poll(self, timeout_ms: float) -> Iterator[Fetched]:
        """Return the fetched batches, or wait up to `timeout_ms` for some. Positions advance as the batches are taken.

        Raises ApiError, UnreachableError, NotFoundError (a topic was deleted), DecodeError (damaged records).
        """
        client = self.client
        deadline_ms = client.now_ms() + timeout_ms
        while True:
            while (fetched := self._next()) is not None:
                deadline_ms = 0
                yield fetched
            wait_ms = self._turn()
            left_ms = deadline_ms - client.now_ms()
            if left_ms <= 0:
                return
            client.turn(min(left_ms, wait_ms))

    def _next(self) -> Fetched | None:
        try:
            return self._collector.collect_part(self.client.now_ms())
        except CorruptRecordError as error:
            key, cause = error.partition, error.__cause__
            if key is None or not isinstance(cause, DecodeError):
                raise
            raise DecodeError(f"{key.topic}-{key.partition}, offset {error.offset}: {cause.reason}", code=cause.code) from None

    def _turn(self) -> float:
        """Send the requests that are due. Returns the maximum time until the next turn in ms."""
        now_ms = self.client.now_ms()
        self._report_resets()
        self._check_partitions(now_ms)
        error = self._offsets.take_error()
        if error is not None:
            raise error
        requests, wait_ms = self._metadata.turn(self.client.network, now_ms) if self._subscriptions.partitions else ([], float("inf"))
        requests += self._offsets.turn(now_ms)
        requests += self._fetcher.turn(now_ms)
        for request in requests:
            self._send(request)
        return max(min(wait_ms, self._offsets.wake_ms() - now_ms), 0.0)

    def _send(self, request: Outgoing) -> None:
        def done(answer: Message | ApiError) -> None:
            request.answered(answer, self.client.now_ms())

        self.client.network.send(request.node, request.message, done, versions=request.versions, timeout_ms=request.timeout_ms)

    def _report_resets(self) -> None:
        """Report the partitions that continue at the start of the log."""
        for key, state in self._subscriptions.partitions.items():
            if state.phase is Phase.RESETTING:
                self._resets.add(key)
            elif key in self._resets and state.position is not None:
                self._resets.discard(key)
                self._on_reset(key, state.position.offset)

    def _check_partitions(self, now_ms: float) -> None:
        """Report why partitions can't be read, if the problem lasts. Raises NotFoundError and UnreachableError."""
        for key, state in self._subscriptions.partitions.items():
            why = self._why(key, state)
            if why is None:
                self._troubles.pop(key, None)
                continue
            name = f"{key.topic}-{key.partition}"
            trouble = self._troubles.setdefault(key, _Trouble(now_ms, self._metadata.version))
            waited_ms = now_ms - trouble.since_ms
            has_asked = self._metadata.version - trouble.version >= _GONE_ANSWERS
            if why in _GONE:
                if has_asked and waited_ms >= _GONE_ANSWERS / 2 * self._options.retry_backoff_max_ms:
                    raise NotFoundError(f"{name} does not exist any more")
                why = by_name(why).words
            if waited_ms >= WAITING_MS:
                self.client.tell(f"{name}: {why}")
            node = self._metadata.leader(key)
            if node is not None:
                self.client.ensure_reachable(node)

    def _why(self, key: TopicPartition, state: PartitionState) -> str | None:
        """Return why a partition can't be read, or None. The name of an error stands for a topic that may be deleted."""
        error = self._metadata.cluster.topic_errors.get(key.topic)
        if error is not None or state.failure is not None:
            name = error or state.failure or ""
            return name if name in _GONE else by_name(name).words
        node = self._metadata.leader(key)
        if node is None:
            return "it has no leader"
        return f"no answer from {node.address}: {self.client.network.reason(node)}" if self.client.network.is_failing(node) else None
