"""Consumers for asyncio that are closed while other tasks use them: the others end with an error of the client, and close is complete."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator

import pytest

import kops
import kops.aio
from kops.client.consumer.errors import ConsumerClosedError
from kops.records.log_offsets import TopicPartition
from tests.support.nodes.share_groups import SHARE_SETTINGS

LONG_S = 3600.0
PATIENCE_S = 60.0

pytestmark = pytest.mark.usefixtures("nothing_is_left")


@pytest.fixture(scope="module")
def servers() -> Iterator[str]:
    with kops.Cluster(1, topics=["quiet"], config=SHARE_SETTINGS | {"group.initial.rebalance.delay.ms": "0"}) as cluster:
        yield cluster.bootstrap_servers


async def outcome(call: Awaitable[object]) -> object:
    [found] = await asyncio.gather(call, return_exceptions=True)
    return found


def run(main: Callable[[], Awaitable[None]]) -> None:
    asyncio.run(asyncio.wait_for(main(), PATIENCE_S))


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_a_poll_that_waits_ends(servers: str, protocol: str) -> None:
    class Listener:
        def __init__(self) -> None:
            self.assigned = asyncio.Event()
            self.revoked: list[TopicPartition] = []

        def on_partitions_assigned(self, keys: list[TopicPartition]) -> None:
            if keys:
                self.assigned.set()

        def on_partitions_revoked(self, keys: list[TopicPartition]) -> None:
            self.revoked += keys

    async def main() -> None:
        consumer = kops.aio.Consumer(bootstrap_servers=servers, group_id=f"polls-{protocol}", group_protocol=protocol)
        listener = Listener()
        consumer.subscribe(["quiet"], listener)
        waiting = asyncio.create_task(outcome(consumer.poll(LONG_S)))
        await listener.assigned.wait()
        await consumer.close()
        error = await waiting
        assert isinstance(error, ConsumerClosedError), error
        assert listener.revoked == [TopicPartition("quiet", 0)]

    run(main)


def test_a_loop_over_records_ends(servers: str) -> None:
    async def main() -> None:
        consumer = kops.aio.Consumer(bootstrap_servers=servers)
        consumer.assign([("quiet", 0)])
        waiting = asyncio.create_task(outcome(anext(consumer)))
        await consumer.position(("quiet", 0))
        await consumer.close()
        assert isinstance(await waiting, ConsumerClosedError)

    run(main)


def test_close_waits_for_a_close(servers: str) -> None:
    async def main() -> None:
        consumer = kops.aio.Consumer(bootstrap_servers=servers, group_id="closes")
        consumer.subscribe(["quiet"])
        while not consumer.assignment():
            await consumer.poll(1)
        assert [*await asyncio.gather(consumer.close(), consumer.close(), return_exceptions=True)] == [None, None]
        with pytest.raises(ConsumerClosedError):
            await consumer.poll(0)

    run(main)


def test_a_poll_of_a_share_consumer_ends(servers: str) -> None:
    async def main() -> None:
        consumer = kops.aio.ShareConsumer(bootstrap_servers=servers, group_id="shares")
        await consumer.subscribe(["quiet"])
        waiting = asyncio.create_task(outcome(consumer.poll(LONG_S)))
        await asyncio.sleep(0)
        assert [*await asyncio.gather(consumer.close(), consumer.close(), return_exceptions=True)] == [None, None]
        error = await waiting
        assert isinstance(error, ConsumerClosedError), error
        assert str(error) == "the share consumer is closed"

    run(main)
