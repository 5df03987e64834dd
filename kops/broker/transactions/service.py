"""The transaction coordinator of one broker on its loop: timers, loading, and the requests to other brokers.

Source: the use of schedulers and InterBrokerSendThread in Kafka's TransactionCoordinator, TransactionMarkerChannelManager and
AddPartitionsToTxnManager. Requests to this broker itself need no connection.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Final

from kops.broker.network.peer import Peer, PeerSettings
from kops.broker.network.request_metrics import Histogram
from kops.broker.transactions.added_partitions import FIRST_BATCHED_VERSION, answer_add_partitions
from kops.broker.transactions.end_waits import EndWaits
from kops.broker.transactions.marker_writer import MarkerWriter
from kops.broker.transactions.surroundings import ABORT, EXPIRY
from kops.broker.transactions.transaction_log import ReplicatedTransactionLog, TransactionLogLoader
from kops.coordinators.transactions.config import TransactionConfig
from kops.coordinators.transactions.coordinator import TransactionCoordinator
from kops.coordinators.transactions.markers import TransactionMarkers
from kops.coordinators.transactions.state_manager import TransactionStateManager
from kops.coordinators.transactions.transaction_log import TRANSACTION_STATE_TOPIC
from kops.coordinators.transactions.verification import TransactionVerifications
from kops.errors import ApiError, KopsError
from kops.metadata.image.coordinator_changes import coordinator_changes
from kops.metadata.image.metadata_cache import NO_NODE
from kops.protocol.errors import by_name
from kops.protocol.messages import AddPartitionsToTxnResponse, WriteTxnMarkersResponse

if TYPE_CHECKING:
    from collections.abc import Callable

    from kops.broker.network.events.loop import Loop
    from kops.broker.transactions.surroundings import Surroundings
    from kops.coordinators.transactions.markers import Broker, MarkerRequest
    from kops.coordinators.transactions.verification import VerificationRequest
    from kops.metadata.image.metadata_cache import BrokerNode, MetadataCache
    from kops.metadata.image.parts.topics import TopicsDelta
    from kops.protocol.declaration import Message

log = logging.getLogger(__name__)

_RETRY_MS: Final = 20
_BACKOFF_MS: Final = 50
_END_TAKES_MS: Final = 500
"""If the end of a transaction takes longer than this after the decision, something blocks it."""
_VERIFICATION_LANES: Final = 5
"""Connections to a coordinator for AddPartitionsToTxn. Kafka uses one. In kops an answer may wait for the end of another transaction."""


class MarkerWakes:
    """Schedules the sending of markers: new ones in the next turn of the loop, failed ones a little later.

    All failed markers share one timer. With a timer for each, every timer would send all of them and start as many new timers.
    """

    def __init__(self, loop: Loop, send: Callable[[], object]) -> None:
        self._loop = loop
        self._send = send
        self._is_due = self._is_retry_due = False

    def wake(self, is_retry: bool) -> None:
        """Send the waiting markers in the next turn, or after a pause."""
        if is_retry and not self._is_retry_due:
            self._is_retry_due = True
            self._loop.call_later(_RETRY_MS, self._retry)
        elif not is_retry and not self._is_due:
            self._is_due = True
            self._loop.call_soon(self._send_new)

    def _retry(self) -> None:
        self._is_retry_due = False
        self._send()

    def _send_new(self) -> None:
        self._is_due = False
        self._send()


def leader_of(cache: MetadataCache, topic: str, partition: int, listener: str) -> BrokerNode | None:
    """Return the leader that gets a partition's marker, or None if the partition does not exist. Without a leader the id is -1; then the

    marker waits. Kafka 4.3 treats the second case like the first and completes the transaction without this marker.
    """
    found = cache.leader_endpoint(topic, partition, listener)
    return NO_NODE if found is None and cache.partition(topic, partition) is not None else found


class TransactionService:
    """The coordinator and everything around it. All methods are for the loop's thread. `partition_count` is that of the transaction log."""

    def __init__(self, around: Surroundings, partition_count: int) -> None:
        self._around = around
        self._loop = around.loop
        self._cache = around.cache
        settings = around.config()
        self.config = TransactionConfig.of(settings)
        self.manager = manager = TransactionStateManager(
            self.config,
            ReplicatedTransactionLog(around.replicas),
            partition_count=partition_count,
            now_ms=around.loop.now_ms,
            transaction_version=self.transaction_version,
            matcher=_matcher,
        )
        self._markers = TransactionMarkers(manager, self._leader_of, MarkerWakes(around.loop, self._send_markers).wake)
        self.end_waits = EndWaits(around.loop, self._longest_wait_ms)
        self._markers.on_complete = self.end_waits.ended
        self.verification_times = Histogram()
        self.verifications = TransactionVerifications(
            self._coordinator_of,
            lambda: self._loop.call_soon(self._send_verifications),
            now_ms=around.loop.now_ms,
            took=lambda ms: self.verification_times.update((ms,)),
            lanes=_VERIFICATION_LANES,
        )
        self.coordinator = TransactionCoordinator(manager, self._markers, around.new_producer_id)
        self.marker_writer = MarkerWriter(
            around.replicas, around.complete_in_groups, now_ms=around.loop.now_ms, request_timeout_ms=self.config.request_timeout_ms
        )
        self._loader = TransactionLogLoader(around.loop, around.replicas, manager)
        self._peers: dict[tuple[int, str, int, str], Peer] = {}
        self._is_closed = False
        for name, run, period_ms in (
            (ABORT.name, self.coordinator.abort_timed_out, self.config.abort_timed_out_interval_ms),
            (EXPIRY.name, manager.remove_expired, self.config.remove_expired_interval_ms),
        ):
            around.scheduler.schedule(name, run, period_ms, period_ms)

    def close(self) -> None:
        """Close the connections, and stop sending and loading."""
        self._is_closed = True
        self.coordinator.is_active = False
        for peer in self._peers.values():
            peer.close()
        self._peers.clear()

    def transaction_version(self) -> int:
        """The cluster's level of `transaction.version`."""
        return int(self._cache.image.features.levels.get("transaction.version", 0))

    # leaderships ------------------------------------------------------------------------------------------------------------------

    def apply(self, delta: TopicsDelta) -> None:
        """Load the partitions of the transaction log that this broker now leads, and drop those that it no longer leads."""
        changes = coordinator_changes(delta, TRANSACTION_STATE_TOPIC, self._around.node_id)
        for partition, epoch in changes.resigned:
            log.info("Resigned as the txn coordinator for partition %d at epoch %s", partition, epoch)
            self.coordinator.resign(partition, epoch)
        for partition, leader_epoch in changes.elected:
            self._elect(partition, leader_epoch)

    def _elect(self, partition: int, epoch: int) -> None:
        log.info("Elected as the txn coordinator for partition %d at epoch %d", partition, epoch)
        load = self.coordinator.begin_load(partition, epoch)
        count = self._cache.partition_count(TRANSACTION_STATE_TOPIC)
        if count != self.manager.partition_count:
            log.error("Transaction topic number of partitions has changed from %d to %s", self.manager.partition_count, count)
            return

        def loaded() -> None:
            if not self._is_closed:
                self.coordinator.end_load(load)

        self._loader.start(load, loaded)

    # markers ----------------------------------------------------------------------------------------------------------------------

    def _leader_of(self, topic: str, partition: int) -> Broker | None:
        return leader_of(self._cache, topic, partition, self._around.listener)

    def _send_markers(self) -> None:
        if self._is_closed:
            return
        for request in self._markers.take_requests():
            self._send_marker(request)

    def _send_marker(self, request: MarkerRequest) -> None:
        def answered(answer: Message | ApiError) -> None:
            if self._is_closed:
                return
            with_answer = answer if isinstance(answer, WriteTxnMarkersResponse) else None
            try:
                self._markers.on_answer(request, with_answer)
            except KopsError:
                log.exception("Error handling the markers' answer of broker %d", request.broker.id)

        message = request.message()
        if request.broker.id == self._around.node_id:
            self.marker_writer.write(message.markers, answered)
        else:
            self._peer(request.broker, "txn-marker-sender").send(message, answered)

    def _peer(self, broker: Broker, purpose: str) -> Peer:
        key = broker.id, broker.host, broker.port, purpose
        peer = self._peers.get(key)
        if peer is None:
            settings = self._around.config()
            peer = self._peers[key] = Peer(
                self._loop,
                broker.host,
                broker.port,
                draw=self._around.draw,
                settings=PeerSettings(
                    client_id=f"broker-{self._around.node_id}-{purpose}",
                    request_timeout_ms=self.config.request_timeout_ms,
                    reconnect_backoff_ms=_BACKOFF_MS,
                    reconnect_backoff_max_ms=_BACKOFF_MS,
                    socket_connection_setup_timeout_ms=settings["socket.connection.setup.timeout.ms"],
                    socket_connection_setup_timeout_max_ms=settings["socket.connection.setup.timeout.max.ms"],
                    max_in_flight_requests_per_connection=1,
                    receive_buffer_bytes=settings["socket.receive.buffer.bytes"],
                ),
            )
        return peer

    # verification -----------------------------------------------------------------------------------------------------------------

    def _coordinator_of(self, transactional_id: str) -> BrokerNode | None:
        found = self._cache.partition(TRANSACTION_STATE_TOPIC, self.manager.partition_for(transactional_id))
        return None if found is None or found.leader < 0 else self._cache.alive_broker(found.leader, self._around.listener)

    def _longest_wait_ms(self, transactional_id: str) -> int:
        """Return how long a broker's request may wait for an end that has already begun.

        A waiting request delays the other ids in it. If an end does not come because a partition has no leader, the delay is no
        longer than the pause after which Kafka's brokers repeat the request.
        """
        left_ms = _END_TAKES_MS - max(self.coordinator.ending_for_ms(transactional_id), 0)
        return max(left_ms, self.config.add_partitions_retry_backoff_ms)

    def _send_verifications(self) -> None:
        if self._is_closed:
            return
        for request in self.verifications.take_requests():
            self._send_verification(request)

    def _send_verification(self, request: VerificationRequest) -> None:
        def answered(answer: Message | ApiError) -> None:
            if not self._is_closed:
                assert isinstance(answer, (AddPartitionsToTxnResponse, ApiError))
                self.verifications.on_answer(request, answer)

        message = request.message()
        if request.broker.id == self._around.node_id:
            try:
                answer_add_partitions(self.coordinator, self._cache, message, FIRST_BATCHED_VERSION, answered, self.end_waits.add)
            except KopsError as error:
                # Answer like a request over a connection.
                name = error.name if isinstance(error, ApiError) else "UNKNOWN_SERVER_ERROR"
                log.error("Error adding partitions to transactions: %s", error)
                answered(AddPartitionsToTxnResponse(error_code=by_name(name).code))
        else:
            peer = self._peer(request.broker, f"add-partitions-to-txn-{request.lane}")
            peer.send(message, answered, versions=range(FIRST_BATCHED_VERSION, _LAST_VERSION + 1))

    def call_later(self, delay_ms: int, run: Callable[[], object]) -> None:
        """Call `run` once, unless the broker stops first."""
        self._loop.call_later(delay_ms, lambda: None if self._is_closed else run())


_LAST_VERSION: Final = 5


def _matcher(pattern: str) -> Callable[[str], bool]:
    """Return a predicate that matches whole ids with a regular expression by RE2J's rules."""
    from kops.coordinators.groups.regexes.automaton import Automaton
    from kops.coordinators.groups.regexes.parser import Parser, RegexError

    try:
        return Automaton(Parser(pattern).parse()).matches
    except RegexError as error:
        reason = f"Transaction ID pattern `{pattern}` is not a valid regular expression: {error.description}."
        raise ApiError("INVALID_REGULAR_EXPRESSION", reason) from error
