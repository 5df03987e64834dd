"""Both variants keep the same windows and totals."""

from __future__ import annotations

import random
from typing import Any

from tests.support.hot import hot, variants

NAME = "kops.client.metrics._hot_recording"


def test_the_variants_agree() -> None:
    rng = random.Random(4)
    now_ms = 0.0
    recorders: list[Any] = [hot(NAME, variant).Recorder(2, 100) for variant in variants()]
    for _ in range(2000):
        now_ms += rng.choice((0, 0.25, 30, 99, 100, 250))
        value = rng.choice((0, 1, -3, 2.5, 10**9))
        for one in recorders:
            one.record(value, now_ms)
        states = [
            (
                one.total,
                one.count,
                one.last,
                [(part.start_ms, part.last_ms, part.count, part.total, part.highest, part.lowest) for part in one._windows],
            )
            for one in recorders
        ]
        assert all(state == states[0] for state in states)
    assert recorders[0].count == 2000
    assert len(recorders[0]._windows) == 3
