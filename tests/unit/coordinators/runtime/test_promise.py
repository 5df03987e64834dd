"""A promise is kept once, and calls who waits in order."""

from __future__ import annotations

import pytest

from kops.coordinators.runtime.promise import Promise
from kops.errors import ApiError, KopsError


def test_a_value_comes_once() -> None:
    told: list[object] = []
    promise: Promise[int] = Promise()
    promise.when_done(lambda value, error: told.append((1, value, error)))
    promise.when_done(lambda value, error: told.append((2, value, error)))
    assert not promise.is_done
    assert promise.complete(5)
    assert not promise.complete(6)
    assert not promise.fail(KopsError("late"))
    promise.when_done(lambda value, error: told.append((3, value, error)))
    assert told == [(1, 5, None), (2, 5, None), (3, 5, None)]
    assert promise.result() == 5


def test_a_changed_value_and_errors() -> None:
    def refuse(value: int) -> int:
        raise ApiError("UNKNOWN_MEMBER_ID", f"not {value}")

    assert Promise.of(2).then(lambda value: value * 2).result() == 4
    with pytest.raises(ApiError, match="not 2"):
        Promise.of(2).then(refuse).result()
    failed: Promise[int] = Promise.failed(ApiError("NOT_COORDINATOR"))
    with pytest.raises(ApiError, match="NOT_COORDINATOR"):
        failed.then(lambda value: value + 1).result()
