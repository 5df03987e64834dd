"""Computes which replicas a reassignment adds and removes, when it is complete, and the result of its cancellation.

Source: Kafka's PartitionReassignmentReplicas, PartitionReassignmentRevert (KIP-455).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from kops.errors import ApiError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from kops.metadata.partition_registration import PartitionRegistration


class ReassignmentReplicas(NamedTuple):
    """`replicas` are the targets, followed by the replicas to be removed."""

    removing: list[int]
    adding: list[int]
    replicas: list[int]


class CompletedReassignment(NamedTuple):
    """The state of a partition after its reassignment."""

    replicas: list[int]
    isr: list[int]


class RevertedReassignment(NamedTuple):
    """The state of a partition after a cancelled reassignment. `is_unclean` means that only new replicas were in sync."""

    replicas: list[int]
    isr: list[int]
    is_unclean: bool


def begin_reassignment(current: Sequence[int], target: Sequence[int]) -> ReassignmentReplicas:
    """Return the change from the current replicas to those of the target."""
    removing = sorted(set(current) - set(target))
    adding = sorted(set(target) - set(current))
    return ReassignmentReplicas(removing, adding, [*target, *removing])


def complete_reassignment(
    removing: Sequence[int], adding: Sequence[int], replicas: Sequence[int], isr: Sequence[int]
) -> CompletedReassignment | None:
    """Return the end of a reassignment if the ISR allows it: all added replicas are in sync, and enough of the others."""
    if not removing and not adding:
        return None
    new_isr = [replica for replica in isr if replica not in removing]
    new_replicas = [replica for replica in replicas if replica not in removing]
    if removing and not (new_isr and new_replicas):
        return None
    if not set(adding).issubset(new_isr):
        return None
    # A smaller replication factor must not lose records, so all remaining replicas have to be in sync.
    if len(adding) < len(removing) and not set(new_replicas).issubset(new_isr):
        return None
    return CompletedReassignment(new_replicas, new_isr)


def revert_reassignment(partition: PartitionRegistration) -> RevertedReassignment:
    """Return the partition as it was before. Raises ApiError INVALID_REPLICA_ASSIGNMENT if no replica would be left."""
    replicas = [replica for replica in partition.replicas if replica not in partition.adding_replicas]
    isr = [replica for replica in partition.isr if replica not in partition.adding_replicas]
    if isr:
        return RevertedReassignment(replicas, isr, is_unclean=False)
    if not replicas:
        raise ApiError("INVALID_REPLICA_ASSIGNMENT", "Invalid replica assignment: addingReplicas contains all replicas.")
    return RevertedReassignment(replicas, replicas[:1], is_unclean=True)
