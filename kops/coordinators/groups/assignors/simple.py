"""The assignor "simple" of share groups (Kafka's SimpleAssignor): members share partitions, so that every member has some."""

from __future__ import annotations

from kops.coordinators.groups.assignors.simple_heterogeneous import SimpleHeterogeneousBuilder
from kops.coordinators.groups.assignors.simple_homogeneous import SimpleHomogeneousBuilder
from kops.coordinators.groups.assignors.spec import GroupSpec, PartitionCount, Partitions

NAME = "simple"


def assign(spec: GroupSpec, partition_count: PartitionCount) -> dict[str, Partitions]:
    """Return the target assignment. Raises AssignorError."""
    if not spec.members:
        return {}
    builder = SimpleHomogeneousBuilder if spec.is_homogeneous else SimpleHeterogeneousBuilder
    return builder(spec, partition_count).build()
