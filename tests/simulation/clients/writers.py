"""Producers of `world`: the library's core, idempotent or transactional, with programs that send records now and then."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from functools import partial
from typing import TYPE_CHECKING, NamedTuple, cast

from kops.client.errors import KafkaError
from kops.client.producer.core._hot_records import Delivery
from kops.client.producer.core.identity import SequenceKeeper
from kops.client.producer.core.producer import Entry, ProducerCore, Step
from kops.client.producer.core.states import Pending
from kops.client.producer.options import ProducerOptions
from kops.protocol.declaration import Message
from kops.protocol.errors import by_code
from kops.protocol.messages import ProduceRequest, ProduceResponse
from kops.records import read_batches
from kops.records.log_offsets import TopicPartition
from tests.simulation.clients.books import SentRecord
from tests.simulation.clients.links import REQUEST_TIMEOUT_MS, CoreClient, Request
from tests.simulation.coordinators.actors import Script
from tests.simulation.coordinators.books import Place, Txn

if TYPE_CHECKING:
    from tests.simulation.clients.world import ClientWorld

SETTINGS: dict[str, object] = {
    "bootstrap.servers": "given:1",
    "request.timeout.ms": REQUEST_TIMEOUT_MS,
    "retry.backoff.ms": 30,
    "retry.backoff.max.ms": 200,
    "metadata.max.age.ms": 2_000,
    "max.block.ms": 60_000,
    "linger.ms": 5,
    "batch.size": 100,
}
KEEPER = SequenceKeeper
"""The class of the numbers of idempotent producers. A planted bug is another one, because compiled code does not see a changed method."""
PATIENT_MS, IMPATIENT_MS = 120_000, 3_000
"""delivery.timeout.ms. With the first, no record may fail in a life; with the second, some do, and the producer begins a new epoch."""
KNOWN_BATCHES = 5
"""The number of batches of a producer that a leader knows (ProducerStateEntry)."""
BURST, ABORT, STALL, OFFSETS = 0.6, 0.25, 0.05, 0.5
TRANSACTION_TIMEOUTS_MS = (2_500, 6_000)
LAST_TIMEOUT_MS = max(TRANSACTION_TIMEOUTS_MS)


class GroupOnly(NamedTuple):
    """A group without members, for offsets in transactions."""

    group_id: str
    generation_id: int = -1
    member_id: str = ""
    group_instance_id: str | None = None


class Position(NamedTuple):
    """An offset for a transaction."""

    offset: int
    metadata: str = ""
    leader_epoch: int | None = None


class Writer(CoreClient):
    """What both kinds share: the core, and a record on its way into it."""

    world: ClientWorld

    def __init__(self, world: ClientWorld, name: str, settings: dict[str, object]) -> None:
        super().__init__(world, name)
        options = ProducerOptions.of({**SETTINGS, **settings})
        self.core = ProducerCore(options, self.bootstrap, self.links, self.chance.random, keeper=KEEPER())

    def core_turn(self, now_ms: float) -> tuple[Iterable[Request], float]:
        """Return the requests to send now, and call the callbacks of records that are done."""
        requests, wait_ms = self.core.turn(now_ms)
        for batch in self.core.take_finished():
            for delivery in batch.take_watched():
                for callback in delivery.take_callbacks():
                    callback(delivery)
        return requests, wait_ms

    def send(self, topic: str, partition: int, value: str, delivery: Delivery) -> Script:
        """Let the core have a record, which may wait for metadata and memory. Raises KafkaError."""
        stamp = self.loop.now_ms()
        entry = Entry(topic, None, value.encode(), (), partition, stamp, delivery, float("inf"))
        while self.core.advance(entry, self.now_ms()) in (Step.METADATA, Step.MEMORY):
            self.soon()
            yield self.pause(20, 60)
        self.soon()


class IdempotentWriter(Writer):
    """Sends numbered records to the input topic, mostly in bursts, so that several batches are in flight."""

    def __init__(self, world: ClientWorld, name: str, *, is_patient: bool) -> None:
        super().__init__(world, name, {"delivery.timeout.ms": PATIENT_MS if is_patient else IMPATIENT_MS})
        self.is_patient = is_patient
        self.is_done = False  # whether the last record was acknowledged
        self._attempts: Counter[tuple[int, int]] = Counter()  # how often each record was sent
        self._batches: dict[int, set[int]] = {}  # the numbers of the first records of all batches, by partition
        self.start(self._live())

    def _live(self) -> Script:
        self.soon()
        while not self.world.director.is_ending:
            for _ in range(self.chance.choice((1, 3, 8)) if self.chance.random() < BURST else 1):
                yield from self._send_one()
            yield self.pause(20, 400)
        while not self.is_done:
            delivery = yield from self._send_one()
            while not delivery.done():
                yield self.pause(20, 100)
            self.is_done = delivery.exception() is None

    def _send_one(self) -> Script:
        one = self.world.writers.send(self.name, self.chance.choice(self.world.written_numbers))
        if self.is_patient:
            one.delivery.add(self._check_good)
        yield from self.send(self.world.inputs, one.partition, one.text, one.delivery)
        return one.delivery

    def _check_good(self, delivery: Delivery) -> None:
        """Check the outcome for a producer that has time for every retry."""
        error = delivery.exception()
        assert error is None, f"{self.name}: a record failed with {error!r}"

    def asks(self, message: Message) -> None:
        """Count how often each record is sent."""
        if isinstance(message, ProduceRequest):
            for partition, numbers in numbers_in(message):
                self._attempts.update((partition, number) for number in numbers)
                self._batches.setdefault(partition, set()).add(numbers[0])

    def hears(self, message: Message, answer: Message) -> None:
        """Take note of what a leader that does not know the producer's last batches does (see `books`)."""
        if not isinstance(message, ProduceRequest) or not isinstance(answer, ProduceResponse):
            return
        errors = {row.index: by_code(row.error_code).name for topic in answer.responses for row in topic.partition_responses}
        for partition, numbers in numbers_in(message):
            error, first = errors.get(partition), numbers[0]
            records = self.world.writers.sent[self.name, partition]
            if error == "OUT_OF_ORDER_SEQUENCE_NUMBER" and self._attempts[partition, first] > 1:
                self.world.writers.refused[self.name, partition] |= {one.number for one in records[first:] if self._is_open(one)}
                self.world.counts["batches that a restarted leader refused"] += 1
                later = [one for one in self._batches[partition] if one > first]
                if len(later) >= KNOWN_BATCHES and any(map(is_acknowledged, records[first:])):
                    self.say(f"had too many batches in flight for partition {partition}")
                    self.world.counts["producers with too many batches in flight"] += 1
                    self.vanish()
                    return
            elif error == "NONE" and any(map(self._is_open, records[:first])) and not any(map(is_acknowledged, records)):
                self.say(f"was overtaken by itself in partition {partition}")
                self.world.counts["producers that overtook themselves"] += 1
                self.vanish()
                return

    def _is_open(self, one: SentRecord) -> bool:
        return self._attempts[one.partition, one.number] > 0 and not one.delivery.done()

    @property
    def is_idle(self) -> bool:
        """Whether every record has its outcome, and the last one, after all faults, was acknowledged."""
        return self.is_done and not self.core.incomplete()

    def vanish(self) -> None:
        """Let the producer die. What it did not learn is not promised."""
        self.world.writers.gone.add(self.name)
        super().vanish()


