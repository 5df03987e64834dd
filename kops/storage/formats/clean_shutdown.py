"""`.kafka_cleanshutdown`: the file that marks a clean stop.

Its mere existence is the mark, and a broker removes it when it starts. Up to Kafka 3.6 the file is empty; later versions write
`{"version":0,"brokerEpoch":N}` (KIP-966). A broker that can't read the contents starts without the epoch. Source: Kafka's
CleanShutdownFileHandler.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from kops.config.values.java import INT_MAX, INT_MIN, LONG_MAX, LONG_MIN, NumberFormatError, parse_int, trim
from kops.storage.formats.json_text import read_json, write_json

CURRENT_VERSION: Final = 0


@dataclass(slots=True)
class CleanShutdown:
    """The file's contents. `broker_epoch` is the epoch at the clean stop, or None if it can't be read; `problem` then says why."""

    broker_epoch: int | None = None
    version: int = CURRENT_VERSION
    problem: str | None = None


def read_clean_shutdown(data: bytes) -> CleanShutdown:
    """Return the contents. Kafka accepts any contents, so nothing is raised; `problem` says why the epoch can't be read."""
    if not data:
        return CleanShutdown(problem="empty")
    try:
        node = read_json(data.decode("utf-8", "replace"))
        if not isinstance(node, dict):
            raise ValueError("not a JSON object")
        version = _number(node.get("version", 0), 32) or 0
        epoch = _number(node.get("brokerEpoch"), 64)
        if epoch is None:
            raise ValueError("brokerEpoch is missing")
    except ValueError as error:
        return CleanShutdown(problem=str(error))
    return CleanShutdown(epoch, version)


def write_clean_shutdown(mark: CleanShutdown) -> bytes:
    """Return the file's bytes. Without an epoch the file is empty, as old versions wrote it."""
    if mark.broker_epoch is None:
        return b""
    return write_json({"version": mark.version, "brokerEpoch": mark.broker_epoch}).encode()


def _number(value: object, bits: int) -> int | None:
    """Convert a JSON value as Jackson does for an int or Long: strings are parsed, fractions are cut off. Raises ValueError."""
    low, high = (LONG_MIN, LONG_MAX) if bits == 64 else (INT_MIN, INT_MAX)
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        raise ValueError(f"{value} is not a number")
    if isinstance(value, str):
        text = trim(value)
        if not text or text == "null":
            return None
        try:
            return parse_int(text, low, high)
        except NumberFormatError as error:
            raise ValueError(str(error)) from error
    if not low <= value <= high:
        raise ValueError(f"{value} is out of range")
    return int(value)
