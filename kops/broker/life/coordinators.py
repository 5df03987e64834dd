"""Connects the coordinators of groups and of transactions.

Source: Kafka's CoordinatorPartitionWriter.maybeStartTransactionVerification, ReplicaManager.maybeSendPartitionToTransactionCoordinator,
KafkaApis.handleWriteTxnMarkersRequest (its part about groups), BrokerServer.createGroupCoordinator.
"""

from __future__ import annotations

import uuid
from typing import TYPE_CHECKING, Any, Final

from kops.broker.coordinators.group_coordinator import GroupCoordinator

if TYPE_CHECKING:
    from collections.abc import Callable

    from kops.broker.parts.parts import BrokerParts
    from kops.broker.transactions.verified_appends import Verified
    from kops.coordinators.runtime.promise import Promise
    from kops.errors import KopsError
    from kops.protocol.messages.write_txn_markers_request import WritableTxnMarker
    from kops.records.log_offsets import TopicPartition

_NO_SEQUENCE: Final = -1


def make_groups(parts: BrokerParts, draw_id: Callable[[], bytes]) -> GroupCoordinator:
    """Make the group coordinator of a broker. `draw_id` returns 16 random bytes."""

    def verify(key: TopicPartition, transactional_id: str, producer_id: int, producer_epoch: int, api_version: int) -> Promise[Any]:
        return _verify(parts, key, (transactional_id, producer_id, producer_epoch), api_version)

    return GroupCoordinator(
        parts.loop,
        parts.config,
        parts.replica_manager,
        parts.cache,
        new_id=lambda: str(uuid.UUID(bytes=draw_id(), version=4)),
        start_verification=verify,
        persister=lambda: parts.share_state.persister,
        end_offsets=lambda: parts.share_state.end_offsets,
    )


def _verify(parts: BrokerParts, key: TopicPartition, producer: tuple[str, int, int], api_version: int) -> Promise[Any]:
    """Ask the transaction's coordinator whether the transaction has a partition of the group coordinator. Returns the guard for the
    append."""
    from kops.broker.transactions.verified_appends import Producer, verify_transaction
    from kops.coordinators.runtime.promise import Promise
    from kops.coordinators.transactions.support import support_of_txn_offset_commit
    from kops.errors import ApiError

    promise: Promise[Any] = Promise()

    def answered(verified: Verified) -> None:
        error = verified.errors.get(key)
        if error is None:
            promise.complete(verified.guards.get(key))
        else:
            promise.fail(ApiError(error))

    verify_transaction(
        parts.transactions,
        parts.replica_manager,
        Producer(*producer),
        {key: _NO_SEQUENCE},
        support_of_txn_offset_commit(api_version),
        answered,
        is_verification_enabled=parts.config["transaction.partition.verification.enable"],
    )
    return promise


def complete_in_groups(parts: BrokerParts, key: TopicPartition, marker: WritableTxnMarker, done: Callable[[str], None]) -> None:
    """End a transaction that committed offsets into a partition of the group coordinator; `done` gets the error, or NONE."""
    from kops.broker.replicas.hosted_partitions import error_name
    from kops.errors import ApiError

    def completed(_: None, error: KopsError | None) -> None:
        done("NONE" if error is None else error_name(error))

    try:
        service = parts.groups.service
    except ApiError as error:
        completed(None, error)
        return
    service.complete_transaction(
        key,
        marker.producer_id,
        marker.producer_epoch,
        marker.coordinator_epoch,
        marker.transaction_result,
        marker.transaction_version,
    ).when_done(completed)
