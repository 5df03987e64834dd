"""JSON in Kafka's small files, read exactly as strictly as Jackson does with its default settings."""

from __future__ import annotations

import json
from typing import Any, NoReturn

_BLANKS = " \t\r\n"


def _refuse(constant: str) -> NoReturn:
    raise ValueError(f"{constant} is not JSON")


_DECODER = json.JSONDecoder(parse_constant=_refuse)


def read_json(text: str) -> Any:
    """Return the first JSON value of a text, and ignore the rest of the text. Raises ValueError if there is no value."""
    try:
        value, end = _DECODER.raw_decode(text.lstrip(_BLANKS))
    except RecursionError:
        raise ValueError("nested too deeply") from None
    rest = text.lstrip(_BLANKS)[end : end + 1]
    if isinstance(value, int | float) and rest and rest not in _BLANKS:
        # Jackson requires a separator after a number at the root, so `12abc` is an error and not 12.
        raise ValueError(f"'{rest}' after a number")
    return value


def write_json(value: Any) -> str:
    """Return the text as Jackson writes it: no spaces, fields in the given order, non-ASCII characters unescaped."""
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False)
