"""Shared code of these commands: warnings about damage, records that are shown raw, and replicas that are left out."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Annotated, Any

import typer

from kops.cli.printing.output import Output
from kops.cli.running.exit_codes import FAILED, PROBLEMS

if TYPE_CHECKING:
    from kops.forensics.coordinators.records import Lost, Raw
    from kops.forensics.inventory.tree import PartitionDir

SHOWN = 10
At = Annotated[
    str | None, typer.Option("--at", metavar="TIME", help="The state as of then: ms since 1970, or ISO (default: now).", show_default=False)
]


def at_ms(text: str | None) -> int | None:
    """Return a time in milliseconds since 1970. Raises UsageError if the text is not a time."""
    if text is None:
        return None
    from kops.forensics.dump.filters import parse_time

    return parse_time(text, "--at")


def tell_replicas(out: Output, left_out: Iterable[tuple[PartitionDir, PartitionDir]]) -> None:
    """Report the replicas that were not read. Of the replicas of a partition, only one is read."""
    for each, other in left_out:
        out.detail(f"{each.path}: not read; {other.path} is a replica that reaches as far")


def tell_unread(out: Output, lines: Iterable[str]) -> None:
    """Warn about directories and logs that could not be read. What is in them is missing from the answer."""
    for line in lines:
        out.warn(line)
        out.status |= FAILED


class LostLines:
    """Warnings about damage, the first of them each in a line. Damage is a problem, because its records are missing from the answer."""

    def __init__(self, out: Output) -> None:
        self._out = out
        self._shown = 0
        self._hidden = 0
        self._hidden_values = 0

    def tell(self, one: Lost) -> None:
        """One damaged range, or a value that cannot be decoded."""
        from kops.forensics.coordinators.records import UNDECODABLE

        self._out.status |= PROBLEMS
        is_value = one.reason.startswith(UNDECODABLE)
        if self._shown < SHOWN:
            self._shown += 1
            end = " on" if one.last_offset is None else f"-{one.last_offset}"
            span = "" if one.base_offset is None else f" [{one.base_offset}{end}]"
            self._out.warn(f"{one.file}:{one.position}{span}: left out: {one.reason}")
        elif is_value:
            self._hidden_values += 1
        else:
            self._hidden += 1

    def end(self) -> None:
        """How many more there were."""
        if self._hidden:
            self._out.warn(f"{self._hidden} more damaged ranges; kops log verify shows all")
        if self._hidden_values:
            self._out.warn(f"{self._hidden_values} more values cannot be decoded")


def tell_lost(out: Output, lost: Iterable[Lost]) -> None:
    """Warn about all of these."""
    lines = LostLines(out)
    for one in lost:
        lines.tell(one)
    lines.end()


def raw_rows(out: Output, raw: Iterable[Raw], keys: Iterable[str]) -> Iterator[dict[str, Any]]:
    """Yield rows for records that cannot be decoded: all keys of the listing, `state` raw, and the record."""
    names = list(keys)
    for one in raw:
        out.status |= PROBLEMS
        yield {**dict.fromkeys(names), **one.to_row()}
