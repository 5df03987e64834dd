"""The commands in docs/spark.md and docs/spark-clusters.md print what the pages show."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import kops.spark
from kops.cli.running.options import words
from kops.forensics.verify.run import verify
from tests.cli.conftest import PROJECT
from tests.cli.documents.test_docs import as_shown, lay_out, sessions
from tests.spark.scan_commands import Commands
from tests.support import corpus

pytestmark = pytest.mark.timeout(1200)  # a Spark session of its own
PAGES = ("spark.md", "spark-clusters.md")


def lines(*, submitted: bool) -> Iterator[tuple[str, str]]:
    """Yield the command lines of both pages with their output: those that run a scan, or those that print the line for spark-submit."""
    for page in PAGES:
        for line, output in sessions(page):
            assert line.startswith("kops scan "), line
            if ("--print-submit" in line) == submitted:
                yield line, output


@pytest.mark.java
@pytest.mark.parametrize(("line", "shown"), list(lines(submitted=True)))
def test_lines_for_spark_submit(line: str, shown: str, capsysbinary: pytest.CaptureFixture[bytes]) -> None:
    ran = Commands(capsysbinary)(*words(line))
    assert ran.code == 0
    assert as_shown(shown, ran.text), ran.text


@pytest.mark.slow
def test_scans(commands: Commands, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    lay_out(tmp_path)
    monkeypatch.chdir(tmp_path)
    seen = 0
    for line, shown in lines(submitted=False):
        ran = commands(*words(line))
        assert ran.code == 0, ran.err
        assert as_shown(shown, ran.text + ran.err), f"{line}\n{ran.text}{ran.err}"
        seen += 1
    assert seen >= 5


@pytest.mark.slow
def test_the_notebook(spark: Any, tmp_path: Path) -> None:
    lay_out(tmp_path)
    text = (PROJECT / "docs" / "spark-clusters.md").read_text()
    [example] = re.findall(r"^```python\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)
    names: dict[str, Any] = {"spark": spark}
    exec(compile(example.replace("s3://copies/", f"{tmp_path}/"), "docs/spark-clusters.md", "exec"), names)
    assert names["lag"].count() > 5


@pytest.mark.slow
def test_a_join_of_three_jobs(spark: Any, tmp_path: Path) -> None:
    """The example is in docs/spark.md, "In a notebook". The test uses other directories, and checks the rows with `kops log`."""
    brokers = [corpus.load("cluster-4.3.0").copy(tmp_path / f"broker-{number}", f"nodes/n{number}") for number in (1, 2, 3)]
    for folder, position in ((brokers[1] / "orders-epochs-0", 1900), (brokers[2] / "sensor.readings-multi-1", 700)):
        log = folder / f"{0:020d}.log"
        data = bytearray(log.read_bytes())
        data[position % len(data)] ^= 1
        log.write_bytes(bytes(data))
    [example] = re.findall(
        r"^```python\n((?:(?!```).)*JOIN.*?)^```$", (PROJECT / "docs" / "spark.md").read_text(), re.MULTILINE | re.DOTALL
    )
    names: dict[str, Any] = {"spark": spark, "kops": kops}
    exec(compile(example.replace("/data/", f"{tmp_path}/"), "docs/spark.md", "exec"), names)
    found = {(row.topic, row.partition, row.broker, row.code, row.base_offset): set(row.producers) for row in names["damaged"].collect()}
    findings = [each for each in verify([str(each) for each in brokers]).findings if "-delete" not in each.file]
    assert {(Path(each.file).parent.name, each.code, each.base_offset) for each in findings} == {
        (f"{topic}-{partition}", code, base) for topic, partition, _, code, base in found
    }
    assert {(topic, broker) for topic, _, broker, _, _ in found} == {("orders-epochs", 2), ("sensor.readings-multi", 3)}
    assert any(found.values())
