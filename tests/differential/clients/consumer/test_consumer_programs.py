"""Programs that run with Java's KafkaConsumer and with `kops.Consumer` on the same node of kops, with both protocols: they see the same
errors, calls of listeners, positions and commits.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

import kops
from tests.support.kafka.both import consumer_programs as programs
from tests.support.kafka.both.pinned import PinnedJvm
from tests.support.kafka.both.sides import JavaSide, OursSide, Side, check_same

pytestmark = pytest.mark.slow
CONFIG = {
    "group.initial.rebalance.delay.ms": "0",
    "offsets.topic.num.partitions": "1",
    "group.consumer.min.heartbeat.interval.ms": "100",
    "group.consumer.heartbeat.interval.ms": "100",
}
PROTOCOLS = ("classic", "consumer")


@pytest.fixture(scope="module")
def servers() -> Iterator[str]:
    with kops.Cluster(1, config=CONFIG) as cluster:
        yield cluster.bootstrap_servers


@pytest.mark.parametrize("protocol", PROTOCOLS)
@pytest.mark.parametrize(
    "program",
    [
        programs.wake_ups,
        programs.seeking_listener,
        programs.late_polls,
        programs.two_with_one_instance_id,
        programs.close_in_a_rebalance,
        programs.short_polls,
        programs.wrong_calls,
        programs.failing_interceptors,
        programs.enforced_rebalances,
        programs.pauses,
    ],
)
def test_a_program(servers: str, pinned: PinnedJvm, program: Callable[[Side], None], protocol: str) -> None:
    check_same(JavaSide(servers, protocol, pinned), OursSide(servers, protocol), program)


@pytest.mark.parametrize("program", [programs.enforced_rebalances, programs.pauses])
def test_a_program_with_cooperative_rebalances(servers: str, pinned: PinnedJvm, program: Callable[..., None]) -> None:
    check_same(JavaSide(servers, "classic", pinned), OursSide(servers, "classic"), program, programs.COOPERATIVE)


@pytest.mark.parametrize("protocol", PROTOCOLS)
@pytest.mark.parametrize("kind", ["plain", "of Kafka", "wakeup"])
@pytest.mark.parametrize("method", ["assigned", "revoked"])
def test_a_listener_that_fails(servers: str, pinned: PinnedJvm, method: str, kind: str, protocol: str) -> None:
    check_same(JavaSide(servers, protocol, pinned), OursSide(servers, protocol), programs.failing_listener, method, kind)


@pytest.mark.parametrize("kind", ["plain", "of Kafka", "wakeup"])
def test_a_listener_that_fails_in_a_cooperative_rebalance(servers: str, pinned: PinnedJvm, kind: str) -> None:
    check_same(JavaSide(servers, "classic", pinned), OursSide(servers, "classic"), programs.failing_cooperative_listener, kind)


@pytest.mark.parametrize("kind", ["", "plain", "wakeup"])
def test_a_listener_that_is_late_in_a_cooperative_rebalance(servers: str, pinned: PinnedJvm, kind: str) -> None:
    check_same(JavaSide(servers, "classic", pinned), OursSide(servers, "classic"), programs.late_cooperative_listener, kind)


@pytest.mark.parametrize("is_in_call", [False, True])
@pytest.mark.parametrize("strategy", [programs.COOPERATIVE, programs.EAGER])
@pytest.mark.parametrize("method", ["assigned", "revoked"])
def test_a_listener_that_fails_and_polls_late(servers: str, pinned: PinnedJvm, method: str, strategy: str, is_in_call: bool) -> None:
    sides = JavaSide(servers, "classic", pinned), OursSide(servers, "classic")
    check_same(*sides, lambda side: programs.late_failing_listener(side, method, strategy, is_in_call=is_in_call))


@pytest.mark.parametrize("protocol", PROTOCOLS)
@pytest.mark.parametrize("kind", ["plain", "of Kafka"])
def test_a_deserializer_that_fails(servers: str, pinned: PinnedJvm, kind: str, protocol: str) -> None:
    check_same(JavaSide(servers, protocol, pinned), OursSide(servers, protocol), programs.failing_deserializer, kind)
