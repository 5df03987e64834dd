"""What a record in a batch of a quorum's log or snapshot may have. Source: Kafka's RecordsIterator, which throws at any other one."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from kops.errors import DecodeError

if TYPE_CHECKING:
    from kops.records import Batch, Record

_CODE: Final = "bad-metadata-record"


def data_value(batch: Batch, record: Record) -> bytes:
    """Return the value of a data record, which is not empty. Raises DecodeError (`bad-metadata-record`)."""
    check_entry(batch, record)
    if record.key is not None:
        raise DecodeError("it has a key", code=_CODE)
    if not record.value:
        raise DecodeError("the value is missing" if record.value is None else "the value is empty", code=_CODE)
    return record.value


def check_entry(batch: Batch, record: Record) -> None:
    """Check a data or control record: it has the time of its batch, and no headers. Raises DecodeError (`bad-metadata-record`)."""
    if record.timestamp != batch.base_timestamp and batch.timestamp_type == "CreateTime":
        raise DecodeError("its timestamp is not that of its batch", code=_CODE)
    if record.headers:
        raise DecodeError("it has headers", code=_CODE)
