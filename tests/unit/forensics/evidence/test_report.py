"""The report of a case: its contents, that no data of a case becomes part of the page, and that its size is bounded."""

from __future__ import annotations

import json
import os
import shutil
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest

from kops.errors import DecodeError
from kops.files import OsFiles
from kops.forensics.evidence.analysis import DAMAGED, INTACT, RECOVERABLE, Extent
from kops.forensics.evidence.case import manifest_bytes
from kops.forensics.evidence.collect import CollectOptions, collect
from kops.forensics.evidence.report import wording
from kops.forensics.evidence.report.advice import paragraphs, steps, verdict
from kops.forensics.evidence.report.html import el, visible
from kops.forensics.evidence.report.model import CaseReport, PartitionView, SegmentView, attach, read_case
from kops.forensics.evidence.report.page import page
from kops.forensics.findings.finding import finding
from tests.support import corpus

TAGS = {
    *("html", "head", "meta", "link", "title", "style", "body", "a", "header", "main", "footer", "nav", "section", "article", "h1", "h2"),
    *("h3", "p", "ul", "ol", "li", "dl", "dt", "dd", "div", "span", "strong", "b", "code", "pre", "table", "caption", "thead", "tbody"),
    *("tr", "th", "td", "details", "summary", "figure", "figcaption", "svg", "defs", "pattern", "rect", "path"),
}
VOID = {"meta", "link"}


