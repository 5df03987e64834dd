"""Damaged markers of transactions: the transaction index and the producer snapshot tell what they were. Otherwise nothing is made up."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from kops.forensics.repair.run import repair
from kops.forensics.verify.run import verify
from kops.records import Batch, BytesSource, Damage, scan
from tests.support import corpus

CASE = "damage-4.3.0-control-batch-flip"
LOG = "00000000000000000051.log"


def damaged(tmp_path: Path) -> tuple[Path, Path, Path]:
    """Return the writable log directory, the damaged folder in it, and the same folder before the damage."""
    case = corpus.load(CASE)
    log_dir = case.copy(tmp_path / "log", "before")
    name = Path(case.json["damagedDir"]).name
    return log_dir, log_dir / name, case.root / "clean" / name


def flip(path: Path, position: int) -> None:
    data = bytearray(path.read_bytes())
    data[position] ^= 2
    path.write_bytes(bytes(data))


def markers(path: Path) -> list[Batch]:
    return [item for item in scan(BytesSource(path.read_bytes())) if isinstance(item, Batch) and item.is_control]


def test_an_abort_marker_comes_back_byte_for_byte(tmp_path: Path) -> None:
    log_dir, folder, clean = damaged(tmp_path)
    assert repair([log_dir], mode="all").left == []
    for path in sorted(clean.iterdir()):
        if path.suffix in (".log", ".txnindex", ".index", ".timeindex"):
            assert (folder / path.name).read_bytes() == path.read_bytes(), path.name


def test_a_commit_marker_comes_back_byte_for_byte(tmp_path: Path) -> None:
    log_dir, folder, clean = damaged(tmp_path)
    (folder / LOG).write_bytes((clean / LOG).read_bytes())
    commit = markers(folder / LOG)[0]
    flip(folder / LOG, commit.position + 75)
    assert [item for item in scan(BytesSource((folder / LOG).read_bytes())) if isinstance(item, Damage)]
    repair([log_dir], mode="all")
    # It is the first in its segment, so the file has nothing before it. The transaction's batches are in the previous segment.
    assert (folder / LOG).read_bytes() == (clean / LOG).read_bytes()


def without_transaction_index(folder: Path) -> None:
    (folder / LOG).with_suffix(".txnindex").write_bytes(b"\x00\x07")


def without_snapshots(folder: Path) -> None:
    without_transaction_index(folder)
    for path in folder.glob("*.snapshot"):
        path.unlink()


def with_a_wrong_header(folder: Path) -> None:
    flip(folder / LOG, position_of_damage(folder) + 46)


def position_of_damage(folder: Path) -> int:
    return next(item.position for item in scan(BytesSource((folder / LOG).read_bytes())) if isinstance(item, Damage))


@pytest.mark.parametrize("spoil", [without_transaction_index, without_snapshots, with_a_wrong_header])
def test_nothing_is_made_up(spoil: Callable[[Path], None], tmp_path: Path) -> None:
    log_dir, folder, _ = damaged(tmp_path)
    before = len(markers(folder / LOG))
    spoil(folder)
    repair([log_dir], mode="all")
    assert len(markers(folder / LOG)) == before
    assert not [found.code for found in verify([log_dir], "full").findings if found.is_problem]
