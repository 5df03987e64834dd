"""Fixtures of pytest: a Kafka cluster for a test. The plugin is installed with kops (`pytest11`) and imports kops only when a fixture is
used.

    def test_orders(kops_cluster):
        producer = Producer({"bootstrap.servers": kops_cluster.bootstrap_servers})

`kops_cluster` is a new cluster for each test. It has one broker unless `@pytest.mark.kops_cluster(brokers=3, config={…},
topics=["orders:3"])` says otherwise. `kops_session_cluster` is one cluster for all tests, with `--kops-brokers` brokers.
`make_kops_cluster(brokers=…)` creates as many clusters as a test needs, and stops them after the test.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from kops.cluster.embedded import Cluster

MARK = "kops_cluster"


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the option `--kops-brokers N`."""
    group = parser.getgroup("kops", "Kafka clusters")
    group.addoption("--kops-brokers", type=int, default=1, metavar="N", help="brokers of the fixture kops_session_cluster (default: 1)")


def pytest_configure(config: pytest.Config) -> None:
    """Register the mark."""
    config.addinivalue_line("markers", f"{MARK}(brokers=1, config=None, topics=()): the cluster that the fixture kops_cluster creates")


def _new(brokers: int = 1, **wanted: Any) -> Cluster:
    from kops.cluster.embedded import Cluster

    return Cluster(brokers, **wanted)


def _marked(mark: pytest.Mark) -> Cluster:
    """Return the started cluster that a mark requests. An invalid mark fails its test with one line."""
    from kops.errors import UsageError

    try:
        return _new(*mark.args, **mark.kwargs).start()
    except (TypeError, UsageError) as error:
        pytest.fail(f"@pytest.mark.{MARK}: {error}", pytrace=False)


@pytest.fixture
def kops_cluster(request: pytest.FixtureRequest) -> Iterator[Cluster]:
    """A new cluster for this test."""
    mark = request.node.get_closest_marker(MARK)
    cluster = _new().start() if mark is None else _marked(mark)
    try:
        yield cluster
    finally:
        cluster.stop()


@pytest.fixture(scope="session")
def kops_session_cluster(request: pytest.FixtureRequest) -> Iterator[Cluster]:
    """One cluster for all tests that use this fixture. They share its topics."""
    with _new(brokers=request.config.getoption("--kops-brokers")) as cluster:
        yield cluster


@pytest.fixture
def make_kops_cluster() -> Iterator[Callable[..., Cluster]]:
    """A function that creates and starts clusters, with the arguments of `kops.Cluster`."""
    made: list[Cluster] = []

    def make(**wanted: Any) -> Cluster:
        cluster = _new(**wanted).start()
        made.append(cluster)
        return cluster

    try:
        yield make
    finally:
        for cluster in reversed(made):
            cluster.stop()
