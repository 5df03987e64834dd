"""Reads the replicas of one partition side by side: which offsets each has, and where they contradict each other.

The streams advance together. Where the headers of all replicas are the same, whole windows are compared at once. A header holds the
checksum, which was computed, so equal headers are equal batches (for gzip sets of v0 and v1 the bytes are compared). Other batches are
compared by records, since compaction rewrites a batch (Cleaner.cleanInto). If two replicas have different records of different leader
epochs at an offset, their histories diverge there, and each continues by itself as a `Branch`. Source: KIP-101 and KIP-279. One leader
writes all batches of an epoch, so an offset and its epoch identify one batch.
"""

from __future__ import annotations

import itertools
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field

from kops.errors import DecodeError
from kops.files import Files
from kops.forensics.replicas.slices import Summary, after_slice
from kops.forensics.replicas.stream import Chunk, Hurt, LogFile, OnBytes, ordered_batches, row_last, row_size, short_rows
from kops.records import Batch
from kops.records.batch import CODEC_MASK
from kops.records.scanning.columns import Row

__all__ = ["Branch", "Comparison", "Conflict", "Hole", "Injury", "Sight", "Walk", "compare"]

_GZIP = 1
_MOST_HOLES = 10_000
"""A log with more holes than this was compacted. Its holes are not kept."""


@dataclass(slots=True)
class Hole:
    """Offsets that some replicas have and this one lacks. `hurt`: there is damage in this hole."""

    first: int
    last: int
    have: frozenset[int]
    hurt: bool


@dataclass(slots=True)
class Sight:
    """A batch of one replica at a conflict."""

    replica: int
    path: str
    position: int
    base_offset: int
    last_offset: int
    epoch: int
    crc: int


@dataclass(slots=True)
class Conflict:
    """Replicas with different batches at the same offsets. `kind`: `epoch` (the same batch, another leader epoch), `contents` (the same
    leader epoch, other records) or `diverged` (other records of other leader epochs)."""

    kind: str
    first: int
    last: int
    sights: list[Sight] = field(default_factory=list)


@dataclass(slots=True)
class Branch:
    """Replicas whose histories are the same from `first` on, and where they diverge again."""

    members: list[int]
    first: int
    parted: Conflict | None = None
    branches: list[Branch] = field(default_factory=list)

    def leaves(self) -> Iterator[Branch]:
        """The branches that do not diverge."""
        if not self.branches:
            yield self
        for branch in self.branches:
            yield from branch.leaves()


@dataclass(slots=True)
class Injury:
    """Damage of a replica, and the offsets between the batches on both sides of it (None: no batch on that side)."""

    hurt: Hurt
    before: int | None
    after: int | None = None


@dataclass(slots=True)
class Walk:
    """The extent of one replica. `start` is its first offset, `end` the offset after its last one; None without batches."""

    start: int | None = None
    end: int | None = None
    last_epoch: int = -1
    batches: int = 0
    bytes: int = 0
    short_batches: int = 0
    gaps: int = 0
    holes: list[Hole] = field(default_factory=list)
    before: list[Hole] = field(default_factory=list)
    behind: list[Hole] = field(default_factory=list)
    injuries: list[Injury] = field(default_factory=list)

    @property
    def compacted(self) -> bool:
        """Whether the log looks compacted, by the same signs as in `kops.forensics.verify.checks.log`."""
        return self.short_batches > 0 or len(self.holes) >= _MOST_HOLES or (self.gaps >= 3 and self.gaps * 10 >= self.batches)


@dataclass(slots=True)
class Comparison:
    """The result for one partition: a walk a replica, the branches of their history, and the conflicts without a divergence."""

    walks: list[Walk]
    root: Branch
    conflicts: list[Conflict] = field(default_factory=list)


