"""Markers that are derived from a test: what it needs, and which golden cases the fast ring leaves to the slow one.

If a test goes through many golden cases (parameter `case_id`), the fast ring takes a sample: one case of every family for each function.
A family is a format without the version that wrote it (`v2-codec-zstd`), or a kind of damage (`damage-torn`). The case of a family and the
values of other parameters differ from function to function, so that together the functions cover all of them. The sample is the same in
every run. The slow ring takes the rest.
"""

from __future__ import annotations

import functools
import re
import zlib
from collections import defaultdict
from collections.abc import Callable, Iterable
from types import FunctionType
from typing import Any

import pytest

MANY = 30
JVM = {"oracle", "spark"}
"""Fixtures that start a JVM."""
REAL = {"RealBroker", "RealCluster", "KafkaNodes", "MixedCluster"}
"""Classes that start real brokers."""
HOT = tuple(
    f"tests/{name}/" for name in ("golden", "property", "unit/files", "unit/forensics", "unit/records", "unit/replication", "unit/storage")
)
"""Folders whose tests reach the hot modules. A test there that does not reach them is marked `once`."""
_VERSION = re.compile(r"-\d+(\.\d+)+")


def mark(items: Iterable[pytest.Item]) -> None:
    """Add the markers, before tests are selected by them."""
    left = left_to_the_slow_ring(items)
    for item in items:
        if item in left or item.get_closest_marker("cores") is not None:
            item.add_marker("slow")
        if item.nodeid.startswith(HOT) and item not in left and item.get_closest_marker("once") is None and not has_variant(item):
            item.add_marker("hot")
        if not JVM.isdisjoint(getattr(item, "fixturenames", ())):
            item.add_marker("java")
        if any(starts_brokers(function) for function in functions_of(item)):
            item.add_marker("java")
            item.add_marker("kafka")


def has_variant(item: pytest.Item) -> bool:
    """Return whether a test is given a variant of a hot module. The first pass runs it with both."""
    called = getattr(item, "callspec", None)
    return called is not None and "variant" in called.params


def functions_of(item: pytest.Item) -> list[Callable[..., Any]]:
    """Return a test's function and those of its fixtures."""
    if not isinstance(item, pytest.Function):
        return []
    return [item.function, *(definition.func for found in item._fixtureinfo.name2fixturedefs.values() for definition in found)]


@functools.cache
def starts_brokers(function: Callable[..., Any]) -> bool:
    """Return whether a function, or a function of its own module that it names, names one of the classes `REAL`."""
    found: list[Callable[..., Any]] = [function]
    for each in found:
        if not isinstance(each, FunctionType):
            continue
        for name in each.__code__.co_names:
            named = each.__globals__.get(name)
            if isinstance(named, type) and not REAL.isdisjoint(base.__name__ for base in named.__mro__):
                return True
            if isinstance(named, FunctionType) and named.__module__ == each.__module__ and named not in found:
                found.append(named)
    return False


def left_to_the_slow_ring(items: Iterable[pytest.Item]) -> set[pytest.Item]:
    """Return the tests of golden cases that are not in the sample."""
    functions: dict[str, dict[str, list[pytest.Item]]] = defaultdict(lambda: defaultdict(list))
    for item in items:
        called = getattr(item, "callspec", None)
        case_id = called.params.get("case_id") if called is not None else None
        if isinstance(case_id, str):
            functions[item.nodeid.partition("[")[0].rpartition("/")[2]][case_id].append(item)
    left: set[pytest.Item] = set()
    for function, cases in functions.items():
        chosen = sample(function, cases)
        for case_id, found in cases.items():
            left |= set(found)
            if case_id in chosen:
                # A function that is not sampled keeps all tests. Else one test remains, with some values of its other parameters.
                left -= set(found if len(cases) < MANY else [found[number(function, case_id, len(found))]])
    return left


def sample(function: str, case_ids: Iterable[str]) -> set[str]:
    """Return one case of each family, or all if there are few."""
    families: dict[str, list[str]] = defaultdict(list)
    all_ids = sorted(set(case_ids))
    for case_id in all_ids:
        families[family(case_id)].append(case_id)
    if len(all_ids) < MANY:
        return set(all_ids)
    return {ids[number(function, name, len(ids))] for name, ids in families.items()}


def number(function: str, what: str, count: int) -> int:
    """Return a number below `count` that is the same in every run, and different for other functions."""
    return zlib.crc32(f"{function} {what}".encode()) % count


def family(case_id: str) -> str:
    """Return the family of a case."""
    name = _VERSION.sub("", case_id, count=1)
    for kind in ("broker-damage", "damage"):
        if name.startswith(kind + "-"):
            return f"{kind}-{name.removeprefix(kind + '-').partition('-')[0].rstrip('s')}"
    return name
