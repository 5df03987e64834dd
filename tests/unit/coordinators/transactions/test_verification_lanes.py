"""AddPartitionsToTxn of brokers: how many requests a coordinator gets at a time. In Kafka it is one."""

from __future__ import annotations

from kops.coordinators.transactions.support import TransactionSupport
from kops.coordinators.transactions.verification import TransactionVerifications, VerificationRequest
from kops.errors import ApiError
from kops.protocol.messages import AddPartitionsToTxnResponse
from kops.protocol.messages.add_partitions_to_txn_response import AddPartitionsToTxnResult
from kops.records.log_offsets import TopicPartition
from tests.support.parts.groups.transacting import Node

PARTITION = TopicPartition("topic", 0)


class Asking:
    """Producers of a broker. `told` has the answered ids. An id that begins with b has another coordinator."""

    def __init__(self, lanes: int) -> None:
        self.told: list[str] = []
        self.woken = 0
        self.verifications = TransactionVerifications(self._coordinator_of, self._wake, now_ms=lambda: 0, took=lambda _: None, lanes=lanes)

    def _coordinator_of(self, transactional_id: str) -> Node:
        return Node(2 if transactional_id.startswith("b") else 1)

    def _wake(self) -> None:
        self.woken += 1

    def ask(self, transactional_id: str) -> None:
        def done(errors: dict[TopicPartition, str]) -> None:
            self.told.append(transactional_id if not errors else f"{transactional_id}: {errors[PARTITION]}")

        self.verifications.add_or_verify(transactional_id, 1, 0, [PARTITION], TransactionSupport.ADD_PARTITION, done)

    def take(self) -> list[VerificationRequest]:
        return self.verifications.take_requests()

    def answer(self, request: VerificationRequest) -> None:
        results = [AddPartitionsToTxnResult(each) for each in request.waiting]
        self.verifications.on_answer(request, AddPartitionsToTxnResponse(results_by_transaction=results))


def ids(requests: list[VerificationRequest]) -> list[tuple[int, int, list[str]]]:
    return [(each.broker.id, each.lane, list(each.waiting)) for each in requests]


def test_one_that_waits_holds_up_nobody_while_a_lane_is_free() -> None:
    asking = Asking(2)
    asking.ask("a")
    first = asking.take()
    asking.ask("b")
    asking.ask("c")
    asking.ask("d")
    second = asking.take()
    assert ids(first + second) == [(1, 0, ["a"]), (2, 0, ["b"]), (1, 1, ["c", "d"])]
    asking.answer(second[1])
    assert asking.told == ["c", "d"]


def test_what_comes_while_all_lanes_are_taken_shares_the_next_request() -> None:
    asking = Asking(2)
    taken = []
    for name in "ac":
        asking.ask(name)
        taken += asking.take()
    asking.ask("d")
    asking.ask("e")
    assert asking.take() == []
    woken = asking.woken
    asking.answer(taken[0])
    assert asking.woken == woken + 1
    third = asking.take()
    assert ids(third) == [(1, 0, ["d", "e"])]
    assert asking.take() == []


def test_a_lane_is_free_again_after_a_failure() -> None:
    asking = Asking(1)
    asking.ask("a")
    request = asking.take()[0]
    asking.verifications.on_answer(request, ApiError("NETWORK_EXCEPTION"))
    asking.ask("a")
    assert ids(asking.take()) == [(1, 0, ["a"])]
    assert asking.told == ["a: NETWORK_EXCEPTION"]


def test_an_id_has_one_request_in_flight() -> None:
    """Otherwise the coordinator, which is still writing the first one, would answer the second with CONCURRENT_TRANSACTIONS."""
    asking = Asking(3)
    asking.ask("a")
    first = asking.take()
    asking.ask("a")
    asking.ask("c")
    second = asking.take()
    assert ids(second) == [(1, 1, ["c"])]
    assert asking.take() == []
    asking.answer(first[0])
    assert ids(asking.take()) == [(1, 0, ["a"])]
