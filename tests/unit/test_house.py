"""House rules that no linter checks: layers, sizes, docstrings, the class table, forbidden contents of files, what starts fast."""

from __future__ import annotations

import ast
import os
import re
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest

import kops
from kops._compiled import HOT_MODULES, source_of
from tools.rooms import statements

PROJECT = Path(__file__).resolve().parent.parent.parent
MAX_FILE_LINES = 700
MAX_FUNCTION_LINES = 70
NOT_OURS = {".git", ".venv", ".cache", "build", "dist", "__pycache__", "spark-warehouse"}
NOT_OURS |= {".mypy_cache", ".ruff_cache", ".pytest_cache", ".hypothesis", ".import_linter_cache"}
TEXT = {".py", ".md", ".toml", ".sh", ".xml", ".json", ".cfg", ".ini", ".txt", ".yml", ".yaml", ".1", ".7", ""}
HEAVY = {"pyspark", "pyarrow", "numpy", "crc32c", "lz4", "zstandard", "cramjam", "tabulate", "typer", "asyncio", "rich", "yaml"}
# Written in two halves, so that this file does not contain them.
REGISTRIES = [
    "pypi" + ".org",
    "python" + "hosted.org",
    "repo1." + "maven",
    "repo.maven" + ".apache",
    "central" + ".sonatype",
    "index-" + "url",
]
LEFT_OVERS = ["TO" + "DO", "FIX" + "ME", "XX" + "X:", "/wo" + "rk/", "/ro" + "ot/"]
BOUNDARIES = {
    f"kops/broker/{name}.py" for name in ("apis/dispatch", "apis/groups/common", "controller/dispatch", "controller/quorum_controller")
} | {
    "kops/spark/interrupt.py",
    "kops/coordinators/runtime/events.py",
    "kops/client/metrics/telemetry.py",  # the program's metrics
    "kops/client/consumer/core/collecting.py",
    "kops/client/share/core/records.py",
    "kops/client/faces/driving.py",
    "kops/client/consumer/faces/driving.py",
    "kops/client/admin/core/operation.py",
}
NEVER_IN_TESTS = [r"pytest\.s" + r"kip", r"x" + r"fail\(", r"import" + r"orskip", r"mark\.s" + r"kip"]


def files(*folders: str) -> Iterator[Path]:
    """Yield the project's own text files, below some folders or all."""
    for start in [PROJECT / folder for folder in folders] or [PROJECT]:
        for folder, names, found in os.walk(start):
            names[:] = sorted(name for name in names if name not in NOT_OURS and not name.endswith(".egg-info"))
            yield from (Path(folder, name) for name in sorted(found) if Path(name).suffix in TEXT and not name.endswith(".pyc"))


def sources(*folders: str) -> list[Path]:
    """Return Python sources."""
    return [path for path in files(*folders) if path.suffix == ".py"]


def shown(path: Path) -> str:
    return path.relative_to(PROJECT).as_posix()


def modules(*packages: str) -> list[str]:
    """Return the dotted names of all modules below some packages, without the packages' own `__init__`."""
    found = [path.relative_to(PROJECT).with_suffix("").as_posix().replace("/", ".") for path in sources(*packages)]
    return [name for name in found if not name.endswith(("__init__", "__main__"))]


def test_layers() -> None:
    """The contracts in pyproject.toml hold: arrows only point down, pyspark and the terminal's packages are only in their places, and
    records is pure.
    """
    command = [sys.executable, "-c", "import sys; from importlinter.cli import lint_imports; sys.exit(lint_imports())"]
    done = subprocess.run(command, cwd=PROJECT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def test_every_package_and_module_has_its_layer() -> None:
    contracts = tomllib.loads((PROJECT / "pyproject.toml").read_text())["tool"]["importlinter"]["contracts"]
    named = {name.strip() for layer in contracts[0]["layers"] for name in layer.split("|")}
    packages = {f"kops.{path.parent.name}" for path in (PROJECT / "kops").glob("*/__init__.py")}
    top = {f"kops.{path.stem}" for path in (PROJECT / "kops").glob("*.py") if path.stem not in ("__init__", "__main__")}
    assert (packages | top) - named == set()


def too_long(path: Path, node: ast.AST) -> str | None:
    """Report a function of 70 lines or more."""
    if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.end_lineno is not None:
        lines = node.end_lineno - node.lineno + 1
        return f"{node.name} has {lines} lines" if lines >= MAX_FUNCTION_LINES else None
    return None


def blind_except(path: Path, node: ast.AST) -> str | None:
    """Report a handler that catches Exception, BaseException or everything. Bugs must crash. The exceptions to the rule are places where a
    node continues for its other clients, a producer for its other records, a client after an error in a program's own code, and where a
    waiting thread raises again what another thread raised.
    """
    if isinstance(node, ast.ExceptHandler) and (node.type is None or ast.unparse(node.type) in ("Exception", "BaseException")):
        reraises = isinstance(node.body[-1], ast.Raise) and node.body[-1].exc is None
        return None if reraises or shown(path) in BOUNDARIES else "a blind except"
    return None


RULES = (too_long, blind_except)


def breaches(path: Path) -> Iterator[str]:
    """Yield the breaches of all rules in one source, which is parsed and walked only once. What the rules look at are statements."""
    text = path.read_text()
    tree = ast.parse(text)
    if text.count("\n") >= MAX_FILE_LINES:
        yield f"{shown(path)} has {text.count(chr(10))} lines"
    if not shown(path).startswith("tests/") and not ast.get_docstring(tree):
        yield f"{shown(path)} does not say what it is for: no docstring"
    for node in statements(tree):
        for rule in RULES:
            if found := rule(path, node):
                yield f"{shown(path)}:{getattr(node, 'lineno', 0)}: {found}"


def test_every_source_keeps_the_rules() -> None:
    """Every source keeps the rules on sizes, docstrings and blind excepts."""
    assert [found for path in sources("kops", "tests", "tools") for found in breaches(path)] == []


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ('"""It."""\n' + "x = 1\n" * MAX_FILE_LINES, "lines"),
        ('"""It."""\ndef f() -> None:\n' + "    pass\n" * MAX_FUNCTION_LINES, "f has"),
        ("x = 1\n", "no docstring"),
        ('"""It."""\ntry:\n    pass\nexcept Exception:\n    pass\n', "a blind except"),
    ],
)
def test_the_rules_see_what_they_are_for(text: str, words: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys.modules[__name__], "PROJECT", tmp_path)
    (tmp_path / "one.py").write_text(text)
    (found,) = breaches(tmp_path / "one.py")
    assert words in found


