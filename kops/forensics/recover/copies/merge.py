"""Merges several copies of a partition into one log: other replicas, `-future` and `-stray` directories, files that a cleaner left.

The copies are merged by offset. Equal runs of batches are taken as a whole. The rest is merged batch by batch, with only the batches around
one place in memory.

* A batch that several copies have is taken once. If copies give it different leader epochs, which no checksum covers, the majority decides.
* If copies have different batches at the same offsets, the batch of the later leader epoch wins, as Kafka's truncation by leader epochs
  decides (UnifiedLog.truncateTo, LeaderEpochFileCache.endOffsetFor). The records of the older one before the newer one begins are kept.
* Batches of an older epoch inside a newer history are left out, also in its holes. After its end they are kept: a broker would truncate
  them, but here nothing else has these offsets. They get the newer epoch, because a log's epochs never go back.
* Replicas of one epoch differ if their cleaners had reached different places. All records are kept. If the same record differs, the
  version of most replicas is kept.
* A batch that would be in a wrong place, because its base offset is damaged, is recognized by its checksum: others have it where this copy
  has its hole.

Every decision but the first is reported as a `Conflict` or a note.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import Any, Final

from kops.errors import DecodeError
from kops.files import Files
from kops.forensics.plans.items import Item, item_batch
from kops.forensics.recover.copies.assemble import records_between
from kops.forensics.recover.copies.runs import Run, append_item, expand

__all__ = ["Conflict", "Copy", "Merged", "merge"]

LIVE: Final = "log"
_REMEMBERED: Final = 16

OLDER_EPOCH: Final = "older-epoch"
BEHIND_THE_END: Final = "behind-the-end"
CONTENTS: Final = "contents"


@dataclass(slots=True)
class Copy:
    """One copy: its kind (`Source.kind`), its name in reports, and its runs by offset."""

    kind: str
    name: str
    runs: list[Run]


@dataclass(slots=True)
class Conflict:
    """Offsets (both inclusive) at which copies disagree.

    `why`: `older-epoch` (the copy's batches are of an older history and left out), `behind-the-end` (of an older history, kept with the
    newer epoch), `contents` (same epoch, other records; left out).
    """

    first: int
    last: int
    why: str
    kept_epoch: int
    other_epoch: int
    copy: str

    def to_json(self) -> dict[str, Any]:
        """As in the report."""
        return {
            "first_offset": self.first,
            "last_offset": self.last,
            "why": self.why,
            "kept_epoch": self.kept_epoch,
            "other_epoch": self.other_epoch,
            "copy": self.copy,
        }


@dataclass(slots=True)
class Merged:
    """Runs by offset, the conflicts between the copies, and notes."""

    runs: list[Run] = field(default_factory=list)
    conflicts: list[Conflict] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)


def merge(files: Files, copies: Sequence[Copy]) -> Merged:
    """Merge all copies into one log, each offset once. If nothing else decides, the first copy wins."""
    return _Merger(files, copies).run()


_Key = tuple[int, int, int, int]
_Identity = tuple[int, int, int, int, int]


class _State:
    """A copy during the merge.

    `expected`: the offset that follows its last batch. If it has a hole there, `fills` are the batches that others have in the hole, by the
    key that identifies a batch at a wrong offset.
    """

    def __init__(self, number: int, copy: Copy) -> None:
        self.number = number
        self.copy = copy
        self.floor = 0
        self.expected: int | None = None
        self.fills: dict[_Key, int] = {}
        self.ahead: deque[Item] = deque()
        self.items: Iterator[Item] = iter(())

    def begin(self, items: Iterator[Item]) -> None:
        """Read these next."""
        self.items = items

    def head(self) -> Item | None:
        """The next batch that ends at or after `floor`."""
        while True:
            if not self.ahead:
                item = next(self.items, None)
                if item is None:
                    return None
                self.ahead.append(item)
            if self.ahead[0].last >= self.floor:
                return self.ahead[0]
            self.has(self.ahead.popleft().last)

    def until(self, last: int) -> list[Item]:
        """The next batches that begin at `last` or before."""
        if self.head() is None:
            return []
        while self.ahead[-1].base <= last:
            item = next(self.items, None)
            if item is None:
                break
            self.ahead.append(item)
        return [item for item in self.ahead if item.base <= last]

    def passed(self, last: int) -> None:
        """Mark its batches up to this offset as processed."""
        while self.ahead and self.ahead[0].last <= last:
            item = self.ahead.popleft()
            self.has(item.last)
        self.floor = max(self.floor, last + 1)

    def has(self, last: int) -> None:
        """Whether it has a batch that ends at this offset."""
        self.expected = last + 1
        self.fills.clear()

    def misses(self, item: Item) -> None:
        """Remember that another copy has this batch, if this copy has a hole there."""
        if self.expected == item.base and len(self.fills) < _REMEMBERED:
            self.fills[_key(item)] = item.base
            self.expected = item.last + 1


class _Merger:
    def __init__(self, files: Files, copies: Sequence[Copy]) -> None:
        self.files = files
        self.states = [_State(number, copy) for number, copy in enumerate(copies)]
        self.ends: dict[int, int] = {}
        for run in (run for copy in copies for run in copy.runs):
            self.ends[run.epochs[1]] = max(run.last, self.ends.get(run.epochs[1], -1))
        self.epoch = -1
        self.merged = Merged()

    def run(self) -> Merged:
        for cluster in _clusters(self.states):
            if not self._take_whole(cluster):
                self._settle(cluster)
        return self.merged

    # Whole runs.

    def _take_whole(self, cluster: list[tuple[_State, Run]]) -> bool:
        """Take a run that no other overlaps, or that is the same in all copies that have it."""
        _, run = cluster[0]
        if any(not _same(run, other) for _, other in cluster[1:]) or len({state.number for state, _ in cluster}) < len(cluster):
            return False
        if 0 <= run.epochs[0] < self.epoch or any(state.fills for state, _ in cluster):
            return False
        having = [state for state, _ in cluster]
        for state in self.states:
            if state in having:
                state.has(run.last)
            elif state.expected == run.base:
                for item in islice(expand(self.files, run), _REMEMBERED):
                    state.misses(item)
        # As batch by batch, one that did not have to be mended is preferred.
        self.merged.runs.append(min((each for _, each in cluster), key=lambda each: each.data is not None))
        self.epoch = max(self.epoch, run.epochs[1])
        return True

    # Batch by batch.

    def _settle(self, cluster: list[tuple[_State, Run]]) -> None:
        active = []
        for state in self.states:
            runs = [run for owner, run in cluster if owner is state]
            if runs:
                state.begin(item for run in runs for item in expand(self.files, run))
                active.append(state)
        while True:
            heads = [(state, item) for state in active if (item := state.head()) is not None]
            if not heads:
                return
            misplaced = next((each for each in heads if _key(each[1]) in each[0].fills), None)
            if misplaced is not None:
                self._drop_misplaced(*misplaced)
                continue
            low = min(max(item.base, state.floor) for state, item in heads)
            self._place(low, [(state, item) for state, item in heads if max(item.base, state.floor) <= low], active)

    def _drop_misplaced(self, state: _State, item: Item) -> None:
        at = state.fills[_key(item)]
        self.merged.notes.append(
            f"{item.path}:{item.position}: left out: other copies have the batch of offsets {item.base} to {item.last} at offset {at}"
        )
        state.ahead.popleft()

    def _place(self, low: int, covering: list[tuple[_State, Item]], active: list[_State]) -> None:
        """Decide what is at offset `low` and at some offsets after it."""
        groups: dict[_Identity, list[tuple[_State, Item]]] = {}
        for state, item in covering:
            groups.setdefault(_identity(item), []).append((state, item))
        winner, epoch = max(((group, _epoch(group)) for group in groups.values()), key=_rank)
        item = winner[0][1]
        is_older = item.magic > 1 and 0 <= epoch < self.epoch
        if is_older and low <= (end := self._end_of(self.epoch)):
            self._leave_out(low, end, covering)
            return
        high = min([item.last, *(begin - 1 for begin in self._newer(low, item, epoch, active))])
        rivals = [
            (state, other) for state in active for other in state.until(high) if other.last >= low and _identity(other) != _identity(item)
        ]
        donors = self._compare(low, high, (item, epoch), rivals)
        stamp = self.epoch if is_older else epoch if all(member.epoch != epoch for _, member in winner) else None
        chosen = min(winner, key=lambda each: (each[1].epoch != epoch, each[1].data is not None))
        self._emit(chosen[1], donors, (low, high), stamp)
        if is_older:
            self._conflict(Conflict(low, high, BEHIND_THE_END, self.epoch, epoch, chosen[0].copy.name))
        else:
            self.epoch = max(self.epoch, epoch)
        self._move_on(low, high, item, active)

    def _end_of(self, epoch: int) -> int:
        """The last offset of this or a later leader epoch in any copy."""
        return max((last for each, last in self.ends.items() if each >= epoch), default=-1)

    def _leave_out(self, low: int, end: int, covering: list[tuple[_State, Item]]) -> None:
        for state, item in covering:
            last = min(item.last, end)
            self._conflict(Conflict(low, last, OLDER_EPOCH, self.epoch, item.epoch, state.copy.name))
            state.passed(last)

    def _newer(self, low: int, item: Item, epoch: int, active: list[_State]) -> Iterator[int]:
        """Return the offsets at which batches of later epochs begin within this batch."""
        groups: dict[_Identity, list[tuple[_State, Item]]] = {}
        for state in active:
            for other in state.until(item.last):
                if other.base > low and other.magic > 1 and other.epoch > epoch:
                    groups.setdefault(_identity(other), []).append((state, other))
        for group in groups.values():
            if _epoch(group) > epoch:
                yield group[0][1].base

    def _compare(self, low: int, high: int, chosen: tuple[Item, int], rivals: list[tuple[_State, Item]]) -> list[Item]:
        """Report what differs from the chosen batch. Returns batches that have records which it does not have."""
        item, epoch = chosen
        donors: list[Item] = []
        own: dict[int, Any] | None = None
        for state, other in rivals:
            first, last = max(low, other.base), min(high, other.last)
            if other.epoch != epoch:
                if state.copy.kind == LIVE:
                    self._conflict(Conflict(first, last, OLDER_EPOCH, epoch, other.epoch, state.copy.name))
                continue
            if state.copy.kind != LIVE or item.control or other.control or other.data is not None:
                continue
            own = self._records(item, low, high) if own is None else own
            theirs = self._records(other, low, high)
            if any(own[offset] != record for offset, record in theirs.items() if offset in own):
                self._conflict(Conflict(first, last, CONTENTS, epoch, other.epoch, state.copy.name))
            elif other.magic == item.magic and theirs.keys() - own.keys():
                donors.append(other)
                own = {**theirs, **own}
        return donors

    def _records(self, item: Item, low: int, high: int) -> dict[int, Any]:
        try:
            found = records_between(item_batch(self.files, item), low, high)
        except DecodeError:
            return {}
        return {offset: (record.timestamp, record.key, record.value, record.headers) for offset, record in found.items()}

    def _emit(self, item: Item, donors: list[Item], place: tuple[int, int], stamp: int | None) -> None:
        low, high = place
        if (low, high) == (item.base, item.last) and not donors:
            append_item(self.merged.runs, item, stamp)
            return
        if not donors and not self._records(item, low, high):
            return
        epochs = (item.epoch, item.epoch)
        run = Run(item.path, item.position, item.end, max(low, item.base), min(high, item.last), parts=(item, *donors), stamp=stamp)
        run.epochs = epochs
        self.merged.runs.append(run)

    def _move_on(self, low: int, high: int, item: Item, active: list[_State]) -> None:
        having = {state.number for state in active if any(_identity(other) == _identity(item) for other in state.until(high))}
        for state in self.states:
            if state.number not in having and low == item.base:
                state.misses(item)
        for state in active:
            state.passed(high)

    def _conflict(self, found: Conflict) -> None:
        """Record a conflict. Consecutive offsets that differ in the same way are one conflict."""
        for known in reversed(self.merged.conflicts[-2 * len(self.states) :]):
            same = (known.why, known.copy, known.kept_epoch, known.other_epoch)
            if same == (found.why, found.copy, found.kept_epoch, found.other_epoch) and known.first <= found.first <= known.last + 1:
                known.last = max(known.last, found.last)
                return
        self.merged.conflicts.append(found)


def _clusters(states: Sequence[_State]) -> Iterator[list[tuple[_State, Run]]]:
    """Yield groups of runs whose offsets overlap, by offset."""
    marked = sorted(((run.base, run.last, state.number, run) for state in states for run in state.copy.runs), key=lambda each: each[:3])
    cluster: list[tuple[_State, Run]] = []
    end = -1
    for base, last, number, run in marked:
        if cluster and base > end:
            yield cluster
            cluster = []
        cluster.append((states[number], run))
        end = max(end, last)
    if cluster:
        yield cluster


def _same(one: Run, other: Run) -> bool:
    return (one.digest, one.base, one.last, one.batches, one.size, one.epochs) == (
        other.digest,
        other.base,
        other.last,
        other.batches,
        other.size,
        other.epochs,
    )


def _key(item: Item) -> _Key:
    return item.crc, item.contents, item.size, item.span


def _identity(item: Item) -> _Identity:
    return item.base, item.last, item.crc, item.magic, item.contents


def _epoch(group: Iterable[tuple[_State, Item]]) -> int:
    """The leader epoch that most copies have for a batch; in a tie, the earlier one."""
    votes: dict[int, int] = {}
    for state, item in group:
        votes[item.epoch] = votes.get(item.epoch, 0) + (state.copy.kind == LIVE)
    return max(votes, key=lambda epoch: (votes[epoch], -epoch))


def _rank(each: tuple[list[tuple[_State, Item]], int]) -> tuple[int, bool, int, int, int]:
    """The rank of a batch: of several at one offset, the one with the highest rank is taken."""
    group, epoch = each
    item = group[0][1]
    records = item.count if item.count >= 0 else item.span
    votes = sum(state.copy.kind == LIVE for state, _ in group)
    return epoch, any(item.data is None for _, item in group), records if votes else -1, votes, -group[0][0].number
