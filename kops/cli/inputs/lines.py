"""Helpers of the commands that read lines and write logs: input, clock, topic settings."""

from __future__ import annotations

import os
import stat
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, BinaryIO

from kops.errors import UsageError

if TYPE_CHECKING:
    from kops.config import TopicConfig


def clock_ms() -> int:
    """The present time in ms since 1970."""
    return time.time_ns() // 1_000_000


@contextmanager
def input_lines(path: str) -> Iterator[tuple[BinaryIO, int | None]]:
    """A file, or stdin for `-`, and its size in bytes if it is known."""
    if path == "-":
        yield sys.stdin.buffer, None
        return
    with open(path, "rb") as file:
        status = os.fstat(file.fileno())
        yield file, status.st_size if stat.S_ISREG(status.st_mode) else None


def topic_settings(settings: Sequence[str] | None) -> dict[str, str]:
    """The checked topic settings of `--config K=V`. Raises UsageError that names the option, key, value and allowed values."""
    from kops.config.topic import parse_settings, topic_config

    found = parse_settings(settings or (), source="--config")
    try:
        topic_config(found)
    except UsageError as error:
        raise UsageError(f"--config: {error}") from error
    return found


def parse_config(settings: Sequence[str] | None) -> TopicConfig:
    """The same as a TopicConfig."""
    from kops.config.topic import topic_config

    return topic_config(topic_settings(settings))
