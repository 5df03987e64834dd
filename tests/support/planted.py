"""Plant a bug, or a counter, in a class of the product.

mypyc's classes do not look up a method in their dict, so `monkeypatch.setattr(cls, name, …)` has no effect on calls from compiled code. A
subclass has: `plant` lets the modules that make the objects make those of a subclass.
"""

from __future__ import annotations

from typing import Any

import pytest


def plant(patch: pytest.MonkeyPatch, cls: type, *places: Any, **members: Any) -> None:
    """In each of the modules `places`, replace `cls` by a subclass with these members. A class that was replaced before is replaced again,
    so that several bugs can be planted in one class.
    """
    for module in places:
        known = getattr(module, cls.__name__)
        assert issubclass(known, cls)
        patch.setattr(module, cls.__name__, type(cls.__name__, (known,), members))
