"""Writes snapshots: first the header, the kraft.version and the voters, then the records, and last a footer. Offsets count from 0.

Source: Kafka's RecordsSnapshotWriter (KIP-630). They are read with `control_state.snapshot_batches`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from kops.metadata.raft.log import control_records as control
from kops.metadata.raft.log.accumulator import NEVER_MS, BatchAccumulator
from kops.metadata.raft.log.log import SnapshotSink
from kops.metadata.raft.voters.voter_set import VoterSet


class SnapshotWriter:
    """A snapshot that is being written. `now_ms` becomes the time of a batch. The snapshot exists only after `freeze`."""

    def __init__(
        self,
        sink: SnapshotSink,
        last_contained_log_timestamp: int,
        kraft_version: int,
        voters: VoterSet | None,
        now_ms: int,
        *,
        on_frozen: Callable[[int], None] | None = None,
    ) -> None:
        assert kraft_version > 0 or voters is None, f"with kraft.version 0 the log has no voters, but it has {voters}"
        self._sink = sink
        self._on_frozen = on_frozen
        self._is_settled = False
        self._accumulator = BatchAccumulator(sink.snapshot_id.epoch, 0, NEVER_MS)
        records = [control.snapshot_header(last_contained_log_timestamp)]
        if kraft_version > 0:
            records += [control.kraft_version(kraft_version)] + ([] if voters is None else [control.voters(voters)])
        self._accumulator.append_control(records, now_ms)

    def append(self, records: Sequence[bytes], now_ms: int) -> None:
        """Add the values of records that stay together in one batch. Raises ApiError RECORD_LIST_TOO_LARGE."""
        self._accumulator.append(self._sink.snapshot_id.epoch, records, now_ms)
        if self._accumulator.ms_until_drain(now_ms) == 0:
            self._write()

    def settle(self, now_ms: int) -> None:
        """Write the footer and make the snapshot durable. May be called in any thread. `freeze` must follow."""
        self._accumulator.append_control([control.snapshot_footer()], now_ms)
        self._accumulator.force_drain()
        self._write()
        self._sink.settle()
        self._is_settled = True

    def freeze(self, now_ms: int) -> int:
        """Make it one of the log's snapshots, and return its size in bytes. Calls `settle` first if nobody has."""
        if not self._is_settled:
            self.settle(now_ms)
        self._sink.freeze()
        if self._on_frozen is not None:
            self._on_frozen(self._sink.snapshot_id.offset)
        return self._sink.size

    def close(self) -> None:
        """Drop it, unless it is frozen."""
        self._sink.close()

    def _write(self) -> None:
        for batch in self._accumulator.drain():
            self._sink.append(batch.data)
