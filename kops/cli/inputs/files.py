"""Files that options name. An error names the option; a missing file is exit code 3."""

from __future__ import annotations

import sys

from kops.errors import KopsError, NotFoundError, UsageError


def read_bytes(path: str, option: str) -> bytes:
    """The contents of a file; `-` is stdin. Raises NotFoundError, UsageError if stdin is closed, KopsError if the file can't be read."""
    if path == "-" and sys.stdin is None:
        raise UsageError(f"{option} -: standard input is closed: name a file")
    try:
        if path == "-":
            return sys.stdin.buffer.read()
        with open(path, "rb") as file:
            return file.read()
    except FileNotFoundError:
        raise NotFoundError(f"{option} {path}: no such file") from None
    except OSError as error:
        raise KopsError(f"{option} {path}: {error.strerror or error}") from error


def read_text(path: str, option: str) -> str:
    """The same as text. Raises KopsError if it is not UTF-8."""
    try:
        return read_bytes(path, option).decode()
    except UnicodeDecodeError as error:
        raise KopsError(f"{option} {path}: not UTF-8 text (byte {error.start})") from None
