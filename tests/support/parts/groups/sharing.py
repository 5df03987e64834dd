"""A broker that leads partitions for share groups, without sockets. Members call its handlers, and a dictionary keeps the share states."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar, cast

from kops.broker.apis.dispatch import dispatcher
from kops.broker.shares.lazy import Shares
from kops.broker.shares.manager import Around, SharePartitionManager
from kops.config.groups import broker_group_settings, effective_group_config
from kops.coordinators.runtime.promise import Promise
from kops.coordinators.share.batches import StateBatch, combine_batches
from kops.coordinators.share.key import SharePartitionKey
from kops.coordinators.share.partition.persisting import PersistedState, StateWrite
from kops.coordinators.share.partition.share_partition import SharePartition
from kops.errors import ApiError
from kops.protocol.declaration import Message
from kops.protocol.errors import by_code
from kops.protocol.messages import (
    FeatureLevelRecord,
    ShareAcknowledgeRequest,
    ShareFetchRequest,
    ShareFetchResponse,
)
from kops.protocol.messages import share_acknowledge_request as acknowledging
from kops.protocol.messages import share_fetch_request as fetching
from tests.support.parts.replicas import TOPIC_ID, Answered, ReplicaBroker, World

GROUP, VERSION = "g", 2
ACCEPT, RELEASE, REJECT, RENEW = range(1, 5)
CONFIG = {**broker_group_settings({"group.share.max.share.sessions": "3"}), "fetch.max.bytes": 55 << 20}
M = TypeVar("M", bound=Message)
Acks = Sequence[tuple[int, int, Sequence[int]]]
"""First offset, last offset, types."""


class KeptStates:
    """A PartitionPersister that keeps states in memory. With `holds` it answers at `release`. Writes fail with `error`, if it is set.

    Like a share coordinator, it refuses a leader whose epoch is older than one that it has seen, or that knows an older state epoch.
    """

    def __init__(self) -> None:
        self.states: dict[SharePartitionKey, PersistedState] = {}
        self.writes: list[StateWrite] = []
        self.holds = False
        self.error = ""
        self._held: list[Callable[[], object]] = []
        self._epochs: dict[SharePartitionKey, int] = {}

    def read_state(self, key: SharePartitionKey, leader_epoch: int) -> Promise[PersistedState]:
        promise: Promise[PersistedState] = Promise()
        self._answer(lambda: self._read(key, leader_epoch, promise))
        return promise

    def write_state(self, key: SharePartitionKey, write: StateWrite) -> Promise[None]:
        promise: Promise[None] = Promise()
        self._answer(lambda: self._write(key, write, promise))
        return promise

    def initialize(self, key: SharePartitionKey) -> None:
        """Initialize the state again at its place, as the group coordinator does. Leaders with the former state epoch are fenced."""
        known = self.states.get(key, PersistedState(0, -1))
        self.states[key] = known._replace(state_epoch=known.state_epoch + 1)

    def release(self) -> None:
        """Send the answers that were held back."""
        held, self._held = self._held, []
        for answer in held:
            answer()

    def _answer(self, answer: Callable[[], object]) -> None:
        if self.holds:
            self._held.append(answer)
        else:
            answer()

    def _is_fenced(self, key: SharePartitionKey, leader_epoch: int) -> bool:
        known = self._epochs.get(key, 0)
        self._epochs[key] = max(known, leader_epoch)
        return leader_epoch < known

    def _read(self, key: SharePartitionKey, leader_epoch: int, promise: Promise[PersistedState]) -> None:
        if self._is_fenced(key, leader_epoch):
            promise.fail(ApiError("FENCED_LEADER_EPOCH", "no"))
        else:
            promise.complete(self.states.get(key, PersistedState(0, -1)))

    def _write(self, key: SharePartitionKey, write: StateWrite, promise: Promise[None]) -> None:
        if self._is_fenced(key, write.leader_epoch):
            promise.fail(ApiError("FENCED_LEADER_EPOCH", "no"))
            return
        if write.state_epoch < self.states.get(key, PersistedState(0, -1)).state_epoch:
            promise.fail(ApiError("FENCED_STATE_EPOCH", "no"))
            return
        if self.error:
            promise.fail(ApiError(self.error, "no"))
            return
        self.writes.append(write)
        known: Sequence[StateBatch] = self.states[key].batches if key in self.states else ()
        batches = combine_batches(known, write.batches, write.start_offset)
        self.states[key] = PersistedState(write.state_epoch, write.start_offset, batches)
        promise.complete(None)


class Sharing:
    """A cluster of such brokers with one topic, and the share group's settings."""

    def __init__(self, *node_ids: int, replicas: Sequence[int] = (1,), settings: Mapping[str, str] | None = None) -> None:
        own = {"share.auto.offset.reset": "earliest", **(settings or {})}
        self.settings: Mapping[str, Any] | None = effective_group_config(own, CONFIG)
        self.states = KeptStates()
        self.world = World(*(node_ids or (1,)))
        self.loop = self.world.loop
        self.world.replay(FeatureLevelRecord("share.version", 1))
        self.world.create_topic(replicas)
        self.delivered: dict[int, int] = {}
        """The last delivery count of each offset."""
        self.managers: dict[int, SharePartitionManager] = {}
        for node_id, broker in self.world.brokers.items():
            self._share(node_id, broker)

    def _share(self, node_id: int, broker: ReplicaBroker) -> None:
        parts: Any = broker.parts
        parts.config = CONFIG
        around = Around(
            cast("Any", self.loop), broker.manager, lambda: cast("Any", CONFIG), lambda _: self.settings, self.states, lambda below: 0
        )
        parts.shares = Shares(broker.cache, lambda: self.managers.setdefault(node_id, SharePartitionManager(around)))

    @property
    def broker(self) -> ReplicaBroker:
        """The first broker."""
        return self.world.brokers[1]

    def member(self, name: str, *, node_id: int = 1, connection: str = "") -> Member:
        """Return a member that sends requests to one broker."""
        return Member(self, name, node_id, connection or name)


