"""The rules for the nodes of `node_world`. They are checked all the time and at the end.

Each partition of each topic that ever existed has a `Ledger`. A producer sends one batch at a time and repeats it until it is acknowledged,
and the record at offset n has the number n. So wrong order, a lost record or a duplicate shows at the next record. A batch that a replica
has below its high watermark, or that a consumer has read, is recorded in the ledger. From then on, no replica may have another batch there.

A compacted topic has the same numbers (`CompactedLedger`). Each record that is left is the one that was sent with its offset. For each one
that is gone, either there is a later record of its key, or it was a tombstone that has expired.

If retention deletes a record everywhere before its producer gets the acknowledgement, the record may be appended again: a replica that
begins after the record does not know its producer, in Kafka as here. From then on, the offsets are ahead of the numbers.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, NamedTuple

from kops.errors import KopsError
from kops.records import Batch, read_batches
from kops.storage.log_offsets import Isolation
from kops.storage.unified_log import UnifiedLog

if TYPE_CHECKING:
    from kops.replication.leading.partition import Partition
    from tests.simulation.node_world import NodeWorld, SimNode

VOTERS = (1, 2, 3)
"""The controllers."""
READ_BYTES = 1 << 20
DELETE_RETENTION_MS = 1_500
"""How long a tombstone stays in a compacted topic."""
SCAN_LOOKS = 10
"""How many looks there are between two checks of a complete compacted log."""


class Sent(NamedTuple):
    """A batch of a producer: its expected offsets, its size in bytes and its largest timestamp."""

    base_offset: int
    end_offset: int
    size: int
    timestamp: int


class Decided(NamedTuple):
    """A batch below a high watermark."""

    last_offset: int
    epoch: int
    crc: int


class Decisions:
    """The committed batches of a log by base offset."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.batches: dict[int, Decided] = {}
        self.end_offset = 0
        self.last_epoch = 0

    def decide(self, batch: Batch, who: str) -> bool:
        """Check a batch that `who` has as committed. Return whether it was seen as committed for the first time."""
        found = Decided(batch.last_offset, batch.partition_leader_epoch, batch.crc)
        known = self.batches.setdefault(batch.base_offset, found)
        assert known == found, f"{self.name}, offset {batch.base_offset}: {who} has {found}, committed was {known}"
        if batch.base_offset < self.end_offset:
            return False
        self.end_offset, self.last_epoch = batch.last_offset + 1, found.epoch
        return True


class Ledger(Decisions):
    """One partition of one topic: the records that were sent and acknowledged, and what may be deleted."""

    def __init__(self, name: str, topic_id: bytes, topic: str, partition: int) -> None:
        super().__init__(name)
        self.topic_id = topic_id
        self.topic = topic
        self.partition = partition
        self.sent: list[Sent] = []
        self.acknowledged_end = 0
        self.read_end = 0
        self.start_offset = 0
        self.asked_start = 0
        self.lag = 0
        self.retention_bytes: int | None = None
        self.retention_ms: int | None = None

    def may_retain(self, size: int | None, time_ms: int | None) -> None:
        """Record that the partition may have this retention from now on. The smallest one counts."""
        if size is not None:
            self.retention_bytes = min(size, self.retention_bytes or size)
        if time_ms is not None:
            self.retention_ms = min(time_ms, self.retention_ms or time_ms)

    def decide(self, batch: Batch, who: str) -> bool:
        """Check the batch as for any log. The number of a record is its offset minus `lag`."""
        is_new = super().decide(batch, who)
        if is_new:
            for record in batch.records():
                number = int((record.value or b"-1").split()[0])
                if self.acknowledged_end <= number < min(self.start_offset, record.offset):
                    self.lag = record.offset - number
                assert number + self.lag == record.offset, f"{self.name}: at offset {record.offset} is record {number}, as {who} has it"
        return is_new

    def starts_at(self, offset: int, who: str, latest_ms: float) -> None:
        """Check that the records before the offset at which a replica begins may be gone."""
        if offset <= self.start_offset:
            return
        if offset > self.asked_start:
            behind = sum(one.size for one in self.sent if one.end_offset > offset)
            for one in self.sent:
                if self.asked_start < one.end_offset <= offset and one.end_offset > self.start_offset:
                    is_old = self.retention_ms is not None and one.timestamp + self.retention_ms <= latest_ms
                    is_much = self.retention_bytes is not None and behind >= self.retention_bytes
                    where = f"{self.name}: {who} begins at offset {offset}, {behind} bytes in front of its end"
                    assert is_old or is_much, f"{where}, and so lost {one} that no retention may delete"
        self.start_offset = offset
        self.end_offset = max(self.end_offset, offset)  # a batch that came and went between two looks was committed


