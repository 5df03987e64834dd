"""An output never replaces an input, even if symbolic links lead from one to the other."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from kops.errors import UsageError
from kops.forensics.carve.run import carve
from kops.forensics.compact import CompactOptions, compact
from kops.forensics.recover.run import recover
from tests.support import corpus

CASE = "damage-4.3.0-two-flips"


@pytest.fixture(name="root")
def _root(tmp_path: Path) -> Path:
    """Return a log directory with one partition."""
    source = next(path.parent for path in sorted((corpus.load(CASE).root / "before").rglob("*.log")))
    shutil.copytree(source, tmp_path / "root" / "orders-0", copy_function=corpus.copy_writable)
    return tmp_path / "root"


def content(directory: Path) -> dict[str, bytes]:
    return {str(path.relative_to(directory)): path.read_bytes() for path in sorted(directory.rglob("*")) if path.is_file()}


def recovered(source: Path, out: Path) -> None:
    recover([source], out, force=True)


def compacted(source: Path, out: Path) -> None:
    compact([source], out, CompactOptions(now_ms=0, force=True))


@pytest.mark.parametrize("write", [recovered, compacted])
def test_a_partition_is_not_written_over_itself(root: Path, tmp_path: Path, write: Callable[[Path, Path], None]) -> None:
    before = content(root)
    alias = tmp_path / "alias"
    alias.symlink_to(root)
    for source, out in ((root / "orders-0", root), (alias / "orders-0", root), (root / "orders-0", alias), (root, alias)):
        with pytest.raises(UsageError, match=r"is inside"):
            write(source, out)
        assert content(root) == before


def test_an_image_is_not_written_over_itself(root: Path, tmp_path: Path) -> None:
    before = content(root)
    [log, *_] = sorted((root / "orders-0").glob("*.log"))
    link = tmp_path / "image"
    link.symlink_to(log)
    with pytest.raises(UsageError, match=r"is inside --out"):
        carve([link], root, topic_hint="orders-0", force=True)
    assert content(root) == before


def test_a_link_is_replaced_and_not_what_it_leads_to(root: Path, tmp_path: Path) -> None:
    victim, out = tmp_path / "victim", tmp_path / "out"
    (victim / "sub").mkdir(parents=True)
    (victim / "sub" / "file").write_text("mine")
    out.mkdir()
    for name in ("orders-0", "x.kops-partial"):
        (out / name).symlink_to(victim)
    recover([root], out, force=True)
    assert (victim / "sub" / "file").read_text() == "mine"
    assert (out / "orders-0").is_dir() and not os.path.islink(out / "orders-0")
    assert not os.path.lexists(out / "x.kops-partial")
