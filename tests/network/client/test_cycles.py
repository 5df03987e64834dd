"""Clients are made and closed again and again, also when the making fails: no descriptor, thread or object stays.

`pytest -m slow tests/network/client/test_cycles.py -s --seeds 10000` makes and closes ten thousand clients of each class and prints what
the process holds before and after.
"""

from __future__ import annotations

import asyncio
import gc
import os
import socket
import threading
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest

import kops
import kops.aio
from kops.errors import KopsError
from tests.support.nodes.kops_nodes import KopsNodes

TOPIC = "cycles"
WARM_UP, CYCLES, USES = 8, 40, 2
ROUNDS = 3
"""What a program does for the first time may stay, such as a module. A leak grows in every round."""
MORE_OBJECTS = 30
MORE_MIB = 8.0
PATIENCE_S = 60


class Held(NamedTuple):
    """What the process holds."""

    descriptors: int
    threads: int
    objects: int
    mib: float


def held() -> Held:
    gc.collect()
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    mib = pages * os.sysconf("SC_PAGE_SIZE") / 2**20
    return Held(len(os.listdir("/proc/self/fd")), threading.active_count(), len(gc.get_objects()), mib)


@pytest.fixture(scope="module")
def servers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Provide a node in a process of its own, so that this process holds only clients."""
    with KopsNodes(tmp_path_factory.mktemp("node"), 1) as nodes:
        with kops.Producer({"bootstrap.servers": nodes.bootstrap}) as producer:
            producer.send(TOPIC, b"one", partition=0).result(PATIENCE_S)
        yield nodes.bootstrap


def use_producer(producer: kops.Producer) -> None:
    producer.send(TOPIC, b"more").result(PATIENCE_S)


def use_consumer(consumer: kops.Consumer) -> None:
    consumer.subscribe([TOPIC])
    while not consumer.poll(1.0):
        pass


def use_share_consumer(consumer: kops.ShareConsumer) -> None:
    consumer.subscribe([TOPIC])
    consumer.poll(0.1)


def use_admin(admin: kops.Admin) -> None:
    assert admin.describe_cluster().nodes


async def use_aio_producer(producer: kops.aio.Producer) -> None:
    await (await producer.send(TOPIC, b"more"))


async def use_aio_consumer(consumer: kops.aio.Consumer) -> None:
    consumer.subscribe([TOPIC])
    while not await consumer.poll(1.0):
        pass


async def use_aio_share_consumer(consumer: kops.aio.ShareConsumer) -> None:
    await consumer.subscribe([TOPIC])
    await consumer.poll(0.1)


async def use_aio_admin(admin: kops.aio.Admin) -> None:
    assert (await admin.describe_cluster()).nodes


GROUP = {"group.id": "cycles", "auto.offset.reset": "earliest", "enable.auto.commit": "false"}
BLOCKING: dict[str, tuple[Callable[..., Any], dict[str, str], Callable[[Any], None]]] = {
    "Producer": (kops.Producer, {}, use_producer),
    "Consumer": (kops.Consumer, GROUP, use_consumer),
    "ShareConsumer": (kops.ShareConsumer, {"group.id": "shared cycles"}, use_share_consumer),
    "Admin": (kops.Admin, {}, use_admin),
}
ASYNCIO: dict[str, tuple[Callable[..., Any], dict[str, str], Callable[[Any], Awaitable[None]]]] = {
    "aio.Producer": (kops.aio.Producer, {}, use_aio_producer),
    "aio.Consumer": (kops.aio.Consumer, GROUP, use_aio_consumer),
    "aio.ShareConsumer": (kops.aio.ShareConsumer, {"group.id": "shared cycles"}, use_aio_share_consumer),
    "aio.Admin": (kops.aio.Admin, {}, use_aio_admin),
}


def is_flat(kind: str, before: Held, after: Held, cycles: int) -> bool:
    """Whether nothing stayed."""
    print(f"\n{kind}, {cycles} cycles: {before} -> {after}")
    is_as_before = (after.descriptors, after.threads) == (before.descriptors, before.threads)
    is_clean = after.objects - before.objects < max(MORE_OBJECTS, cycles // 100)
    return is_as_before and is_clean and after.mib - before.mib < MORE_MIB


@pytest.mark.slow
@pytest.mark.timeout(0)
@pytest.mark.parametrize("kind", BLOCKING)
def test_blocking_clients_leave_nothing(servers: str, kind: str, seed_count: int | None) -> None:
    make, settings, use = BLOCKING[kind]
    cycles = seed_count or CYCLES
    every = cycles // USES

    def cycle(number: int) -> None:
        with make({"bootstrap.servers": servers, **settings}) as client:
            if number % every == 0:
                use(client)

    for number in range(WARM_UP):
        cycle(number)
    for _ in range(ROUNDS):
        before = held()
        for number in range(cycles):
            cycle(number)
        after = held()
        if is_flat(kind, before, after, cycles):
            return
    pytest.fail(f"{kind}: {before} -> {after}")


@pytest.mark.slow
@pytest.mark.timeout(0)
@pytest.mark.parametrize("kind", ASYNCIO)
def test_asyncio_clients_leave_nothing(servers: str, kind: str, seed_count: int | None) -> None:
    make, settings, use = ASYNCIO[kind]
    cycles = seed_count or CYCLES
    every = cycles // USES

    async def cycle(number: int) -> None:
        async with make({"bootstrap.servers": servers, **settings}) as client:
            if number % every == 0:
                await use(client)

    async def run() -> None:
        for number in range(WARM_UP):
            await cycle(number)
        for _ in range(ROUNDS):
            before = held()
            for number in range(cycles):
                await cycle(number)
            await asyncio.sleep(0)
            assert asyncio.all_tasks() == {asyncio.current_task()}
            after = held()
            if is_flat(kind, before, after, cycles):
                return
        pytest.fail(f"{kind}: {before} -> {after}")

    asyncio.run(run())


# a construction that fails


class Failing:
    """A helper of a program that can't be made."""

    def __init__(self) -> None:
        raise RuntimeError("no helper")


