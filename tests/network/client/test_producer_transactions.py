"""Transactions of both faces of the producer on a node of kops: what readers of committed records get, fencing, offsets, time-outs."""

from __future__ import annotations

import asyncio
import threading
import uuid
from collections.abc import Iterator
from typing import Any

import pytest
from confluent_kafka import Consumer, TopicPartition

import kops
import kops.aio
from kops.client.errors import (
    KafkaTimeoutError,
    ProducerClosedError,
    ProducerFencedError,
    RecordTooLargeError,
    TransactionAbortedError,
)
from kops.errors import UsageError
from tests.support.nodes.copying import copy_in_transactions
from tests.support.nodes.librdkafka import values_to_end
from tests.support.patience import until


@pytest.fixture(scope="module")
def servers() -> Iterator[str]:
    with kops.Cluster(1) as cluster:
        yield cluster.bootstrap_servers


@pytest.fixture
def name() -> str:
    """Return the name of a topic and of a transactional id."""
    return f"t-{uuid.uuid4().hex[:8]}"


def producer(servers: str, name: str, **more: Any) -> kops.Producer:
    """Return a producer that has its producer id."""
    made = kops.Producer(bootstrap_servers=servers, transactional_id=name, value_serializer="string", **more)
    try:
        made.init_transactions()
    except BaseException:
        made.close(0)
        raise
    return made


def committed(servers: str, group: str, topic: str) -> int:
    """Return the offset of partition 0 that a group has committed, or a negative number if there is none."""
    consumer = Consumer({"bootstrap.servers": servers, "group.id": group, "log_level": 0})
    try:
        (found,) = consumer.committed([TopicPartition(topic, 0)], timeout=60)
        assert found.error is None, found.error
        return int(found.offset)
    finally:
        consumer.close()


