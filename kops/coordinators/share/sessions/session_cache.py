"""The share sessions of a broker, and what becomes of them when a connection closes. Source: ShareSessionCache."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from kops.coordinators.share.sessions.session import SessionKey, ShareSession, TopicIdPartition


class _Connection:
    """Which session a connection began; stale once that session has ended."""

    __slots__ = ("is_stale", "key")

    def __init__(self, key: SessionKey) -> None:
        self.key = key
        self.is_stale = False


class ShareSessionCache:
    """At most so many sessions (`group.share.max.share.sessions`).

    When a connection with a session closes, `on_member_left(key)` may release what the member has acquired, with the session still there.
    Then `on_group_empty(group_id)` is called if the group has no other session on this broker.
    """

    def __init__(self, max_entries: int) -> None:
        self._max_entries = max_entries
        self._sessions: dict[SessionKey, ShareSession] = {}
        self._member_counts: dict[str, int] = {}
        self._connections: dict[str, _Connection] = {}
        self.partition_count = 0
        self.eviction_count = 0
        self.on_member_left: Callable[[SessionKey], object] = lambda _: None
        self.on_group_empty: Callable[[str], object] = lambda _: None

    def __len__(self) -> int:
        return len(self._sessions)

    def get(self, key: SessionKey) -> ShareSession | None:
        """A member's session."""
        return self._sessions.get(key)

    def create(self, key: SessionKey, parts: Iterable[TopicIdPartition], connection_id: str) -> ShareSession | None:
        """Begin a session; None if there are too many."""
        if len(self._sessions) >= self._max_entries:
            return None
        session = self._sessions[key] = ShareSession(key, parts, connection_id)
        self.count_partitions(session)
        self._member_counts[key.group_id] = self._member_counts.get(key.group_id, 0) + 1
        self._connections[connection_id] = _Connection(key)
        return session

    def remove(self, key: SessionKey) -> bool:
        """End a session. Its connection does not end the next one when it closes."""
        session = self._sessions.pop(key, None)
        if session is None:
            return False
        self.partition_count -= session.cached_size
        self._member_counts[key.group_id] = self._member_counts.get(key.group_id, 1) - 1
        connection = self._connections.get(session.connection_id)
        if connection is not None:
            connection.is_stale = True
        return True

    def remove_all(self) -> None:
        """End all sessions: share groups were switched off."""
        self._sessions.clear()
        self._member_counts.clear()
        self.partition_count = 0

    def count_partitions(self, session: ShareSession) -> None:
        """A session has changed."""
        self.partition_count += len(session) - session.cached_size
        session.cached_size = len(session)

    def on_disconnect(self, connection_id: str) -> None:
        """A connection has closed."""
        connection = self._connections.pop(connection_id, None)
        if connection is None:
            return
        key = connection.key
        if not connection.is_stale and key in self._sessions:
            self.eviction_count += 1
            self.on_member_left(key)
            self.remove(key)
        if not self._member_counts.get(key.group_id, 0):
            self._member_counts.pop(key.group_id, None)
            self.on_group_empty(key.group_id)
