"""Common to all command lines: the flags that may come before a command's name, and the error if no command is named."""

from __future__ import annotations

HELP_FLAGS = ("-h", "--help")
VERSION_FLAGS = ("-V", "--version")
# Common options that may also come before the command's name. True: the option takes a value.
COMMON = {
    "--format": True,
    "-o": True,
    "--output": True,
    "-q": False,
    "--quiet": False,
    "-v": False,
    "--verbose": False,
    "--no-color": False,
}


class Stop(Exception):
    """Wrong usage, found before a command is known: the message, and the part of the path that was recognized."""

    def __init__(self, message: str, path: tuple[str, ...]) -> None:
        super().__init__(message)
        self.path = path
