"""The assignors by the names in `partition.assignment.strategy`.

Source: Kafka's ConsumerPartitionAssignor (getAssignorInstances).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Final

from kops.client.groups.assignors import Assignor, Range, RoundRobin
from kops.client.groups.sticky import CooperativeSticky, Sticky
from kops.errors import UsageError

_ALLOWED: Final = "range, roundrobin, sticky, cooperative-sticky"
_JAVA_PACKAGE: Final = "org.apache.kafka.clients.consumer."


def make_assignors(names: Iterable[str]) -> list[Assignor]:
    """Return the assignors of `partition.assignment.strategy`: Kafka's class names, or their short names. Raises UsageError."""
    known: dict[str, Callable[[], Assignor]] = {
        "RangeAssignor": Range,
        "RoundRobinAssignor": RoundRobin,
        "StickyAssignor": Sticky,
        "CooperativeStickyAssignor": CooperativeSticky,
        "range": Range,
        "roundrobin": RoundRobin,
        "sticky": Sticky,
        "cooperative-sticky": CooperativeSticky,
    }
    found = []
    for name in names:
        kind = known.get(name.strip().removeprefix(_JAVA_PACKAGE))
        if kind is None:
            raise UsageError(f"partition.assignment.strategy={name}: not supported; allowed: {_ALLOWED}")
        found.append(kind())
    if not found:
        raise UsageError(
            "partition.assignment.strategy: not allowed; allowed: one of range, roundrobin, sticky, cooperative-sticky, or several"
        )
    return found
