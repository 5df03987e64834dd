"""Whole nodes as in `node_world`, with transactional producers and groups. Their coordinators are killed, moved, paused and cut off.

There are three transactional ids (`producers`), one group of each protocol (`groups`) and a client that reads offsets. `books` has the
rules. After the faults, the last stable offset reaches the high watermark, every id completes a transaction, and every group becomes
stable, each within the time that the protocols specify.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from kops.config.values.java_hash import partition_of
from kops.protocol.messages import AlterPartitionReassignmentsRequest
from kops.protocol.messages.alter_partition_reassignments_request import ReassignablePartition, ReassignableTopic
from kops.protocol.messages.create_topics_request import CreatableTopic, CreatableTopicConfig
from kops.records import read_batches
from kops.storage.log_offsets import Isolation
from kops.storage.unified_log import UnifiedLog
from tests.simulation.coordinators.actors import GROUP, Actor, Script
from tests.simulation.coordinators.books import OffsetBook, OwnerBook, Place, TransactionalLedger, TransactionBook
from tests.simulation.coordinators.groups import (
    HEARTBEAT_MS,
    REBALANCE_MS,
    SESSION_MS,
    ClassicMember,
    ConsumerMember,
    Member,
    OffsetReader,
    whole,
)
from tests.simulation.coordinators.producers import LAST_TIMEOUT_MS, CommittedReader, Producer, read_committed
from tests.simulation.node_admin import MIN_INSYNC, TIMEOUT_MS, SimAdmin
from tests.simulation.node_checks import READ_BYTES, Checks, Ledger
from tests.simulation.node_client import Flow, SimClient
from tests.simulation.node_world import EVERYTHING, Mix, NodeWorld

if TYPE_CHECKING:
    from tests.simulation.node_world import SimNode

PAYMENTS, INPUTS = "payments", "inputs"
"""The topic that transactional producers write to, and the topic whose partitions the groups consume."""
OFFSETS_TOPIC, TRANSACTIONS_TOPIC = "__consumer_offsets", "__transaction_state"
INTERNAL = (OFFSETS_TOPIC, TRANSACTIONS_TOPIC)
INTERNAL_PARTITIONS = 2
PAYMENT_PARTITIONS, INPUT_PARTITIONS, MOST_INPUT_PARTITIONS = 3, 3, 5
IDS = ("amber", "birch", "cedar")
CLASSIC, CONSUMER = "classic", "consumer"
MEMBERS = 3
ABORT_INTERVAL_MS = 500
BOUND_MS = 12_000
"""How much longer than the protocols' own times everything may take after the faults, because of connections, elections and slow disks."""
SETTINGS: dict[str, str | int] = {
    "offsets.topic.num.partitions": INTERNAL_PARTITIONS,
    "transaction.state.log.num.partitions": INTERNAL_PARTITIONS,
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": ABORT_INTERVAL_MS,
    "offsets.commit.timeout.ms": 3_000,
    "internal.metadata.log.segment.bytes": 6_000,
    "group.min.session.timeout.ms": 1_000,
    "group.initial.rebalance.delay.ms": 300,
    "group.consumer.session.timeout.ms": SESSION_MS,
    "group.consumer.min.session.timeout.ms": 1_000,
    "group.consumer.heartbeat.interval.ms": HEARTBEAT_MS,
    "group.consumer.min.heartbeat.interval.ms": HEARTBEAT_MS,
}


