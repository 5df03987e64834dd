"""The output of the brokers, merged in order of time, and followed."""

from __future__ import annotations

import os
import re
import time
from collections.abc import Iterator
from heapq import merge
from typing import TYPE_CHECKING, Final, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Sequence

    from kops.cluster.layout.directory import ClusterDirectory

_STAMP: Final = re.compile(r"\[([0-9]{4}-[0-9]{2}-[0-9]{2} [0-9:,]+)\]")
_POLL_S: Final = 0.1


class Said(NamedTuple):
    """A line of a broker. `stamp` is its time as text. A line without one (a traceback) has the stamp of the line before it."""

    stamp: str
    node_id: int
    text: str


def said(directory: ClusterDirectory, node_ids: Sequence[int]) -> list[Said]:
    """Return all lines so far, in order of time."""
    return list(merge(*(_lines_of(directory.output_path(node_id), node_id) for node_id in node_ids)))


def _lines_of(path: str, node_id: int) -> list[Said]:
    try:
        with open(path, encoding="utf-8", errors="replace") as file:
            return _stamped(file.read().splitlines(), node_id, "")
    except FileNotFoundError:
        return []


def _stamped(lines: Sequence[str], node_id: int, stamp: str) -> list[Said]:
    found = []
    for text in lines:
        match = _STAMP.match(text)
        stamp = match[1] if match else stamp
        found.append(Said(stamp, node_id, text))
    return found


def follow(directory: ClusterDirectory, node_ids: Sequence[int]) -> Iterator[list[Said]]:
    """Yield new lines without an end, and an empty list after a while without any."""
    positions = {node_id: _size(directory.output_path(node_id)) for node_id in node_ids}
    while True:
        came: list[Said] = []
        for node_id in node_ids:
            lines, positions[node_id] = new_lines(directory.output_path(node_id), positions[node_id])
            came += _stamped(lines, node_id, "")
        yield came
        if not came:
            time.sleep(_POLL_S)


def _size(path: str) -> int:
    return os.path.getsize(path) if os.path.exists(path) else 0


def new_lines(path: str, position: int) -> tuple[list[str], int]:
    """Return the complete lines after a position, and the position after them."""
    if _size(path) <= position:
        return [], min(position, _size(path))
    with open(path, "rb") as file:
        file.seek(position)
        data = file.read()
    whole = data[: data.rfind(b"\n") + 1]
    return whole.decode("utf-8", "replace").splitlines(), position + len(whole)
