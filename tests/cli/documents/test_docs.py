"""The documents are true: Python examples run, the tour's commands print what it shows, every command is in the README."""

from __future__ import annotations

import doctest
import os
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import kops as package
from kops import api
from kops.cli.running import tree
from kops.cli.running.options import build, words
from tests.cli.conftest import PROJECT, Ran
from tests.support import corpus
from tests.support.nodes.share_groups import SHARE_SETTINGS, configure_share_group
from tools import demo

Kops = Callable[..., Ran]


def test_the_examples_of_the_api_run(tmp_path: Path) -> None:
    names = {"brokers": corpus.load("cluster-4.3.0").root / "nodes", "work": tmp_path}
    result = doctest.testfile(str(PROJECT / "docs" / "api.md"), module_relative=False, globs=names, encoding="utf-8")
    assert result.attempted > 20
    assert result.failed == 0


def test_the_examples_of_the_clients_run() -> None:
    with package.Cluster(1, config={**SHARE_SETTINGS, "group.initial.rebalance.delay.ms": "0"}) as cluster:
        names = {"servers": cluster.bootstrap_servers}
        with package.Producer(bootstrap_servers=cluster.bootstrap_servers) as producer:  # the page's share group
            for value in (b"espresso", b"decaf"):
                producer.send("brews", value)
        configure_share_group(cluster.bootstrap_servers, "baristas", {"share.auto.offset.reset": "earliest"})
        result = doctest.testfile(str(PROJECT / "docs" / "clients.md"), module_relative=False, globs=names, encoding="utf-8")
    assert result.attempted > 8
    assert result.failed == 0


def test_every_name_of_the_api_is_exported_and_documented() -> None:
    assert package.__all__ == api.__all__
    assert sorted(api.__all__) == api.__all__
    for name in api.__all__:
        assert getattr(package, name) is getattr(api, name)
        assert getattr(api, name).__doc__
    assert set(api.__all__) <= set(dir(package))
    with pytest.raises(AttributeError, match="module 'kops' has no attribute 'nothing'"):
        _ = package.nothing  # type: ignore[attr-defined]


def test_importing_kops_is_cheap() -> None:
    script = "import sys; before = set(sys.modules); import kops; print(*sorted(set(sys.modules) - before))"
    done = subprocess.run([sys.executable, "-c", script], cwd=PROJECT, capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout.split() == ["__future__", "kops", "kops._compiled"]


def sessions(page: str = "tour.md") -> Iterator[tuple[str, str]]:
    """Yield the command lines of the page's console blocks, each with the output shown under it."""
    text = (PROJECT / "docs" / page).read_text()
    for block in re.findall(r"^```console\n(.*?)^```$", text, re.MULTILINE | re.DOTALL):
        for part in re.split(r"^\$ ", block, flags=re.MULTILINE)[1:]:
            line, _, output = part.partition("\n")
            yield line, output


def as_shown(expected: str, printed: str) -> bool:
    """Return whether the output is what the page shows. `…` stands for anything. Columns may have other widths, because paths differ in
    length.
    """
    narrow = re.sub(" +", " ", expected.strip())
    pattern = "".join(".*" if piece == "…" else re.escape(piece) for piece in re.split("(…)", narrow))
    return re.fullmatch(pattern, re.sub(" +", " ", printed.strip()), re.DOTALL) is not None


def runs_on_spark(line: str) -> bool:
    return "kops scan" in line or "spark-submit" in line


@pytest.mark.parametrize("page", ["tour.md", "evidence.md"])
def test_the_page_shows_what_kops_prints(page: str, tmp_path: Path, kops: Kops, monkeypatch: pytest.MonkeyPatch) -> None:
    lay_out(tmp_path)
    monkeypatch.chdir(tmp_path)
    code = 0
    ran = 0
    for line, output in sessions(page):
        if runs_on_spark(line):
            continue
        if line == "echo $?":
            assert output.strip() == str(code)
            continue
        result = kops(*words(line))
        code = result.code
        ran += 1
        assert as_shown(output, result.text + result.err), f"{line}\n{result.text}{result.err}"
    assert ran >= 8


@pytest.mark.slow
@pytest.mark.java
def test_the_tour_shows_what_kops_prints_on_spark(tmp_path: Path) -> None:
    lay_out(tmp_path)
    lines = [(line, output) for line, output in sessions() if line.startswith("kops scan")]
    assert lines
    for line, output in lines:
        command = [sys.executable, "-m", "kops", *words(line)]
        done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=240, check=False)
        assert done.returncode == 0, done.stderr
        assert as_shown(output, done.stdout), done.stdout


def lay_out(folder: Path) -> None:
    """Make the directories that the tour's commands read: three brokers as Kafka left them in `brokers`, a damaged copy in `damaged`, and
    in `diverged` two of the brokers after an unclean election.
    """
    case = corpus.load(demo.CASE)
    case.copy(folder / "diverged", "diverged")
    for broker in demo.BROKERS:
        case.copy(folder / "brokers" / broker, f"nodes/{broker}")
        case.copy(folder / "damaged" / broker, f"nodes/{broker}")
    demo.damage(folder / "damaged")


def test_the_command_lines_of_the_tour_parse() -> None:
    for line, _ in [*sessions(), *sessions("evidence.md")]:
        if not line.startswith("kops "):
            assert line == "echo $?" or runs_on_spark(line)
            continue
        arguments = words(line)
        entry = next((e for e in tree.COMMANDS if tuple(arguments[: len(e.path)]) == e.path), None)
        assert entry is not None, line
        with build(entry).make_context(entry.name, arguments[len(entry.path) :]):
            pass


@pytest.mark.parametrize("entry", tree.COMMANDS, ids=lambda entry: "-".join(entry.path))
def test_the_readme_and_the_tour_name_every_command(entry: tree.Entry) -> None:
    assert f"`{entry.name}`" in table_of_commands()
    tour = (PROJECT / "docs" / "tour.md").read_text()
    assert f"`{entry.name}`" in tour or f"\n$ {entry.name}" in tour


def table_of_commands() -> str:
    return (PROJECT / "README.md").read_text().partition("\n## Commands\n")[2].partition("\n#")[0]


def test_the_readme_names_no_other_command() -> None:
    named = re.findall(r"`(kops [a-z -]+)`", table_of_commands())
    assert sorted(named) == sorted(entry.name for entry in tree.COMMANDS)


def test_the_readme_is_short() -> None:
    assert len((PROJECT / "README.md").read_text().splitlines()) <= 200


@pytest.mark.slow
def test_the_page_on_clusters_runs_as_it_stands(tmp_path: Path) -> None:
    blocks = re.findall(r"^```python\n(.*?)^```$", (PROJECT / "docs" / "cluster.md").read_text(), re.MULTILINE | re.DOTALL)
    script, tests = blocks
    plain, coroutine = script.split("async with")
    lines = [f"    {line}" for line in f"async with{coroutine}".splitlines()]
    (tmp_path / "script.py").write_text("\n".join([plain, "import asyncio", "async def main():", *lines, "asyncio.run(main())"]))
    (tmp_path / "test_page.py").write_text(f"import pytest\ndef run_my_program(servers): ...\n{tests}")
    for command in (["script.py"], ["-m", "pytest", "-q", "-p", "no:cacheprovider", "test_page.py"]):
        environment = {**os.environ, "PYTHONPATH": str(PROJECT)}
        done = subprocess.run(
            [sys.executable, *command], cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=240, check=False
        )
        assert done.returncode == 0, done.stdout + done.stderr
