"""The definition of a mutation."""

from __future__ import annotations

from typing import Literal, NamedTuple


class Mutation(NamedTuple):
    """A small change of the product's meaning.

    `old` occurs in `path` exactly once. `tests` are the tests that must fail with `new`, and `ring` is the first ring that runs them.
    """

    name: str
    path: str
    old: str
    new: str
    tests: str
    ring: Literal["fast", "slow"] = "fast"
