"""Pushes the metrics of a client over its connections (KIP-714), to the same node for as long as it takes them.

Source: Kafka's NetworkClient.TelemetrySender, ClientTelemetryProvider.
"""

from __future__ import annotations

import logging
import random
import threading
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final

from kops.client.metrics.sensors import Metric
from kops.client.metrics.telemetry import FOREVER, Telemetry
from kops.protocol.json_text import uuid_text

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping

    from kops.client.metrics.sensors import MetricName, Metrics
    from kops.client.network import NetworkClient
    from kops.client.node import Node
    from kops.errors import ApiError
    from kops.protocol.declaration import Message

logger = logging.getLogger("kops.client")
_LOOK_MS: Final = 100.0  # while a program waits for the first answer of a broker


class Pusher:
    """Pushes the metrics of one client. `nodes()` returns the brokers, and `labels()` describes the client.

    `answered()` is called after each answer, because the next turn may then be due earlier.
    """

    def __init__(
        self,
        values: Mapping[str, Any],
        metrics: Metrics,
        network: NetworkClient,
        nodes: Callable[[], Iterable[Node]],
        labels: Callable[[], Mapping[str, object]],
        answered: Callable[[], object],
        *,
        keeps_own: bool = True,
    ) -> None:
        def attributes() -> dict[str, str]:
            return {name: str(label) for name, label in labels().items() if label}

        self._telemetry = Telemetry(metrics, attributes, random.random, _wall_ms())
        self.is_wanted = bool(values["enable.metrics.push"])
        self._telemetry.is_enabled = self.is_wanted
        self._watchers: list[Callable[[], object]] = []
        self._lock = threading.Lock()
        self._is_finished = False
        self._is_ending = False
        self._metrics = metrics
        self._keeps_own = keeps_own  # Kafka's admin client lets a program replace and remove its metrics
        self._network = network
        self._nodes = nodes
        self._is_answered = answered
        self._node: Node | None = None

    def turn(self) -> float:
        """Send the request that is due. Returns the time until the next one, infinite if an event comes first."""
        due_ms = self._telemetry.due_ms()
        if due_ms == FOREVER or (self._is_ending and not self._is_finished):
            return FOREVER
        network = self._network
        now_ms = network.now_ms()
        if due_ms > now_ms:
            return due_ms - now_ms
        if not network.has_answer and not self._watchers:
            return FOREVER
        nodes = list(self._nodes())
        if self._node not in nodes:  # or it was only an address, before the nodes were known
            self._node = network.least_loaded(nodes)
        node = self._node
        network.push()  # a client that always has something to send has just left requests there
        if node is None or not network.is_ready(node):
            self._node = None
            return _LOOK_MS if self._watchers else FOREVER
        request = self._telemetry.request(now_ms, _wall_ms())
        if request is not None:
            network.send(node, request, self._answered)
        return FOREVER

    def _answered(self, answer: Message | ApiError) -> None:
        self._telemetry.answered(answer, self._network.now_ms())
        self._is_answered()
        self._tell()

    def instance_id(self) -> str | None:
        """Return the id that the brokers have given to this client, if they have."""
        subscription = self._telemetry.subscription
        return None if subscription is None else uuid_text(subscription.instance_id)

    def register(self, name: MetricName, measure: Callable[[], object], *, is_sum: bool) -> None:
        """Push a metric of the program, unless the client itself has it and keeps it."""
        if not self._is_own(name, "registered"):
            measured: Any = measure
            self._telemetry.register(name, Metric(lambda now_ms: measured(), is_sum), _wall_ms())

    def unregister(self, name: MetricName) -> None:
        """Push a metric no longer, unless the client itself has it and keeps it."""
        if not self._is_own(name, "removed"):
            self._telemetry.unregister(name)

    def _is_own(self, name: MetricName, what: str) -> bool:
        is_own = self._keeps_own and name in self._metrics
        if is_own:
            logger.debug("the client itself has the metric %s of %s, which is not %s", name.name, name.group, what)
        return is_own

    @contextmanager
    def watched(self, known: Callable[[], object]) -> Iterator[None]:
        """Call `known` once the instance id is known, or the client closes. Meanwhile, turns look for a broker by themselves."""
        with self._lock:
            self._watchers.append(known)
        try:
            self._tell()
            yield
        finally:
            with self._lock:
                if known in self._watchers:
                    self._watchers.remove(known)

    def _tell(self) -> None:
        if self._telemetry.subscription is None and not self._is_finished:
            return
        with self._lock:
            watchers, self._watchers = self._watchers, []
        for known in watchers:
            known()

    def begin_to_end(self) -> None:
        """Push no more before the last push, so that no answer is on its way then."""
        self._is_ending = True

    def is_behind(self) -> bool:
        """Whether the last push would go behind a request that is not answered yet.

        A broker reads one request of a connection at a time. It reads none after an answer that it can't send, because the client has gone.
        """
        return self._telemetry.has_last_push() and self._node is not None and self._network.load(self._node) > 0

    def finish(self, patience_ms: float = 0) -> None:
        """Push for the last time if the brokers want it, without waiting for the answer.

        The answers to earlier requests of the same connection are awaited for at most `patience_ms`.
        """
        self._is_ending = True
        until_ms = self._network.now_ms() + patience_ms
        while self.is_behind() and (left_ms := until_ms - self._network.now_ms()) > 0:
            self._network.poll(left_ms)
        self._is_finished = True
        self._tell()
        self._telemetry.close()
        self.turn()
        self._network.poll(0)


def _wall_ms() -> int:
    return time.time_ns() // 1_000_000
