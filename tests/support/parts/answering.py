"""The handlers of a broker without its sockets.

Requests go in, answers come out as the client would read them, and a test sets the replicas.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, TypeVar, cast

from kops.broker.apis.dispatch import dispatcher
from kops.broker.network.socket_server import RequestContext
from kops.broker.parts.parts import BrokerParts
from kops.broker.replicas.log_dir_moves import LogDirDescription
from kops.broker.replicas.reads import FetchPartitionData
from kops.broker.replicas.topic_stats import BrokerTopicStats
from kops.broker.transactions.lazy import Transactions
from kops.broker.transactions.surroundings import Surroundings
from kops.errors import ApiError
from kops.metadata.image.metadata_cache import MetadataCache
from kops.metadata.image.metadata_delta import MetadataDelta
from kops.metadata.image.metadata_image import EMPTY, MetadataProvenance
from kops.protocol import api_keys
from kops.protocol.connections.connection import Request
from kops.protocol.declaration import Message
from kops.protocol.messages import PartitionRecord, RegisterBrokerRecord, TopicRecord
from kops.protocol.messages.register_broker_record import BrokerEndpoint
from kops.records.log_offsets import TopicPartition
from kops.replication.leading.fetch import EpochEndOffset, FetchInfo, FetchParams
from kops.replication.leading.fetch_context import FetchManager
from kops.replication.leading.fetch_session import FetchSession, FetchSessionCache
from kops.replication.leading.partition_reads import OffsetFound
from kops.replication.quota import ReplicationQuotaManager
from kops.replication.waiting.delayed import AwaitedDeletion, PartitionResponse
from kops.storage.producers.verification import VerificationGuard
from kops.storage.scheduler import Scheduler
from tests.support.parts.manual_loop import ManualLoop

if TYPE_CHECKING:
    from kops.broker.replicas.manager import ReplicaManager
    from kops.config import BrokerConfig

ORDERS, CLICKS, UNKNOWN_ID = bytes([1]) * 16, bytes([2]) * 16, bytes([9]) * 16
O0, O1, C0 = TopicPartition("orders", 0), TopicPartition("orders", 1), TopicPartition("clicks", 0)
CONFIG = {
    "fetch.max.bytes": 55 * 1024 * 1024,
    "transaction.partition.verification.enable": True,
    "transaction.two.phase.commit.enable": False,
    "transaction.max.timeout.ms": 900_000,
    "transaction.state.log.num.partitions": 50,
    "transaction.state.log.load.buffer.size": 5 << 20,
    "transactional.id.expiration.ms": 604_800_000,
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": 10_000,
    "transaction.remove.expired.transaction.cleanup.interval.ms": 3_600_000,
    "request.timeout.ms": 30_000,
    "add.partitions.to.txn.retry.backoff.ms": 20,
    "add.partitions.to.txn.retry.backoff.max.ms": 100,
}
Answer = TypeVar("Answer", bound=Message)


def two_brokers() -> MetadataCache:
    """Return metadata with brokers 1 and 2.

    `orders` has two partitions led by 2 in epoch 5, `clicks` has one led by 1, `__consumer_offsets` has one.
    """
    delta = MetadataDelta(EMPTY)
    for broker_id in (1, 2):
        point = BrokerEndpoint("PLAINTEXT", f"host{broker_id}", 9092, 0)
        delta.replay(RegisterBrokerRecord(broker_id=broker_id, broker_epoch=7, end_points=[point], rack=f"r{broker_id}", fenced=False))
    for name, topic_id, count, leader in (
        ("orders", ORDERS, 2, 2),
        ("clicks", CLICKS, 1, 1),
        ("__consumer_offsets", bytes([3]) * 16, 1, 1),
    ):
        delta.replay(TopicRecord(name, topic_id))
        for number in range(count):
            directories = [bytes(16)] * 2
            delta.replay(PartitionRecord(number, topic_id, [1, 2], [1, 2], leader=leader, leader_epoch=5, directories=directories))
    return MetadataCache(delta.apply(MetadataProvenance(42, 1, 1, True)))


@dataclass
class Replicas:
    """A stub of ReplicaManager. `calls` has its calls, `parked` has the parked requests that the test answers."""

    produced: Mapping[TopicPartition, PartitionResponse] = field(default_factory=dict)
    fetched: Mapping[TopicPartition, FetchPartitionData] = field(default_factory=dict)
    deleted: Mapping[TopicPartition, AwaitedDeletion] = field(default_factory=dict)
    offsets: Mapping[TopicPartition, OffsetFound | ApiError] = field(default_factory=dict)
    epochs: Mapping[TopicPartition, EpochEndOffset] = field(default_factory=dict)
    producers: Mapping[TopicPartition, list[Any]] = field(default_factory=dict)
    log_dirs: list[LogDirDescription] = field(default_factory=list)
    moves: Mapping[TopicPartition, str] = field(default_factory=dict)
    is_parking: bool = False
    calls: list[Any] = field(default_factory=list)
    parked: list[Callable[[], None]] = field(default_factory=list)
    stats: BrokerTopicStats = field(default_factory=BrokerTopicStats)
    guard: VerificationGuard = field(default_factory=VerificationGuard)
    leader_quota: ReplicationQuotaManager = field(default_factory=lambda: ReplicationQuotaManager(lambda: 0))

    def _finish(self, done: Callable[[], None]) -> None:
        if self.is_parking:
            self.parked.append(done)
        else:
            done()

    def append_records(
        self, records: Mapping[TopicPartition, Any], acks: int, timeout_ms: int, done: Callable[[Any], None], **options: Any
    ) -> None:
        sizes = {key: len(data) for key, data in records.items()}
        if "count_conversion" in options:
            options.pop("count_conversion")(0, 0)
        self.calls.append((sizes, acks, timeout_ms, options))
        answers = {key: self.produced.get(key, PartitionResponse("NONE", 10, -1, 3)) for key in records}
        self._finish(lambda: done(answers))

    def begin_fetch(self, session: FetchSession, params: FetchParams) -> None:
        """Do nothing: no session is ever idle here."""

    def fetch(
        self,
        params: FetchParams,
        infos: Sequence[tuple[TopicPartition, FetchInfo]],
        quota: Any,
        done: Callable[[Any], None],
        session: FetchSession | None = None,
    ) -> None:
        self.calls.append((params, list(infos)))
        answer = [(key, self.fetched.get(key, FetchPartitionData("NONE", 7, 0, last_stable_offset=7))) for key, _ in infos]
        self._finish(lambda: done(answer))

    def delete_records(self, offsets: Mapping[TopicPartition, int], timeout_ms: int, done: Callable[[Any], None]) -> None:
        self.calls.append((dict(offsets), timeout_ms))
        answer = {key: self.deleted.get(key, AwaitedDeletion(offset, offset, "NONE")) for key, offset in offsets.items()}
        self._finish(lambda: done(answer))

    def list_offsets(self, key: TopicPartition, timestamp: int, **options: Any) -> OffsetFound:
        self.calls.append((key, timestamp, options))
        found = self.offsets.get(key, OffsetFound(1000, 4, 5))
        if isinstance(found, ApiError):
            raise found
        return found

    def end_offset_for_epoch(self, key: TopicPartition, current_leader_epoch: int, leader_epoch: int) -> EpochEndOffset:
        self.calls.append((key, current_leader_epoch, leader_epoch))
        return self.epochs.get(key, EpochEndOffset(error="UNKNOWN_TOPIC_OR_PARTITION"))

    def describe_producers(self, key: TopicPartition) -> list[Any]:
        if key not in self.producers:
            raise ApiError("NOT_LEADER_OR_FOLLOWER")
        return self.producers[key]

    def describe_log_dirs(self, keys: Collection[TopicPartition] | None) -> list[LogDirDescription]:
        self.calls.append(keys)
        return self.log_dirs

    def alter_replica_log_dirs(self, log_dirs: Mapping[TopicPartition, str]) -> dict[TopicPartition, str]:
        self.calls.append(dict(log_dirs))
        return {key: self.moves.get(key, "NONE") for key in log_dirs}

    def get_partition_or_raise(self, key: TopicPartition) -> Any:
        if key == O1:
            return SimpleNamespace(leader_id=1, leader_epoch=6)
        if key == C0:
            return SimpleNamespace(leader_id=1, leader_epoch=5, leader_log=self)
        raise ApiError("UNKNOWN_TOPIC_OR_PARTITION")

    def maybe_start_transaction_verification(self, *producer: int, supports_epoch_bump: bool) -> VerificationGuard:
        """Return the guard of the partition's log."""
        return self.guard