class TestBlocking:
    def test_all_or_nothing(self, servers: str, name: str) -> None:
        with producer(servers, name) as sender:
            with sender.transaction():
                places = [sender.send(name, text) for text in ("a", "b", "c")]
            assert [place.result(0).offset for place in places] == [0, 1, 2]
            with pytest.raises(RuntimeError), sender.transaction():
                written = sender.send(name, "written and aborted")
                sender.flush()
                waiting = sender.send(name, "never sent")
                raise RuntimeError
            assert written.result(0).offset == 4  # after the marker
            assert isinstance(waiting.error(0), TransactionAbortedError)
            with sender.transaction():
                sender.send(name, "d")
        assert values_to_end(servers, name, [0]) == ["a", "b", "c", "d"]
        assert "written and aborted" in values_to_end(servers, name, [0], "read_uncommitted")

    def test_empty_transactions(self, servers: str, name: str) -> None:
        with producer(servers, name) as sender:
            for end in (sender.commit_transaction, sender.abort_transaction):
                sender.begin_transaction()
                end()

    def test_offsets_are_part_of_it(self, servers: str, name: str) -> None:
        group = f"g-{name}"
        with producer(servers, name) as sender:
            with sender.transaction():
                sender.send(name, "x")
                sender.send_offsets_to_transaction({(name, 0): 5}, group)
            until(lambda: committed(servers, group, name) == 5)
            with pytest.raises(RuntimeError), sender.transaction():
                sender.send_offsets_to_transaction({(name, 0): 9}, group)
                raise RuntimeError
            with sender.transaction():
                sender.send_offsets_to_transaction({}, group)
            assert committed(servers, group, name) == 5

    @pytest.mark.parametrize("protocol", ["classic", "consumer"])
    def test_records_are_read_and_written_in_one_transaction(self, servers: str, name: str, protocol: str) -> None:
        """The coordinator of the group checks the member. Some transactions follow each other at once."""
        out, texts = f"{name}-out", [f"{index}" for index in range(20)]
        with kops.Producer(bootstrap_servers=servers, value_serializer="string") as plain:
            for text in texts:
                plain.send(name, text)
        assert copy_in_transactions(servers, name, out, len(texts), protocol) >= 4
        # The coordinator acknowledges a commit before all partitions have its marker.
        until(lambda: values_to_end(servers, out, [0]) == sorted(texts))
        until(lambda: committed(servers, name, name) == len(texts))

    def test_a_second_producer_fences_the_first(self, servers: str, name: str) -> None:
        with producer(servers, name) as first:
            first.begin_transaction()
            first.send(name, "fenced").result(60)
            with producer(servers, name) as second:
                with second.transaction():
                    second.send(name, "second")
                with pytest.raises(ProducerFencedError) as found:
                    first.commit_transaction()
                assert found.value.fatal
                assert not found.value.abortable
                with pytest.raises(ProducerFencedError, match="the producer can't be used any more"):
                    first.begin_transaction()
                with pytest.raises(ProducerFencedError):
                    first.send(name, "late")
        with pytest.raises(ProducerClosedError):  # as in Java, where an operation first looks whether the producer is closed
            first.send(name, "later")
        assert values_to_end(servers, name, [0]) == ["second"]

    def test_a_lost_record_fails_the_commit(self, servers: str, name: str) -> None:
        with producer(servers, name, max_request_size=2000) as sender:
            sender.begin_transaction()
            sender.send(name, "fits")
            assert isinstance(sender.send(name, "x" * 3000).error(0), RecordTooLargeError)
            with pytest.raises(RecordTooLargeError, match="the transaction must be aborted: the record has") as found:
                sender.commit_transaction()
            assert found.value.abortable
            with pytest.raises(RecordTooLargeError):
                sender.send(name, "more")
            sender.abort_transaction()
            with sender.transaction():
                sender.send(name, "again")
        assert values_to_end(servers, name, [0]) == ["again"]

    def test_the_state_of_the_producer(self, servers: str, name: str) -> None:
        with kops.Producer(bootstrap_servers=servers, transactional_id=name) as sender:
            for call in (sender.begin_transaction, sender.commit_transaction, sender.abort_transaction, lambda: sender.send(name, b"")):
                with pytest.raises(UsageError, match=r"not allowed, because .* is not initialized; call init_transactions first"):
                    call()
            sender.init_transactions()
            for call in (sender.init_transactions, sender.commit_transaction, lambda: sender.send(name, b"")):
                with pytest.raises(UsageError, match="is ready"):
                    call()
            with sender.transaction(), pytest.raises(UsageError, match="is in a transaction"):
                sender.begin_transaction()
            with pytest.raises(UsageError, match="is ready; call begin_transaction first"):
                sender.send_offsets_to_transaction({(name, 0): 1}, "g")
        with pytest.raises(kops.ProducerClosedError):
            sender.begin_transaction()

    @pytest.mark.parametrize("offsets, group, message", [
        ({"a": 1}, "g", "is not a pair"), ({("a", 0): -1}, "g", "allowed: 0 to 2"), ({("a", 0): 1}, "", "neither the name"),
    ])  # fmt: skip
    def test_wrong_offsets(self, servers: str, name: str, offsets: Any, group: str, message: str) -> None:
        with kops.Producer(bootstrap_servers=servers, transactional_id=name) as sender, pytest.raises(UsageError, match=message):
            sender.send_offsets_to_transaction(offsets, group)

    def test_without_a_transactional_id(self, servers: str) -> None:
        with kops.Producer(bootstrap_servers=servers) as sender, pytest.raises(UsageError, match=r"not without transactional\.id"):
            sender.init_transactions()

    def test_a_transaction_that_is_open_at_the_end_is_aborted(self, servers: str, name: str) -> None:
        with producer(servers, name) as sender:
            sender.begin_transaction()
            place = sender.send(name, "open")
        assert place.result(0).offset == 0
        assert values_to_end(servers, name, [0]) == []
        assert values_to_end(servers, name, [0], "read_uncommitted") == ["open"]

    def test_a_call_that_timed_out_may_be_repeated(self, name: str) -> None:
        """After the cluster has ended, nobody listens at its port."""
        with kops.Cluster(1) as cluster:
            servers = cluster.bootstrap_servers
        sender = kops.Producer(bootstrap_servers=servers, transactional_id=name, max_block_ms=50)
        try:
            for _ in range(2):
                with pytest.raises(KafkaTimeoutError, match="the same call may be repeated: no answer from") as found:
                    sender.init_transactions()
                assert found.value.retriable
            with pytest.raises(UsageError, match=r"begin_transaction: not now: the call of init_transactions before it timed out"):
                sender.begin_transaction()
        finally:
            sender.close(0)

    def test_not_in_a_callback(self, servers: str, name: str) -> None:
        seen: list[BaseException] = []

        def commit(*_: object) -> None:
            try:
                sender.commit_transaction()
            except UsageError as error:
                seen.append(error)

        with producer(servers, name) as sender, sender.transaction():
            sender.send(name, "x", on_delivery=commit).result(60)
        assert [str(error).split(",")[0] for error in seen] == ["commit_transaction: not in a callback"]

    def test_many_threads_send_in_one_transaction(self, servers: str, name: str) -> None:
        with producer(servers, name) as sender, sender.transaction():
            threads = [
                threading.Thread(target=lambda part=part: [sender.send(name, f"{part}-{i}") for i in range(200)]) for part in range(4)
            ]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
        assert len(values_to_end(servers, name, [0])) == 800


