"""Sends changes of in-sync sets to the controller: runs the queue of `kops.replication.leading.alter_partition` on the loop.

Source: Kafka's DefaultAlterPartitionManager. All changes submitted in one turn of the loop go out in one request.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from kops.errors import ApiError
from kops.protocol.errors import by_code
from kops.replication.leading.alter_partition import AlterPartitionManager

if TYPE_CHECKING:
    from collections.abc import Callable

    from kops.broker.controller_link.lifecycle import Cancellable
    from kops.broker.controller_link.to_controller import ToController
    from kops.broker.network.events.loop import Loop
    from kops.protocol.declaration import Message
    from kops.replication.leading.isr import LeaderAndIsr, ProposedIsr

log = logging.getLogger(__name__)


class AlterPartitionSender:
    """Sends the changes of one broker. `broker_epoch()` is the epoch of its registration."""

    def __init__(self, loop: Loop, channel: ToController, broker_id: int, broker_epoch: Callable[[], int]) -> None:
        self._loop = loop
        self._channel = channel
        self._queue = AlterPartitionManager(broker_id, broker_epoch, self._schedule)
        self._next: Cancellable | None = None
        self._is_closed = False

    def submit(self, topic_id: bytes, partition: int, proposed: ProposedIsr, done: Callable[[LeaderAndIsr | str], None]) -> None:
        """See `AlterPartitionManager.submit`."""
        self._queue.submit(topic_id, partition, proposed, done)

    def close(self) -> None:
        """Send nothing more. Unanswered changes stay unanswered."""
        self._is_closed = True
        if self._next is not None:
            self._next.cancel()
            self._next = None

    def _schedule(self) -> None:
        due_ms = self._queue.next_due_ms
        if due_ms is not None and self._next is None and not self._is_closed:
            self._next = self._loop.call_later(due_ms - self._now_ms(), self._send)

    def _now_ms(self) -> int:
        """The monotonic clock: a wall clock that is set back must not delay a Produce with acks=all."""
        return int(self._loop.monotonic_ms())

    def _send(self) -> None:
        self._next = None
        request = self._queue.next_request(self._now_ms())
        if request is None:
            self._schedule()
            return
        self._channel.send(request, self._on_answer)

    def _on_answer(self, answer: Message | ApiError) -> None:
        from kops.protocol.messages import AlterPartitionResponse

        if self._is_closed:
            return
        now_ms = self._now_ms()
        if isinstance(answer, ApiError):
            log.info("A change of in-sync replicas was not answered: %s", answer)
            self._queue.on_failure(now_ms)
        else:
            assert isinstance(answer, AlterPartitionResponse)
            if answer.error_code:
                log.warning("A change of in-sync replicas was answered with error %s", by_code(answer.error_code).name)
            self._queue.on_response(answer, now_ms)
        self._schedule()
