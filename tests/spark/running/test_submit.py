"""`--print-submit` prints a complete line with the arguments of the scan. `test_standalone` runs it."""

from __future__ import annotations

import shlex
from itertools import pairwise
from pathlib import Path

import pytest

from kops.spark.session import is_here


def printed(capsys: pytest.CaptureFixture[str], *arguments: str) -> list[str]:
    """Return the words of the line that is printed for `kops scan …`, without a variable before them."""
    from kops.cli.main import main

    assert main(["scan", arguments[0], "--print-submit", *arguments[1:]]) == 0
    out, err = capsys.readouterr()
    assert err == "" and out.count("\n") == 1
    words = shlex.split(out)
    return words[1:] if words[0].startswith("JAVA_HOME=") else words


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        (["verify", "/a b", "--level", "deep", "-vv"], ["verify", "--level", "deep", "--verbose", "--verbose", "/a b"]),
        (["verify", "--format=jsonl", "-o", "x", "/a", "/b*"], ["verify", "--format", "jsonl", "--output", "x", "/a", "/b*"]),
        (["grep", "--key=--x", "--from-time", "-5", "/a"], ["grep", "--key=--x", "--from-time=-5", "/a"]),
        (["grep", "--topic", "a", "--topic", "b", "/a"], ["grep", "--topic", "a", "--topic", "b", "/a"]),
        (["recover", "-n", "--out", "/r", "-q", "/a"], ["recover", "--out", "/r", "--plan", "--quiet", "/a"]),
        (["keys", "--top", "50", "/a"], ["keys", "--top", "50", "/a"]),
    ],
)
def test_the_scan_gets_its_own_arguments(given: list[str], expected: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    words = printed(capsys, *given, "--master", "yarn", "--conf", "spark.executor.cores=2", "--conf=spark.ui.enabled=true")
    at = next(place for place, word in enumerate(words) if word.endswith("scan_job.py"))
    assert words[at + 1 :] == expected
    options = words[:at]
    assert options[0].endswith("spark-submit")
    assert options[options.index("--master") + 1] == "yarn"
    assert options[options.index("--name") + 1] == f"kops scan {given[0]}"
    confs = [after for before, after in pairwise(options) if before == "--conf"]
    assert {"spark.executor.cores=2", "spark.ui.enabled=true"} < set(confs)
    assert "spark.ui.enabled=false" not in confs
    assert not any("127.0.0.1" in each for each in confs), "executors elsewhere could not reach the driver"


def test_the_output_file_is_that_of_the_scan(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    assert printed(capsys, "verify", "-o", str(tmp_path / "x"), "/a")[-2:] == [str(tmp_path / "x"), "/a"]
    assert list(tmp_path.iterdir()) == []


def test_a_path_that_looks_like_an_option(capsys: pytest.CaptureFixture[str]) -> None:
    assert printed(capsys, "verify", "--", "-p")[-3:] == ["verify", "--", "-p"]


def test_a_wrong_master_is_told_before_a_line_is_printed(capsys: pytest.CaptureFixture[str]) -> None:
    from kops.cli.main import main

    assert main(["scan", "verify", "--print-submit", "--master", "foo", "/a"]) == 16
    assert main(["scan", "verify", "--print-submit", "--conf", "foo", "/a"]) == 16
    assert capsys.readouterr().out == ""


def test_which_masters_are_on_this_machine() -> None:
    here = ("local", "local[*]", "local-cluster[2,1,512]", "spark://127.0.0.1:7077", "spark://localhost:1,[::1]:2")
    assert [each for each in here if not is_here(each)] == []
    elsewhere = ("spark://10.0.0.1:7077", "spark://127.0.0.1:1,10.0.0.1:2", "yarn", "k8s://https://127.0.0.1:443")
    assert [each for each in elsewhere if is_here(each)] == []
