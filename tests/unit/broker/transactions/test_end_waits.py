"""Requests of brokers wait for the end of the previous transaction: until it has ended, or as long as Kafka's brokers wait."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from kops.broker.transactions.added_partitions import FIRST_BATCHED_VERSION, answer_add_partitions
from kops.broker.transactions.end_waits import EndWaits
from kops.metadata.image.metadata_cache import MetadataCache
from kops.protocol.errors import by_name
from kops.protocol.messages import AddPartitionsToTxnRequest, AddPartitionsToTxnResponse
from kops.protocol.messages.add_partitions_to_txn_request import AddPartitionsToTxnTopic, AddPartitionsToTxnTransaction
from kops.records.log_offsets import TopicPartition
from tests.support.parts.groups.transacting import World
from tests.support.parts.manual_loop import ManualLoop


def test_what_waits_goes_on_after_the_end() -> None:
    loop = ManualLoop()
    ran: list[tuple[str, int]] = []
    waits = EndWaits(loop, lambda name: 20)
    for name in ("a", "a", "b"):
        waits.add(name, lambda name=name: ran.append((name, loop.now_ms())))  # type: ignore[misc]
    loop.advance(5)
    waits.ended("a")
    assert ran == []  # an append is under way
    loop.advance()
    assert ran == [("a", 5), ("a", 5)]
    waits.ended("a")
    waits.ended("c")
    loop.advance(100)
    assert ran == [("a", 5), ("a", 5), ("b", 20)]
    assert len(waits) == 0


def test_nothing_waits_for_longer() -> None:
    loop = ManualLoop()
    ran: list[str] = []
    waits = EndWaits(loop, lambda name: 20)
    waits.add("a", lambda: ran.append("first"))
    loop.advance(10)
    waits.add("a", lambda: ran.append("second"))
    loop.advance(10)
    assert ran == ["first"]
    waits.ended("a")
    loop.advance(100)
    assert ran == ["first", "second"]
    assert len(waits) == 0


def test_each_id_has_its_limit() -> None:
    loop = ManualLoop()
    ran: list[str] = []
    waits = EndWaits(loop, {"old": 20, "new": 100}.__getitem__)
    for name in ("new", "old"):
        waits.add(name, lambda name=name: ran.append(name))  # type: ignore[misc]
    loop.advance(20)
    assert ran == ["old"]
    loop.advance(80)
    assert ran == ["old", "new"]


class Cache(MetadataCache):
    """A cache in which every partition exists."""

    def partition(self, topic: str, partition: int) -> Any:
        return topic, partition


def added(world: World, version: int, waiting: list[Callable[[], object]]) -> list[list[int]]:
    """Return a list that gets the errors of the partitions in the answer to the next transaction's AddPartitionsToTxn."""
    answers: list[list[int]] = []

    def done(response: AddPartitionsToTxnResponse) -> None:
        topics = [topic for result in response.results_by_transaction for topic in result.topic_results]
        topics += response.results_by_topic_v3_and_below
        answers.append([each.partition_error_code for topic in topics for each in topic.results_by_partition])

    request = AddPartitionsToTxnRequest([AddPartitionsToTxnTransaction("t", 1000, 1, False, [AddPartitionsToTxnTopic("a", [0])])])
    if version < FIRST_BATCHED_VERSION:
        request = AddPartitionsToTxnRequest([], "t", 1000, 1, [AddPartitionsToTxnTopic("a", [0])])
    cache: Any = Cache()
    answer_add_partitions(world.coordinator, cache, request, version, done, lambda name, run: waiting.append(run))
    return answers


def ending() -> World:
    """Return a transaction that is ending. Its markers are not written yet."""
    world = World().elect()
    world.init()
    world.add((1000, 0), TopicPartition("a", 0))
    world.end((1000, 0))
    return world


def test_a_broker_waits_for_the_end_and_a_client_does_not() -> None:
    concurrent = by_name("CONCURRENT_TRANSACTIONS").code
    world, waiting = ending(), list[Callable[[], object]]()
    assert added(world, 3, waiting) == [[concurrent]]
    assert waiting == []
    answers = added(world, 4, waiting)
    assert answers == []
    world.answer_markers()
    waiting[0]()
    assert answers == [[0]]
    assert world.state() == "Ongoing"


def test_the_age_of_an_end_counts_from_its_decision() -> None:
    world = ending()
    assert world.coordinator.ending_for_ms("t") == 0
    world.now_ms += 30
    assert world.coordinator.ending_for_ms("t") == 30
    world.answer_markers()
    assert not world.coordinator.is_ending("t")


def test_who_has_waited_in_vain_is_refused() -> None:
    world, waiting = ending(), list[Callable[[], object]]()
    answers = added(world, 4, waiting)
    waiting[0]()
    assert answers == [[by_name("CONCURRENT_TRANSACTIONS").code]]
    assert len(waiting) == 1
