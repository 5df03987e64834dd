"""The settings of a share partition: those of the node, overridden by those of the group. They may change at any time.

Source: ShareGroupConfigProvider.
"""

from __future__ import annotations

from typing import Protocol


class SharePartitionSettings(Protocol):
    """The settings of one group."""

    @property
    def max_in_flight_records(self) -> int:
        """`share.partition.max.record.locks`."""

    @property
    def max_delivery_count(self) -> int:
        """`share.delivery.count.limit`."""

    @property
    def record_lock_duration_ms(self) -> int:
        """`share.record.lock.duration.ms`."""

    @property
    def is_renew_enabled(self) -> bool:
        """`share.renew.acknowledge.enable`."""


def throttle_limit(max_delivery_count: int) -> int:
    """Return the delivery count from which records come in smaller numbers, so that a bad record does not affect the others."""
    return max(2, (max_delivery_count + 1) // 2)
