"""Shared code of the tests of `verify`: the folders of the corpus as its case.json lists them, and findings in short form."""

from __future__ import annotations

import functools
import shutil
import tempfile
from collections.abc import Iterable
from pathlib import Path

from kops.forensics.findings.finding import Finding
from tests.support import corpus


@functools.cache
def folder(case_id: str, name: str = "before") -> Path:
    """Return a folder of a damage case as the case lists it.

    Kafka's dump tool, which wrote the truth files, left an empty index in three of them.
    """
    case = corpus.load(case_id)
    listed = set(case.json[name])
    root = case.root / name
    strange = [path for path in root.rglob("*") if path.is_file() and path.relative_to(root).as_posix() not in listed]
    if not strange:
        return root
    target = corpus.CACHE / "as-listed" / root.relative_to(corpus.CACHE)
    if not target.is_dir():
        target.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(prefix="copying-", dir=corpus.CACHE) as beside:
            copied = Path(beside) / name
            shutil.copytree(root, copied, ignore=lambda folder, names: [each for each in names if Path(folder) / each in strange])
            try:
                copied.rename(target)
            except OSError:
                if not target.is_dir():  # else another worker was faster: its folder is just as good
                    raise
    return target


def problems(findings: Iterable[Finding]) -> list[tuple[str, str]]:
    """Return code and file name of each error and warning."""
    return [(found.code, Path(found.file).name) for found in findings if found.is_problem]


def codes(findings: Iterable[Finding]) -> set[str]:
    """Return the codes, including those of infos."""
    return {found.code for found in findings}