class Answers(list[Any]):
    """The answer to a request as soon as there is one, with the share partition of partition 0 at that moment, and the times of both."""

    def __init__(self, sharing: Sharing, node_id: int) -> None:
        super().__init__()
        self._sharing = sharing
        self._node_id = node_id
        self.sent_ms = sharing.loop.time_ms
        self.time_ms = 0
        self.share_partition: SharePartition | None = None

    def add(self, answer: Any) -> None:
        """Add the answer."""
        self.append(answer)
        if isinstance(answer, ShareFetchResponse) and not answer.error_code:
            for first, last, count in acquired(self):
                self._sharing.delivered.update(dict.fromkeys(range(first, last + 1), count))
        self.time_ms = self._sharing.loop.time_ms
        manager = self._sharing.managers.get(self._node_id)
        self.share_partition = None if manager is None else manager.partitions.get(SharePartitionKey(GROUP, TOPIC_ID, 0))


class Member:
    """A member of the group `g` and its session with one broker. `epoch` is that of its next request."""

    def __init__(self, sharing: Sharing, name: str, node_id: int, connection: str) -> None:
        self.name = name
        self.epoch = 0
        self._sharing = sharing
        self._node_id = node_id
        self._parts = sharing.world.brokers[node_id].parts
        self._connection = connection

    def send(self, request: Message, version: int = VERSION) -> Answers:
        """Send a request. The list has the answer as soon as there is one."""
        answers = Answers(self._sharing, self._node_id)
        asked = Answered(request, version, answers.add)
        asked.connection_id = self._connection
        dispatcher(self._parts)(asked)
        return answers

    def fetch(
        self, *, acks: Acks = (), partitions: Sequence[int] = (0,), topic_id: bytes = TOPIC_ID, epoch: int | None = None, **fields: Any
    ) -> Answers:
        """Send a ShareFetch that waits half a second for one byte, unless `fields` say otherwise."""
        request = ShareFetchRequest(GROUP, self.name, self._next(epoch), 500, 1, max_records=500, batch_size=500)
        batches = [fetching.AcknowledgementBatch(first, last, list(types)) for first, last, types in acks]
        if self.epoch == 1 or acks or epoch is not None or topic_id != TOPIC_ID:
            request.topics = [fetching.FetchTopic(topic_id, [fetching.FetchPartition(number, 0, batches) for number in partitions])]
        for name, value in fields.items():
            setattr(request, name, value)
        return self.send(request)

    def acknowledge(self, acks: Acks, *, epoch: int | None = None, partition: int = 0, **fields: Any) -> Answers:
        """Send a ShareAcknowledge."""
        batches = [acknowledging.AcknowledgementBatch(first, last, list(types)) for first, last, types in acks]
        topic = acknowledging.AcknowledgeTopic(TOPIC_ID, [acknowledging.AcknowledgePartition(partition, batches)])
        request = ShareAcknowledgeRequest(GROUP, self.name, self._next(epoch), topics=[topic])
        for name, value in fields.items():
            setattr(request, name, value)
        return self.send(request)

    def _next(self, epoch: int | None) -> int:
        if epoch is not None:
            return epoch
        self.epoch += 1
        return self.epoch - 1


def acquired(answers: Sequence[ShareFetchResponse]) -> list[tuple[int, int, int]]:
    """Return the ranges of offsets in the only answer, with their delivery counts."""
    (response,) = answers
    assert response.error_code == 0, by_code(response.error_code).name
    return [
        (each.first_offset, each.last_offset, each.delivery_count)
        for topic in response.responses
        for data in topic.partitions
        for each in data.acquired_records
    ]


def errors(answers: Sequence[Any]) -> list[str]:
    """Return the errors in the only answer: that of the whole, then those of the partitions."""
    (response,) = answers
    codes = [response.error_code, *(data.error_code for topic in response.responses for data in topic.partitions)]
    return [by_code(code).name for code in codes]


def acknowledged(answers: Sequence[ShareFetchResponse]) -> list[tuple[str, str | None]]:
    """Return the results of acknowledgements in the only answer."""
    (response,) = answers
    return [
        (by_code(data.acknowledge_error_code).name, data.acknowledge_error_message)
        for topic in response.responses
        for data in topic.partitions
    ]
