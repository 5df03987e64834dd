"""What serializers and deserializers share: the names of Kafka's classes, and functions of a program with one argument or with all.

Source: Kafka's org.apache.kafka.common.serialization.Serdes.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

_PACKAGE: Final = "org.apache.kafka.common.serialization."
_TYPES: Final = {
    "ByteArray": "bytes",
    "Bytes": "bytes",
    "ByteBuffer": "bytes",
    "String": "string",
    "Short": "short",
    "Integer": "int",
    "Long": "long",
    "Float": "float",
    "Double": "double",
    "UUID": "uuid",
    "Void": "void",
}


def short_name(given: object, kind: str) -> str:
    """Return the short name for one of Kafka's classes (`kind` is Serializer or Deserializer), any other text itself, or an empty text."""
    if not isinstance(given, str):
        return ""
    return _TYPES.get(given.removeprefix(_PACKAGE).removesuffix(kind), given) if given.startswith(_PACKAGE) else given


def takes_one_argument(function: Callable[..., Any]) -> bool:
    """Whether a function has one argument. A C function that does not report its arguments counts as one."""
    from inspect import Parameter, signature

    try:
        parameters = signature(function).parameters.values()
    except (TypeError, ValueError):
        return True
    kinds = (Parameter.POSITIONAL_ONLY, Parameter.POSITIONAL_OR_KEYWORD)
    needed = [one for one in parameters if one.kind in kinds and one.default is Parameter.empty]
    return len(needed) <= 1 and all(one.kind is not Parameter.VAR_POSITIONAL for one in parameters)
