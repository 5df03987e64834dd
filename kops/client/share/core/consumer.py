"""A whole share consumer without I/O: calls of the program in, requests out, records and outcomes.

Source: Kafka's ShareConsumerImpl (poll, pollForFetches, collect, acknowledge, commitSync, commitAsync, close) and
ApplicationEventProcessor. Its driver holds a lock during every call, sends the requests of `turn`, and calls the callback for what
`take_outcomes` returns. Two differences are intended: a poll returns renewed records as soon as the broker has answered, and it fetches
again after a fetch that brought nothing but control records. Kafka's waits for the end of its time-out.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Final

from kops.client.consumer.errors import as_kafka
from kops.client.errors import KafkaError
from kops.client.groups.membership import FindCoordinator, Send
from kops.client.groups.modern.events import Assigned, Cleared, Failed, FindTopics, Left
from kops.client.groups.modern.share import ShareMember
from kops.client.node import Node
from kops.client.producer.core.links import Links, Outgoing
from kops.client.share.core.acknowledgements import AcknowledgeType, TopicIdPartition
from kops.client.share.core.fetched import DeliveryError, FetchBuffer
from kops.client.share.core.inflight import ShareFetch
from kops.client.share.core.metadata import ShareMetadata
from kops.client.share.core.requesting import ShareRequests
from kops.config.values.java import INT_MAX
from kops.errors import ApiError, UsageError
from kops.protocol.connections.backoff import ExponentialBackoff
from kops.protocol.errors import by_code
from kops.protocol.messages import FindCoordinatorRequest, FindCoordinatorResponse

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from kops.client.metrics.share import ShareMetrics
    from kops.client.share.core.acknowledgements import AcknowledgementMap
    from kops.client.share.core.commits import Commit
    from kops.client.share.core.options import ShareOptions
    from kops.client.share.core.records import Deserializers, ShareRecord
    from kops.protocol.declaration import Message

_BATCHED: Final = range(4, FindCoordinatorRequest.VERSIONS.stop)
_IGNORED_AT_THE_END: Final = ("GROUP_AUTHORIZATION_FAILED", "TOPIC_AUTHORIZATION_FAILED", "INVALID_TOPIC_EXCEPTION")
Outcome = tuple[TopicIdPartition, frozenset[int], "KafkaError | None"]


class ShareCore:
    """The state of a share consumer. `member_id` is a random Uuid as text."""

    def __init__(
        self,
        options: ShareOptions,
        bootstrap: Sequence[tuple[str, int]],
        links: Links,
        draw: Callable[[], float],
        deserializers: Deserializers,
        member_id: str,
        now_ms: float,
        metrics: ShareMetrics | None = None,
    ) -> None:
        self._metrics = metrics
        self.options = options
        self.metadata = ShareMetadata(bootstrap, options, draw)
        self.topics: tuple[str, ...] = ()
        self._backoff = ExponentialBackoff(options.retry_backoff_ms, options.retry_backoff_max_ms, draw)
        self._links = links
        self._deserializers = deserializers
        self._buffer = FetchBuffer(self.metadata.want)
        self._requests = ShareRequests(options.limits, self.metadata, self._buffer, self._backoff.delay_ms, metrics)
        self._member = ShareMember(options.member, member_id, self.metadata.topic_name, self._backoff.delay_ms, now_ms)
        self._coordinator: Node | None = None
        self._is_coordinator_wanted = False
        self._known_version = self.metadata.version
        self._current = ShareFetch()
        self._may_fetch = False  # one fetch for each poll
        self._errors: deque[KafkaError] = deque()
        self._outcomes: list[Outcome] = []
        self._has_left = False

    @property
    def member_id(self) -> str:
        """The id of this member of the group."""
        return self._member.member_id

    # subscription

    def subscribe(self, topics: Iterable[str]) -> None:
        """Replace the subscription. The next poll joins the group. Raises UsageError."""
        found = tuple(dict.fromkeys(topics))
        for topic in found:
            if not isinstance(topic, str) or not topic.strip():
                raise UsageError(f"{topic!r} is not the name of a topic")
        self.topics = found
        self.metadata.subscribe(found)
        self._has_left = False
        self._member.subscribe(found)

    def unsubscribe(self) -> None:
        """Leave the group. `has_left` is true when the coordinator knows it."""
        self.topics = ()
        self.metadata.subscribe(())
        self._has_left = False
        self._member.leave()

    @property
    def has_left(self) -> bool:
        """Whether `unsubscribe` is complete."""
        return self._has_left

    # polls

    def begin_poll(self) -> None:
        """Begin a poll. Raises KafkaError and UsageError."""
        self._raise_error()
        self._take_completed()
        if not self.options.is_explicit:
            self._current.acknowledge_rest(AcknowledgeType.ACCEPT)
        elif not self._current.is_acknowledged:
            raise UsageError("poll: with share.acknowledgement.mode=explicit, every record of the last poll must be acknowledged before")
        if not self.topics:
            raise UsageError("poll: the consumer is not subscribed to any topic")
        self._may_fetch = True

    def collect(self, now_ms: float) -> list[ShareRecord]:
        """Return the records that are there, and send acknowledgements. Raises KafkaError."""
        self._member.polled(now_ms)
        self._take_completed()
        try:
            fetch = self._collect(self._current.take_acknowledgements(), now_ms)
        except DeliveryError as error:
            self._current = error.fetch
            raise error.error from error.error.__cause__
        if not fetch.is_empty:
            self._current = fetch
            self._take_completed()
            return fetch.records()
        self._raise_error()
        return []

    def _collect(self, acknowledgements: AcknowledgementMap, now_ms: float) -> ShareFetch:
        current = self._current
        if current.is_empty and not current.has_renewals:
            limits = self.options.limits
            fetch = self._buffer.collect(self._deserializers, limits.max_poll_records, checks_crcs=limits.checks_crcs)
            if fetch.is_empty:
                gaps = fetch.take_acknowledgements()  # control records alone
                if gaps:
                    self._commit_async(gaps, now_ms)
                    self._may_fetch = True
                acknowledgements = self._fetch(acknowledgements)
            self._commit_async(acknowledgements, now_ms)
            return fetch
        if current.has_renewals:
            current.take_renewed()
            if current.has_renewals:
                acknowledgements = self._fetch(acknowledgements)
        self._commit_async(acknowledgements, now_ms)
        return current

    def _fetch(self, acknowledgements: AcknowledgementMap) -> AcknowledgementMap:
        """Fetch more, once in a poll. Returns the acknowledgements that do not go with the fetch."""
        if not self._may_fetch:
            return acknowledgements
        self._may_fetch = False
        self._requests.fetch(acknowledgements)
        return {}

    @property
    def has_news(self) -> bool:
        """Whether a waiting poll has something to do."""
        if self._errors or self.metadata.has_error:
            return True
        return bool(self._requests.completed) if self._current.has_renewals else not self._buffer.is_empty

    def _raise_error(self) -> None:
        if self._errors:
            raise self._errors.popleft()
        error = self.metadata.take_error()
        if error is not None:
            raise error

    # acknowledgements

    def acknowledge(self, topic: str, partition: int, offset: int, kind: AcknowledgeType, *, is_record: bool) -> None:
        """Acknowledge a record of the last poll, or with an offset alone one that could not be delivered. Raises UsageError."""
        if not self.options.is_explicit:
            raise UsageError("acknowledge: not with share.acknowledgement.mode=implicit, where the next poll accepts all records")
        if is_record:
            self._current.acknowledge(topic, partition, offset, kind)
        else:
            self._current.acknowledge_failed(topic, partition, offset, kind)

    @property
    def lock_timeout_ms(self) -> int | None:
        """How long the records of the last poll are locked, if it is known."""
        return self._current.lock_timeout_ms

    def _take_all(self) -> AcknowledgementMap:
        self._take_completed()
        if not self.options.is_explicit:
            self._current.acknowledge_rest(AcknowledgeType.ACCEPT)
        return self._current.take_acknowledgements()

    def commit_sync(self, deadline_ms: float, now_ms: float) -> Commit | None:
        """Send all acknowledgements. Returns their commit, or None if there are none."""
        acknowledgements = self._take_all()
        return self._requests.commit_sync(acknowledgements, deadline_ms, now_ms) if acknowledgements else None

    def commit_async(self, now_ms: float) -> None:
        """Send all acknowledgements."""
        self._commit_async(self._take_all(), now_ms)

    def _commit_async(self, acknowledgements: AcknowledgementMap, now_ms: float) -> None:
        if acknowledgements:
            self._requests.commit_async(acknowledgements, now_ms + self.options.api_timeout_ms, now_ms)

    # outcomes

    def set_callback(self, *, is_set: bool) -> None:
        """Collect outcomes for a callback, or not."""
        self._requests.has_callback = is_set
        if not is_set:
            self._outcomes.clear()

    def _take_completed(self) -> None:
        completed, self._requests.completed = self._requests.completed, []
        for one in completed:
            if self._requests.has_callback:
                self._outcomes += [(key, frozenset(acks.types), acks.error) for key, acks in one.acknowledgements.items()]
            if one.may_renew:
                self._current.renew(one.acknowledgements, one.lock_timeout_ms)

    def take_outcomes(self) -> list[Outcome]:
        """Return the outcomes for the callback: partition, offsets, error."""
        self._take_completed()
        outcomes, self._outcomes = self._outcomes, []
        return outcomes

    # the end

    def begin_close(self, deadline_ms: float, now_ms: float) -> None:
        """Send the acknowledgements, and end the share sessions. Locks that are left end with them."""
        self._requests.close(self._current.take_acknowledgements(), deadline_ms, now_ms)

    @property
    def has_closed_sessions(self) -> bool:
        """Whether all nodes have answered."""
        return self._requests.is_closed

    def leave_at_close(self) -> None:
        """Leave the group, and look for no other coordinator."""
        self._member.stop_searching()
        self.unsubscribe()

    def last_words(self) -> Outgoing | None:
        """Return the request that leaves the group, if it was not sent before. Nobody waits for its answer."""
        send = self._member.last_words()
        return None if send is None or self._coordinator is None else self._of_member(send, self._coordinator)

    def take_last_error(self) -> KafkaError | None:
        """Return an error that the program has to know at the end, too."""
        return next((error for error in self._errors if error.name not in _IGNORED_AT_THE_END), None)

    # the network's side

    def turn(self, now_ms: float) -> tuple[list[Outgoing], float]:
        """Return the requests to send now, and the time until the next turn at the latest."""
        requests: list[Outgoing] = []
        if self.metadata.version != self._known_version:
            self._known_version = self.metadata.version
            self._member.metadata_changed()
        self._drive_member(requests, now_ms)
        if self._member.member_epoch > 0:
            self._requests.member_id = self._member.member_id
        # A turn that only finds that a commit is complete is followed by the next one at once.
        for one in self._requests.turn(now_ms) or (self._requests.turn(now_ms) if self._requests.wake_ms() <= now_ms else ()):
            requests.append(Outgoing(one.node, one.message, self._watched(one.answered), one.versions))
        asked, wait_ms = self.metadata.ask(self._links, now_ms)
        if asked is not None:
            requests.append(asked)
        # What is due and was not sent waits for metadata or for a connection.
        due_ms = min(self._member.wake_ms(), self._requests.wake_ms())
        pause_ms = float(self.options.retry_backoff_ms)
        wait_ms = min(wait_ms, due_ms - now_ms if due_ms > now_ms else pause_ms, pause_ms if self._is_coordinator_wanted else wait_ms)
        return requests, wait_ms

    def _watched(self, answered: Callable[[Message | ApiError, float], None]) -> Callable[[Message | ApiError, float], None]:
        def watch(answer: Message | ApiError, now_ms: float) -> None:
            if isinstance(answer, ApiError):
                self.metadata.want()  # the node may not lead any more
            answered(answer, now_ms)

        return watch

    def _drive_member(self, requests: list[Outgoing], now_ms: float) -> None:
        while (event := self._member.next_event(now_ms)) is not None:
            if isinstance(event, Send):
                assert self._coordinator is not None
                requests.append(self._of_member(event, self._coordinator))
            elif isinstance(event, FindCoordinator):
                self._is_coordinator_wanted = True
            elif isinstance(event, FindTopics):
                self.metadata.want()
            elif isinstance(event, Assigned):
                self._requests.assigned = dict.fromkeys(event.keys)
                if self._metrics is not None:
                    self._metrics.rebalanced()
            elif isinstance(event, Cleared):
                self._requests.assigned = {}
            elif isinstance(event, Failed):
                self._errors.append(as_kafka(event.error))
            elif isinstance(event, Left):
                self._has_left = True
        if self._is_coordinator_wanted:
            self._find_coordinator(requests)

    def _of_member(self, send: Send, coordinator: Node) -> Outgoing:
        message = send.message
        return Outgoing(coordinator, message, lambda answer, now_ms: self._member.receive(message, answer, now_ms))

    def _find_coordinator(self, requests: list[Outgoing]) -> None:
        node = self._links.least_loaded(self.metadata.cluster.nodes.values())
        if node is None or not self._links.is_ready(node):
            return
        self._is_coordinator_wanted = False
        message = FindCoordinatorRequest(coordinator_keys=[self.options.limits.group_id])
        requests.append(Outgoing(node, message, self._coordinator_came, _BATCHED))

    def _coordinator_came(self, answer: Message | ApiError, now_ms: float) -> None:
        error = answer if isinstance(answer, ApiError) else None
        if isinstance(answer, FindCoordinatorResponse):
            (one,) = answer.coordinators
            if not one.error_code:
                # Heartbeats have a connection of their own, because a fetch may wait on the other one.
                self._coordinator = Node(INT_MAX - one.node_id, one.host, one.port)
                self._member.coordinator_found(now_ms)
                return
            code = by_code(one.error_code)
            error = ApiError(code.name, one.error_message or code.words)
        assert error is not None
        self._member.coordinator_not_found(error, now_ms)
