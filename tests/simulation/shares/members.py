"""Members of a share group. Each is kops's share consumer without its sockets, with a program that decides about each record."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kops.broker.network.peer import Peer, PeerSettings
from kops.client.share.core.acknowledgements import AcknowledgeType
from kops.client.share.core.consumer import ShareCore
from kops.client.share.core.options import ShareOptions
from kops.client.share.core.records import Deserializers, ShareRecord
from kops.coordinators.share.key import SharePartitionKey
from kops.errors import ApiError
from kops.protocol.connections.node_versions import FinalizedFeatures
from kops.protocol.messages import ShareAcknowledgeRequest, ShareFetchRequest, ShareFetchResponse
from kops.storage.formats.kafka_uuid import uuid_text
from tests.simulation.node_client import BROKER_PORT
from tests.simulation.shares.book import Holder, MemberBook, Place

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from kops.client.node import Node
    from kops.client.producer.core.links import Outgoing
    from kops.protocol.declaration import Message
    from kops.records.record import Header
    from tests.simulation.shares.world import ShareWorld

GROUP = "sharers"
PATIENCE_MS = 3_000
ENDS = (AcknowledgeType.ACCEPT, AcknowledgeType.REJECT)
KINDS, WEIGHTS = tuple(AcknowledgeType), (12, 4, 1, 1)


class Member:
    """A consumer. Its connections are those of the world's client machine."""

    def __init__(self, world: ShareWorld, name: str) -> None:
        self.world = world
        self.name = name
        self.chance = world.clock.random
        self.is_gone = False
        self._loop = world.client.loop
        self._peers: dict[tuple[int, str, int], Peer] = {}
        self._is_soon = False
        self.book = MemberBook(name)
        self._sessions: dict[int, int] = {}  # how often the session with a node may have ended
        settings = {
            "bootstrap.servers": [f"{node.host.address}:{BROKER_PORT}" for node in world.nodes.values()],
            "group.id": GROUP,
            "share.acknowledgement.mode": "explicit",
            "max.poll.records": self.chance.choice((1, 5, 20)),
            "fetch.max.wait.ms": 200,
            "request.timeout.ms": PATIENCE_MS,
            "default.api.timeout.ms": 4_000,
            "metadata.max.age.ms": 2_000,
            "share.acquire.mode": self.chance.choice(("record_limit", "batch_optimized")),
        }
        bootstrap = [(node.host.address, BROKER_PORT) for node in world.nodes.values()]
        member_id = uuid_text(b"member" + self.chance.randbytes(10))
        deserializers = Deserializers(_plain, _plain)
        self.core = ShareCore(ShareOptions.of(settings), bootstrap, self, self.chance.random, deserializers, member_id, self._now_ms)
        self.core.set_callback(is_set=True)
        self.core.subscribe([world.shared])
        self._later(self._poll, 0, 50)

    @property
    def _now_ms(self) -> float:
        return self.world.clock.now_ms

    # the program

    def _poll(self) -> None:
        self.core.begin_poll()
        self._collect(self._now_ms + self.chance.uniform(50, 500))

    def _collect(self, deadline_ms: float) -> None:
        records = self.core.collect(self._now_ms)
        self._told()
        self._turn_soon()
        if records:
            self._later(lambda: self._decide(records), 0, 400)
        elif self._now_ms < deadline_ms:
            self._later(lambda: self._collect(deadline_ms), 10, 60)
        else:
            self._later(self._poll, 0, 100)

    def _decide(self, records: list[ShareRecord]) -> None:
        for record in records:
            (kind,) = self.chance.choices(KINDS, WEIGHTS)
            if self.world.is_ending and kind is AcknowledgeType.RELEASE:
                kind = AcknowledgeType.ACCEPT
            place = Place(record.partition, record.offset)
            is_end = kind in ENDS
            self.world.book.gave(place, record.delivery_count, is_end=is_end)
            self.world.counts[f"{kind.name.lower()} sent"] += 1
            self.book.delivered(place)
            self.book.decided(place, kind, is_renewal=kind is AcknowledgeType.RENEW)
            self.core.acknowledge(record.topic, record.partition, record.offset, kind, is_record=True)
        if self.chance.random() < 0.3:
            self.core.commit_async(self._now_ms)
            self._turn_soon()
        self._poll()

    def _told(self) -> None:
        for partition, offsets, error in self.core.take_outcomes():
            for offset in offsets:
                place = Place(partition.partition, offset)
                kind = self.book.told(place)
                if error is None and kind in ENDS:
                    self.world.book.ended(place, self._now_ms)
                    self.world.counts["ends confirmed"] += 1
                self.world.counts["acknowledgements refused"] += error is not None

    def vanish(self) -> None:
        """Let the program die. The nodes notice that its connections end."""
        self.is_gone = True
        for node in {key[0] for key in self._peers}:
            self.world.book.let_go(self.name, node)
        for peer in self._peers.values():
            peer.close()

    # the network

    def _turn_soon(self) -> None:
        if not self._is_soon and not self.is_gone:
            self._is_soon = True
            self._loop.call_soon(self._turn)

    def _turn(self) -> None:
        self._is_soon = False
        if self.is_gone:
            return
        requests, wait_ms = self.core.turn(self._now_ms)
        for request in requests:
            self._send(request)
        self._loop.call_later(min(wait_ms, 1_000), self._turn_soon)

    def _send(self, request: Outgoing) -> None:
        node, message, asked_ms = request.node, request.message, self._now_ms
        key = node.id, node.host, node.port
        peer = self._peers.get(key)
        if peer is None:
            settings = PeerSettings(client_id=self.name, request_timeout_ms=PATIENCE_MS)
            peer = self._peers[key] = Peer(self._loop, node.host, node.port, draw=self.chance.random, settings=settings)
        states = self.world.states(node.id)
        number = self._sessions.setdefault(node.id, 0)
        if isinstance(message, ShareFetchRequest | ShareAcknowledgeRequest):
            self._let_go(node.id, message)

        def answered(answer: Message | ApiError) -> None:
            if self.is_gone:
                return
            if isinstance(answer, ApiError):
                self._sessions[node.id] += 1
                self.world.book.let_go(self.name, node.id)
            elif isinstance(answer, ShareFetchResponse) and isinstance(message, ShareFetchRequest) and not answer.error_code:
                self._fetched(node.id, message, answer, asked_ms, states, is_same=number == self._sessions[node.id])
            request.answered(answer, self._now_ms)
            self._turn_soon()

        peer.send(message, answered, versions=request.versions)

    def _let_go(self, node: int, message: ShareFetchRequest | ShareAcknowledgeRequest) -> None:
        sent = dict(acknowledged(message))
        for place, kind in sent.items():
            self.book.check_sent(place, kind)
        if message.share_session_epoch <= 0:
            self._sessions[node] += 1
            self.world.book.let_go(self.name, node)
            return
        self.world.book.let_go(self.name, node, set(sent))

    def _fetched(
        self,
        node: int,
        request: ShareFetchRequest,
        answer: ShareFetchResponse,
        asked_ms: float,
        states: dict[SharePartitionKey, object],
        *,
        is_same: bool,
    ) -> None:
        world = self.world
        if is_same and request.share_session_epoch > 0:
            world.book.went_on(self.name, node, asked_ms)
        now = world.states(node)
        for topic in answer.responses:
            for one in topic.partitions:
                for acquired in one.acquired_records:
                    for offset in range(acquired.first_offset, acquired.last_offset + 1):
                        self.book.acquired(Place(one.partition_index, offset))
                key = SharePartitionKey(GROUP, topic.topic_id, one.partition_index)
                ledger = world.checks.ledgers[topic.topic_id, one.partition_index]
                if not one.acquired_records or not world.leads(node, ledger):
                    continue
                state = now.get(key)
                if state is not states.get(key) or state is None:
                    state = object()  # either of the two states may have given the record
                holder = Holder(self.name, node, state, asked_ms, self._now_ms)
                for acquired in one.acquired_records:
                    for offset in range(acquired.first_offset, acquired.last_offset + 1):
                        world.book.acquired(Place(one.partition_index, offset), acquired.delivery_count, holder)
                        world.counts["records acquired"] += 1
                        world.counts["delivered again"] += acquired.delivery_count > 1

    def _later(self, run: object, low_ms: float, high_ms: float) -> None:
        def go_on() -> None:
            if not self.is_gone:
                run()  # type: ignore[operator]  # a function

        self._loop.call_later(self.chance.uniform(low_ms, high_ms), go_on)

    # what the core asks about its connections

    def is_ready(self, node: Node) -> bool:
        """Always true."""
        return True

    def load(self, node: Node) -> int:
        """Always 0, because a connection has no limit."""
        return 0

    def retry_ms(self, node: Node) -> float:
        """Return a short time."""
        return 50.0

    def least_loaded(self, nodes: Iterable[Node]) -> Node | None:
        """Return any node."""
        return self.chance.choice(sorted(nodes))

    def is_failing(self, node: Node) -> bool:
        """Always false, because failures are not tracked."""
        return False

    def latest_version(self, node: Node, api_key: int) -> int:
        """Always -1, because versions are not tracked."""
        return -1

    def features(self) -> FinalizedFeatures:
        """Return no features, because they are not tracked."""
        return FinalizedFeatures(-1, {})


def acknowledged(message: ShareFetchRequest | ShareAcknowledgeRequest) -> Iterator[tuple[Place, int]]:
    """Yield the acknowledged records of a request, and what became of each. A batch has one kind for all, or one for each."""
    for topic in message.topics:
        for one in topic.partitions:
            for batch in one.acknowledgement_batches:
                offsets = range(batch.first_offset, batch.last_offset + 1)
                kinds = batch.acknowledge_types * len(offsets) if len(batch.acknowledge_types) == 1 else batch.acknowledge_types
                for offset, kind in zip(offsets, kinds, strict=True):
                    yield Place(one.partition_index, offset), kind


def _plain(topic: str, headers: Sequence[Header], data: bytes | None) -> bytes | None:
    return data
