"""Which names a topic may have, which names collide, and which topics are Kafka's own (Kafka's Topic; with the texts that clients see)."""

from __future__ import annotations

import re
from typing import Final

from kops.errors import ApiError

INTERNAL_TOPICS: Final = frozenset(("__consumer_offsets", "__transaction_state", "__share_group_state"))
"""Kafka keeps its own records in these (Topic.isInternal). The metadata log does not count as one."""
_MAX_LENGTH: Final = 249
_ALLOWED: Final = re.compile(r"[a-zA-Z0-9._-]+")


def topic_name_error(name: str) -> str | None:
    """Return why a topic may not have the name, or None if it may."""
    if not name:
        return "the empty string is not allowed"
    if name in (".", ".."):
        return f"'{name}' is not allowed"
    if len(name) > _MAX_LENGTH:
        return f"the length of '{name}' is longer than the max allowed length {_MAX_LENGTH}"
    if _ALLOWED.fullmatch(name) is None:
        return f"'{name}' contains one or more characters other than ASCII alphanumerics, '.', '_' and '-'"
    return None


def check_topic_name(name: str) -> None:
    """Raise ApiError INVALID_TOPIC_EXCEPTION if a topic may not have the name."""
    reason = topic_name_error(name)
    if reason is not None:
        raise ApiError("INVALID_TOPIC_EXCEPTION", f"Topic name is invalid: {reason}")


def is_topic_name(name: str) -> bool:
    """Whether a topic may have the name."""
    return topic_name_error(name) is None


def has_collision_chars(name: str) -> bool:
    """Whether the name has dots or underscores, which are the same character in names of metrics."""
    return "." in name or "_" in name


def unify_collision_chars(name: str) -> str:
    """Return the name's form in which colliding names are equal."""
    return name.replace(".", "_")
