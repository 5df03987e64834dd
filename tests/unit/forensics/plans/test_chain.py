"""The log that a partition's batches form."""

from __future__ import annotations

import pickle
import sys
from random import Random

from kops._compiled import status
from kops.files import MemoryFiles
from kops.forensics.plans.chain import chain
from kops.forensics.plans.items import Bad, Item, read_items
from kops.forensics.plans.neighbours import mend_epochs
from kops.records import Batch, BatchBuilder
from kops.records.build import empty_batch

PATH = "/00000000000000000000.log"


def items(files: MemoryFiles, *spans: tuple[int, int]) -> list[Item]:
    """Return batches with these first and last offsets, one after the other in a file."""
    found, position, content = [], 0, b""
    for first, last in spans:
        builder = BatchBuilder(base_offset=first)
        for _ in range(first, last + 1):
            builder.append(1, b"k", b"at %d" % position)
        packed = builder.build()
        found.append(Item.of(PATH, Batch(packed, 0, position)))
        position += len(packed)
        content += packed
    files.write_all(PATH, content)
    return found


def test_what_increases_is_the_log() -> None:
    files = MemoryFiles()
    made = items(files, (0, 2), (3, 3), (7, 9))
    assert chain(files, made) == (made, [])


def test_no_offset_is_in_the_log_twice() -> None:
    files = MemoryFiles()
    log, aside = chain(files, items(files, (0, 2), (2, 4), (5, 6), (7, 8)))
    offsets = [offset for item in log for offset in range(item.base, item.last + 1)]
    assert len(offsets) == len(set(offsets))
    assert len(aside) == 1


def test_no_batch_begins_before_the_start() -> None:
    files = MemoryFiles()
    log, _ = chain(files, items(files, (4, 5), (6, 6)), start=6)
    assert [item.base for item in log] == [6]


def test_a_wrong_offset_below_the_batch_before_it_is_mended() -> None:
    files = MemoryFiles()
    log, aside = chain(files, items(files, (0, 9), (10, 12), (7, 10), (17, 18)))
    assert [(item.base, item.last) for item in log] == [(0, 9), (10, 12), (13, 16), (17, 18)]
    assert aside == []


def test_in_a_log_with_another_hole_no_hole_is_filled_by_its_size() -> None:
    """The cleaner may have left both holes, and the batch before may be the wrong one. So the intact batch does not move."""
    files = MemoryFiles()
    log, aside = chain(files, items(files, (0, 2), (8, 8), (8, 10), (12, 12)))
    assert [(item.base, item.last) for item in log] == [(0, 2), (8, 8), (12, 12)]
    assert [(left.item.base, left.is_copy) for left in aside] == [(8, False)]


def test_two_batches_outvote_one_wrong_offset() -> None:
    files = MemoryFiles()
    log, aside = chain(files, items(files, (0, 1), (6, 6), (5, 5), (4, 6), (7, 7)))
    assert [(item.base, item.last) for item in log] == [(0, 1), (5, 5), (6, 6), (7, 7)]
    assert [(left.item.base, left.is_copy) for left in aside] == [(4, False)]


def test_a_batch_that_may_belong_behind_the_damaged_end_is_not_moved() -> None:
    files = MemoryFiles()
    made = items(files, (0, 1), (9, 9), (3, 4))
    assert [item.base for item in chain(files, made)[0]] == [0, 2, 3]
    torn = Bad(PATH, made[-1].end, 50, "torn-tail", "")
    log, aside = chain(files, made, [torn])
    assert [item.base for item in log] == [0, 3]
    assert [left.item.base for left in aside] == [9]


def test_a_batch_in_disorder_keeps_its_offsets_if_its_place_has_no_room_for_it() -> None:
    """So it is not its offset that is wrong. Where it fits between its neighbours, either may be."""
    files = MemoryFiles()
    log, aside = chain(files, items(files, (8, 8), (6, 7), (1 << 40, 1 << 40), (0, 2)))
    assert [(item.base, item.last) for item in log] == [(0, 2), (6, 7), (8, 8)]
    assert [(left.item.base, left.why[:34]) for left in aside] == [(1 << 40, "its offsets are far from those of ")]
    log, aside = chain(files, items(files, (0, 2), (18, 22), (3, 3)))
    assert [(item.base, item.last) for item in log] == [(0, 2), (3, 3), (18, 22)]
    log, aside = chain(files, items(files, (0, 2), (18, 18), (4, 4)))
    assert [(item.base, item.last) for item in log] == [(0, 2), (3, 3), (4, 4)]
    assert aside == []