def compare(
    files: Files,
    replicas: Sequence[Sequence[LogFile]],
    on_bytes: OnBytes | None = None,
    slices: Sequence[Mapping[int, Summary]] = (),
) -> Comparison:
    """Read all replicas of a partition, each given by its logs in the order of their base offsets. What cannot be read is an `Injury`.

    `slices`: the summaries of slices of each replica that have been read already, by their first offsets. Where those of the replicas are
    equal, the batches are not read again. The result is the same.
    """

    def begun(number: int, logs: Sequence[LogFile]) -> _Cursor:
        known = slices[number] if slices else {}
        return _Cursor(number, ordered_batches(files, logs, on_bytes), known, lambda summary: after_slice(files, logs, summary, on_bytes))

    cursors = [begun(number, logs) for number, logs in enumerate(replicas)]
    root = Branch([cursor.number for cursor in cursors], 0)
    result = Comparison([cursor.walk for cursor in cursors], root)
    _Lockstep(files, result).run(cursors, root)
    for cursor in cursors:
        cursor.walk.end = cursor.last + 1 if cursor.walk.start is not None else None
    return result


class _Cursor:
    """A replica's stream, and its place in it."""

    def __init__(
        self,
        number: int,
        stream: Iterator[Chunk | Hurt],
        slices: Mapping[int, Summary],
        after: Callable[[Summary], Iterator[Chunk | Hurt]],
    ) -> None:
        self.number = number
        self.slices = slices
        self._cuts = sorted(slices)
        self._after = after
        self.walk = Walk()
        self.last = -1
        self.is_hurt = False
        self.chunk = Chunk("", [], [])
        self.at = 0
        self._stream = stream
        self._load()

    @property
    def left(self) -> int:
        """The number of remaining batches in the window; 0 at the end of the log."""
        return len(self.chunk.rows) - self.at

    @property
    def row(self) -> Row:
        """The next batch."""
        return self.chunk.rows[self.at]

    @property
    def first(self) -> int:
        """The first offset of the next batch; for a compressed set of v0 or v1, only known at the beginning of a window."""
        return self.chunk.first if self.at == 0 else self.row[0]

    def rows(self, count: int) -> list[Row]:
        """The next batches of the window."""
        return self.chunk.rows[self.at : self.at + count]

    def sight(self) -> Sight:
        """The next batch, for a report."""
        row = self.row
        return Sight(self.number, self.chunk.path, self.chunk.positions[self.at], row[0], row_last(row), row[2], row[4])

    def take(self, count: int) -> None:
        """Continue after these batches."""
        walk = self.walk
        if walk.start is None:
            walk.start = self.first
        end = self.chunk.rows[self.at + count - 1]
        first, final = self.chunk.positions[self.at], self.chunk.positions[self.at + count - 1]
        walk.batches += count
        walk.bytes += final + row_size(end) - first
        if end[3] > 1:
            walk.last_epoch = end[2]
        self.last = row_last(end)
        self.at += count
        self.is_hurt = False
        if self.at == len(self.chunk.rows):
            self._load()

    def next_cut(self, offset: int) -> int | None:
        """The first offset of the next slice behind an offset."""
        place = bisect_right(self._cuts, offset)
        return self._cuts[place] if place < len(self._cuts) else None

    def is_at(self, summary: Summary) -> bool:
        """Whether the next batches are those that the reader of the slice has seen: the batches before the slice decide nothing there."""
        here = (self.chunk.path, self.chunk.positions[self.at], self.chunk.positions[-1])
        return here == (summary.path, summary.position, summary.settled)

    def skip(self, passed: Sequence[Summary]) -> None:
        """Continue after these slices, which follow one another."""
        walk, final = self.walk, passed[-1]
        if walk.start is None:
            walk.start = self.first
        walk.short_batches += sum(each.short for each in passed) - short_rows(self.chunk.rows[self.at :])
        walk.batches += sum(each.batches for each in passed)
        walk.bytes += sum(each.size for each in passed)
        walk.last_epoch, self.last = final.last_epoch, final.last
        self.is_hurt = False
        self._stream = self._after(final)
        self._load()

    def _load(self) -> None:
        for found in self._stream:
            if isinstance(found, Hurt):
                self.hurt(found)
                continue
            self.chunk, self.at = found, 0
            self.walk.short_batches += found.short
            for injury in reversed(self.walk.injuries):
                if injury.after is not None:
                    break
                injury.after = found.first
            return
        self.chunk, self.at = Chunk("", [], []), 0

    def hurt(self, found: Hurt) -> None:
        """Note damage in front of the next batch."""
        self.is_hurt = True
        self.walk.injuries.append(Injury(found, self.last if self.walk.start is not None else None))

    def skip_misplaced(self) -> None:
        """Remove the next batch: by its checksum, the others have it at other offsets. No later batch showed this."""
        row, chunk, at = self.row, self.chunk, self.at
        reason = f"its offsets {row[0]} to {row_last(row)} contradict the other replicas"
        self.chunk = Chunk(chunk.path, chunk.rows[at + 1 :], chunk.positions[at + 1 :])
        self.chunk.first = self.chunk.rows[0][0] if self.chunk.rows else 0
        self.at = 0
        self.hurt(Hurt(chunk.path, chunk.positions[at], row_size(row), "misplaced", reason, row[0], row_last(row)))
        if not self.chunk.rows:
            self._load()
        else:
            self.walk.injuries[-1].after = self.row[0]

    def lacks(self, first: int, last: int, have: frozenset[int]) -> None:
        """Note offsets that others have."""
        walk = self.walk
        holes = walk.before if walk.start is None and self.left else walk.behind if not self.left else walk.holes
        if holes and holes[-1].last + 1 == first and holes[-1].have == have and holes[-1].hurt == self.is_hurt:
            holes[-1].last = last
        elif len(holes) < _MOST_HOLES:
            holes.append(Hole(first, last, have, self.is_hurt))
            walk.gaps += holes is walk.holes and not self.is_hurt


