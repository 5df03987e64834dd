"""Both variants of a hot module for tests: the source as it is interpreted, and the same source compiled by mypyc."""

from __future__ import annotations

import functools
import hashlib
import importlib.util
import os
import shutil
import subprocess
import sys
import sysconfig
import tempfile
from importlib.machinery import EXTENSION_SUFFIXES
from pathlib import Path
from types import ModuleType

from kops._compiled import HOT_MODULES, load_hot, source_of, status
from tests.support.corpus import PROJECT

CACHE = PROJECT / ".cache" / "hot"


@functools.cache
def variants() -> tuple[str, ...]:
    """Return the variants of this run: `interpreted`, and also `compiled` if it can be had.

    A run with KOPS_PURE has no compiled variant, because the run without KOPS_PURE compares both.
    """
    if os.environ.get("KOPS_PURE"):
        return ("interpreted",)
    return ("interpreted", "compiled") if _is_built() or _can_compile() else ("interpreted",)


@functools.cache
def hot(name: str, variant: str) -> ModuleType:
    """Return a hot module (such as `kops.records._hot`) in one variant.

    The compiled one is that of `make compile`. If the checkout has none, the module is compiled alone and kept in `.cache/hot`, under a
    hash of its source.
    """
    if variant == "interpreted":
        return load_hot(name, pure=True)
    if _is_built():
        return load_hot(name)
    source = Path(source_of(name))
    digest = hashlib.sha256(source.read_bytes() + sys.version.encode()).hexdigest()[:20]
    target = CACHE / f"{source.stem}-{digest}"
    extension = target / f"{source.stem}{EXTENSION_SUFFIXES[0]}"
    if not extension.exists():
        _compile(source, target)
    spec = importlib.util.spec_from_file_location(source.stem, extension)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def _is_built() -> bool:
    return all(status(name).state == "compiled" for name in HOT_MODULES)


def _can_compile() -> bool:
    compiler = os.environ.get("CC") or sysconfig.get_config_var("CC") or "cc"
    return shutil.which(compiler.split()[0]) is not None and importlib.util.find_spec("mypyc") is not None


def _compile(source: Path, target: Path) -> None:
    """Compile in another folder and rename it. The folder appears as a whole, even if other workers compile the module at the same time."""
    CACHE.mkdir(parents=True, exist_ok=True)
    beside = Path(tempfile.mkdtemp(prefix="compiling-", dir=CACHE))
    try:
        shutil.copy(source, beside / source.name)
        command = [sys.executable, "-m", "mypyc", "--config-file=", source.name]
        subprocess.run(command, cwd=beside, check=True, capture_output=True, timeout=280)
        try:
            beside.rename(target)
        except OSError:
            if not target.is_dir():  # else another worker was faster
                raise
    finally:
        shutil.rmtree(beside, ignore_errors=True)