class Keyed(NamedTuple):
    """A record of a compacted topic with the timestamp at which it was made."""

    key: bytes
    value: bytes | None
    timestamp: int


class CompactedLedger(Ledger):
    """A partition whose logs are compacted, each at its own time. `records[n]` is the record that was sent to be at offset n."""

    def __init__(self, name: str, topic_id: bytes, topic: str, partition: int) -> None:
        super().__init__(name, topic_id, topic, partition)
        self.records: list[Keyed] = []
        self.epochs: dict[int, int] = {}
        self.seen_gone: set[int] = set()

    def decide(self, batch: Batch, who: str) -> bool:
        """Check the batch as for any log. The records that are left of a batch must not have changed."""
        for record in batch.records():
            where = f"{self.name}, offset {record.offset}, as {who} has it"
            sent = self.records[record.offset]
            assert (record.key, record.value, record.timestamp) == sent, f"{where}: {record}, sent was {sent}"
            epoch = self.epochs.setdefault(record.offset, batch.partition_leader_epoch)
            assert epoch == batch.partition_leader_epoch, f"{where}: of epoch {batch.partition_leader_epoch}, was of {epoch}"
        if batch.last_offset < self.end_offset:
            return False
        self.end_offset, self.last_epoch = batch.last_offset + 1, batch.partition_leader_epoch
        return True

    def check_gone(self, offset: int, batch: Batch, high_watermark: int, latest_ms: float) -> None:
        """Check the gaps in the batch that somebody gets at `offset`, from a log that is committed up to `high_watermark`."""
        there = {record.offset for record in batch.records()}
        self._check_gone((one for one in range(offset, batch.last_offset + 1) if one not in there), high_watermark, latest_ms)

    def check_log(self, log: UnifiedLog, who: str, latest_ms: float, *, is_open: bool = False) -> None:
        """Check a whole log, or as much of it as can be read: every record that must exist does, and none exists twice."""
        there: set[int] = set()
        end = log.log_start_offset
        while end < log.log_end_offset and (batches := batches_of(log, end, log.log_end_offset)):
            for batch in batches:
                assert batch.base_offset >= end, f"{self.name}, {who}: {batch.base_offset} comes behind {end}"
                end = batch.last_offset + 1
                there.update(record.offset for record in batch.records())
                if end <= log.high_watermark:
                    self.decide(batch, who)
        assert end == log.log_end_offset or not is_open, f"{self.name}, {who}: batches end at {end}, the log at {log.log_end_offset}"
        committed = max(self.end_offset, log.high_watermark)
        self._check_gone((one for one in range(log.log_start_offset, end) if one not in there), committed, latest_ms)

    def _check_gone(self, offsets: Iterable[int], high_watermark: int, latest_ms: float) -> None:
        for offset in offsets:
            sent = self.records[offset]
            is_superseded = any(later.key == sent.key for later in self.records[offset + 1 : high_watermark])
            is_over = sent.value is None and sent.timestamp + DELETE_RETENTION_MS <= latest_ms
            assert is_superseded or is_over, f"{self.name}: offset {offset}, {sent}, is gone and was the last of its key"
            self.seen_gone.add(offset)


