"""What these commands share: warnings about damage, records that are shown raw, and replicas that are left out."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Annotated, Any

import typer

from kops.cli.printing.output import Output
from kops.cli.running.exit_codes import PROBLEMS

if TYPE_CHECKING:
    from kops.forensics.coordinators.internal_topics import Chosen
    from kops.forensics.coordinators.records import Lost, Raw

SHOWN = 10
At = Annotated[
    str | None, typer.Option("--at", metavar="TIME", help="As it was then: ms since 1970, or ISO (default: now).", show_default=False)
]


def at_ms(text: str | None) -> int | None:
    """Milliseconds since 1970. UsageError if it is no time."""
    if text is None:
        return None
    from kops.forensics.dump.filters import parse_time

    return parse_time(text, "--at")


def tell_replicas(out: Output, chosen: Chosen) -> None:
    """Of several replicas of a partition only one is read."""
    for left_out, other in chosen.left_out:
        out.detail(f"{left_out.path}: not read; {other.path} is a replica that reaches as far")


def tell_lost(out: Output, lost: Iterable[Lost]) -> None:
    """Damage is a problem: what it held is missing in the answer."""
    count = 0
    for count, one in enumerate(lost, 1):
        out.status |= PROBLEMS
        if count <= SHOWN:
            span = "" if one.base_offset is None else f" [{one.base_offset}-{one.last_offset}]"
            out.warn(f"{one.file}:{one.position}{span}: left out: {one.reason}")
    if count > SHOWN:
        out.warn(f"{count - SHOWN} more damaged ranges; kops log verify shows all")


def raw_rows(out: Output, raw: Iterable[Raw], keys: Iterable[str]) -> Iterator[dict[str, Any]]:
    """Rows for records that can't be decoded: all keys of the listing, `state` raw, and the record."""
    for one in raw:
        out.status |= PROBLEMS
        row: dict[str, Any] = dict.fromkeys(keys)
        row.update(state="raw", timestamp=one.timestamp, record_offset=one.offset, log=one.partition)
        action = "replayed" if one.key is None and one.value is None else "decoded"
        row["note"] = f"offset {one.offset} of {one.partition} can't be {action}: {one.reason}"
        row["raw"] = {"key": one.to_json()["key"], "value": one.to_json()["value"]}
        yield row
