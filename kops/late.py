"""Imports the names of a package on first use (PEP 562), so that a command or a program imports only what it needs.

A package declares where its names are, and has `__getattr__ = late(globals(), {"Name": "package.module"})`. For type checkers the names are
imported as usual, under `TYPE_CHECKING`.
"""

from __future__ import annotations

# Packages that begin quickly use this module, so it imports nothing that the interpreter has not already loaded.
TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping


def late(namespace: dict[str, object], places: Mapping[str, str]) -> Callable[[str], object]:
    """Return the `__getattr__` of a module with these globals. `places` has the module of each name.

    The function imports a name once and keeps it in the namespace. It raises AttributeError for any other name.
    """

    def find(name: str) -> object:
        if name not in places:
            raise AttributeError(f"module {namespace['__name__']!r} has no attribute {name!r}")
        from importlib import import_module

        found: object = getattr(import_module(places[name]), name)
        namespace[name] = found
        return found

    return find
