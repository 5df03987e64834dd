"""Help is complete, true and cheap. The tests count what it imports; the benchmark measures its time."""

from __future__ import annotations

import functools
import subprocess
import sys
from collections.abc import Callable, Sequence

import pytest

from kops.cli.main import main
from kops.cli.printing.output import FORMATS
from kops.cli.running import exit_codes, tree
from kops.cli.running.options import build, load, spec_of, words
from tests.cli.conftest import PROJECT, Ran

Kops = Callable[..., Ran]
# Each of these costs 10 to 200 ms to import.
HEAVY = {
    "pydantic",
    "rich",
    "numpy",
    "pyarrow",
    "pyspark",
    "py4j",
    "tabulate",
    "tqdm",
    "crc32c",
    "crcmod",
    "lz4",
    "zstandard",
    "cramjam",
    "click",
    "asyncio",
}
ENTRIES = pytest.mark.parametrize("entry", tree.COMMANDS, ids=lambda entry: "-".join(entry.path))


def groups() -> list[tuple[str, ...]]:
    return [(), *sorted({entry.path[:depth] for entry in tree.COMMANDS for depth in range(1, len(entry.path))})]


PROGRAM = """
import importlib, os, sys
from kops.cli.main import main
for name in BEFORE:
    importlib.import_module(name)
for arguments in ASKED:
    if os.fork() == 0:
        code = main(arguments)
        sys.stdout.flush()
        names = sorted(sys.modules)
        print("imported", code, *names, *(name.partition('.')[0] for name in names), file=sys.stderr, flush=True)
        os._exit(0)
    os.wait()
"""


@functools.cache
def imports() -> dict[tuple[str, ...], set[str]]:
    """Return the modules that some command lines import, with the packages of these modules. Each command line runs in a copy of a fresh
    interpreter that has imported only the program's entry.

    Most of the time would go into the modules that the help of every command imports. They are found with two commands that share nothing
    else, and imported once for the others.
    """
    first, *others = ((*entry.path, "--help") for entry in tree.COMMANDS)
    last = others.pop()
    separate = [("--version",), ("doctor", "--format", "json"), ("completion", "bash"), *((*path, "--help") for path in groups())]
    found = imported_by([*separate, first, last], [])
    return found | imported_by(others, sorted(name for name in found[first] & found[last] if name.startswith("kops.")))


def imported_by(asked: Sequence[tuple[str, ...]], before: Sequence[str]) -> dict[tuple[str, ...], set[str]]:
    """Return the modules that command lines import, with those that were imported `before`."""
    script = PROGRAM.replace("ASKED", repr([list(one) for one in asked])).replace("BEFORE", repr(list(before)))
    done = subprocess.run([sys.executable, "-c", script], cwd=PROJECT, capture_output=True, text=True, timeout=120, check=True)
    lines = [line.split()[1:] for line in done.stderr.splitlines() if line.startswith("imported ")]
    assert [line[0] for line in lines] == ["0"] * len(asked)
    return dict(zip(asked, ({*line[1:]} for line in lines), strict=True))


def imported(*arguments: str) -> set[str]:
    return imports()[arguments]


@pytest.mark.parametrize("arguments", [["--version"], *([*path, "--help"] for path in groups())], ids=" ".join)
def test_help_of_groups_imports_next_to_nothing(arguments: list[str]) -> None:
    modules = imported(*arguments)
    assert not modules & (HEAVY | {"typer", "typing", "dataclasses", "inspect", "re", "json", "pathlib"})
    running = {f"running.{name}" for name in ("boundary", "command_line", "exit_codes", "tree")}
    frame = {"main", "running", *running, "printing", "printing.sink"}
    assert {name for name in modules if name.startswith("kops.")} <= {
        "kops._compiled",
        "kops.errors",
        "kops.cli",
        *(f"kops.cli.{name}" for name in frame),
    }


@ENTRIES
def test_help_of_a_command_imports_nothing_heavy(entry: tree.Entry) -> None:
    modules = imported(*entry.path, "--help")
    assert not modules & HEAVY
    others = {other.target.partition(":")[0] for other in tree.COMMANDS} - {entry.target.partition(":")[0]}
    # At most one other module, for shared printing (`scan verify` prints as `log verify` does).
    assert len(modules & {f"kops.cli.commands.{name}" for name in others}) <= 1


