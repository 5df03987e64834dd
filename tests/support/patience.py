"""How tests wait: until something is so, or with short time-outs on machines that may be too busy for them."""

from __future__ import annotations

import signal
import time
from collections.abc import Callable
from pathlib import Path
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


def until_taken(pid: int, sent: signal.Signals) -> None:
    """Wait until a process has begun to handle a signal that was sent to it, or has ended. If the system does not tell that, wait half a
    second."""
    status = Path(f"/proc/{pid}/status")
    if not status.exists():
        time.sleep(0.5)
        return

    def is_pending() -> bool:
        try:
            fields = dict(line.split(":", 1) for line in status.read_text().splitlines())
        except (FileNotFoundError, ProcessLookupError):
            return False
        return any(int(fields[name], 16) >> (sent - 1) & 1 for name in ("SigPnd", "ShdPnd"))

    until(lambda: not is_pending())


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
