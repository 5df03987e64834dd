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

# Every `import kops` comes through here, also that of `kops --help`: nothing is imported that the interpreter does not have already.
TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence
    from importlib.machinery import ModuleSpec
    from types import ModuleType

HOT_MODULES = ("kops.records._hot", "kops.storage._hot_clean", "kops.forensics._hot_dump")
GROUP = "kops_hot"  # mypyc puts the code of all hot modules into the extension GROUP__mypyc beside the package
OLDER_BY_S = 2.0  # files of one install are written within less; an edit after a build is later


class HotStatus:
    """How one hot module is found: `compiled`, `interpreted` (no extension), `pure` (KOPS_PURE), `stale` (older than its source)."""

    __slots__ = ("name", "path", "state")

    def __init__(self, name: str, state: str, path: str) -> None:
        self.name = name
        self.state = state
        self.path = path


def source_of(name: str) -> str:
    """Path of a hot module's source file."""
    return os.path.join(os.path.dirname(os.path.abspath(__file__)), *name.split(".")[1:]) + ".py"


def status(name: str) -> HotStatus:
    """What an import of a hot module takes. Raises ModuleNotFoundError when kops has no such source."""
    from importlib.machinery import EXTENSION_SUFFIXES

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
    from importlib import import_module
    from importlib.util import module_from_spec, spec_from_file_location

    if not pure:
        return import_module(name)
    spec = spec_from_file_location(name, source_of(name))
    assert spec is not None and spec.loader is not None
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


class HotFinder:
    """Finds the source of a hot module where its extension must not be taken, and the extension beside the package, which an editable
    install has on no path; leaves all else to Python."""

    @classmethod
    def find_spec(cls, name: str, path: Sequence[str] | None = None, target: ModuleType | None = None) -> ModuleSpec | None:
        """The spec of one of these, or None: look on."""
        if name == f"{GROUP}__mypyc":
            from importlib.machinery import EXTENSION_SUFFIXES

            beside = os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), name)
            found = next((beside + suffix for suffix in EXTENSION_SUFFIXES if os.path.exists(beside + suffix)), None)
        elif name in HOT_MODULES and status(name).state in ("pure", "stale"):
            found = source_of(name)
        else:
            return None
        from importlib.util import spec_from_file_location

        return None if found is None else spec_from_file_location(name, found)


def install() -> None:
    """Put the finder in front of Python's, once."""
    if HotFinder not in sys.meta_path:
        sys.meta_path.insert(0, HotFinder)