class Broker:
    """The parts with stub replicas, and the requests to them."""

    def __init__(self, replicas: Replicas | None = None, **parts: Any) -> None:
        self.replicas = replicas or Replicas()
        self.cache = two_brokers()
        ids = iter(range(100, 200))
        sessions = FetchManager(FetchSessionCache(10, 1000, lambda: next(ids)), lambda: 0)
        self.loop = ManualLoop()
        made = SimpleNamespace(
            cache=self.cache, replica_manager=self.replicas, fetch_sessions=sessions, config=CONFIG, now_ms=lambda: 0, **parts
        )
        made.transactions = self.transactions = Transactions(self._surroundings())
        self.transactions.startup()
        self.parts = cast("BrokerParts", made)
        self._handle = dispatcher(self.parts)

    def _surroundings(self) -> Surroundings:
        return Surroundings(
            self.loop,
            1,
            "PLAINTEXT",
            self.cache,
            cast("ReplicaManager", self.replicas),
            Scheduler(lambda: 0),
            lambda: cast("BrokerConfig", CONFIG),
            lambda: 0.5,
            lambda: 4000,
            lambda _key, _marker, done: done("COORDINATOR_NOT_AVAILABLE"),
        )

    def ask(self, message: Message, version: int, *, client_id: str = "someone") -> Asked:
        """Pass in a request as its bytes would be read. The answer may come later."""
        asked = Asked(message, version, client_id)
        self._handle(asked)
        return asked

    def answer(self, message: Message, version: int, expected: type[Answer], *, client_id: str = "someone") -> Answer:
        """Return the answer that comes at once, as a client of the version reads it."""
        answer = self.ask(message, version, client_id=client_id).answer
        assert isinstance(answer, expected)
        return answer


