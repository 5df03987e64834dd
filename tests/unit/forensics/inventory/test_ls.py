"""Rows of segments: cheap and deep ones, states and flags."""

from __future__ import annotations

from pathlib import Path

import pytest

from kops.files import OsFiles
from kops.forensics.inventory.ls import SegmentRow, segment_rows
from kops.forensics.inventory.tree import open_paths
from kops.records import Batch, scan
from tests.support import corpus

FILES = OsFiles(read_only=True)


def rows(path: Path, *, deep: bool = False) -> list[SegmentRow]:
    return list(segment_rows(FILES, open_paths([path], FILES), deep=deep))


@pytest.mark.parametrize("case_id", corpus.cases("format"))
def test_rows_say_what_the_batches_say(case_id: str) -> None:
    for folder in sorted((corpus.load(case_id).root / "data").iterdir()):
        cheap, deep = rows(folder), rows(folder, deep=True)
        for short, whole in zip(cheap, deep, strict=True):
            name = f"{whole.base_offset:020d}.log" + ("" if whole.state == "live" else f".{whole.state}")
            if name not in whole.files:
                assert "no-log" in whole.flags
                continue
            path = folder / name
            with FILES.open(str(path)) as file:
                batches = [item for item in scan(file) if isinstance(item, Batch)]
            assert "damaged" not in whole.flags
            assert whole.batches == len(batches)
            assert short.last_offset == whole.last_offset == (batches[-1].last_offset if batches else None)
            assert short.first_offset == (batches[0].base_offset if batches else None)
            if batches:
                assert whole.max_timestamp == max(batch.max_timestamp for batch in batches)
            if whole.records is not None:
                assert whole.records == sum(len(batch.records()) for batch in batches)
            assert short.size == path.stat().st_size
        assert [row.state for row in cheap if "active" in row.flags] == (["live"] if cheap else [])


def test_states_and_damage() -> None:
    swap = corpus.load("damage-4.3.0-leftover-swap")
    assert {row.state for row in rows(swap.root / "before")} == {"live", "swap"}
    deleted = corpus.load("damage-4.3.0-leftover-deleted")
    assert {row.state for row in rows(deleted.root / "before")} == {"live", "deleted"}
    flipped = corpus.load("damage-4.3.0-flip-body-old")
    assert [row.base_offset for row in rows(flipped.root / "before", deep=True) if "damaged" in row.flags] == [21]
    torn = corpus.load("damage-4.3.0-torn-tail")
    assert [row.base_offset for row in rows(torn.root / "before") if "damaged" in row.flags] == [84]
    garbage = corpus.load("damage-4.3.0-index-garbage-active")
    (active,) = [row for row in rows(garbage.root / "before") if "active" in row.flags]
    assert active.last_offset == 98


def test_folders_that_are_going_away() -> None:
    case = corpus.load("broker-dir-4.3.0")
    found = {row.dir_state for row in rows(case.root / "crash")}
    assert found == {"", "delete", "future"}
    assert any("preallocated" in row.flags for row in rows(case.root / "crash"))


def test_a_single_file_is_its_segment() -> None:
    folder = next((corpus.load("v2-4.3.0-single").root / "data").iterdir())
    (row,) = rows(folder / "00000000000000000000.log")
    assert (row.last_offset, row.topic, row.index_entries) == (0, "payments-single", 0)
