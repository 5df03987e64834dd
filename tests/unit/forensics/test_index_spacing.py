"""Offset indexes that lost entries, told by their neighbours' spacing (`kops.forensics.verify_index.check_spacing`)."""

from __future__ import annotations

import pytest

from kops.forensics.verify_index import IndexSpacing, check_spacing


def spacing(path: str, *, least: int, last: int, behind: list[int]) -> IndexSpacing:
    return IndexSpacing(path, last // least if least else 0, least, last, behind, 10, 99)


@pytest.mark.parametrize("step", [4096, 5000])
def test_an_emptied_index_among_batches_of_one_size(step: int) -> None:
    """Kafka's rule is more than `index.interval.bytes`, which is less than any distance seen: one as small as the least is far enough."""
    whole = spacing("whole", least=4096, last=40_960, behind=[])
    emptied = spacing("emptied", least=0, last=0, behind=[step, 2 * step, 3 * step])
    assert [found.file for found in check_spacing([whole, emptied])] == ["emptied"]
    near = spacing("near", least=0, last=0, behind=[1000, 2000, 3000])
    assert list(check_spacing([whole, near])) == []
