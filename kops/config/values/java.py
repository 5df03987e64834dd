"""Java's numbers and lines: Integer.parseInt, Long.parseLong, Double.toString, BufferedReader.readLine, `\\s+` of a Pattern.

If a sum of damaged numbers overflows, the remaining 32 or 64 bits decide what Kafka does next (`to_int`, `to_long`). Kafka's text files are
well-formed exactly if Java's readers accept them: `+7` is a number, ` 7` and `7_0` are not, a carriage return ends a line, and a
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

# `\s` without UNICODE_CHARACTER_CLASS. Python's would also match Unicode's spaces.
SPACES: Final = r"[ \t\n\x0b\f\r]+"
_LINE_ENDS: Final = r"\r\n|\n|\r"
_CHUNK: Final = 8192
# The characters that String.trim removes: everything up to the space.
_TRIMMED: Final = "".join(map(chr, range(33)))


JAVA_UTF8: Final = "kops-java"
"""The argument `errors` for decoding as `new String(bytes, UTF_8)` does."""


def _utf8_error(error: UnicodeError) -> tuple[str, int]:
    """Replace a malformed sequence with U+FFFD, as Python does. An encoded surrogate (ED A0..BF) becomes a single character."""
    assert isinstance(error, UnicodeDecodeError)
    data, start = error.object, error.start
    if data[start] == 0xED and start + 1 < len(data) and 0xA0 <= data[start + 1] <= 0xBF:
        if start + 2 < len(data) and 0x80 <= data[start + 2] <= 0xBF:
            return "\ufffd", start + 3
        return "\ufffd", start + 2
    return "\ufffd", error.end


codecs.register_error(JAVA_UTF8, _utf8_error)


def to_long(value: int) -> int:
    """Wrap an integer to 64 bits, as Java's long arithmetic does."""
    if LONG_MIN <= value <= LONG_MAX:
        return value
    return (value - LONG_MIN) % 2**64 + LONG_MIN


def to_int(value: int) -> int:
    """Cut an integer to its low 32 bits, as `(int)` does."""
    if INT_MIN <= value <= INT_MAX:
        return value
    return (value - INT_MIN) % 2**32 + INT_MIN


class NumberFormatError(ValueError):
    """A text that Java does not accept as a number. The message is that of Java's NumberFormatException."""


def parse_int(text: str, low: int = INT_MIN, high: int = INT_MAX) -> int:
    """Parse as Integer.parseInt does: one sign, decimal digits of any script, nothing around them, in range. Raises NumberFormatError."""
    digits = text[1:] if text[:1] in ("+", "-") else text
    # Java sees a digit outside the basic plane as two chars, which are not digits. With more than 20 digits, only leading zeros could be in
    # range.
    if digits and digits.isdecimal() and max(digits) <= "\uffff":
        value = int(digits) if len(digits) <= 20 else _many_digits(digits, high)
        value = -value if text[0] == "-" else value
        if low <= value <= high:
            return value
    raise NumberFormatError(f'For input string: "{text}"')


def parse_long(text: str) -> int:
    """Parse as Long.parseLong does, like `parse_int` but with 64 bits."""
    return parse_int(text, LONG_MIN, LONG_MAX)


def double_text(value: float) -> str:
    """Return Double.toString, the fewest digits that identify the number: plain from a thousandth to ten million, else with an exponent."""
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
    """Remove control characters and spaces at both ends, as String.trim does."""
    return text.strip(_TRIMMED)


def split(pattern: str, text: str) -> list[str]:
    """Split as `Pattern.split` does: the first field is empty if the text starts with a separator, and empty fields at the end are
    removed.
    """
    fields = re.split(pattern, text)
    if len(fields) > 1:
        while fields and not fields[-1]:
            fields.pop()
    return fields


def split_spaces(line: str) -> list[str]:
    """Split as `Pattern.compile("\\\\s+").split(line)` does."""
    return split(SPACES, line)


def read_lines(data: bytes) -> Iterator[str]:
    """Yield the lines of UTF-8 text as Files.newBufferedReader and readLine return them, ended by LF, CR or CR LF.

    Raises UnicodeDecodeError when it reads the block of 8 KiB with the malformed byte, as Java does, so errors in earlier lines come first.
    """
    decoder = codecs.getincrementaldecoder("utf-8")()
    pending = ""
    for start in range(0, len(data), _CHUNK):
        final = start + _CHUNK >= len(data)
        pending += decoder.decode(data[start : start + _CHUNK], final)
        if final:
            break
        # A CR at the end may be the first half of a CR LF.
        keep = len(pending) - 1 if pending.endswith("\r") else len(pending)
        *lines, rest = re.split(_LINE_ENDS, pending[:keep])
        pending = rest + pending[keep:]
        yield from lines
    *lines, rest = re.split(_LINE_ENDS, pending)
    yield from lines
    if rest:
        yield rest


def _many_digits(digits: str, high: int) -> int:
    """Return the value of a number with very many digits, or a value just out of range unless the extra digits are leading zeros (Python
    limits int() of text)."""
    zeros = 0
    while zeros < len(digits) and int(digits[zeros]) == 0:
        zeros += 1
    rest = digits[zeros:]
    return int(rest) if rest and len(rest) <= 20 else (high + 2 if rest else 0)
