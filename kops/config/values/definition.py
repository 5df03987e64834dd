"""A small ConfigDef: names, types, defaults and limits of settings, and parsing of their text.

A value that is not allowed is reported in two ways. For a command line, `parse` raises UsageError, which names the allowed values. For a
broker's answer, `accept` raises ApiError INVALID_CONFIG with Kafka's text. Source: Kafka's org.apache.kafka.common.config.ConfigDef.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Final, Literal

from kops.config.values.java import LONG_MAX, LONG_MIN, SPACES, NumberFormatError, double_text, parse_int, trim
from kops.errors import ApiError, UsageError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

Kind = Literal["boolean", "string", "int", "short", "long", "double", "list", "class", "password"]
Importance = Literal["high", "medium", "low"]
Value = bool | str | int | float | list[str] | None

_COMMA = re.compile(rf"(?:{SPACES})?,(?:{SPACES})?")
_DOUBLE = re.compile(r"[+-]?(?:NaN|Infinity|(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?[fFdD]?)", re.ASCII)
_HEX_DOUBLE = re.compile(r"([+-]?0[xX](?:[0-9a-fA-F]+\.?|[0-9a-fA-F]*\.[0-9a-fA-F]+)[pP][+-]?[0-9]+)[fFdD]?", re.ASCII)
_ALLOWED: Final[dict[Kind, str]] = {
    "boolean": "true or false",
    "string": "text",
    "int": "a 32-bit integer",
    "short": "a 16-bit integer",
    "long": "a 64-bit integer",
    "double": "a number",
    "list": "a comma-separated list",
    "class": "the name of a Java class",
    "password": "text",
}
HIDDEN: Final = "[hidden]"
"""The text shown instead of a password."""

# Kafka's error for a text that does not fit the type. Any text is a valid string or list.
_NOT_PARSED: Final[dict[Kind, str]] = {
    "boolean": "Expected value to be either true or false",
    "int": "Not a number of type INT",
    "short": "Not a number of type SHORT",
    "long": "Not a number of type LONG",
    "double": "Not a number of type DOUBLE",
}


@dataclass(frozen=True, slots=True)
class Validator:
    """A limit. `refuse(name, value)` returns Kafka's error for a value that is not allowed, or None. `words` describes the allowed values.

    `distinct` removes repeated elements of a list first.
    """

    refuse: Callable[[str, Value], str | None]
    words: str
    distinct: bool = False


@dataclass(frozen=True, slots=True)
class ConfigKey:
    """One setting. `default` None means no default: the setting may stay unset unless it is `required`."""

    name: str
    kind: Kind
    default: Value
    validator: Validator | None = None
    importance: Importance = "medium"
    internal: bool = False
    required: bool = False

    @property
    def allowed(self) -> str:
        """The allowed values in words."""
        return _ALLOWED[self.kind] if self.validator is None else self.validator.words

    def parse(self, text: str) -> Value:
        """Return the value of a text. Raises UsageError with key, value and the allowed values."""
        try:
            value = _parse(text, self.kind)
        except ValueError as error:
            raise UsageError(f"{self.name}={text}: not {_ALLOWED[self.kind]}; allowed: {self.allowed}") from error
        return self.check(value, text)

    def check(self, value: Value, text: str | None = None) -> Value:
        """Return the value if the limit allows it. Raises UsageError as `parse` does."""
        value = self._distinct(value)
        if self._refusal(value) is not None:
            raise UsageError(f"{self.name}={value if text is None else text}: not allowed; allowed: {self.allowed}")
        return value

    def accept(self, given: Value) -> Value:
        """Return the value of a text, or a value that was parsed before (ConfigDef.parseValue). Raises ApiError INVALID_CONFIG."""
        try:
            value = self._distinct(_parse(given, self.kind) if isinstance(given, str) else given)
        except ValueError as error:
            raise ApiError("INVALID_CONFIG", invalid(self.name, given, _NOT_PARSED[self.kind])) from error
        refusal = self._refusal(value)
        if refusal is not None:
            raise ApiError("INVALID_CONFIG", refusal)
        return value

    def value_when_unset(self) -> Value:
        """Return the default. Raises ApiError INVALID_CONFIG if the setting is required."""
        if self.required:
            raise ApiError("INVALID_CONFIG", f'Missing required configuration "{self.name}" which has no default value.')
        return self.default

    def _distinct(self, value: Value) -> Value:
        if isinstance(value, list) and self.validator is not None and self.validator.distinct:
            return list(dict.fromkeys(value))
        return value

    def _refusal(self, value: Value) -> str | None:
        return None if self.validator is None else self.validator.refuse(self.name, value)


LISTED = 50
"""The maximum number of names in an error."""


class ConfigDef:
    """A set of settings by name."""

    def __init__(self, keys: Iterable[ConfigKey]) -> None:
        self.keys: dict[str, ConfigKey] = {key.name: key for key in keys}

    def __getitem__(self, name: str) -> ConfigKey:
        """Return the setting. Raises UsageError with the nearest names if there is none."""
        key = self.keys.get(name)
        if key is None:
            near = self.near(name)
            allowed = f"allowed: {', '.join(self.keys)}" if len(self.keys) <= LISTED else f"none of the {len(self.keys)} known is similar"
            hint = f"did you mean {' or '.join(near)}?" if near else allowed
            raise UsageError(f"unknown setting {name}; {hint}")
        return key

    def near(self, name: str, *, cutoff: float = 0.6) -> list[str]:
        """Return up to three names that resemble `name`, the nearest first."""
        import difflib

        return difflib.get_close_matches(name, self.keys, 3, cutoff)

    def parse(self, values: Mapping[str, str], *, ignore_unknown: bool = False) -> dict[str, Value]:
        """Return the values of the given settings. Raises UsageError for an unknown name or a value that is not allowed."""
        return {name: self[name].parse(text) for name, text in values.items() if not ignore_unknown or name in self.keys}

    def accept(self, values: Mapping[str, Value]) -> dict[str, Value]:
        """Return every setting's value, or its default if it is not given (ConfigDef.parse). Unknown names are ignored.

        Raises ApiError INVALID_CONFIG for the first invalid setting in the order of definition.
        """
        return {name: key.accept(values[name]) if name in values else key.value_when_unset() for name, key in self.keys.items()}

    def defaults(self) -> dict[str, Value]:
        """Return every setting's default."""
        return {name: key.default for name, key in self.keys.items()}