class _Lockstep:
    """The common advance of several replicas."""

    def __init__(self, files: Files, result: Comparison) -> None:
        self.files = files
        self.result = result

    def run(self, cursors: Sequence[_Cursor], branch: Branch) -> None:
        """Compare these replicas up to their ends, or until their histories diverge, and then each part by itself."""
        while True:
            live = [cursor for cursor in cursors if cursor.left]
            if not live:
                return
            low = min(cursor.row[0] for cursor in live)
            here = [cursor for cursor in live if cursor.row[0] == low]
            if len(here) == len(live) and self._pass_slices(cursors, here, low):
                continue
            wrong = here if _are_outvoted(here, live) else [each for each in live if each.row[0] > low and _is_moved(each, here)]
            if wrong:
                for cursor in wrong:
                    cursor.skip_misplaced()
                continue
            if self._pass_undecided(live, low):
                continue
            waits = min((cursor.row[0] for cursor in live if cursor.row[0] > low), default=None)
            count = _same_bytes(self.files, here, _equal(here, waits))
            if count > 1 and waits is None:
                count = _to_next_slice(here, count, len(cursors))
            if count:
                self._pass(cursors, here, count)
                continue
            parted = self._settle(cursors, live)
            if parted is not None:
                branch.parted, groups = parted
                # A replica without further batches agrees with all of them.
                for group in groups:
                    members = [cursor.number for cursor in group]
                    branch.branches.append(Branch(members, branch.parted.first))
                for group, below in zip(groups, branch.branches, strict=True):
                    self.run(group, below)
                return

    def _pass_slices(self, cursors: Sequence[_Cursor], here: Sequence[_Cursor], low: int) -> bool:
        """Handle slices that are the same in all replicas with further batches. The others have reached their ends."""
        passed: list[list[Summary]] = []
        while all(low in cursor.slices for cursor in here):
            summaries = [cursor.slices[low] for cursor in here]
            lead = summaries[0]
            if any((each.end, each.digest) != (lead.end, lead.digest) for each in summaries):
                break
            if len(here) < len(cursors) and not lead.is_dense:
                break  # The batches before and after a gap are noted apart.
            if not passed and not all(cursor.is_at(each) for cursor, each in zip(here, summaries, strict=True)):
                break
            passed.append(summaries)
            low = lead.end
        if not passed:
            return False
        have = frozenset(cursor.number for cursor in here)
        for cursor in cursors:
            if cursor.number not in have:
                cursor.lacks(here[0].first, passed[-1][0].last, have)
        for cursor, own in zip(here, zip(*passed, strict=True), strict=True):
            cursor.skip(own)
        return True

    def _pass_undecided(self, live: Sequence[_Cursor], low: int) -> bool:
        """Handle a batch that two replicas have at different offsets, each behind a gap: one of the offsets is wrong, and nothing tells
        which."""
        if len(live) != 2 or live[0].row[0] == live[1].row[0]:
            return False
        here, ahead = sorted(live, key=lambda cursor: cursor.row[0])
        row = ahead.row
        if not _is_known(row) or (row[1], row[3:]) != (here.row[1], here.row[3:]):
            return False
        place = bisect_left(here.chunk.rows, (row[0],), here.at)
        if here.left > 1 if place == len(here.chunk.rows) else here.chunk.rows[place] == row:
            return False  # It may have both: equal records make equal batches.
        self.result.conflicts.append(Conflict("contents", low, row_last(row), [cursor.sight() for cursor in live]))
        for cursor in live:
            cursor.take(1)
        return True

    def _pass(self, cursors: Sequence[_Cursor], here: Sequence[_Cursor], count: int) -> None:
        """Handle batches that all of `here` have and the other replicas lack."""
        rows = here[0].rows(count)
        # The offset of a compressed set of v0 or v1 is that of its last record.
        first = here[0].last + 1 if rows[0][3] < 2 and rows[0][5] & 7 and here[0].walk.start is not None else here[0].first
        last = row_last(rows[-1])
        if len(here) < len(cursors):
            have = frozenset(cursor.number for cursor in here)
            for cursor in cursors:
                if cursor.number not in have:
                    cursor.lacks(first, last, have)
        for cursor in here:
            cursor.take(count)

    def _settle(self, cursors: Sequence[_Cursor], live: Sequence[_Cursor]) -> tuple[Conflict, list[list[_Cursor]]] | None:
        """Compare overlapping batches that differ. Returns where the histories diverge, and which replicas continue together."""
        clusters = _cluster(live)
        parts = {cursor.number: _contents(self.files, cursor, count) for cursor, count in clusters.items()}
        broken = [cursor for cursor, count in clusters.items() if parts[cursor.number] is None]
        for cursor in broken:
            self._skip_undecodable(cursor, clusters[cursor])
        sound = {cursor: count for cursor, count in clusters.items() if cursor not in broken}
        groups = _groups(sound, parts)
        conflict = _conflict(sound, groups, parts)
        if conflict is not None and conflict.kind == "diverged":
            return conflict, _with_idle(groups, cursors, broken)
        if conflict is not None:
            self._note_conflict(conflict)
        self._note_offsets(cursors, sound, parts)
        for cursor, count in sound.items():
            cursor.take(count)
        return None

    def _note_conflict(self, conflict: Conflict) -> None:
        """Add a contradiction. One that continues from batch to batch counts as one."""
        before = self.result.conflicts[-1] if self.result.conflicts else None
        same = before is not None and (before.kind, before.last + 1) == (conflict.kind, conflict.first)
        if before is not None and same and [each.replica for each in before.sights] == [each.replica for each in conflict.sights]:
            before.last = conflict.last
        else:
            self.result.conflicts.append(conflict)

    def _skip_undecodable(self, cursor: _Cursor, count: int) -> None:
        """Remove batches whose records can't be parsed from the stream; they are damage. The others follow in their turn."""
        chunk, at = cursor.chunk, cursor.at
        keep: list[int] = []
        for number in range(at, at + count):
            row, position = chunk.rows[number], chunk.positions[number]
            problem = _problem(self.files, chunk.path, position, row)
            if problem is None:
                keep.append(number)
                continue
            cursor.hurt(Hurt(chunk.path, position, row_size(row), "undecodable", problem, row[0], row_last(row)))
        rest = [*keep, *range(at + count, len(chunk.rows))]
        cursor.chunk = Chunk(chunk.path, [chunk.rows[i] for i in rest], [chunk.positions[i] for i in rest])
        cursor.chunk.first = chunk.rows[rest[0]][0] if rest else 0
        cursor.at = 0
        if not rest:
            cursor._load()
        elif cursor.walk.injuries:
            cursor.walk.injuries[-1].after = cursor.row[0]

    def _note_offsets(self, cursors: Sequence[_Cursor], sound: dict[_Cursor, int], parts: dict[int, Contents | None]) -> None:
        """Record which replicas lack which offsets of these batches. Offsets removed by compaction do not count as missing."""
        spans: list[tuple[int, int, set[int]]] = []
        for cursor, count in sound.items():
            for row in cursor.rows(count):
                spans.append((row[0], row_last(row), {cursor.number}))
        for first, last, have in _joined(spans):
            for cursor in cursors:
                if cursor.number not in have:
                    cursor.lacks(first, last, frozenset(have))