class Asked(RequestContext):
    """A RequestContext whose client is the test. Exactly one of `answer`, `is_closed` and `is_done` is set."""

    listener_name = "PLAINTEXT"
    connection_id = "here"
    principal = "User:ANONYMOUS"
    client_host = "127.0.0.1"
    client_id = ""

    def __init__(self, message: Message, version: int, client_id: str) -> None:
        assert message.API_KEY is not None
        self.client_id = client_id
        read = type(message).decode(message.encode(version), version)
        self.request = Request(api_keys.by_key(message.API_KEY), version, version, 1, client_id, read, 100)
        self.answer: Message | None = None
        self.is_closed = False
        self.is_done = False
        self.holds_next = False

    @property
    def is_answered(self) -> bool:
        return self.answer is not None or self.is_closed or self.is_done

    def hold_next(self) -> None:
        assert not self.holds_next
        self.holds_next = True

    def release_next(self) -> None:
        assert self.holds_next
        self.holds_next = False

    def count_conversion(self, took_ms: float, temporary_bytes: int) -> None:
        assert took_ms >= 0 and temporary_bytes >= 0

    def respond(self, message: Message, *, throttle_ms: int = 0) -> None:
        assert not self.is_answered
        assert throttle_ms >= 0
        self.answer = type(message).decode(message.encode(self.request.version), self.request.version)

    def respond_nothing(self, *, throttle_ms: int = 0) -> None:
        assert not self.is_answered
        self.is_done = True

    def close_connection(self) -> None:
        assert not self.is_answered
        self.is_closed = True
