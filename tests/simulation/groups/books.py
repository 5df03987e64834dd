"""The rule for static members in `world`: an instance id belongs to one member at a time."""

from __future__ import annotations

from typing import NamedTuple


class Replaced(NamedTuple):
    """A member whose instance id belongs to another one."""

    since_ms: float
    successor: str


class InstanceBook:
    """The members that had an instance id, by group and instance id."""

    def __init__(self) -> None:
        self._joined_ms: dict[tuple[str, str], dict[str, float]] = {}
        self._replaced: dict[str, Replaced] = {}

    def joined(self, group: str, instance_id: str, member_id: str, asked_ms: float, now_ms: float) -> None:
        """Record that a member that asked to join at `asked_ms` has the instance id. It has replaced all members that knew before then that
        they had it.
        """
        lives = self._joined_ms.setdefault((group, instance_id), {})
        for other, joined_ms in lives.items():
            if other != member_id and joined_ms < asked_ms:
                self._replaced.setdefault(other, Replaced(now_ms, member_id))
        self._replaced.pop(member_id, None)
        lives[member_id] = now_ms

    def check(self, member_id: str, sent_ms: float, what: str) -> None:
        """Check that a member was not replaced when it sent a request that was accepted."""
        found = self._replaced.get(member_id)
        assert found is None or sent_ms <= found.since_ms, f"{what} of {member_id} was accepted, but {found} has its instance id"