Contents = dict[int, tuple[int, object]]
"""Records by offset: leader epoch, and what the producer and the leader gave the record."""


def _equal(here: Sequence[_Cursor], waits: int | None) -> int:
    """Return how many of the next batches are the same in all of them and below `waits`, where another replica continues."""
    count = min(cursor.left for cursor in here)
    lead = here[0]
    if waits is not None:
        count = bisect_left(lead.chunk.rows, (waits,), lead.at, lead.at + count) - lead.at
        while count and row_last(lead.chunk.rows[lead.at + count - 1]) >= waits:
            count -= 1
    rows = lead.rows(count)
    for cursor in here[1:]:
        other = cursor.rows(count)
        if other != rows:
            count = next(i for i, (one, two) in enumerate(zip(rows, other, strict=True)) if one != two)
            rows = rows[:count]
    return count


def _to_next_slice(here: Sequence[_Cursor], count: int, replicas: int) -> int:
    """Return how many of these batches come before the next slice, if the next step may begin there: with replicas that have reached their
    ends only if no offset is missing in front of the slice."""
    lead = here[0]
    cut = lead.next_cut(lead.row[0])
    if cut is None:
        return count
    rows = lead.chunk.rows
    place = bisect_left(rows, (cut,), lead.at, lead.at + count)
    if place == lead.at + count or (len(here) < replicas and row_last(rows[place - 1]) + 1 != rows[place][0]):
        return count
    return place - lead.at