FAULTS: dict[str, dict[str, object]] = {
    "a wrong value": {"request.timeout.ms": -1},
    "a wrong address": {"bootstrap.servers": "host:port"},
    "no address": {"bootstrap.servers": ""},
    "TLS": {"security.protocol": "SSL"},
}
HELPERS: dict[str, dict[str, object]] = {
    "Producer": {"interceptor.classes": [Failing]},
    "aio.Producer": {"interceptor.classes": [Failing]},
    "Consumer": {"interceptor.classes": [Failing]},
    "aio.Consumer": {"interceptor.classes": [Failing]},
}
MAKERS = {kind: (make, settings) for kind, (make, settings, _) in [*BLOCKING.items(), *ASYNCIO.items()]}


@pytest.mark.parametrize("kind", MAKERS)
def test_a_construction_that_fails_leaves_nothing(kind: str) -> None:
    make, settings = MAKERS[kind]

    def fail_in_all_ways() -> None:
        for fault in FAULTS.values():
            with pytest.raises(KopsError):
                make({"bootstrap.servers": "localhost:1", **settings, **fault})
        if kind in HELPERS:
            with pytest.raises(RuntimeError, match="no helper"):
                make({"bootstrap.servers": "localhost:1", **settings, **HELPERS[kind]})

    fail_in_all_ways()
    before = held()
    fail_in_all_ways()
    assert held()[:2] == before[:2]


@pytest.mark.parametrize("kind", BLOCKING)
@pytest.mark.parametrize("what", ["no thread", "no pipe"])
def test_a_system_that_gives_nothing_more(kind: str, what: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """If the system refuses a thread or a descriptor, what was opened before is closed at once, not when it is collected."""
    make, settings, use = BLOCKING[kind]

    def refuse(*_: object) -> None:
        raise OSError("no more")

    monkeypatch.setattr(threading.Thread, "start", refuse) if what == "no thread" else monkeypatch.setattr(os, "pipe", refuse)
    gc.collect()
    gc.disable()
    try:
        before = len(os.listdir("/proc/self/fd"))
        with socket.socket() as sock:
            sock.bind(("127.0.0.1", 0))  # nobody listens here
            address = f"127.0.0.1:{sock.getsockname()[1]}"
            with (
                pytest.raises(OSError, match="no more"),
                make({"bootstrap.servers": address, **settings}) as client,
            ):
                use(client)
        assert len(os.listdir("/proc/self/fd")) == before
    finally:
        gc.enable()


def test_a_fork_refuses_the_clients_of_its_parent(servers: str) -> None:
    """It has none of their threads, and shares their connections. The parent's clients go on."""
    with (
        kops.Producer(bootstrap_servers=servers) as producer,
        kops.Consumer(bootstrap_servers=servers, auto_offset_reset="earliest") as consumer,
        kops.ShareConsumer(bootstrap_servers=servers, group_id="forks") as sharing,
        kops.Admin(bootstrap_servers=servers) as admin,
    ):
        consumer.assign([(TOPIC, 0)])
        calls: list[Callable[[], object]] = [
            lambda: producer.send(TOPIC, b"never"),
            lambda: producer.flush(1),
            lambda: consumer.poll(1),
            lambda: next(iter(consumer)),
            consumer.assignment,
            lambda: sharing.poll(1),
            lambda: admin.list_topics(timeout=1),
        ]
        before = producer.send(TOPIC, b"before", partition=0).result(PATIENCE_S).offset
        reading, writing = os.pipe()
        child = os.fork()
        if child == 0:  # nothing of pytest may run here
            refused = 0
            for call in calls:
                try:
                    call()
                except KopsError as error:
                    refused += "forked after the client was made" in str(error)
            for client in (producer, consumer, sharing, admin):
                client.close()
            os.write(writing, str(refused).encode())
            os._exit(0)
        os.close(writing)
        with os.fdopen(reading) as answer:
            assert answer.read() == str(len(calls))
        os.waitpid(child, 0)
        assert producer.send(TOPIC, b"after", partition=0).result(PATIENCE_S).offset == before + 1
        values: list[bytes | None] = []
        while values[-1:] != [b"after"]:
            values += [record.value for record in consumer.poll(1)]
        assert TOPIC in admin.list_topics()
