"""Replicas with batches that the tests make: what counts as a difference, what does not, and what each choice of a leader loses."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from kops.errors import UsageError
from kops.forensics.heal.run import heal
from kops.forensics.replicas.report import PartitionDiff, joined, without
from kops.forensics.replicas.run import diff
from kops.records import BatchBuilder
from kops.records.build import empty_batch
from tests.support.logs.three_replicas import equal_gzip_sets

VALUE = b"value of offset %d"


def batch(offset: int, count: int = 2, *, epoch: int = 1, value: bytes = VALUE, only: set[int] | None = None) -> bytes:
    """Return a batch of `count` offsets. `only` has the offsets that compaction left."""
    builder = BatchBuilder(base_offset=offset, partition_leader_epoch=epoch)
    for number in range(offset, offset + count):
        if only is None or number in only:
            builder.append(1_700_000_000_000 + number, b"key", value % number if b"%d" in value else value, offset=number)
    return builder.build(last_offset=offset + count - 1) if only is not None else builder.build()


def replica(tmp_path: Path, broker: int, *segments: tuple[int, list[bytes]], high: int | None = None, epochs: str = "") -> Path:
    """Make a log directory of one partition."""
    log_dir = tmp_path / f"broker-{broker}"
    directory = log_dir / "orders-0"
    directory.mkdir(parents=True)
    for base, parts in segments:
        (directory / f"{base:020d}.log").write_bytes(b"".join(parts))
    (log_dir / "meta.properties").write_text(f"version=1\ncluster.id=MkU3OEVBNTcwNTJENDM2Qg\nnode.id={broker}\n")
    if high is not None:
        for name in ("replication-offset-checkpoint", "recovery-point-offset-checkpoint"):
            (log_dir / name).write_text(f"0\n1\norders 0 {high}\n")
    if epochs:
        (directory / "leader-epoch-checkpoint").write_text(epochs)
    return log_dir


def compared(*dirs: Path) -> PartitionDiff:
    (partition,) = diff(dirs).partitions
    return partition


def codes(partition: PartitionDiff) -> list[tuple[str, int | None, int | None]]:
    return [(found.code, found.base_offset, found.last_offset) for found in partition.findings]


def flipped(data: bytes) -> bytes:
    return data[:-1] + bytes([data[-1] ^ 1])


RIGHT = [batch(offset) for offset in range(0, 20, 2)]


def test_other_segments_are_no_difference(tmp_path: Path) -> None:
    one = replica(tmp_path, 1, (0, RIGHT))
    two = replica(tmp_path, 2, (0, RIGHT[:3]), (6, RIGHT[3:]))
    found = compared(one, two)
    assert codes(found) == []
    assert found.first_divergence is None
    assert [(each.broker, each.start_offset, each.end_offset, each.batches) for each in found.replicas] == [(1, 0, 20, 10), (2, 0, 20, 10)]


def test_retention_is_no_difference(tmp_path: Path) -> None:
    found = compared(replica(tmp_path, 1, (0, RIGHT)), replica(tmp_path, 2, (8, RIGHT[4:]), epochs="0\n1\n1 8\n"))
    assert codes(found) == []
    assert [each.loses for each in found.replicas] == [[], []]


def test_a_lost_first_segment_is_no_retention(tmp_path: Path) -> None:
    found = compared(replica(tmp_path, 1, (0, RIGHT)), replica(tmp_path, 2, (8, RIGHT[4:]), epochs="0\n1\n1 0\n"))
    assert codes(found) == [("replica-gap", 0, 7)]
    assert [each.loses for each in found.replicas] == [[], [(0, 7)]]


def test_an_emptied_first_segment_is_no_retention(tmp_path: Path) -> None:
    """Retention deletes whole segments, so a name without contents shows what the log had."""
    whole = replica(tmp_path, 1, (0, RIGHT[:3]), (6, RIGHT[3:]))
    emptied = replica(tmp_path, 2, (0, []), (6, RIGHT[3:]))
    assert codes(compared(whole, emptied)) == [("replica-gap", 0, 5)]
    (healed,) = heal([emptied], [whole]).partitions
    assert [(first, last) for first, last, _ in healed.filled] == [(0, 5)]
    (tmp_path / "broker-2" / "cleaner-offset-checkpoint").write_text("0\n1\norders 0 6\n")
    assert codes(compared(whole, emptied)) == []


def test_a_batch_over_lost_ones_hides_none_of_the_batches_behind_it(tmp_path: Path) -> None:
    """Batch 16 also stands over a part of batch 8; the rest of that one is damage."""
    found = compared(replica(tmp_path, 1, (0, RIGHT)), replica(tmp_path, 2, (0, [*RIGHT[:4], RIGHT[8], b"rest" * 9, *RIGHT[5:]])))
    assert codes(found)[0] == ("replica-damaged", 8, 9)
    assert [each.missing for each in found.replicas] == [[], [(8, 9)]]
    assert {found.position for found in found.findings} == {len(b"".join(RIGHT[:4])), len(b"".join([*RIGHT[:4], RIGHT[8]]))}


def test_different_gzip_sets_with_the_same_checksum(tmp_path: Path) -> None:
    sets = equal_gzip_sets(4)
    found = compared(*(replica(tmp_path, number, (4, [each])) for number, each in enumerate(sets)))
    assert codes(found) == [("replica-contents-differ", 4, 4)]


def test_compaction_is_no_difference(tmp_path: Path) -> None:
    compacted = [batch(0, only={1}), *RIGHT[2:5], batch(10, only={10}), *RIGHT[7:]]
    found = compared(replica(tmp_path, 1, (0, RIGHT)), replica(tmp_path, 2, (0, compacted)))
    assert codes(found) == []
    assert [each.loses for each in found.replicas] == [[], []]


def test_another_record_in_a_compacted_batch_is_a_difference(tmp_path: Path) -> None:
    compacted = [batch(0, only={1}, value=b"something else"), *RIGHT[2:]]
    found = compared(replica(tmp_path, 1, (0, RIGHT)), replica(tmp_path, 2, (0, compacted)))
    assert codes(found) == [("replica-contents-differ", 1, 1)]


def test_a_replica_behind_is_an_info(tmp_path: Path) -> None:
    report = diff([replica(tmp_path, 1, (0, RIGHT[:7]), high=14), replica(tmp_path, 2, (0, RIGHT), high=14)])
    (found,) = report.partitions
    assert codes(found) == [("replica-behind", 14, 19)]
    assert not report.has_problems
    assert found.first_divergence is None
    assert [(each.loses, each.committed, each.best) for each in found.replicas] == [([(14, 19)], 0, False), ([], 0, True)]


def test_missing_offsets_in_the_middle(tmp_path: Path) -> None:
    found = compared(replica(tmp_path, 1, (0, RIGHT)), replica(tmp_path, 2, (0, [*RIGHT[:3], *RIGHT[5:]])))
    assert codes(found) == [("replica-gap", 6, 9)]
    assert found.findings[0].file.endswith("broker-2/orders-0")


def test_damage_on_two_replicas_at_different_places(tmp_path: Path) -> None:
    one = replica(tmp_path, 1, (0, [*RIGHT[:3], flipped(RIGHT[3]), *RIGHT[4:]]), high=20)
    two = replica(tmp_path, 2, (0, [*RIGHT[:6], flipped(RIGHT[6]), flipped(RIGHT[7]), *RIGHT[8:]]), high=20)
    found = compared(one, two)
    assert codes(found) == [("replica-damaged", 6, 7), ("replica-damaged", 12, 15), ("replica-damaged", 12, 15)]
    assert [(each.loses, each.committed) for each in found.replicas] == [([(6, 7)], 2), ([(12, 15)], 4)]
    assert found.lost == []
    assert found.replicas[0].best


def test_what_is_damaged_everywhere_is_lost(tmp_path: Path) -> None:
    wrong = [*RIGHT[:3], flipped(RIGHT[3]), *RIGHT[4:]]
    found = compared(replica(tmp_path, 1, (0, wrong)), replica(tmp_path, 2, (0, wrong)))
    assert codes(found) == [("replica-damaged", 6, 7)] * 2
    assert found.lost == [(6, 7)]


def test_a_hole_that_a_repair_closed(tmp_path: Path) -> None:
    closed = empty_batch(base_offset=6, last_offset=7, partition_leader_epoch=1)
    found = compared(replica(tmp_path, 1, (0, RIGHT)), replica(tmp_path, 2, (0, [*RIGHT[:3], closed, *RIGHT[4:]])))
    assert codes(found) == [("replica-damaged", 6, 7)]
    assert "closed" in found.findings[0].detail


@pytest.mark.parametrize(("high", "code"), [(20, "replica-diverged"), (14, "replica-truncation-due"), (None, "replica-diverged")])
def test_histories_that_part(tmp_path: Path, high: int | None, code: str) -> None:
    old = replica(tmp_path, 1, (0, RIGHT), high=high)
    newer = [batch(offset, epoch=2, value=b"new") for offset in (14, 16)]
    two, three = (replica(tmp_path, broker, (0, [*RIGHT[:7], *newer]), high=18) for broker in (2, 3))
    found = compared(old, two, three)
    assert codes(found) == [(code, 14, 19)]
    assert found.first_divergence is not None
    assert found.first_divergence.offset == 14
    assert [each.loses for each in found.replicas] == [[(14, 17)], [(14, 19)], [(14, 19)]]
    assert [each.last_epoch for each in found.replicas] == [1, 2, 2]


def test_damage_behind_the_parting_is_seen_in_each_branch(tmp_path: Path) -> None:
    newer = [batch(offset, epoch=2, value=b"new") for offset in (14, 16, 18)]
    one, two = (replica(tmp_path, broker, (0, RIGHT), high=14) for broker in (1, 2))
    three = replica(tmp_path, 3, (0, [*RIGHT[:7], newer[0], flipped(newer[1]), newer[2]]))
    four = replica(tmp_path, 4, (0, [*RIGHT[:7], *newer]))
    found = compared(one, two, three, four)
    assert sorted(codes(found)) == [("replica-damaged", 16, 17)] + [("replica-truncation-due", 14, 19)] * 2
    assert found.replicas[2].missing == [(16, 17)]


def test_a_leader_that_wrote_nothing_yet(tmp_path: Path) -> None:
    """Only its leader-epoch-checkpoint shows that the other one has to truncate its log."""
    one = replica(tmp_path, 1, (0, RIGHT), high=16, epochs="0\n1\n1 0\n")
    two = replica(tmp_path, 2, (0, RIGHT[:8]), high=16, epochs="0\n2\n1 0\n2 16\n")
    found = compared(one, two)
    assert ("replica-truncation-due", 16, 19) in codes(found)


def test_one_epoch_with_two_contents(tmp_path: Path) -> None:
    other = [*RIGHT[:3], batch(6, value=b"other"), *RIGHT[4:]]
    dirs = [replica(tmp_path, broker, (0, RIGHT)) for broker in (1, 2)]
    found = compared(*dirs, replica(tmp_path, 3, (0, other)))
    assert codes(found) == [("replica-contents-differ", 6, 7)]
    assert "/broker-3/" in found.findings[0].file


def test_the_same_batch_with_another_epoch(tmp_path: Path) -> None:
    other = [*RIGHT[:3], batch(6, epoch=3), *RIGHT[4:]]
    found = compared(replica(tmp_path, 1, (0, RIGHT)), replica(tmp_path, 2, (0, other)))
    assert codes(found) == [("replica-epoch-differs", 6, 7)]


def test_another_topic_of_the_same_name_is_not_compared(tmp_path: Path) -> None:
    dirs = [replica(tmp_path, broker, (0, RIGHT)) for broker in (1, 2)]
    third = replica(tmp_path, 3, (0, [batch(0, value=b"another topic")]))
    for log_dir, identity in zip(
        [*dirs, third], ("AAAAAAAAAAAAAAAAAAAAAQ", "AAAAAAAAAAAAAAAAAAAAAQ", "AAAAAAAAAAAAAAAAAAAAAg"), strict=True
    ):
        (log_dir / "orders-0" / "partition.metadata").write_text(f"version: 0\ntopic_id: {identity}")
    report = diff([*dirs, third])
    assert [found.code for found in report.findings] == ["topic-id-differs"]
    assert [each.directory for each in report.partitions[0].replicas] == [str(each / "orders-0") for each in dirs]


def test_directories_of_any_name_are_replicas_of_each_other(tmp_path: Path) -> None:
    one = replica(tmp_path, 1, (0, RIGHT)) / "orders-0"
    two = replica(tmp_path, 2, (0, [*RIGHT[:3], *RIGHT[4:]])) / "orders-0"
    two = two.rename(tmp_path / "copy of a disk")
    assert codes(compared(one, two)) == [("replica-gap", 6, 7)]


def test_there_must_be_two(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="two replicas"):
        diff([replica(tmp_path, 1, (0, RIGHT))])


def test_windows_do_not_matter(tmp_path: Path) -> None:
    """The logs are longer than a window of 1 MiB and divided at different places. One window ends with a wrong offset."""
    many = [batch(offset, 10, value=b"%d" + bytes(900)) for offset in range(0, 6000, 10)]
    moved = list(many)
    for place in (109, 110, 111, 599):
        moved[place] = (7_000_000).to_bytes(8, "big") + moved[place][8:]
    one = replica(tmp_path, 1, (0, many))
    two = replica(tmp_path, 2, (0, many[:50]), (500, moved[50:300]), (3000, moved[300:]))
    found = compared(one, two)
    assert [each.missing for each in found.replicas] == [[], [(1090, 1119), (5990, 5999)]]
    assert {code for code, _, _ in codes(found)} == {"replica-damaged"}


def test_batches_with_equal_contents_are_not_taken_for_moved_ones(tmp_path: Path) -> None:
    """Without their base offsets, which no checksum covers, all batches are the same."""
    same = [offset.to_bytes(8, "big") + RIGHT[0][8:] for offset in range(0, 20, 2)]
    one = replica(tmp_path, 1, (0, same))
    two = replica(tmp_path, 2, (0, [*same[:3], flipped(same[3]), *same[4:]]))
    three = replica(tmp_path, 3, (0, [*same[:6], *same[7:]]))
    assert codes(compared(one, two, three)) == [("replica-damaged", 6, 7), ("replica-gap", 12, 13)]


def test_an_interruption_leaves_what_was_compared(tmp_path: Path) -> None:
    dirs = [replica(tmp_path, broker, (0, RIGHT)) for broker in (1, 2)]
    for log_dir in dirs:
        shutil.copytree(log_dir / "orders-0", log_dir / "orders-1")
    (dirs[0] / "orders-0" / f"{0:020d}.log").write_bytes(b"".join(RIGHT[:3]))
    read = 0

    def stop(count: int) -> None:
        nonlocal read
        read += count
        if read > len(b"".join([*RIGHT, *RIGHT[:3]])):
            raise KeyboardInterrupt

    report = diff(dirs, on_bytes=stop)
    assert [found.code for found in report.findings] == ["replica-behind"]
    assert report.left_out == ["orders-1"]


def test_ranges() -> None:
    assert joined([(5, 6), (0, 2), (3, 3), (9, 8)]) == [(0, 3), (5, 6)]
    assert without([(0, 9)], [(2, 3), (5, 5)]) == [(0, 1), (4, 4), (6, 9)]
