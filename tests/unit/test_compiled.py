"""Which variant of a hot module an import loads."""

from __future__ import annotations

import importlib.util
import os
import shutil
import subprocess
import sys
from importlib.machinery import EXTENSION_SUFFIXES
from pathlib import Path

import pytest

from kops._compiled import HOT_MODULES, HotFinder, HotStatus, document, leftovers, load_hot, source_of, status
from kops.files import Files, OsFiles
from kops.records import Batch

PACKAGE = Path(source_of(HOT_MODULES[0])).parent.parent
PROGRAM = (
    "from kops._compiled import HOT_MODULES, status; import importlib\n"
    "print(*(status(name).state for name in HOT_MODULES), *(importlib.import_module(name).__file__ for name in HOT_MODULES))"
)


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """Provide a copy of the package with an unloadable extension beside each hot module. Loading one is an ImportError."""
    shutil.copytree(PACKAGE, tmp_path / "kops", ignore=shutil.ignore_patterns("*.so", "__pycache__"))
    for name in HOT_MODULES:
        source = tmp_path / Path(*name.split(".")).with_suffix(".py")
        source.with_suffix(EXTENSION_SUFFIXES[0]).write_bytes(b"no machine code")
        built = max(source.stat().st_mtime, (tmp_path / "kops" / "_compiled.py").stat().st_mtime)
        os.utime(source.with_suffix(EXTENSION_SUFFIXES[0]), (built,) * 2)
    return tmp_path


def imported(checkout: Path, **variables: str) -> subprocess.CompletedProcess[str]:
    environment = {name: value for name, value in os.environ.items() if not name.startswith("KOPS_")}
    command = [sys.executable, "-c", PROGRAM]
    return subprocess.run(command, cwd=checkout, env=environment | variables, capture_output=True, text=True, check=False)


def test_an_extension_is_taken(checkout: Path) -> None:
    done = imported(checkout)
    assert done.returncode == 1
    assert "ImportError" in done.stderr


def test_a_process_looks_at_the_files_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each look costs a stat of two files for each hot module, and a command imports many of these."""
    looked: list[str] = []

    def look(name: str) -> HotStatus:
        looked.append(name)
        return HotStatus(name, "stale", "")

    monkeypatch.setattr("kops._compiled.HotFinder._decision", None)
    monkeypatch.setattr("kops._compiled.status", look)
    found = [HotFinder.find_spec(name) for name in HOT_MODULES]
    assert [spec.origin for spec in found if spec is not None] == [source_of(name) for name in HOT_MODULES]
    assert len(looked) == 1


def test_kops_pure_takes_the_source(checkout: Path) -> None:
    done = imported(checkout, KOPS_PURE="1")
    states, files = done.stdout.split()[: len(HOT_MODULES)], done.stdout.split()[len(HOT_MODULES) :]
    assert states == ["pure"] * len(HOT_MODULES), done.stderr
    assert files == [str(checkout / Path(*name.split(".")).with_suffix(".py")) for name in HOT_MODULES]


def test_an_extension_older_than_its_source_is_not_taken(checkout: Path) -> None:
    for name in HOT_MODULES:
        extension = checkout / Path(*name.split(".")).with_suffix(EXTENSION_SUFFIXES[0])
        os.utime(extension, (extension.stat().st_mtime - 60,) * 2)
    assert imported(checkout).stdout.split()[: len(HOT_MODULES)] == ["stale"] * len(HOT_MODULES)


def states(checkout: Path) -> set[str]:
    """Return the states that the checkout's own `_compiled` reports for its hot modules."""
    spec = importlib.util.spec_from_file_location("_compiled_of_a_checkout", checkout / "kops" / "_compiled.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return {module.status(name).state for name in HOT_MODULES}


def test_one_that_is_older_or_missing_leaves_out_all(checkout: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Compiled code knows the classes of the other hot modules by the positions of their fields. Every eighth module stands for all."""
    monkeypatch.delenv("KOPS_PURE", raising=False)
    assert states(checkout) == {"compiled"}
    for name in HOT_MODULES[::8]:
        extension = checkout / Path(*name.split(".")).with_suffix(EXTENSION_SUFFIXES[0])
        modified = extension.stat().st_mtime
        os.utime(extension, (modified - 60,) * 2)
        assert states(checkout) == {"stale"}, name
        extension.unlink()
        assert states(checkout) == {"stale"}, name
        extension.write_bytes(b"")
        os.utime(extension, (modified,) * 2)
    assert states(checkout) == {"compiled"}


def test_a_list_that_is_newer_than_the_extensions_leaves_out_all(checkout: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A module that has changed its group has an extension that looks for its code in the old one."""
    monkeypatch.delenv("KOPS_PURE", raising=False)
    listed = checkout / "kops" / "_compiled.py"
    newest = max(path.stat().st_mtime for path in (checkout / "kops").rglob("*.so"))
    os.utime(listed, (newest + 60,) * 2)
    assert states(checkout) == {"stale"}


def test_an_extension_of_a_module_that_is_no_longer_hot_is_not_taken(checkout: Path) -> None:
    (checkout / "kops" / "records" / "crc").with_suffix(EXTENSION_SUFFIXES[0]).write_bytes(b"no machine code")
    done = imported(checkout, KOPS_PURE="1")
    assert done.returncode == 0, done.stderr


def test_what_an_earlier_build_left_is_found(checkout: Path) -> None:
    assert leftovers(str(checkout)) == []
    left = (checkout / "kops" / "records" / "crc").with_suffix(EXTENSION_SUFFIXES[0])
    left.write_bytes(b"no machine code")
    assert leftovers(str(checkout)) == [str(left)]


def test_without_an_extension(checkout: Path) -> None:
    for name in HOT_MODULES:
        (checkout / Path(*name.split(".")).with_suffix(EXTENSION_SUFFIXES[0])).unlink()
    assert imported(checkout).stdout.split()[: len(HOT_MODULES)] == ["interpreted"] * len(HOT_MODULES)


@pytest.mark.parametrize("name", HOT_MODULES)
def test_the_interpreted_twin(name: str) -> None:
    """It is loaded beside the active module, whichever that is, and has the same names."""
    active, twin = load_hot(name), load_hot(name, pure=True)
    assert active is sys.modules[name]
    assert twin is not active
    assert twin.__file__ == source_of(name)
    assert {key for key in vars(twin) if not key.startswith("_")} <= set(vars(active))


def test_an_unknown_name() -> None:
    with pytest.raises(ModuleNotFoundError, match=r"kops\.records\._cold"):
        status("kops.records._cold")


@pytest.mark.parametrize(("cls", "beginning"), [(Batch, "One batch,"), (Files, "A tree of files"), (OsFiles, "The file system.")])
def test_a_class_has_the_docstring_of_its_source(cls: type, beginning: str) -> None:
    document(cls)
    twin = vars(load_hot(cls.__module__, pure=True))[cls.__name__]
    assert cls.__doc__ == twin.__doc__
    assert str(cls.__doc__).startswith(beginning)