class CoordinatorWorld(NodeWorld):
    """The nodes, their clients and an administrator."""

    payments, inputs = PAYMENTS, INPUTS

    def __init__(self, seed: int, *, mix: Mix = EVERYTHING, is_traced: bool = False) -> None:
        self.transactions = TransactionBook()
        self.offsets = OffsetBook(self.transactions)
        self.owners: OwnerBook[int] = OwnerBook()
        self._input_numbers = list(range(INPUT_PARTITIONS))
        super().__init__(seed, mix=mix, is_traced=is_traced)
        self.checks = CoordinatorChecks(self)
        self.payment_numbers = tuple(range(PAYMENT_PARTITIONS))
        self.transactional_groups = tuple(f"copies of {one}" for one in IDS)
        self.groups = (CLASSIC, CONSUMER, *self.transactional_groups)
        self.director = Director(self)

    def draw_topics(self) -> tuple[str, ...]:
        """Return the topics of these lives."""
        return PAYMENTS, INPUTS

    def draw_settings(self) -> dict[str, str | int]:
        """Return short times, so that every event happens within a life."""
        return {**SETTINGS, "group.consumer.assignment.interval.ms": self.clock.random.choice((0, 500))}

    def make_client(self) -> SimClient:
        """Return a client that reads committed records."""
        return CommittedClient(self)

    def make_admin(self) -> SimAdmin:
        """Return an administrator that also moves the coordinators."""
        return CoordinatorAdmin(self, self.client)

    def make_ledger(self, topic: str, topic_id: bytes, number: int) -> Ledger:
        """Return the ledger of a new partition."""
        return TransactionalLedger(f"{topic}-{number}", topic_id, topic, number)

    # facts --------------------------------------------------------------------------------------------------------------------------

    def topic_id(self, topic: str) -> bytes:
        """Return the id of one of the topics."""
        return self.client.topic_ids[topic]

    @property
    def inputs_id(self) -> bytes:
        """The id of the topic that groups subscribe to."""
        return self.topic_id(INPUTS)

    def payment_ledger(self, number: int) -> Ledger:
        """Return the ledger of a partition that the producers write to."""
        return self.checks.ledgers[self.topic_id(PAYMENTS), number]

    def input_numbers(self) -> list[int]:
        """Return the numbers of the partitions that groups consume."""
        topic = self.latest_image().topics.by_name.get(INPUTS)
        self._input_numbers = self._input_numbers if topic is None else sorted(topic.partitions)
        return self._input_numbers

    def places_of(self, group: str) -> tuple[str, list[int]]:
        """Return the topic and the partitions for which a group commits offsets."""
        if group in self.transactional_groups:
            return PAYMENTS, list(self.payment_numbers)
        return INPUTS, self.input_numbers()

    def members_of(self, group: str) -> list[Member]:
        """Return the living members of a group, including those that were removed from it and do not know it yet."""
        return [one for one in self.director.members.values() if one.group == group and not one.is_gone]

    def coordinates(self, node_id: int, kind: int, key: str) -> bool:
        """Return whether a node coordinates a group or id, and no later coordinator exists."""
        topic = OFFSETS_TOPIC if kind == GROUP else TRANSACTIONS_TOPIC
        number = partition_of(key, INTERNAL_PARTITIONS)
        image = self.latest_image()
        registered = image.topics.by_name[topic].partitions.get(number) if topic in image.topics.by_name else None
        found = self.nodes[node_id].partition(topic, number)
        return (
            self.is_newest(image)
            and registered is not None
            and found is not None
            and found.is_leader
            and found.leader_epoch == registered.leader_epoch
        )

    def coordinators(self) -> list[SimNode]:
        """Return the nodes that lead a partition of the coordinators' topics."""
        topics = self.latest_image().topics.by_name
        leaders = [one.leader for topic in INTERNAL if topic in topics for one in topics[topic].partitions.values()]
        return [self.nodes[one] for one in sorted(set(leaders)) if one in self.nodes]

    def is_stable(self) -> bool:
        """Return whether no transaction is open in any partition, so that each leader's last stable offset is its high watermark."""
        for topic in (PAYMENTS, OFFSETS_TOPIC):
            found = self.latest_image().topics.by_name.get(topic)
            for number, one in () if found is None else found.partitions.items():
                log = self.nodes[one.leader].log(topic, number) if one.leader in self.nodes else None
                if log is None or log.last_stable_offset != log.high_watermark:
                    return False
        return True

    # a life -------------------------------------------------------------------------------------------------------------------------

    def start(self) -> None:
        """Start the nodes, create the topics and start the clients."""
        super().start()
        self.run_until(lambda: len(self.checks.ledgers) >= PAYMENT_PARTITIONS + INPUT_PARTITIONS, "all partitions")
        self.director.begin()
        self.run_for(2_500)

    def end_work(self) -> None:
        """Let all transactions end and the groups become stable, in time."""
        director = self.director
        self.run_until(self.is_in_sync, "all replicas in sync")
        director.end()
        self.run_until(director.are_groups_whole, "stable groups", SESSION_MS + 2 * REBALANCE_MS + BOUND_MS)
        self.run_until(director.are_ids_done, "a transaction of each id", LAST_TIMEOUT_MS + BOUND_MS)
        self.run_until(self.is_stable, "the last stable offset at the high watermark", LAST_TIMEOUT_MS + ABORT_INTERVAL_MS + BOUND_MS)
        director.read_all()
        self.run_until(director.is_all_read, "all offsets")
        super().end_work()

    def _count(self) -> None:
        super()._count()
        txns = self.transactions.txns.values()
        self.counts["transactions of nobody knows what"] = sum(one.commit_sent_ms is not None and one.committed_ms is None for one in txns)
        self.counts["such that were committed"] = sum(one.committed_ms is None and bool(one.seen) for one in txns)
        self.counts["producers fenced"] = len(self.transactions.fenced_ms)


