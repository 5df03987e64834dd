"""Markers that follow from what a test is: what it needs by its fixtures, and which golden cases the fast ring leaves to the slow one.

Where a test goes through many golden cases (parameter `case_id`), the fast ring takes a sample: one case of every family for each function
(and for each value of its other parameters). A family is a format without the version that wrote it (`v2-codec-zstd`), or a kind of damage
(`damage-torn`). Which case of a family it is differs from function to function, so that together the functions meet all of them. The sample
is the same in every run. The slow ring takes the rest.
"""

from __future__ import annotations

import re
import zlib
from collections import defaultdict
from collections.abc import Iterable

import pytest

MANY = 30
NEEDS = {"oracle": "java", "spark": "java"}
"""Fixture → marker."""
HOT = tuple(
    f"tests/{name}/" for name in ("golden", "property", "unit/files", "unit/forensics", "unit/records", "unit/replication", "unit/storage")
)
"""Folders whose tests reach the hot modules; a test there that does not is marked `once`."""
_VERSION = re.compile(r"-\d+(\.\d+)+")


def mark(items: Iterable[pytest.Item]) -> None:
    """Add the markers; before tests are chosen by them."""
    functions: dict[tuple[str, str], list[tuple[str, pytest.Item]]] = defaultdict(list)
    left: set[pytest.Item] = set()
    for item in items:
        for fixture in getattr(item, "fixturenames", ()):
            if fixture in NEEDS:
                item.add_marker(NEEDS[fixture])
        called = getattr(item, "callspec", None)
        case_id = called.params.get("case_id") if called is not None else None
        if called is not None and isinstance(case_id, str):
            functions[item.nodeid.partition("[")[0], called.id.replace(case_id, "")].append((case_id, item))
    for (function, others), cases in functions.items():
        chosen = sample(function + others, [case_id for case_id, _ in cases])
        for case_id, item in cases:
            if case_id not in chosen:
                item.add_marker("slow")
                left.add(item)
    for item in items:
        if item.nodeid.startswith(HOT) and item not in left and item.get_closest_marker("once") is None:
            item.add_marker("hot")


def sample(function: str, case_ids: Iterable[str]) -> set[str]:
    """One case of each family; all where there are few."""
    families: dict[str, list[str]] = defaultdict(list)
    all_ids = sorted(set(case_ids))
    for case_id in all_ids:
        families[family(case_id)].append(case_id)
    if len(all_ids) < MANY:
        return set(all_ids)
    return {ids[zlib.crc32(f"{function} {name}".encode()) % len(ids)] for name, ids in families.items()}


def family(case_id: str) -> str:
    """What a case is an example of."""
    name = _VERSION.sub("", case_id, count=1)
    for kind in ("broker-damage", "damage"):
        if name.startswith(kind + "-"):
            return f"{kind}-{name.removeprefix(kind + '-').partition('-')[0].rstrip('s')}"
    return name
