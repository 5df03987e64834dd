"""What a program asks of the push of metrics (KIP-714): the id that the brokers give to its client, and
to push metrics of the program, too (KIP-1076). All clients share these methods.

Source: Kafka's KafkaProducer.registerMetricForSubscription,
ClientTelemetryReporter.DefaultClientTelemetrySender.clientInstanceId, ClientTelemetryUtils.fetchClientInstanceId.
"""

from __future__ import annotations

import threading
from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Final

from kops.client.metrics.sensors import MetricName
from kops.client.settings import check_timeout
from kops.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from kops.client.faces.pushing import Pusher

LAST_PUSH_MS: Final = 1000.0  # how long the last push of a client that closes waits for answers before it: a fetch takes 500 ms


class TelemetryCalls(ABC):
    """A face provides its pusher, None if it pushes nothing."""

    @abstractmethod
    def _find_pusher(self) -> Pusher | None:
        """Return what pushes the metrics of this client."""

    def register_metric_for_subscription(
        self, group: str, name: str, measure: Callable[[], float], *, tags: Mapping[str, str] | None = None, is_sum: bool = False
    ) -> None:
        """Push a metric of the program to brokers that subscribe to it (KIP-1076), as org.apache.kafka.GROUP.NAME.

        `measure()` is called in the client's thread, or event loop, at each push. With `is_sum`, its value only grows. A metric that was
        registered before is replaced. A name of the client's own metrics is ignored, but not by an admin client, which pushes this one
        instead. Nothing happens with enable.metrics.push=false.
        """
        pusher = self._find_pusher()
        if pusher is not None:
            pusher.register(_name(group, name, tags), measure, is_sum=is_sum)

    def unregister_metric_from_subscription(self, group: str, name: str, *, tags: Mapping[str, str] | None = None) -> None:
        """Push a metric of the program no longer. One that is not registered is ignored, and so are the client's own metrics, but not by
        an admin client."""
        pusher = self._find_pusher()
        if pusher is not None:
            pusher.unregister(_name(group, name, tags))

    def _used_pusher(self, timeout: float) -> Pusher:
        """Return the pusher after the checks of a call. Raises UsageError."""
        check_timeout(timeout, may_be_none=False)
        pusher = self._find_pusher()
        if pusher is None or not pusher.is_wanted:
            raise UsageError("metrics are not pushed, so there is no instance id; set enable.metrics.push=true")
        return pusher


def _name(group: str, name: str, tags: Mapping[str, str] | None) -> MetricName:
    for text in (group, name, *(tags or {}), *(tags or {}).values()):
        if not isinstance(text, str):
            raise UsageError(f"{text!r}: not allowed in the name of a metric; allowed: text")
    return MetricName(group, name, tuple(sorted((tags or {}).items())))


class BlockingTelemetryCalls(TelemetryCalls):
    """For programs with threads."""

    def client_instance_id(self, timeout: float) -> str | None:
        """Return the id by which the brokers know this client's metrics (KIP-714). It does not change.

        None if no broker gives one within `timeout` seconds, which are also waited for if the brokers collect no metrics. Raises UsageError
        with enable.metrics.push=false.
        """
        pusher = self._used_pusher(timeout)
        known = threading.Event()
        with pusher.watched(known.set):
            self._await_pusher(known.is_set, known.wait, timeout)
        return pusher.instance_id()

    @abstractmethod
    def _await_pusher(self, is_known: Callable[[], bool], wait: Callable[[float], object], timeout: float) -> None:
        """Let the connections work until the pusher knows more: `wait(seconds)` waits for it while another thread drives them."""


class AsyncTelemetryCalls(TelemetryCalls):
    """For asyncio."""

    async def client_instance_id(self, timeout: float) -> str | None:
        """Return the id by which the brokers know this client's metrics (KIP-714). It does not change.

        None if no broker gives one within `timeout` seconds, which are also waited for if the brokers collect no metrics. Raises UsageError
        with enable.metrics.push=false.
        """
        import asyncio  # a program with threads does not need it

        pusher = self._used_pusher(timeout)
        known = asyncio.Event()
        with pusher.watched(known.set):
            self._begin_turns()
            waiter = asyncio.ensure_future(known.wait())
            try:
                await asyncio.wait([waiter], timeout=timeout)
            finally:
                waiter.cancel()
        return pusher.instance_id()

    @abstractmethod
    def _begin_turns(self) -> None:
        """Let the event loop take a turn soon."""