class CommittedClient(SimClient):
    """A client that reads committed records."""

    def new_flow(self, ledger: Ledger) -> Flow:
        """Return the reader of a partition."""
        return CommittedReader(self, ledger) if ledger.topic == PAYMENTS else NothingToRead(self, ledger)


class NothingToRead(Flow):
    """A partition without records."""

    def begin(self) -> None:
        """Do nothing."""

    @property
    def is_idle(self) -> bool:
        """Always true."""
        return True


class CoordinatorAdmin(SimAdmin):
    """An administrator. In half of the lives it creates the coordinators' topics itself, so that their logs are rolled and cleaned within a
    life.
    """

    def __init__(self, world: NodeWorld, client: SimClient) -> None:
        super().__init__(world, client)
        self._makes_internal = self.chance.random() < 0.5

    def makers(self) -> dict[str, Callable[[], CreatableTopic]]:
        """Return the topics that must exist, with the function that makes the request for each."""
        made: dict[str, Callable[[], CreatableTopic]] = {
            PAYMENTS: lambda: self._topic(PAYMENTS, PAYMENT_PARTITIONS, {}),
            INPUTS: lambda: self._topic(INPUTS, INPUT_PARTITIONS, {}),
        }
        if self._makes_internal:
            small: dict[str, str | int] = {
                "cleanup.policy": "compact",
                "internal.segment.bytes": 3_000,
                "min.cleanable.dirty.ratio": "0.01",
            }
            # Keep tombstones. A replica that is down for longer than `delete.retention.ms` would never see them.
            small |= {"file.delete.delay.ms": 1_000}
            made |= {name: lambda name=name: self._topic(name, INTERNAL_PARTITIONS, small) for name in INTERNAL}  # type: ignore[misc]
        return made

    def _topic(self, name: str, count: int, configs: dict[str, str | int]) -> CreatableTopic:
        configs = {"min.insync.replicas": MIN_INSYNC, **configs}
        return CreatableTopic(name, count, 3, [], [CreatableTopicConfig(key, str(value)) for key, value in configs.items()])

    def do_something(self) -> None:
        """Do one random thing."""
        self.chance.choice((self.reassign, self.reassign, self.elect, self.add_partition, self.move))()

    def reassign(self) -> None:
        """Change the order of a partition's replicas, so that another node becomes its preferred leader."""
        topics = self.world.latest_image().topics.by_name
        name = self.chance.choice([one for one in (*INTERNAL, *INTERNAL, PAYMENTS) if one in topics])
        number = self.chance.choice(sorted(topics[name].partitions))
        replicas = self.chance.sample(self.world.brokers, 3)
        topic = ReassignableTopic(name, [ReassignablePartition(number, replicas)])
        self._ask(AlterPartitionReassignmentsRequest(TIMEOUT_MS, topics=[topic]), f"moves {name}-{number} to {replicas}")
        self.world.clock.at(self.chance.uniform(100, 1_000), self.elect)

    def add_partition(self) -> None:
        """Add a partition to the topic of the groups."""
        self.add_partition_of(INPUTS, MOST_INPUT_PARTITIONS)


class CoordinatorChecks(Checks):
    """The checks for any nodes, and those of the books."""

    world: CoordinatorWorld

    def look_at_all(self) -> None:
        """Check that every replica shows the same transactions, each of them completely."""
        super().look_at_all()
        for node in self.world.nodes.values():
            for number in self.world.payment_numbers:
                log = node.log(PAYMENTS, number)
                if log is not None:
                    self._read_all(log, self.world.payment_ledger(number), f"node {node.id}, {PAYMENTS}-{number}")
        self.world.transactions.check_all()
        self.world.offsets.check_last(self.world.director.last_read)

    def _read_all(self, log: UnifiedLog, ledger: Ledger, who: str) -> None:
        offset = 0
        while offset < log.last_stable_offset:
            found = log.read(offset, READ_BYTES, Isolation.TXN_COMMITTED, min_one_batch=True)
            assert found.records is not None, f"{who}: nothing can be read at {offset}"
            batches = read_batches(found.records.read_at(found.records.start, found.records.size))
            aborted = [(one.producer_id, one.first_offset) for one in found.aborted_transactions or ()]
            offset = read_committed(self.world, ledger, batches, offset, log.last_stable_offset, aborted, who)


