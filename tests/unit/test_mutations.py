"""Every mutation of `tests.mutations` can still be made, and its tests exist."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

from tests.mutations import BY_PACKAGE

ROOT = Path(__file__).parents[2]
A_PACKAGE = 10


def test_every_mutation_still_applies() -> None:
    wrong = []
    for package, mutations in BY_PACKAGE.items():
        assert len(mutations) >= A_PACKAGE, package
        for one in mutations:
            assert one.path.startswith(f"kops/{package}/"), one
            count = (ROOT / one.path).read_text(encoding="utf-8").count(one.old)
            missing = [test for test in one.tests.split() if not (ROOT / test.partition("::")[0]).exists()]
            if count != 1 or missing or one.old == one.new:
                wrong.append(f"{package}, {one.name}: {count} times in {one.path}, no tests {missing}")
    assert not wrong, "\n".join(wrong)


def test_names_are_different() -> None:
    names = Counter(one.name for mutations in BY_PACKAGE.values() for one in mutations)
    assert max(names.values()) == 1
