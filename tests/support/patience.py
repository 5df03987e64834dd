"""How tests wait: until something is so, or with short time-outs on machines that may be too busy for them."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar

Result = TypeVar("Result")
PATIENCE_S = 120
PAUSE_S = 0.02


def until(
    look: Callable[[], Result],
    is_right: Callable[[Result], object] = bool,
    *,
    told: Callable[[], object] = str,
    patience_s: float = PATIENCE_S,
) -> Result:
    """Return what `look` returns as soon as it is right. Fail after `patience_s` seconds, with the last result and what `told` returns."""
    deadline = time.monotonic() + patience_s
    while not is_right(found := look()):
        assert time.monotonic() < deadline, f"{found!r} {told()}"
        time.sleep(PAUSE_S)
    return found


def with_more_time(first_s: float, ask: Callable[[float], Result], is_right: Callable[[Result], object]) -> Result:
    """Return what `ask` returns for a time-out in seconds.

    Use this where the product must run into its time-out, but has to do something before. If the machine was too busy for that, the
    time-out is ten times as long in the next attempt. The test fails if the result is still wrong after the third one.
    """
    for factor in (1, 10):
        result = ask(first_s * factor)
        if is_right(result):
            return result
    return ask(first_s * 100)
