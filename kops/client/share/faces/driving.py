"""Shared by the faces of the share consumer: the connections, one turn, and the callback for acknowledgements.

Source: Kafka's ShareConsumerImpl (constructor), AcknowledgementCommitCallbackHandler.
"""

from __future__ import annotations

import itertools
import logging
import random
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import TYPE_CHECKING, Any

from kops.client.consumer.deserializers import find_deserializer
from kops.client.consumer.errors import ConsumerClosedError
from kops.client.faces.driving import client_metrics, network_settings, shielded
from kops.client.faces.pushing import Pusher
from kops.client.metrics.network import NetworkMetrics
from kops.client.metrics.share import ShareMetrics
from kops.client.network import NetworkClient
from kops.client.settings import check_timeout, parse_addresses
from kops.client.share.core.acknowledgements import AcknowledgeType, TopicIdPartition
from kops.client.share.core.consumer import ShareCore
from kops.client.share.core.options import ShareOptions
from kops.client.share.core.records import Deserializers, ShareRecord
from kops.errors import ApiError, UsageError
from kops.protocol import api_keys
from kops.protocol.json_text import uuid_text

if TYPE_CHECKING:
    from kops.client.errors import KafkaError
    from kops.client.node import Node
    from kops.client.producer.core.links import Outgoing
    from kops.protocol.declaration import Message

OnAcknowledged = Callable[[TopicIdPartition, frozenset[int], "KafkaError | None"], object]
logger = logging.getLogger("kops.client")
CLOSE_S = 30.0
LONGEST_WAIT_MS = 5000.0
_numbers = itertools.count(1)


class Driver:
    """A core with its connections. `lock` guards the core."""

    def __init__(self, given: Mapping[str, object], lock: AbstractContextManager[Any] | None = None) -> None:
        self.options = ShareOptions.of(given)
        values = self.options.values
        names = ("key.deserializer", "value.deserializer")
        deserializers = Deserializers(*(find_deserializer(values[name]) for name in names))
        group_id = self.options.limits.group_id
        self.client_id = str(values["client.id"]) if "client.id" in given else f"consumer-{group_id}-{next(_numbers)}"
        settings = network_settings(values, self.client_id)
        bootstrap = parse_addresses(settings.bootstrap_servers)
        self.lock = nullcontext() if lock is None else lock
        self.all_metrics = client_metrics(values, self.client_id)
        self._network_metrics = NetworkMetrics(self.all_metrics, "consumer")
        self.network = NetworkClient(settings, warn=logger.warning, metrics=self._network_metrics)
        self.now_ms = self.network.now_ms
        self.metrics = ShareMetrics(self.all_metrics, self.now_ms)
        member_id = _member_id()
        self.core = ShareCore(self.options, bootstrap, self.network, random.random, deserializers, member_id, self.now_ms(), self.metrics)
        self.pusher = Pusher(values, self.all_metrics, self.network, self._nodes, self._labels, self._count_answer)
        self.is_closed = False
        self.has_answers = False  # since the last turn
        self._callback: OnAcknowledged | None = None
        self._is_in_callback = False

    def turn(self) -> float:
        """Send the requests that are due. Returns the maximum time until the next turn in ms."""
        self.has_answers = False
        with self.lock:
            requests, wait_ms = self.core.turn(self.now_ms())
        for request in requests:
            self.send(request)
        return min(wait_ms, self.pusher.turn(), LONGEST_WAIT_MS)

    def _nodes(self) -> Iterable[Node]:
        return self.core.metadata.cluster.nodes.values()

    def _labels(self) -> dict[str, object]:
        """Return the description of this client for brokers that collect metrics."""
        rack = self.options.values["client.rack"]
        return {"group_id": self.options.limits.group_id, "client_rack": rack, "group_member_id": self.core.member_id}

    def _count_answer(self) -> None:
        self.has_answers = True

    @contextmanager
    def polling(self) -> Iterator[None]:
        """Record the time that the program spends in a poll."""
        self.metrics.poll_begins(self.now_ms())
        try:
            yield
        finally:
            self.metrics.poll_ends(self.now_ms())

    def send(self, request: Outgoing) -> None:
        """Send a request."""
        name, sent_ms = api_keys.by_key(request.message.API_KEY or 0).name, self.now_ms()
        self.metrics.asked(name, sent_ms)

        def done(answer: Message | ApiError) -> None:
            self.has_answers = True
            now_ms = self.now_ms()
            if not isinstance(answer, ApiError):
                is_good = not getattr(answer, "error_code", 0)
                if self.metrics.answered(name, now_ms - sent_ms, getattr(answer, "throttle_time_ms", 0), now_ms, is_good=is_good):
                    self._network_metrics.node(request.node.id).latency.record(now_ms - sent_ms, now_ms)
            with self.lock:
                request.answered(answer, now_ms)

        self.network.send(request.node, request.message, done, versions=request.versions)

    def check_usable(self) -> None:
        """Raise UsageError in the callback, and ConsumerClosedError after the end."""
        if self._is_in_callback:
            raise UsageError("the callback for acknowledgements can't use its share consumer")
        if self.is_closed:
            raise ConsumerClosedError("the share consumer is closed")

    def step_ms(self, deadline_ms: float) -> float:
        """Return how long a poll may wait before it looks after its membership again."""
        return max(min(deadline_ms - self.now_ms(), self.options.member.max_poll_interval_ms / 2, LONGEST_WAIT_MS), 0.0)

    def close_deadline_ms(self, timeout: float) -> float:
        """Return the end of a close. Raises UsageError."""
        check_timeout(timeout, may_be_none=False)
        return self.now_ms() + min(timeout * 1000, self.options.request_timeout_ms)

    # acknowledgements

    def acknowledge(self, record: ShareRecord, kind: AcknowledgeType) -> None:
        """Acknowledge a record."""
        with self.lock:
            self.core.acknowledge(record.topic, record.partition, record.offset, AcknowledgeType(kind), is_record=True)

    def set_callback(self, callback: OnAcknowledged | None) -> None:
        """Replace the callback."""
        with self.lock:
            self.core.set_callback(is_set=callback is not None)
        self._callback = callback

    def tell(self) -> None:
        """Call the callback. An error in it is logged."""
        with self.lock:
            outcomes = self.core.take_outcomes()
        callback = self._callback
        if callback is None or self._is_in_callback:
            return
        for outcome in outcomes:
            self._is_in_callback = True
            try:
                shielded(callback, *outcome, what="the callback for acknowledgements")
            finally:
                self._is_in_callback = False

    def close_helpers(self) -> None:
        """Close deserializers that have a method `close`."""
        for name in ("key.deserializer", "value.deserializer"):
            one = self.options.values[name]
            close = None if one is None or isinstance(one, type | str) else getattr(one, "close", None)
            if callable(close):
                shielded(close, what=f"{self.client_id}: closing a helper")


def _member_id() -> str:
    """Return a random Uuid as text. As in Kafka, it does not begin with a dash."""
    while True:
        data = bytearray(random.SystemRandom().randbytes(16))
        data[6] = data[6] & 0x0F | 0x40
        data[8] = data[8] & 0x3F | 0x80
        text = uuid_text(bytes(data))
        if not text.startswith("-"):
            return text