@ENTRIES
def test_help_of_a_command_says_it_all(entry: tree.Entry, kops: Kops) -> None:
    for flag in ("--help", "-h"):
        ran = kops(*entry.path, flag)
        assert (ran.code, ran.err) == (0, "")
    assert ran.text.startswith(f"Usage: {entry.name} ")
    for title in ("Common options:", "Examples:", "Exit codes"):
        assert f"\n{title}" in ran.text
    first = (load(entry).__doc__ or "").strip().splitlines()[0]
    assert first.endswith(".")
    assert " ".join(first.split()) in " ".join(ran.text.split())


@ENTRIES
def test_the_examples_of_a_command_parse(entry: tree.Entry) -> None:
    spec = spec_of(load(entry))
    assert spec.examples
    for what, line in spec.examples:
        assert what.endswith(".")
        command = line[line.index("kops") :].removesuffix('")')
        arguments = words(command)
        depth = len(entry.path)
        assert tuple(arguments[:depth]) == entry.path, line
        with build(entry).make_context(entry.name, arguments[depth:]):
            pass


@ENTRIES
def test_the_formats_of_a_command_are_known_or_its_own(entry: tree.Entry) -> None:
    formats = spec_of(load(entry)).formats
    assert len(set(formats)) == len(formats)
    assert set(formats) <= {*FORMATS, "kafka", "bodyfile"}


@ENTRIES
def test_every_option_has_a_help_text(entry: tree.Entry) -> None:
    from kops.cli.running.pages import page

    made = page(entry)
    for parameter in (*made.arguments, *made.options):
        assert parameter.help.strip(), parameter.flags or parameter.value


def test_the_tree_is_in_order() -> None:
    paths = [entry.path for entry in tree.COMMANDS]
    assert len(set(paths)) == len(paths)
    for entry in tree.COMMANDS:
        assert not entry.help.endswith(".")
        assert len(entry.help) <= 90
        for depth in range(1, len(entry.path)):
            assert entry.path[:depth] in tree.GROUPS
            assert tree.find(entry.path[:depth]) is None


@pytest.mark.parametrize("path", groups(), ids=lambda path: "-".join(("kops", *path)))
def test_help_of_a_group_lists_what_is_in_it_and_nothing_else(path: tuple[str, ...], kops: Kops) -> None:
    ran = kops(*path, "--help")
    assert (ran.code, ran.err) == (0, "")
    listed = ran.text.partition("Commands:\n")[2].partition("\n\n")[0].splitlines()
    assert [line.split()[0] for line in listed] == [name for name, _ in tree.children(path)]
    assert max(len(line) for line in ran.text.splitlines()) <= 140
    if path:
        assert all(str(code) in ran.text for code, _ in exit_codes.meanings(path))


def test_python_m_kops_is_the_same() -> None:
    done = subprocess.run([sys.executable, "-m", "kops", "--version"], cwd=PROJECT, capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout.startswith("kops ")


def test_the_version_is_that_of_the_package(capsys: pytest.CaptureFixture[str]) -> None:
    import tomllib

    assert main(["--version"]) == 0
    project = tomllib.loads((PROJECT / "pyproject.toml").read_text())["project"]
    assert capsys.readouterr().out == f"kops {project['version']}\n"


def test_running_a_command_does_not_import_pydantic() -> None:
    assert "pydantic" not in imported("doctor", "--format", "json")
    assert "pydantic" not in imported("completion", "bash")


@pytest.mark.parametrize(
    "needed, not_needed",
    [
        ("client.consumer.faces.batches", {"config.topic", "client.topics", "records.build", "records.scanning.scanner"}),
        ("client.producer.faces.commands", {"config.topic", "client.topics", "records.scanning.columns"}),
        ("client.coordinators.groups", {"config.topic", "client.topics", "records.record", "client.producer.core.producer"}),
    ],
    ids=["topic consume", "topic produce", "group list"],
)
def test_a_short_command_imports_little(needed: str, not_needed: set[str]) -> None:
    """What commands import once they connect. These modules take a tenth of the time of a short command."""
    program = f"import sys, kops.client.client, kops.cli.inputs.connecting, kops.{needed}; print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", program], cwd=PROJECT, capture_output=True, text=True, timeout=60, check=True)
    found = set(done.stdout.split())
    assert f"kops.{needed}" in found
    assert not found & {f"kops.{name}" for name in not_needed}
