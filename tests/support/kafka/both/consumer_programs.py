"""Programs for a consumer of either library: wake-ups, listeners that fail, seek and commit, long pauses, and wrong calls."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from kops.records.log_offsets import TopicPartition
from tests.support.kafka.both.pinned import name_of
from tests.support.kafka.both.sides import Side, attempt
from tests.support.patience import until

QUICK = {"heartbeat_interval_ms": 100, "session_timeout_ms": 6000}
COOPERATIVE = "org.apache.kafka.clients.consumer.CooperativeStickyAssignor"
EAGER = "org.apache.kafka.clients.consumer.RangeAssignor"


class Watcher:
    """A listener that takes note of its calls, and then does what `doing` has for the method, each once."""

    def __init__(self, side: Side, doing: dict[str, list[Callable[[], object]]] | None = None) -> None:
        self.side = side
        self.doing = doing or {}

    def _called(self, method: str, keys: Sequence[TopicPartition]) -> None:
        if self.side.protocol == "consumer" and not keys and method == "assigned":
            return  # the first answers of the coordinator may have partitions or not
        self.side.see(method, sorted((key.topic.removeprefix(self.side.topic), key.partition) for key in keys))
        if self.doing.get(method):
            self.doing[method].pop(0)()

    def on_partitions_assigned(self, keys: Sequence[TopicPartition]) -> None:
        self._called("assigned", keys)

    def on_partitions_revoked(self, keys: Sequence[TopicPartition]) -> None:
        self._called("revoked", keys)

    def on_partitions_lost(self, keys: Sequence[TopicPartition]) -> None:
        self._called("lost", keys)


def quick(side: Side, **more: Any) -> dict[str, Any]:
    """Return settings of a member that hears soon of a rebalance. Those of the consumer protocol are the broker's."""
    return {**(QUICK if side.protocol == "classic" else {}), **more}


def settle(side: Side, consumer: Any, count: int) -> None:
    """Poll until the consumer has this many partitions. See the errors."""

    def is_settled() -> bool:
        outcome = attempt(lambda: consumer.poll(0.1))
        if not outcome.startswith("["):
            side.see("poll", outcome)
        return len(consumer.assignment()) == count

    until(is_settled)


def first_records(consumer: Any) -> list[tuple[int, int]]:
    """Return the records of the next poll that finds some."""
    found: list[tuple[int, int]] = until(lambda: consumer.poll(0.1))
    return found


def wake_ups(side: Side) -> None:
    """See which calls a wake-up ends, and which leave it to the next poll."""
    topic, other = side.create("", "-other")
    one, two = (topic, 0), (topic, 1)
    consumer = side.consumer(**quick(side, enable_auto_commit="false"))
    consumer.assign([one, two])
    consumer.position(one)
    consumer.commit({one: 0})
    consumer.poll(0.2)
    calls: dict[str, Callable[[], object]] = {
        "poll": lambda: consumer.poll(1),
        "poll(0)": lambda: consumer.poll(0),
        "position": lambda: consumer.position(one),
        "unknown position": lambda: (consumer.seek_to_end([two]), consumer.position(two))[1],
        "committed": lambda: bool(consumer.committed([one])),
        "commit": lambda: consumer.commit({one: 0}),
        "commit of nothing": lambda: consumer.commit({}),
        "commit_async": lambda: consumer.commit_async({one: 0}, lambda offsets, error: None),
        "offsets_for_times": lambda: bool(consumer.offsets_for_times({one: 1 << 40})),
        "beginning_offsets": lambda: bool(consumer.beginning_offsets([one])),
        "end_offsets": lambda: bool(consumer.end_offsets([one])),
        "partitions_for": lambda: bool(consumer.partitions_for(other)),
        "list_topics": lambda: bool(consumer.list_topics()),
        "current_lag": lambda: consumer.current_lag(one) is None,
        "unsubscribe": lambda: (consumer.unsubscribe(), consumer.assign([one, two]))[1],
    }
    for name, call in calls.items():
        consumer.wakeup()
        ended = attempt(call)
        side.see(name, ended, attempt(lambda: consumer.poll(0)))
        attempt(lambda: consumer.poll(0.05))
    consumer.wakeup()
    side.see("close", attempt(consumer.close))


