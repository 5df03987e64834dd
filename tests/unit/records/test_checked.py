"""A scan does not check again what an earlier scan of the same bytes has checked, and finds the same."""

from __future__ import annotations

from kops.records import Batch, BytesSource, Columns, Damage, scan_columns
from kops.records.build import write_batch
from kops.records.scanning.checked import Checked, CheckedRange


class CheckedBytes(BytesSource):
    """Bytes that can be changed behind a scan's back."""

    def __init__(self, data: bytes, checked: Checked) -> None:
        super().__init__(data)
        self.checked = checked


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
    checked = Checked()
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
    checked = Checked()
    headers(CheckedBytes(data, checked))
    changed = bytearray(data)
    changed[-70] ^= 1
    assert headers(CheckedBytes(bytes(changed), checked), start=len(batch(0))) == headers(BytesSource(bytes(changed)), len(batch(0)))


def test_records_that_were_judged_are_not_judged_again() -> None:
    data = batch(0) + batch(1)  # These records do not fit their headers.
    checked = Checked()
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


def test_ranges() -> None:
    checked = Checked()
    for start, end, is_sound in ((100, 200, True), (0, 50, False), (200, 300, True), (50, 60, True), (250, 400, False), (90, 101, True)):
        checked.add(start, end, is_sound)
    assert checked.ranges == [CheckedRange(0, 50, False), CheckedRange(50, 60, True), CheckedRange(100, 300, True)]
    assert checked.at(100, False) == checked.at(299, True) == CheckedRange(100, 300, True)
    assert checked.at(150, False) is checked.at(60, True) is checked.at(300, True) is None
    assert [checked.covers(size) for size in (0, 60, 61)] == [True, True, False]
    assert checked.part(55, 150) == [CheckedRange(55, 60, True), CheckedRange(100, 150, True)]
