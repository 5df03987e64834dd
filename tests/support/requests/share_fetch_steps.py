"""Raw requests of members of share groups in both versions to one broker, valid and invalid ones.

Each step yields its name and its masked answer.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from kops.protocol.json_text import uuid_text
from kops.protocol.messages import (
    FindCoordinatorRequest,
    IncrementalAlterConfigsRequest,
    InitializeShareGroupStateRequest,
    ProduceRequest,
    ShareAcknowledgeRequest,
    ShareFetchRequest,
)
from kops.protocol.messages import incremental_alter_configs_request as altering
from kops.protocol.messages import initialize_share_group_state_request as initializing
from kops.protocol.messages import share_acknowledge_request as acknowledging
from kops.protocol.messages import share_fetch_request as fetching
from kops.protocol.messages.produce_request import PartitionProduceData, TopicProduceData
from tests.support.kafka.two_brokers import Side
from tests.support.nodes.raw_client import PATIENCE_S
from tests.support.requests.api_steps import UNKNOWN_ID, batch

Steps = Iterator[tuple[str, Any]]
Acks = Sequence[tuple[int, int, Sequence[int]]]
_GROUP_RESOURCE = 32
_LONG_MS, _SHORT_MS = 20_000, 30


def produce(side: Side, topic: str, count: int) -> None:
    """Append one batch."""
    data = TopicProduceData(topic_id=side.ids[topic], partition_data=[PartitionProduceData(0, batch(count))])
    answer: Any = side.client.ask(ProduceRequest(acks=1, timeout_ms=5000, topic_data=[data]), 13)
    assert answer.responses[0].partition_responses[0].error_code == 0, (side.name, answer)


def ready(side: Side, name: str) -> None:
    """Create a topic with two partitions, and a group of the same name that reads it from the beginning.

    The share coordinator has the group's state.
    """
    side.create(name, partitions=2)
    change = altering.AlterableConfig("share.auto.offset.reset", 0, "earliest")
    side.client.ask(IncrementalAlterConfigsRequest([altering.AlterConfigsResource(_GROUP_RESOURCE, name, [change])]), 1)
    partitions = [initializing.PartitionData(number, 1, 0) for number in range(2)]
    request = InitializeShareGroupStateRequest(name, [initializing.InitializeStateData(side.ids[name], partitions)])
    keys = [f"{name}:{uuid_text(side.ids[name])}:0"]
    deadline = time.monotonic() + PATIENCE_S
    while True:
        side.client.ask(FindCoordinatorRequest(key_type=2, coordinator_keys=keys), 6)
        answer: Any = side.client.ask(request, 0)
        if [each.error_code for each in answer.results[0].partitions] == [0, 0]:
            return
        assert time.monotonic() < deadline, (side.name, answer)
        time.sleep(0.1)


class Asks:
    """A sender of requests as one member."""

    def __init__(self, side: Side, name: str, version: int, member: str = "m") -> None:
        self.side = side
        self.name = name
        self.version = version
        self.member = member

    def fetch(self, epoch: int, *partitions: int, acks: Acks = (), topic_id: bytes | None = None, **fields: Any) -> Any:
        """Send a ShareFetch with these partitions. The acknowledgements go with the first one."""
        topic = fetching.FetchTopic(self.side.ids[self.name] if topic_id is None else topic_id)
        for number in partitions:
            batches = [fetching.AcknowledgementBatch(first, last, list(types)) for first, last, types in acks]
            topic.partitions.append(fetching.FetchPartition(number, 0, batches if not topic.partitions else []))
        request = ShareFetchRequest(self.name, self.member, epoch, _SHORT_MS, 1, max_records=500, batch_size=500)
        request.topics = [topic] if partitions else []
        return self.ask(request, fields)

    def acknowledge(self, epoch: int, acks: Acks, *, partition: int = 0, topic_id: bytes | None = None, **fields: Any) -> Any:
        """Send a ShareAcknowledge."""
        batches = [acknowledging.AcknowledgementBatch(first, last, list(types)) for first, last, types in acks]
        topic = acknowledging.AcknowledgeTopic(self.side.ids[self.name] if topic_id is None else topic_id)
        topic.partitions = [acknowledging.AcknowledgePartition(partition, batches)]
        return self.ask(ShareAcknowledgeRequest(self.name, self.member, epoch, topics=[topic]), fields)

    def ask(self, request: Any, fields: dict[str, Any]) -> Any:
        """Send a request with some invalid fields."""
        for name, value in fields.items():
            setattr(request, name, value)
        return self.side.ask(request, self.version)


def sessions(side: Side, version: int) -> Steps:
    """Requests with right and wrong groups, members and epochs."""
    name = f"share-sessions-{version}"
    ready(side, name)
    produce(side, name, 2)
    member = Asks(side, name, version)
    yield "no group", member.fetch(0, 0, group_id=None)
    yield "acknowledge: no group", member.acknowledge(1, [(0, 0, [1])], group_id=None)
    for label, wrong in (("no member", None), ("empty member", ""), ("long member", "x" * 37)):
        yield label, member.fetch(0, 0, member_id=wrong)
        yield f"acknowledge: {label}", member.acknowledge(1, [(0, 0, [1])], member_id=wrong)
    yield "no session", member.fetch(1, 0)
    yield "acknowledge: no session", member.acknowledge(1, [(0, 0, [1])])
    yield "acknowledge: first", member.acknowledge(0, [(0, 0, [1])])
    yield "last without a first", member.fetch(-1)
    yield "acknowledge: last without a first", member.acknowledge(-1, [(0, 0, [1])])
    yield "first with acknowledgements", member.fetch(0, 0, acks=[(0, 0, [1])])
    yield "a partition twice", member.fetch(0, 0, 0)
    yield "first with an unknown topic", member.fetch(0, 0, topic_id=UNKNOWN_ID)
    yield "first with an unknown partition", member.fetch(0, 7)
    yield "a group without a name", member.fetch(0, 0, group_id="")
    yield "first", member.fetch(0, 0, max_wait_ms=_LONG_MS)
    yield "wrong epoch", member.fetch(5)
    yield "acknowledge: wrong epoch", member.acknowledge(5, [(0, 0, [1])])
    yield "negative epoch", member.fetch(-2)
    yield "unknown topic", member.fetch(1, 0, topic_id=UNKNOWN_ID)
    yield "unknown partition", member.fetch(2, 7)
    forgotten = [fetching.ForgottenTopic(UNKNOWN_ID, [0]), fetching.ForgottenTopic(side.ids[name], [7])]
    yield "forgets", member.fetch(3, forgotten_topics_data=forgotten)
    yield "nothing new", member.fetch(4)
    yield "acknowledge: goes on", member.acknowledge(5, [(0, 0, [1])])
    yield "last", member.fetch(-1, 0, acks=[(1, 1, [2])])
    yield "behind the last", member.fetch(6)
    yield "anew", member.fetch(0, 0, max_wait_ms=_LONG_MS)
    yield "anew again", member.fetch(0, 0)
    yield "acknowledge: last", member.acknowledge(-1, [(1, 1, [1])])


def acknowledgements(side: Side, version: int) -> Steps:
    """Acknowledge acquired and other records, with all types."""
    name = f"share-acknowledgements-{version}"
    ready(side, name)
    for _ in range(3):
        produce(side, name, 4)
    member = Asks(side, name, version)
    yield "first", member.fetch(0, 0, max_wait_ms=_LONG_MS)
    wrong: dict[str, Acks] = {
        "backwards": [(1, 0, [1])],
        "out of order": [(2, 2, [1]), (0, 0, [1])],
        "no types": [(0, 0, [])],
        "too few types": [(0, 2, [1, 1])],
        "unknown type": [(0, 0, [5])],
        "negative type": [(0, 0, [-1])],
        "renew without saying so": [(0, 0, [4])],
        "nothing": [],
        "not acquired": [(40, 41, [1])],
        "beyond the end": [(10, 14, [1])],
    }
    epoch = 1
    for label, acks in wrong.items():
        yield label, member.acknowledge(epoch, acks)
        yield f"with a fetch: {label}", member.fetch(epoch + 1, 0, acks=acks)
        epoch += 2
    yield "unknown topic", member.acknowledge(epoch, [(0, 0, [1])], topic_id=UNKNOWN_ID)
    yield "unknown partition", member.acknowledge(epoch + 1, [(0, 0, [1])], partition=7)
    yield "no share partition", member.acknowledge(epoch + 2, [(0, 0, [1])], partition=1)
    yield "with a fetch: unknown topic", member.fetch(epoch + 3, 0, acks=[(0, 0, [1])], topic_id=UNKNOWN_ID)
    yield "with a fetch: unknown partition", member.fetch(epoch + 4, 7, acks=[(0, 0, [1])])
    yield "all types", member.acknowledge(epoch + 5, [(0, 3, [1, 2, 3, 0]), (4, 7, [2])])
    yield "once more", member.acknowledge(epoch + 6, [(0, 3, [1])])
    yield "what was released", member.fetch(epoch + 7, 0, acks=[(8, 11, [1])], max_wait_ms=_LONG_MS)
    yield "another member's", Asks(side, name, version, "other").fetch(0, 0)
    yield "by another member", Asks(side, name, version, "other").acknowledge(1, [(1, 1, [1])])


def renewals(side: Side, version: int) -> Steps:
    """Renew locks (version 2)."""
    name = f"share-renewals-{version}"
    ready(side, name)
    produce(side, name, 3)
    member = Asks(side, name, version)
    yield "first", member.fetch(0, 0, max_wait_ms=_LONG_MS)
    zeros: dict[str, Any] = {"max_wait_ms": 0, "min_bytes": 0, "max_bytes": 0, "max_records": 0, "is_renew_ack": True}
    for field in ("max_wait_ms", "min_bytes", "max_bytes", "max_records"):
        yield f"not zero: {field}", member.fetch(1, 0, acks=[(0, 0, [4])], **(zeros | {field: 1}))
    yield "renew", member.fetch(1, 0, acks=[(0, 1, [4])], **zeros)
    yield "renew and accept", member.fetch(2, 0, acks=[(0, 1, [1, 4])], **zeros)
    yield "acknowledge: renew", member.acknowledge(3, [(2, 2, [4])], is_renew_ack=True)
    yield "renew what is accepted", member.acknowledge(4, [(0, 0, [4])], is_renew_ack=True)


def limits(side: Side, version: int) -> Steps:
    """Limit how many records are acquired, and how."""
    name = f"share-limits-{version}"
    ready(side, name)
    for _ in range(6):
        produce(side, name, 3)
    member = Asks(side, name, version)
    yield "no records", member.fetch(0, 0, 1, max_records=0)
    yield "no bytes", member.fetch(1, max_bytes=0)
    yield "one record", member.fetch(2, max_records=1, max_wait_ms=_LONG_MS)
    yield "small batches", member.fetch(3, max_records=6, batch_size=1)
    if version > 1:
        yield "exactly one", member.fetch(4, max_records=1, share_acquire_mode=1)
        yield "exactly five", member.fetch(5, max_records=5, share_acquire_mode=1)
        yield "unknown mode", member.fetch(6, share_acquire_mode=9)
    else:
        yield "one byte", member.fetch(4, max_bytes=1)
        yield "the rest", member.fetch(5)
        yield "nothing", member.fetch(6)
    yield "negative records", member.fetch(7, max_records=-1)
    yield "negative bytes", member.fetch(8, max_bytes=-1)
    yield "last", member.fetch(-1)


def lives(side: Side, version: int, seed: int = 0) -> Steps:
    """Random requests of three members for one partition."""
    name = f"share-lives-{version}-{seed}"
    ready(side, name)
    rng = random.Random(10 * seed + version)
    produce(side, name, 3)
    members = [Asks(side, name, version, member) for member in "abc"]
    epochs = dict.fromkeys("abc", 0)
    yield "first", members[0].fetch(0, 0, max_wait_ms=_LONG_MS)
    epochs["a"] = 1
    end = 3
    for number in range(50):
        if rng.random() < 0.25:
            count = rng.randrange(1, 6)
            produce(side, name, count)
            end += count
        member = rng.choice(members)
        epoch = epochs[member.member]
        if rng.random() < 0.05:
            epoch = rng.choice((-1, 0, 1, 77))
        acks = drawn_acks(rng, end, last_type=4 if version > 1 else 3)
        is_renewal = version > 1 and rng.random() < 0.1
        kind = "fetch"
        if rng.random() < 0.35 and epoch:
            kind = "acknowledge"
            fields: dict[str, Any] = {"is_renew_ack": is_renewal} if is_renewal else {}
            answer = member.acknowledge(epoch, acks, **fields)
        elif is_renewal and epoch:
            zeros: dict[str, Any] = {"max_wait_ms": 0, "min_bytes": 0, "max_bytes": 0, "max_records": 0, "is_renew_ack": True}
            answer = member.fetch(epoch, 0, acks=acks, **zeros)
        else:
            fields = {"max_records": rng.choice((1, 2, 5, 500)), "batch_size": rng.choice((-1, 0, 1, 3, 500))}
            if version > 1:
                fields["share_acquire_mode"] = rng.randrange(2)
            acks = acks if epoch and rng.random() < 0.6 else []
            if any(2 in types for _, _, types in acks):
                fields["max_wait_ms"] = 400  # what is released is available once it is persisted
            answer = member.fetch(epoch, 0, acks=acks, **fields)
        yield f"{number}: {kind} of {member.member} at {epoch}, {acks}", answer
        if epoch == -1:
            time.sleep(0.3)  # the answer does not wait until the member's records are released
        if answer["error_code"] == "NONE":
            epochs[member.member] = 0 if epoch == -1 else epoch + 1
        else:
            epochs[member.member] = 0


def drawn_acks(rng: random.Random, end: int, last_type: int) -> list[tuple[int, int, list[int]]]:
    """Return acknowledgements that are mostly near the end and mostly in order."""
    found: list[tuple[int, int, list[int]]] = []
    offset = rng.randrange(max(0, end - 12), end)
    while offset < end and rng.random() < 0.7:
        last = min(offset + rng.choice((0, 0, 0, 1, 2)), end - 1 if rng.random() < 0.95 else end + 3)
        last = max(offset, last)
        count = last - offset + 1 if rng.random() < 0.4 else 1
        found.append((offset, last, [rng.choice((0, 1, 1, 2, 2, 3, last_type)) for _ in range(count)]))
        offset = last + rng.choice((1, 1, 1, 2))
    return found


_OF_BOTH: tuple[Callable[[Side, int], Steps], ...] = (sessions, acknowledgements, limits, lives)
CASES: dict[str, tuple[Callable[[Side, int], Steps], int]] = {
    **{f"{steps.__name__}-{version}": (steps, version) for steps in _OF_BOTH for version in (1, 2)},
    "renewals-2": (renewals, 2),
}
"""Name → its steps and the version of the requests."""
