"""What is sent to executors: a zip that runs alone, settings that name it, and the messages about executors that lack something."""

from __future__ import annotations

import json
import subprocess
import sys
import zipfile
from pathlib import Path
from typing import Any

import pytest

import kops
from kops._compiled import GROUPS, HOT_MODULES, status
from kops.errors import MissingDependencyError
from kops.forensics.verify.run import verify
from kops.spark import shipping
from kops.spark.executors import Executor, check_executors
from tests.support import corpus


@pytest.fixture(scope="module")
def archive(tmp_path_factory: pytest.TempPathFactory) -> Path:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("KOPS_CACHE_DIR", str(tmp_path_factory.mktemp("cache")))
        found = shipping.archive()
        written = found.stat().st_ino
        assert shipping.archive() == found and found.stat().st_ino == written, "made once"
    assert [path.name for path in found.parent.iterdir()] == [found.name]
    return found


def test_machine_code_goes_along_and_comes_last(archive: Path) -> None:
    with zipfile.ZipFile(archive) as file:
        names = file.namelist()
    assert {"kops/__init__.py", "kops/records/_hot.py", "crcmod/__init__.py", "mypy_extensions.py"} < set(names)
    assert not any("__pycache__" in name or name.startswith("..") for name in names)
    machine = [name for name in names if name.endswith(".so")]
    assert names[len(names) - len(machine) :] == machine, "unpacked, machine code is not older than its source"
    is_compiled = all(status(name).state == "compiled" for name in HOT_MODULES)
    for group in GROUPS:
        assert any(name.startswith(f"{group}__mypyc") for name in machine) == is_compiled


@pytest.mark.parametrize("unpacked", [False, True], ids=["zip", "folder"])
def test_it_needs_nothing_else(archive: Path, unpacked: bool, tmp_path: Path) -> None:
    """It runs as on an executor: the interpreter has no packages but these. Everything in the zip is interpreted."""
    path = archive
    if unpacked:
        path = tmp_path / "unpacked"
        with zipfile.ZipFile(archive) as file:
            file.extractall(path)
    folder = str(corpus.load("damage-4.3.0-two-flips").root / "before")
    program = (
        "import sys, json; sys.path.insert(0, sys.argv[1])\n"
        "import kops.spark.kept, kops.forensics.recover.task\n"
        "from kops._compiled import HOT_MODULES, status\n"
        "from kops.forensics.verify.run import verify\n"
        "print(json.dumps([verify([sys.argv[2]], 'full').to_json(), sorted({status(name).state for name in HOT_MODULES}), kops.__file__]))"
    )
    command = [sys.executable, "-I", "-S", "-c", program, str(path), folder]
    done = subprocess.run(command, capture_output=True, check=False, text=True, env={})
    assert done.returncode == 0, done.stderr
    report, states, where = json.loads(done.stdout)
    assert report == json.loads(json.dumps(verify([folder], "full").to_json()))
    assert where.startswith(str(path))
    here = sorted({status(name).state for name in HOT_MODULES})
    assert states == (["compiled"] if unpacked and here == ["compiled"] else ["interpreted"])


def test_settings_are_joined_with_those_of_the_user(archive: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shipping, "archive", lambda: archive)
    assert shipping.shipped_settings("local[*]", {}) == {}
    assert shipping.shipped_settings("yarn", {}) == {
        "spark.archives": f"{archive}#kops_shipped",
        "spark.executorEnv.PYTHONPATH": "kops_shipped",
    }
    theirs = {"spark.archives": "env.tar.gz#env", "spark.executorEnv.PYTHONPATH": "env/lib"}
    assert shipping.shipped_settings("spark://127.0.0.1:1", theirs) == {
        "spark.archives": f"env.tar.gz#env,{archive}#kops_shipped",
        "spark.executorEnv.PYTHONPATH": "kops_shipped:env/lib",
    }


def test_a_cache_that_can_not_be_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("KOPS_CACHE_DIR", str(tmp_path / "file" / "x"))
    with pytest.raises(MissingDependencyError, match=r"can't write .*executors-.*\.zip .*: set KOPS_CACHE_DIR"):
        shipping.archive()


def test_what_is_said_about_executors(monkeypatch: pytest.MonkeyPatch) -> None:
    def said(*executors: Executor) -> list[str]:
        words: list[str] = []
        check_executors(executors, words.append)
        return words

    def compiled(_: str) -> Any:
        return type("Status", (), {"state": "compiled"})

    monkeypatch.setattr("kops.spark.executors.status", compiled)
    good = Executor("a", kops.__version__, "", True, ())
    assert said(good) == []
    slow = said(good, good._replace(host="b", is_compiled=False), good._replace(host="c", is_compiled=False))
    assert len(slow) == 1 and slow[0].startswith("kops runs interpreted on b, c, several times slower")
    lacking = said(good._replace(missing=("_crc32c", "zstandard", "lz4.block")))
    assert [each.partition(":")[0] for each in lacking] == ["no crc32c on a", "no lz4 on a", "no zstandard on a"]
    assert "batches of codec zstd can't be read there; pip install zstandard" in lacking[2]
    with pytest.raises(MissingDependencyError, match=r"on d can't import kops \(No module named 'kops'\)"):
        said(good, Executor("d", None, "No module named 'kops'", False, ()))
    with pytest.raises(MissingDependencyError, match=r"on a has kops 0\.0\.1, the driver"):
        said(good._replace(version="0.0.1"))