def _same_bytes(files: Files, here: Sequence[_Cursor], count: int) -> int:
    """Return how many of these batches with equal headers are equal. gzip ends what it writes with a checksum, so different gzip sets of v0
    or v1 may have the same checksum."""
    lead = here[0]
    doubtful = [i for i, row in enumerate(lead.rows(count)) if row[3] < 2 and row[5] & 7 == _GZIP] if len(here) > 1 else []
    if not doubtful:
        return count
    with ExitStack() as stack:
        logs = [(stack.enter_context(files.open(cursor.chunk.path)), cursor) for cursor in here]
        for i in doubtful:
            size = row_size(lead.chunk.rows[lead.at + i])
            if len({file.read(cursor.chunk.positions[cursor.at + i], size) for file, cursor in logs}) > 1:
                return i
    return count


def _are_outvoted(here: Sequence[_Cursor], live: Sequence[_Cursor]) -> bool:
    """Whether more replicas, and at least two, have the next batch of `here` at one higher offset, and these do not have it there, too."""
    row = here[0].row
    if len(live) < 3 or not _is_known(row) or any(cursor.row != row for cursor in here):
        return False
    others = [cursor for cursor in live if cursor.row[0] > row[0] and (cursor.row[1], cursor.row[3:]) == (row[1], row[3:])]
    if len(others) < 2 or len(others) <= len(here) or len({cursor.row[0] for cursor in others}) > 1:
        return False
    following = here[0].chunk.rows[here[0].at + 1 :]
    return others[0].row not in following


def _is_known(row: Row) -> bool:
    """Whether the checksum identifies a batch. In old formats, it does only for a message with a timestamp."""
    return row[3] > 1 or (row[3] == 1 and not row[5] & CODEC_MASK and row[8] >= 0)


def _is_moved(ahead: _Cursor, here: Sequence[_Cursor]) -> bool:
    """Whether the next batch of `ahead` is that of `here` with a wrong base offset, which the checksum does not cover. It is not if they
    have that batch at that offset, too: equal records make equal batches. If a gap is before both, only several replicas tell which of the
    two is wrong."""
    row, other = ahead.row, here[0]
    if other.row[0] != other.last + 1 and len(here) < 2:
        return False
    if not _is_known(row) or (row[1], row[3:]) != (other.row[1], other.row[3:]):
        return False
    place = bisect_left(other.chunk.rows, (row[0],), other.at)
    if place == len(other.chunk.rows):
        return ahead.left == 1
    return other.chunk.rows[place] != row


