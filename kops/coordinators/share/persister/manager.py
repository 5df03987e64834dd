"""Combines the persister's calls into requests: each look-up alone, and calls of the same kind, group and coordinator together.

Source: PersisterStateManager (SendThread, RequestCoalescerHelper). While a request of a kind is in flight to a broker, calls of that kind
wait and are sent with the next request.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

from kops.coordinators.share.key import SharePartitionKey
from kops.coordinators.share.persister.calls import Call, Next, Node, Rpc
from kops.coordinators.share.requests import in_hash_order
from kops.coordinators.share.responses import message_of
from kops.errors import ApiError
from kops.protocol.declaration import Message
from kops.protocol.messages.find_coordinator_request import FindCoordinatorRequest

_SHARE: Final = 2
_NOT_AVAILABLE: Final = "COORDINATOR_NOT_AVAILABLE"


@dataclass(frozen=True, slots=True, eq=False)
class Lookup:
    """A FindCoordinator request for one call, to any broker."""

    node: Node
    call: Call

    def message(self) -> FindCoordinatorRequest:
        """The request."""
        return FindCoordinatorRequest(key_type=_SHARE, coordinator_keys=[self.call.key.coordinator_key])


@dataclass(frozen=True, slots=True, eq=False)
class StateRequest:
    """A request to a coordinator, for calls of one kind and group."""

    node: Node
    rpc: Rpc
    group_id: str
    calls: Sequence[Call]

    def message(self) -> Message:
        """The request."""
        by_topic: dict[bytes, list[object]] = {}
        for call in self.calls:
            by_topic.setdefault(call.key.topic_id, []).append(call.data)
        return self.rpc.request(self.group_id, [self.rpc.topic(topic_id, by_topic[topic_id]) for topic_id in in_hash_order(by_topic)])


class StateManager:
    """The pending calls.

    `find(key)` returns the coordinator according to the metadata, `any_node()` any broker; both may return None. `wake()` requests a call
    of `take_requests`, `call_later(delay_ms, run)` sets a timer.
    """

    def __init__(
        self,
        find: Callable[[SharePartitionKey], Node | None],
        any_node: Callable[[], Node | None],
        wake: Callable[[], object],
        call_later: Callable[[int, Callable[[], object]], object],
    ) -> None:
        self._find = find
        self._any_node = any_node
        self._wake = wake
        self._call_later = call_later
        self._queue: deque[Call] = deque()
        self._waiting: dict[Node, dict[Rpc, dict[str, list[Call]]]] = {}
        self._in_flight: set[tuple[Rpc, Node]] = set()

    def enqueue(self, call: Call) -> None:
        """Start or restart a call."""
        self._queue.append(call)
        self._wake()

    def take_requests(self) -> list[Lookup | StateRequest]:
        """Return the requests to send now."""
        requests: list[Lookup | StateRequest] = []
        while self._queue:
            lookup = self._begin(self._queue.popleft())
            requests += self._take_batches() if lookup is None else [lookup]
        requests += self._take_batches()
        return requests

    def on_lookup(self, lookup: Lookup, answer: Message | ApiError) -> None:
        """Handle the answer to a look-up, or its failure."""
        call = lookup.call
        if call.on_lookup(answer) is Next.SEND:
            assert call.coordinator is not None
            self._add(call.coordinator, call)
        elif not call.promise.is_done:
            self._retry(call)
        self._wake()

    def on_answer(self, request: StateRequest, answer: Message | ApiError) -> None:
        """Handle a coordinator's answer, or the failure of the request."""
        self._in_flight.discard((request.rpc, request.node))
        for call in request.calls:
            if call.on_answer(answer) is Next.RETRY:
                self._retry(call)
        self._wake()

    def _begin(self, call: Call) -> Lookup | None:
        """Assign a call to its coordinator, or return the look-up that finds it."""
        node = self._find(call.key)
        if node is not None:
            call.coordinator = node
            self._add(node, call)
            return None
        some = self._any_node()
        if some is None:
            call.fail_lookup(_NOT_AVAILABLE, message_of(_NOT_AVAILABLE))
            return None
        return Lookup(some, call)

    def _retry(self, call: Call) -> None:
        self._call_later(call.delay_ms, lambda: self.enqueue(call))

    def _add(self, node: Node, call: Call) -> None:
        self._waiting.setdefault(node, {}).setdefault(call.rpc, {}).setdefault(call.key.group_id, []).append(call)

    def _take_batches(self) -> list[StateRequest]:
        sent = []
        for node, by_rpc in self._waiting.items():
            for rpc in [rpc for rpc in by_rpc if (rpc, node) not in self._in_flight]:
                sent += [StateRequest(node, rpc, group_id, calls) for group_id, calls in by_rpc.pop(rpc).items()]
                self._in_flight.add((rpc, node))
        return sent