def failing_listener(side: Side, method: str, kind: str) -> None:
    """See what poll, unsubscribe and close raise if the listener has failed, and what it is told afterwards."""
    topic, other = side.create("", "-other", count=1)
    watcher = Watcher(side, {method: [lambda: side.fail(kind)]})
    consumer = side.consumer(**quick(side))
    consumer.subscribe([topic], watcher)
    settle(side, consumer, 1)
    side.see("poll", attempt(lambda: consumer.poll(0.3)))
    consumer.subscribe([topic, other], watcher)
    settle(side, consumer, 2)
    side.see("poll", attempt(lambda: consumer.poll(0.3)))
    watcher.doing[method] = [lambda: side.fail(kind)]
    side.see("unsubscribe", attempt(consumer.unsubscribe))
    if side.protocol == "classic":  # Kafka's other consumer may forget the partitions a little later
        side.see("assignment", len(consumer.assignment()))
    watcher.doing[method] = []
    consumer.subscribe([topic], watcher)
    settle(side, consumer, 1)
    watcher.doing[method] = [lambda: side.fail(kind)]
    side.see("close", attempt(consumer.close))
    side.see("close again", attempt(consumer.close))


def seeking_listener(side: Side) -> None:
    """Seek, ask and pause in the listener."""
    (topic,) = side.create(count=1)
    side.produce([b"%d" % number for number in range(10)])
    key = (topic, 0)
    consumer = side.consumer(**quick(side, enable_auto_commit="false"))

    def assigned() -> None:
        side.see("position", attempt(lambda: consumer.position(key)))
        side.see("assignment", len(consumer.assignment()))
        consumer.seek(key, 7)
        side.see("sought", consumer.position(key))
        side.see("committed", attempt(lambda: consumer.committed([key]) is None))
        side.see("commit", attempt(lambda: consumer.commit({key: 3}, 30)))

    def revoked() -> None:
        side.see("assignment", len(consumer.assignment()))
        side.see("position", attempt(lambda: consumer.position(key)))
        side.see("no time", attempt(lambda: consumer.commit({key: 5}, 0)))
        side.see("time", attempt(lambda: consumer.commit({key: 6}, 30)))
        side.see("seek", attempt(lambda: consumer.seek(key, 1)))

    watcher = Watcher(side, {"assigned": [assigned], "revoked": [revoked, revoked]})
    consumer.subscribe([topic], watcher)
    side.see("records", first_records(consumer))
    side.see("committed", side.committed())
    consumer.unsubscribe()
    side.see("committed", side.committed())
    side.see("position", attempt(lambda: consumer.position(key)))
    consumer.subscribe([topic], watcher)
    side.see("records", first_records(consumer))
    consumer.close()
    side.see("committed", side.committed())


def pauses(side: Side, assignor: str | None = None) -> None:
    """See which partitions stay paused, and keep their positions, over a rebalance."""
    topic, other = side.create("", "-other", count=1)
    side.produce([b"%d" % number for number in range(10)])
    key = (topic, 0)
    more = {} if assignor is None or side.protocol == "consumer" else {"partition_assignment_strategy": assignor}
    consumer = side.consumer(**quick(side, enable_auto_commit="false", max_poll_records=3, **more))
    watcher = Watcher(side)
    consumer.subscribe([topic], watcher)
    side.see("records", first_records(consumer))
    consumer.pause([key])
    side.see("paused", consumer.poll(0.3))
    consumer.subscribe([topic, other], watcher)
    settle(side, consumer, 2)
    side.see("paused", len(consumer.paused()), attempt(lambda: consumer.position(key)))
    consumer.enforce_rebalance("because")
    for _ in range(5):
        consumer.poll(0.1)
    side.see("paused", len(consumer.paused()), attempt(lambda: consumer.position(key)))
    consumer.close()


