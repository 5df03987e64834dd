"""The manual pages agree with the current command line."""

from __future__ import annotations

import functools
import re

import pytest

from kops.cli.running import tree
from kops.forensics.findings.codes import CODES
from tools import make_man

manual = functools.cache(make_man.manual)


def test_the_pages_are_current() -> None:
    assert make_man.differences() == [], "run: make man"


@pytest.mark.parametrize("name", sorted(manual()))
def test_a_page_is_sound_roff(name: str) -> None:
    text = manual()[name]
    lines = text.splitlines()
    assert lines[1].startswith(f'.TH "{name.rpartition(".")[0].upper()}" "{name[-1]}"')
    assert ".SH NAME" in lines
    known = {".TH", ".SH", ".TP", ".PP", ".nf", ".fi", ".br", ".B", '.\\"'}
    assert {line.split()[0] for line in lines if line.startswith(".")} <= known
    assert not [line for line in lines if line.startswith("'")]
    assert set(re.findall(r"\\(.)", text)) <= set('-fe&"')
    assert len(re.findall(r"\\f[BI]", text)) == text.count("\\fR")
    assert text.count("\n.nf\n") == text.count("\n.fi\n")


def test_every_command_and_finding_has_its_words() -> None:
    pages = manual()
    for entry in tree.COMMANDS:
        assert make_man.escape(entry.name) in pages["kops.1"]
        assert "-".join(("kops", *entry.path)) + ".1" in pages
    for path in tree.GROUPS:
        page = pages["-".join(("kops", *path)) + ".1"]
        assert all(make_man.escape(entry.name) in page for entry in tree.COMMANDS if entry.path[: len(path)] == path)
    for code in CODES:
        assert make_man.escape(code) in pages["kops-findings.7"]


def test_text_becomes_roff() -> None:
    assert make_man.escape(".a\\b\n'c-d") == "\\&.a\\eb\n\\&'c\\-d"
