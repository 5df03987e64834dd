"""What the error of an append says if its records do not follow the log."""

from __future__ import annotations

import pytest

from kops.errors import ApiError
from kops.records import BatchBuilder
from kops.records.build import write_batch
from kops.records.crc import crc32c
from kops.records.validation.validate import AppendOrigin
from kops.storage.log_append import UnexpectedAppendOffsetError, analyze_records, check_given_offsets


def batch(offset: int, epoch: int) -> bytes:
    builder = BatchBuilder(base_offset=offset, partition_leader_epoch=epoch)
    for _ in range(2):
        builder.append(1000, None, b"v")
    return builder.build()


def check(data: bytes) -> None:
    info, _ = analyze_records(data, AppendOrigin.REPLICATION, 1, "t-0", 0, 0, crc32c)
    check_given_offsets(info, data, "t-0", 3)


def test_the_first_ten_offsets_are_of_all_that_was_fetched() -> None:
    """They include the batches of a later epoch, which would not be written. The last offset is only that of the batches to write."""
    text = (
        "Unexpected offset in append to t-0. First offset 0 is less than the next offset 3. First 10 offsets in append: 0, 1, 2, 3, 4, 5, "
        "last offset in append: 3. Log start offset = 0"
    )
    with pytest.raises(UnexpectedAppendOffsetError) as caught:
        check(batch(0, 1) + batch(2, 1) + batch(4, 2))
    assert str(caught.value) == text
    check(batch(3, 1))


def test_records_that_cannot_be_read() -> None:
    with pytest.raises(ApiError) as caught:
        check(batch(0, 1) + write_batch(b"\xff\xff", base_offset=2, last_offset=2, count=1, partition_leader_epoch=2))
    assert caught.value.name == "INVALID_RECORD"
