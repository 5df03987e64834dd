"""What the two kinds of groups share: calls of the program's listener, and the search for the coordinator.

Source: Kafka's ConsumerRebalanceListenerInvoker, AbstractCoordinator (ensureCoordinatorReady), ConsumerCoordinator.
"""

from __future__ import annotations

from collections.abc import Callable
from enum import Enum
from typing import TYPE_CHECKING, Final, Protocol

from kops.client.consumer.errors import WakeupError
from kops.client.consumer.parts.requests import Outgoing
from kops.client.errors import KafkaError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from kops.client.consumer.groups.commits import Commits, Identity
    from kops.client.consumer.groups.coordinator import Coordinator
    from kops.client.consumer.options import ConsumerOptions
    from kops.client.consumer.parts.metadata import ConsumerMetadata
    from kops.client.consumer.parts.state import Subscriptions
    from kops.client.groups.membership import Send
    from kops.protocol.declaration import Message
    from kops.records.log_offsets import TopicPartition

ASSIGNED: Final = "on_partitions_assigned"
REVOKED: Final = "on_partitions_revoked"
LOST: Final = "on_partitions_lost"


class GroupMembership(Enum):
    """What a consumer that closes does with its membership (KIP-1092). By default, only dynamic members leave."""

    DEFAULT = "default"
    LEAVE = "leave"
    REMAIN = "remain"


class ListenerCall:
    """A call that a driver makes in `poll`: the method of the listener and its partitions. `done(error)` follows.

    With `passes_on`, a KafkaError of the listener reaches the program as it is. Otherwise it is the cause of a ListenerError. With
    `is_followed`, the program gets the error behind the next call of the same change, which has it as its `earlier` one.
    """

    __slots__ = ("done", "earlier", "is_followed", "keys", "method", "passes_on")

    def __init__(
        self,
        method: str,
        keys: Sequence[TopicPartition],
        done: Callable[[Exception | None], None],
        *,
        passes_on: bool = True,
        is_followed: bool = False,
        earlier: Exception | None = None,
    ) -> None:
        self.method = method
        self.keys = list(keys)
        self.done = done
        self.passes_on = passes_on
        self.is_followed = is_followed
        self.earlier = earlier

    def raised(self, error: Exception | None) -> Exception | None:
        """Return what the program gets when this call has ended with an error or None. As in Kafka, a wake-up is never kept for later."""
        if isinstance(error, WakeupError):
            return error
        return None if self.is_followed else self.earlier or error


class Parts:
    """The parts of the core that a group uses."""

    __slots__ = ("commits", "coordinator", "metadata", "options", "subscriptions")

    def __init__(
        self,
        options: ConsumerOptions,
        metadata: ConsumerMetadata,
        subscriptions: Subscriptions,
        coordinator: Coordinator,
        commits: Commits,
    ) -> None:
        self.options = options
        self.metadata = metadata
        self.subscriptions = subscriptions
        self.coordinator = coordinator
        self.commits = commits


class Group(Protocol):
    """A membership. `error` is one for the next `poll`."""

    error: KafkaError | None

    @property
    def call(self) -> ListenerCall | None:
        """The call of the listener that a driver has to make."""

    def subscribed(self) -> None:
        """Take the topics of a new subscription."""

    def polled(self, now_ms: float) -> None:
        """The program polls."""

    def turn(self, now_ms: float, *, in_poll: bool) -> list[Outgoing]:
        """Return the requests to send now. Only in a poll may partitions change."""

    def wake_ms(self, *, in_poll: bool) -> float:
        """Return the time of the next step."""

    def rejoin(self, reason: str) -> None:
        """Begin a rebalance."""

    def release(self) -> None:
        """Revoke all partitions before leaving: `call` may follow."""

    def leave(self, membership: GroupMembership, reason: str, now_ms: float) -> list[Outgoing]:
        """Return the requests that leave the group."""

    def identity(self) -> Identity | None:
        """Return the identity for commits."""

    def is_rebalancing(self) -> bool:
        """Whether a rebalance is in progress."""

    def is_current(self, identity: Identity) -> bool:
        """Whether the member has still this identity."""

    def is_joining(self) -> bool:
        """Whether the member waits for a new identity."""

    def commit_failed(self, name: str, identity: Identity) -> None:
        """Handle the error of a commit."""


class Search:
    """Keeps a membership informed about the coordinator."""

    def __init__(self, coordinator: Coordinator) -> None:
        self._coordinator = coordinator
        self.is_on = False
        self._finds = 0
        self.is_known = False

    def start(self, why: str) -> None:
        """The membership asks for the coordinator. One that it knew is gone."""
        if self.is_known:
            self._coordinator.lose(why)
            self.is_known = False
        self._coordinator.want()
        self.is_on = True
        self._finds = self._coordinator.finds

    def look(self) -> str | None:
        """Return "found", "not found", "lost", or None if there is no news."""
        coordinator = self._coordinator
        if self.is_on and coordinator.node is not None:
            self.is_on, self.is_known = False, True
            return "found"
        if self.is_on and coordinator.finds != self._finds and coordinator.error is None:
            self.is_on = False
            return "not found"
        if self.is_known and coordinator.node is None:
            self.is_known = False
            return "lost"
        return None


def to_coordinator(coordinator: Coordinator, event: Send, answered: Callable[..., None]) -> Outgoing:
    """Return the request of a membership."""
    node = coordinator.node
    assert node is not None
    message: Message = event.message
    return Outgoing(node, message, lambda answer, now_ms: answered(message, answer, now_ms), timeout_ms=event.timeout_ms)
