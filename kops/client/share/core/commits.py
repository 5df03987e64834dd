"""Acknowledgements on their way to one node, until the broker has answered, and who gets to know the outcome.

Source: Kafka's ShareConsumeRequestManager (AcknowledgeRequestState, ResultHandler, Tuple), TimedRequestState.
"""

from __future__ import annotations

from collections import deque
from enum import Enum, auto
from typing import TYPE_CHECKING, NamedTuple

from kops.client.errors import KafkaError, error_named
from kops.client.share.core.acknowledgements import Acknowledgements, TopicIdPartition

if TYPE_CHECKING:
    from collections.abc import Callable

    from kops.client.share.core.sessions import ShareSession

AckMap = dict[TopicIdPartition, Acknowledgements]


class Kind(Enum):
    """Who waits for the outcome."""

    ASYNC = auto()
    SYNC = auto()
    CLOSE = auto()


class Completed(NamedTuple):
    """Acknowledgements with an outcome. With `may_renew`, renewed records among them come back to the program."""

    acknowledgements: AckMap
    may_renew: bool
    lock_timeout_ms: int | None


class Commit:
    """A commit that a program waits for."""

    def __init__(self) -> None:
        self.outcome: dict[TopicIdPartition, KafkaError | None] | None = None

    @property
    def is_done(self) -> bool:
        """Whether every acknowledgement has an outcome."""
        return self.outcome is not None


class Outcomes:
    """Collects the outcomes of one commit. `tell` gets them: one by one for an asynchronous commit, otherwise all together."""

    def __init__(self, kind: Kind, tell: Callable[[Completed], object]) -> None:
        self.remaining = 0
        self.commit = Commit() if kind is Kind.SYNC else None
        self._kind = kind
        self._tell = tell
        self._found: AckMap = {}

    def complete(
        self,
        partition: TopicIdPartition,
        acknowledgements: Acknowledgements,
        error: KafkaError | None,
        *,
        may_renew: bool = True,
        lock_timeout_ms: int | None = None,
    ) -> None:
        """Give acknowledgements their outcome. `may_renew` is true if locks were to be renewed, or if that is not known."""
        acknowledgements.complete(error)
        if self._kind is Kind.ASYNC:
            self._tell(Completed({partition: acknowledgements}, may_renew, lock_timeout_ms))
            return
        self._found[partition] = acknowledgements
        self.remaining -= 1
        if self.remaining == 0:
            self._tell(Completed(self._found, may_renew, lock_timeout_ms))
            self.finish_if_complete()

    def finish_if_complete(self) -> None:
        """End the commit if nothing is open."""
        if self.remaining == 0 and self.commit is not None and not self.commit.is_done:
            self.commit.outcome = {partition: one.error for partition, one in self._found.items()}


