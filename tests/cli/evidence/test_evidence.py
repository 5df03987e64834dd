"""`kops evidence`: its output and its exit codes."""

from __future__ import annotations

import errno
import json
import os
import re
import shlex
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.cli.conftest import Ran
from tests.support import corpus

Kops = Callable[..., Ran]


@pytest.fixture
def kafka(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Provide a damaged log directory in the current directory."""
    monkeypatch.chdir(tmp_path)
    return corpus.load("damage-4.3.0-flip-body-old").copy(tmp_path / "kafka", "before")


def test_collect_and_verify(kops: Kops, kafka: Path) -> None:
    ran = kops("evidence", "collect", "kafka", "--out", "case", "--examiner", "A. Miller")
    assert ran.code == 4
    assert re.search(r"^verify: +1 error, ", ran.text, re.MULTILINE)
    digest = ran.text.split()[-1]
    ran = kops("evidence", "verify", "case", "--manifest-sha256", digest, "--originals")
    assert (ran.code, ran.err) == (0, "")
    assert ran.text.startswith("unchanged: ")
    log = next(Path("case").rglob("*.log"))
    log.unlink()
    log.write_bytes(b"x")
    ran = kops("evidence", "verify", "case", "--format", "json")
    assert ran.code == 4
    document = json.loads(ran.out)
    assert document["schema"] == "kops.evidence-check/v1"
    assert [(each["state"], each["file"]) for each in document["differences"]] == [("changed", str(log.relative_to("case")))]
    ran = kops("evidence", "verify", "case")
    assert ran.code == 4 and "1 difference in" in ran.text
    ran = kops("evidence", "verify", "case", "--manifest-sha256", "0" * 64, "--format", "csv")
    assert ran.code == 4 and "changed,manifest.json," in ran.text


def test_a_reference_and_its_document(kops: Kops, kafka: Path) -> None:
    ran = kops("evidence", "collect", "kafka", "--out", "case", "--reference", "--format", "json")
    assert ran.code == 4
    document = json.loads(ran.out)
    assert document["schema"] == "kops.evidence-collected/v1"
    assert document["complete"] and document["problems"]["error"] == 1
    arguments = json.loads(Path("case/manifest.json").read_bytes())["arguments"]
    assert arguments == ["kops", "evidence", "collect", "kafka", "--out", "case", "--reference", "--level", "full"]
    ran = kops("evidence", "verify", "case")
    assert ran.code == 0 and "--originals checks the files themselves" in ran.err
    next(kafka.rglob("*.index")).write_bytes(b"x")
    assert kops("evidence", "verify", "case").code == 0
    assert kops("evidence", "verify", "case", "--originals").code == 4


def test_report(kops: Kops, kafka: Path) -> None:
    kops("evidence", "collect", "kafka", "--out", "case", "--case-number", "17")
    ran = kops("evidence", "report", "case", "-o", "report.html")
    assert (ran.code, ran.err) == (0, "kops: report: report.html\n")
    assert kops("evidence", "report", "case").out == Path("report.html").read_bytes()
    assert kops("evidence", "verify", "case").code == 0
    ran = kops("evidence", "report", "case", "-o", "case/report.html")
    assert ran.code == 16 and "nothing may be written" in ran.err
    assert not Path("case/report.html").exists()
    segments = Path("case/segments.json")
    data = segments.read_bytes()
    segments.unlink()
    segments.write_bytes(data + b" ")
    ran = kops("evidence", "report", "case", "-o", "report.html")
    assert ran.code == 4 and "the case was changed: segments.json" in ran.err
    assert "This case was changed" in Path("report.html").read_text()
    segments.write_bytes(b"[]")
    ran = kops("evidence", "report", "case", "-o", "other.html")
    assert ran.code == 8 and "not a document of kops.evidence-segments/v1" in ran.err
    assert not Path("other.html").exists()


def test_a_report_of_an_interrupted_case(kops: Kops, kafka: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def stop(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("kops.forensics.evidence.collect.forecasts", stop)
    ran = kops("evidence", "collect", "kafka", "--out", "case")
    assert ran.code == 32 | 4 and "(incomplete)" in ran.text
    assert sorted(path.name for path in Path().iterdir()) == ["case", "kafka"]
    assert kops("evidence", "verify", "case").code == 0
    assert "interrupted" in kops("evidence", "report", "case").text


def test_a_full_disk(kops: Kops, kafka: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The case is kept, and the command that is printed continues it."""
    really, room = os.pwrite, [2]

    def write(fd: int, data: bytes, position: int) -> int:
        room[0] -= 1
        if room[0] < 0:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return really(fd, data, position)

    with monkeypatch.context() as patch:
        patch.setattr(os, "pwrite", write)
        ran = kops("evidence", "collect", "kafka", "--out", "case", "--examiner", "A. Miller", "--level", "deep")
    assert ran.code == 8 and "(incomplete)" in ran.text and "not run, the case is incomplete" in ran.text
    assert "No space left on device: the case has only what was read so far" in ran.err
    checked = kops("evidence", "verify", "case")
    assert checked.code == 0, checked.text
    [again] = re.findall(r"^kops: to continue when there is room: kops (.*)$", ran.err, re.MULTILINE)
    ran = kops(*shlex.split(again))
    assert ran.code == 4 and "incomplete" not in ran.text + ran.err
    assert json.loads(Path("case/manifest.json").read_text())["case"]["examiner"] == "A. Miller"


def test_directories_without_kafkas_files(kops: Kops, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "empty").mkdir()
    (tmp_path / "other").mkdir()
    Path(os.fsdecode(b"other/\xff\n")).write_text("x")
    ran = kops("evidence", "collect", "empty", "other", "--out", "case")
    assert ran.code == 0
    assert "not a log directory or a partition directory" in ran.err
    assert "1 file, 1 B" in ran.text
    assert kops("evidence", "verify", "case", "--originals").code == 0
    Path(os.fsdecode(b"case/data/2/other/\xff\n")).unlink()
    ran = kops("evidence", "verify", "case")
    assert ran.code == 4
    assert "\nmissing  data/2/other/\\xff\\n " in ran.text


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (["collect", "kafka"], 16, "--out"),
        (["collect", "--out", "case"], 16, "DIR"),
        (["collect", "nothing", "--out", "case"], 8, "nothing: no such directory"),
        (["collect", "kafka/meta.properties", "--out", "case"], 16, "not a directory"),
        (["collect", "kafka", "--out", "kafka"], 16, "already exists"),
        (["collect", "kafka", "--out", "kafka/case"], 16, "nothing may be written"),
        (["collect", "kafka", "--out", "no/case"], 8, "does not exist"),
        (["collect", "kafka", "--out", "case", "--level", "x"], 16, "unknown level"),
        (["verify", "kafka"], 8, "not a case"),
        (["verify", "nothing"], 8, "no such directory"),
        (["report", "kafka"], 8, "not a case"),
        (["report", "nothing"], 8, "no such directory"),
        (["verify", "kafka", "--manifest-sha256", "12"], 16, "64 hexadecimal digits"),
    ],
)
def test_errors(kops: Kops, kafka: Path, arguments: list[str], code: int, message: str) -> None:
    ran = kops("evidence", *arguments)
    assert ran.code == code
    assert message in ran.err
    assert not Path("case").exists()
