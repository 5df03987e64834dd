"""Random lives of an idempotent producer: answers and connections are lost, replicas are too few, leaders move, batches are too large.

Every record is once in its partition's log, in the order of sending, at the offset that the producer reports.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, field

import pytest

from kops.client.producer.core._hot_records import Delivery
from kops.client.producer.core.batches import ProducerBatch
from kops.client.producer.core.links import Outgoing
from kops.errors import ApiError
from kops.protocol.errors import by_name
from kops.protocol.messages import ProduceRequest, ProduceResponse
from kops.protocol.messages.produce_response import PartitionProduceResponse, TopicProduceResponse
from kops.records import Batch
from tests.support.producers import Dialogue, batches_of

LARGEST = 900


@dataclass
class Log:
    """A partition as its leader keeps it: values, and its knowledge of producers (ProducerStateManager)."""

    values: list[bytes | None] = field(default_factory=list)
    producers: dict[int, tuple[int, int]] = field(default_factory=dict)  # id → epoch, last sequence number
    recent: list[tuple[int, int, int, int, int]] = field(default_factory=list)  # id, epoch, first, last, offset

    def has_forgotten(self, batch: ProducerBatch) -> bool:
        """Whether a batch was written, but is no longer known as a duplicate. No client learns its outcome then, nor does Kafka's."""
        key = (batch.producer_id, batch.producer_epoch, batch.base_sequence, batch.last_sequence)
        return any(one[:4] == key for one in self.recent[:-5])

    def append(self, batch: Batch) -> tuple[str, int]:
        """Append a batch. Return the error, or NONE and the offset."""
        if batch.size > LARGEST and (batch.count or 0) > 1:
            return "MESSAGE_TOO_LARGE", -1
        producer, epoch, first, last = batch.producer_id, batch.producer_epoch, batch.base_sequence, batch.last_sequence
        for one in self.recent[-5:]:
            if one[:4] == (producer, epoch, first, last):
                return "NONE", one[4]
        known_epoch, known_last = self.producers.get(producer, (epoch, -1))
        if epoch < known_epoch:
            return "INVALID_PRODUCER_EPOCH", -1
        if first != (known_last + 1 if epoch == known_epoch else 0):
            return "OUT_OF_ORDER_SEQUENCE_NUMBER", -1
        offset = len(self.values)
        self.values += [record.value for record in batch.records()]
        self.producers[producer] = epoch, last
        self.recent.append((producer, epoch, first, last, offset))
        return "NONE", offset


