"""The rules for transactions, offsets and groups in `world`. Books record what clients asked for and what they were told.

- Transactions: a reader of committed records sees a transaction completely or not at all. It sees nothing of a transaction that was
  aborted, whose commit was never requested, or whose producer was fenced before it requested the commit. No record appears twice.
- Offsets: an acknowledged offset is never lost and never goes back. The offsets of a transaction count once it is committed, and not
  before.
- Groups: in one generation or epoch, a partition belongs to one member. A member that gets a partition is its only owner from then on.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Generic, NamedTuple, TypeVar

from kops.records import Batch
from tests.simulation.node_checks import Decisions, Ledger


class Place(NamedTuple):
    """A partition for which a group commits an offset."""

    group: str
    partition: int


class TransactionalLedger(Ledger):
    """A partition that transactional producers write to. The batches below a high watermark are the same on all replicas and never
    change.
    """

    def decide(self, batch: Batch, who: str) -> bool:
        """Check the batch as for any log. `TransactionBook` checks the records."""
        return Decisions.decide(self, batch, who)


@dataclass(eq=False)
class Txn:
    """A transaction as its producer knows it. The times are those of the world, or None if the event has not happened."""

    name: str
    transactional_id: str
    life: int
    number: int
    version: int
    records: dict[int, list[str]] = field(default_factory=dict)
    """The acknowledged values by partition."""
    sent: set[tuple[int, str]] = field(default_factory=set)
    seen: set[tuple[int, str]] = field(default_factory=set)
    offsets: dict[Place, int] = field(default_factory=dict)
    commit_sent_ms: float | None = None
    committed_ms: float | None = None
    is_aborted: bool = False

    def __str__(self) -> str:
        return (
            f"{self.name} (commit sent at {self.commit_sent_ms}, acknowledged at {self.committed_ms}, "
            f"{'aborted' if self.is_aborted else 'not aborted'})"
        )


class TransactionBook:
    """All transactions of all transactional ids."""

    def __init__(self) -> None:
        self.txns: dict[str, Txn] = {}
        self.fenced_ms: dict[tuple[str, int], float] = {}
        """Maps (transactional id, life) to the time when the life that fenced it got its producer id."""
        self.epochs: dict[tuple[str, int], tuple[int, int]] = {}
        """Maps (transactional id, life) to the producer id and epoch with which the life began. An older life may get its epoch later than
        a newer one."""
        self.places: dict[tuple[int, str], int] = {}

    def begin(self, transactional_id: str, life: int, number: int, version: int) -> Txn:
        """Begin a transaction."""
        name = f"{transactional_id}.{life}.{number}"
        txn = self.txns[name] = Txn(name, transactional_id, life, number, version)
        return txn

    def initialized(self, transactional_id: str, life: int, epoch: tuple[int, int], now_ms: float) -> None:
        """Record that a life has its producer id and epoch. This fences the lives that have earlier ones."""
        others = {one: known for one, known in self.epochs.items() if one[0] == transactional_id}
        self.epochs[transactional_id, life] = epoch
        for one, known in others.items():
            assert known != epoch, f"{one} and {life} of {transactional_id} have the producer id and epoch {epoch}"
            self.fenced_ms.setdefault(min((known, one), (epoch, (transactional_id, life)))[1], now_ms)

    def check_may_commit(self, txn: Txn, who: str) -> None:
        """Check that a transaction may be shown as committed."""
        assert txn.commit_sent_ms is not None, f"{who} has {txn}, whose commit nobody asked for"
        assert not txn.is_aborted, f"{who} has {txn}, which was aborted"
        fenced_ms = self.fenced_ms.get((txn.transactional_id, txn.life))
        assert fenced_ms is None or txn.commit_sent_ms <= fenced_ms, f"{who} has {txn}, fenced at {fenced_ms}"

    def committed(self, txn: Txn, now_ms: float) -> None:
        """Record that a producer was told that its transaction is committed."""
        self.check_may_commit(txn, "its producer")
        txn.committed_ms = now_ms

    def saw(self, partition: int, offset: int, value: bytes, who: str) -> None:
        """Record that a reader of committed records got a record."""
        text = value.decode()
        where = f"{who}, partition {partition}, offset {offset}"
        txn = self.txns[text.rpartition("/")[0]]
        assert (partition, text) in txn.sent, f"{where}: {text} was never sent there"
        assert self.places.setdefault((partition, text), offset) == offset, (
            f"{where}: {text} is also at offset {self.places[partition, text]}"
        )
        self.check_may_commit(txn, where)
        txn.seen.add((partition, text))

    def check_all(self) -> None:
        """Check, after everything was read, that each transaction was seen completely or not at all."""
        for txn in self.txns.values():
            expected = {(partition, value) for partition, values in txn.records.items() for value in values}
            if txn.committed_ms is not None:
                assert txn.seen == expected, f"{txn}: {sorted(expected - txn.seen)} are missing"
            elif txn.seen:
                assert txn.seen == expected, f"a part of {txn} is committed: {sorted(txn.seen)}, missing are {sorted(expected - txn.seen)}"

    def last_offsets(self) -> dict[Place, int]:
        """Return, at the end, the offset that the last committed transaction left at each place."""
        last: dict[Place, int] = {}
        for txn in sorted(self.txns.values(), key=lambda one: (self.epochs[one.transactional_id, one.life], one.number)):
            if txn.seen:
                last.update(txn.offsets)
        return last


@dataclass(eq=False)
class Commit:
    """A commit of an offset. Each commit has a value of its own."""

    value: int
    sent_ms: float
    acked_ms: float | None = None
    is_refused: bool = False
    txn: Txn | None = None


class OffsetBook:
    """All commits of all places."""

    def __init__(self, transactions: TransactionBook) -> None:
        self.commits: dict[Place, dict[int, Commit]] = {}
        self._transactions = transactions
        self._last_value = 0

    def begin(self, place: Place, now_ms: float, txn: Txn | None = None) -> Commit:
        """Begin a commit."""
        self._last_value += 1
        commit = self.commits.setdefault(place, {})[self._last_value] = Commit(self._last_value, now_ms, txn=txn)
        return commit

    def fetched(self, place: Place, value: int, asked_ms: float, who: str, *, is_newest: bool) -> None:
        """Check the offset that somebody fetched for a place. `is_newest`: the answer is from the coordinator of the group, and no later
        coordinator exists.
        """
        where = f"{who}: {place.group}-{place.partition} has {value}"
        commits = self.commits.get(place, {})
        if value >= 0:
            assert value in commits, f"{where}, which nobody committed"
            found = commits[value]
            assert not found.is_refused, f"{where}, whose commit was refused"
            if found.txn is not None:
                self._transactions.check_may_commit(found.txn, where)
        if not is_newest:
            return
        for later in commits.values():
            if later.value > value and _is_promised_before(later, asked_ms) and not _may_come_late(commits.get(value), later):
                raise AssertionError(f"{where}, but {later.value} was acknowledged at {later.acked_ms}")

    def check_last(self, found: dict[Place, int]) -> None:
        """Check, after all transactions were read, that their groups have the offsets of the last committed transactions."""
        for place, expected in self._transactions.last_offsets().items():
            value = found[place]
            commit = self.commits[place].get(value)
            is_late = commit is not None and commit.txn is not None and commit.txn.version < 2 and bool(commit.txn.seen)
            assert value == expected or is_late, f"{place.group}-{place.partition} has {value}, last committed was {expected}"


def _is_promised_before(commit: Commit, now_ms: float) -> bool:
    acked_ms = commit.acked_ms if commit.txn is None else commit.txn.committed_ms
    return acked_ms is not None and acked_ms < now_ms


def _may_come_late(found: Commit | None, later: Commit) -> bool:
    """Return whether the coordinator may have processed the commit `found` after `later`. That is possible if `found` was never answered,
    or not before `later` was sent on another connection.
    """
    if found is None:
        return False
    if found.txn is None:
        return found.acked_ms is None or found.acked_ms > later.sent_ms
    # Before version 2, all transactions of a producer have the same epoch. So a late commit may be taken for a part of the next
    # transaction.
    return found.txn.version < 2 and found.acked_ms is None


class Suspicion(NamedTuple):
    """A member has got a partition that another member still has."""

    since_ms: float
    epoch: int
    new_owner: str


Part = TypeVar("Part")
"""What has one owner at a time: a partition, or an active task."""


class OwnerBook(Generic[Part]):
    """The members that have the partitions or tasks of a group, as the coordinators assigned them."""

    def __init__(self) -> None:
        self._granted: dict[tuple[str, int, Part], str] = {}
        self.newest: dict[str, int] = {}

    def grant(self, group: str, epoch: int, parts: Iterable[Part], member: str) -> None:
        """Record the partitions or tasks that a coordinator assigned to a member in a generation or member epoch."""
        self.newest[group] = max(epoch, self.newest.get(group, 0))
        for part in parts:
            owner = self._granted.setdefault((group, epoch, part), member)
            assert owner == member, f"{group}: partition {part} of epoch {epoch} belongs to {owner} and to {member}"
