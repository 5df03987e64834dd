"""JSON as Kafka's small files have it, read as far and as strictly as Jackson does in its default settings."""

from __future__ import annotations

import json
from typing import Any, NoReturn

_BLANKS = " \t\r\n"


def _refuse(constant: str) -> NoReturn:
    raise ValueError(f"{constant} is not JSON")


_DECODER = json.JSONDecoder(parse_constant=_refuse)


def read_json(text: str) -> Any:
    """The first JSON value of a text; what follows it is not looked at. Raises ValueError if there is none."""
    try:
        value, end = _DECODER.raw_decode(text.lstrip(_BLANKS))
    except RecursionError:
        raise ValueError("nested too deeply") from None
    rest = text.lstrip(_BLANKS)[end : end + 1]
    if isinstance(value, int | float) and rest and rest not in _BLANKS:
        # Jackson wants a separator behind a number at the root, so `12abc` is an error and not 12.
        raise ValueError(f"'{rest}' behind a number")
    return value


def write_json(value: Any) -> str:
    """The text as Jackson writes it: no spaces, fields in the order given, characters beyond ASCII as they are."""
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False)