class AckRequest:
    """Acknowledgements for one node: to send for the first time, in flight, or to send again. Times are ms."""

    def __init__(
        self,
        kind: Kind,
        session: ShareSession,
        to_send: AckMap,
        outcomes: Outcomes,
        deadline_ms: float,
        now_ms: float,
        backoff_ms: Callable[[int], float],
    ) -> None:
        self.kind = kind
        self.session = session
        self.to_send = to_send
        self.in_flight: AckMap = {}
        self.to_repeat: AckMap = {}
        self.outcomes = outcomes
        self.is_processed = False
        self._timeout_ms = max(deadline_ms - now_ms, 0)
        self._deadline_ms = deadline_ms
        self._backoff_ms = backoff_ms
        self._failures = 0
        self._is_under_way = False
        self._retry_ms = 0.0

    @property
    def is_open(self) -> bool:
        """Whether there is something to do. A request that ends a session is sent without acknowledgements, too."""
        if self.kind is Kind.CLOSE:
            return not self.is_processed
        return bool(self.to_send or self.to_repeat or self.in_flight)

    # when

    def has_expired(self, now_ms: float) -> bool:
        """Whether it has failed, and the time is over."""
        return self._failures > 0 and now_ms >= self._deadline_ms

    def may_send(self, now_ms: float) -> bool:
        """Whether it is neither in flight nor waiting after a failure."""
        return not self._is_under_way and now_ms >= self._retry_ms

    def wake_ms(self) -> float:
        """When it is due again. Infinite while it is in flight."""
        if self._is_under_way or not self.is_open:
            return float("inf")
        return min(self._retry_ms, self._deadline_ms) if self._failures else self._retry_ms

    def sent(self) -> None:
        """It is under way. Its acknowledgements are no longer to be sent."""
        self._is_under_way = True
        self.is_processed = False
        waiting = self.to_repeat or self.to_send
        self.in_flight.update(waiting)
        waiting.clear()

    @property
    def waiting(self) -> AckMap:
        """The acknowledgements of the next request."""
        return self.to_repeat or self.to_send

    # answers

    def succeeded(self) -> None:
        """The node has answered."""
        self._is_under_way = False
        self._failures = 0
        self._retry_ms = 0.0

    def failed(self, now_ms: float) -> None:
        """It has failed, and may be sent again after a pause."""
        self._is_under_way = False
        self._retry_ms = now_ms + self._backoff_ms(self._failures)
        self._failures += 1

    def answered(self, partition: TopicIdPartition, error: KafkaError | None, *, may_renew: bool, lock_timeout_ms: int | None) -> None:
        """Give a partition's acknowledgements their outcome."""
        acknowledgements = self.in_flight.pop(partition, None)
        if acknowledgements is not None:
            self.outcomes.complete(partition, acknowledgements, error, may_renew=may_renew, lock_timeout_ms=lock_timeout_ms)

    def repeat(self, partition: TopicIdPartition) -> bool:
        """Send a partition's acknowledgements again. Returns False if they are not in flight."""
        acknowledgements = self.in_flight.pop(partition, None)
        if acknowledgements is None:
            return False
        self.to_repeat[partition] = acknowledgements
        return True

    def repeat_all(self) -> None:
        """Send everything again."""
        self.to_repeat.update(self.in_flight)
        self.in_flight.clear()

    def fail_in_flight(self, error: KafkaError) -> None:
        """Fail what is in flight."""
        failed, self.in_flight = self.in_flight, {}
        for partition, acknowledgements in failed.items():
            self.outcomes.complete(partition, acknowledgements, error)

    def fail_waiting(self, error: KafkaError, now_ms: float) -> None:
        """Fail the acknowledgements of the next request: its session is gone."""
        waiting = self.waiting
        failed = dict(waiting)
        waiting.clear()
        for partition, acknowledgements in failed.items():
            self.outcomes.complete(partition, acknowledgements, error)
        self.finish(now_ms)

    def expire(self, now_ms: float) -> None:
        """Fail what was to be sent again, because the time is over."""
        failed, self.to_repeat = self.to_repeat, {}
        for partition, acknowledgements in failed.items():
            self.outcomes.complete(partition, acknowledgements, error_named("REQUEST_TIMED_OUT"))
        self._start_again(now_ms)

    def finish(self, now_ms: float) -> None:
        """The answer is handled. What it did not mention has failed."""
        self.fail_in_flight(error_named("INVALID_RECORD_STATE", "the broker's answer does not mention these records"))
        self.outcomes.finish_if_complete()
        self.is_processed = True
        self._start_again(now_ms)

    def _start_again(self, now_ms: float) -> None:
        """An asynchronous request is used for later commits, too: its time begins again."""
        if self.kind is Kind.ASYNC:
            self._deadline_ms = now_ms + self._timeout_ms
            self._is_under_way = False
            self._failures = 0
            self._retry_ms = 0.0


class NodeRequests:
    """The requests for one node: first the asynchronous one, then the others in order, at last the one that ends the session."""

    def __init__(self) -> None:
        self.asynchronous: AckRequest | None = None
        self.synchronous: deque[AckRequest] = deque()
        self.close: AckRequest | None = None

    def drop_finished(self) -> bool:
        """Drop the finished requests. Returns whether others are left."""
        if self.asynchronous is not None and not self.asynchronous.is_open:
            self.asynchronous = None
        if not any(one.is_open for one in self.synchronous):
            self.synchronous.clear()
        if self.close is not None and not self.close.is_open:
            self.close = None
        return self.asynchronous is not None or bool(self.synchronous) or self.close is not None

    def wake_ms(self) -> float:
        """When one of them is due again."""
        some = [*self.synchronous, *(one for one in (self.asynchronous, self.close) if one is not None)]
        return min((one.wake_ms() for one in some), default=float("inf"))
