"""The codes with which a scan and a batch name what is wrong with bytes (`kops.records`), as the findings name it.

`dump`, `recover` and Spark's columns have the codes of the scan. They say nothing about the place: whether damage is at the end of a log is
known to `verify` only, so a code of a scan may be one of several findings.
"""

from __future__ import annotations

from typing import Final

__all__ = ["FINDINGS", "finding_code"]

FINDINGS: Final[dict[str, tuple[str, ...]]] = {
    "bad-length": ("batch-length-invalid",),
    "crc-mismatch": ("batch-crc-mismatch",),
    "unknown-magic": ("batch-magic-invalid",),
    "torn-tail": ("torn-tail",),
    "zeroes": ("zeroed-range", "zero-tail"),
    "garbage": ("unreadable-bytes", "garbage-tail"),
    "bad-offsets": ("batch-offsets-disorder",),
    "bad-timestamps": ("batch-max-timestamp-mismatch",),
    **dict.fromkeys(
        ("bad-records", "bad-compression", "bad-control-record", "unknown-codec", "too-large", "bad-inner-crc", "bad-varint"),
        ("batch-undecodable",),
    ),
}
"""The findings of each code of a scan or batch; the one that says nothing about the place is the first."""


def finding_code(code: str) -> str:
    """The finding for a code of a scan or of a batch."""
    return FINDINGS.get(code, ("batch-undecodable",))[0]
