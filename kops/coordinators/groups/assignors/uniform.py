"""The assignor "uniform" (Kafka's UniformAssignor): balanced as evenly as possible, and sticky."""

from __future__ import annotations

from kops.coordinators.groups.assignors import uniform_heterogeneous, uniform_homogeneous
from kops.coordinators.groups.assignors.spec import GroupSpec, PartitionCount, Partitions

NAME = "uniform"


def assign(spec: GroupSpec, partition_count: PartitionCount) -> dict[str, Partitions]:
    """Return the target assignment. Raises AssignorError."""
    if not spec.members:
        return {}
    if spec.is_homogeneous:
        return uniform_homogeneous.assign(spec, partition_count)
    return uniform_heterogeneous.UniformHeterogeneousBuilder(spec, partition_count).build()
