"""Names of a package that are imported on first use."""

from __future__ import annotations

import sys

import pytest

import kops.aio
import kops.config
import kops.records
from kops.late import late


def test_a_name_is_imported_once() -> None:
    namespace: dict[str, object] = {"__name__": "package"}
    find = late(namespace, {"sqrt": "math"})
    assert find("sqrt") is sys.modules["math"].sqrt
    assert namespace["sqrt"] is sys.modules["math"].sqrt


@pytest.mark.parametrize("module", [kops.aio, kops.config, kops.records])
def test_an_unknown_name(module: object) -> None:
    with pytest.raises(AttributeError, match=r"module 'kops\.\w+' has no attribute 'nothing'"):
        module.nothing  # type: ignore[attr-defined]  # noqa: B018