def is_acknowledged(one: SentRecord) -> bool:
    """Return whether the producer knows that a record was written."""
    return one.delivery.done() and one.delivery.exception() is None


def numbers_in(message: ProduceRequest) -> list[tuple[int, list[int]]]:
    """Return the partitions of a request of an idempotent producer, and the numbers of the records for each."""
    found = []
    for topic in message.topic_data:
        for row in topic.partition_data:
            (batch,) = read_batches(bytes(cast(bytes, row.records)))
            found.append((row.index, [int(bytes(record.value or b"").rpartition(b"/")[2]) for record in batch.records()]))
    return found


class TransactionalWriter(Writer):
    """One life of a transactional id. The last life of an id (`is_last`) ends after it has committed a transaction."""

    def __init__(self, world: ClientWorld, transactional_id: str, life: int) -> None:
        self.timeout_ms = world.clock.random.choice(TRANSACTION_TIMEOUTS_MS)
        settings: dict[str, object] = {
            "transactional.id": transactional_id,
            "transaction.timeout.ms": self.timeout_ms,
            "delivery.timeout.ms": PATIENT_MS,
        }
        super().__init__(world, f"{transactional_id}.{life}", settings)
        self.transactional_id, self.life = transactional_id, life
        self.is_last = self.is_done = self.is_initialized = False
        assert self.core.transactions is not None
        self._transactions = self.core.transactions
        self.start(self._live())

    def _live(self) -> Script:
        try:
            yield from self._wait(self._transactions.init())
            identity = self._transactions.identity
            self.is_initialized = True
            self.say(f"has the producer id and epoch {identity}")
            self.world.transactions.initialized(
                self.transactional_id, self.life, (identity.producer_id, identity.epoch), self.world.clock.now_ms
            )
            number = 0
            while not self.is_done:
                number += 1
                yield from self._transaction(self.world.transactions.begin(self.transactional_id, self.life, number, 2))
                yield self.pause(20, 500)
        except KafkaError as error:
            self.say(f"ends: {error}")
            self.world.counts[f"producers ended by {error.name}"] += 1
            self.vanish()

    def _wait(self, result: Pending) -> Script:
        """Wait for the outcome of a call. Raises KafkaError."""
        self.soon()
        while not result.is_done:
            yield self.pause(5, 30)
        self._transactions.see(result)

    def _transaction(self, txn: Txn) -> Script:
        self._transactions.begin()
        is_commit = self.is_last or self.chance.random() >= ABORT
        try:
            yield from self._fill(txn)
            if is_commit:
                txn.commit_sent_ms = self.world.clock.now_ms
                yield from self._wait(self._transactions.commit())
        except KafkaError as error:
            if error.fatal:
                raise
            self.say(f"{txn.name} can't go on: {error}")
            is_commit = False
        if is_commit:
            acked = {(partition, value) for partition, values in txn.records.items() for value in values}
            assert acked == txn.sent, f"{txn.name} is committed, and not acknowledged are {sorted(txn.sent - acked)}"
            self.say(f"{txn.name} is committed")
            self.world.transactions.committed(txn, self.world.clock.now_ms)
            self.world.counts["transactions committed"] += 1
            self.is_done = self.is_last
            return
        yield from self._wait(self._transactions.abort())
        txn.is_aborted = True
        self.world.counts["transactions aborted"] += 1

    def _fill(self, txn: Txn) -> Script:
        """Send the records and offsets of a transaction. They need not be acknowledged when it is committed."""
        chance = self.chance
        for index in range(chance.choice((1, 2, 4))):
            if index and not self.is_last and chance.random() < STALL:
                self.say("stalls")
                yield self.pause(self.timeout_ms, self.timeout_ms * 1.6)
            partition, value, delivery = chance.choice(self.world.payment_numbers), f"{txn.name}/{index}", Delivery()
            txn.sent.add((partition, value))
            delivery.add(partial(self._came, txn, partition, value))
            yield from self.send(self.world.payments, partition, value, delivery)
            if chance.random() < BURST:
                yield self.pause(0, 60)
        if chance.random() < OFFSETS:
            place = Place(f"copies of {self.transactional_id}", chance.choice(self.world.payment_numbers))
            commit = self.world.offsets.begin(place, self.world.clock.now_ms, txn)
            key = TopicPartition(self.world.payments, place.partition)
            yield from self._wait(self._transactions.send_offsets({key: Position(commit.value)}, GroupOnly(place.group)))
            commit.acked_ms = self.world.clock.now_ms
            txn.offsets[place] = commit.value

    def _came(self, txn: Txn, partition: int, value: str, delivery: Delivery) -> None:
        if delivery.exception() is None:
            txn.records.setdefault(partition, []).append(value)
            ledger = self.world.payment_ledger(partition)
            ledger.acknowledged_end = max(ledger.acknowledged_end, delivery.metadata().offset + 1)
