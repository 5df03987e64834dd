"""When markers are sent: new ones at once, rejected ones with one timer for all of them."""

from __future__ import annotations

from kops.broker.transactions.service import MarkerWakes
from tests.support.parts.manual_loop import ManualLoop


def test_refused_markers_share_a_timer() -> None:
    """There is one timer, however many markers are rejected, and however often."""
    loop = ManualLoop()
    sent: list[int] = []

    def send() -> None:
        sent.append(loop.now_ms())
        for _ in range(3):
            wakes.wake(True)

    wakes = MarkerWakes(loop, send)
    wakes.wake(True)
    wakes.wake(True)
    loop.advance(100)
    assert sent == [20, 40, 60, 80, 100]


def test_new_markers_do_not_wait_for_refused_ones() -> None:
    loop = ManualLoop()
    sent: list[int] = []
    wakes = MarkerWakes(loop, lambda: sent.append(loop.now_ms()))
    wakes.wake(True)
    wakes.wake(False)
    wakes.wake(False)
    loop.advance()
    assert sent == [0]
    loop.advance(100)
    assert sent == [0, 20]
