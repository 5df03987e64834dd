"""Ranges of offsets, as sets."""

from __future__ import annotations

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from kops.forensics.forecast import offset_ranges as serve

ranges = st.lists(st.tuples(st.integers(0, 60), st.integers(0, 9)).map(lambda pair: (pair[0], pair[0] + pair[1])), max_size=8)


def _set(pairs: list[tuple[int, int]]) -> set[int]:
    return {offset for first, last in pairs for offset in range(first, last + 1)}


@given(ranges)
def test_merge_is_the_union(pairs: list[tuple[int, int]]) -> None:
    merged = serve.merge(pairs)
    assert _set(merged) == _set(pairs)
    assert all(left[1] + 1 < right[0] for left, right in pairwise(merged))
    assert serve.count(merged) == len(_set(pairs))


@given(ranges, ranges)
def test_subtract_is_the_difference(pairs: list[tuple[int, int]], minus: list[tuple[int, int]]) -> None:
    left, right = serve.merge(pairs), serve.merge(minus)
    assert _set(serve.subtract(left, right)) == _set(left) - _set(right)


@given(ranges, st.integers(0, 70), st.integers(0, 70))
def test_clip_is_the_intersection(pairs: list[tuple[int, int]], start: int, end: int) -> None:
    merged = serve.merge(pairs)
    assert _set(serve.clip(merged, start, end)) == _set(merged) & set(range(start, end))
    assert _set(serve.clip(merged, start)) == {offset for offset in _set(merged) if offset >= start}