def test_nothing_left_over() -> None:
    """No file has an address of a package registry, a path of one machine, or postponed work."""
    found = []
    for path in files():
        if path.name == "LICENSE" or path.suffix == ".zst":
            continue
        try:
            text = path.read_text()
        except UnicodeDecodeError:
            continue
        found += [f"{shown(path)}: {word}" for word in [*REGISTRIES, *LEFT_OVERS] if word in text]
    assert found == []


def test_no_test_is_passed_over() -> None:
    pattern = re.compile("|".join(NEVER_IN_TESTS))
    assert [shown(path) for path in sources("tests") if pattern.search(path.read_text())] == []


def class_table() -> dict[str, str]:
    """Return the modules in the tables of docs/kafka-classes.md, each with Kafka's classes. Each module must be in its package's table."""
    table: dict[str, str] = {}
    section = ""
    for line in (PROJECT / "docs" / "kafka-classes.md").read_text().splitlines():
        if line.startswith("## "):
            section = line.removeprefix("## ")
        if not line.startswith("|") or line.startswith(("| Kafka class", "| ---")):
            continue
        classes, named = (cell.strip() for cell in line.strip().strip("|").split("|"))
        names = re.findall(r"`([a-z0-9_.]+)`", named)
        assert names, line
        for name in names:
            assert name.startswith(f"{section}."), f"{name} stands in the table of {section}"
            table[name] = classes
    return table


def test_the_class_table_is_complete() -> None:
    """The table names the Kafka class of every module of records, storage, metadata and the broker, and every named module exists."""
    table = class_table()
    packages = [
        f"kops/{name}"
        for name in ("records", "storage", "metadata", "replication", "coordinators", "broker", "client")
        if (PROJECT / "kops" / name).is_dir()
    ]
    assert sorted(set(modules(*packages)) - set(table)) == [], "modules missing in docs/kafka-classes.md"
    folders = [path.parent.relative_to(PROJECT) for path in (PROJECT / "kops").rglob("__init__.py")]
    there = {*modules("kops"), *(path.as_posix().replace("/", ".") for path in folders)}
    assert sorted(set(table) - there) == [], "modules named in docs/kafka-classes.md that do not exist"
    assert all(table.values())


def test_help_imports_nothing_heavy() -> None:
    program = (
        "import sys\nfrom kops.cli.main import main\nstatus = main(['--help'])\n"
        "print(status, *sorted({name.partition('.')[0] for name in sys.modules}), file=sys.stderr)"
    )
    done = subprocess.run([sys.executable, "-c", program], cwd=PROJECT, capture_output=True, text=True, check=True)
    status, *imported = done.stderr.split()
    assert (status, HEAVY & set(imported)) == ("0", set())
    assert "log" in done.stdout


def test_one_version() -> None:
    assert tomllib.loads((PROJECT / "pyproject.toml").read_text())["project"]["version"] == kops.__version__


def test_the_hot_modules_are_there() -> None:
    assert [name for name in HOT_MODULES if not Path(source_of(name)).exists()] == []


def test_the_licence_is_apache_2() -> None:
    text = (PROJECT / "LICENSE").read_text()
    assert "Apache License\n                           Version 2.0, January 2004" in text
    assert "END OF TERMS AND CONDITIONS" in text
