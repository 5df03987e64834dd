"""Which tests run one after another on one worker, and in which order: the longest first, so that all workers end together.

Tests of one file stay together, for they share fixtures. `ALONE` are the files whose tests share nothing and take long: each test goes to
whichever worker is free. `TOGETHER` are files that share something expensive of a worker's, such as a Spark session.
`SECONDS` are measured; only their order matters. `tools/tests.sh` prints the longest tests at its end.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from xdist.scheduler import LoadScopeScheduling

if TYPE_CHECKING:
    from collections.abc import Iterable

    import pytest
    from xdist.workermanage import WorkerController

ALONE = frozenset[str]()
TOGETHER: dict[str, str] = {
    "tests/spark/test_scan_verify.py": "spark",
    "tests/spark/test_source.py": "spark",
    # These let `kops cluster` find ports, two of them at once would find the same.
    "tests/cli/test_cluster.py": "clusters",
    "tests/cli/test_cluster_adopt.py": "clusters",
    "tests/cluster/test_recording.py": "clusters",
    "tests/differential/broker/test_both_ways.py": "clusters",
}
SECONDS: dict[str, float] = {}


def unit_of(nodeid: str) -> str:
    """The unit of work that a test belongs to: a file, several files, or the test itself."""
    file = nodeid.partition("::")[0]
    return nodeid if file in ALONE else TOGETHER.get(file, file)


def seconds_of(unit: str) -> float:
    """How long a unit takes; 0 for one that nobody has measured."""
    return SECONDS.get(unit.partition("[")[0], 0.0)


def longest_first(items: Iterable[pytest.Item]) -> list[pytest.Item]:
    """Tests in the order of their units; within a unit as they were."""
    return sorted(items, key=lambda item: -seconds_of(unit_of(item.nodeid)))


class LongestFirst(LoadScopeScheduling):  # type: ignore[misc]  # xdist has types of its own, but says so nowhere
    """A unit goes to the next worker that is free, in the order in which the workers have collected them."""

    def __init__(self, config: pytest.Config, log: object = None) -> None:
        super().__init__(config, log)
        self.config.option.loadscopereorder = False

    def _split_scope(self, nodeid: str) -> str:
        return unit_of(nodeid)

    def mark_test_complete(self, node: WorkerController, item_index: int, duration: float = 0) -> None:
        """As above; a unit that is done is not counted again for each test that follows."""
        super().mark_test_complete(node, item_index, duration)
        unit = unit_of(self.registered_collections[node][item_index])
        if all(self.assigned_work[node][unit].values()):
            del self.assigned_work[node][unit]