class TestAsyncio:
    def test_all_or_nothing(self, servers: str, name: str) -> None:
        async def main() -> None:
            async with kops.aio.Producer(bootstrap_servers=servers, transactional_id=name) as sender:
                await sender.init_transactions()
                async with sender.transaction():
                    await sender.send(name, b"a")
                    await sender.send_offsets_to_transaction({(name, 0): 3}, f"g-{name}")
                with pytest.raises(RuntimeError):
                    async with sender.transaction():
                        await sender.send_and_wait(name, b"b")
                        raise RuntimeError
                await sender.begin_transaction()
                delivery = await sender.send(name, b"c")
                await sender.commit_transaction()
                assert delivery.metadata().offset == 4

        asyncio.run(main())
        assert values_to_end(servers, name, [0]) == ["a", "c"]
        until(lambda: committed(servers, f"g-{name}", name) == 3)

    def test_a_cancelled_commit_is_repeated(self, servers: str, name: str) -> None:
        async def main() -> None:
            async with kops.aio.Producer(bootstrap_servers=servers, transactional_id=name) as sender:
                await sender.init_transactions()
                await sender.begin_transaction()
                await sender.send(name, b"a")
                task = asyncio.ensure_future(sender.commit_transaction())
                await asyncio.sleep(0)
                task.cancel()
                with pytest.raises(asyncio.CancelledError):
                    await task
                with pytest.raises(UsageError, match="repeat that first"):
                    await sender.begin_transaction()
                await sender.commit_transaction()
                async with sender.transaction():
                    await sender.send(name, b"b")

        asyncio.run(main())
        assert values_to_end(servers, name, [0]) == ["a", "b"]

    def test_a_cancelled_block_is_aborted(self, servers: str, name: str) -> None:
        async def work(sender: kops.aio.Producer, is_sent: asyncio.Event) -> None:
            async with sender.transaction():
                await sender.send_and_wait(name, b"cancelled")
                is_sent.set()
                await asyncio.Event().wait()

        async def main() -> None:
            async with kops.aio.Producer(bootstrap_servers=servers, transactional_id=name) as sender:
                await sender.init_transactions()
                is_sent = asyncio.Event()
                task = asyncio.ensure_future(work(sender, is_sent))
                await is_sent.wait()
                task.cancel()
                with pytest.raises(asyncio.CancelledError):
                    await task
                async with sender.transaction():
                    await sender.send(name, b"b")

        asyncio.run(main())
        assert values_to_end(servers, name, [0]) == ["b"]
