"""The first records of a new leader: the bootstrap records in an empty log, otherwise the end of an open transaction.

Source: Kafka's ActivationRecordsGenerator (KIP-868).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kops.metadata.controller.base.result import ControllerResult
from kops.metadata.controller.cluster.config_schema import BROKER
from kops.metadata.controller.cluster.configuration_control import MIN_ISR
from kops.metadata.controller.cluster.feature_versions import ELR_FEATURE
from kops.metadata.metadata_version import FEATURE_NAME, MetadataVersion, from_level
from kops.protocol.messages import (
    AbortTransactionRecord,
    BeginTransactionRecord,
    ConfigRecord,
    EndTransactionRecord,
    FeatureLevelRecord,
)

if TYPE_CHECKING:
    from collections.abc import Iterable

    from kops.metadata.controller.base.result import Record

_REASON = "Controller failover"
_NAME = "Bootstrap records"


def activation_result(
    bootstrap: tuple[Record, ...], version: MetadataVersion | None, min_insync_replicas: int, *, in_transaction: bool
) -> ControllerResult:
    """Return the records to append. `version` is the log's metadata.version outside of an open transaction, or None if the log is empty.

    `min_insync_replicas` is written for all brokers if eligible leaders are enabled from the start. Raises ValueError if the bootstrap has
    no metadata.version.
    """
    if version is not None:
        return ControllerResult([(AbortTransactionRecord(_REASON), 0)] if in_transaction else [], is_atomic=True)
    levels = _levels(bootstrap)
    first = from_level(levels.get(FEATURE_NAME, -1))
    if first is None:
        raise ValueError("no bootstrap record sets the cluster's metadata.version")
    records: list[Record] = [(AbortTransactionRecord(_REASON), 0)] if in_transaction else []
    if first.has_transactions:
        records.append((BeginTransactionRecord(_NAME), 0))
    records += bootstrap
    if levels.get(ELR_FEATURE, 0) > 0:
        records.append((ConfigRecord(BROKER, "", MIN_ISR, str(min_insync_replicas)), 0))
    if first.has_transactions:
        records.append((EndTransactionRecord(), 0))
    return ControllerResult(records, is_atomic=not first.has_transactions)


def _levels(records: Iterable[Record]) -> dict[str, int]:
    return {message.name: message.feature_level for message, _ in records if isinstance(message, FeatureLevelRecord)}
