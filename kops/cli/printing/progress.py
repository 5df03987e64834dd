"""A progress bar on stderr, with amount, speed and remaining time. It is drawn at most ten times a second and costs almost nothing
otherwise.

verify   43% ███████████▎               1.2 GiB of 2.8 GiB  640.2 MiB/s  0:02 left
"""

from __future__ import annotations

import os
import sys
import time
from types import TracebackType

from kops.cli.printing.text import human_bytes

EVERY_S = 0.1
BAR_CELLS = 24
SHORTEST_BAR = 6
GAP = "  "
EIGHTHS = " ▏▎▍▌▋▊▉"


class Progress:
    """`with out.progress("verify", total) as bar: bar.update(n)`; `total` is None if it is not known. A disabled bar does nothing."""

    def __init__(self, label: str, total: int | None, unit: str, *, enabled: bool, color: bool = True) -> None:
        self.label = label
        self.total = total
        self.unit = unit
        self.done = 0
        self.enabled = enabled
        self._color = color
        self._started = time.monotonic()
        self._next = self._started + EVERY_S
        self._drawn = False

    def __enter__(self) -> Progress:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()

    def update(self, count: int) -> None:
        """This many more units are done."""
        self.done += count
        if self.enabled:
            now = time.monotonic()
            if now >= self._next:
                self._next = now + EVERY_S
                self._draw(now)

    def set(self, done: int) -> None:
        """This many units are done in all."""
        self.update(done - self.done)

    def clear(self) -> None:
        """Remove the bar from the line, for a message. The next update draws it again."""
        if self._drawn:
            self._put("\r\x1b[K")
            self._drawn = False
            self._next = 0.0

    def close(self) -> None:
        """Remove the bar at the end of the work."""
        self.clear()
        self.enabled = False

    def text(self, elapsed_s: float, columns: int) -> str:
        """The text of the line after `elapsed_s`, cut to the terminal's width."""
        rate = self.done / elapsed_s if elapsed_s > 0 else 0.0
        if not self.total:
            return f"{self.label}  {self._amount(self.done)}  {self._amount(rate)}/s"[: max(columns - 1, 0)]
        share = min(1.0, self.done / self.total)
        parts = [self.label, f"{share:4.0%}", f"{self._amount(self.done)} of {self._amount(self.total)}", f"{self._amount(rate)}/s"]
        if rate > 0:
            parts.append(f"{_clock((self.total - self.done) / rate)} left")
        room = min(BAR_CELLS, columns - 1 - sum(len(part) + len(GAP) for part in parts))
        if room >= SHORTEST_BAR:
            parts.insert(2, _bar(share, room))
        return GAP.join(parts)[: max(columns - 1, 0)]

    def _amount(self, value: float) -> str:
        if self.unit == "B":
            return human_bytes(value)
        return f"{value:,.0f} {self.unit}"

    def _draw(self, now: float) -> None:
        try:
            columns = os.get_terminal_size(sys.stderr.fileno()).columns
        except (OSError, ValueError):
            columns = 80
        self._put("\r" + self.text(now - self._started, columns or 80) + "\x1b[K")
        self._drawn = True

    def _put(self, text: str) -> None:
        try:
            sys.stderr.write(text)
            sys.stderr.flush()
        except (OSError, ValueError):
            self.enabled = False


def _bar(share: float, cells: int) -> str:
    if not (getattr(sys.stderr, "encoding", None) or "").lower().startswith("utf"):
        return ("#" * int(share * cells)).ljust(cells)
    eighths = int(share * cells * 8)
    return ("█" * (eighths // 8) + EIGHTHS[eighths % 8].strip()).ljust(cells)


def _clock(seconds: float) -> str:
    whole = max(0, round(seconds))
    minutes, rest = divmod(whole, 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02d}:{rest:02d}" if hours else f"{minutes}:{rest:02d}"
