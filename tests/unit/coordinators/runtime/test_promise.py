"""A promise is completed once, and calls its waiters in order."""

from __future__ import annotations

import pytest

from kops.coordinators.runtime.promise import Promise, all_of
from kops.errors import ApiError, KopsError


def test_a_value_comes_once() -> None:
    told: list[object] = []
    promise: Promise[int] = Promise()
    promise.when_done(lambda value, error: told.append((1, value, error)))
    promise.when_done(lambda value, error: told.append((2, value, error)))
    promise.when_done(lambda value, error: told.append((3, value, error)))
    assert not promise.is_done
    assert promise.complete(5)
    assert not promise.complete(6)
    assert not promise.fail(KopsError("late"))
    promise.when_done(lambda value, error: told.append((4, value, error)))
    assert told == [(1, 5, None), (2, 5, None), (3, 5, None), (4, 5, None)]
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


def test_a_promise_of_a_promise() -> None:
    first: Promise[int] = Promise()
    second: Promise[str] = Promise()
    whole = first.then_promise(lambda value: second if value == 1 else Promise.failed(ApiError("NOT_COORDINATOR")))
    first.complete(1)
    assert not whole.is_done
    second.complete("done")
    assert whole.result() == "done"

    def never(value: int) -> Promise[str]:
        raise AssertionError(value)

    failed: Promise[int] = Promise.failed(ApiError("UNKNOWN_MEMBER_ID"))
    for promise in (Promise.of(2).then_promise(lambda _: failed), failed.then_promise(never)):
        with pytest.raises(ApiError, match="UNKNOWN_MEMBER_ID"):
            promise.result()


def test_an_error_becomes_a_value_or_another_error() -> None:
    def unless_moved(error: KopsError) -> int:
        if isinstance(error, ApiError) and error.name == "NOT_COORDINATOR":
            return 0
        raise error

    assert Promise.of(3).or_else(unless_moved).result() == 3
    moved: Promise[int] = Promise.failed(ApiError("NOT_COORDINATOR"))
    assert moved.or_else(unless_moved).result() == 0
    other: Promise[int] = Promise.failed(ApiError("UNKNOWN_MEMBER_ID"))
    with pytest.raises(ApiError, match="UNKNOWN_MEMBER_ID"):
        other.or_else(unless_moved).result()


def test_all_of_several() -> None:
    assert all_of([]).is_done
    promises: list[Promise[int]] = [Promise(), Promise(), Promise()]
    whole = all_of(promises)
    promises[2].fail(ApiError("NOT_COORDINATOR"))
    promises[0].fail(ApiError("UNKNOWN_MEMBER_ID"))
    assert not whole.is_done, "it waits for all, also behind an error"
    promises[1].complete(1)
    with pytest.raises(ApiError, match="NOT_COORDINATOR"):
        whole.result()
    kept = [Promise.of(1), Promise.of(2)]
    assert all_of(kept).then(lambda _: [promise.result() for promise in kept]).result() == [1, 2]
