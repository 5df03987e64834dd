"""Changes of maps before they are applied to an image: key → new value, or None if it is removed (the common part of Kafka's *Delta
classes)."""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from typing import TypeVar

from kops.errors import DecodeError
from kops.metadata.image.parts.shared_map import SharedMap

K = TypeVar("K", bound=Hashable)
L = TypeVar("L", bound=Hashable)
V = TypeVar("V")


def contradiction(reason: str) -> DecodeError:
    """Return the error for a record that does not fit the image. `reason` is Kafka's."""
    return DecodeError(reason, code="bad-metadata-record")


def remove_unnamed(image: Mapping[K, V], changes: dict[K, V | None]) -> None:
    """Remove everything that a snapshot did not name, after its last record."""
    for key in image:
        changes.setdefault(key, None)


def remove_unnamed_within(image: Mapping[K, Mapping[L, V]], changes: dict[K, dict[L, V | None]]) -> None:
    """Do the same for a map of maps."""
    for key, values in image.items():
        remove_unnamed(values, changes.setdefault(key, {}))


def changed_within(image: SharedMap[K, SharedMap[L, V]], changes: Mapping[K, Mapping[L, V | None]]) -> SharedMap[K, SharedMap[L, V]]:
    """Return a map of maps with the changes, without empty maps."""
    empty: SharedMap[L, V] = SharedMap()
    return image.changed({key: image.get(key, empty).changed(values) or None for key, values in changes.items()})
