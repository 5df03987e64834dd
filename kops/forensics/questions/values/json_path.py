"""Conditions on parts of a JSON-like value: `$.order.items[0].id`, `$..status=paid`, `$.name=~^A`.

Source: RFC 9535 (JSONPath) for `$`, `.name`, `['name']`, `[0]`, `[-1]`, `[*]`, `.*`, `..name` and `..*`. Filters and slices are not
supported.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final

from kops.errors import UsageError

_STEP: Final = re.compile(
    r"""(?P<deep>\.\.)?(?:
        (?:(?P<dot>\.)|(?<=\.\.)|(?<=^))(?P<name>[^\s.\[\]=*'"]+|\*)
        |\[\s*(?:(?P<index>-?\d{1,9})|(?P<any>\*)|'(?P<single>(?:[^'\\]|\\.)*)'|"(?P<double>(?:[^"\\]|\\.)*)")\s*\]
    )""",
    re.VERBOSE,
)
_ESCAPE: Final = re.compile(r"\\(.)")
_ANY: Final = None

Selector = str | int | None
"""A member's name, an element's index, or None for all of them."""


@dataclass(frozen=True, slots=True)
class Step:
    """One step of a path. If `is_deep`, it starts from the value and everything below it."""

    selector: Selector
    is_deep: bool = False


@dataclass(frozen=True, slots=True)
class Condition:
    """A path and a condition that one of the values there must fulfil.

    The value may be anything, is equal to `wanted`, or is a text in which `pattern` is found.
    """

    text: str
    steps: tuple[Step, ...]
    wanted: str | None = None
    pattern: re.Pattern[str] | None = None

    def holds(self, value: Any) -> bool:
        """Return whether the condition holds for a value."""
        return any(self._fits(found) for found in select(value, self.steps))

    def _fits(self, found: Any) -> bool:
        if self.pattern is not None:
            return self.pattern.search(found if isinstance(found, str) else json.dumps(found, ensure_ascii=False)) is not None
        return self.wanted is None or _equals(found, self.wanted)


def _equals(found: Any, wanted: str) -> bool:
    if isinstance(found, str) and found == wanted:
        return True
    try:
        value = json.loads(wanted)
    except ValueError:
        return False
    return isinstance(found, bool) == isinstance(value, bool) and bool(found == value)


def parse_condition(text: str, option: str) -> Condition:
    """Parse `PATH`, `PATH=VALUE` or `PATH=~RE`. A value is compared as JSON, or as text. Raises UsageError that names the option."""
    steps: list[Step] = []
    place = 1 if text.startswith("$") else 0
    while place < len(text) and text[place] != "=":
        found = _STEP.match(text, place)
        if found is None or (found["dot"] is None and found["deep"] is None and found["name"] is not None and place > 0):
            raise UsageError(
                f"{option} {text}: not a path at {text[place:]!r}; allowed: $.a.b, ['a'], [0], [*], .*, ..a, then =VALUE or =~RE"
            )
        steps.append(Step(_selector(found), found["deep"] is not None))
        place = found.end()
    rest = text[place:]
    if not rest:
        return Condition(text, tuple(steps))
    if not rest.startswith("=~"):
        return Condition(text, tuple(steps), wanted=rest[1:])
    try:
        return Condition(text, tuple(steps), pattern=re.compile(rest[2:]))
    except re.error as error:
        raise UsageError(f"{option} {text}: not a regular expression: {error}") from None


def _selector(found: re.Match[str]) -> Selector:
    if found["index"] is not None:
        return int(found["index"])
    quoted = found["single"] if found["single"] is not None else found["double"]
    if quoted is not None:
        return _ESCAPE.sub(r"\1", quoted)
    return _ANY if found["name"] in ("*", None) else found["name"]


def select(value: Any, steps: tuple[Step, ...]) -> Iterator[Any]:
    """Yield the values at a path."""
    if not steps:
        yield value
        return
    step, rest = steps[0], steps[1:]
    for start in _everything(value) if step.is_deep else (value,):
        for found in _children(start, step.selector):
            yield from select(found, rest)


def _children(value: Any, selector: Selector) -> Iterator[Any]:
    if selector is _ANY:
        yield from value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    elif isinstance(selector, int):
        if isinstance(value, list) and -len(value) <= selector < len(value):
            yield value[selector]
    elif isinstance(value, dict) and selector in value:
        yield value[selector]


def _everything(value: Any) -> Iterator[Any]:
    """Yield the value and everything below it. This works without recursion, because a value may be nested deeply."""
    waiting = [value]
    while waiting:
        one = waiting.pop()
        yield one
        below = one.values() if isinstance(one, dict) else one if isinstance(one, list) else ()
        waiting += reversed(list(below))
