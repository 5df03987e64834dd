"""A producer's core in a dialogue with scripted brokers. The time is a number, and every request waits until the test answers it.

talk = Dialogue({"linger.ms": 5}, topics={"a": [1, 2]})
talk.send("a", b"x", partition=0)
(request,) = talk.requests(ProduceRequest, after_ms=5)
talk.answer(request, written(request))
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from kops.client.node import Node
from kops.client.producer.core._hot_records import Delivery
from kops.client.producer.core.links import Outgoing
from kops.client.producer.core.producer import Entry, Partitioner, ProducerCore, Step
from kops.client.producer.options import ProducerOptions
from kops.errors import ApiError
from kops.protocol.connections.node_versions import FinalizedFeatures
from kops.protocol.declaration import Message
from kops.protocol.messages import (
    InitProducerIdRequest,
    InitProducerIdResponse,
    MetadataRequest,
    MetadataResponse,
    ProduceRequest,
    ProduceResponse,
)
from kops.protocol.messages.metadata_response import MetadataResponseBroker, MetadataResponsePartition, MetadataResponseTopic
from kops.protocol.messages.produce_response import PartitionProduceResponse, TopicProduceResponse
from kops.records import Batch
from kops.records.scanning.scanner import read_batches


def topic_id(name: str) -> bytes:
    """Return the id of a scripted topic."""
    return name.encode().ljust(16, b"\1")


class ScriptedLinks:
    """Connections that are up unless the test sets them otherwise."""

    def __init__(self) -> None:
        self.down: set[int] = set()
        self.failing: set[int] = set()
        self.in_flight: dict[int, int] = {}
        self.init_version = 5  # of InitProducerId, on every node
        self.finalized = FinalizedFeatures(7, {"transaction.version": 2})

    def is_ready(self, node: Node) -> bool:
        return node.id not in self.down

    def load(self, node: Node) -> int:
        return self.in_flight.get(node.id, 0)

    def retry_ms(self, node: Node) -> float:
        return 50.0

    def least_loaded(self, nodes: Iterable[Node]) -> Node | None:
        up = [node for node in nodes if node.id not in self.down]
        return min(up, key=self.load, default=None)

    def is_failing(self, node: Node) -> bool:
        return node.id in self.failing

    def latest_version(self, node: Node, api_key: int) -> int:
        return self.init_version

    def features(self) -> FinalizedFeatures:
        return self.finalized


class Dialogue:
    """A dialogue. `topics` has the leader of each partition, -1 for none. `draws` are the first random numbers; all later ones are 0.5."""

    def __init__(
        self,
        settings: Mapping[str, object] | None = None,
        *,
        topics: dict[str, list[int]] | None = None,
        draws: Sequence[float] = (),
        partitioner: Partitioner | None = None,
        is_known: bool = True,
    ) -> None:
        self.now_ms = 1000.0
        self.links = ScriptedLinks()
        self.topics = topics or {"a": [1]}
        self.epochs: dict[str, int] = {}
        self.ids = 0
        self.waiting: list[Outgoing] = []
        numbers = iter(draws)
        options = ProducerOptions.of({"bootstrap.servers": "boot:9092", "retry.backoff.ms": 100, **(settings or {})})
        self.core = ProducerCore(options, [("boot", 9092)], self.links, lambda: next(numbers, 0.5), partitioner)
        self.wait_ms = 0.0
        if is_known:
            for name in self.topics:
                self.core.metadata.use(name, self.now_ms)
            self.turn()
            self.settle()

    # records

    def entry(self, topic: str, value: bytes | None = b"v", key: bytes | None = None, **more: Any) -> Entry:
        """Return a record on its way."""
        headers, partition = more.get("headers", ()), more.get("partition")
        stamp = more.get("timestamp", 0)
        return Entry(topic, key, value, headers, partition, stamp, Delivery(), self.now_ms + self.core.options.max_block_ms)

    def send(self, topic: str, value: bytes | None = b"v", key: bytes | None = None, **more: Any) -> Delivery:
        """Append a record that need not wait, as the faces do: quickly if that is possible."""
        entry = self.entry(topic, value, key, **more)
        if not entry.headers:
            wakes = self.core.advance_quickly(topic, entry.timestamp, key, value, entry.delivery, entry.partition)
            if wakes is None and entry.partition is None:
                wakes = self.core.advance_at_once(topic, entry.timestamp, key, value, entry.delivery, self.now_ms)
            if wakes is not None:
                return entry.delivery
        assert self.core.advance(entry, self.now_ms) in (Step.APPENDED, Step.WAKES)
        return entry.delivery

    # requests

    def turn(self, after_ms: float = 0) -> None:
        """Let time pass, and let the sender have one turn."""
        self.now_ms += after_ms
        requests, self.wait_ms = self.core.turn(self.now_ms)
        for request in requests:
            self.links.in_flight[request.node.id] = self.links.load(request.node) + 1
        self.waiting += requests

    def requests(self, kind: type[Message] = ProduceRequest, *, after_ms: float = 0) -> list[Outgoing]:
        """Take the requests of a kind that are in flight after another turn. Requests for metadata and ids are answered meanwhile."""
        self.turn(after_ms)
        for other in (MetadataRequest, InitProducerIdRequest):
            if other is not kind:
                while self.settle(other):
                    self.turn()
        found = [one for one in self.waiting if isinstance(one.message, kind)]
        self.waiting = [one for one in self.waiting if one not in found]
        return found

    def settle(self, kind: type[Message] | None = None) -> bool:
        """Answer requests for metadata and producer ids. Return whether there were any."""
        found = [one for one in self.waiting if isinstance(one.message, kind or MetadataRequest | InitProducerIdRequest)]
        for one in found:
            self.waiting.remove(one)
            if isinstance(one.message, MetadataRequest):
                self.answer(one, self.metadata(one.message))
            else:
                self.ids += 1
                self.answer(one, InitProducerIdResponse(producer_id=1000 + self.ids, producer_epoch=0))
        return bool(found)

    def metadata(self, request: MetadataRequest) -> MetadataResponse:
        """Return the cluster's metadata."""
        leaders = sorted({leader for rows in self.topics.values() for leader in rows if leader > 0} | {1, 2})
        topics = []
        for wanted in request.topics or ():
            name = wanted.name or ""
            if name not in self.topics:
                topics.append(MetadataResponseTopic(error_code=3, name=name))
                continue
            rows = [
                MetadataResponsePartition(
                    error_code=0 if leader > 0 else 5, partition_index=index, leader_id=leader, leader_epoch=self.epochs.get(name, 0)
                )
                for index, leader in enumerate(self.topics[name])
            ]
            topics.append(MetadataResponseTopic(name=name, topic_id=topic_id(name), partitions=rows))
        return MetadataResponse(
            brokers=[MetadataResponseBroker(node_id=one, host=f"b{one}", port=9092) for one in leaders], controller_id=1, topics=topics
        )

    def answer(self, request: Outgoing, answer: Message | ApiError) -> None:
        """End a request."""
        self.links.in_flight[request.node.id] = self.links.load(request.node) - 1
        request.answered(answer, self.now_ms)