def failing_cooperative_listener(side: Side, kind: str) -> None:
    """See what poll raises if the listener fails when a cooperative rebalance takes a partition away, and what it is told before."""
    (topic,) = side.create()
    more = quick(side, partition_assignment_strategy=COOPERATIVE, enable_auto_commit="false")
    first, second = side.consumer(**more), side.consumer(**more)
    first.subscribe([topic], Watcher(side, {"revoked": [lambda: side.fail(kind)]}))
    settle(side, first, 2)
    second.subscribe([topic])

    def is_divided() -> bool:
        outcome = attempt(lambda: first.poll(0.1))
        if outcome != "[]":
            side.see("poll", outcome)
        second.poll(0.1)
        return [len(one.assignment()) for one in (first, second)] == [1, 1]

    until(is_divided)
    for consumer in (first, second):
        side.see("close", attempt(consumer.close))


def late_cooperative_listener(side: Side, kind: str) -> None:
    """See what follows if the call for a partition that another member gets takes too long, and fails."""
    (topic,) = side.create()
    more = quick(side, partition_assignment_strategy=COOPERATIVE, enable_auto_commit="false")
    first, second = side.consumer(**more, max_poll_interval_ms=1500), side.consumer(**more)

    def fail() -> None:
        until(lambda: side.members() == 1)
        if kind:
            side.fail(kind)

    first.subscribe([topic], Watcher(side, {"revoked": [fail]}))
    settle(side, first, 2)
    second.subscribe([topic])

    def is_divided() -> bool:
        outcome = attempt(lambda: first.poll(0.1))
        if outcome != "[]":
            side.see("poll", outcome, len(first.assignment()))
        second.poll(0.1)
        return [len(one.assignment()) for one in (first, second)] == [1, 1] and side.members() == 2

    until(is_divided)
    for consumer in (first, second):
        side.see("close", attempt(consumer.close))


def late_failing_listener(side: Side, method: str, strategy: str, *, is_in_call: bool) -> None:
    """See what the listener is told, and what poll raises, if it fails and max.poll.interval.ms is over, in its call or after it."""
    topic, other = side.create("", "-other", count=1)
    more = quick(side, partition_assignment_strategy=strategy, enable_auto_commit="false", max_poll_interval_ms=1500)
    consumer = side.consumer(**more)

    def has_left() -> bool:
        return side.members() == 0

    def fail() -> None:
        if is_in_call:
            until(has_left)
        side.fail("plain")

    def has_failed() -> bool:
        outcome = attempt(lambda: consumer.poll(0.1))
        if outcome == "[]":
            return False
        side.see("poll", outcome)
        return True

    watcher = Watcher(side)
    consumer.subscribe([topic, other], watcher)
    settle(side, consumer, 2)
    watcher.doing[method] = [fail]
    consumer.subscribe([topic], watcher)
    until(has_failed)
    until(has_left)
    side.see("assignment", len(consumer.assignment()))

    def is_back() -> bool:
        has_failed()
        return side.members() == 1 and len(consumer.assignment()) == 1

    until(is_back)
    side.see("close", attempt(consumer.close))


def late_polls(side: Side) -> None:
    """Do not poll for longer than max.poll.interval.ms. Then commit, and poll again."""
    (topic,) = side.create(count=1)
    side.produce([b"%d" % number for number in range(10)])
    key = (topic, 0)
    consumer = side.consumer(**quick(side, enable_auto_commit="false", max_poll_records=3, max_poll_interval_ms=1500))
    watcher = Watcher(side, {"lost": [lambda: side.see("in lost", attempt(lambda: consumer.commit({key: 2}, 30)))]})
    consumer.subscribe([topic], watcher)
    side.see("records", first_records(consumer))
    until(lambda: side.members() == 0)
    side.see("assignment", len(consumer.assignment()), consumer.position(key))
    side.see("commit", attempt(lambda: consumer.commit({key: 3}, 30)))
    side.see("commit again", attempt(consumer.commit))
    errors: list[str] = []
    consumer.commit_async({key: 3}, lambda offsets, error: errors.append(name_of(error)))
    side.see("metadata", generation_of(consumer))
    side.see("records", first_records(consumer))
    side.see("asynchronous", errors)
    side.see("commit", attempt(consumer.commit), side.committed())
    consumer.close()


