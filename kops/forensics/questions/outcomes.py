"""How the transactions of a log ended, from their markers, and which producers wrote for a transactional id.

Sources: Kafka's `ProducerAppendInfo` (a transaction begins with the first transactional batch after the producer's last marker),
`EndTransactionMarker`, `TransactionLog`.
"""

from __future__ import annotations

from bisect import bisect_left
from dataclasses import dataclass, field
from typing import Final

from kops.errors import DecodeError, UsageError
from kops.files import Files
from kops.forensics.coordinators.internal_topics import TRANSACTION_TOPIC
from kops.forensics.coordinators.records import marker_of
from kops.forensics.coordinators.transactional_ids import producer_ids
from kops.forensics.inventory.replicas import Replica
from kops.forensics.questions.reading import Found, segments_of
from kops.records import Batch, scan

COMMITTED: Final = "committed"
ABORTED: Final = "aborted"
OPEN: Final = "open"
NONE: Final = "none"
OUTCOMES: Final = (COMMITTED, ABORTED, OPEN, NONE)


@dataclass(slots=True)
class Outcomes:
    """The markers of a log by producer: their offsets, and whether each is a commit."""

    markers: dict[int, tuple[list[int], list[bool]]] = field(default_factory=dict)

    def of(self, batch: Batch) -> str:
        """Return how the transaction of a batch ended, as one of `OUTCOMES`. It is `none` for a batch outside of transactions."""
        if not batch.is_transactional:
            return NONE
        offsets, commits = self.markers.get(batch.producer_id, ([], []))
        place = bisect_left(offsets, batch.last_offset)
        return OPEN if place == len(offsets) else COMMITTED if commits[place] else ABORTED


def outcomes_of(files: Files, replica: Replica) -> Outcomes:
    """Read the markers of a log. Damage is skipped. Raises OSError if a segment can't be read."""
    found = Outcomes()
    for segment in segments_of(replica):
        assert segment.log is not None
        with files.open(segment.log.path) as file:
            for item in scan(file):
                if isinstance(item, Batch) and item.is_control:
                    _add(found, item)
    return found


def _add(found: Outcomes, batch: Batch) -> None:
    try:
        markers = [marker_of(record, batch) for record in batch.iterate()]
    except DecodeError:
        return  # a batch that can't be read ends nothing; the search reports it
    for marker in markers:
        if marker is not None:
            offsets, commits = found.markers.setdefault(marker.producer_id, ([], []))
            offsets.append(marker.offset)
            commits.append(marker.is_commit)


def producers_of(files: Files, found: Found, transactional_id: str) -> frozenset[int]:
    """Return the producer ids that a transactional id had, from the transaction log below the same paths.

    Raises UsageError if there is no transaction log, or if it does not contain the id.
    """
    logs = [each.directory for each in found.listing.replicas if each.directory.topic == TRANSACTION_TOPIC and not each.directory.state]
    if not logs:
        raise UsageError(f"--txn-id {transactional_id}: no partition of {TRANSACTION_TOPIC} below these paths; --pid needs none")
    ids = {number for log in logs for number in producer_ids(files, log, transactional_id)}
    if not ids:
        raise UsageError(f"--txn-id {transactional_id}: {TRANSACTION_TOPIC} has no such transactional id")
    return frozenset(ids)
