"""`leader-epoch-checkpoint` compared with the batches, and epochs that no batch can have."""

from __future__ import annotations

from pathlib import Path

import pytest

from kops.files import OsFiles
from kops.forensics.inventory.tree import open_partition
from kops.forensics.verify.checks.log import LogView, PartitionContext
from kops.forensics.verify.checks.state import check_epoch_file, check_epoch_order
from kops.forensics.verify.jobs import run_tasks
from kops.forensics.verify.partition import partition_view
from kops.forensics.verify.run import plan_verify
from kops.records import BatchBuilder

EPOCHS = [(7, 2), (8, 2), (9, 2), (12, 5), (15, 5), (16, 5)]  # (base offset, leader epoch), up to offset 18


def view_of(tmp_path: Path, text: str, context: PartitionContext, epochs: list[tuple[int, int]]) -> tuple[Path, LogView]:
    directory = tmp_path / "orders-0"
    directory.mkdir()
    ends = [base for base, _ in epochs[1:]] + [19]
    data = b""
    for (base, epoch), end in zip(epochs, ends, strict=True):
        builder = BatchBuilder(base_offset=base, partition_leader_epoch=epoch)
        for offset in range(base, end):
            builder.append(1_700_000_000_000 + offset, b"key", b"value")
        data += builder.build()
    (directory / f"{epochs[0][0]:020d}.log").write_bytes(data)
    (directory / "leader-epoch-checkpoint").write_text(text)
    files = OsFiles(read_only=True)
    plan = plan_verify([directory], "full", files)
    results = run_tasks(plan.tasks, files, 1, None, None)
    return directory, partition_view(plan.partitions[0].partition, list(results), context)


def codes(tmp_path: Path, text: str, *, log_start: int | None = None, clean: bool = True, cleaner: int | None = None) -> list[str]:
    context = PartitionContext(clean_stop=clean, log_start=log_start, cleaner_offset=cleaner, cleaner_known=cleaner is not None)
    directory, view = view_of(tmp_path, text, context, EPOCHS)
    files = OsFiles(read_only=True)
    return [found.detail for found in check_epoch_file(open_partition(directory, files), view, files)]


@pytest.mark.parametrize(
    ("text", "log_start"),
    [
        ("0\n2\n2 7\n5 12\n", None),
        ("0\n3\n2 7\n5 12\n6 19\n", None),
        ("0\n2\n2 10\n5 12\n", 10),
        ("0\n1\n5 13\n", 13),
        ("0\n1\n5 12\n", 12),
    ],
)
def test_what_a_broker_writes_agrees(tmp_path: Path, text: str, log_start: int | None) -> None:
    assert codes(tmp_path, text, log_start=log_start) == []


@pytest.mark.parametrize(
    ("text", "log_start"),
    [
        ("0\n2\n2 7\n5 11\n", None),
        ("0\n2\n2 7\n5 13\n", None),
        ("0\n3\n2 7\n5 12\n6 16\n", None),
        ("0\n3\n2 7\n4 9\n5 12\n", None),
        ("0\n2\n3 10\n5 12\n", 10),
        ("0\n2\n2 9\n5 12\n", 7),
        ("0\n2\n2 11\n5 12\n", 10),
    ],
)
def test_an_entry_that_the_batches_contradict_is_found(tmp_path: Path, text: str, log_start: int | None) -> None:
    assert codes(tmp_path, text, log_start=log_start)


def test_what_is_not_known_is_no_finding(tmp_path: Path) -> None:
    """Without a clean stop, the log start may be later than the checkpoint says."""
    assert codes(tmp_path, "0\n2\n2 9\n5 12\n", clean=False) == []


def test_compaction_may_have_taken_the_batches_at_the_beginning_of_an_epoch(tmp_path: Path) -> None:
    assert codes(tmp_path, "0\n2\n2 7\n5 11\n", cleaner=12) == []


def test_an_epoch_below_minus_one_is_found_wherever_it_stands(tmp_path: Path) -> None:
    _, view = view_of(tmp_path, "0\n0\n", PartitionContext(), [(7, -5), (9, 2)])
    assert [found.code for found in check_epoch_order(view)] == ["leader-epoch-negative"]
