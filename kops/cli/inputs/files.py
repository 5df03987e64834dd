"""Files that options or arguments name. An error names the option, if there is one; a missing file is exit code 3."""

from __future__ import annotations

import sys

from kops.errors import KopsError, NotFoundError, UsageError


def read_bytes(path: str, option: str = "") -> bytes:
    """The contents of a file; `-` is stdin. Raises NotFoundError, UsageError if stdin is closed, KopsError if the file can't be read."""
    if path == "-" and sys.stdin is None:
        raise UsageError(f"{_named('-', option)}: standard input is closed: name a file")
    try:
        if path == "-":
            return sys.stdin.buffer.read()
        with open(path, "rb") as file:
            return file.read()
    except FileNotFoundError:
        raise NotFoundError(f"{_named(path, option)}: no such file") from None
    except OSError as error:
        raise KopsError(f"{_named(path, option)}: {error.strerror or error}") from error


def _named(path: str, option: str) -> str:
    return f"{option} {path}" if option else path


def read_text(path: str, option: str = "") -> str:
    """The same as text. Raises KopsError if it is not UTF-8."""
    try:
        return read_bytes(path, option).decode()
    except UnicodeDecodeError as error:
        raise KopsError(f"{_named(path, option)}: not UTF-8 text (byte {error.start})") from None
