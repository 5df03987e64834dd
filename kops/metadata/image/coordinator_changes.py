"""Which partitions of its topic a coordinator gains and loses with a new image (Kafka's BrokerMetadataPublisher.updateCoordinator)."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from kops.metadata.image.local_changes import local_changes

if TYPE_CHECKING:
    from kops.metadata.image.parts.topics import TopicsDelta


class CoordinatorChanges(NamedTuple):
    """The changes; `resigned` comes first: (partition, leader epoch or None if this broker no longer has a replica). `elected` has
    (partition, epoch)."""

    resigned: list[tuple[int, int | None]]
    elected: list[tuple[int, int]]


def coordinator_changes(delta: TopicsDelta, topic: str, broker_id: int) -> CoordinatorChanges:
    """Return the effect of a change of topics on the broker's coordinator with this topic."""
    changes = local_changes(delta, broker_id)
    resigned: list[tuple[int, int | None]] = [(number, None) for name, number in sorted(changes.deletes) if name == topic]
    resigned += [(number, local.registration.leader_epoch) for (name, number), local in changes.followers.items() if name == topic]
    elected = [(number, local.registration.leader_epoch) for (name, number), local in changes.elected_leaders.items() if name == topic]
    return CoordinatorChanges(resigned, elected)
