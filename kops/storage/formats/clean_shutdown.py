"""`.kafka_cleanshutdown`: the mark of a clean stop.

That it exists is what counts; a broker removes it when it starts. Until 3.6 it is empty, later it holds `{"version":0,"brokerEpoch":N}`
(KIP-966), and a broker that can't read it starts without the epoch. Source: Kafka's CleanShutdownFileHandler.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from kops.config.values.java import INT_MAX, INT_MIN, LONG_MAX, LONG_MIN, NumberFormatError, parse_int, trim
from kops.storage.formats.json_text import read_json, write_json

CURRENT_VERSION: Final = 0


@dataclass(slots=True)
class CleanShutdown:
    """The mark's contents: the broker epoch of the clean stop, None if there is none to be read, and then why."""

    broker_epoch: int | None = None
    version: int = CURRENT_VERSION
    problem: str | None = None


def read_clean_shutdown(data: bytes) -> CleanShutdown:
    """The contents. Kafka takes any, so nothing is raised: `problem` says why the epoch can't be read."""
    if not data:
        return CleanShutdown(problem="empty")
    try:
        node = read_json(data.decode("utf-8", "replace"))
        if not isinstance(node, dict):
            raise ValueError("no JSON object")
        version = _number(node.get("version", 0), 32) or 0
        epoch = _number(node.get("brokerEpoch"), 64)
        if epoch is None:
            raise ValueError("brokerEpoch is missing")
    except ValueError as error:
        return CleanShutdown(problem=str(error))
    return CleanShutdown(epoch, version)


def write_clean_shutdown(mark: CleanShutdown) -> bytes:
    """The file's bytes; empty, as old versions wrote it, where there is no epoch."""
    if mark.broker_epoch is None:
        return b""
    return write_json({"version": mark.version, "brokerEpoch": mark.broker_epoch}).encode()


def _number(value: object, bits: int) -> int | None:
    """A JSON value as Jackson binds it to int or Long: also from a string, also cut from a fraction. Raises ValueError."""
    low, high = (LONG_MIN, LONG_MAX) if bits == 64 else (INT_MIN, INT_MAX)
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        raise ValueError(f"{value} is no number")
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
