"""Programs that run with Java's KafkaShareConsumer and with `kops.ShareConsumer` on the same node of kops."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

import kops
from tests.support.kafka.both import shares as programs
from tests.support.kafka.both.pinned import PinnedJvm
from tests.support.kafka.both.sides import JavaSide, OursSide, Side, check_same
from tests.support.nodes.share_groups import SHARE_SETTINGS, configure_share_group

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def servers() -> Iterator[str]:
    with kops.Cluster(1, config={name: str(value) for name, value in SHARE_SETTINGS.items()}) as cluster:
        yield cluster.bootstrap_servers


def sides(servers: str, pinned: PinnedJvm) -> tuple[JavaSide, OursSide]:
    """Return both sides. Their groups begin with the first record."""
    found = JavaSide(servers, "classic", pinned), OursSide(servers, "classic")
    for side in found:
        configure_share_group(servers, side.group, {"share.auto.offset.reset": "earliest"})
    return found


@pytest.mark.parametrize("program", [programs.implicit, programs.explicit, programs.wrong_calls, programs.failing_deserializer])
def test_a_program(servers: str, pinned: PinnedJvm, program: Callable[[Side], None]) -> None:
    check_same(*sides(servers, pinned), program)


@pytest.mark.parametrize("kind", ["plain", "of Kafka", "wakeup"])
def test_a_callback_that_fails(servers: str, pinned: PinnedJvm, kind: str) -> None:
    check_same(*sides(servers, pinned), programs.failing_callback, kind)
