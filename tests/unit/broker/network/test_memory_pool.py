"""The pool of request memory: its limit and its queue."""

from __future__ import annotations

from kops.broker.network.memory_pool import MemoryPool


def test_without_a_bound_everything_is_granted() -> None:
    pool = MemoryPool(-1)
    assert not pool.is_bounded
    assert all(pool.try_allocate(1 << 30) for _ in range(10))
    pool.release(1 << 30)
    assert pool.available == -1


def test_the_last_one_may_go_over_the_bound() -> None:
    pool = MemoryPool(100)
    assert pool.try_allocate(99)
    assert pool.try_allocate(80)
    assert pool.available == -79
    assert not pool.try_allocate(1)
    pool.release(80)
    assert pool.try_allocate(1)
    assert not pool.try_allocate(1)


def test_who_waits_is_served_in_order_and_before_others() -> None:
    pool = MemoryPool(100)
    seen: list[str] = []
    assert pool.try_allocate(100)
    for name, size in [("a", 60), ("b", 60), ("gone", 10), ("c", 5)]:
        waiter = pool.wait(size, lambda name=name: seen.append(name))  # type: ignore[misc]
        if name == "gone":
            waiter.cancel()
    pool.release(50)
    assert (seen, pool.available) == (["a"], -10)
    pool.release(10)
    assert seen == ["a"]
    pool.release(5)
    assert (seen, pool.available) == (["a", "b"], -55)
    pool.release(60)
    assert (seen, pool.available) == (["a", "b", "c"], 0)


def test_a_newcomer_does_not_pass_the_line() -> None:
    pool = MemoryPool(10)
    assert pool.try_allocate(10)
    waiter = pool.wait(10, lambda: None)
    assert not pool.try_allocate(1)
    waiter.cancel()
    pool.release(10)
    assert pool.try_allocate(1)
