"""The map of the segments for the damage cases of the corpus: what it calls intact is what Kafka wrote, and the damaged bytes are in what
it calls damaged.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from kops.files import OsFiles
from kops.forensics.evidence.analysis import DAMAGED, INTACT, RECOVERABLE, forecasts, segment_map
from kops.forensics.verify.run import verify
from kops.records import Batch, scan
from tests.support import corpus

EPOCH = slice(12, 16)


def batches(path: Path) -> dict[int, bytes]:
    """Return position → bytes of each batch of a log, without the leader epoch. The checksum does not cover it, and a wrong one is only a
    warning.
    """
    found = {}
    with OsFiles(read_only=True).open(str(path)) as log:
        for item in scan(log):
            if isinstance(item, Batch):
                data = bytearray(item.data())
                if item.magic > 1:
                    data[EPOCH] = bytes(4)
                found[item.position] = bytes(data)
    return found


@pytest.mark.slow
@pytest.mark.parametrize("case_id", corpus.cases("damage"))
def test_the_map_of_a_damaged_log(case_id: str) -> None:
    case = corpus.load(case_id)
    root = case.root / "before"
    folder = case.root / case.json["damagedDir"]
    clean = {data for path in (case.root / "clean").rglob("*.log") for data in batches(path).values()}
    assert clean
    files = OsFiles(read_only=True)
    findings = verify([str(root)], "full").findings
    answers, errors = forecasts(files, [str(root)], case.json["clockMs"])
    assert errors == []
    maps = {each["dir"]: each for each in segment_map(files, [str(root)], findings, answers)}
    damaged: dict[str, list[list[Any]]] = {}
    for segment in maps[str(folder)]["segments"]:
        if segment["file"] is None:
            continue
        extents = segment["extents"]
        assert [extent[0] for extent in extents] == [0, *(extent[1] for extent in extents)][: len(extents)]
        assert not extents or extents[-1][1] == segment["size"]
        damaged[os.path.basename(segment["file"])] = [extent for extent in extents if extent[2] == DAMAGED]
        for position, data in batches(Path(segment["file"])).items():
            (state,) = [extent[2] for extent in extents if extent[0] <= position < extent[1]]
            assert state not in (INTACT, RECOVERABLE) or data in clean, (segment["file"], position)
    for each in case.json["damage"]:
        if each["op"] in ("write", "flipBit") and each["file"] in damaged:
            hit = [extent for extent in damaged[each["file"]] if extent[0] <= each["position"] < extent[1] and extent[5]]
            warned = [found for found in findings if found.severity == "warning" and found.position == each["position"] - EPOCH.start]
            assert hit or warned, each
