"""What a member of a group tells its consumer to do.

Source: Kafka's BackgroundEvent (PartitionsRemovedEvent, PartitionsAssignedEvent, ErrorEvent), and the calls of AbstractMembershipManager to
SubscriptionState, Metadata and CommitRequestManager.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from kops.client.groups.membership import FindCoordinator, Send

if TYPE_CHECKING:
    from kops.errors import ApiError
    from kops.records.log_offsets import TopicPartition


class FindTopics(NamedTuple):
    """Ask for metadata with these topic ids. Call `metadata_changed` after every change of the metadata."""

    topic_ids: tuple[bytes, ...]


class Pause(NamedTuple):
    """Fetch no more from these partitions, and return none of their records. They are about to be revoked."""

    keys: tuple[TopicPartition, ...]


@dataclass(frozen=True, slots=True, eq=False)
class Commit:
    """Commit the positions of all partitions before a rebalance, with retries until `deadline_ms`. Then call `done`, even if it failed."""

    deadline_ms: float


@dataclass(frozen=True, slots=True, eq=False)
class Revoked:
    """Call the listener's `on_partitions_revoked` in the thread of the application. Then call `done`."""

    keys: tuple[TopicPartition, ...]


@dataclass(frozen=True, slots=True, eq=False)
class Lost:
    """Call the listener's `on_partitions_lost` in the thread of the application. Then call `done`."""

    keys: tuple[TopicPartition, ...]


@dataclass(frozen=True, slots=True, eq=False)
class Assigned:
    """Replace the assignment by `keys`.

    A consumer does this in a poll of the application: it calls `apply`, takes `keys` if that returns True, calls the listener's
    `on_partitions_assigned` with `added`, and calls `done`. It does not fetch from `added` before the listener has succeeded.
    A share consumer takes `keys` at once.
    """

    keys: tuple[TopicPartition, ...]
    added: tuple[TopicPartition, ...]


class Cleared(NamedTuple):
    """The assignment is gone. With `unsubscribes`, the subscription is gone, too."""

    unsubscribes: bool


class Reconciled(NamedTuple):
    """The assignment is complete. The interval of auto commits begins again."""


class Failed(NamedTuple):
    """Raise this error from the next poll. If it is fatal, the member's state is FATAL."""

    error: ApiError


class Left(NamedTuple):
    """`leave` or `close` is complete."""


Event = Send | FindCoordinator | FindTopics | Pause | Commit | Revoked | Lost | Assigned | Cleared | Reconciled | Failed | Left
Work = Commit | Revoked | Lost | Assigned
