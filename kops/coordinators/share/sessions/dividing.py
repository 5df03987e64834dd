"""How a share fetch is divided among its partitions. Sources: PartitionMaxBytesStrategy, PartitionRotateStrategy."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeVar

from kops.errors import ApiError

P = TypeVar("P")


def rotated(parts: Sequence[P], session_epoch: int) -> list[P]:
    """The partitions beginning with another one at each request of a session, so that each comes first in turn."""
    at = session_epoch % len(parts) if parts and session_epoch >= 1 else 0
    return [*parts[at:], *parts[:at]]


def max_bytes(request_max_bytes: int, parts: Sequence[P], acquired_count: int, random_below: Callable[[int], int]) -> dict[P, int]:
    """How many bytes may be read of each partition, of so many that were acquired for the request.

    What cannot be divided goes to one partition at random. Where there are fewer bytes than partitions, that many get one byte each. Raises
    ApiError UNKNOWN_SERVER_ERROR if there are none.
    """
    if request_max_bytes <= 0:
        raise ApiError("UNKNOWN_SERVER_ERROR", "Requested max bytes must be greater than 0")
    if request_max_bytes >= min(acquired_count, len(parts)):
        share, rest = divmod(request_max_bytes, acquired_count if request_max_bytes >= acquired_count else len(parts))
        found = dict.fromkeys(parts, share)
        if rest:
            found[parts[random_below(len(parts))]] += rest
        return found
    first = random_below(len(parts))
    chosen = {(first + number) % len(parts) for number in range(request_max_bytes)}
    return {part: int(index in chosen) for index, part in enumerate(parts)}
