"""`kops log explain`: the catalogue of findings, code by code."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path

from kops.cli.running.exit_codes import FAILED, USAGE
from kops.forensics.findings.codes import CODES
from kops.forensics.findings.damage_codes import FINDINGS
from kops.records.scanning.damage import BAD_LENGTH, CRC_MISMATCH, GARBAGE, TORN_TAIL, UNKNOWN_MAGIC, ZEROES
from tests.cli.conftest import PROJECT, Ran
from tests.support import corpus

Kops = Callable[..., Ran]
OUTPUT_KEYS = ["code", "severity", "meaning", "example", "cause", "kafka", "remedy"]


def test_each_code_has_every_part(kops: Kops) -> None:
    ran = kops("log", "explain", "--all", "--format", "json")
    assert ran.code == 0
    document = json.loads(ran.out)
    assert document["schema"] == "kops.explain/v1"
    assert [each["code"] for each in document["codes"]] == sorted(CODES)
    for each in document["codes"]:
        assert list(each) == OUTPUT_KEYS
        assert all(each[key] for key in OUTPUT_KEYS[:-1]), each


def test_what_verify_prints_can_be_explained(kops: Kops, tmp_path: Path) -> None:
    case = corpus.load(corpus.cases("damage")[0])
    found = json.loads(kops("log", "verify", "--level", "full", "--format", "json", str(case.root / "before")).out)["findings"]
    assert found
    codes = sorted({each["code"] for each in found})
    ran = kops("log", "explain", *codes)
    assert ran.code == 0
    for code in codes:
        assert f"{code} ({CODES[code].severity})\n  Meaning:" in ran.text


def test_the_manual_page_has_the_same(kops: Kops) -> None:
    page = (PROJECT / "man" / "kops-findings.7").read_text().replace("\\-", "-")
    for each in json.loads(kops("log", "explain", "--all", "--format", "json").out)["codes"]:
        assert each["cause"] in page.replace("\\(aq", "'").replace("\\'", "'").replace("\\(dq", '"'), each["code"]


def test_the_codes_of_dump_and_recover_are_explained_by_the_findings_of_verify(kops: Kops) -> None:
    ran = kops("log", "explain", "zeroes", "torn-tail", "bad-records")
    assert ran.code == 0
    heads = [line.split()[0] for line in ran.text.splitlines() if line and not line.startswith(" ")]
    assert heads == ["zeroed-range", "zero-tail", "torn-tail", "batch-undecodable"]
    assert ran.err.splitlines() == [
        "zeroes is damage that kops log verify calls zeroed-range or zero-tail",
        "bad-records is damage that kops log verify calls batch-undecodable",
    ]
    assert {name for names in FINDINGS.values() for name in names} <= set(CODES)


def test_every_code_of_damaged_bytes_has_a_finding() -> None:
    sources = [path.read_text() for path in (PROJECT / "kops" / "records").rglob("*.py")]
    codes = {code for text in sources for code in re.findall(r'DecodeError\([^)]*?code="([a-z-]+)"', text, re.DOTALL)}
    codes |= {CRC_MISMATCH, TORN_TAIL, BAD_LENGTH, UNKNOWN_MAGIC, ZEROES, GARBAGE}
    assert {"bad-records", "bad-length", "unknown-codec"} <= codes
    assert codes <= set(FINDINGS)


def test_a_code_that_is_almost_right(kops: Kops) -> None:
    ran = kops("log", "explain", "torn-tial")
    assert ran.code == FAILED
    assert "torn-tial: no finding has this code; did you mean torn-tail" in ran.err
    assert kops("log", "explain").code == USAGE
    assert kops("log", "explain", "--all", "torn-tail").code == USAGE
