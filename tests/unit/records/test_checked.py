"""A scan does not check again what an earlier scan of the same bytes has checked, and finds the same."""

from __future__ import annotations

import errno

import pytest

from kops.records import Batch, BytesSource, Columns, Damage, scan_columns
from kops.records.build import write_batch
from kops.records.scanning.checked import Checked, CheckedRange


class CheckedBytes(BytesSource):
    """Bytes that can be changed behind a scan's back."""

    def __init__(self, data: bytes, checked: Checked[Columns]) -> None:
        super().__init__(data)
        self.checked = checked
        self.bytes_read = 0

    def read(self, position: int, size: int) -> bytes:
        data = super().read(position, size)
        self.bytes_read += len(data)
        return data


def batch(number: int, size: int = 200) -> bytes:
    return write_batch(bytes([number]) * size, base_offset=number, last_offset=number, count=1)


def headers(source: BytesSource, start: int = 0, window: int = 1000) -> list[object]:
    found: list[object] = []
    for each in scan_columns(source, start, window=window):
        found += [(each.position, each.end, each.code)] if isinstance(each, Damage) else list(zip(each.positions, each.rows, strict=True))
    return found


def log_with_damage() -> bytes:
    damaged = bytearray(batch(3))
    damaged[100] ^= 1
    return b"".join([batch(0), batch(1), batch(2), bytes(damaged), batch(4), batch(5, 3000), batch(6), batch(7)])


def test_a_second_scan_finds_the_same_and_computes_no_checksum_of_what_is_known() -> None:
    data = log_with_damage()
    checked: Checked[Columns] = Checked()
    first = headers(CheckedBytes(data, checked))
    assert first == headers(BytesSource(data))
    size = len(batch(0))
    assert checked.ranges == [CheckedRange(0, 3 * size, False), CheckedRange(4 * size, len(data), False)]
    assert headers(CheckedBytes(data, checked)) == first
    assert headers(CheckedBytes(data, checked), window=333) == first
    # A change that the scan can't see shows that it does not look.
    changed = bytearray(data)
    for position in (70, size + 70, len(data) - 70):
        changed[position] ^= 1
    assert headers(CheckedBytes(bytes(changed), checked)) == first
    assert headers(BytesSource(bytes(changed))) != first


def test_a_scan_that_begins_in_the_middle_of_what_is_known_checks() -> None:
    """The place may be in the middle of a batch."""
    data = batch(0) + batch(1) + batch(2)
    checked: Checked[Columns] = Checked()
    headers(CheckedBytes(data, checked))
    changed = bytearray(data)
    changed[-70] ^= 1
    assert headers(CheckedBytes(bytes(changed), checked), start=len(batch(0))) == headers(BytesSource(bytes(changed)), len(batch(0)))


def test_records_that_were_judged_are_not_judged_again() -> None:
    data = batch(0) + batch(1)  # These records do not fit their headers.
    checked: Checked[Columns] = Checked()
    (found,) = scan_columns(CheckedBytes(data, checked))
    assert isinstance(found, Columns) and found.unsound() == [0, 1]
    checked.ranges.clear()
    for each in scan_columns(CheckedBytes(data, checked)):
        assert isinstance(each, Columns)
        each.is_sound = True
    assert checked.ranges == [CheckedRange(0, len(data), True)]
    (found,) = scan_columns(CheckedBytes(data, checked))
    assert isinstance(found, Columns) and found.unsound() == []
    assert isinstance(found.batch(0), Batch)


