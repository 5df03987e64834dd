"""The share sessions of a broker, and their end when a connection closes. Source: ShareSessionCache."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from kops.coordinators.share.sessions.session import SessionKey, ShareSession, TopicIdPartition


class _Connection:
    """The session that a connection began. It is stale after that session has ended."""

    __slots__ = ("is_stale", "key")

    def __init__(self, key: SessionKey) -> None:
        self.key = key
        self.is_stale = False


class ShareSessionCache:
    """The sessions, limited by `group.share.max.share.sessions`.

    When a connection with a session closes, `on_member_left(key)` may release the member's records; the session still exists then.
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
        """Return a member's session, or None."""
        return self._sessions.get(key)

    def create(self, key: SessionKey, parts: Iterable[TopicIdPartition], connection_id: str) -> ShareSession | None:
        """Begin a session. Returns None if there are too many."""
        if len(self._sessions) >= self._max_entries:
            return None
        session = self._sessions[key] = ShareSession(key, parts, connection_id)
        self.count_partitions(session)
        self._member_counts[key.group_id] = self._member_counts.get(key.group_id, 0) + 1
        self._connections[connection_id] = _Connection(key)
        return session

    def remove(self, key: SessionKey) -> bool:
        """End a session. When its connection closes, that does not end the member's next session. Returns whether there was one."""
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
        """End all sessions, because share groups were disabled."""
        self._sessions.clear()
        self._member_counts.clear()
        self.partition_count = 0

    def count_partitions(self, session: ShareSession) -> None:
        """Update the count of partitions after a session has changed."""
        self.partition_count += len(session) - session.cached_size
        session.cached_size = len(session)

    def on_disconnect(self, connection_id: str) -> None:
        """End the session of a closed connection."""
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
