"""The producer of commands: it runs on one thread, and uses the connections of a `Client`.

Source: Kafka's KafkaProducer, as ConsoleProducer uses it. The differences to the other faces are intended: outcomes are counted for runs of
records, a missing topic or partition is an error at once, and `Client.tell` reports what records wait for.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Final, NamedTuple

from kops.client.client import WAITING_MS, Client, error_of
from kops.client.errors import KafkaError, KafkaTimeoutError, RecordTooLargeError
from kops.client.producer.core._hot_records import Delivery
from kops.client.producer.core.batches import largest_size
from kops.client.producer.core.producer import Entry, ProducerCore, Step
from kops.client.producer.options import ProducerOptions
from kops.errors import ApiError, KopsError, NotFoundError, UnreachableError
from kops.protocol.messages import ProduceRequest

if TYPE_CHECKING:
    from kops.client.producer.core.batches import ProducerBatch
    from kops.client.producer.core.identity import SequenceKeeper
    from kops.client.producer.core.links import Outgoing
    from kops.client.producer.core.states import Pending
    from kops.client.producer.core.transactions import Transactions
    from kops.protocol.declaration import Message
    from kops.records.log_offsets import TopicPartition
    from kops.records.record import Header

_TOPIC_MS: Final = 5000  # the time that a broker has to create a missing topic
_TURN_MS: Final = 100.0
_LOOK_MS: Final = 500.0  # between two looks at what records wait for


class Outcome(NamedTuple):
    """The outcome of consecutive records. The offset is that of the first one, or -1 if it is not known (acks=0, a duplicate).

    `partition` is None for a record that was refused before it had one.
    """

    topic: str
    partition: int | None
    records: int
    base_offset: int
    error: KopsError | None


class CommandProducer:
    """A producer for one thread. `send` only queues records. `poll` and `flush` send them and report their outcomes to `on_outcome`.

    With `transactional.id`, the constructor fences earlier producers with this id and begins a transaction. `failure` is then the error of
    the first record that was not written; after it, no record is accepted.
    """

    def __init__(
        self,
        client: Client,
        *,
        on_outcome: Callable[[Outcome], object] = lambda outcome: None,
        wall_ms: Callable[[], int] = lambda: time.time_ns() // 1_000_000,
        options: ProducerOptions | None = None,
        keeper: SequenceKeeper | None = None,
    ) -> None:
        """`options` replace those of the client's settings, and `keeper` the numbers of an idempotent producer."""
        self.client = client
        self.failure: KopsError | None = None
        self._on_outcome = on_outcome
        self._wall_ms = wall_ms
        self.sent_bytes = 0  # the size of all batches that were sent
        self._options = options or ProducerOptions.of_command(client.settings)
        self._core = ProducerCore(self._options, (), client.network, client.draw, keeper=keeper)
        self._core.metadata.begin_with(client.metadata, client.now_ms())
        self._counts: dict[str, int] = {}
        self._tell_ms = 0.0
        self._delivery = Delivery()  # of all records: only outcomes of batches are reported
        transactions = self._core.transactions
        self.transaction = None if transactions is None else Transaction(self, transactions)

    @property
    def is_busy(self) -> bool:
        """Whether any record is unfinished."""
        return any(not batch.is_done for batch in self._core.accumulator.incomplete)

    # records in

    def send(
        self,
        topic: str,
        key: bytes | None,
        value: bytes | None,
        headers: Sequence[Header] = (),
        *,
        timestamp: int | None = None,
        partition: int | None = None,
    ) -> None:
        """Queue a record, once there is memory for it. Raises NotFoundError for a missing topic or partition, and UnreachableError."""
        if timestamp is None:
            timestamp = self._wall_ms()
        if not headers and self._core.advance_quickly(topic, timestamp, key, value, self._delivery, partition) is not None:
            return
        count = self._counts.get(topic) or self._partition_count(topic)
        if partition is not None and not 0 <= partition < count:
            raise NotFoundError(f"{topic} has no partition {partition}, it has {count}")
        if self.failure is not None:
            self._lost(topic, self.failure)
            return
        entry = Entry(topic, key, value, headers, partition, timestamp, self._delivery, float("inf"))
        try:
            self._append(entry)
        except RecordTooLargeError as error:
            size, limit = largest_size(key, value, headers), self._options.max_request_size
            self._core.not_sent(error)
            self._lost(topic, ApiError(error.name, f"a record of {size} bytes is larger than max.request.size={limit}"))
        except KafkaError as error:
            self._report_finished()
            self._lost(topic, error)

    def _append(self, entry: Entry) -> None:
        core, client = self._core, self.client
        while (step := core.advance(entry, client.now_ms())) in (Step.METADATA, Step.MEMORY):
            try:
                while not (core.has_news(entry.version) if step is Step.METADATA else entry.memory is not None and entry.memory.is_granted):
                    self.poll(_TURN_MS)
            except BaseException:  # the record is not sent, and others need its memory
                if entry.memory is not None:
                    core.accumulator.pool.cancel(entry.memory)
                raise

    def _lost(self, topic: str, error: KopsError) -> None:
        """Report a record that is in no batch."""
        self._fail(error)
        self._on_outcome(Outcome(topic, None, 1, -1, error))

    def _fail(self, error: KopsError) -> None:
        if self.transaction is not None:
            self.failure = self.failure or error

    def _partition_count(self, topic: str) -> int:
        client = self.client
        until_ms = client.now_ms() + min(_TOPIC_MS, client.settings.default_api_timeout_ms)
        tries = 0
        while True:
            (found,) = client.fetch_metadata([topic], auto_create=self._options.creates_topics).topics
            error = error_of(found.error_code)
            if error is None and found.partitions:
                self._core.metadata.learned(topic, client.now_ms())
                self._counts[topic] = len(found.partitions)
                return len(found.partitions)
            if error is not None and error.name not in ("UNKNOWN_TOPIC_OR_PARTITION", "LEADER_NOT_AVAILABLE"):
                raise ApiError(error.name, f"{topic}: {error}")
            if client.now_ms() >= until_ms:
                raise NotFoundError(f"no such topic: {topic}")
            retry_ms = client.now_ms() + client.backoff.delay_ms(tries)
            while (left_ms := retry_ms - client.now_ms()) > 0:
                client.turn(left_ms)
            tries += 1

    # requests out

    def poll(self, timeout_ms: float) -> None:
        """Send batches that are ready, receive answers and report outcomes. Waits at most `timeout_ms`. Raises UnreachableError."""
        core, client = self._core, self.client
        now_ms = client.now_ms()
        self._tell(now_ms)
        requests, wait_ms = core.turn(now_ms)
        for request in requests:
            self._send(request)
        if not self._report_finished():
            client.turn(min(timeout_ms, wait_ms))
            self._report_finished()

    def _send(self, request: Outgoing) -> None:
        def done(answer: Message | ApiError) -> None:
            request.answered(answer, self.client.now_ms())

        if isinstance(request.message, ProduceRequest):
            rows = (row for topic in request.message.topic_data for row in topic.partition_data)
            self.sent_bytes += sum(len(row.records) for row in rows if isinstance(row.records, bytes))
        self.client.network.send(request.node, request.message, done, versions=request.versions, expects_response=request.expects_response)

    def flush(self) -> None:
        """Wait until every record is sent and answered, or a transaction has failed."""
        self._core.metadata.forget_views()  # the client may have learned of other leaders meanwhile
        self._core.begin_flush()
        try:
            while self.is_busy and self.failure is None:
                self.poll(_TURN_MS)
            self._report_finished()
        finally:
            self._core.end_flush()

    def drop(self, error: KopsError) -> None:
        """Fail the records that were never sent with this error. Only for transactions that will be aborted."""
        self.failure = self.failure or error
        kafka = error if isinstance(error, KafkaError) else KafkaError(str(error))
        self._core.sender.abort_undrained(kafka)
        self._report_finished()

    # outcomes

    def _report_finished(self) -> bool:
        finished = self._core.take_finished()
        for batch in finished:
            self._report(batch)
        return bool(finished)

    def _report(self, batch: ProducerBatch) -> None:
        topic, partition = batch.partition
        if batch.error is None:
            self._on_outcome(Outcome(topic, partition, batch.count, batch.base_offset, None))
            return
        errors = [batch.error_of(index) for index in range(batch.count)]
        start = 0
        for stop in range(1, len(errors) + 1):
            if stop == len(errors) or errors[stop] is not errors[start]:
                error = self._as_told(batch, errors[start])
                self._fail(error)
                self._on_outcome(Outcome(topic, partition, stop - start, -1, error))
                start = stop

    def _as_told(self, batch: ProducerBatch, error: BaseException | None) -> KopsError:
        """Return the error of records in a command's words."""
        if isinstance(error, KafkaTimeoutError):
            last = "" if batch.last_error is None else f"; last: {batch.last_error}"
            name = f"{batch.partition.topic}-{batch.partition.partition}"
            return UnreachableError(f"{name}: not delivered within {self._options.delivery_timeout_ms} ms{last}")
        assert isinstance(error, KopsError)
        return error

    def _tell(self, now_ms: float) -> None:
        """Report what records wait for, if they have waited for a while. Raises UnreachableError if their leader can't be reached."""
        if now_ms < self._tell_ms or self.client.metadata.is_bootstrap:
            return
        self._tell_ms = now_ms + _LOOK_MS
        incomplete = self._core.accumulator.incomplete
        oldest: dict[TopicPartition, ProducerBatch] = {}
        for batch in incomplete:
            if not batch.is_done:
                oldest.setdefault(batch.partition, batch)
        for key, batch in oldest.items():
            if now_ms - batch.created_ms < WAITING_MS:
                continue
            node = self._core.metadata.leader(key)
            if node is not None:
                self.client.ensure_reachable(node)
            why = (
                str(batch.last_error) if batch.last_error else "it has no leader" if node is None else f"no answer from {node.address} yet"
            )
            self.client.tell(f"{key.topic}-{key.partition}: {why}")


class Transaction:
    """The transaction of a producer. All methods wait for the coordinator, at most for `default.api.timeout.ms`.

    They raise ApiError and UnreachableError.
    """

    def __init__(self, producer: CommandProducer, transactions: Transactions) -> None:
        self._producer = producer
        self._client = producer.client
        self._transactions = transactions
        self.transactional_id = transactions.transactional_id
        self.timeout_ms = transactions.timeout_ms
        self._wait(transactions.init(), "init producer id")
        transactions.begin()

    @property
    def is_open(self) -> bool:
        """Whether the coordinator may have an open transaction."""
        return self._transactions.may_have_begun

    def end(self, *, commit: bool) -> None:
        """Commit or abort. After an interrupt, call it again with the same decision."""
        if commit:
            self._wait(self._transactions.commit(), "commit")
        else:
            self._wait(self._transactions.abort(), "abort")

    def _wait(self, result: Pending, what: str) -> None:
        client = self._client
        deadline_ms = client.now_ms() + client.settings.default_api_timeout_ms
        while not result.is_done:
            if client.now_ms() >= deadline_ms:
                raise UnreachableError(f"{what}: no answer in time from the coordinator of {self.transactional_id}")
            self._producer.poll(_TURN_MS)
        self._transactions.see(result)