class Seen(HTMLParser):
    """The elements of a page. An element that is not closed, or closed twice, is an error."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.tags: set[str] = set()
        self.attributes: list[tuple[str, str, str | None]] = []
        self.text = ""
        self.feed(html)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.add(tag)
        self.attributes += [(tag, name, value) for name, value in attrs]
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.text += data


def report_of(case: Path) -> str:
    return "".join(page(read_case(str(case))))


def collected(folder: Path, case_id: str, **options: Any) -> Path:
    source = corpus.load(case_id).copy(folder / "kafka", "before")
    collect([str(source)], str(folder / "case"), CollectOptions(**options))
    return folder / "case"


def test_a_damaged_log(tmp_path: Path) -> None:
    case = collected(tmp_path, "damage-4.3.0-flip-body-old", examiner="A. Miller", case_number="17", note="rack 3")
    html = report_of(case)
    seen = Seen(html)
    assert seen.tags <= TAGS
    for words in ("Evidence report: 17", "A. Miller", "rack 3", "Records of 1 partition are damaged or missing."):
        assert words in seen.text
    (damaged,) = read_case(str(case)).damaged
    (bad,) = [(segment, each) for segment in damaged.segments for each in segment.extents if each.state == DAMAGED]
    segment, extent = bad
    assert f"<title>damaged (batch-crc-mismatch): bytes {extent.start:,} to {extent.end - 1:,}, offsets " in html
    assert segment.size > extent.end > extent.start
    for line in (
        f"kops log recover {case}/data/1/kafka/{damaged.name} --out {case}-recovered",
        f"kops log heal -n {damaged.dir} --from REPLICA",
        f"kops log repair -n {damaged.dir}",
        f"kops evidence verify {case} --manifest-sha256 {read_case(str(case)).manifest_sha256}",
    ):
        assert line in seen.text


def test_nothing_is_loaded_and_nothing_runs(tmp_path: Path) -> None:
    seen = Seen(report_of(collected(tmp_path, "damage-4.3.0-none")))
    ids = {value for _, name, value in seen.attributes if name == "id"}
    for tag, name, value in seen.attributes:
        assert not name.startswith("on")
        if name in ("href", "src", "action", "xlink:href"):
            assert value == "data:," or (tag == "a" and value is not None and value[0] == "#" and value[1:] in ids)
    assert "No damage was found." in seen.text
    assert "There is nothing to map" in seen.text or "there is nothing to map" in seen.text


HOSTILE = ("<script>alert(1)<", "\"'><img src=x onerror=alert(1)>", "&lt;b&gt;", "</title><b>", "\u202egpj.exe", "a\nb", "\x1b[31m")


def test_names_do_not_become_markup(tmp_path: Path) -> None:
    source = tmp_path / "<script>alert(1)<"
    log = corpus.load("damage-4.3.0-flip-body-old").copy(tmp_path / "kafka", "before")
    (partition,) = [each for each in log.iterdir() if each.is_dir()]
    source.mkdir()
    partition.rename(source / "<script>alert(2)<-0")
    for number, name in enumerate(HOSTILE):
        (source / f"{number}{name.replace('/', '')}").write_text(name)
        (source / f"link{number}").symlink_to(name)
    (source / os.fsdecode(b"\xff\xfe")).write_text("x")
    collect([str(source)], str(tmp_path / "case"), CollectOptions(examiner=HOSTILE[1], note=HOSTILE[0], case_number=HOSTILE[3]))
    html = report_of(tmp_path / "case")
    seen = Seen(html)
    assert seen.tags <= TAGS
    assert {value for tag, name, value in seen.attributes if name == "class" and value and "<" in value} == set()
    assert "<script>alert(2)<-0" in seen.text and "\\xff\\xfe" in seen.text
    assert "<script" not in html and "<img" not in html and "<b>1" in html
    assert all(each.isprintable() or each == "\n" for each in html)
    (damaged,) = read_case(str(tmp_path / "case")).damaged
    assert f"kops log repair -n '{damaged.dir}'" in seen.text


def test_escapes() -> None:
    assert el("a", "<&>\"'", href='"><script>', hidden=True, title=None) == (
        '<a href="&quot;&gt;&lt;script&gt;" hidden>&lt;&amp;&gt;&quot;&#x27;</a>'
    )
    assert visible("a\u202eb\x00\udcff\ud800\n") == "a\\u202eb\\x00\\xff\\ud800\\n"
    assert wording.command("kops", "a b", "c\n\udcff'") == "kops 'a b' $'c\\x0a\\xff\\x27'"
    assert wording.command("\ud800") == "$'\\x5cud800'"


def test_an_altered_case_is_said_to_be_altered(tmp_path: Path) -> None:
    case = collected(tmp_path, "damage-4.3.0-none")
    data = (case / "verify.json").read_bytes()
    (case / "verify.json").unlink()
    (case / "verify.json").write_bytes(data + b" ")
    assert "This case was changed after its collection." in report_of(case)
    (case / "verify.json").unlink()
    assert "verify.json: No such file or directory" in report_of(case)


BROKEN: list[tuple[str, Any]] = [
    ("segments.json", {"partitions": [{}]}),
    ("segments.json", {"partitions": {}}),
    ("segments.json", {"partitions": [{"dir": 1, "name": "", "state": "", "segments": [], "missing": []}]}),
    ("segments.json", {"partitions": [{"dir": "", "name": "", "state": "", "segments": [{"file": None}], "missing": []}]}),
    ("segments.json", {"partitions": [{"dir": "", "name": "", "state": "", "segments": [], "missing": [[1, 2, 3, 4]]}]}),
    ("verify.json", {"findings": [{"severity": "worst", "code": "x", "file": "y"}]}),
    ("verify.json", {"findings": [{"code": "x"}]}),
    ("verify.json", {"findings": [1]}),
    ("verify.json", {"findings": [], "records": "many"}),
    ("forecast.json", {"forecasts": [{}]}),
    ("forecast.json", {"forecasts": 1}),
    ("manifest.json", {"started": 1}),
    ("manifest.json", {"totals": []}),
]


@pytest.mark.parametrize(("name", "change"), BROKEN)
def test_malformed_documents(tmp_path: Path, name: str, change: dict[str, Any]) -> None:
    (tmp_path / "kafka").mkdir()
    collect([str(tmp_path / "kafka")], str(tmp_path / "case"), CollectOptions())
    path = tmp_path / "case" / name
    document = {**json.loads(path.read_bytes()), **change}
    path.unlink()
    if name == "manifest.json":
        path.write_bytes(manifest_bytes({key: value for key, value in document.items() if key != "entries"}, document["entries"]))
    else:
        path.write_text(json.dumps(document))
    with pytest.raises(DecodeError):
        read_case(str(tmp_path / "case"))


def made(partitions: list[PartitionView], findings: list[Any] = []) -> CaseReport:  # noqa: B006
    entries = [
        {
            "source": 1,
            "path": f"t-0/{n:020d}.log",
            "type": "file",
            "sha256": "0" * 64,
            "size_read": 1,
            "status": "changed",
            "mtime": "2026Z",
        }
        for n in range(3000)
    ]
    manifest: dict[str, Any] = {
        "mode": "copy",
        "case": {},
        "started": "2026-01-01T00:00:00.000000000Z",
        "finished": "2026-01-01T00:00:00.000000000Z",
        "verify_level": "full",
        "tool": {},
        "totals": {},
        "sources": [{"number": 1, "path": "/kafka", "data": "data/1/kafka"}],
        "documents": [],
        "entries": entries,
    }
    report = CaseReport("/case", manifest, "0" * 64, partitions, findings)
    attach(report)
    return report


def many(partitions: int, segments: int) -> CaseReport:
    """Return a report of partitions in which every second segment is damaged in many places."""
    made_of = []
    findings = []
    for number in range(partitions):
        folder = f"/kafka/topic-of-some-length-{number}"
        views = []
        for base in range(segments):
            file = f"{folder}/{base * 100:020d}.log"
            extents = [Extent(0, 1 << 20, INTACT, base * 100, base * 100 + 99)]
            if base % 2:
                states = (INTACT, DAMAGED, RECOVERABLE, DAMAGED)
                extents = [Extent(n * 1000, n * 1000 + 1000, states[n % 4], n, n, None) for n in range(20)]
                findings.append(
                    finding("batch-crc-mismatch", file, "x" * 80, position=1000, length=1000, base_offset=base, last_offset=base)
                )
            views.append(
                SegmentView(file, base * 100, "live", 1 << 20, base * 100, base * 100 + 99, base * 60_000, base * 60_000 + 59_999, extents)
            )
        made_of.append(PartitionView(folder, f"topic-of-some-length-{number}", "", "", views, [(5, 6, "segment-gap")]))
    return made(made_of, findings)


def test_a_large_case_is_reduced_and_says_so() -> None:
    html = "".join(page(many(120, 40)))
    assert len(html) < 4_000_000
    for words in (
        "103 more of them are not drawn",
        "10 more of its segments are not drawn",
        "95 more are in the table below",
        "100 of 2,400 places",
        "1,000 of 3,000 files",
        "112 more partitions need the same",
    ):
        assert words in html, words


@pytest.mark.slow
def test_a_hundred_thousand_segments() -> None:
    html = "".join(page(many(1000, 100)))
    Seen(html)
    assert len(html) < 4_000_000


def test_advice() -> None:
    folder = "/kafka/a-0"
    view = PartitionView(folder, "a-0", segments=[SegmentView(f"{folder}/{0:020d}.log", 0, "live", 10, extents=[Extent(0, 10, INTACT)])])
    index = finding("index-disorder", f"{folder}/{0:020d}.index", position=1)
    report = made([view], [index])
    assert verdict(report).grade == "warn"
    assert [step.commands for step in steps(report)][:2] == [
        ["kops log index rebuild /kafka/a-0"],
        ["kops log verify --level full /kafka"],
    ]
    view.lost, view.lost_though_intact = [(5, 9)], [(5, 9)]
    assert "would give up records" in verdict(report).sentence
    assert "Do not start the broker" in steps(report)[0].text
    assert steps(report)[1].commands == ["kops log recover /case/data/1/kafka/a-0 --out /case-recovered"]
    torn = PartitionView(folder, "a-0", segments=view.segments)
    report = made(
        [torn, PartitionView("/kafka2/a-0", "a-0")],
        [finding("torn-tail", f"{folder}/{0:020d}.log", position=5, base_offset=5, last_offset=9)],
    )
    assert "kops log heal -n /kafka/a-0 --from /kafka2/a-0" in [line for step in steps(report) for line in step.commands]
    report.manifest["totals"] = {"unreadable": 1}
    report.manifest["sources"][0]["lock_holder"] = 7
    assert ["kops evidence collect /kafka --out /case-stopped"] in [step.commands for step in steps(report)]
    report.brokers = [("does-not-start", "because")]
    assert ("What a broker's start does", "The broker does not start: because") in paragraphs(report)
    report.partitions = []
    assert verdict(report).more == "because"


def test_brokers_of_one_case_are_forecast_apart(tmp_path: Path) -> None:
    case = corpus.load("cluster-4.3.0")
    folders = [str(case.root / "nodes" / broker) for broker in ("n1", "n2")]
    collect(folders, str(tmp_path / "case"), CollectOptions(level="quick"))
    assert [outcome for outcome, _ in read_case(str(tmp_path / "case")).brokers] == ["started", "started"]
    shutil.copytree(folders[0], tmp_path / "copy")
    collect([folders[0], str(tmp_path / "copy")], str(tmp_path / "twice"), CollectOptions(level="quick"))
    assert [outcome for outcome, _ in read_case(str(tmp_path / "twice")).brokers] == ["started", "started"]


def test_a_running_broker(tmp_path: Path) -> None:
    source = corpus.load("damage-4.3.0-none").copy(tmp_path / "kafka", "before")
    with OsFiles().lock(str(source)):
        collect([str(source)], str(tmp_path / "case"), CollectOptions())
    assert "A broker was running during the collection" in report_of(tmp_path / "case")
