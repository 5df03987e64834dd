"""Divides a share fetch among its partitions. Sources: PartitionMaxBytesStrategy, PartitionRotateStrategy."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeVar

from kops.errors import ApiError

P = TypeVar("P")


def rotated(parts: Sequence[P], session_epoch: int) -> list[P]:
    """Rotate the partitions, so that with each request of a session another one comes first."""
    at = session_epoch % len(parts) if parts and session_epoch >= 1 else 0
    return [*parts[at:], *parts[:at]]


def max_bytes(request_max_bytes: int, parts: Sequence[P], acquired_count: int, random_below: Callable[[int], int]) -> dict[P, int]:
    """Return how many bytes may be read from each partition. `acquired_count` partitions share `request_max_bytes`.

    The remainder goes to a random partition. If there are fewer bytes than partitions, that many partitions get one byte each. Raises
    ApiError UNKNOWN_SERVER_ERROR if there are no bytes.
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