def batches_of(request: Outgoing) -> dict[tuple[str, int], Batch]:
    """Return the batches of a Produce request by topic and partition."""
    message = request.message
    assert isinstance(message, ProduceRequest)
    return {
        (topic.name, row.index): read_batches(bytes(row.records))[0]  # type: ignore[arg-type]
        for topic in message.topic_data
        for row in topic.partition_data
    }


def batch_of(request: Outgoing) -> Batch:
    """Return the only batch of a request."""
    (batch,) = batches_of(request).values()
    return batch


def values_of(request: Outgoing) -> list[bytes | None]:
    """Return the values of the only batch of a request."""
    return [record.value for record in batch_of(request).records()]


def response(request: Outgoing, **row: Any) -> ProduceResponse:
    """Return a response with the same result for every partition."""
    message = request.message
    assert isinstance(message, ProduceRequest)
    throttle = row.pop("throttle_time_ms", 0)
    endpoints = row.pop("node_endpoints", [])
    topics = [
        TopicProduceResponse(
            name=topic.name,
            topic_id=topic.topic_id,
            partition_responses=[PartitionProduceResponse(index=one.index, **row) for one in topic.partition_data],
        )
        for topic in message.topic_data
    ]
    return ProduceResponse(responses=topics, throttle_time_ms=throttle, node_endpoints=endpoints)


def written(request: Outgoing, base_offset: int = 0, **row: Any) -> ProduceResponse:
    """Return a response in which all partitions have written their batch."""
    return response(request, base_offset=base_offset, log_append_time_ms=-1, **row)


def refused(request: Outgoing, error: str, **row: Any) -> ProduceResponse:
    """Return a response in which all partitions have an error."""
    from kops.protocol.errors import by_name

    return response(request, error_code=by_name(error).code, base_offset=-1, log_append_time_ms=-1, log_start_offset=-1, **row)
