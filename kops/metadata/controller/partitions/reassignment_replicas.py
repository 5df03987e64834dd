"""Which replicas a reassignment adds and removes, when it is complete, and what its cancellation leaves.

Source: Kafka's PartitionReassignmentReplicas, PartitionReassignmentRevert (KIP-455).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from kops.errors import ApiError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from kops.metadata.partition_registration import PartitionRegistration


class ReassignmentReplicas(NamedTuple):
    """`replicas` are the targets, behind them those to be removed."""

    removing: list[int]
    adding: list[int]
    replicas: list[int]


class CompletedReassignment(NamedTuple):
    """What a partition is when its reassignment is done."""

    replicas: list[int]
    isr: list[int]


class RevertedReassignment(NamedTuple):
    """What a partition is when its reassignment is taken back; `is_unclean` where the only replica in sync was a new one."""

    replicas: list[int]
    isr: list[int]
    is_unclean: bool


def begin_reassignment(current: Sequence[int], target: Sequence[int]) -> ReassignmentReplicas:
    """From the current replicas to the target's."""
    removing = sorted(set(current) - set(target))
    adding = sorted(set(target) - set(current))
    return ReassignmentReplicas(removing, adding, [*target, *removing])


def complete_reassignment(
    removing: Sequence[int], adding: Sequence[int], replicas: Sequence[int], isr: Sequence[int]
) -> CompletedReassignment | None:
    """The end of a reassignment where the ISR allows it: all added replicas are in sync, and enough of the others."""
    if not removing and not adding:
        return None
    new_isr = [replica for replica in isr if replica not in removing]
    new_replicas = [replica for replica in replicas if replica not in removing]
    if removing and not (new_isr and new_replicas):
        return None
    if not set(adding).issubset(new_isr):
        return None
    # Where the replication factor shrinks nothing may be lost by it, so all that stay have to be in sync.
    if len(adding) < len(removing) and not set(new_replicas).issubset(new_isr):
        return None
    return CompletedReassignment(new_replicas, new_isr)


def revert_reassignment(partition: PartitionRegistration) -> RevertedReassignment:
    """The partition as it was. Raises ApiError INVALID_REPLICA_ASSIGNMENT if no replica would be left."""
    replicas = [replica for replica in partition.replicas if replica not in partition.adding_replicas]
    isr = [replica for replica in partition.isr if replica not in partition.adding_replicas]
    if isr:
        return RevertedReassignment(replicas, isr, is_unclean=False)
    if not replicas:
        raise ApiError("INVALID_REPLICA_ASSIGNMENT", "Invalid replica assignment: addingReplicas contains all replicas.")
    return RevertedReassignment(replicas, replicas[:1], is_unclean=True)
