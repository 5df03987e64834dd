"""The drawings of the report, as SVG within the page: segments by bytes, partitions by size, appends over time.

A drawing is as wide as the page allows, so it holds no text; names and numbers stand beside it as HTML. Each part has a title, which a
browser shows on hover. Colours come with a pattern, so that they are told apart without colours and on paper.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

from kops.forensics.evidence.analysis import DAMAGED, INTACT, PREALLOCATED, RECOVERABLE, Extent
from kops.forensics.evidence.report.html import Markup, el, join
from kops.forensics.evidence.report.model import PartitionView, SegmentView
from kops.forensics.evidence.report.wording import count, is_time, moment, offsets, size

WIDTH: Final = 1000
LEAST: Final = 3.0
BINS: Final = 80

WORDS: Final = {
    INTACT: "intact",
    DAMAGED: "damaged",
    RECOVERABLE: "intact, but a broker's start would give it up",
    PREALLOCATED: "preallocated zeroes",
}
_ORDER: Final = (INTACT, PREALLOCATED, RECOVERABLE, DAMAGED)


def patterns() -> Markup:
    """The patterns that all drawings use."""
    hatch = el(
        "pattern",
        el("rect", width=7, height=7, class_="ink-damaged"),
        el("path", d="M-2 2l4-4M0 7l7-7M5 9l4-4", stroke_width=1.6, class_="line-card"),
        id="hatch",
        width=7,
        height=7,
        patternUnits="userSpaceOnUse",
    )
    dots = el(
        "pattern",
        el("rect", width=8, height=8, class_="ink-recoverable"),
        el("path", d="M0 4h8", stroke_width=1.4, class_="line-card"),
        id="dots",
        width=8,
        height=8,
        patternUnits="userSpaceOnUse",
    )
    return el("svg", el("defs", hatch, dots), width=0, height=0, aria_hidden="true", focusable="false", style="position:absolute")


def legend() -> Markup:
    """What the colours mean."""
    items = [
        (INTACT, "intact"),
        (RECOVERABLE, "recoverable: intact, but a broker's start would give it up"),
        (DAMAGED, "damaged: cannot be read as it was written"),
        ("missing", "missing: offsets that are in no segment"),
    ]
    return el(
        "ul",
        join(
            [
                el("li", el("svg", el("rect", width=22, height=14, class_=f"fill-{state}"), viewBox="0 0 22 14", aria_hidden="true"), words)
                for state, words in items
            ]
        ),
        class_="legend",
    )


def segment_bar(segment: SegmentView, extents: Sequence[Extent]) -> Markup:
    """A segment from its first to its last byte. What is damaged is drawn last and never narrower than can be seen."""
    if not segment.size:
        return Markup("")
    ordered = sorted(extents, key=lambda each: _ORDER.index(each.state) if each.state in _ORDER else 0)
    parts = [_part(each.start, each.end, segment.size, each.state, extent_words(each)) for each in ordered]
    damaged = sum(1 for each in extents if each.state == DAMAGED)
    label = f"Map of {count(segment.size, 'byte')}: {count(damaged, 'damaged range')}, {size(segment.bytes_of(DAMAGED))} damaged"
    return _svg(parts, label, 30)


def extent_words(extent: Extent) -> str:
    """What an extent is, in words."""
    where = f"bytes {extent.start:,} to {extent.end - 1:,}"
    held = f", offsets {offsets(extent.first_offset, extent.last_offset)}" if extent.first_offset is not None else ""
    cause = f" ({extent.code})" if extent.code else ""
    return f"{WORDS.get(extent.state, extent.state)}{cause}: {where}{held}"


def reduced(extents: Sequence[Extent], most: int) -> list[Extent]:
    """At most about `most` extents: neighbours become one, which has the state of its worst part."""
    if len(extents) <= most:
        return list(extents)
    step = -(-len(extents) // most)
    result = []
    for number in range(0, len(extents), step):
        group = extents[number : number + step]
        worst = max(group, key=lambda each: _ORDER.index(each.state) if each.state in _ORDER else 0)
        result.append(Extent(group[0].start, group[-1].end, worst.state, group[0].first_offset, group[-1].last_offset, "several"))
    return result


def sizes(partitions: Sequence[PartitionView]) -> Markup:
    """A row for each partition: its bytes by state, as wide as it is large compared with the largest."""
    largest = max((each.size for each in partitions), default=0) or 1
    rows = []
    for each in partitions:
        parts = []
        position = 0
        for state in _ORDER:
            amount = each.bytes_of(state)
            if amount:
                parts.append(_part(position, position + amount, largest, state, f"{WORDS[state]}: {size(amount)}"))
            position += amount
        label = ", ".join(f"{size(each.bytes_of(state))} {WORDS[state]}" for state in _ORDER if each.bytes_of(state)) or "empty"
        rows.append(_row(each.label, _svg(parts, f"{each.label}: {label}", 18), size(each.size)))
    return el("div", join(rows), class_="rows")


def times(partitions: Sequence[PartitionView]) -> Markup | None:
    """A row for each partition: from when to when the records of its segments are. None if no time is known."""
    spans = {id(each): _spans(each.segments) for each in partitions}
    known = [span for found in spans.values() for span in found]
    if not known:
        return None
    first, last = min(start for start, _, _ in known), max(end for _, end, _ in known)
    width = max(last - first, 1)
    rows = []
    for each in partitions:
        found = spans[id(each)]
        if not found:
            continue
        parts = [
            _part(
                start - first,
                end - first,
                width,
                DAMAGED if marked else INTACT,
                f"{moment(start)} to {moment(end)}{_marked(marked)}",
                apart=True,
            )
            for start, end, marked in sorted(found, key=lambda span: span[2])
        ]
        begin, finish = min(start for start, _, _ in found), max(end for _, end, _ in found)
        label = f"{each.label}: records from {moment(begin)} to {moment(finish)}"
        rows.append(_row(each.label, _svg(parts, label, 18), count(len(each.segments), "segment")))
    scale = el("div", el("span", moment(first)), el("span", moment(last)), class_="scale")
    rows.append(el("div", el("span", class_="name"), scale, el("span", class_="value"), class_="row"))
    return el("div", join(rows), class_="rows")


def _marked(marked: bool) -> str:
    return ", with damage" if marked else ""


def _spans(segments: Iterable[SegmentView]) -> list[tuple[int, int, bool]]:
    """`(first, last time, damaged)` of the segments, in order; many segments are put together."""
    found = []
    for each in segments:
        last = each.max_timestamp
        if last is None or not is_time(last):
            continue
        first = each.first_timestamp if each.first_timestamp is not None and is_time(each.first_timestamp) else last
        found.append((min(first, last), last, bool(each.bytes_of(DAMAGED))))
    found.sort()
    if len(found) <= BINS:
        return found
    step = -(-len(found) // BINS)
    groups = [found[number : number + step] for number in range(0, len(found), step)]
    return [(group[0][0], max(each[1] for each in group), any(each[2] for each in group)) for group in groups]


def _row(name: str, drawing: Markup, value: str) -> Markup:
    return el("div", el("span", name, class_="name path"), drawing, el("span", value, class_="value"), class_="row")


def _part(start: int, end: int, whole: int, state: str, words: str, *, apart: bool = False) -> Markup:
    x = start * WIDTH / whole
    width = max((end - start) * WIDTH / whole, LEAST if state != INTACT or apart else 0.5)
    x = min(x, WIDTH - width)
    known = state if state in _ORDER else "other"
    return el("rect", el("title", words), x=f"{x:.2f}", y=0, width=f"{width:.2f}", height=30, class_=f"fill-{known}")


def _svg(parts: list[Markup], label: str, height: int) -> Markup:
    return el(
        "svg",
        el("title", label),
        join(parts),
        viewBox=f"0 0 {WIDTH} {height}",
        preserveAspectRatio="none",
        role="img",
        aria_label=label,
        class_="bar",
    )