@pytest.mark.parametrize("window", [333, 1000, 1 << 20])
def test_a_scan_reads_nothing_of_which_the_headers_are_kept(window: int) -> None:
    intact = b"".join(batch(number, 100 * number) for number in range(20))
    checked: Checked[Columns] = Checked(lambda count: True)
    first = headers(CheckedBytes(intact, checked), window=window)
    again = CheckedBytes(intact, checked)
    assert headers(again) == first == headers(BytesSource(intact))
    assert again.bytes_read == 0
    checked = Checked(lambda count: True)
    data = log_with_damage() + b"".join(batch(number, 5000) for number in range(8, 20))
    first = headers(CheckedBytes(data, checked), window=window)
    again = CheckedBytes(data, checked)
    assert headers(again) == first == headers(BytesSource(data))
    assert 0 < again.bytes_read < 20_000 < len(data)  # What follows the damage is searched for again.
    unchecked = CheckedBytes(data, checked)
    columns = next(iter(scan_columns(unchecked, check_crc=False)))
    assert isinstance(columns, Columns) and unchecked.bytes_read == 0
    assert bytes(columns.batch(0).data()) == batch(0)
    assert columns.unsound() == list(range(len(columns))) and unchecked.bytes_read == columns.end


def test_headers_are_kept_only_as_far_as_there_is_room() -> None:
    data = b"".join(map(batch, range(10)))
    size = len(batch(0))
    left = [6]

    def may_keep(count: int) -> bool:
        left[0] -= count
        return left[0] >= 0

    checked: Checked[Columns] = Checked(may_keep)
    window = 2 * size + 10
    first = headers(CheckedBytes(data, checked), window=window)
    again = CheckedBytes(data, checked)
    assert headers(again, window=window) == first
    assert sorted(checked.windows) == [0, 2 * size, 4 * size]
    assert 4 * size <= again.bytes_read < 6 * size


def test_what_is_found_out_about_kept_headers_stays_known() -> None:
    data = batch(0) + batch(1)  # These records do not fit their headers.
    checked: Checked[Columns] = Checked(lambda count: True)
    list(scan_columns(CheckedBytes(data, checked)))
    for expected in ([0, 1], []):
        for found in scan_columns(CheckedBytes(data, checked)):
            assert isinstance(found, Columns) and found.unsound() == expected
            found.is_sound = True


def test_bytes_that_are_gone_since_their_headers_were_kept_are_an_error() -> None:
    data = batch(0) + batch(1)
    checked: Checked[Columns] = Checked(lambda count: True)
    list(scan_columns(CheckedBytes(data, checked)))
    source = CheckedBytes(data, checked)
    (found,) = scan_columns(source)
    assert isinstance(found, Columns)
    source.data = data[:-1]
    with pytest.raises(OSError, match="ends before position") as raised:
        found.batch(0)
    assert raised.value.errno == errno.ESTALE


def test_kept_headers_of_a_part_stand_where_the_part_stands() -> None:
    data = b"".join(map(batch, range(6)))
    size = len(batch(0))
    checked: Checked[Columns] = Checked(lambda count: True)
    list(scan_columns(CheckedBytes(data, checked), window=3 * size))
    for start, end in ((0, 6), (1, 5), (2, 3), (3, 6), (4, 4)):
        moved: Checked[Columns] = Checked()
        for each in checked.moved(start * size, end * size, 1000):
            moved.windows[each.position] = each
        found = [place for each in moved.windows.values() for place in zip(each.positions, each.rows, strict=True)]
        rows = [row for found in scan_columns(BytesSource(data)) if isinstance(found, Columns) for row in found.rows]
        assert found == [(1000 + number * size, row) for number, row in enumerate(rows[start:end])]


def test_ranges() -> None:
    checked: Checked[Columns] = Checked()
    for start, end, is_sound in ((100, 200, True), (0, 50, False), (200, 300, True), (50, 60, True), (250, 400, False), (90, 101, True)):
        checked.add(start, end, is_sound)
    assert checked.ranges == [CheckedRange(0, 50, False), CheckedRange(50, 60, True), CheckedRange(100, 300, True)]
    assert checked.at(100, False) == checked.at(299, True) == CheckedRange(100, 300, True)
    assert checked.at(150, False) is checked.at(60, True) is checked.at(300, True) is None
    assert [checked.covers(size) for size in (0, 60, 61)] == [True, True, False]
    assert checked.part(55, 150) == [CheckedRange(55, 60, True), CheckedRange(100, 150, True)]
