"""Transactional producers of `world`, and readers of the records that they have committed.

A producer has a life: it gets its producer id, makes transactions with offsets in them, and is followed by the next life of its
transactional id, which fences it. The fenced producer may continue as if nothing had happened. Old producers (version 0) first add each
partition to the transaction. New ones (version 2) leave that to the brokers and get a new epoch with each transaction (KIP-890).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from kops.errors import ApiError
from kops.protocol.declaration import Message
from kops.protocol.messages import (
    AddOffsetsToTxnRequest,
    AddPartitionsToTxnRequest,
    EndTxnRequest,
    FetchRequest,
    FetchResponse,
    InitProducerIdRequest,
    ProduceRequest,
    TxnOffsetCommitRequest,
)
from kops.protocol.messages.add_partitions_to_txn_request import AddPartitionsToTxnTopic
from kops.protocol.messages.fetch_request import FetchPartition, FetchTopic
from kops.protocol.messages.produce_request import PartitionProduceData, TopicProduceData
from kops.protocol.messages.txn_offset_commit_request import TxnOffsetCommitRequestPartition, TxnOffsetCommitRequestTopic
from kops.records import Batch, BatchBuilder, read_batches
from kops.records.record import read_control_record
from tests.simulation.coordinators.actors import AGAIN, GROUP, TRANSACTION, Actor, Script, error_name
from tests.simulation.coordinators.books import Place, Txn
from tests.simulation.node_checks import Ledger
from tests.simulation.node_client import Flow

if TYPE_CHECKING:
    from tests.simulation.coordinators.world import CoordinatorWorld

TIMEOUTS_MS = (2_500, 6_000)
"""Transaction timeouts. Each life uses a random one."""
LAST_TIMEOUT_MS = max(TIMEOUTS_MS)
REFUSED = {
    "INVALID_PRODUCER_EPOCH",
    "PRODUCER_FENCED",
    "INVALID_PRODUCER_ID_MAPPING",
    "INVALID_TXN_STATE",
    "TRANSACTION_ABORTABLE",
    "OUT_OF_ORDER_SEQUENCE_NUMBER",
    "UNKNOWN_PRODUCER_ID",
}
"""Errors that end the life of a producer that was fenced, or whose transaction was aborted meanwhile."""
NO_GENERATION = -1
OLD_PRODUCE, OLD_ADD, OLD_OFFSETS, OLD_END = 11, 3, 4, 4
"""The newest versions that producers of version 0 use."""
STALL, HASTE, ABORT, OFFSETS, THINK = 0.06, 0.15, 0.25, 0.5, 0.5
"""Probabilities that a producer waits for longer than its timeout within a transaction, that it does not wait for an answer before it
aborts, that it aborts, that it commits offsets, and that it waits a little before the end. Because of the last one, some transactions
end while the producer has no other request in flight."""


class RefusedError(Exception):
    """A coordinator or broker has rejected a producer permanently."""


class Producer(Actor):
    """One life of a transactional id. The last life of an id (`is_last`) ends after it has committed a transaction."""

    def __init__(self, world: CoordinatorWorld, transactional_id: str, life: int, version: int) -> None:
        super().__init__(world, f"{transactional_id}.{life}")
        self.transactional_id = transactional_id
        self.life = life
        self.version = version
        self.group = f"copies of {transactional_id}"
        self.is_last = self.is_done = False
        self._timeout_ms = self.chance.choice(TIMEOUTS_MS)
        self._id = (-1, -1)
        self._sequences: dict[int, int] = {}
        self.start(self._live())

    def _live(self) -> Script:
        try:
            yield from self._initialize()
            number = 0
            while not self.is_done:
                number += 1
                is_committed = yield from self._transaction(self.world.transactions.begin(*self._name, number, self.version))
                self.is_done = self.is_last and is_committed
                yield self.pause(20, 700)
        except RefusedError as error:
            self.say(f"is refused: {error}")
            self.vanish()

    @property
    def is_initialized(self) -> bool:
        """Whether the producer has its producer id."""
        return self._id[0] >= 0

    @property
    def _name(self) -> tuple[str, int]:
        return self.transactional_id, self.life

    def _initialize(self) -> Script:
        answer = yield from self._until_done(
            TRANSACTION,
            self.transactional_id,
            InitProducerIdRequest(self.transactional_id, self._timeout_ms),
            lambda found: error_name(found.error_code),
        )
        self._id = answer.producer_id, answer.producer_epoch
        self._sequences.clear()
        self.say(f"has the producer id and epoch {self._id}")
        self.world.transactions.initialized(*self._name, self._id, self.world.clock.now_ms)

    def _until_done(
        self, kind: int, key: str, message: Message, error_of: Callable[[Any], str], newest: int | None = None, lane: str = ""
    ) -> Script:
        """Send a request to a coordinator until it is answered without an error. Raises RefusedError."""
        while True:
            _, answer = yield from self.ask_coordinator(kind, key, message, newest=newest, lane=lane)
            error = answer.name if isinstance(answer, ApiError) else error_of(answer)
            if error == "NONE":
                return answer
            self.say(f"{type(message).__name__}: {error}")
            self._check(error, type(message).__name__)
            if error != "CONCURRENT_TRANSACTIONS":
                self.forget(kind, key)
            yield self.pause(20, 200)

    def _check(self, error: str, what: str) -> None:
        """Raise RefusedError if the error is permanent. Otherwise check that it is one that passes."""
        if error in REFUSED:
            raise RefusedError(f"{what}: {error}")
        assert error in AGAIN, f"{self.name}, {what}: {error}"

    # a transaction ----------------------------------------------------------------------------------------------------------------

    def _transaction(self, txn: Txn) -> Script:
        """Send the records and offsets of a transaction and end it. Return whether it was committed."""
        chance = self.chance
        numbers = self.world.payment_numbers
        added: set[int] = set()
        is_aborted = not self.is_last and chance.random() < ABORT
        for index in range(chance.choice((1, 2, 2, 3))):
            partition = chance.choice(numbers)
            if index and not self.is_last and chance.random() < STALL:
                self.say("stalls")
                yield self.pause(self._timeout_ms, self._timeout_ms * 1.6)
            if self.version < 2 and partition not in added:
                yield from self._add(partition)
                added.add(partition)
            is_hasty = self.version == 2 and is_aborted and chance.random() < HASTE
            yield from self._produce(txn, partition, f"{txn.name}/{index}", is_hasty=is_hasty)
            if is_hasty:
                break
        if chance.random() < OFFSETS and not is_aborted:
            yield from self._commit_offsets(txn)
        if not self.is_last and chance.random() < STALL:
            self.say("stalls before the end")
            yield self.pause(self._timeout_ms, self._timeout_ms * 1.6)
        elif chance.random() < THINK:
            yield self.pause(0, 500)
        yield from self._end(txn, is_commit=not is_aborted)
        return not is_aborted

    def _add(self, partition: int) -> Script:
        topic = AddPartitionsToTxnTopic(self.world.payments, [partition])
        request = AddPartitionsToTxnRequest([], self.transactional_id, *self._id, [topic])
        yield from self._until_done(
            TRANSACTION,
            self.transactional_id,
            request,
            lambda found: error_name(found.results_by_topic_v3_and_below[0].results_by_partition[0].partition_error_code),
            newest=OLD_ADD,
        )

    def _produce(self, txn: Txn, partition: int, value: str, *, is_hasty: bool) -> Script:
        world = self.world
        ledger = world.payment_ledger(partition)
        count = self.chance.choice((1, 1, 2))
        values = [value + "ab"[index] for index in range(count)]
        sequence = self._sequences.get(partition, 0)
        builder = BatchBuilder(producer_id=self._id[0], producer_epoch=self._id[1], base_sequence=sequence, transactional=True)
        for one in values:
            builder.append(world.client.loop.now_ms(), None, one.encode())
        batch = builder.build()
        txn.sent.update((partition, one) for one in values)
        self._sequences[partition] = sequence + count
        while True:
            data = TopicProduceData(ledger.topic, ledger.topic_id, [PartitionProduceData(partition, batch)])
            request = ProduceRequest(self.transactional_id, -1, 2_000, [data])
            newest = OLD_PRODUCE if self.version < 2 else None
            patience_ms = self.chance.choice((5, 100)) if is_hasty else 4_000
            answer = yield self.ask(world.client.leader(ledger), request, newest=newest, patience_ms=patience_ms, lane="produce")
            if is_hasty:
                return
            if isinstance(answer, ApiError):
                error = answer.name
            else:
                told = answer.responses[0].partition_responses[0]
                error = error_name(told.error_code)
                if error == "NONE":
                    break
            self.say(f"Produce to {partition}: {error}")
            self._check(error, "Produce")
            world.client.refresh()
            yield self.pause(20, 200)
        txn.records.setdefault(partition, []).extend(values)
        ledger.acknowledged_end = max(ledger.acknowledged_end, told.base_offset + count)
        world.check_replicated(ledger, told.base_offset + count)

    def _commit_offsets(self, txn: Txn) -> Script:
        if self.version < 2:
            yield from self._until_done(
                TRANSACTION,
                self.transactional_id,
                AddOffsetsToTxnRequest(self.transactional_id, *self._id, self.group),
                lambda found: error_name(found.error_code),
            )
        place = Place(self.group, self.chance.choice(self.world.payment_numbers))
        commit = self.world.offsets.begin(place, self.world.clock.now_ms, txn)
        topic = TxnOffsetCommitRequestTopic(self.world.payments, [TxnOffsetCommitRequestPartition(place.partition, commit.value)])
        yield from self._until_done(
            GROUP,
            self.group,
            TxnOffsetCommitRequest(self.transactional_id, self.group, *self._id, NO_GENERATION, "", None, [topic]),
            lambda found: error_name(found.topics[0].partitions[0].error_code),
            newest=OLD_OFFSETS if self.version < 2 else None,
            lane="group",
        )
        commit.acked_ms = self.world.clock.now_ms
        txn.offsets[place] = commit.value

    def _end(self, txn: Txn, *, is_commit: bool) -> Script:
        if is_commit:
            txn.commit_sent_ms = self.world.clock.now_ms
        answer = yield from self._until_done(
            TRANSACTION,
            self.transactional_id,
            EndTxnRequest(self.transactional_id, *self._id, is_commit),
            lambda found: error_name(found.error_code),
            newest=OLD_END if self.version < 2 else None,
        )
        if is_commit:
            self.world.transactions.committed(txn, self.world.clock.now_ms)
            self.world.counts["transactions committed"] += 1
        else:
            txn.is_aborted = True
            self.world.counts["transactions aborted"] += 1
        self.say(f"{txn.name} is {'committed' if is_commit else 'aborted'}")
        if self.version == 2:
            self._id = answer.producer_id, answer.producer_epoch
            self._sequences.clear()


class CommittedReader(Flow):
    """A reader of the committed records of a partition. It leaves out the records of aborted transactions, as Kafka's consumer does
    (CompletedFetch).
    """

    def begin(self) -> None:
        """Only fetch. The producers of the world write the records."""
        self.fetch()

    @property
    def is_idle(self) -> bool:
        """Whether everything that is known to be in the partition was read."""
        return self.ledger.read_end >= self.ledger.end_offset

    def fetch(self) -> None:
        """Fetch the records after those that were read."""
        client, ledger = self.client, self.ledger
        offset = ledger.read_end
        request = FetchRequest(max_wait_ms=500, min_bytes=1, max_bytes=1 << 20, session_epoch=-1, isolation_level=1)
        wanted = FetchPartition(ledger.partition, fetch_offset=offset, partition_max_bytes=1 << 20)
        request.topics = [FetchTopic(ledger.topic, ledger.topic_id, [wanted])]
        client.send(client.leader(ledger), request, lambda answer: self._came(offset, answer))

    def _came(self, offset: int, answer: Message | ApiError) -> None:
        client, ledger = self.client, self.ledger
        if isinstance(answer, FetchResponse) and answer.responses:
            data = answer.responses[0].partitions[0]
            if data.error_code:
                client.refresh()
            elif isinstance(data.records, bytes | bytearray | memoryview):
                stable = data.last_stable_offset
                assert stable <= data.high_watermark, f"{ledger.name}: LSO {stable}, high watermark {data.high_watermark}"
                aborted = [(one.producer_id, one.first_offset) for one in data.aborted_transactions or ()]
                world: Any = client.world
                ledger.read_end = read_committed(
                    world, ledger, read_batches(bytes(data.records)), offset, stable, aborted, f"{ledger.name}, a consumer"
                )
        else:
            client.refresh()
        client.later(self.fetch, 10, 150)


def read_committed(
    world: CoordinatorWorld,
    ledger: Ledger,
    batches: Any,
    offset: int,
    stable: int,
    aborted: list[tuple[int, int]],
    who: str,
) -> int:
    """Process the records of committed transactions and return the offset of the next read. `aborted` has (producer id, first offset)
    pairs.
    """
    left = sorted(aborted, key=lambda one: one[1])
    open_aborted: set[int] = set()
    batch: Batch
    for batch in batches:
        if batch.last_offset < offset:
            continue
        assert batch.base_offset == offset, f"{who}: at offset {offset} it gets {batch.base_offset}"
        assert batch.last_offset < stable, f"{who}: {batch.last_offset} is not below the last stable offset {stable}"
        while left and left[0][1] <= batch.last_offset:
            open_aborted.add(left.pop(0)[0])
        if batch.is_control:
            if read_control_record(batch.records()[0]).type == "ABORT":
                open_aborted.discard(batch.producer_id)
        elif batch.producer_id not in open_aborted:
            for record in batch.records():
                world.transactions.saw(ledger.partition, record.offset, bytes(record.value or b""), who)
        offset = batch.last_offset + 1
    return offset
