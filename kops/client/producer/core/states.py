"""The states of a transactional producer, the results that its callers wait for, and the queue of its requests.

Source: Kafka's TransactionManager (State, Priority, PendingStateTransition), TransactionalRequestResult.
"""

from __future__ import annotations

from enum import Enum, IntEnum
from typing import TYPE_CHECKING, Final, Generic, Protocol, TypeVar

if TYPE_CHECKING:
    from collections.abc import Iterator

    from kops.client.errors import KafkaError


class State(Enum):
    """Where a transactional producer is. The values are what messages call it."""

    UNINITIALIZED = "not initialized"
    INITIALIZING = "being initialized"
    READY = "ready"
    IN_TRANSACTION = "in a transaction"
    COMMITTING = "committing a transaction"
    ABORTING = "aborting a transaction"
    ABORTABLE_ERROR = "in a transaction that failed and must be aborted"
    FATAL_ERROR = "failed and must be closed"


_S = State
SOURCES: Final[dict[State, frozenset[State]]] = {
    _S.UNINITIALIZED: frozenset((_S.READY, _S.ABORTABLE_ERROR)),
    _S.INITIALIZING: frozenset((_S.UNINITIALIZED, _S.COMMITTING, _S.ABORTING)),
    _S.READY: frozenset((_S.INITIALIZING, _S.COMMITTING, _S.ABORTING)),
    _S.IN_TRANSACTION: frozenset((_S.READY,)),
    _S.COMMITTING: frozenset((_S.IN_TRANSACTION,)),
    _S.ABORTING: frozenset((_S.IN_TRANSACTION, _S.ABORTABLE_ERROR)),
    _S.ABORTABLE_ERROR: frozenset((_S.IN_TRANSACTION, _S.COMMITTING, _S.ABORTABLE_ERROR, _S.INITIALIZING)),
    _S.FATAL_ERROR: frozenset(State),
}
"""The states from which each state can be reached. Kafka's PREPARED_TRANSACTION is missing, because no call of its producer leads there."""


class Priority(IntEnum):
    """The order in which waiting requests are sent: lower numbers first."""

    FIND_COORDINATOR = 0
    INIT_PRODUCER_ID = 1
    ADD_PARTITIONS_OR_OFFSETS = 2
    END_TXN = 3
    EPOCH_BUMP = 4


class Pending:
    """The outcome of a call that needs requests. A call that timed out is repeated to get the same outcome, until one call has seen it."""

    __slots__ = ("error", "is_done", "is_seen", "operation")

    def __init__(self, operation: str) -> None:
        self.operation = operation
        self.is_done = False
        self.is_seen = False
        self.error: KafkaError | None = None

    def done(self) -> None:
        """Set the outcome: it worked, unless it has already failed."""
        self.is_done = True

    def fail(self, error: KafkaError) -> None:
        """Set the outcome: an error."""
        self.error = error
        self.is_done = True

    def see(self) -> None:
        """Take note of the outcome, as the call that returns it. Raises the error."""
        self.is_seen = True
        if self.error is not None:
            raise self.error


class Prioritized(Protocol):
    """What the queue knows of a request."""

    priority: Priority


R = TypeVar("R", bound=Prioritized)


class RequestQueue(Generic[R]):
    """Waiting requests by priority. Those of the same priority come in the order of java.util.PriorityQueue, a binary heap, which is not
    always that of their arrival."""

    __slots__ = ("_heap",)

    def __init__(self) -> None:
        self._heap: list[R] = []

    def __bool__(self) -> bool:
        return bool(self._heap)

    def __iter__(self) -> Iterator[R]:
        return iter(list(self._heap))

    def peek(self) -> R | None:
        """Return the first request, or None."""
        return self._heap[0] if self._heap else None

    def add(self, handler: R) -> None:
        """Add a request."""
        heap = self._heap
        heap.append(handler)
        place = len(heap) - 1
        while place and handler.priority < heap[(place - 1) // 2].priority:
            parent = (place - 1) // 2
            heap[place], place = heap[parent], parent
        heap[place] = handler

    def take(self) -> R | None:
        """Remove and return the first request, or None."""
        heap = self._heap
        if not heap:
            return None
        first, moved = heap[0], heap.pop()
        place, size = 0, len(heap)
        while 2 * place + 1 < size:
            child = 2 * place + 1
            if child + 1 < size and heap[child + 1].priority < heap[child].priority:
                child += 1
            if moved.priority <= heap[child].priority:
                break
            heap[place], place = heap[child], child
        if size:
            heap[place] = moved
        return first
