"""A transaction's verification before an append leaves nothing to the garbage collector. What it answers is compared with Kafka's in
`tests/differential/coordinators/test_verified_appends.py`.
"""

from __future__ import annotations

import gc
import weakref
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

from kops.broker.transactions.verified_appends import Producer, Verified, verify_for_produce
from kops.coordinators.transactions.support import TransactionSupport
from kops.records.log_offsets import TopicPartition
from kops.storage.producers.verification import VerificationGuard

PART = TopicPartition("orders", 0)


class Answer:
    """What a Produce does when its transaction is verified."""

    def __init__(self, given: list[Verified]) -> None:
        self._given = given

    def __call__(self, verified: Verified) -> None:
        self._given.append(verified)


def test_an_answered_produce_needs_no_garbage_collector() -> None:
    asked: list[Callable[[dict[TopicPartition, str]], None]] = []
    later: list[Callable[[], None]] = []
    config = SimpleNamespace(add_partitions_retry_backoff_max_ms=100, add_partitions_retry_backoff_ms=20, request_timeout_ms=30_000)
    service = SimpleNamespace(
        config=config,
        manager=SimpleNamespace(now_ms=lambda: 5),
        verifications=SimpleNamespace(add_or_verify=lambda *given: asked.append(given[-1])),
        call_later=lambda delay_ms, call: later.append(call),
    )
    leader = SimpleNamespace(maybe_start_transaction_verification=lambda *given, **named: VerificationGuard())
    replicas: Any = SimpleNamespace(get_partition_or_raise=lambda key: SimpleNamespace(leader_log=leader))
    transactions: Any = SimpleNamespace(service=service)
    given: list[Verified] = []
    done = Answer(given)
    alive = weakref.ref(done)
    gc.collect()
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        support = TransactionSupport.ADD_PARTITION
        verify_for_produce(transactions, replicas, Producer("id", 1, 0), {PART: 0}, support, done, is_verification_enabled=True)
        del done
        asked.pop()({PART: "CONCURRENT_TRANSACTIONS"})
        assert given == []
        later.pop()()
        asked.pop()({})
        assert [list(each.guards) for each in given] == [[PART]]
        assert alive() is None
    finally:
        if was_enabled:
            gc.enable()
