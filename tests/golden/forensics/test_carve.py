"""Carving finds exactly the intact batches of the corpus in disk images."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from kops.forensics.carve.run import carve
from tests.support import corpus
from tests.support.images import batches_below, shuffled_image

FAMILIES = ("v0", "v1", "v2")


def logs_of(names: list[str]) -> list[bytes]:
    """Return every segment of some cases, each once."""
    found: dict[bytes, None] = {}
    for name in names:
        for path in sorted(corpus.load(name).root.rglob("*.log")):
            data = path.read_bytes()
            if 0 < len(data) < 1 << 20:
                found[data] = None
    return list(found)


def check(logs: list[bytes], seed: int, tmp_path: Path) -> Path:
    """Carve an image of these segments, and compare the result with what the image was made of."""
    image = shuffled_image(seed, logs)
    out = tmp_path / "out"
    report = carve([image.write(tmp_path / "image")], out)
    found = Counter(batches_below(Path(log.output) for log in report.logs))
    wanted = Counter(image.batches.values())
    assert set(wanted) <= set(found)
    # The value of a damaged batch may contain whole batches. Nothing else is found.
    for extra in set(found) - set(wanted):
        assert bytes(image.data).find(extra) >= 0
    assert len(set(found) - set(wanted)) <= sum(bool(log.notes) for log in report.logs)
    # A batch is output twice only if the same batch stands beside different ones.
    assert sum(found.values()) <= sum(wanted.values())
    return out


@pytest.mark.parametrize("family", FAMILIES)
def test_a_few_cases_of_each_format(family: str, tmp_path: Path) -> None:
    names = list(corpus.cases(family))[:3]
    check(logs_of(names), 5, tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(3))
def test_the_whole_corpus_in_one_image(seed: int, tmp_path: Path) -> None:
    names = [case for family in FAMILIES for case in corpus.cases(family)]
    check(logs_of(names), seed, tmp_path)
