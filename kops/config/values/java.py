"""Java's numbers and lines: Integer.parseInt, Long.parseLong, Double.toString, BufferedReader.readLine, `\\s+` of a Pattern.

Where a sum of damaged numbers overflows, what Kafka does next depends on the 32 or 64 bits that are left (`to_int`, `to_long`). Its text
files are well-formed exactly where Java's readers say so: `+7` is a number, ` 7` and `7_0` are not, a carriage return ends a line, a
non-breaking space does not separate fields.
"""

from __future__ import annotations

import codecs
import math
import re
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterator

INT_MIN: Final = -(2**31)
INT_MAX: Final = 2**31 - 1
LONG_MIN: Final = -(2**63)
LONG_MAX: Final = 2**63 - 1

# `\s` without UNICODE_CHARACTER_CLASS; Python's would take Unicode's spaces, too.
SPACES: Final = r"[ \t\n\x0b\f\r]+"
_LINE_ENDS: Final = r"\r\n|\n|\r"
_CHUNK: Final = 8192
# What String.trim removes: everything up to the space.
_TRIMMED: Final = "".join(map(chr, range(33)))


JAVA_UTF8: Final = "kops-java"
"""The `errors` of a decode that gives what `new String(bytes, UTF_8)` gives."""


def _utf8_error(error: UnicodeError) -> tuple[str, int]:
    """A malformed sequence becomes U+FFFD as in Python, but an encoded surrogate (ED A0..BF) becomes one character."""
    assert isinstance(error, UnicodeDecodeError)
    data, start = error.object, error.start
    if data[start] == 0xED and start + 1 < len(data) and 0xA0 <= data[start + 1] <= 0xBF:
        if start + 2 < len(data) and 0x80 <= data[start + 2] <= 0xBF:
            return "\ufffd", start + 3
        return "\ufffd", start + 2
    return "\ufffd", error.end


codecs.register_error(JAVA_UTF8, _utf8_error)


def to_long(value: int) -> int:
    """An integer wrapped to 64 bits, as Java's long arithmetic does."""
    if LONG_MIN <= value <= LONG_MAX:
        return value
    return (value - LONG_MIN) % 2**64 + LONG_MIN


def to_int(value: int) -> int:
    """An integer cut to its low 32 bits, as `(int)` does."""
    return (value - INT_MIN) % 2**32 + INT_MIN


class NumberFormatError(ValueError):
    """Text that is no number to Java; the message is that of its NumberFormatException."""


def parse_int(text: str, low: int = INT_MIN, high: int = INT_MAX) -> int:
    """Integer.parseInt: one sign, decimal digits of any script, nothing around them, in range. Raises NumberFormatError."""
    digits = text[1:] if text[:1] in ("+", "-") else text
    # A digit outside of the basic plane is two chars to Java, and none of them a digit. Beyond 20 digits only zeros could lead.
    if digits and digits.isdecimal() and max(digits) <= "\uffff":
        value = int(digits) if len(digits) <= 20 else _many_digits(digits, high)
        value = -value if text[0] == "-" else value
        if low <= value <= high:
            return value
    raise NumberFormatError(f'For input string: "{text}"')


def parse_long(text: str) -> int:
    """Long.parseLong: as `parse_int` with 64 bits."""
    return parse_int(text, LONG_MIN, LONG_MAX)


def double_text(value: float) -> str:
    """Double.toString, with the fewest digits that identify the number: plain from a thousandth to ten million, else with an exponent."""
    from decimal import Decimal

    if value != value:
        return "NaN"
    if value in (math.inf, -math.inf):
        return "Infinity" if value > 0 else "-Infinity"
    if value == 0 or 1e-3 <= abs(value) < 1e7:
        text = format(Decimal(repr(value)), "f")
        return text if "." in text else f"{text}.0"
    sign, digits, _ = Decimal(repr(value)).normalize().as_tuple()
    rest = "".join(map(str, digits[1:])) or "0"
    return f"{'-' if sign else ''}{digits[0]}.{rest}E{Decimal(repr(value)).adjusted()}"


def trim(text: str) -> str:
    """String.trim: control characters and spaces at both ends."""
    return text.strip(_TRIMMED)


def split(pattern: str, text: str) -> list[str]:
    """`Pattern.split`: an empty field first where the text starts with a separator, none at the end."""
    fields = re.split(pattern, text)
    if len(fields) > 1:
        while fields and not fields[-1]:
            fields.pop()
    return fields


def split_spaces(line: str) -> list[str]:
    """`Pattern.compile("\\\\s+").split(line)`."""
    return split(SPACES, line)


def read_lines(data: bytes) -> Iterator[str]:
    """The lines of UTF-8 text as Files.newBufferedReader and readLine give them, ended by LF, CR or CR LF.

    Raises UnicodeDecodeError when it comes to the block of 8 KiB that holds the malformed byte, as Java does: what goes wrong in
    lines before it goes wrong first.
    """
    decoder = codecs.getincrementaldecoder("utf-8")()
    pending = ""
    for start in range(0, len(data), _CHUNK):
        final = start + _CHUNK >= len(data)
        pending += decoder.decode(data[start : start + _CHUNK], final)
        if final:
            break
        # A CR at the end may be half of a CR LF.
        keep = len(pending) - 1 if pending.endswith("\r") else len(pending)
        *lines, rest = re.split(_LINE_ENDS, pending[:keep])
        pending = rest + pending[keep:]
        yield from lines
    *lines, rest = re.split(_LINE_ENDS, pending)
    yield from lines
    if rest:
        yield rest


def _many_digits(digits: str, high: int) -> int:
    """A number of very many digits: its value where zeros lead, else just out of range (Python limits int() of text)."""
    zeros = 0
    while zeros < len(digits) and int(digits[zeros]) == 0:
        zeros += 1
    rest = digits[zeros:]
    return int(rest) if rest and len(rest) <= 20 else (high + 2 if rest else 0)
