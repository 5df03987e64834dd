"""What has to be true of transactions, offsets and groups in `world`: books of what clients asked and were told.

- Transactions: a reader of committed records sees all of a transaction or nothing of it. It sees nothing of one that was aborted, whose
  end was never asked for, or whose producer was fenced before it asked. Nothing is there twice.
- Offsets: what was acknowledged is never lost, and never goes back. Those of a transaction count when it is committed, and not before.
- Groups: of one generation or epoch, a partition belongs to one member. A member that gets a partition is its only owner from then on.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import NamedTuple

from kops.records import Batch
from tests.simulation.node_checks import Decisions, Ledger


class Place(NamedTuple):
    """A partition whose offset a group commits."""

    group: str
    partition: int


class TransactionalLedger(Ledger):
    """A partition that transactional producers write to: the batches below a high watermark are the same everywhere and for ever."""

    def decide(self, batch: Batch, who: str) -> bool:
        """As of any log; what the records say is a matter of `TransactionBook`."""
        return Decisions.decide(self, batch, who)


@dataclass(eq=False)
class Txn:
    """A transaction as its producer knows it. Times are of the world, None as long as it has not happened."""

    name: str
    transactional_id: str
    life: int
    number: int
    version: int
    records: dict[int, list[str]] = field(default_factory=dict)
    """By partition: the values that are acknowledged."""
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
        """(transactional id, life): when one that fenced it had its producer id."""
        self.epochs: dict[tuple[str, int], tuple[int, int]] = {}
        """(transactional id, life): the producer id and epoch that it began with. A life that is older may get its epoch later."""
        self.places: dict[tuple[int, str], int] = {}

    def begin(self, transactional_id: str, life: int, number: int, version: int) -> Txn:
        """A new transaction."""
        name = f"{transactional_id}.{life}.{number}"
        txn = self.txns[name] = Txn(name, transactional_id, life, number, version)
        return txn

    def initialized(self, transactional_id: str, life: int, epoch: tuple[int, int], now_ms: float) -> None:
        """A life has its producer id and epoch: those with earlier ones are fenced."""
        others = {one: known for one, known in self.epochs.items() if one[0] == transactional_id}
        self.epochs[transactional_id, life] = epoch
        for one, known in others.items():
            assert known != epoch, f"{one} and {life} of {transactional_id} have the producer id and epoch {epoch}"
            self.fenced_ms.setdefault(min((known, one), (epoch, (transactional_id, life)))[1], now_ms)

    def check_may_commit(self, txn: Txn, who: str) -> None:
        """Somebody shows something of a transaction as committed."""
        assert txn.commit_sent_ms is not None, f"{who} has {txn}, whose commit nobody asked for"
        assert not txn.is_aborted, f"{who} has {txn}, which was aborted"
        fenced_ms = self.fenced_ms.get((txn.transactional_id, txn.life))
        assert fenced_ms is None or txn.commit_sent_ms <= fenced_ms, f"{who} has {txn}, fenced at {fenced_ms}"

    def committed(self, txn: Txn, now_ms: float) -> None:
        """A producer was told that its transaction is committed."""
        self.check_may_commit(txn, "its producer")
        txn.committed_ms = now_ms

    def saw(self, partition: int, offset: int, value: bytes, who: str) -> None:
        """A reader of committed records got a record."""
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
        """At the end, when everything was read: each transaction is there as a whole, or not at all."""
        for txn in self.txns.values():
            expected = {(partition, value) for partition, values in txn.records.items() for value in values}
            if txn.committed_ms is not None:
                assert txn.seen == expected, f"{txn}: {sorted(expected - txn.seen)} are missing"
            elif txn.seen:
                assert txn.seen == expected, f"a part of {txn} is committed: {sorted(txn.seen)}, missing are {sorted(expected - txn.seen)}"

    def last_offsets(self) -> dict[Place, int]:
        """At the end: the offset of each place as the last committed transaction left it."""
        last: dict[Place, int] = {}
        for txn in sorted(self.txns.values(), key=lambda one: (self.epochs[one.transactional_id, one.life], one.number)):
            if txn.seen:
                last.update(txn.offsets)
        return last


@dataclass(eq=False)
class Commit:
    """A commit of an offset; each has a value of its own."""

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
        """A new commit."""
        self._last_value += 1
        commit = self.commits.setdefault(place, {})[self._last_value] = Commit(self._last_value, now_ms, txn=txn)
        return commit

    def fetched(self, place: Place, value: int, asked_ms: float, who: str, *, is_newest: bool) -> None:
        """Somebody got the offset of a place. `is_newest`: from its coordinator, which nobody has followed yet."""
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
        """At the end, when all transactions are read: their groups have the offsets of the last ones that were committed."""
        for place, expected in self._transactions.last_offsets().items():
            value = found[place]
            commit = self.commits[place].get(value)
            is_late = commit is not None and commit.txn is not None and commit.txn.version < 2 and bool(commit.txn.seen)
            assert value == expected or is_late, f"{place.group}-{place.partition} has {value}, last committed was {expected}"


def _is_promised_before(commit: Commit, now_ms: float) -> bool:
    acked_ms = commit.acked_ms if commit.txn is None else commit.txn.committed_ms
    return acked_ms is not None and acked_ms < now_ms


def _may_come_late(found: Commit | None, later: Commit) -> bool:
    """Whether a commit whose answer never came may have been read by the coordinator behind a later one, on another connection."""
    if found is None:
        return False
    if found.txn is None:
        return found.acked_ms is None or found.acked_ms > later.sent_ms
    # Before version 2 all transactions of a producer have one epoch, so what comes late may be taken for a part of the next one.
    return found.txn.version < 2 and found.acked_ms is None


class Suspicion(NamedTuple):
    """A member has got a partition that another one has."""

    since_ms: float
    epoch: int
    new_owner: str


class OwnerBook:
    """Which member has which partition of a group, as the coordinators granted it."""

    def __init__(self) -> None:
        self._granted: dict[tuple[str, int, int], str] = {}
        self.newest: dict[str, int] = {}

    def grant(self, group: str, epoch: int, partitions: Iterable[int], member: str) -> None:
        """A coordinator told a member its partitions of a generation, or of a member epoch."""
        self.newest[group] = max(epoch, self.newest.get(group, 0))
        for partition in partitions:
            owner = self._granted.setdefault((group, epoch, partition), member)
            assert owner == member, f"{group}: partition {partition} of epoch {epoch} belongs to {owner} and to {member}"