class Life:
    """One producer, two brokers, three partitions."""

    def __init__(self, seed: int) -> None:
        self.dice = random.Random(seed)
        settings = {
            "linger.ms": self.dice.choice([0, 5]),
            "batch.size": self.dice.choice([120, 700, 1500]),
            "max.in.flight.requests.per.connection": self.dice.choice([1, 2, 5]),
            "delivery.timeout.ms": 2**31 - 1,
        }
        self.talk = Dialogue(settings, topics={"a": [1, 1, 1]}, draws=[self.dice.random() for _ in range(5000)])
        self.logs = {("a", index): Log() for index in range(3)}
        self.flying: dict[int, list[Outgoing]] = {1: [], 2: []}
        self.sent: dict[int, list[tuple[bytes, Delivery]]] = {0: [], 1: [], 2: []}
        self.faults = 0
        self.forgotten: set[int] = set()

    def run(self) -> None:
        for step in range(400):
            if step < 300:
                for _ in range(self.dice.randint(0, 3)):
                    self.send(step)
            self.dispatch(after_ms=self.dice.choice([0, 1, 10, 200]))
            node_id = self.dice.choice([1, 2])
            if self.flying[node_id]:
                self.happen(node_id, is_calm=step >= 300)
        for _ in range(2000):
            stuck = self.stuck()
            if all(self.logs["a", partition].has_forgotten(batch) for partition, batch in stuck.items()):
                self.forgotten = set(stuck)
                return
            self.dispatch(after_ms=50)
            for node_id, requests in self.flying.items():
                while requests:
                    self.happen(node_id, is_calm=True)
        raise AssertionError("some records have no outcome")

    def stuck(self) -> dict[int, ProducerBatch]:
        """Return the first batch without an outcome of each partition."""
        first = {index: next((one for _, one in rows if not one.done()), None) for index, rows in self.sent.items()}
        return {index: delivery.locate()[0] for index, delivery in first.items() if delivery is not None}

    def dispatch(self, after_ms: int) -> None:
        """Put requests in flight. A node that leads nothing rejects them at once, because Kafka remembers only as many batches as one
        connection holds.
        """
        for request in self.talk.requests(ProduceRequest, after_ms=after_ms):
            if request.node.id in self.talk.topics["a"]:
                self.flying[request.node.id].append(request)
            else:
                self.talk.answer(request, self.serve(request))

    def send(self, step: int) -> None:
        partition = self.dice.randint(0, 2)
        value = b"%d-%d" % (step, len(self.sent[partition])) + b"x" * self.dice.choice([0, 50, 300])
        self.sent[partition].append((value, self.talk.send("a", value, partition=partition)))

    def happen(self, node_id: int, *, is_calm: bool) -> None:
        """Let the broker handle the next request of a connection, or let something go wrong."""
        requests = self.flying[node_id]
        fate = 9 if is_calm else self.dice.randint(0, 9)
        if fate in (0, 3):  # the connection is lost after some of its requests were served
            self.faults += 1
            served = self.dice.randint(0, len(requests))
            for index, request in enumerate(requests):
                if index < served:
                    self.serve(request)
                self.talk.answer(request, ApiError("NETWORK_EXCEPTION", "gone"))
            requests.clear()
            if fate == 3:  # the node is dead, and the other one leads
                self.talk.topics["a"][:] = [3 - node_id] * 3
                self.talk.epochs["a"] = self.talk.epochs.get("a", 0) + 1
            return
        request = requests.pop(0)
        if fate == 1:
            self.faults += 1
            self.talk.answer(request, self.response(request, dict.fromkeys(batches_of(request), ("NOT_ENOUGH_REPLICAS", -1))))
        elif fate == 2:  # written, but not replicated in time
            self.faults += 1
            self.serve(request)
            self.talk.answer(request, self.response(request, dict.fromkeys(batches_of(request), ("NOT_ENOUGH_REPLICAS_AFTER_APPEND", -1))))
        else:
            self.talk.answer(request, self.serve(request))

    def serve(self, request: Outgoing) -> ProduceResponse:
        outcomes = {}
        for key, batch in batches_of(request).items():
            is_leader = self.talk.topics["a"][key[1]] == request.node.id
            outcomes[key] = self.logs[key].append(batch) if is_leader else ("NOT_LEADER_OR_FOLLOWER", -1)
        return self.response(request, outcomes)

    def response(self, request: Outgoing, outcomes: dict[tuple[str, int], tuple[str, int]]) -> ProduceResponse:
        message = request.message
        assert isinstance(message, ProduceRequest)
        rows = [
            PartitionProduceResponse(
                index=index, error_code=by_name(error).code, base_offset=offset, log_append_time_ms=-1, log_start_offset=0
            )
            for (_, index), (error, offset) in outcomes.items()
        ]
        return ProduceResponse(responses=[TopicProduceResponse(topic_id=message.topic_data[0].topic_id, partition_responses=rows)])


@pytest.mark.parametrize("seed", range(12))
def test_once_and_in_order(seed: int, seed_count: int | None) -> None:
    for number in range(seed, seed_count or seed + 1, 12):
        life = Life(number)
        life.run()
        assert life.faults, "nothing has gone wrong"
        assert number >= 12 or not life.forgotten
        for partition, rows in life.sent.items():
            values = life.logs["a", partition].values
            if partition in life.forgotten:
                assert [value for value, _ in rows[: len(values)]] == values, f"seed {number}, partition {partition}"
                continue
            assert [value for value, _ in rows] == values, f"seed {number}, partition {partition}"
            assert [delivery.exception() for _, delivery in rows] == [None] * len(rows)
            offsets = [delivery.metadata().offset for _, delivery in rows]
            assert [offset for offset in offsets if offset >= 0] == [index for index, offset in enumerate(offsets) if offset >= 0]
        if not life.forgotten:
            assert life.talk.core.accumulator.pool.available == life.talk.core.accumulator.pool.total
            assert life.talk.core.sender.is_idle
