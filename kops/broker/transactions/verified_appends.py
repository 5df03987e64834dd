"""Verifies a transaction before its first append to a partition (Kafka's ReplicaManager.maybeSendPartitionsToTransactionCoordinator,
maybeStartTransactionVerificationForPartition, handleProduceAppend; KIP-890).

A partition whose log has the transaction open needs no verification. For other partitions the coordinator is asked, and the log returns a
guard that the append must present. If the transaction ends meanwhile, the guard becomes invalid.
"""

from __future__ import annotations

import logging
from functools import partial
from typing import TYPE_CHECKING, NamedTuple, cast

from kops.broker.replicas.hosted_partitions import error_name
from kops.coordinators.transactions.support import TransactionSupport
from kops.errors import ApiError, KopsError
from kops.storage.producers.verification import NO_GUARD

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from kops.broker.replicas.manager import ReplicaManager
    from kops.broker.transactions.lazy import Transactions
    from kops.broker.transactions.service import TransactionService
    from kops.records.log_offsets import TopicPartition
    from kops.storage.producers.verification import VerificationGuard
    from kops.storage.unified_log import UnifiedLog


log = logging.getLogger(__name__)


class Verified(NamedTuple):
    """The partitions that must not be written, with the coordinator's error, and the guards of the others."""

    errors: dict[TopicPartition, str]
    guards: dict[TopicPartition, VerificationGuard]


class Producer(NamedTuple):
    """The producer of a transaction."""

    transactional_id: str
    producer_id: int
    producer_epoch: int


def verify_transaction(
    transactions: Transactions,
    replicas: ReplicaManager,
    producer: Producer,
    sequences: Mapping[TopicPartition, int],
    support: TransactionSupport,
    done: Callable[[Verified], None],
    *,
    is_verification_enabled: bool,
) -> None:
    """Verify or add the partitions. `sequences` are those of their first records. `done` is called at once if no request is needed."""
    if not support.adds_partitions and not is_verification_enabled:
        done(Verified({}, {}))
        return
    verified = Verified({}, {})
    for key, sequence in sequences.items():
        try:
            guard = _start(replicas, key, producer, sequence, supports_epoch_bump=support.adds_partitions)
        except KopsError as error:
            log.debug("No verification of %s for partition %s: %s", producer, key, error)
            verified.errors[key] = error_name(error)
        else:
            if guard is not NO_GUARD:
                verified.guards[key] = guard
    if not verified.guards:
        done(verified)
        return

    def answered(errors: dict[TopicPartition, str]) -> None:
        verified.errors.update(errors)
        done(verified)

    transactions.service.verifications.add_or_verify(*producer, list(verified.guards), support, answered)


def verify_for_produce(
    transactions: Transactions,
    replicas: ReplicaManager,
    producer: Producer,
    sequences: Mapping[TopicPartition, int],
    support: TransactionSupport,
    done: Callable[[Verified], None],
    *,
    is_verification_enabled: bool,
) -> None:
    """Like `verify_transaction`. If Produce adds the partitions, repeat the request while the last transaction is still ending:
    this case is frequent, and a retry here is cheaper than another Produce of the client.
    """
    verify = verify_transaction
    if not support.adds_partitions:
        verify(transactions, replicas, producer, sequences, support, done, is_verification_enabled=is_verification_enabled)
        return
    request = partial(verify, transactions, replicas, producer, sequences, support, is_verification_enabled=is_verification_enabled)
    _Repeated(transactions.service, request, done).ask()


class _Repeated:
    """A verification that is asked for again while the last transaction is still ending.

    Nothing here refers back to it, so the Produce and its records are freed as soon as it is answered. Two closures that call each other
    would leave each Produce to the garbage collector.
    """

    __slots__ = ("_asked_ms", "_done", "_limit_ms", "_request", "_service", "_started_ms")

    def __init__(
        self, service: TransactionService, request: Callable[[Callable[[Verified], None]], None], done: Callable[[Verified], None]
    ) -> None:
        config = service.config
        self._service = service
        self._request = request
        self._done = done
        self._limit_ms = min(config.add_partitions_retry_backoff_max_ms, config.request_timeout_ms)
        self._started_ms = self._asked_ms = service.manager.now_ms()

    def ask(self) -> None:
        """Send the request, perhaps again."""
        self._asked_ms = self._service.manager.now_ms()
        self._request(self._answered)

    def _answered(self, verified: Verified) -> None:
        is_busy = "CONCURRENT_TRANSACTIONS" in verified.errors.values()
        now_ms = self._service.manager.now_ms()
        if is_busy and now_ms - self._started_ms < self._limit_ms:
            # A coordinator of kops has already waited for the end.
            backoff_ms = self._service.config.add_partitions_retry_backoff_ms
            self._service.call_later(max(backoff_ms - (now_ms - self._asked_ms), 0), self.ask)
        else:
            self._done(verified)


def _start(
    replicas: ReplicaManager, key: TopicPartition, producer: Producer, sequence: int, *, supports_epoch_bump: bool
) -> VerificationGuard:
    partition = replicas.get_partition_or_raise(key)
    leader_log = partition.leader_log
    if leader_log is None:
        raise ApiError("NOT_LEADER_OR_FOLLOWER")
    _, producer_id, epoch = producer
    unified_log = cast("UnifiedLog", leader_log)
    return unified_log.maybe_start_transaction_verification(producer_id, sequence, epoch, supports_epoch_bump=supports_epoch_bump)
