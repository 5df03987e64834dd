"""The page: sections in the order in which a reader needs them, each of bounded size. What is left out is counted, and where it stands is
said."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final

from kops.forensics.evidence.analysis import DAMAGED, RECOVERABLE, Extent
from kops.forensics.evidence.case import FORECAST, SUMS, VERIFY
from kops.forensics.evidence.names import get_name, shown
from kops.forensics.evidence.report import drawing, wording
from kops.forensics.evidence.report.advice import paragraphs, steps, verdict
from kops.forensics.evidence.report.html import Markup, el, join
from kops.forensics.evidence.report.model import CaseReport, PartitionView, SegmentView
from kops.forensics.evidence.report.style import CSS
from kops.forensics.evidence.report.wording import command, count, moment, offsets, ranges, size
from kops.forensics.findings.explanations import EXPLANATIONS
from kops.forensics.findings.explanations import to_json as explained
from kops.forensics.findings.finding import Finding

DRAWN_PARTITIONS: Final = 25
MAPPED_PARTITIONS: Final = 100
MAPPED_SEGMENTS: Final = 30
ALL_SEGMENTS: Final = 500
EXTENT_ROWS: Final = 150
ALL_ROWS: Final = 1500
BAR_PARTS: Final = 300
ALL_PARTS: Final = 8000
LISTED_PARTITIONS: Final = 500
FINDINGS_OF_A_CODE: Final = 100
HASH_ROWS: Final = 1000

_OUTCOMES: Final = {
    "loaded": "loads it",
    "loaded-consumer-error": "loads it, but consumers fail on it",
    "log-dir-offline": "takes the log directory offline",
    "broker-does-not-start": "the broker does not start",
    "stray": "moves it aside: it is not assigned to this broker",
    "not-served": "loads it, but does not serve it",
}
_GRADES: Final = {"error": "bad", "warning": "warn", "info": "info"}
_POLICY: Final = "default-src 'none'; style-src 'unsafe-inline'; img-src data:; base-uri 'none'; form-action 'none'"
_SECTIONS: Final = (
    ("summary", "Summary"),
    ("next", "What to do next"),
    ("maps", "Maps of damaged partitions"),
    ("overview", "Sizes and times"),
    ("findings", "Findings explained"),
    ("partitions", "All partitions"),
    ("collection", "How it was collected"),
    ("hashes", "Hashes"),
)


def page(report: CaseReport) -> Iterator[str]:
    """The page, in pieces."""
    number = report.manifest["case"].get("number")
    title = f"Evidence report: {number}" if number else "Evidence report"
    head = [
        el("meta", charset="utf-8"),
        el("meta", http_equiv="Content-Security-Policy", content=_POLICY),
        el("meta", name="viewport", content="width=device-width, initial-scale=1"),
        el("meta", name="referrer", content="no-referrer"),
        el("link", rel="icon", href="data:,"),
        el("title", title),
        Markup(f"<style>{CSS}</style>"),
    ]
    yield f'<!DOCTYPE html>\n<html lang="en">\n<head>{join(head)}</head>\n<body>\n'
    yield el("a", "Skip to the summary", href="#summary", class_="skip") + drawing.patterns()
    yield _top(report, title) + "\n<main>\n"
    for section in (_summary, _next, _maps, _overview, _findings, _partitions, _collection, _hashes):
        yield section(report) + "\n"
    tool = report.manifest["tool"]
    made = f"Made by kops {tool.get('version', '')} from the case's own documents. Times are UTC. Offsets and bytes are inclusive."
    yield "</main>\n" + el("footer", el("p", made)) + "\n</body>\n</html>\n"


def _section(name: str, *children: object) -> Markup:
    title = dict(_SECTIONS)[name]
    return el("section", el("h2", title, id=f"h-{name}"), *children, id=name, aria_labelledby=f"h-{name}")


def _top(report: CaseReport, title: str) -> Markup:
    case = report.manifest["case"]
    facts: list[tuple[str, object]] = [("Case", el("span", report.path, class_="path"))]
    facts += [(label, case[key]) for key, label in (("examiner", "Examiner"), ("note", "Note")) if case.get(key)]
    facts.append(("Collected", f"{_time(report.manifest['started'])} to {_time(report.manifest['finished'])}"))
    facts.append(("Directories", join([el("div", _name(source, "path"), class_="path") for source in report.manifest["sources"]])))
    links = el("ul", join([el("li", el("a", label, href=f"#{name}")) for name, label in _SECTIONS]))
    return el("header", el("h1", title), _facts(facts), el("nav", links, aria_label="Contents"), class_="top")


def _facts(facts: Sequence[tuple[str, object]]) -> Markup:
    return el("dl", join([join([el("dt", label), el("dd", value)]) for label, value in facts]), class_="facts")


def _time(value: str) -> str:
    """A time of the manifest to the second."""
    return value[:19].replace("T", " ") + " UTC" if value.endswith("Z") else value


def _name(document: dict[str, Any], key: str) -> str:
    return shown(get_name(document, key))


# The summary


def _summary(report: CaseReport) -> Markup:
    found = verdict(report)
    totals = report.manifest["totals"]
    errors = sum(1 for each in report.findings if each.severity == "error")
    warnings = sum(1 for each in report.findings if each.severity == "warning")
    tiles = [
        (f"{len(report.partitions):,}", "partition directories"),
        (f"{sum(len(each.segments) for each in report.partitions):,}", "segments"),
        (size(sum(each.size for each in report.partitions)), "of logs"),
        (f"{totals.get('files', 0):,}", "files collected"),
        (f"{errors:,}", "errors" if errors != 1 else "error"),
        (f"{warnings:,}", "warnings" if warnings != 1 else "warning"),
        (size(sum(each.bytes_of(DAMAGED) for each in report.partitions)), "damaged"),
        (f"{sum(wording.total(each.lost) for each in report.partitions):,}", "offsets lost by a start now"),
    ]
    return _section(
        "summary",
        el("div", found.sentence, el("p", found.more), class_=f"verdict {found.grade}", role="note"),
        el("ul", join([el("li", el("b", number), el("span", label)) for number, label in tiles]), class_="tiles"),
        join([join([el("h3", heading), el("p", words)]) for heading, words in paragraphs(report)]),
    )


def _next(report: CaseReport) -> Markup:
    items = []
    for step in steps(report):
        lines = el("pre", el("code", join([_command_line(line) for line in step.commands]))) if step.commands else None
        items.append(el("li", el("p", step.text), lines))
    return _section("next", el("ol", join(items), class_="steps"))


def _command_line(line: str) -> Markup:
    """A command line that is broken between words where it is too long, and within a word only if there is no other way."""
    return el("span", join([el("span", word, class_="word") for word in line.split(" ")], " "), class_="line")


# Maps


@dataclass(slots=True)
class _Budget:
    """What the maps may still use: segments, rows of tables, and parts of bars."""

    segments: int = ALL_SEGMENTS
    rows: int = ALL_ROWS
    parts: int = ALL_PARTS


def _maps(report: CaseReport) -> Markup:
    shown = report.shown
    if not shown:
        return _section("maps", el("p", "No partition is damaged, so there is nothing to map. All segments are intact as a whole."))
    parts = [
        drawing.legend(),
        el("p", "Hover over a part for its bytes and offsets. The table below each map has the same.", class_="muted"),
    ]
    budget = _Budget()
    drawn = 0
    for partition in shown[:MAPPED_PARTITIONS]:
        if budget.segments <= 0:
            break
        parts.append(_partition_map(report, partition, budget))
        drawn += 1
    if drawn < len(shown):
        parts.append(el("p", f"{len(shown) - drawn:,} more of them are not drawn; they are in the table of all partitions."))
    return _section("maps", *parts)


def _partition_map(report: CaseReport, partition: PartitionView, budget: _Budget) -> Markup:
    """The map of one partition: its damaged segments, then others, in the order of the log."""
    facts: list[tuple[str, object]] = [("Directory", el("span", partition.dir, class_="path"))]
    if partition.state:
        facts.append(("State", f"marked by Kafka: {partition.state}"))
    if partition.unreadable:
        facts.append(("Unreadable", f"offsets {ranges(partition.unreadable)}"))
    if partition.outcome is not None:
        facts.append(("A broker's start", _outcome(report, partition)))
    marked = [each for each in partition.segments if each.is_marked]
    most = min(MAPPED_SEGMENTS, budget.segments)
    chosen = set(marked[:most])
    for each in partition.segments:
        if len(chosen) >= most:
            break
        chosen.add(each)
    budget.segments -= len(chosen)
    parts: list[Markup] = []
    gaps = sorted(partition.missing)
    shown_gaps, gaps = gaps[:MAPPED_SEGMENTS], gaps[MAPPED_SEGMENTS:]
    for segment in partition.segments:
        while shown_gaps and segment.state == "live" and shown_gaps[0][0] < segment.base_offset:
            parts.append(_gap(*shown_gaps.pop(0)))
        if segment in chosen:
            parts.append(_segment(segment, budget))
    parts += [_gap(*each) for each in shown_gaps]
    left = len(partition.segments) - len(chosen)
    if left > 0:
        worse = len(marked) - most
        words = f"{left:,} more of its segments are not drawn" + (
            f", {worse:,} damaged ones among them." if worse > 0 else "; these are intact."
        )
        parts.append(el("p", words, class_="muted"))
    if gaps:
        parts.append(el("p", f"{len(gaps):,} more gaps are not listed.", class_="muted"))
    return el("article", el("h3", partition.label), _facts(facts), *parts)


def _outcome(report: CaseReport, partition: PartitionView) -> str:
    words = [_OUTCOMES.get(partition.outcome or "", partition.outcome or "")]
    if partition.reason and all(partition.reason != reason for _, reason in report.brokers):
        words.append(partition.reason)
    if partition.lost:
        words.append(f"offsets {ranges(partition.lost)} are no longer served")
    if partition.lost_though_intact:
        words.append(f"of these, {ranges(partition.lost_though_intact)} are intact")
    return "; ".join(words)


def _gap(first: int, last: int, code: str) -> Markup:
    return el(
        "div", el("strong", f"Missing: offsets {offsets(first, last)}"), f" ({count(last - first + 1, 'offset')}, {code})", class_="gap"
    )


def _segment(segment: SegmentView, budget: _Budget) -> Markup:
    name = segment.file.rsplit("/", 1)[-1]
    state = "" if segment.state == "live" else f", {segment.state}"
    about = f"offsets {offsets(segment.first_offset, segment.last_offset)}, {size(segment.size)}{state}"
    caption = el("figcaption", el("span", name, class_="path"), el("span", about, class_="muted"))
    if not segment.size:
        return el("figure", caption, el("p", "Empty.", class_="muted"), class_="segment")
    drawn = drawing.reduced(segment.extents, max(min(BAR_PARTS, budget.parts // 4), 4))
    budget.parts -= len(drawn)
    scale = el("div", el("span", "0"), el("span", f"{segment.size:,} bytes"), class_="scale", aria_hidden="true")
    table = _extents(segment, budget) if segment.is_marked else None
    return el("figure", caption, drawing.segment_bar(segment, drawn), scale, table, class_="segment")


def _extents(segment: SegmentView, budget: _Budget) -> Markup:
    """The bytes and offsets of a segment as a table. If there are many, the intact ones are left out first."""
    rows = min(budget.rows, EXTENT_ROWS)
    listed: list[Extent] = segment.extents
    if len(listed) > rows:
        listed = [each for each in listed if each.state in (DAMAGED, RECOVERABLE)]
    body = [
        (
            drawing.WORDS.get(each.state, each.state),
            f"{each.start:,}",
            f"{each.end - 1:,}",
            f"{each.end - each.start:,}",
            offsets(each.first_offset, each.last_offset),
            each.code or "",
        )
        for each in listed[:rows]
    ]
    budget.rows -= len(body)
    total = count(len(segment.extents), "range")
    caption = total if len(body) == len(segment.extents) else f"{len(body):,} of {total}"
    if not body:
        return el("p", f"{caption} are listed here; all are in segments.json of the case.", class_="muted")
    heads = ("State", "n:First byte", "n:Last byte", "n:Bytes", "Offsets", "Finding")
    table = _table(heads, body, None, f"Bytes of {segment.file}")
    return el("details", el("summary", f"Bytes and offsets as a table ({caption})"), table)


def _table(heads: Sequence[str], rows: Sequence[Sequence[object]], caption: str | None, label: str) -> Markup:
    """A table that scrolls within itself, also by keyboard. A head `n:…` is of numbers, `w:…` of long text, `h:…` of hashes."""
    kinds = {"n:": "n", "w:": "wide", "h:": "hash"}
    classes = [kinds.get(head[:2]) for head in heads]
    names = [head[2:] if head[:2] in kinds else head for head in heads]
    top = el(
        "tr", join([el("th", name, scope="col", class_="n" if kind == "n" else None) for name, kind in zip(names, classes, strict=True)])
    )
    body = [el("tr", join([el("td", cell, class_=kind) for cell, kind in zip(row, classes, strict=True)])) for row in rows]
    above = el("caption", caption) if caption is not None else Markup("")
    table = el("table", above, el("thead", top), el("tbody", join(body)))
    return el("div", table, class_="scroll", tabindex=0, role="region", aria_label=label)


# Sizes and times


def _overview(report: CaseReport) -> Markup:
    if not report.partitions:
        return _section("overview", el("p", "There are no segments."))
    damaged = report.shown[: DRAWN_PARTITIONS // 2]
    others = sorted(set(report.partitions).difference(damaged), key=lambda each: (-each.size, each.dir))
    chosen = [*damaged, *others[: DRAWN_PARTITIONS - len(damaged)]]
    left = len(report.partitions) - len(chosen)
    more = el("p", f"Drawn are damaged and then the largest partitions; {left:,} more are in the table below.", class_="muted")
    drawn = drawing.times(chosen)
    return _section(
        "overview",
        drawing.legend(),
        el("h3", "Sizes of the logs"),
        drawing.sizes(chosen),
        el("h3", "Times of the records"),
        el("p", "Each block is a segment, from its first to its latest timestamp.", class_="muted"),
        drawn if drawn is not None else el("p", "No segment has a timestamp."),
        more if left > 0 else None,
    )


# Findings


def _findings(report: CaseReport) -> Markup:
    if not report.findings:
        return _section("findings", el("p", f"No finding. kops log verify ran at level {report.manifest['verify_level']}."))
    by_code: dict[str, list[Finding]] = defaultdict(list)
    for found in report.findings:
        by_code[found.code].append(found)
    grades = ("error", "warning", "info")

    def gravity(code: str) -> tuple[int, int, str]:
        return min(grades.index(each.severity) for each in by_code[code]), -len(by_code[code]), code

    parts = [_code(code, by_code[code], number == 0) for number, code in enumerate(sorted(by_code, key=gravity))]
    intro = el("p", "The texts are those of ", el("code", "kops log explain"), f". All findings are in {VERIFY} of the case.")
    return _section("findings", intro, *parts)


def _code(code: str, found: list[Finding], is_open: bool) -> Markup:
    severity = found[0].severity
    head = el(
        "summary", el("span", severity, class_=f"badge {_GRADES[severity]}"), " ", el("code", code), f", {count(len(found), 'place')}"
    )
    texts: list[tuple[str, object]] = []
    if code in EXPLANATIONS:
        known = explained(code)
        titles = (("meaning", "Meaning"), ("cause", "Usual cause"), ("kafka", "What Kafka does"), ("remedy", "Remedy"))
        texts = [(title, known[key]) for key, title in titles if known[key]]
    rows = [
        (
            each.file,
            "" if each.position is None else f"{each.position:,}",
            "" if each.length is None else f"{each.length:,}",
            "" if each.base_offset is None else offsets(each.base_offset, each.last_offset),
            each.detail,
        )
        for each in found[:FINDINGS_OF_A_CODE]
    ]
    caption = f"{len(rows):,} of {count(len(found), 'place')}"
    table = _table(("w:File", "n:Position", "n:Bytes", "Offsets", "w:Detail"), rows, caption, f"Places of {code}")
    return el("details", head, _facts(texts) if texts else None, table, open=is_open)


# Partitions


def _partitions(report: CaseReport) -> Markup:
    if not report.partitions:
        return _section("partitions", el("p", "There are none."))
    rows = []
    for each in report.partitions[:LISTED_PARTITIONS]:
        first = next((s.first_offset for s in each.segments if s.first_offset is not None), None)
        last = next((s.last_offset for s in reversed(each.segments) if s.last_offset is not None), None)
        latest = max((s.max_timestamp for s in each.segments if s.max_timestamp is not None), default=None)
        lost = f"{wording.total(each.lost):,}" if each.lost else ""
        rows.append(
            (
                el("span", each.label, title=each.dir),
                each.state or "live",
                f"{len(each.segments):,}",
                size(each.size),
                offsets(first, last),
                moment(latest),
                f"{len(each.problems):,}" if each.problems else "",
                _OUTCOMES.get(each.outcome or "", each.outcome or ""),
                lost,
            )
        )
    left = len(report.partitions) - len(rows)
    caption = f"{len(rows):,} of {count(len(report.partitions), 'partition directory', 'partition directories')}, damaged ones first"
    heads = (
        "w:Partition",
        "State",
        "n:Segments",
        "n:Size",
        "Offsets",
        "Latest record",
        "n:Problems",
        "A broker's start",
        "n:Offsets lost by it",
    )
    note = (
        el("p", f"{left:,} more are left out here; all are in segments.json and {FORECAST} of the case.", class_="muted") if left else None
    )
    return _section("partitions", _table(heads, rows, caption, "All partitions"), note)


# The collection


def _collection(report: CaseReport) -> Markup:
    manifest = report.manifest
    tool, totals = manifest["tool"], manifest["totals"]
    mode = "a copy of every file" if report.copied else "by reference: hashes only, no copies"
    facts: list[tuple[str, object]] = [
        ("Manifest SHA-256", el("code", report.manifest_sha256)),
        ("Kind", mode + ("" if manifest.get("complete", True) else "; interrupted, not complete")),
        ("Tool", f"{tool.get('name', '')} {tool.get('version', '')}, Python {tool.get('python', '')}, {tool.get('system', '')}"),
        ("Command", el("code", command(*(str(each) for each in manifest.get("arguments", ()))))),
        ("Verified at level", manifest["verify_level"]),
        ("Files", f"{totals.get('files', 0):,}, {size(totals.get('bytes', 0))}"),
    ]
    special = [each for each in manifest["entries"] if each["type"] not in ("file", "directory")]
    odd = [each for each in manifest["entries"] if each.get("status") in ("changed", "appeared", "partial", "unreadable", "not-collected")]
    parts: list[Markup | None] = [_facts(facts)]
    if report.notes:
        parts.append(el("h3", "Notes"))
        parts.append(el("ul", join([el("li", each) for each in report.notes[:50]])))
    if odd:
        rows = [(_entry_name(report, each), each["status"], each.get("detail", _unread(each))) for each in odd[:LISTED_PARTITIONS]]
        table = _table(("w:File", "State", "w:Detail"), rows, f"{len(rows):,} of {len(odd):,}", "Files that changed or could not be read")
        parts += [el("h3", "Files that changed or could not be read"), table]
    if special:
        rows = [
            (_entry_name(report, each), each["type"], _name(each, "target") if "target" in each else "")
            for each in special[:LISTED_PARTITIONS]
        ]
        table = _table(
            ("w:Name", "Kind", "w:Target"), rows, f"{len(rows):,} of {len(special):,}, none was followed or opened", "Links and devices"
        )
        parts += [el("h3", "Links, pipes and devices"), table]
    return _section("collection", *parts)


def _unread(entry: dict[str, Any]) -> str:
    unread = sum(end - start for start, end in entry.get("unreadable", ()))
    return f"{count(unread, 'byte')} could not be read and are zeroes in the copy" if unread else ""


def _entry_name(report: CaseReport, entry: dict[str, Any]) -> str:
    several = len(report.manifest["sources"]) > 1
    return (f"{entry['source']}: " if several else "") + _name(entry, "path")


def _hashes(report: CaseReport) -> Markup:
    entries = [each for each in report.manifest["entries"] if "sha256" in each]
    rows = [
        (_entry_name(report, each), f"{each['size_read']:,}", _time(str(each.get("mtime", ""))), each["sha256"])
        for each in entries[:HASH_ROWS]
    ]
    caption = f"{len(rows):,} of {count(len(entries), 'file')}; all are in {SUMS}, which sha256sum -c checks"
    table = _table(("w:File", "n:Bytes", "Modified", "h:SHA-256"), rows, caption, "Hashes of the files")
    documents = [(each["path"], f"{each['size']:,}", each["sha256"]) for each in report.manifest["documents"]]
    own = _table(("w:File", "n:Bytes", "h:SHA-256"), documents, "The case's own documents", "Hashes of the documents")
    manifest = el("p", "SHA-256 of manifest.json: ", el("code", report.manifest_sha256))
    return _section("hashes", manifest, own, el("details", el("summary", f"Hashes of the files ({caption})"), table))
