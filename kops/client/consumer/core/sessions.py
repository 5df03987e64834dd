"""Fetch sessions: a broker remembers the partitions of a client, so that a request lists only those that have changed (KIP-227, KIP-516).

Source: Kafka's FetchSessionHandler, FetchMetadata.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from kops.protocol.declaration import ZERO_UUID
from kops.records.log_offsets import TopicPartition

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

_NO_SESSION: Final = 0
_INITIAL_EPOCH: Final = 0
_FINAL_EPOCH: Final = -1
_MAX_EPOCH: Final = 0x7FFF_FFFF


class Wanted(NamedTuple):
    """What a fetch asks of one partition."""

    topic_id: bytes
    offset: int
    max_bytes: int
    leader_epoch: int


class SessionFetch(NamedTuple):
    """The content of a request. `forgotten` are (topic id, partition), `partitions` are all those of the session."""

    session_id: int
    epoch: int
    send: dict[TopicPartition, Wanted]
    forgotten: list[tuple[bytes, TopicPartition]]
    partitions: dict[TopicPartition, Wanted]
    can_use_ids: bool


class FetchSession:
    """The session with one node. The next request is a full one until the node has answered with the id of a session."""

    def __init__(self) -> None:
        self.session_id = _NO_SESSION
        self.epoch = _INITIAL_EPOCH
        self.partitions: dict[TopicPartition, Wanted] = {}
        self.names: dict[bytes, str] = {}

    @property
    def _is_full(self) -> bool:
        return self.epoch in (_INITIAL_EPOCH, _FINAL_EPOCH)

    def build(self, wanted: Mapping[TopicPartition, Wanted]) -> SessionFetch:
        """Return the next request for these partitions, and make them those of the session."""
        can_use_ids = all(one.topic_id != ZERO_UUID for one in wanted.values())
        names = {one.topic_id: key.topic for key, one in wanted.items()}
        if self._is_full:
            self.partitions = dict(wanted)
            self.names = names if can_use_ids else {}
            return SessionFetch(self.session_id, self.epoch, dict(wanted), [], dict(wanted), can_use_ids)
        changed: dict[TopicPartition, Wanted] = {}
        forgotten = []
        for key, before in list(self.partitions.items()):
            now = wanted.get(key)
            if now is None:
                del self.partitions[key]
                forgotten.append((before.topic_id, key))
                can_use_ids = can_use_ids and before.topic_id != ZERO_UUID
            elif now != before:
                if now.topic_id != before.topic_id and ZERO_UUID not in (now.topic_id, before.topic_id):
                    forgotten.append((before.topic_id, key))
                changed[key] = self.partitions[key] = now
        added = {key: one for key, one in wanted.items() if key not in self.partitions}
        self.partitions |= added
        self.names = names if can_use_ids else {}
        return SessionFetch(self.session_id, self.epoch, added | changed, forgotten, dict(self.partitions), can_use_ids)

    def failed(self) -> None:
        """Begin again with a full request, because the connection has ended or the request was not answered."""
        self.epoch = _INITIAL_EPOCH

    def refused(self, error: str) -> None:
        """Handle the error of a whole response."""
        self.epoch = _INITIAL_EPOCH
        if error == "FETCH_SESSION_ID_NOT_FOUND":
            self.session_id = _NO_SESSION

    def accept(self, session_id: int, answered: Iterable[TopicPartition]) -> bool:
        """Take a response without an error. Returns False if its partitions are not those of the session: it must be ignored."""
        found = set(answered)
        if self._is_full:
            if found != self.partitions.keys():
                self.session_id, self.epoch = _NO_SESSION, _INITIAL_EPOCH
                return False
            self.session_id = session_id
            self.epoch = _INITIAL_EPOCH if session_id == _NO_SESSION else 1
            return True
        if not found <= self.partitions.keys():
            self.epoch = _INITIAL_EPOCH
            return False
        if session_id == _NO_SESSION:
            self.session_id, self.epoch = _NO_SESSION, _INITIAL_EPOCH
        else:
            self.epoch = 1 if self.epoch == _MAX_EPOCH else self.epoch + 1
        return True

    def close(self) -> None:
        """Let the next request end the session."""
        self.epoch = _FINAL_EPOCH
