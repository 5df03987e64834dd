"""The outcomes of a blocking producer's records: the futures, the threads that wait for them, and a thread that gets its answer itself.

Source: Kafka's FutureRecordMetadata, ProduceRequestResult. In Java only the sender's thread receives. Here a thread that waits for the only
request in flight receives the answer, because two changes between threads take longer than the rest of a short request. Callbacks and
everything else remain with the sender's thread. As in Java, a future is done when all callbacks for its batch have been called.
"""

from __future__ import annotations

import select
import threading
import time
from functools import partial
from typing import TYPE_CHECKING, Final

from kops.client.faces.waking import Gate, refuse_in_forks, without_interrupt
from kops.client.producer.core._hot_records import Delivery
from kops.client.producer.core.batches import ProducerBatch

if TYPE_CHECKING:
    from collections.abc import Callable

    from kops.client.node import Node
    from kops.client.producer.core.batches import RecordMetadata
    from kops.client.producer.faces.driving import Driver

    Waiting = dict[Gate | threading.Lock, "RecordFuture | ProducerBatch"]

_LONGEST_WAIT_MS: Final = 5000.0
_FOREVER: Final = float("inf")


class Receiver:
    """Lets a thread receive the answer to the only request in flight. The sender's thread goes on to wait for everything else.

    `settle()` ends finished batches without callbacks, and wakes the sender's thread if anything is left to do. `busy` is the lock of the
    connections, which the sender's thread holds except while it waits.
    """

    def __init__(self, driver: Driver, busy: threading.Lock, settle: Callable[[], object]) -> None:
        self._driver = driver
        self._busy = busy
        self._settle = settle
        self._lock = threading.Lock()  # held by the thread that receives
        self._poller = select.poll()
        self._gate: Gate | None = None
        self._is_interrupted = False
        self._has_ended = False

    def receive(self, batch: ProducerBatch, waiting: Waiting, deadline: float) -> None:
        """Wait for the outcome of a batch and receive it, if that is possible now. `deadline` is a time of `time.monotonic`.

        This returns early if anything needs the sender's thread: then wait for that. Ctrl-C ends it.
        """
        if not self._lock.acquire(blocking=False):
            return
        try:
            self._is_interrupted = False
            without_interrupt(partial(self._receive, batch, waiting, deadline), self._interrupt)
        finally:
            self._lock.release()

    def close(self) -> None:
        """Release the descriptors. Call this when all records have an outcome, and the connections are closed."""
        with self._lock:
            self._has_ended = True
            if self._gate is not None:
                self._gate.close()

    def _interrupt(self) -> None:
        self._is_interrupted = True
        if self._gate is not None:
            self._gate.release()

    def _receive(self, batch: ProducerBatch, waiting: Waiting, deadline: float) -> None:
        node = None if self._has_ended else self._driver.core.metadata.leader(batch.partition)
        if node is None or not self._busy.acquire(blocking=False):
            return
        try:
            fd = self._driver.network.reserve(node)
        finally:
            self._busy.release()
        if fd < 0:
            return
        if self._gate is None:
            self._gate = Gate()
            self._poller.register(self._gate.fd, select.POLLIN)
        try:
            waiting[self._gate] = batch
            self._poller.register(fd, select.POLLIN)
            self._wait(self._gate, node, batch, waiting, deadline)
        finally:
            waiting.pop(self._gate, None)
            self._poller.unregister(fd)
            with self._busy:
                self._driver.network.give_back(node)

    def _wait(self, gate: Gate, node: Node, batch: ProducerBatch, waiting: Waiting, deadline: float) -> None:
        network, wait_ms = self._driver.network, _LONGEST_WAIT_MS
        while _is_awaited(batch) and not self._is_interrupted:
            if deadline != _FOREVER:
                wait_ms = min((deadline - time.monotonic()) * 1000, _LONGEST_WAIT_MS)
                if wait_ms <= 0:
                    return
            for fd, _ in self._poller.poll(wait_ms):
                if fd == gate.fd:
                    gate.drain()
                    continue
                with self._busy:
                    is_reserved = network.receive(node)
                if not _is_awaited(batch):
                    waiting.pop(gate, None)  # no need to wake this thread
                self._settle()
                if not is_reserved:
                    return


def _is_awaited(batch: ProducerBatch) -> bool:
    """Whether an answer for a batch may still come that decides anything. Otherwise it has an outcome, or is sent again."""
    return batch.is_in_flight and not batch.is_done


class Outcomes:
    """The threads that wait for the outcome of a record, each with a lock that is released to wake it. `lock` guards the core. `caller` is
    the thread that calls callbacks, which must not wait for them."""

    def __init__(self, lock: threading.Lock) -> None:
        self.lock = lock
        self.caller: threading.Thread | None = None
        self.receiver: Receiver | None = None  # without it, only the sender's thread receives
        self._waiting: Waiting = {}
        refuse_in_forks(self)

    def wait(self, future: RecordFuture, timeout: float | None) -> bool:
        """Wait until a record has an outcome. Returns False if it has none after `timeout` seconds."""
        deadline = _FOREVER if timeout is None else time.monotonic() + timeout
        batch, _ = future.locate()
        if batch is not None and _is_awaited(batch):
            self.receive(batch, timeout)
        with self.lock:
            if future.done():
                return True
            gate = threading.Lock()
            gate.acquire()
            self._waiting[gate] = future
        try:
            seconds = -1 if timeout is None else max(deadline - time.monotonic(), 0)
            return gate.acquire(timeout=seconds) or future.done()
        finally:
            with self.lock:
                self._waiting.pop(gate, None)

    def receive(self, batch: ProducerBatch, timeout: float | None) -> None:
        """Receive the answer for a batch in flight in this thread, if nobody else waits and nobody is called back for its records."""
        if self.receiver is not None and not self._waiting and not batch.records.watched:
            self.receiver.receive(batch, self._waiting, _FOREVER if timeout is None else time.monotonic() + timeout)

    def tell(self) -> None:
        """Wake the threads whose records have an outcome. Call this with the lock held."""
        for gate, one in list(self._waiting.items()):
            if not _is_awaited(one) if isinstance(one, ProducerBatch) else one.done():
                self._waiting.pop(gate, None)  # a thread that receives may just have ended its wait
                gate.release()


class RecordFuture(Delivery):
    """The outcome of a record, for a thread that waits for it."""

    __slots__ = ()
    changed: Outcomes

    def done(self) -> bool:
        """Whether the outcome is known, and all callbacks for records of its batch have been called. In a callback, the first is enough."""
        return self.is_told() or (super().done() and threading.current_thread() is self.changed.caller)

    def result(self, timeout: float | None = None) -> RecordMetadata:
        """Wait for the place of the record. Raises its error, or TimeoutError after `timeout` seconds."""
        self._wait(timeout)
        place: RecordMetadata = self.metadata()
        return place

    def error(self, timeout: float | None = None) -> BaseException | None:
        """Wait for the error of a record, or None if it was written. Raises TimeoutError after `timeout` seconds."""
        self._wait(timeout)
        return self.exception()

    def add_done_callback(self, callback: Callable[[RecordFuture], object]) -> None:
        """Call back with this future when its outcome is known: at once if it already is, otherwise in the producer's thread."""
        with self.changed.lock:
            if not super().done():
                self.add(callback)
                return
        callback(self)

    def _wait(self, timeout: float | None) -> None:
        if not self.done() and not self.changed.wait(self, timeout):
            raise TimeoutError("the record is not acknowledged yet")
