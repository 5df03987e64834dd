"""Which partitions of a coordinator's topic a broker coordinates from now on, or no longer (Kafka's
BrokerMetadataPublisher.updateCoordinator)."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from kops.metadata.image.local_changes import local_changes

if TYPE_CHECKING:
    from kops.metadata.image.parts.topics import TopicsDelta


class CoordinatorChanges(NamedTuple):
    """`resigned` is first: (partition, its leader epoch, None where this broker has no replica any more). `elected`: (partition, epoch)."""

    resigned: list[tuple[int, int | None]]
    elected: list[tuple[int, int]]


def coordinator_changes(delta: TopicsDelta, topic: str, broker_id: int) -> CoordinatorChanges:
    """What a change of topics means for the broker's coordinator with this topic."""
    changes = local_changes(delta, broker_id)
    resigned: list[tuple[int, int | None]] = [(number, None) for name, number in sorted(changes.deletes) if name == topic]
    resigned += [(number, local.registration.leader_epoch) for (name, number), local in changes.followers.items() if name == topic]
    elected = [(number, local.registration.leader_epoch) for (name, number), local in changes.elected_leaders.items() if name == topic]
    return CoordinatorChanges(resigned, elected)
