"""Programs that run with Java's KafkaProducer and with `kops.Producer` on the same node of kops: they see the same errors and callbacks."""

from __future__ import annotations

import socket
from collections.abc import Callable, Iterator

import pytest

import kops
from tests.support.kafka.both import producer_programs as programs
from tests.support.kafka.both.pinned import PinnedJvm
from tests.support.kafka.both.sides import JavaSide, OursSide, Side, check_same

pytestmark = pytest.mark.slow
CONFIG = {
    "auto.create.topics.enable": "false",
    "group.initial.rebalance.delay.ms": "0",
    "offsets.topic.num.partitions": "1",
    "transaction.state.log.num.partitions": "1",
}


@pytest.fixture(scope="module")
def servers() -> Iterator[str]:
    with kops.Cluster(1, config=CONFIG) as cluster:
        yield cluster.bootstrap_servers


@pytest.mark.parametrize("program", [programs.ended, programs.limits, programs.failing_code, programs.flush_in_transactions])
def test_a_program(servers: str, pinned: PinnedJvm, program: Callable[[Side], None]) -> None:
    check_same(JavaSide(servers, "classic", pinned), OursSide(servers, "classic"), program)


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_offsets_with_old_metadata(servers: str, pinned: PinnedJvm, protocol: str) -> None:
    check_same(JavaSide(servers, protocol, pinned), OursSide(servers, protocol), programs.old_metadata)


@pytest.mark.parametrize("state", programs.STATES)
def test_each_call_of_transactions(servers: str, pinned: PinnedJvm, state: str) -> None:
    check_same(JavaSide(servers, "classic", pinned), OursSide(servers, "classic"), programs.transaction_calls, state)


def test_a_silent_broker(servers: str, pinned: PinnedJvm) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        address = f"127.0.0.1:{server.getsockname()[1]}"
        check_same(JavaSide(servers, "classic", pinned), OursSide(servers, "classic"), programs.silent_broker, address)
