"""Judges the `.log` files of a partition from their facts: damage, offsets inside a segment, gaps and overlaps between segments, contents.

Sources of what Kafka does with each: LogSegment.recover, LogLoader, FileLogInputStream. Compaction (Cleaner) leaves holes in the offsets,
so a hole is a finding only if the log shows no sign of compaction: batches with fewer records than offsets, many holes, an entry in
cleaner-offset-checkpoint that reaches that far.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Final

from kops.config.values.topic_names import INTERNAL_TOPICS
from kops.forensics.findings.damage_codes import finding_code
from kops.forensics.findings.finding import Finding, finding
from kops.forensics.verify.facts.facts import Break, ContentError, DamageFact, SegmentFacts
from kops.forensics.verify.facts.window import Head

_MAX_INT: Final = 0x7FFFFFFF
_PREALLOCATED_MULTIPLE: Final = 4096
_PREALLOCATED_LEAST: Final = 1 << 20


@dataclass(slots=True)
class PartitionContext:
    """The log directory's data about a partition. Fields are None if there is no such data or no log directory.

    `clean_stop`: whether the marker of a clean stop is there. `cleaner_known`: whether cleaner-offset-checkpoint was there and read.
    `needs_metadata`: whether a broker needs partition.metadata here (KRaft).
    """

    clean_stop: bool | None = None
    recovery_point: int | None = None
    high_watermark: int | None = None
    log_start: int | None = None
    cleaner_offset: int | None = None
    cleaner_known: bool = False
    needs_metadata: bool = False


@dataclass(slots=True)
class LogSegment:
    """A live segment: where it is, and the facts about the whole of it."""

    path: str
    base_offset: int
    facts: SegmentFacts
    is_active: bool = False

    @property
    def next_offset(self) -> int:
        """The offset after its last good batch that is in its place."""
        highest = sane_last_offset(self.facts)
        return self.base_offset if highest is None else max(self.base_offset, highest + 1)


@dataclass(slots=True)
class LogView:
    """A partition's log as its live segments show it.

    `cleaned_to`: holes before this offset come from compaction. `end_offset`: the offset after the last good batch. `known_end`: the
    highest end offset in any other file. `holes`: offset ranges (first, last) that are missing. `doubled`: byte ranges per file that repeat
    offsets.
    """

    topic: str | None
    segments: list[LogSegment]
    context: PartitionContext
    cleaned_to: int = 0
    end_offset: int = 0
    known_end: int = 0
    holes: list[tuple[int, int]] = field(default_factory=list)
    misplaced: set[tuple[str, int]] = field(default_factory=set)

    @property
    def start_offset(self) -> int:
        """The base offset of the first segment."""
        return self.segments[0].base_offset if self.segments else 0

    @property
    def is_damaged(self) -> bool:
        """Whether some bytes of it are not batches."""
        return any(segment.facts.damages for segment in self.segments)

    @property
    def tail_is_damaged(self) -> bool:
        """Whether the last segment ends with bytes that are not a batch."""
        if not self.segments:
            return False
        facts = self.segments[-1].facts
        return bool(facts.damages) and facts.damages[-1].after is None


def view_log(topic: str | None, segments: list[LogSegment], context: PartitionContext, hints: list[int]) -> LogView:
    """The view; `hints` are ends that other files know of (recovery point, high watermark, producer snapshots)."""
    view = LogView(topic, segments, context)
    view.end_offset = max((segment.next_offset for segment in segments), default=0)
    # The lowest one, because a damaged checkpoint may claim any higher offset.
    view.known_end = min((hint for hint in hints if hint > view.end_offset), default=view.end_offset)
    view.cleaned_to = _cleaned_to(view)
    return view


def _cleaned_to(view: LogView) -> int:
    context = view.context
    reached = context.cleaner_offset if context.cleaner_offset is not None else 0
    if view.topic in INTERNAL_TOPICS and not context.cleaner_known:
        return view.end_offset
    if any(segment.facts.is_blurred for segment in view.segments):
        return view.end_offset
    for segment, following in pairwise([*view.segments, None]):
        assert segment is not None
        facts = segment.facts
        short = facts.short_batches - sum(1 for found in facts.breaks if _ends_too_far(found))
        gaps = facts.gaps + (facts.first is not None and facts.first.base_offset > segment.base_offset)
        if short > 0 or (gaps >= 3 and gaps * 10 >= facts.batches):
            reached = max(reached, following.base_offset if following is not None else segment.next_offset)
    return reached


def is_ahead(breaks: list[Break], number: int) -> bool:
    """Whether the batch after this break claims offsets far ahead, while the next one continues where the others were."""
    before, after = breaks[number]
    if after.base_offset <= before.last_offset or number + 1 >= len(breaks):
        return False
    following = breaks[number + 1]
    return following.before == after and before.last_offset < following.after.base_offset <= after.last_offset


def sane_last_offset(facts: SegmentFacts) -> int | None:
    """The highest last offset of the batches, without those that their neighbours contradict. None without any batch."""
    if not facts.breaks or facts.last is None:
        return facts.highest_offset
    wrong = {found.after for number, found in enumerate(facts.breaks) if is_ahead(facts.breaks, number)}
    wrong |= {found.before for found in facts.breaks if _ends_too_far(found)}
    heads = [found.before for found in facts.breaks if found.before not in wrong]
    return max((head.last_offset for head in (*heads, facts.last)), default=None)


def _ends_too_far(found: Break) -> bool:
    """Whether the first of the two claims a last offset that its records and the next batch contradict."""
    before, after = found
    return before.base_offset < after.base_offset <= before.last_offset and before.base_offset + before.record_count == after.base_offset


def check_log(view: LogView) -> Iterator[Finding]:
    """Findings about the logs themselves, segment by segment (any level)."""
    for number, segment in enumerate(view.segments):
        following = view.segments[number + 1] if number + 1 < len(view.segments) else None
        before = view.segments[number - 1] if number else None
        if segment.facts.scanned_to < segment.facts.size:
            detail = f"the file had {segment.facts.size} bytes when it was opened, and ended at {segment.facts.scanned_to}"
            yield finding("file-changed", segment.path, detail, position=segment.facts.scanned_to)
        if before is not None:
            yield from _between(view, before, segment)
        yield from _damages(view, segment, following)
        yield from _order(view, segment)
        yield from _range(view, segment)
        yield from _headers(segment)
        odd = {head.position for head in segment.facts.odd_counts}
        for content in segment.facts.contents:
            if content.head.position not in odd:
                yield _content(segment, content)


# damage -------------------------------------------------------------------------------------------------------------------------------


def _damages(view: LogView, segment: LogSegment, following: LogSegment | None) -> Iterator[Finding]:
    facts = segment.facts.damages
    told = -1
    for number, fact in enumerate(facts):
        low = max(fact.before.last_offset + 1 if fact.before is not None else segment.base_offset, told + 1)
        if fact.after is not None:
            high: int | None = fact.after.base_offset - 1
        elif following is not None:
            high = following.base_offset - 1
        elif view.known_end > view.end_offset:
            high = view.known_end - 1
        else:
            high = None
        neighbour = facts[number + 1] if number + 1 < len(facts) else None
        begins = neighbour.base_offset if neighbour is not None and neighbour.before == fact.before else None
        if begins is not None and low <= begins and (high is None or begins <= high):
            high = begins - 1  # The next damage in the same hole says where it begins.
        found = _damage(view, segment, fact, low, high)
        told = -1 if found.last_offset is None else found.last_offset
        yield found


def _damage(view: LogView, segment: LogSegment, fact: DamageFact, low: int, high: int | None) -> Finding:
    first, last, records = _lost(view, fact, low, high)
    if first is not None and last is not None:
        view.holes.append((first, last))
    code, severity, note = _damage_code(view, segment, fact, first)
    detail = fact.reason
    if first is None:
        detail += "; no offsets are missing"
    elif last is None:
        detail += f"; offsets from {first} on are unreadable; how many is not known"
    else:
        detail += f"; offsets {first}-{last} are unreadable" if first != last else f"; offset {first} is unreadable"
    return finding(
        code,
        segment.path,
        detail + note,
        position=fact.position,
        length=fact.length,
        base_offset=first,
        last_offset=last,
        records=records,
        severity=severity,
    )


def _lost(view: LogView, fact: DamageFact, low: int, high: int | None) -> tuple[int | None, int | None, int | None]:
    """-> (first offset lost, last, number of records), None if not known, or nothing is lost."""
    if high is not None and low > high:
        return None, None, 0
    claimed_first, claimed_last = fact.base_offset, fact.last_offset
    fits = claimed_last is not None and low <= claimed_last and (high is None or claimed_last <= high)
    if fits and claimed_first is not None and claimed_first >= low and claimed_last is not None and claimed_first <= claimed_last:
        # Damage next to this one may have the other offsets.
        span = claimed_last - claimed_first + 1
        believable = fact.count is not None and 0 <= fact.count <= span
        if high is not None or (believable and fact.count == span):
            known = fact.count if believable else None if claimed_first < view.cleaned_to else span
            return claimed_first, claimed_last, known
    if high is None:
        if fact.code in ("zeroes", "garbage"):
            return None, None, None
        return low, None, None
    return low, high, None if low < view.cleaned_to else high - low + 1


def _damage_code(view: LogView, segment: LogSegment, fact: DamageFact, first: int | None) -> tuple[str, str | None, str]:
    """-> (code, severity where it is not the code's own, a note on the circumstances)."""
    at_end = fact.after is None and fact.end >= segment.facts.scanned_to
    tail = {"torn-tail": "torn-tail", "zeroes": "zero-tail", "garbage": "garbage-tail"}.get(fact.code)
    if not at_end or tail is None or (first is not None and fact.code != "torn-tail"):
        return finding_code(fact.code), None, ""
    clean = view.context.clean_stop
    if not segment.is_active or clean is None:
        return tail, None, ""
    if clean:
        return tail, None, "; the clean-shutdown marker is there, so Kafka will not look for it"
    size = segment.facts.size
    if tail == "zero-tail" and size >= _PREALLOCATED_LEAST and size % _PREALLOCATED_MULTIPLE == 0:
        return "preallocated-tail", None, "; there is no clean-shutdown marker, so the next start cuts them off"
    note = "; there is no clean-shutdown marker: a crash leaves this, and the next start cuts it off"
    return tail, "warning", note


# offsets inside a segment -------------------------------------------------------------------------------------------------------------


def _order(view: LogView, segment: LogSegment) -> Iterator[Finding]:
    """Report breaks in the order of offsets, each once, at the wrong batch."""
    breaks = segment.facts.breaks
    absorbed: tuple[int, int] | None = None
    skip = -1
    for number, found in enumerate(breaks):
        if number == skip:
            continue
        before, after = found
        following = breaks[number + 1] if number + 1 < len(breaks) else None
        if after.base_offset > before.last_offset:
            missing = (before.last_offset + 1, after.base_offset - 1)
            if absorbed == missing:
                absorbed = None  # Batches that come too early.
                continue
            if following is not None and is_ahead(breaks, number):
                skip = number + 1
                yield _misplaced(view, segment, before, after, following.after)
                absorbed = (after.base_offset, after.last_offset)
            elif before.last_offset < segment.base_offset <= after.base_offset:
                view.misplaced.add((segment.path, before.position))  # Reported as outside of the segment.
            elif after.base_offset > view.cleaned_to:
                view.holes.append(missing)
                yield _gap(view, segment, before, after)
        elif _ends_too_far(found):
            yield _ends_wrong(segment, before, after)
        else:
            yield _back(view, segment, breaks, number)
            absorbed = None
            if following is not None and following.before.base_offset >= after.base_offset:
                absorbed = (following.before.last_offset + 1, following.after.base_offset - 1)
                if absorbed[1] < absorbed[0] or following.after.base_offset <= before.last_offset + 1:
                    absorbed = None if following.after.base_offset != before.last_offset + 1 else absorbed
                else:
                    view.holes.append((before.last_offset + 1, following.after.base_offset - 1))


def _perhaps_cleaned(view: LogView) -> str:
    """The remark on a hole if it is not known whether the log is compacted."""
    return "" if view.context.cleaner_known else "; it may come from compaction, as there is no cleaner-offset-checkpoint"


def _gap(view: LogView, segment: LogSegment, before: Head, after: Head) -> Finding:
    missing = after.base_offset - before.last_offset - 1
    return finding(
        "offset-gap",
        segment.path,
        f"the batch at {before.position} ends with offset {before.last_offset}, the next one begins with {after.base_offset}"
        + _perhaps_cleaned(view),
        position=after.position,
        base_offset=before.last_offset + 1,
        last_offset=after.base_offset - 1,
        records=missing,
    )


def _misplaced(view: LogView, segment: LogSegment, before: Head, wrong: Head, after: Head) -> Finding:
    """Report a batch whose offsets are far ahead of those of both neighbours."""
    view.misplaced.add((segment.path, wrong.position))
    first, last = before.last_offset + 1, after.base_offset - 1
    detail = (
        f"the batch claims offsets {wrong.base_offset}-{wrong.last_offset}, but is between {before.last_offset} and {after.base_offset}"
    )
    lost = first <= last
    if lost:
        view.holes.append((first, last))
    return finding(
        "offset-not-increasing",
        segment.path,
        detail,
        position=wrong.position,
        length=wrong.size,
        base_offset=first if lost else wrong.base_offset,
        last_offset=last if lost else wrong.last_offset,
        records=last - first + 1 if lost else wrong.record_count,
    )


def _ends_wrong(segment: LogSegment, before: Head, after: Head) -> Finding:
    return finding(
        "batch-last-offset-mismatch",
        segment.path,
        f"the batch claims to end with offset {before.last_offset}, but has {before.record_count} records from {before.base_offset} on, "
        f"and the next one begins with {after.base_offset}",
        position=before.position,
        length=before.size,
        base_offset=before.base_offset,
        last_offset=after.base_offset - 1,
        records=0,
    )


def _back(view: LogView, segment: LogSegment, breaks: list[Break], number: int) -> Finding:
    """Report batches that go back to earlier offsets. They reach to the next break, or to the end of the segment."""
    before, after = breaks[number]
    facts = segment.facts
    following = breaks[number + 1] if number + 1 < len(breaks) else None
    run_end = following.before if following is not None else facts.last
    assert run_end is not None, "a segment with a break has batches"
    if run_end.base_offset < after.base_offset or run_end.last_offset > before.last_offset:
        run_end = after
    view.misplaced.add((segment.path, after.position))
    what = "offset goes back" if run_end == after else "offsets go back"
    lost = None
    if following is not None and following.before == after and following.after.base_offset > before.last_offset + 1:
        lost = (before.last_offset + 1, following.after.base_offset - 1)
    detail = f"{what}: {after.base_offset}-{run_end.last_offset} after {before.last_offset}"
    if lost is not None:
        detail += f", where {lost[0]}-{lost[1]} should be"
    return finding(
        "offset-not-increasing",
        segment.path,
        detail,
        position=after.position,
        length=run_end.end - after.position,
        base_offset=lost[0] if lost is not None else after.base_offset,
        last_offset=lost[1] if lost is not None else run_end.last_offset,
        records=lost[1] - lost[0] + 1 if lost is not None else 0,
    )


def _range(view: LogView, segment: LogSegment) -> Iterator[Finding]:
    """Report offsets that don't belong in the segment, and a segment that begins too late."""
    facts = segment.facts
    first, last = facts.first, facts.last
    if first is None or last is None or facts.lowest_offset is None or facts.highest_offset is None:
        return
    # A misplaced batch is reported already. The whole segment is wrong only if nothing else explains it.
    if facts.lowest_offset < segment.base_offset and (first.base_offset < segment.base_offset or not facts.breaks):
        behind = next((found.after for found in facts.breaks if found.before == first and first.last_offset < segment.base_offset), None)
        if behind is not None and behind.base_offset <= segment.base_offset:
            behind = None
        yield finding(
            "offset-outside-segment",
            segment.path,
            f"the segment holds offset {facts.lowest_offset}, but its name says that it begins with {segment.base_offset}",
            position=first.position,
            base_offset=facts.lowest_offset if behind is None else segment.base_offset,
            last_offset=(segment.base_offset if behind is None else behind.base_offset) - 1,
        )
    if facts.highest_offset - segment.base_offset > _MAX_INT and not view.misplaced:
        yield finding(
            "offset-outside-segment",
            segment.path,
            f"offset {facts.highest_offset} is more than {_MAX_INT} above the segment's base offset",
            position=last.position,
            base_offset=facts.highest_offset,
            last_offset=facts.highest_offset,
        )
    damaged_start = facts.damages and facts.damages[0].position < first.position
    if first.base_offset > segment.base_offset and first.base_offset > view.cleaned_to and not damaged_start:
        if segment is not view.segments[0] and _previous_end(view, segment) > segment.base_offset:
            return  # Reported as an overlap: the name is wrong, not the content.
        view.holes.append((segment.base_offset, first.base_offset - 1))
        yield finding(
            "offset-gap",
            segment.path,
            f"the segment's name says {segment.base_offset}, its first batch begins with {first.base_offset}" + _perhaps_cleaned(view),
            position=first.position,
            base_offset=segment.base_offset,
            last_offset=first.base_offset - 1,
            records=first.base_offset - segment.base_offset,
        )


def _previous_end(view: LogView, segment: LogSegment) -> int:
    number = view.segments.index(segment)
    return view.segments[number - 1].next_offset


def _headers(segment: LogSegment) -> Iterator[Finding]:
    """Report headers that can't be right by themselves."""
    for head in segment.facts.odd_counts:
        yield finding(
            "batch-count-mismatch",
            segment.path,
            f"the batch claims {head.record_count} records for the offsets {head.base_offset}-{head.last_offset}",
            position=head.position,
            length=head.size,
            base_offset=head.base_offset,
            last_offset=max(head.base_offset, head.last_offset),
        )


def _content(segment: LogSegment, content: ContentError) -> Finding:
    head = content.head
    code = finding_code(content.code)
    lost = code == "batch-undecodable"
    return finding(
        code,
        segment.path,
        content.reason + (f"; offsets {head.base_offset}-{head.last_offset} are unreadable" if lost else ""),
        position=head.position,
        length=head.size,
        base_offset=head.base_offset,
        last_offset=head.last_offset,
        records=head.record_count if lost and head.record_count >= 0 else None,
    )


# between segments ---------------------------------------------------------------------------------------------------------------------


def _between(view: LogView, before: LogSegment, after: LogSegment) -> Iterator[Finding]:
    highest = sane_last_offset(before.facts)
    end = before.base_offset if highest is None else highest + 1
    if end > after.base_offset:
        yield finding(
            "segment-overlap",
            after.path,
            f"the segment begins with offset {after.base_offset}, but the one before it ends with {end - 1}",
            base_offset=after.base_offset,
            last_offset=end - 1,
        )
        return
    tail = before.facts.damages and before.facts.damages[-1].after is None
    if end == after.base_offset or tail or after.base_offset <= view.cleaned_to:
        return
    view.holes.append((end, after.base_offset - 1))
    missing = after.base_offset - end
    if before.facts.size == 0:
        detail = f"the segment is empty, although the next one begins with {after.base_offset}"
        yield finding("segment-empty", before.path, detail, base_offset=end, last_offset=after.base_offset - 1, records=missing)
        return
    yield finding(
        "segment-gap",
        after.path,
        f"the segment before ends with offset {end - 1}, this one begins with {after.base_offset}" + _perhaps_cleaned(view),
        base_offset=end,
        last_offset=after.base_offset - 1,
        records=missing,
    )
