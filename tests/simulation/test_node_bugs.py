"""Bugs put into whole nodes on purpose: each is met by one of a stated number of lives."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.simulation.node_life import live_all
from tests.simulation.test_replication import (
    acknowledge_before_replication,
    high_watermark_at_the_end,
    truncate_to_the_high_watermark,
)

FIRST_SEED = 300

BUGS: list[tuple[Callable[[pytest.MonkeyPatch], None], int]] = [
    (acknowledge_before_replication, 20),
    (high_watermark_at_the_end, 20),
    (truncate_to_the_high_watermark, 20),
]
"""A bug, and of how many lives one must meet it."""


@pytest.mark.slow
@pytest.mark.timeout(0)
@pytest.mark.parametrize(("bug", "lives"), BUGS, ids=[bug.__name__ for bug, _ in BUGS])
def test_a_planted_bug_is_found(bug: Callable[[pytest.MonkeyPatch], None], lives: int, monkeypatch: pytest.MonkeyPatch) -> None:
    bug(monkeypatch)
    with pytest.raises(AssertionError) as caught:
        live_all(range(FIRST_SEED, FIRST_SEED + lives))
    assert "python -m tests.simulation.node_life" in caught.value.__notes__[0]