def _cluster(live: Sequence[_Cursor]) -> dict[_Cursor, int]:
    """Return how many of the next batches of each replica overlap each other. At the end of a window the rest follows in the next
    cluster."""
    taken = dict.fromkeys(live, 0)
    high = min(row_last(cursor.row) for cursor in live)
    grew = True
    while grew:
        grew = False
        for cursor in live:
            while taken[cursor] < cursor.left and cursor.chunk.rows[cursor.at + taken[cursor]][0] <= high:
                high = max(high, row_last(cursor.chunk.rows[cursor.at + taken[cursor]]))
                taken[cursor] += 1
                grew = True
    return {cursor: count for cursor, count in taken.items() if count}


def _contents(files: Files, cursor: _Cursor, count: int) -> Contents | None:
    """The records of the next batches; None if one of them can't be decoded."""
    found: Contents = {}
    chunk = cursor.chunk
    with files.open(chunk.path) as file:
        for number in range(cursor.at, cursor.at + count):
            row, position = chunk.rows[number], chunk.positions[number]
            batch = Batch(file.read(position, row_size(row)), 0, position)
            if batch.check():
                return None
            try:
                for record in batch.iterate():
                    contents = (record.timestamp, record.timestamp_type, record.key, record.value, record.headers)
                    found[record.offset] = (row[2], (*contents, row[9], row[10], record.sequence))
            except DecodeError:
                return None
    return found


def _problem(files: Files, path: str, position: int, row: Row) -> str | None:
    with files.open(path) as file:
        problems = Batch(file.read(position, row_size(row)), 0, position).check()
    return problems[0].reason if problems else None


def _groups(sound: dict[_Cursor, int], parts: dict[int, Contents | None]) -> list[list[_Cursor]]:
    """The replicas that do not contradict each other, together."""
    groups: list[list[_Cursor]] = []
    for cursor in sound:
        for group in groups:
            if not any(_differing(parts[cursor.number], parts[other.number]) for other in group):
                group.append(cursor)
                break
        else:
            groups.append([cursor])
    return groups


def _differing(one: Contents | None, two: Contents | None) -> list[int]:
    """The common offsets at which they differ."""
    one, two = one or {}, two or {}
    return sorted(offset for offset in one.keys() & two.keys() if one[offset] != two[offset])


def _conflict(sound: dict[_Cursor, int], groups: list[list[_Cursor]], parts: dict[int, Contents | None]) -> Conflict | None:
    """The contradiction between the groups: by the leader epoch alone, by records of one epoch, or of several."""
    if len(groups) < 2:
        return None
    pairs = [(one[0], other[0]) for i, one in enumerate(groups) for other in groups[i + 1 :]]
    kinds = set()
    offsets: set[int] = set()
    for one, other in pairs:
        mine, theirs = parts[one.number] or {}, parts[other.number] or {}
        for offset in _differing(mine, theirs):
            offsets.add(offset)
            same_record = mine[offset][1] == theirs[offset][1]
            kinds.add("epoch" if same_record else "contents" if mine[offset][0] == theirs[offset][0] else "diverged")
    kind = next(name for name in ("diverged", "contents", "epoch") if name in kinds)
    first = min(offsets)
    if kind == "diverged":
        first = min(cursor.row[0] for cursor in sound)
    return Conflict(kind, first, max(offsets), [cursor.sight() for cursor in sound])


def _with_idle(groups: list[list[_Cursor]], cursors: Sequence[_Cursor], broken: Sequence[_Cursor]) -> list[list[_Cursor]]:
    """Put each replica into one group: those without a batch here go to the first."""
    known = {cursor.number for group in groups for cursor in group}
    for cursor in cursors:
        if cursor.number not in known:
            groups[0].append(cursor)
    assert all(cursor in groups[0] for cursor in broken)
    return groups


def _joined(spans: list[tuple[int, int, set[int]]]) -> list[tuple[int, int, set[int]]]:
    """Cut the ranges at every border, and return each with all replicas that have it."""
    borders = sorted({border for first, last, _ in spans for border in (first, last + 1)})
    found = []
    for low, high in itertools.pairwise(borders):
        have = {number for first, last, numbers in spans if first <= low and high - 1 <= last for number in numbers}
        if have:
            found.append((low, high - 1, have))
    return found
