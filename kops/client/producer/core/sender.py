"""Decides what to send next, and handles answers. One turn takes the time and returns requests.

Source: Kafka's Sender, in its order of steps: producer id, ready partitions, nodes that can take a request, drained batches, expired
batches, requests. KIP-219: a node that throttles gets no requests for that time. KIP-951: leaders in an error.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from kops.client.errors import BatchRejectedError, KafkaError, KafkaTimeoutError, ProducerClosedError, error_named
from kops.client.metadata import Leader
from kops.client.node import Node
from kops.client.producer.core.batches import ProducerBatch
from kops.client.producer.core.coordination import Coordination
from kops.client.producer.core.identity import Identity
from kops.client.producer.core.links import Links, Outgoing
from kops.client.producer.core.transactions import Transactions
from kops.errors import ApiError
from kops.protocol.declaration import ZERO_UUID
from kops.protocol.errors import Reaction, by_code, by_name
from kops.protocol.messages import InitProducerIdRequest, InitProducerIdResponse, ProduceRequest, ProduceResponse
from kops.protocol.messages.produce_request import PartitionProduceData, TopicProduceData
from kops.records.log_offsets import TopicPartition

if TYPE_CHECKING:
    from kops.client.metrics.producer import ProducerMetrics
    from kops.client.producer.core.accumulator import Accumulator
    from kops.client.producer.core.identity import SequenceKeeper
    from kops.client.producer.core.topics import ProducerMetadata
    from kops.client.producer.options import ProducerOptions
    from kops.protocol.declaration import Message
    from kops.protocol.messages.produce_response import PartitionProduceResponse

_FOREVER: Final = float("inf")
_NO_TIMEOUT: Final = 0x7FFF_FFFF
_FIRST_THAT_ADDS: Final = 12  # of Produce: adds partitions to the transaction (KIP-890)
_FIRST_WITH_IDS: Final = 13  # of Produce: topics by their ids
_MOVED: Final = ("NOT_LEADER_OR_FOLLOWER", "FENCED_LEADER_EPOCH")


class Sender:
    """The sending half of a producer. `finished` are the batches with a new outcome."""

    def __init__(
        self,
        options: ProducerOptions,
        metadata: ProducerMetadata,
        accumulator: Accumulator,
        keeper: SequenceKeeper | None,
        links: Links,
        metrics: ProducerMetrics | None = None,
    ) -> None:
        self.finished: list[ProducerBatch] = []
        self.due_ms = _FOREVER  # the time of the next turn at the latest
        self._options = options
        self._metadata = metadata
        self._accumulator = accumulator
        self._keeper = keeper
        self._links = links
        self._metrics = metrics
        self._in_flight: dict[TopicPartition, list[ProducerBatch]] = {}
        self._requests = 0
        self._throttled: dict[int, float] = {}
        self._keeps_order = options.max_in_flight == 1
        self._init_ms: float | None = None  # when a producer id may be requested; None if none is needed
        self._coordination = Coordination(options, keeper, self) if isinstance(keeper, Transactions) else None

    @property
    def is_idle(self) -> bool:
        """Whether no batch waits, and no request for batches or transactions is in flight."""
        is_coordinating = self._coordination is not None and not self._coordination.is_idle
        return not self._requests and not is_coordinating and not self._accumulator.has_undrained

    @property
    def is_resting(self) -> bool:
        """Whether no batch is in flight."""
        return not self._requests

    def turn(self, now_ms: float) -> tuple[list[Outgoing], float]:
        """Return the requests to send now, and the time until the next turn at the latest."""
        requests: list[Outgoing] = []
        wait_ms = self._fill(requests, now_ms)
        self.due_ms = now_ms + wait_ms
        return requests, wait_ms

    def _fill(self, requests: list[Outgoing], now_ms: float) -> float:
        wait_ms = self._ask_for_metadata(requests, now_ms)
        if self._coordination is not None:
            may_send, pause_ms = self._coordination.turn(requests, now_ms)
            wait_ms = min(wait_ms, pause_ms)
            if not may_send:
                return wait_ms
        elif self._keeper is not None:
            wait_ms = min(wait_ms, self._ask_for_identity(self._keeper, requests, now_ms))
            if self._keeper.fatal_error is not None:
                self.abort(self._keeper.fatal_error)
                return wait_ms
        return min(wait_ms, self._send_batches(requests, now_ms))

    # metadata and producer id

    def _ask_for_metadata(self, requests: list[Outgoing], now_ms: float) -> float:
        metadata = self._metadata
        wait_ms = metadata.wait_ms(now_ms)
        if wait_ms > 0:
            return wait_ms
        nodes = metadata.cluster.nodes.values()
        metadata.maybe_rebootstrap(now_ms, are_all_failing=all(map(self._links.is_failing, nodes)))
        node = self.any_node(now_ms)
        if node is None or not self._links.is_ready(node):
            return self.retry_ms(node, now_ms)
        message = metadata.request(now_ms)
        requests.append(Outgoing(node, message, lambda answer, later_ms: metadata.received(_as_kafka(answer), later_ms)))
        return float("inf")

    def any_node(self, now_ms: float) -> Node | None:
        """Return the best node for a request that any node can answer, or None."""
        return self._links.least_loaded([one for one in self._metadata.cluster.nodes.values() if not self._throttle_ms(one, now_ms)])

    def retry_ms(self, node: Node | None, now_ms: float) -> float:
        """Return the time until a node may be tried again."""
        return self._options.retry_backoff_ms if node is None else self._throttle_ms(node, now_ms) or self._links.retry_ms(node)

    def _ask_for_identity(self, keeper: SequenceKeeper, requests: list[Outgoing], now_ms: float) -> float:
        if keeper.prepare():
            self._init_ms = now_ms
        if self._init_ms is None:
            return _FOREVER
        if now_ms < self._init_ms:
            return self._init_ms - now_ms
        node = self.any_node(now_ms)
        if node is None or not self._links.is_ready(node):
            return self.retry_ms(node, now_ms)
        self._init_ms = None
        request = InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=_NO_TIMEOUT)
        requests.append(Outgoing(node, request, lambda answer, later_ms: self._identity_came(keeper, answer, later_ms)))
        return float("inf")

    def _identity_came(self, keeper: SequenceKeeper, answer: Message | ApiError, now_ms: float) -> None:
        error = _as_kafka(answer) if isinstance(answer, ApiError) else None
        if isinstance(answer, InitProducerIdResponse):
            if not answer.error_code:
                keeper.initialized(Identity(answer.producer_id, answer.producer_epoch))
                return
            error = error_named(by_code(answer.error_code).name)
        assert isinstance(error, KafkaError)
        if error.retriable:
            self._init_ms = now_ms + self._options.retry_backoff_ms
        elif error.name in ("CLUSTER_AUTHORIZATION_FAILED", "TRANSACTIONAL_ID_AUTHORIZATION_FAILED"):
            # The records fail. Later ones try again, because the permission may be granted meanwhile.
            self.abort(error)
            keeper.is_initializing = False
        else:
            keeper.fatal_error = error

    # batches

    def _send_batches(self, requests: list[Outgoing], now_ms: float) -> float:
        ready = self._accumulator.ready(now_ms)
        for topic in ready.unknown_topics:
            self._metadata.use(topic, now_ms)
        if ready.unknown_topics:
            self._metadata.want()
        wait_ms = ready.wait_ms
        drained: list[tuple[Node, list[ProducerBatch]]] = []
        for node in ready.nodes:
            can_drain = self.can_take(node, now_ms)
            self._accumulator.looked_at(node, now_ms, can_drain=can_drain)
            if not can_drain:
                wait_ms = min(wait_ms, self.retry_ms(node, now_ms))
                continue
            batches = self._accumulator.drain(node, now_ms)
            if batches:
                drained.append((node, batches))
        if drained and self._accumulator.has_undrained:
            wait_ms = 0.0  # the next turn finds out when these are due
        for node, batches in drained:
            for batch in batches:
                batch.is_in_flight = True
                self._in_flight.setdefault(batch.partition, []).append(batch)
                if self._keeps_order:
                    self._accumulator.mute(batch.partition)
            requests.append(self._produce(node, batches, now_ms))
        self._expire(now_ms)  # as in Kafka, a batch that expires now is still sent
        return min(wait_ms, max(self._next_expiry_ms() - now_ms, 0))

    def can_take(self, node: Node, now_ms: float) -> bool:
        """Whether a node takes a request at once. Begins to connect if it is not connected."""
        if self._throttle_ms(node, now_ms):
            return False
        if self._links.is_ready(node):
            return self._links.load(node) < self._options.max_in_flight
        if self._links.is_failing(node):
            self._metadata.want()  # it may not lead any more (NetworkClient.DefaultMetadataUpdater.handleServerDisconnect)
        return False

    def is_failing(self, node: Node) -> bool:
        """Whether the last attempt to connect has failed."""
        return self._links.is_failing(node)

    def latest_version(self, node: Node, api_key: int) -> int:
        """Return the latest version of an API that a node knows, -1 if that is not known."""
        return self._links.latest_version(node, api_key)

    def want_metadata(self) -> None:
        """Request all topics and nodes again."""
        self._metadata.want()

    def throttled(self, node: Node, answer: Message, now_ms: float) -> None:
        """Leave a node alone for as long as its answer says."""
        throttle_ms = getattr(answer, "throttle_time_ms", 0)
        if throttle_ms > 0:
            self._throttled[node.id] = now_ms + throttle_ms

    def _throttle_ms(self, node: Node, now_ms: float) -> float:
        return max(self._throttled.get(node.id, 0.0) - now_ms, 0.0)

    def _next_expiry_ms(self) -> float:
        firsts = [batches[0].created_ms for batches in self._in_flight.values()]
        return min(min(firsts, default=float("inf")) + self._options.delivery_timeout_ms, self._accumulator.next_expiry_ms())

    def _expire(self, now_ms: float) -> None:
        expired = self._accumulator.take_expired(now_ms)
        for key, batches in list(self._in_flight.items()):
            while batches and batches[0].is_expired(self._options.delivery_timeout_ms, now_ms):
                expired.append(batches.pop(0))
            if not batches:
                del self._in_flight[key]
        for batch in expired:
            last = "" if batch.last_error is None else f"; last error: {batch.last_error}"
            words = f"{batch.count} record(s) for {batch.partition.topic}-{batch.partition.partition} were not acknowledged within"
            error = KafkaTimeoutError(f"{words} {self._options.delivery_timeout_ms} ms{last}")
            self._fail(batch, error, now_ms, was_refused=False)
            if self._keeper is not None and batch.was_retried:
                self._keeper.expired(batch)

    def _produce(self, node: Node, batches: list[ProducerBatch], sent_ms: float) -> Outgoing:
        ids = self._metadata.cluster.topic_ids
        topics: dict[str, list[PartitionProduceData]] = {}
        by_partition: dict[TopicPartition, ProducerBatch] = {}
        for batch in batches:
            topic, index = batch.partition
            records = batch.build(self._accumulator.ratios)
            topics.setdefault(topic, []).append(PartitionProduceData(index, records))
            by_partition[batch.partition] = batch
        data = [TopicProduceData(name, ids.get(name, ZERO_UUID), rows) for name, rows in topics.items()]
        names = {one.topic_id: one.name for one in data}
        if ZERO_UUID in names:
            names = {}
        last = ProduceRequest.VERSIONS.stop if names else _FIRST_WITH_IDS
        transactions = self._keeper if isinstance(self._keeper, Transactions) else None
        if transactions is not None and not transactions.is_version_2:
            last = _FIRST_THAT_ADDS
        acks = self._options.acks
        transactional_id = None if transactions is None else transactions.transactional_id
        request = ProduceRequest(transactional_id=transactional_id, acks=acks, timeout_ms=self._options.request_timeout_ms, topic_data=data)
        self._requests += 1
        if self._metrics is not None:
            rows = [
                (one.partition.topic, one.count, one.estimated_size, one.ratio, one.records.largest, sent_ms - one.created_ms)
                for one in batches
            ]
            self._metrics.sent(rows, sent_ms)

        def answered(answer: Message | ApiError, now_ms: float) -> None:
            if self._metrics is not None and isinstance(answer, ProduceResponse):
                self._metrics.answered(node.id, now_ms - sent_ms, answer.throttle_time_ms, now_ms)
            self._answered(node, by_partition, names, answer, now_ms)

        return Outgoing(
            node,
            request,
            answered,
            range(ProduceRequest.VERSIONS.start, last),
            acks != 0,
        )

    # answers

    def _answered(
        self,
        node: Node,
        batches: dict[TopicPartition, ProducerBatch],
        names: dict[bytes, str],
        answer: Message | ApiError,
        now_ms: float,
    ) -> None:
        self._requests -= 1
        if isinstance(answer, ApiError):
            for batch in batches.values():
                self._complete(batch, error_named(answer.name, answer.message), -1, now_ms)
        elif not isinstance(answer, ProduceResponse):  # acks=0: the request is written
            for batch in batches.values():
                self._succeed(batch, -1, -1)
        else:
            self.throttled(node, answer, now_ms)
            if any(one.error_code for topic in answer.responses for one in topic.partition_responses):
                self._take_leaders(answer, names)
            for topic in answer.responses:
                for one in topic.partition_responses:
                    found = batches.pop(TopicPartition(names.get(topic.topic_id, topic.name), one.index), None)
                    if found is not None:
                        self._take(found, one, now_ms)
            for batch in batches.values():
                self._complete(batch, error_named("UNKNOWN_SERVER_ERROR", "the broker's answer omits the partition"), -1, now_ms)

    def _take_leaders(self, answer: ProduceResponse, names: dict[bytes, str]) -> None:
        """Use the new leaders that come with errors (Metadata.updatePartitionLeadership)."""
        nodes = {one.node_id: Node(one.node_id, one.host, one.port, one.rack) for one in answer.node_endpoints}
        cluster = self._metadata.cluster
        for topic in answer.responses:
            for one in topic.partition_responses:
                leader = Leader(one.current_leader.leader_id, one.current_leader.leader_epoch)
                if by_code(one.error_code).name not in _MOVED or leader.node_id < 0 or leader.epoch < 0:
                    continue
                if leader.node_id not in nodes and leader.node_id not in cluster.nodes:
                    continue
                key = TopicPartition(names.get(topic.topic_id, topic.name), one.index)
                if cluster.update_leader(key, leader) and leader.node_id in nodes:
                    cluster.add_nodes([nodes[leader.node_id]])
                self._metadata.forget_views()

    def _take(self, batch: ProducerBatch, one: PartitionProduceResponse, now_ms: float) -> None:
        if not one.error_code:
            self._succeed(batch, one.base_offset, one.log_append_time_ms)
            return
        code = by_code(one.error_code)
        error = error_named(code.name, one.error_message or "")
        texts = {row.batch_index: row.batch_index_error_message or one.error_message or code.words for row in one.record_errors}
        self._complete(batch, error, one.log_start_offset, now_ms, texts)

    def _complete(
        self, batch: ProducerBatch, error: KafkaError, log_start_offset: int, now_ms: float, record_errors: dict[int, str] | None = None
    ) -> None:
        """Handle an error: split, send again, or give up (Sender.completeBatch)."""
        batch.is_in_flight = False
        batch.last_error = error
        if error.name == "MESSAGE_TOO_LARGE" and batch.count > 1 and not batch.is_done and not self._options.sends_once:
            self._split(batch)
            if self._metrics is not None:
                self._metrics.split(now_ms)
        elif self._may_retry(batch, error, log_start_offset, now_ms):
            self._accumulator.reenqueue(batch, now_ms)
            self._leave_flight(batch)
            if self._metrics is not None:
                self._metrics.retried(batch.partition.topic, batch.count, now_ms)
        elif error.name == "DUPLICATE_SEQUENCE_NUMBER":
            self._succeed(batch, -1, -1)
        else:
            self._fail(batch, error, now_ms, was_refused=batch.attempts < self._options.retries, record_errors=record_errors)
        if by_name(error.name).reaction is Reaction.METADATA:
            self._metadata.want()
        if self._keeps_order:
            self._accumulator.unmute(batch.partition)

    def _may_retry(self, batch: ProducerBatch, error: KafkaError, log_start_offset: int, now_ms: float) -> bool:
        if batch.is_expired(self._options.delivery_timeout_ms, now_ms) or batch.attempts >= self._options.retries or batch.is_done:
            return False
        if self._keeper is None:
            return error.retriable
        return self._keeper.may_retry(batch, error, log_start_offset)

    def _split(self, batch: ProducerBatch) -> None:
        if self._keeper is not None:
            self._keeper.remove_in_flight(batch)
        self._accumulator.split(batch)
        self._leave_flight(batch)
        self._accumulator.forget(batch)

    def _succeed(self, batch: ProducerBatch, base_offset: int, log_append_time_ms: int) -> None:
        batch.is_in_flight = False
        if self._keeper is not None:
            self._keeper.completed(batch, base_offset)
        if batch.complete(base_offset, log_append_time_ms):
            self.finished.append(batch)
        self._leave_flight(batch)
        self._accumulator.forget(batch)
        if self._keeps_order:
            self._accumulator.unmute(batch.partition)

    def _fail(
        self,
        batch: ProducerBatch,
        error: KafkaError,
        now_ms: float,
        *,
        was_refused: bool,
        record_errors: dict[int, str] | None = None,
    ) -> None:
        was_in_flight = batch.is_in_flight
        if batch.fail(error, _by_record(error, record_errors or {}, batch.count)):
            self.finished.append(batch)
            if self._metrics is not None:
                self._metrics.failed(batch.partition.topic, batch.count, now_ms)
            if self._keeper is not None:
                self._keeper.failed(batch, error, was_refused=was_refused)
        if not was_in_flight:  # the memory of a batch in flight is free only when the request has ended
            self._leave_flight(batch)
            self._accumulator.forget(batch)

    def _leave_flight(self, batch: ProducerBatch) -> None:
        batches = self._in_flight.get(batch.partition)
        if batches is not None and batch in batches:
            batches.remove(batch)
            if not batches:
                del self._in_flight[batch.partition]

    @property
    def has_batches(self) -> bool:
        """Whether any batch is unfinished."""
        return any(not batch.is_done for batch in self._accumulator.incomplete)

    def abort_undrained(self, error: KafkaError) -> None:
        """Fail the batches that were never sent."""
        for batch in self._accumulator.take_undrained():
            if batch.fail(error):
                self.finished.append(batch)
            self._accumulator.forget(batch)

    def abort(self, error: KafkaError | ProducerClosedError) -> None:
        """Fail every unfinished batch, including batches in flight."""
        for batch in self._accumulator.take_all():
            if batch.fail(error):
                self.finished.append(batch)
                if self._keeper is not None:
                    self._keeper.remove_in_flight(batch)
            self._accumulator.forget(batch)
        self._in_flight.clear()


def _as_kafka(answer: Message | ApiError) -> Message | KafkaError:
    if isinstance(answer, ApiError):
        return answer if isinstance(answer, KafkaError) else error_named(answer.name, answer.message)
    return answer


def _by_record(error: KafkaError, texts: dict[int, str], count: int) -> dict[int, BaseException] | None:
    """Return the errors of the records of a batch in which only some were rejected (KIP-467)."""
    if not texts:
        return None
    name = error.name if len(texts) == 1 else "INVALID_RECORD"
    rest = BatchRejectedError("the record was not written, because the broker rejected another record of its batch")
    return {index: error_named(name, texts[index]) if index in texts else rest for index in range(count)}
