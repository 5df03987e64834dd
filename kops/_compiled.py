"""Which source of a hot module runs: the one mypyc compiled, or the same file interpreted.

A hot module (`HOT_MODULES`) is one typed Python source that an install with a C compiler also has as an extension beside it.
Importing it is an ordinary `import`; the finder of this module only steps in to take the source although an extension is there:

* the environment variable `KOPS_PURE` is set and not empty, or
* the extension is older than the source, as after an edit in a development checkout (`make compile` builds it again).

`kops doctor` shows `status()`. `load_hot(name, pure=True)` gives the interpreted twin beside the active module, for tests that
compare the two.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from importlib import import_module
from importlib.machinery import EXTENSION_SUFFIXES, ModuleSpec
from types import ModuleType

HOT_MODULES = ("kops.records._hot", "kops.forensics._hot_dump")
OLDER_BY_S = 2.0  # files of one install are written within less; an edit after a build is later


@dataclass(frozen=True, slots=True)
class HotStatus:
    """How one hot module is found: `compiled`, `interpreted` (no extension), `pure` (KOPS_PURE), `stale` (older than its source)."""

    name: str
    state: str
    path: str


def source_of(name: str) -> str:
    """Path of a hot module's source file."""
    return os.path.join(os.path.dirname(os.path.abspath(__file__)), *name.split(".")[1:]) + ".py"


def status(name: str) -> HotStatus:
    """What an import of a hot module takes. Raises ModuleNotFoundError when kops has no such source."""
    source = source_of(name)
    try:
        written = os.stat(source).st_mtime
    except FileNotFoundError as error:
        raise ModuleNotFoundError(f"No module named {name!r}", name=name) from error
    for suffix in EXTENSION_SUFFIXES:
        extension = source[:-3] + suffix
        try:
            built = os.stat(extension).st_mtime
        except FileNotFoundError:
            continue
        if os.environ.get("KOPS_PURE"):
            return HotStatus(name, "pure", source)
        if built + OLDER_BY_S < written:
            return HotStatus(name, "stale", source)
        return HotStatus(name, "compiled", extension)
    return HotStatus(name, "interpreted", source)


def load_hot(name: str, *, pure: bool = False) -> ModuleType:
    """The active hot module of that name; with `pure` a new interpreted one, which no `import` will find."""
    if not pure:
        return import_module(name)
    from importlib.util import module_from_spec, spec_from_file_location

    spec = spec_from_file_location(name, source_of(name))
    assert spec is not None and spec.loader is not None
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


class HotFinder:
    """Finds the source of a hot module where its extension must not be taken; leaves all else to Python."""

    @classmethod
    def find_spec(cls, name: str, path: Sequence[str] | None = None, target: ModuleType | None = None) -> ModuleSpec | None:
        """The interpreted source's spec, or None: look on."""
        if name not in HOT_MODULES or status(name).state not in ("pure", "stale"):
            return None
        from importlib.util import spec_from_file_location

        return spec_from_file_location(name, source_of(name))


def install() -> None:
    """Put the finder in front of Python's, once."""
    if HotFinder not in sys.meta_path:
        sys.meta_path.insert(0, HotFinder)