def generation_of(consumer: Any) -> tuple[int, bool]:
    """Return the generation, and whether there is a member id."""
    found = consumer.group_metadata()
    if callable(getattr(found, "generationId", None)):
        return int(found.generationId()), bool(found.memberId())
    return found.generation_id, bool(found.member_id)


def two_with_one_instance_id(side: Side) -> None:
    """Start a program twice."""
    (topic,) = side.create(count=1)
    key = (topic, 0)
    first = side.consumer(**quick(side, group_instance_id="one", enable_auto_commit="false"))
    first.subscribe([topic], Watcher(side))
    settle(side, first, 1)
    second = side.consumer(**quick(side, group_instance_id="one", enable_auto_commit="false"))
    second.subscribe([topic])
    ends: list[str] = []

    def has_failed() -> bool:
        for name, one in (("first", first), ("second", second)):
            outcome = attempt(lambda one=one: one.poll(0.1))  # type: ignore[misc]
            if not outcome.startswith("["):
                ends.append(f"{name}: {outcome}")
        return bool(ends)

    until(has_failed)
    side.see(ends[0])
    failed = first if ends[0].startswith("first") else second
    if side.protocol == "classic":
        second.close(0)
        settle(side, failed, 1)  # it takes the instance id back
    else:
        side.see("poll", attempt(lambda: failed.poll(0.1)))
    side.see("commit", attempt(lambda: failed.commit({key: 1})))
    side.see("assignment", len(failed.assignment()))
    side.see("unsubscribe", attempt(failed.unsubscribe))
    side.see("subscribe", attempt(lambda: failed.subscribe([topic])))
    side.see("close", attempt(failed.close))


def close_in_a_rebalance(side: Side) -> None:
    """Close a member that has not noticed a rebalance yet, one that is joining, and one that has never joined."""
    (topic,) = side.create()
    side.produce([b"%d" % number for number in range(4)])
    first = side.consumer(**quick(side))
    first.subscribe([topic], Watcher(side))
    settle(side, first, 2)
    side.see("records", first.position((topic, 0)) >= 0)
    second = side.consumer(**quick(side))
    second.subscribe([topic])
    second.poll(0.3)
    side.see("close", attempt(first.close))
    side.see("calls after", attempt(lambda: first.poll(0)))
    settle(side, second, 2)
    third = side.consumer(**quick(side))
    third.subscribe([topic], Watcher(side))
    third.poll(0)
    side.see("close", attempt(third.close))
    second.close()
    until(lambda: side.members() == 0)


def short_polls(side: Side) -> None:
    """Join with polls that do not wait."""
    (topic,) = side.create()
    side.produce([b"%d" % number for number in range(4)])
    consumer = side.consumer(**quick(side))
    consumer.subscribe([topic], Watcher(side))
    side.see("records", until(lambda: consumer.poll(0)))
    side.see("assignment", len(consumer.assignment()))
    consumer.close()
    side.see("committed", side.committed())


