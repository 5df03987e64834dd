"""Assigns ids to idempotent producers, from blocks that the controller allocates (Kafka RPCProducerIdManager, ProducerIdsBlock).

An id is assigned at once or not at all: while a block is being requested, producers get a retriable error. The next block is requested when
90 % of the current one are used, so this is rare.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Final

from kops.errors import ApiError
from kops.protocol import errors
from kops.protocol.messages import AllocateProducerIdsRequest, AllocateProducerIdsResponse

if TYPE_CHECKING:
    from collections.abc import Callable

    from kops.broker.controller_link.to_controller import ToController
    from kops.protocol.declaration import Message

log = logging.getLogger(__name__)

RETRY_BACKOFF_MS: Final = 50
_PREFETCH_PERCENT: Final = 90
_MAX_LONG: Final = 2**63 - 1
_EMPTY: Final = range(0)


class ProducerIds:
    """The ids of one broker. `broker_epoch()` returns the epoch of its registration, `now_ms()` the time of any clock."""

    def __init__(self, node_id: int, controller: ToController, *, broker_epoch: Callable[[], int], now_ms: Callable[[], int]) -> None:
        self._node_id = node_id
        self._controller = controller
        self._broker_epoch = broker_epoch
        self._now_ms = now_ms
        self._block = _EMPTY
        self._used = 0
        self._next_block: range | None = None
        self._is_asking = False
        self._retry_at_ms = 0

    def generate(self) -> int:
        """A new producer id. Raises ApiError COORDINATOR_LOAD_IN_PROGRESS while there is none."""
        if self._used == len(self._block):
            self._take_next_block()
        index = self._used
        self._used += 1
        if index == len(self._block) * _PREFETCH_PERCENT // 100:
            self._ask()
        return self._block[index]

    def _take_next_block(self) -> None:
        # An empty block counts as no block.
        if not self._next_block:
            self._next_block = None
            self._ask()
            # REQUEST_TIMED_OUT would fit better, but is fatal to older clients.
            raise ApiError("COORDINATOR_LOAD_IN_PROGRESS", "Producer ID block is full. Waiting for next block")
        self._block, self._used = self._next_block, 0
        self._next_block = None

    def _ask(self) -> None:
        if self._is_asking or self._next_block is not None or self._now_ms() < self._retry_at_ms:
            return
        self._is_asking = True
        request = AllocateProducerIdsRequest(broker_id=self._node_id, broker_epoch=self._broker_epoch())
        self._controller.send(request, self._answered)

    def _answered(self, answer: Message | ApiError) -> None:
        self._is_asking = False
        if isinstance(answer, ApiError):
            log.warning("No block of producer ids from the controller: %s", answer)
            # After a time-out of a minute, don't wait again before the next request.
            self._retry_at_ms = 0 if answer.name == "REQUEST_TIMED_OUT" else self._now_ms() + RETRY_BACKOFF_MS
            return
        assert isinstance(answer, AllocateProducerIdsResponse)
        reason = self._refusal(answer)
        if reason:
            log.warning("No block of producer ids from the controller: %s", reason)
            self._retry_at_ms = self._now_ms() + RETRY_BACKOFF_MS
            return
        self._retry_at_ms = 0
        self._next_block = range(answer.producer_id_start, answer.producer_id_start + answer.producer_id_len)

    def _refusal(self, answer: AllocateProducerIdsResponse) -> str:
        """Return why an answer can't be used; "" if it can."""
        if answer.error_code:
            return errors.by_code(answer.error_code).name
        start, size = answer.producer_id_start, answer.producer_id_len
        if self._block and start < self._block.stop:
            return f"its block begins at {start}, before the end of the current one at {self._block.stop - 1}"
        if start < 0 or size < 0 or start > _MAX_LONG - size:
            return f"{size} ids from {start} on are not a valid block"
        return ""