def invalid(name: str, value: Value, reason: str | None = None) -> str:
    """Return the text of a ConfigException."""
    return f"Invalid value {java_text(value)} for configuration {name}{'' if reason is None else f': {reason}'}"


def at_least(low: int) -> Validator:
    """Allow a number not below `low`."""
    return Validator(partial(_out_of_range, low, None), f"{low} or more")


def between(low: float, high: float) -> Validator:
    """Allow a number from `low` to `high`."""
    return Validator(partial(_out_of_range, low, high), f"{low} to {high}")


def _out_of_range(low: float, high: float | None, name: str, value: Value) -> str | None:
    if not isinstance(value, int | float):
        return invalid(name, value, "Value must be non-null")
    if value < low:
        return invalid(name, value, f"Value must be at least {low}")
    if high is not None and value > high:
        return invalid(name, value, f"Value must be no more than {high}")
    return None


def one_of(*values: str) -> Validator:
    """Allow one of the given words."""
    return Validator(partial(_other_word, values), " or ".join(values))


def _other_word(values: tuple[str, ...], name: str, value: Value) -> str | None:
    return None if value in values else invalid(name, value, f"String must be one of: {', '.join(values)}")


def one_of_ignoring_case(*values: str) -> Validator:
    """Allow one of the given upper-case words in upper or lower case."""
    return Validator(partial(_other_word_ignoring_case, values), f"{' or '.join(values)}, in any case")


def _other_word_ignoring_case(values: tuple[str, ...], name: str, value: Value) -> str | None:
    if isinstance(value, str) and value.upper() in values:
        return None
    return invalid(name, value, f"String must be one of (case insensitive): {', '.join(values)}")


def list_of(*values: str, empty: bool = True) -> Validator:
    """Allow a list of the given words. `empty` allows an empty list."""
    return Validator(partial(_other_words, values, empty, False), "a list of " + ", ".join(values), True)


def any_list(*, empty: bool, null: bool) -> Validator:
    """Allow a list of any words. `empty` allows an empty list, `null` an unset value."""
    return Validator(partial(_other_words, (), empty, null), "a list" if empty else "a list that is not empty", True)


def _other_words(values: tuple[str, ...], empty: bool, null: bool, name: str, value: Value) -> str | None:
    if not isinstance(value, list):
        return None if null else f"Configuration '{name}' values must not be null."
    if not value and not empty:
        allowed = f"[{', '.join(values)}]" if values else "any non-empty value"
        return f"Configuration '{name}' must not be empty. Valid values include: {allowed}"
    for word in value:
        if not word:
            return f"Configuration '{name}' values must not be empty."
        refusal = _other_word(values, name, word) if values else None
        if refusal is not None:
            return refusal
    return None


def _empty_text(name: str, value: Value) -> str | None:
    return invalid(name, value, "String must be non-empty") if value == "" else None


def _null(name: str, value: Value) -> str | None:
    return invalid(name, "null", "entry must be non null") if value is None else None


NON_EMPTY: Final = Validator(_empty_text, "text that is not empty")
NOT_NULL: Final = Validator(_null, "text")


def _no_gzip_level(name: str, value: Value) -> str | None:
    if isinstance(value, int) and (value == -1 or 1 <= value <= 9):
        return None
    return invalid(name, value, "Value must be between 1 and 9 or equal to -1")


GZIP_LEVEL: Final = Validator(_no_gzip_level, "1 to 9, or -1")


def java_text(value: Value) -> str:
    """Return a value as Java's string concatenation writes it."""
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, list):
        return f"[{', '.join(value)}]"
    return double_text(value) if isinstance(value, float) else str(value)


def _parse(text: str, kind: Kind) -> Value:
    """Parse a text as ConfigDef.parseType does. Raises ValueError."""
    text = trim(text)
    if kind in ("string", "class", "password"):
        return text
    if kind == "int":
        return parse_int(text)
    if kind == "short":
        return parse_int(text, -0x8000, 0x7FFF)
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
    """Parse as Double.parseDouble does: hexadecimal numbers and a final letter d or f are allowed; underscores and `inf` are not."""
    if _DOUBLE.fullmatch(text):
        return float(text if text.endswith(("NaN", "Infinity")) else text.rstrip("fFdD"))
    found = _HEX_DOUBLE.fullmatch(text)
    if found is None:
        raise NumberFormatError(f'For input string: "{text}"')
    try:
        return float.fromhex(found[1])
    except OverflowError:
        return float("-inf" if text.startswith("-") else "inf")