def test_different_gzip_sets_may_have_the_same_checksum() -> None:
    """gzip ends with the checksum of its contents, so that of a set with stored contents depends on nothing but their length."""
    content, made = b"", []
    files = MemoryFiles()
    noise = Random(1)
    for offset in (0, 1, 3, 2, 4):
        builder = BatchBuilder(magic=0, codec="gzip", base_offset=offset)
        builder.append(-1, None, noise.randbytes(200))
        made.append(Item.of(PATH, Batch(builder.build(), 0, len(content))))
        content += builder.build()
    files.write_all(PATH, content)
    assert made[3].crc in {item.crc for item in made if item is not made[3]}
    log, aside = chain(files, made)
    assert [item.base for item in log] == [0, 1, 2, 3, 4]
    assert aside == []


def test_an_empty_batch_takes_no_place_of_records() -> None:
    files = MemoryFiles()
    made = items(files, (0, 8), (12, 13), (15, 16))
    empty = empty_batch(base_offset=11, last_offset=13, timestamp=1, partition_leader_epoch=0)
    data = files.read_all(PATH)
    files.write_all(PATH, data[: made[2].position] + empty + data[made[2].position :])
    log, _ = chain(files, read_items(files, PATH)[0])
    assert [(item.base, item.last) for item in log] == [(0, 8), (12, 13), (15, 16)]


def legacy(files: MemoryFiles, path: str, *messages: tuple[int, bytes]) -> list[Item]:
    """Return messages of v0 with these offsets and values, one after the other in a file."""
    content = b""
    for offset, value in messages:
        builder = BatchBuilder(magic=0, base_offset=offset)
        builder.append(-1, None, value)
        content += builder.build()
    files.write_all(path, content)
    return read_items(files, path)[0]


def test_a_copy_gives_way_to_a_batch_that_the_log_has_nowhere_else() -> None:
    """The message at 4 in file order is a copy of that at 2, under a wrong offset. The real one is in the wrong place."""
    files = MemoryFiles()
    made = legacy(files, PATH, (0, b"a"), (4, b"e"), (2, b"c"), (3, b"d"), (4, b"c"), (5, b"f"))
    log, aside = chain(files, made)
    assert [(item.base, item.position) for item in log] == [(made[at].base, made[at].position) for at in (0, 2, 3, 1, 5)]
    assert [(left.item.position, left.is_copy) for left in aside] == [(made[4].position, True)]


def _with_epoch(item: Item, epoch: int) -> Item:
    changed = Item(*item.fields())
    changed.epoch = epoch
    return changed


def test_an_item_takes_few_bytes_and_is_the_same_after_pickling() -> None:
    """A plan of a damaged segment of a GiB keeps a million of them. Interpreted, its numbers are objects of their own."""
    made = legacy(MemoryFiles(), PATH, (0, b"a"))[0]
    assert sys.getsizeof(made) <= (168 if status("kops.forensics.plans.item").state == "compiled" else 176)
    assert pickle.loads(pickle.dumps(made)) == made
    assert _with_epoch(made, 5) != made


def test_an_impossible_leader_epoch_is_wrong_wherever_it_stands() -> None:
    files = MemoryFiles()
    made = items(files, (0, 2), (3, 4), (5, 6))
    for wrong in (0, 1, 2):
        log = [_with_epoch(item, -(1 << 31) if number == wrong else 0) for number, item in enumerate(made)]
        assert [item.epoch for item in mend_epochs(files, log)] == [0, 0, 0]
        assert [number for number, item in enumerate(mend_epochs(files, log)) if item.note] == [wrong]
    for wrong in (-(1 << 31), -1):
        log = [_with_epoch(made[0], 0), _with_epoch(made[1], wrong)]
        assert [item.epoch for item in mend_epochs(files, log)] == [0, 0]
    early = [_with_epoch(item, epoch) for item, epoch in zip(made, (-1, -1, 0), strict=True)]
    assert mend_epochs(files, early) == early
