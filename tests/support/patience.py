"""Short time-outs in tests, on machines that may be too busy for them."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

Result = TypeVar("Result")


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
