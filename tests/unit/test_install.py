"""Installation: the scripts that set a machine up, and the three outcomes of a light install (compiled, no compiler, no mypyc)."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from kops._compiled import HOT_MODULES

PROJECT = Path(__file__).resolve().parent.parent.parent
FIND = PROJECT / "tools" / "find_python.sh"
FEW_MODULES = {"LOOPS": ("kops.records._hot", "kops.storage.segments.epoch_cache"), "CALLS": ("kops.client.producer.partitioners",)}
SCAN = (
    "import sys\nfrom kops.records import BytesSource, scan\n"
    "print(sum(len(batch.records()) for batch in scan(BytesSource(open(sys.argv[1], 'rb').read()))))"
)


def run(*command: str | Path, **environment: str) -> subprocess.CompletedProcess[str]:
    """Run a program outside the project's folder with a few changed variables. Return its result, whatever its exit code."""
    settings = {
        name: value for name, value in os.environ.items() if name not in ("KOPS_PURE", "KOPS_EXPECT", "PYTHONPATH", "KOPS_NO_COMPILE")
    }
    return subprocess.run([str(part) for part in command], env=settings | environment, cwd="/", capture_output=True, text=True, check=False)


def program(path: Path, text: str) -> Path:
    """Write a small shell program."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)
    return path


def test_find_python_passes_over_names_that_do_not_run(tmp_path: Path) -> None:
    """Shims like pyenv's have the name but fail when they run. Other programs run but are too old."""
    program(tmp_path / "python3.14", "echo 'pyenv: python3.14: command not found' >&2; exit 127")
    program(tmp_path / "python3.13", "exit 1")
    good = program(tmp_path / "python3.12", f'exec {sys.executable} "$@"')
    found = run("/bin/sh", FIND, PATH=str(tmp_path))
    assert (found.returncode, found.stdout) == (0, f"{good}\n")
    assert run("/bin/sh", FIND, PATH=str(tmp_path), KOPS_PYTHON=sys.executable).stdout == f"{sys.executable}\n"


def python_that_tells(path: Path, bare: int, microseconds: int) -> Path:
    """Write a Python that tells what find_python asks: whether it lacks headers, and how long a program takes."""
    return program(path, f"echo {bare} {microseconds} {path}")


def test_find_python_takes_a_clearly_faster_one(tmp_path: Path) -> None:
    first, second = tmp_path / "first", tmp_path / "second"
    path = f"{first}:{second}"
    newer = python_that_tells(first / "python3.13", 0, 1000)
    older = python_that_tells(second / "python3.11", 0, 930)
    assert run("/bin/sh", FIND, PATH=path).stdout == f"{newer}\n"
    python_that_tells(second / "python3.11", 0, 900)
    assert run("/bin/sh", FIND, PATH=path).stdout == f"{older}\n"
    assert run("/bin/sh", FIND, PATH=path, KOPS_PYTHON=str(newer)).stdout == f"{newer}\n"


def test_find_python_takes_one_that_can_compile(tmp_path: Path) -> None:
    python_that_tells(tmp_path / "python3.13", 1, 500)
    able = python_that_tells(tmp_path / "python3.11", 0, 1000)
    assert run("/bin/sh", FIND, PATH=str(tmp_path)).stdout == f"{able}\n"


def test_find_python_names_the_python_that_was_asked_for_and_does_not_run(tmp_path: Path) -> None:
    asked = program(tmp_path / "python3.13", "exit 1")
    python_that_tells(tmp_path / "python3.11", 0, 1000)
    found = run("/bin/sh", FIND, PATH=str(tmp_path), KOPS_PYTHON=str(asked))
    assert (found.returncode, found.stdout) == (1, "")
    assert f"KOPS_PYTHON={asked} " in found.stderr


def test_find_python_says_what_to_do(tmp_path: Path) -> None:
    program(tmp_path / "python3", "exit 1")
    found = run("/bin/sh", FIND, PATH=str(tmp_path))
    assert (found.returncode, found.stdout) == (1, "")
    assert "Install one" in found.stderr


@pytest.mark.slow
def test_the_wheel_of_pip_brings_itself(tmp_path: Path) -> None:
    """setup.sh does this if there is neither ensurepip nor any pip."""
    assert run(sys.executable, "-m", "venv", "--without-pip", tmp_path / "v").returncode == 0
    python = tmp_path / "v" / "bin" / "python"
    assert run(python, "-m", "pip", "--version").returncode != 0
    (wheel,) = (PROJECT / "tools" / "bootstrap").glob("pip-*.whl")
    brought = run(python, f"{wheel}/pip", "install", "-q", "--no-index", wheel)
    assert brought.returncode == 0, brought.stderr
    assert run(python, "-m", "pip", "--version").stdout.startswith(f"pip {wheel.name.split('-')[1]} ")


@pytest.fixture
def source(tmp_path: Path) -> Path:
    """Provide a copy of what an install needs, without any build results. It has only a few hot modules, because the C compiler needs a
    minute for all of them. `make compile` builds all.
    """
    target = tmp_path / "source"
    target.mkdir()
    for name in ("pyproject.toml", "setup.py", "README.md", "LICENSE"):
        shutil.copy(PROJECT / name, target)
    shutil.copytree(PROJECT / "kops", target / "kops", ignore=shutil.ignore_patterns("*.so", "__pycache__"))
    declared = target / "kops" / "_compiled.py"
    text = declared.read_text()
    for name, few in FEW_MODULES.items():
        text, count = re.subn(rf"(?s)^{name} = \(.*?^\)", f"{name} = {few!r}", text, flags=re.MULTILINE)
        assert count == 1
    assert {each for few in FEW_MODULES.values() for each in few} < set(HOT_MODULES)
    declared.write_text(text)
    return target


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.parametrize(
    ("way", "state", "words"),
    [
        ("compiler", "compiled", ""),
        ("broken compiler", "interpreted", "the C compiler failed"),
        ("no mypyc", "interpreted", "mypyc is missing"),
    ],
)
def test_an_install_succeeds_with_and_without_compiler(tmp_path: Path, source: Path, way: str, state: str, words: str) -> None:
    """A light install in a fresh environment succeeds in all three cases, and reads the same log."""
    environment = tmp_path / "v"
    assert run(sys.executable, "-m", "venv", "--without-pip", environment).returncode == 0
    python = environment / "bin" / "python"
    pip = [sys.executable, "-m", "pip", "--python", str(python), "install", "--disable-pip-version-check", "-v"]
    variables = {"CC": "/bin/false"} if way == "broken compiler" else {}
    options: list[str] = []
    if way == "no mypyc":
        assert run(*pip, "setuptools>=77").returncode == 0
        options = ["--no-build-isolation"]
    installed = run(*pip, *options, source, **variables)
    assert installed.returncode == 0, installed.stdout + installed.stderr
    assert words in installed.stdout + installed.stderr
    asked = run(environment / "bin" / "kops", "doctor", "--format", "json")
    assert asked.returncode == 0, asked.stderr
    (loop,) = (item for item in json.loads(asked.stdout)["items"] if item["item"] == "fast loop")
    assert (loop["version"], loop["state"]) == (state, "ok" if state == "compiled" else "optional")
    from tests.support import corpus

    case = corpus.load("v2-4.3.0-transactions")
    log = next(path for path in case.files("data") if path.endswith(".log"))
    assert run(python, "-c", SCAN, case.root / log).stdout == run(sys.executable, "-c", SCAN, case.root / log).stdout != ""
