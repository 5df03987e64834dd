"""Counts the subscriptions to topics, by name and by regular expression (Kafka's SubscriptionCount)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, MutableMapping
from typing import NamedTuple, TypeVar

from kops.coordinators.groups.assignors.java_maps import texts_of_list

K = TypeVar("K")
Names = Mapping[str, None]
"""A set of names in Java's iteration order. Equality ignores the order."""


class SubscriptionCount(NamedTuple):
    """The number of members that subscribe by name, and of regular expressions that match."""

    by_name: int
    by_regex: int


SubscriptionCounts = MutableMapping[str, SubscriptionCount]


def names_of(names: Iterable[str]) -> Names:
    """Return a set of names."""
    return dict.fromkeys(texts_of_list(names))


def union_of(names: Names, others: Names) -> Names:
    """Return the union of two sets (Kafka's UnionSet). The names of the larger set come first."""
    if not names or not others:
        return names or others
    large, small = (names, others) if len(names) > len(others) else (others, names)
    return {**large, **small}


def count_names(counts: SubscriptionCounts, topics: Iterable[str], change: int) -> None:
    """Count a member with these topics that was added (1) or removed (-1)."""
    for topic in topics:
        _count(counts, topic, change, 0)


def count_regex(counts: SubscriptionCounts, topics: Iterable[str], change: int) -> None:
    """Count a regular expression with these topics that was added (1) or removed (-1)."""
    for topic in topics:
        _count(counts, topic, 0, change)


def _count(counts: SubscriptionCounts, topic: str, by_name: int, by_regex: int) -> None:
    before = counts.get(topic)
    if before is None:
        if by_name + by_regex > 0:
            counts[topic] = SubscriptionCount(by_name, by_regex)
        return
    new = SubscriptionCount(before.by_name + by_name, before.by_regex + by_regex)
    if new == (0, 0):
        del counts[topic]
    else:
        counts[topic] = new


def count(counts: MutableMapping[K, int], key: K, change: int) -> None:
    """Add to the count of a key. A key whose count becomes 0 is removed (Kafka's Utils.incValue, decValue)."""
    before = counts.get(key)
    if before is None:
        if change > 0:
            counts[key] = change
    elif before + change == 0:
        del counts[key]
    else:
        counts[key] = before + change