class Director:
    """Starts and ends the lives of the clients. Producers follow producers, and members follow members."""

    def __init__(self, world: CoordinatorWorld) -> None:
        self.world = world
        self.chance = world.clock.random
        self.members: dict[str, Member] = {}
        self._actor = Actor(world, "director")
        self._producers: dict[str, list[Producer]] = {one: [] for one in IDS}
        self._versions = {one: self.chance.choice(((0,), (2,), (0, 2))) for one in IDS}
        self._final: dict[str, Producer] = {}
        self._left_to_read: set[str] = set()
        self.last_read: dict[Place, int] = {}
        self._is_ending = False
        self._member_count = 0

    def begin(self) -> None:
        """Start all clients."""
        for one in IDS:
            self._actor.start(self._follow(one))
        for group in (CLASSIC, CONSUMER):
            for slot in range(MEMBERS):
                self._actor.start(self._replace(group, slot))
        self._reader = OffsetReader(self.world)

    def _new_producer(self, transactional_id: str) -> Producer:
        lives = self._producers[transactional_id]
        producer = Producer(self.world, transactional_id, len(lives), self.chance.choice(self._versions[transactional_id]))
        lives.append(producer)
        return producer

    def _follow(self, transactional_id: str) -> Script:
        """Start one producer of an id after another. The one before may continue."""
        while not self._is_ending:
            before = self._producers[transactional_id][-1:]
            producer = self._new_producer(transactional_id)
            if before and self.chance.random() < 0.4:
                before[0].vanish()
            end_ms = self.world.clock.now_ms + self.chance.uniform(1_000, 9_000)
            while not producer.is_gone and not self._is_ending and self.world.clock.now_ms < end_ms:
                yield self._actor.pause(100, 300)

    def _replace(self, group: str, slot: int) -> Script:
        """Let a member join, leave, die or stall, and start the next one."""
        yield self._actor.pause(0, 1_000)
        while not self._is_ending:
            self._member_count += 1
            name = f"{group}-{slot}-{self._member_count}"
            kind = ClassicMember if group == CLASSIC else ConsumerMember
            member = self.members[f"{group} {slot}"] = kind(self.world, group, name)
            yield self._actor.pause(2_000, 15_000)
            if self._is_ending:
                break
            what = self.chance.random()
            if what < 0.4:
                member.is_leaving = True
            elif what < 0.7:
                member.vanish()
            else:
                member.stall_ms = self.chance.uniform(0.5, 2.5) * SESSION_MS
                yield self._actor.pause(4_000, 10_000)
                member.is_leaving = True
            while member.is_leaving and not member.is_gone and not self._is_ending:
                yield self._actor.pause(50, 200)

    # the end ----------------------------------------------------------------------------------------------------------------------

    def end(self) -> None:
        """Replace no more clients, and start a last producer for each id, which must complete a transaction."""
        self._is_ending = True
        for one in IDS:
            for producer in self._producers[one]:
                if not producer.is_initialized or self.chance.random() < 0.6:
                    producer.vanish()
            self._actor.start(self._finish(one))

    def _finish(self, transactional_id: str) -> Script:
        """Run the last producer of an id, and another one if an earlier producer gets its epoch late and fences it."""
        producer = None
        while producer is None or not producer.is_done:
            producer = self._final[transactional_id] = self._new_producer(transactional_id)
            producer.is_last = True
            while not producer.is_done and not producer.is_gone:
                yield self._actor.pause(50, 100)

    def are_ids_done(self) -> bool:
        """Return whether the last producers have completed their transactions."""
        return len(self._final) == len(IDS) and all(one.is_done for one in self._final.values())

    def are_groups_whole(self) -> bool:
        """Return whether the remaining members have all partitions."""
        numbers = self.world.input_numbers()
        found = {group: [one for one in self.world.members_of(group) if not one.is_leaving] for group in (CLASSIC, CONSUMER)}
        return all(whole(numbers, members) for members in found.values() if members)

    def read_all(self) -> None:
        """Read the offsets of all groups once more."""
        for one in self._final.values():
            one.vanish()
        self._left_to_read = set(self.world.groups)
        for group in self.world.groups:
            self._reader.start(self._read(group))

    def is_all_read(self) -> bool:
        """Return whether the offsets of all groups were read."""
        return not self._left_to_read

    def _read(self, group: str) -> Script:
        found = None
        while found is None:
            found = yield from self._reader.read(group, is_stable=True)
            yield self._reader.pause(20, 100)
        self._left_to_read.discard(group)
        self.last_read.update({Place(group, number): value for number, value in found.items()})