def wrong_calls(side: Side) -> None:
    """Make calls that are not allowed: before there is anything to read, without a group, for other partitions, and after the end."""
    (topic,) = side.create()
    key = (topic, 0)
    consumer = side.consumer(**quick(side))
    every: dict[str, Callable[[], object]] = {
        "poll": lambda: consumer.poll(0),
        "position": lambda: consumer.position(key),
        "seek": lambda: consumer.seek(key, 0),
        "seek to -1": lambda: consumer.seek(key, -1),
        "seek_to_end of none": lambda: consumer.seek_to_end([]),
        "seek_to_end": lambda: consumer.seek_to_end([key]),
        "pause": lambda: consumer.pause([key]),
        "resume": lambda: consumer.resume([key]),
        "current_lag": lambda: consumer.current_lag(key),
        "enforce_rebalance": lambda: consumer.enforce_rebalance(""),
        "commit of nothing": lambda: consumer.commit({}),
        "commit": consumer.commit,
        "commit of -1": lambda: consumer.commit({key: -1}),
        "unsubscribe": consumer.unsubscribe,
        "paused": lambda: len(consumer.paused()),
        "assignment": lambda: len(consumer.assignment()),
        "subscription": lambda: len(consumer.subscription()),
        "subscribe to nothing": lambda: consumer.subscribe([]),
        "subscribe to a blank": lambda: consumer.subscribe([" "]),
        "assign a blank": lambda: consumer.assign([(" ", 0)]),
        "assign nothing": lambda: consumer.assign([]),
        "partitions_for": lambda: bool(consumer.partitions_for(topic)),
        "group_metadata": lambda: consumer.group_metadata() is None,
        "wakeup": lambda: None,
    }
    for name, call in every.items():
        side.see("new", name, attempt(call))
    consumer.subscribe([topic])
    side.see("assign after subscribe", attempt(lambda: consumer.assign([key])))
    consumer.unsubscribe()
    consumer.assign([key])
    side.see("subscribe after assign", attempt(lambda: consumer.subscribe([topic])))
    side.see("enforce_rebalance", attempt(lambda: consumer.enforce_rebalance("")))
    other = (topic, 1)
    for name, call in {
        "seek": lambda: consumer.seek(other, 0),
        "position": lambda: consumer.position(other),
        "pause": lambda: consumer.pause([other]),
        "resume": lambda: consumer.resume([other]),
        "current_lag": lambda: consumer.current_lag(other),
        "seek_to_end": lambda: consumer.seek_to_end([other]),
        "commit": lambda: consumer.commit({other: 5}),
    }.items():
        side.see("other partition", name, attempt(call))
    consumer.close()
    for name, call in every.items():
        side.see("closed", name, attempt(call))
    side.see("closed", "close", attempt(consumer.close))
    side.see("closed", "wake up", attempt(consumer.wakeup))
    lonely = side.consumer(group_id=None)
    side.see("alone", "subscribe", attempt(lambda: lonely.subscribe([topic])))
    lonely.assign([key])
    for name, call in {
        "commit": lambda: lonely.commit({key: 1}),
        "commit_async": lambda: lonely.commit_async({key: 1}, lambda offsets, error: None),
        "committed": lambda: lonely.committed([key]),
        "group_metadata": lonely.group_metadata,
        "enforce_rebalance": lambda: lonely.enforce_rebalance(""),
        "poll": lambda: lonely.poll(0.1),
    }.items():
        side.see("alone", name, attempt(call))


class FailingInterceptor:
    """An interceptor that fails in each call."""

    def __init__(self, side: Side) -> None:
        self.side = side

    def on_consume(self, records: Any) -> Any:
        self.side.see("on_consume", len(records))
        self.side.fail("plain")

    def on_commit(self, offsets: Any) -> None:
        self.side.see("on_commit", len(offsets))
        self.side.fail("plain")

    def close(self) -> None:
        self.side.see("close")
        self.side.fail("plain")


def failing_interceptors(side: Side) -> None:
    """Let an interceptor fail in each of its calls."""
    (topic,) = side.create(count=1)
    side.produce([b"%d" % number for number in range(4)])
    consumer = side.consumer(**quick(side, enable_auto_commit="false", interceptor=FailingInterceptor(side)))
    consumer.subscribe([topic], Watcher(side))
    side.see("records", first_records(consumer))
    side.see("commit", attempt(consumer.commit))
    side.see("commit of nothing", attempt(lambda: consumer.commit({})))
    told: list[str] = []

    def fails(offsets: object, error: object) -> None:
        told.append("callback")
        side.fail("plain")

    consumer.commit_async({(topic, 0): 2}, fails)
    until(lambda: told or not attempt(lambda: consumer.poll(0.1)).startswith("["))
    side.see("poll", attempt(lambda: consumer.poll(0.1)))
    side.see("close", attempt(consumer.close), side.committed())


