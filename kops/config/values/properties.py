"""Java's .properties files, read and written as java.util.Properties does.

A logical line is `key=value`, `key:value` or `key value`. A line whose first character is `#` or `!` is a comment. An odd number of
backslashes at a line's end continues it. `\\uXXXX`, `\\t`, `\\n`, `\\r`, `\\f` and a backslash before any other character are escapes.
Kafka reads its files with Properties.load(InputStream), which takes every byte as one character (ISO-8859-1), and writes `meta.properties`
through a UTF-8 writer.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from kops.config.values.java_hash import utf16
from kops.errors import DecodeError

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

_BLANKS: Final = " \t\f"
_ESCAPES: Final = {"t": "\t", "r": "\r", "n": "\n", "f": "\f"}
_UNESCAPES: Final = {"\t": "\\t", "\n": "\\n", "\r": "\\r", "\f": "\\f", "\\": "\\\\", "=": "\\=", ":": "\\:", "#": "\\#", "!": "\\!"}
_LINE_ENDS = re.compile(r"\r\n|\n|\r")
_HEX: Final = frozenset("0123456789abcdefABCDEF")


def read_properties(data: bytes | str, *, file: str | None = None) -> dict[str, str]:
    """Return keys and values in the file's order. The last value of a repeated key counts.

    Every byte is a character of ISO-8859-1, as in Properties.load(InputStream). Raises DecodeError (`properties`) where Java throws
    IllegalArgumentException: a `\\u` without four hexadecimal digits.
    """
    found: dict[str, str] = {}
    text = data if isinstance(data, str) else data.decode("latin-1")
    for number, line in _logical_lines(text):
        end, value_start = _split(line)
        try:
            key = _unescape(line[:end])
            value = _unescape(line[value_start:])
        except ValueError as error:
            raise DecodeError(f"line {number}: {error}", code="properties", file=file) from error
        found[key] = value
    return found


def write_properties(values: Mapping[str, str], *, comments: Iterable[str] = (), escape_unicode: bool = False) -> str:
    """Return the text that Properties.store writes: comment lines (without their `#`; Java's second one is the date), then the values in
    order.

    With `escape_unicode`, characters other than printable ASCII become `\\uXXXX`, as in store(OutputStream) but not in store(Writer).
    """
    lines = [f"#{comment}" for comment in comments]
    for key, value in values.items():
        lines.append(f"{_escape(key, True, escape_unicode)}={_escape(value, False, escape_unicode)}")
    return "".join(f"{line}\n" for line in lines)


def java_date(time_ms: int) -> str:
    """Return java.util.Date.toString in UTC, as Properties.store writes it: `Sat Nov 21 11:43:46 UTC 2026`."""
    import time

    parts = time.gmtime(time_ms // 1000)
    day = ("Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun")[parts.tm_wday]
    month = ("Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec")[parts.tm_mon - 1]
    return f"{day} {month} {parts.tm_mday:02d} {parts.tm_hour:02d}:{parts.tm_min:02d}:{parts.tm_sec:02d} UTC {parts.tm_year}"


def _logical_lines(text: str) -> Iterable[tuple[int, str]]:
    """Yield each logical line with the number of its first natural line (from 1), without comments and blank lines."""
    natural = _LINE_ENDS.split(text)
    last = len(natural) - 1
    pending = ""
    first = 0
    continued = False
    for number, line in enumerate(natural):
        line = line.lstrip(_BLANKS)
        # An empty last piece is the end of the file and not a line. A blank line ends a continued line, but is not a line itself.
        if not pending and (not line or line[0] in "#!"):
            continued = False
            continue
        if not continued:
            first = number + 1
        backslashes = len(line) - len(line.rstrip("\\"))
        if backslashes % 2:
            pending += line[:-1]
            # At the end of the file there is nothing to continue with. If it ends with CR LF, Java does not notice that.
            ends = number == last or (number == last - 1 and not natural[last] and not text.endswith("\r\n"))
            if not ends:
                continued = True
                continue
        else:
            pending += line
        yield first, pending
        pending = ""
        continued = False
    if pending:
        yield first, pending


def _split(line: str) -> tuple[int, int]:
    """Return where the key ends and where the value starts."""
    escaped = False
    end = 0
    while end < len(line) and (escaped or line[end] not in "=: \t\f"):
        escaped = line[end] == "\\" and not escaped
        end += 1
    start = end
    separated = False
    while start < len(line):
        if line[start] in "=:":
            if separated:
                break
            separated = True
        elif line[start] not in _BLANKS:
            break
        start += 1
    return end, start


def _unescape(text: str) -> str:
    if "\\" not in text:
        return text
    parts = []
    position = 0
    while True:
        at = text.find("\\", position)
        if at < 0:
            parts.append(text[position:])
            break
        parts.append(text[position:at])
        escaped = text[at + 1 : at + 2]
        position = at + 2
        if escaped == "u":
            digits = text[position : position + 4]
            if len(digits) < 4 or not _HEX.issuperset(digits):
                raise ValueError(f"\\u{digits} is malformed: four hexadecimal digits must follow \\u")
            parts.append(chr(int(digits, 16)))
            position += 4
        else:
            parts.append(_ESCAPES.get(escaped, escaped))
    # Two escapes may be the halves of one character outside the basic plane.
    return "".join(parts).encode("utf-16-le", "surrogatepass").decode("utf-16-le", "surrogatepass")


def _escape(text: str, is_key: bool, escape_unicode: bool) -> str:
    parts = []
    for i, char in enumerate(text):
        if char == " ":
            parts.append("\\ " if is_key or i == 0 else " ")
        elif char in _UNESCAPES:
            parts.append(_UNESCAPES[char])
        elif escape_unicode and not " " <= char <= "~":
            parts.extend(f"\\u{unit:04X}" for unit in utf16(char))
        else:
            parts.append(char)
    return "".join(parts)
