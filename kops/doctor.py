"""The checks of `kops doctor`: what this machine lacks for kops, and how to get it.

A check never installs or changes anything. Its result is a row of plain values, which the command line prints.
"""

from __future__ import annotations

import os
import shlex
import shutil
import sys
import sysconfig
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from importlib import metadata

from kops._compiled import HOT_MODULES, status
from kops.environment import MINIMUM_JAVA, find_java
from kops.errors import MissingDependencyError

MINIMUM_PYTHON = (3, 11)
# The distributions, and the purpose of each.
LIGHT = (
    ("typer", "the command line"),
    ("crc32c", "CRC32C in hardware"),
    ("crcmod", "CRC32C where there is no hardware"),
    ("lz4", "batches compressed with lz4"),
    ("zstandard", "batches compressed with zstd"),
    ("cramjam", "batches compressed with snappy"),
    ("librt", "carving, and records as rows of Spark"),
)
SPARK = (("pyspark", "kops scan"), ("pyarrow", "kops scan, Parquet"))


@dataclass(frozen=True, slots=True)
class Check:
    """One check. `state` is ok, missing (kops can't work without it) or optional (a part of kops can't work without it, or is slower).
    `version` is the version that was found, `purpose` what it is for, `remedy` how to get it (None if there is nothing to do)."""

    item: str
    state: str
    version: str | None
    purpose: str
    remedy: str | None = None


def check_machine() -> Iterator[Check]:
    """Return all checks, in the order of display."""
    yield check_python()
    for name, purpose in LIGHT:
        yield check_package(name, purpose, "missing", "pip install kops")
    yield check_fast_loop()
    yield check_compiler()
    yield check_file_lock()
    for name, purpose in SPARK:
        yield check_package(name, purpose, "optional", "pip install 'kops[spark]'")
    yield check_java(needed=version_of(SPARK[0][0]) is not None)


def check_python() -> Check:
    """Check the interpreter."""
    found = ".".join(str(part) for part in sys.version_info[:3])
    if sys.version_info < MINIMUM_PYTHON:
        return Check("python", "missing", found, "everything", f"install Python {'.'.join(str(part) for part in MINIMUM_PYTHON)} or newer")
    return Check("python", "ok", found, "everything")


def check_package(name: str, purpose: str, lacking: str, remedy: str) -> Check:
    """Check one distribution without importing it."""
    found = version_of(name)
    return Check(name, "ok", found, purpose) if found else Check(name, lacking, None, purpose, remedy)


def check_fast_loop() -> Check:
    """Check whether the hot loops run compiled. The worst result counts."""
    remedies = {
        "interpreted": "install a C compiler, then install kops again",
        "pure": "unset KOPS_PURE",
        "stale": "install kops again (in a checkout: make compile)",
    }
    for one in (status(name) for name in HOT_MODULES):
        if one.state != "compiled":
            return Check("fast loop", "optional", one.state, "speed", remedies[one.state])
    return Check("fast loop", "ok", "compiled", "speed")


def check_compiler() -> Check:
    """Check the C compiler that an install would use for the hot loop."""
    command = shlex.split(os.environ.get("CC") or sysconfig.get_config_var("CC") or "cc")
    found = next((path for name in (command[0], "cc") if (path := shutil.which(name))), None)
    if found:
        return Check("C compiler", "ok", found, "compiling the fast loop")
    return Check("C compiler", "optional", None, "compiling the fast loop", "install gcc or clang and the headers of Python")


def check_file_lock() -> Check:
    """Check whether POSIX record locks, which Java's brokers take on `.lock`, work in the directory of temporary files."""
    purpose = "detecting a running broker"
    try:
        import fcntl

        with tempfile.TemporaryFile() as file:
            fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except (ImportError, OSError) as error:
        return Check("file lock", "optional", None, purpose, f"use kops log repair on a file system with POSIX locks ({error})")
    return Check("file lock", "ok", "POSIX", purpose)


def check_java(*, needed: bool) -> Check:
    """Check the Java on which Spark would run."""
    try:
        found = find_java()
    except MissingDependencyError as error:
        return Check("java", "missing" if needed else "optional", None, f"kops scan (Java {MINIMUM_JAVA} or newer)", str(error))
    return Check("java", "ok", str(found.version), f"kops scan ({found.path}, from {found.source})")


def version_of(distribution: str) -> str | None:
    """Return the installed version of a distribution, or None."""
    try:
        return metadata.version(distribution)
    except metadata.PackageNotFoundError:
        return None
