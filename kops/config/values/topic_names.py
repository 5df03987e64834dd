"""Which names a topic may have, and which names collide (Kafka's Topic; with the texts that clients see)."""

from __future__ import annotations

import re
from typing import Final

from kops.errors import ApiError

_MAX_LENGTH: Final = 249
_ALLOWED: Final = re.compile(r"[a-zA-Z0-9._-]+")


def check_topic_name(name: str) -> None:
    """Raise ApiError INVALID_TOPIC_EXCEPTION if a topic may not have the name."""
    reason = _invalid(name)
    if reason is not None:
        raise ApiError("INVALID_TOPIC_EXCEPTION", f"Topic name is invalid: {reason}")


def is_topic_name(name: str) -> bool:
    """Whether a topic may have the name."""
    return _invalid(name) is None


def has_collision_chars(name: str) -> bool:
    """Whether the name has dots or underscores, which are the same character in names of metrics."""
    return "." in name or "_" in name


def unify_collision_chars(name: str) -> str:
    """Return the name's form in which colliding names are equal."""
    return name.replace(".", "_")


def _invalid(name: str) -> str | None:
    if not name:
        return "the empty string is not allowed"
    if name in (".", ".."):
        return f"'{name}' is not allowed"
    if len(name) > _MAX_LENGTH:
        return f"the length of '{name}' is longer than the max allowed length {_MAX_LENGTH}"
    if _ALLOWED.fullmatch(name) is None:
        return f"'{name}' contains one or more characters other than ASCII alphanumerics, '.', '_' and '-'"
    return None
