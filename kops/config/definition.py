"""A small ConfigDef: names, types, defaults and limits of settings, and parsing of their text.

Source: Kafka's org.apache.kafka.common.config.ConfigDef.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Literal

from kops.config.java import LONG_MAX, LONG_MIN, SPACES, NumberFormatError, parse_int, trim
from kops.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

Kind = Literal["boolean", "string", "int", "long", "double", "list"]
Value = bool | str | int | float | list[str] | None

_COMMA = re.compile(rf"(?:{SPACES})?,(?:{SPACES})?")
_DOUBLE = re.compile(r"[+-]?(?:NaN|Infinity|(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?[fFdD]?)", re.ASCII)
_HEX_DOUBLE = re.compile(r"([+-]?0[xX](?:[0-9a-fA-F]+\.?|[0-9a-fA-F]*\.[0-9a-fA-F]+)[pP][+-]?[0-9]+)[fFdD]?", re.ASCII)
_ALLOWED: Final[dict[Kind, str]] = {
    "boolean": "true or false",
    "string": "text",
    "int": "a 32-bit integer",
    "long": "a 64-bit integer",
    "double": "a number",
    "list": "a comma-separated list",
}


@dataclass(frozen=True, slots=True)
class Validator:
    """A limit: `allows(value)` and the words for what it allows; `distinct` takes repeated elements out of a list first."""

    allows: Callable[[Value], bool]
    words: str
    distinct: bool = False


@dataclass(frozen=True, slots=True)
class ConfigKey:
    """One setting. `default` None means that there is none, and the setting may stay unset."""

    name: str
    kind: Kind
    default: Value
    validator: Validator | None = None
    internal: bool = False

    @property
    def allowed(self) -> str:
        """What a value may be, in words."""
        return _ALLOWED[self.kind] if self.validator is None else self.validator.words

    def parse(self, text: str) -> Value:
        """The value of a text. Raises UsageError that names key, value and what is allowed."""
        try:
            value = _parse(text, self.kind)
        except ValueError as error:
            raise UsageError(f"{self.name}={text}: not {_ALLOWED[self.kind]}; allowed: {self.allowed}") from error
        return self.check(value, text)

    def check(self, value: Value, text: str | None = None) -> Value:
        """The value where the limit allows it. Raises UsageError as `parse` does."""
        if isinstance(value, list) and self.validator is not None and self.validator.distinct:
            value = list(dict.fromkeys(value))
        if self.validator is not None and not self.validator.allows(value):
            raise UsageError(f"{self.name}={value if text is None else text}: not allowed; allowed: {self.allowed}")
        return value


class ConfigDef:
    """A set of settings by name."""

    def __init__(self, keys: Iterable[ConfigKey]) -> None:
        self.keys: dict[str, ConfigKey] = {key.name: key for key in keys}

    def __getitem__(self, name: str) -> ConfigKey:
        """The setting. Raises UsageError that lists the nearest names where there is none."""
        key = self.keys.get(name)
        if key is None:
            import difflib

            near = difflib.get_close_matches(name, self.keys, 3, 0.5)
            hint = f"did you mean {' or '.join(near)}?" if near else f"allowed: {', '.join(self.keys)}"
            raise UsageError(f"unknown setting {name}; {hint}")
        return key

    def parse(self, values: Mapping[str, str], *, ignore_unknown: bool = False) -> dict[str, Value]:
        """The values of the settings that are given. Raises UsageError for an unknown name or a value that is not allowed."""
        return {name: self[name].parse(text) for name, text in values.items() if not ignore_unknown or name in self.keys}

    def defaults(self) -> dict[str, Value]:
        """Every setting's default."""
        return {name: key.default for name, key in self.keys.items()}


def at_least(low: int) -> Validator:
    """A number not below `low`."""
    return Validator(lambda value: isinstance(value, int | float) and not value < low, f"{low} or more")


def between(low: int, high: int) -> Validator:
    """A number from `low` to `high`."""
    return Validator(lambda value: isinstance(value, int | float) and not (value < low or value > high), f"{low} to {high}")


def one_of(*values: str) -> Validator:
    """One of some words."""
    return Validator(lambda value: value in values, " or ".join(values))


def list_of(*values: str) -> Validator:
    """A list of some words, maybe empty."""
    return Validator(lambda value: isinstance(value, list) and all(v in values for v in value), "a list of " + ", ".join(values), True)


def _parse(text: str, kind: Kind) -> Value:
    """ConfigDef.parseType. Raises ValueError."""
    text = trim(text)
    if kind == "string":
        return text
    if kind == "int":
        return parse_int(text)
    if kind == "long":
        return parse_int(text, LONG_MIN, LONG_MAX)
    if kind == "list":
        return _COMMA.split(text) if text else []
    if kind == "double":
        return _parse_double(text)
    if text.lower() not in ("true", "false"):
        raise ValueError(text)
    return text.lower() == "true"


def _parse_double(text: str) -> float:
    """Double.parseDouble: also hexadecimal, also a letter d or f behind it; no underscores, no `inf`."""
    if _DOUBLE.fullmatch(text):
        return float(text if text.endswith(("NaN", "Infinity")) else text.rstrip("fFdD"))
    found = _HEX_DOUBLE.fullmatch(text)
    if found is None:
        raise NumberFormatError(f'For input string: "{text}"')
    try:
        return float.fromhex(found[1])
    except OverflowError:
        return float("-inf" if text.startswith("-") else "inf")