def failing_deserializer(side: Side, kind: str) -> None:
    """Let the deserializer fail in the middle of a fetch, and in an error of its own."""
    (topic,) = side.create(count=1)
    side.produce([b"0", b"1", b"bad", b"3", b"bad", b"5"])
    key = (topic, 0)

    def read(data: bytes | None) -> bytes | None:
        if data == b"bad":
            side.fail(kind)
        return data

    consumer = side.consumer(**quick(side, enable_auto_commit="false", deserializer=read))
    consumer.assign([key])
    side.see("records", first_records(consumer), consumer.position(key))
    for _ in range(2):
        outcome = until(lambda: attempt(lambda: consumer.poll(0.1)), lambda text: text != "[]")
        side.see("poll", outcome, consumer.position(key))
    consumer.seek(key, 3)
    side.see("records", first_records(consumer), consumer.position(key))
    consumer.pause([key])
    side.see("paused", attempt(lambda: consumer.poll(0.2)))
    consumer.resume([key])
    outcome = until(lambda: attempt(lambda: consumer.poll(0.1)), lambda text: text != "[]")
    side.see("poll", outcome, consumer.position(key))
    side.see("commit", attempt(consumer.commit), side.committed())
    consumer.seek(key, 5)
    side.see("records", first_records(consumer))
    consumer.close()


def enforced_rebalances(side: Side, assignor: str | None = None) -> None:
    """Ask for rebalances, also before the member has joined."""
    (topic,) = side.create()
    more = {} if assignor is None or side.protocol == "consumer" else {"partition_assignment_strategy": assignor}
    consumer = side.consumer(**quick(side, **more))
    consumer.subscribe([topic], Watcher(side))
    side.see("before", attempt(lambda: consumer.enforce_rebalance("early")))
    settle(side, consumer, 2)
    side.see("enforce", attempt(lambda: consumer.enforce_rebalance("late")), attempt(lambda: consumer.enforce_rebalance("late")))
    before = generation_of(consumer)[0]
    if side.protocol == "classic":
        until(lambda: (consumer.poll(0.1), generation_of(consumer)[0] != before)[1])
    else:
        consumer.poll(0.5)
    settle(side, consumer, 2)
    side.see("generations", generation_of(consumer)[0] - before)
    consumer.close()


def replaced_member(side: Side) -> None:
    """Replace a static member after it has revoked a partition, and before it has joined again."""
    (topic,) = side.create()
    more = quick(side, partition_assignment_strategy=COOPERATIVE, enable_auto_commit="false")
    first, second, third = (side.consumer(**more, group_instance_id=name) for name in ("a", "b", "a"))

    def replace() -> None:
        third.subscribe([topic])
        until(lambda: third.poll(0.1) or third.assignment())

    watcher = Watcher(side, {"revoked": [replace]})
    first.subscribe([topic], watcher)
    settle(side, first, 2)
    second.subscribe([topic])
    until(lambda: second.poll(0.1) or attempt(lambda: first.poll(0.1)) != "[]" or third.assignment())
    first.close(0)
    generation = generation_of(third)[0]
    for _ in range(10):  # twenty heartbeats each
        for one in (second, third):
            one.poll(0.1)
    side.see("nobody's", [len(one.assignment()) for one in (second, third)], generation_of(third)[0] - generation)
    third.enforce_rebalance("a partition has no owner")
    until(lambda: [(one.poll(0.1) and False) or len(one.assignment()) for one in (second, third)] == [1, 1])
    side.see("everybody's", sorted(key.partition for one in (second, third) for key in one.assignment()))
