"""Connects the share partitions of a broker with its other parts. Source: Kafka's BrokerServer (SharePartitionManager)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kops.broker.shares.lazy import Shares

if TYPE_CHECKING:
    from collections.abc import Callable

    from kops.broker.parts.parts import BrokerParts
    from kops.broker.shares.manager import SharePartitionManager


def make_shares(parts: BrokerParts, random_below: Callable[[int], int]) -> Shares:
    """Make the share partitions of a broker. `random_below(n)` returns a number from 0 to below n."""

    def make() -> SharePartitionManager:
        from kops.broker.shares.manager import Around, SharePartitionManager
        from kops.coordinators.share.partition.persisting import SinglePartitions

        return SharePartitionManager(
            Around(
                parts.loop,
                parts.replica_manager,
                lambda: parts.config,
                parts.groups.group_settings,
                SinglePartitions(parts.share_state.persister),
                random_below,
            )
        )

    return Shares(parts.cache, make)