class Checks:
    """All ledgers, and what was seen in each life of each node."""

    def __init__(self, world: NodeWorld) -> None:
        self.world = world
        self.metadata = Decisions("metadata")
        self.ledgers: dict[tuple[bytes, int], Ledger] = {}
        self.leaders: dict[tuple[bytes, int, int], int] = {}
        self._first_lives: dict[tuple[bytes, int, int], int] = {}
        self.quorum_leaders: dict[int, int] = {}
        self._high_watermarks: dict[tuple[bytes, int, int, int], int] = {}
        self._seen: dict[object, int] = {}
        self._looks = 0

    def look(self) -> None:
        """Check what must be true at every moment."""
        self._looks += 1
        self.world.latest_ms = max(self.world.latest_ms, self.world.latest_wall_ms())
        behind_ms = max(-node.host.clock_offset_ms for node in self.world.nodes.values())
        self.world.furthest_behind_ms = max(self.world.furthest_behind_ms, behind_ms)
        self.world.is_newest(self.world.latest_image())
        for node in self.world.nodes.values():
            assert not node.failures or node.has_bad_disk, f"node {node.id} ended: {node.failures}"
            self._look_at_quorum(node)
            for partition in node.partitions():
                ledger = self.ledgers.get((partition.topic_id, partition.topic_partition.partition))
                if ledger is not None and partition.log is not None:
                    self._look_at(node, partition, ledger)

    # partitions -------------------------------------------------------------------------------------------------------------------

    def _look_at(self, node: SimNode, partition: Partition, ledger: Ledger) -> None:
        log: Any = partition.log
        who = f"node {node.id}"
        where = f"{ledger.name}, {who}"
        high_watermark = log.high_watermark
        assert log.log_start_offset <= high_watermark <= log.log_end_offset, f"{where}: {log}"
        ledger.starts_at(log.log_start_offset, who, self.world.latest_wall_ms())
        if partition.is_leader:
            self._look_at_leader(node, partition, ledger, high_watermark)
        if isinstance(ledger, CompactedLedger) and self._looks % SCAN_LOOKS == 0:
            ledger.check_log(log, who, self.world.latest_for_cleaners_ms)
        key = (node.id, node.host.generation, ledger.name, log.directory)
        self._seen[key] = self._decided(log, self._seen.get(key, 0), high_watermark, ledger, who)

    def _is_of_a_recreated_topic(self, ledger: Ledger) -> bool:
        return any(other.topic == ledger.topic and other.topic_id != ledger.topic_id for other in self.ledgers.values())

    def _look_at_leader(self, node: SimNode, partition: Partition, ledger: Ledger, high_watermark: int) -> None:
        epoch = partition.leader_epoch
        known = self.leaders.setdefault((ledger.topic_id, ledger.partition, epoch), node.id)
        assert known == node.id, f"{ledger.name}: nodes {known} and {node.id} lead epoch {epoch}"
        key = (ledger.topic_id, ledger.partition, epoch, node.host.generation)
        before = self._high_watermarks.get(key, 0)
        assert high_watermark >= before, f"{ledger.name}: the high watermark of node {node.id} fell from {before} to {high_watermark}"
        self._high_watermarks[key] = high_watermark
        first_life = self._first_lives.setdefault((ledger.topic_id, ledger.partition, epoch), node.host.generation)
        if first_life != node.host.generation and self._is_of_a_recreated_topic(ledger):
            # Checkpoints of high watermarks have the names of topics, not their ids. After a crash a leader may begin with that of a
            # deleted topic, as in Kafka.
            return
        if high_watermark <= ledger.start_offset:
            # Retention has deleted everything. A replica that lost power may have forgotten the empty segment after it, and so the end of
            # the log.
            return
        for member in partition.in_sync_replica_ids:
            other = self.world.nodes[member]
            if other is node or other.lost_data:
                continue
            end = other.end_offset(ledger)
            assert end is None or end >= high_watermark, (
                f"{ledger.name}: node {member} is in the ISR of epoch {epoch} with {end} of {high_watermark} records"
            )

    def _decided(self, log: UnifiedLog, offset: int, end_offset: int, decisions: Decisions, who: str) -> int:
        """Check the new batches below a high watermark and return the offset after them."""
        offset = max(offset, log.log_start_offset)
        while offset < end_offset:
            batches = batches_of(log, offset, end_offset)
            for batch in batches:
                decisions.decide(batch, who)
                offset = batch.last_offset + 1
            if not batches:
                break
        return offset

    # the quorum -------------------------------------------------------------------------------------------------------------------

    def _look_at_quorum(self, node: SimNode) -> None:
        raft = None if node.node is None or node.node.shared is None else node.node.shared._raft
        if raft is None or raft.is_closed:
            return
        log = raft.log.unified
        high_watermark = raft.node.high_watermark
        who = f"node {node.id}"
        if high_watermark is not None:
            key = (node.id, node.host.generation)
            self._seen[key] = self._decided(log, self._seen.get(key, 0), min(high_watermark, log.high_watermark), self.metadata, who)
        if raft.node.is_leader:
            epoch = raft.node.leader_and_epoch.epoch
            known = self.quorum_leaders.setdefault(epoch, node.id)
            assert known == node.id, f"metadata: nodes {known} and {node.id} lead epoch {epoch}"
            if epoch >= self.metadata.last_epoch:
                end = log.log_end_offset
                assert end >= self.metadata.end_offset, f"metadata: {who} leads epoch {epoch} with {end} of {self.metadata.end_offset}"
            if high_watermark is not None:
                ends = [self.world.nodes[one].metadata_end for one in VOTERS]
                having = sum(end is None or end >= high_watermark for end in ends)
                assert having * 2 > len(VOTERS), f"metadata: {who} has committed {high_watermark}, the voters' logs end at {ends}"

    # the end ----------------------------------------------------------------------------------------------------------------------

    def look_at_all(self) -> None:
        """Check, after all faults, that every promise is kept on every replica, byte for byte."""
        self.look()
        image = self.world.latest_image()
        for ledger in self.ledgers.values():
            registration = image.topics.partition(ledger.topic_id, ledger.partition)
            if registration is None:
                assert ledger.topic_id in self.world.admin.deleted, f"{ledger.name} is gone, and nobody asked for it"
                continue
            if self.world.is_orphaned(ledger):
                continue
            assert ledger.end_offset >= ledger.acknowledged_end, (
                f"{ledger.name}: {ledger.acknowledged_end} acknowledged, {ledger.end_offset} left"
            )
            assert ledger.end_offset >= ledger.read_end, f"{ledger.name}: read up to {ledger.read_end}, {ledger.end_offset} left"
            logs = [self.world.nodes[node_id].log(ledger.topic, ledger.partition) for node_id in registration.replicas]
            found = [log for log in logs if log is not None]
            assert len(found) == len(logs), f"{ledger.name}: only {len(found)} of {len(logs)} replicas are served"
            ends = {log.log_end_offset for log in found}
            assert ends == {ledger.end_offset}, f"{ledger.name}: {ends}, committed is {ledger.end_offset}"
            if isinstance(ledger, CompactedLedger):
                for node_id, log in zip(registration.replicas, found, strict=True):
                    ledger.check_log(log, f"node {node_id}", self.world.latest_for_cleaners_ms, is_open=True)
                continue
            start = max(log.log_start_offset for log in found)
            contents = {b"".join(bytes(batch.data()) for batch in all_batches(log, start, ledger.end_offset)) for log in found}
            assert len(contents) == 1, f"{ledger.name}: the replicas differ"

    def is_metadata_everywhere(self) -> bool:
        """Return whether every node has all committed metadata."""
        self.look()
        ends = [node.node.shared.raft.log.end_offset for node in self.world.nodes.values() if node.node and node.node.shared]
        return min(ends) >= self.metadata.end_offset


def batches_of(log: UnifiedLog, offset: int, end_offset: int) -> list[Batch]:
    """Return the batches of a log from `offset` that end before `end_offset`, as many as one read returns, or none if the disk fails."""
    try:
        records = log.read(offset, READ_BYTES, Isolation.LOG_END, min_one_batch=True).records
        found = [] if records is None else list(read_batches(records.read_at(records.start, records.size)))
    except (KopsError, OSError):
        return []
    return [batch for batch in found if batch.last_offset < end_offset]


def all_batches(log: UnifiedLog, start: int, end_offset: int) -> Iterable[Batch]:
    """Yield the batches from one offset to another."""
    offset = start
    while offset < end_offset:
        batches = batches_of(log, offset, end_offset)
        assert batches, f"{log}: nothing can be read at {offset}"
        for batch in batches:
            yield batch
            offset = batch.last_offset + 1
