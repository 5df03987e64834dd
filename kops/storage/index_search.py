"""The search in an offset or time index, step by step as Kafka does it (AbstractIndex.indexSlotRangeFor).

On a sorted index any bisection finds the same slot. On one with preallocated zeros behind its entries, or with damaged entries, what is
found depends on which slots are compared, so the order is kept: the last 8 KiB of entries first, then all before them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Callable

_WARM_BYTES: Final = 8192


def lower_bound(entries: int, entry_size: int, key: Callable[[int], int], target: int) -> int:
    """The slot of the largest entry whose `key(slot)` is at most `target`, -1 if there is none."""
    if entries == 0:
        return -1
    first_warm = max(0, entries - 1 - _WARM_BYTES // entry_size)
    if key(first_warm) < target:
        return _bisect(key, target, first_warm, entries - 1)[0]
    if key(0) > target:
        return -1
    return _bisect(key, target, 0, first_warm)[0]


def upper_bound(entries: int, entry_size: int, key: Callable[[int], int], target: int) -> int:
    """The slot of the smallest entry whose `key(slot)` is at least `target`, -1 if there is none.

    As in Kafka a first entry that equals `target` is passed over: the search ends on it without comparing it.
    """
    if entries == 0:
        return -1
    first_warm = max(0, entries - 1 - _WARM_BYTES // entry_size)
    if key(first_warm) < target:
        slot, equal = _bisect(key, target, first_warm, entries - 1)
    elif key(0) > target:
        return 0
    else:
        slot, equal = _bisect(key, target, 0, first_warm)
    if equal:
        return slot
    return -1 if slot == entries - 1 else slot + 1


def _bisect(key: Callable[[int], int], target: int, low: int, high: int) -> tuple[int, bool]:
    """Where the search ends, and whether it met the target itself."""
    while low < high:
        middle = (low + high + 1) >> 1
        value = key(middle)
        if value > target:
            high = middle - 1
        elif value < target:
            low = middle
        else:
            return middle, True
    return low, False
