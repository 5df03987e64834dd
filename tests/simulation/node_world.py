"""A cluster of whole nodes of kops and their clients, in the world of `sim_world`.

There are three or four nodes. They are brokers, controllers or both (`SHAPES`) and have their own disks (`sim_disk`). A client produces and
consumes (`node_client`), and an administrator changes topics (`node_admin`). The faults (`node_faults`) are drawn from a seed. The rules
(`node_checks`) are checked all the time and at the end, when all faults are over and every replica gets in sync.
"""

from __future__ import annotations

import contextlib
import functools
import random
from collections import Counter
from collections.abc import Callable, Iterator
from types import ModuleType
from typing import NamedTuple

from kops.broker.life import broker_server, log_start
from kops.broker.life.node import Node
from kops.broker.network import acceptor
from kops.broker.quorum import format as node_format
from kops.broker.quorum import metadata_directory
from kops.broker.quorum.format import FormatOptions, format_node
from kops.config import BrokerConfig
from kops.errors import KopsError
from kops.files.tree import MemoryFiles
from kops.metadata.directory_id import UNASSIGNED
from kops.metadata.image.metadata_image import MetadataImage
from kops.metadata.partition_registration import PartitionRegistration
from kops.metadata.raft.node import node as raft_node
from kops.records.log_offsets import TopicPartition
from kops.replication.leading.partition import Partition
from kops.storage.formats.kafka_uuid import uuid_text
from kops.storage.start.log_dirs import Runner, run_in_turn
from kops.storage.unified_log import UnifiedLog
from tests.simulation.node_admin import CHANGING, COMPACTED, MIN_INSYNC, STABLE, SimAdmin
from tests.simulation.node_checks import VOTERS, Checks, CompactedLedger, Ledger
from tests.simulation.node_client import BROKER_PORT, SimClient
from tests.simulation.sim_disk import Failure, SimDisk, remove_tree
from tests.simulation.sim_world import START_MS, Clock, Host, SimLoop, SocketModule
from tests.support.parts.controlling import CLUSTER_ID

SHAPES: dict[str, dict[int, str]] = {
    "combined": {1: "broker,controller", 2: "broker,controller", 3: "broker,controller"},
    "a broker beside": {1: "broker,controller", 2: "broker,controller", 3: "broker,controller", 4: "broker"},
    "all kinds": {1: "controller", 2: "broker,controller", 3: "broker,controller", 4: "broker"},
}
"""The nodes of a life: id → `process.roles`. All controllers are voters."""


class Mix(NamedTuple):
    """The choices for lives: the shapes of clusters, the proportion with a compacted topic, the failures of disks, and the weight of disk
    failures among the disturbances (about 30 in all).
    """

    shapes: tuple[str, ...] = ("combined", "combined", "combined", "a broker beside", "all kinds")
    compacted: float = 0.5
    failures: tuple[Failure, ...] = ("full", "dead", "bad", "unreadable", "bad logs", "bad logs", "bad read")
    disks: int = 5

    def shape(self, chance: random.Random) -> str:
        """Return one of the shapes."""
        return chance.choice(self.shapes) if len(self.shapes) > 1 else self.shapes[0]

    def is_compacted(self, chance: random.Random) -> bool:
        """Return whether a life has a compacted topic."""
        return chance.random() < self.compacted if 0 < self.compacted < 1 else bool(self.compacted)


EVERYTHING = Mix()
CONTROLLER_PORT = 9093
METADATA_DIR, OTHER_DIR = "/a", "/b"
CHECK_EVENTS = 100
METADATA_CLEAN_MS = 2_000
"""How often the metadata log is cleaned up to its latest snapshot. Lives are too short for the usual interval."""
SETTINGS = {
    "controller.listener.names": "CONTROLLER",
    "metadata.log.dir": METADATA_DIR,
    "min.insync.replicas": MIN_INSYNC,
    "log.flush.interval.messages": "1",
    "log.index.size.max.bytes": 4096,
    "log.cleaner.dedupe.buffer.size": 2 << 20,
    "log.cleaner.io.buffer.size": 4096,
    "log.cleaner.backoff.ms": 700,
    "log.initial.task.delay.ms": 500,
    "log.retention.check.interval.ms": 1500,
    "log.flush.offset.checkpoint.interval.ms": 3000,
    "log.flush.start.offset.checkpoint.interval.ms": 3000,
    "replica.high.watermark.checkpoint.interval.ms": 2000,
    "broker.session.timeout.ms": 3000,
    "broker.heartbeat.interval.ms": 500,
    "replica.lag.time.max.ms": 3000,
    "request.timeout.ms": 5000,
    "replica.socket.timeout.ms": 5000,
    "controller.socket.timeout.ms": 3000,
    "controller.quorum.election.timeout.ms": 500,
    "controller.quorum.fetch.timeout.ms": 1000,
    "controller.quorum.request.timeout.ms": 1000,
    "auto.create.topics.enable": "false",
}
SNAPSHOTS = {
    "metadata.log.max.record.bytes.between.snapshots": 2_500,
    "internal.metadata.log.segment.bytes": 1_500,
    "metadata.max.retention.bytes": 4_000,
    "internal.metadata.delete.delay.millis": 1_000,
}
"""Settings of lives in which the metadata log is cleaned up to its snapshots."""

Seam = tuple[ModuleType, str, object]
"""A module, a name in it, and the object that replaces it."""


class SeededDraws:
    """A node's source of random numbers, taken from that of the world."""

    def __init__(self, chance: random.Random) -> None:
        self._random = chance

    def next_int(self, bound: int) -> int:
        """Return a number from 0 to below `bound`."""
        return self._random.randrange(bound)

    def uuid(self) -> bytes:
        """Return 16 random bytes."""
        return self._random.randbytes(16)


class SimNode:
    """A machine with a disk and, while it runs, a node of kops."""

    def __init__(self, world: NodeWorld, node_id: int, roles: str, extra: tuple[tuple[str, str | int], ...]) -> None:
        self.world = world
        self.id = node_id
        self.host = Host(world.clock, address_of(node_id))
        self.node: Node | None = None
        self.failures: list[str] = []
        self.has_bad_disk = self.lost_data = False
        self._ends: dict[tuple[str | None, int], int] = {}
        self.config, formatted = formatted_disk(node_id, roles, world.log_dirs, extra)
        self.is_broker = self.config.is_broker
        self.disk = SimDisk(world.wall_ms, world.clock.random, formatted)

    def start(self, *, has_bad_disk: bool = False) -> None:
        """Start a new process with the contents of the disk."""
        self.host.generation += 1
        self.host.is_off = False
        self.disk.locks.clear()
        self.disk.is_at_work = lambda: self.world.clock.current is self.host
        self.failures.clear()
        self.has_bad_disk = has_bad_disk
        node = self.node = Node(SimLoop(self.host), self.config, files=self.disk, draws=SeededDraws(self.world.clock.random))
        node.on_failed = self._failed
        self.world.say(f"node {self.id} starts")

        def begin() -> None:
            try:
                node.start()
            except KopsError as error:
                self._failed(str(error))

        self.world.clock.at(0, begin, self.host)

    def _failed(self, reason: str) -> None:
        self.world.say(f"node {self.id} ended: {reason}")
        self.failures.append(reason)
        self.world.counts["nodes ended"] += 1
        self.kill()

    def kill(self) -> None:
        """Kill the node with kill -9. Everything that it has written stays."""
        self._remember()
        self.host.kill()
        self.node = None

    def lose_power(self, *, keeps_failing: bool = False) -> None:
        """Let the machine lose power. Data that was not synced may be lost, torn or written in another order."""
        self._remember()
        self.host.switch_off()
        self.node = None
        before = self.disk
        self.disk = before.rebooted()
        if keeps_failing:
            self.disk.keep_failing(before)

    def wipe(self, path: str) -> None:
        """Replace a directory of a node that does not run with an empty one."""
        remove_tree(self.disk, path)
        format_node(self.disk, self.config, FormatOptions(CLUSTER_ID, ignore_formatted=True), now_ms=0)
        self.disk.sync_all()
        self.lost_data = True

    # state --------------------------------------------------------------------------------------------------------------------------

    @property
    def is_serving(self) -> bool:
        """Whether the node runs and, if it is a broker, is ready."""
        node = self.node
        return node is not None and (node.broker is not None and node.broker._is_ready if self.is_broker else node.controller is not None)

    def partitions(self) -> list[Partition]:
        """Return the partitions that the running node serves."""
        broker = None if self.node is None else self.node.broker
        return [] if broker is None or not broker.is_started else list(broker.parts.replica_manager.hosted.online.values())

    def partition(self, topic: str, number: int) -> Partition | None:
        """Return a partition that the running node serves, or None."""
        return next((one for one in self.partitions() if one.topic_partition == TopicPartition(topic, number)), None)

    def log(self, topic: str, number: int) -> UnifiedLog | None:
        """Return a log that the running node has open, or None."""
        broker = None if self.node is None else self.node.broker
        return None if broker is None else broker.parts.logs.current_logs.get(TopicPartition(topic, number))

    def end_offset(self, ledger: Ledger) -> int | None:
        """Return the end of the node's log of a partition. If the node does not run, return the end that the log had when the node ended.
        Return None if there is no such log or the log is being loaded.
        """
        topic_id, log = uuid_text(ledger.topic_id), self.log(ledger.topic, ledger.partition)
        if self.node is None:
            return self._ends.get((topic_id, ledger.partition))
        return log.log_end_offset if log is not None and log.topic_id == topic_id else None

    @property
    def metadata_end(self) -> int | None:
        """The end of the node's metadata log, or None if it does not run."""
        raft = None if self.node is None or self.node.shared is None else self.node.shared._raft
        return None if raft is None or raft.is_closed else raft.log.unified.log_end_offset

    def _remember(self) -> None:
        broker = None if self.node is None else self.node.broker
        if broker is not None and broker._are_logs_loaded:
            self._ends = {(log.topic_id, log.partition): log.log_end_offset for log in broker.parts.logs.current_logs.values()}

    @property
    def image(self) -> MetadataImage | None:
        """The metadata that the running node has, or None."""
        return None if self.node is None or self.node.shared is None else self.node.shared.image


class NodeWorld:
    """The nodes, a client and an administrator."""

    def __init__(self, seed: int, *, mix: Mix = EVERYTHING, is_traced: bool = False) -> None:
        self.seed = seed
        self.clock = Clock(seed)
        self.is_traced = is_traced
        self.said: list[str] = []
        chance = self.clock.random
        self.log_dirs = (METADATA_DIR, OTHER_DIR) if chance.random() < 0.5 else (METADATA_DIR,)
        extra = SNAPSHOTS if chance.random() < 0.5 else {}
        self.mix = mix
        shape = mix.shape(chance)
        self.topics = self.draw_topics()
        settings = tuple({**extra, **self.draw_settings()}.items())
        self._gone: set[bytes] = set()
        self._newest_offset = -1
        self._checked_at = 0
        self.latest_ms = 0.0
        self.furthest_behind_ms = 0.0
        self.nodes = {node_id: SimNode(self, node_id, roles, settings) for node_id, roles in SHAPES[shape].items()}
        self.brokers = [node_id for node_id, roles in SHAPES[shape].items() if "broker" in roles]
        self.checks = Checks(self)
        self.client = self.make_client()
        self.admin = self.make_admin()
        self.counts: Counter[str] = Counter()
        self.counts[f"lives of {shape}"] = 1
        told = f"{shape}, topics {', '.join(self.topics)}, log.dirs={','.join(self.log_dirs)}"
        self.say(f"{told}, {'snapshots' if extra else 'no snapshots'}")

    # what other kinds of worlds override -------------------------------------------------------------------------------------------

    def draw_topics(self) -> tuple[str, ...]:
        """Return the topics of this life."""
        return (STABLE, CHANGING, COMPACTED) if self.mix.is_compacted(self.clock.random) else (STABLE, CHANGING)

    def draw_settings(self) -> dict[str, str | int]:
        """Return settings of the nodes in addition to `SETTINGS`."""
        return {}

    def make_client(self) -> SimClient:
        """Return the client that produces and consumes."""
        return SimClient(self)

    def make_admin(self) -> SimAdmin:
        """Return the administrator, who creates and changes topics."""
        return SimAdmin(self, self.client)

    def make_ledger(self, topic: str, topic_id: bytes, number: int) -> Ledger:
        """Return the ledger of a new partition."""
        kind = CompactedLedger if topic == COMPACTED else Ledger
        return kind(f"{topic}-{number} ({topic_id.hex()[:6]})", topic_id, topic, number)

    def wall_ms(self) -> int:
        """Return the time for timestamps of files."""
        return int(START_MS + self.clock.now_ms)

    def latest_wall_ms(self) -> float:
        """Return the latest time that any node's clock shows."""
        return max(SimLoop(node.host).now_ms() for node in self.nodes.values())

    @property
    def latest_for_cleaners_ms(self) -> float:
        """Latest time with which a delete horizon may have been compared. A node whose clock was slow sets horizons that are early for
        itself, once its clock is right again, and for followers that copy its batches.
        """
        return self.latest_ms + self.furthest_behind_ms

    def say(self, what: str) -> None:
        """Add a line to the trace."""
        self.said.append(f"{self.clock.now_ms:10.1f} {what}")

    def tell(self, what: Callable[[], str]) -> None:
        """Add a line to the trace that is expensive to make. Does nothing unless the life is traced."""
        if self.is_traced:
            self.say(what())

    # running ------------------------------------------------------------------------------------------------------------------------

    def run_for(self, ms: float) -> None:
        """Run the world for some time, with checks now and then."""
        clock = self.clock
        end_ms = clock.now_ms + ms
        while clock.next_ms <= end_ms:
            clock.step()
            if clock.event_count - self._checked_at >= CHECK_EVENTS:
                self._checked_at = clock.event_count
                self.checks.look()
        clock.now_ms = max(clock.now_ms, end_ms)
        self.checks.look()

    def run_until(self, condition: Callable[[], bool], what: str, limit_ms: float = 120_000) -> None:
        """Run until the condition is true. Raises AssertionError after the limit."""
        end_ms = self.clock.now_ms + limit_ms
        while not condition():
            assert self.clock.now_ms < end_ms, f"{what} never came"
            self.run_for(100)

    def start(self) -> None:
        """Start all nodes and wait for the topics."""
        for node in self.nodes.values():
            node.start()
        self.admin.create_topics()
        self.run_until(lambda: set(self.client.topic_ids) == set(self.topics), "the topics")

    def settle(self) -> None:
        """End all faults. Check that everything sent is acknowledged, that all replicas get in sync, and that every promise is kept."""
        self.say("all is well again")
        self.clock.heal()
        for node in self.nodes.values():
            node.host.clock_offset_ms = 0
        self.client.is_ending = True
        self.end_work()
        self.run_until(self.is_in_sync, "all replicas in sync")
        self.run_for(3_000)
        self.run_until(self.checks.is_metadata_everywhere, "the metadata on all nodes")
        self.checks.look_at_all()
        self._count()

    def end_work(self) -> None:
        """Wait until the clients have finished their work."""
        self.run_until(lambda: self.client.is_idle, "the last acknowledgement")

    def _count(self) -> None:
        """Count the events of this life."""
        ledgers, nodes = self.checks.ledgers.values(), self.nodes.values()
        self.counts["records acknowledged"] = sum(ledger.acknowledged_end for ledger in ledgers)
        self.counts["leaders elected"] = len(self.checks.leaders)
        self.counts["leaders of the quorum elected"] = len(self.checks.quorum_leaders)
        self.counts["partitions deleted"] = sum(self.is_gone(ledger.topic_id) for ledger in ledgers)
        self.counts["partitions cut at their start"] = sum(ledger.start_offset > 0 for ledger in ledgers)
        compacted = [ledger for ledger in ledgers if isinstance(ledger, CompactedLedger)]
        self.counts["records compacted away"] = sum(len(ledger.seen_gone) for ledger in compacted)
        self.counts["tombstones compacted away"] = sum(
            ledger.records[one].value is None for ledger in compacted for one in ledger.seen_gone
        )
        self.counts["half messages"] = self.clock.half_messages
        self.counts["side work done and never told"] = sum(node.host.untold_at_death for node in nodes)
        self.counts["metadata logs cut at their start"] = sum(
            node.node.shared.raft.log.start_offset > 0 for node in nodes if node.node is not None and node.node.shared is not None
        )

    # facts --------------------------------------------------------------------------------------------------------------------------

    def latest_image(self) -> MetadataImage:
        """Return the newest metadata that a running node has."""
        images = [image for node in self.nodes.values() if (image := node.image) is not None]
        return max(images, key=lambda image: image.offset, default=MetadataImage())

    def is_orphaned(self, ledger: Ledger) -> bool:
        """Return whether a partition waits for a leader that was moved away from it. Kafka's controller keeps that leader among the
        eligible leaders (PartitionChangeBuilder), and so does that of kops. Only an unclean election ends this state.
        """
        found = self.latest_image().topics.partition(ledger.topic_id, ledger.partition)
        return found is not None and is_orphan(found)

    def is_placed(self, node: SimNode) -> bool:
        """Return whether the newest metadata has the directory of every replica of a node."""
        image = self.latest_image()
        partitions = [one for topic in image.topics.by_name.values() for one in topic.partitions.values() if node.id in one.replicas]
        return self.is_newest(image) and all(one.directories[one.replicas.index(node.id)] != UNASSIGNED for one in partitions)

    def is_gone(self, topic_id: bytes) -> bool:
        """Return whether a topic is deleted."""
        if topic_id not in self._gone and topic_id in self.admin.deleted:
            image = self.latest_image()
            if self.is_newest(image) and topic_id not in image.topics.by_id:
                self._gone.add(topic_id)
        return topic_id in self._gone

    def is_newest(self, image: MetadataImage) -> bool:
        """Return whether no node ever had newer metadata. The nodes that had it may be down."""
        self._newest_offset = max(self._newest_offset, image.offset)
        return image.offset == self._newest_offset

    def ledger_of(self, topic: str, topic_id: bytes, number: int) -> Ledger:
        """Return the ledger of a partition. Creates it if it is new."""
        key = topic_id, number
        if key not in self.checks.ledgers:
            ledger = self.checks.ledgers[key] = self.make_ledger(topic, topic_id, number)
            self.admin.new_ledger(ledger)
        return self.checks.ledgers[key]

    def leads(self, node_id: int, ledger: Ledger) -> bool:
        """Return whether a node leads a partition and no node has a later epoch of it. A node that is cut off does not know yet that it is
        no longer the leader.
        """
        found = {node.id: node.partition(ledger.topic, ledger.partition) for node in self.nodes.values()}
        asked = found[node_id]
        latest = max((one.leader_epoch for one in found.values() if one is not None), default=-1)
        return asked is not None and asked.is_leader and asked.leader_epoch == latest

    def check_replicated(self, ledger: Ledger, end_offset: int) -> None:
        """Check that `MIN_INSYNC` replicas and all members of the newest ISR have the records before `end_offset`."""
        ends = {node: self.nodes[node].end_offset(ledger) for node in self.brokers}
        having = sum(end is None or end >= end_offset for end in ends.values())
        assert having >= MIN_INSYNC, f"{ledger.name}: acknowledged up to {end_offset}, {having} replicas have it"
        image = self.latest_image()
        registration = image.topics.partition(ledger.topic_id, ledger.partition)
        if registration is not None and self.is_newest(image):
            for member in registration.isr:
                end = ends[member]
                is_there = end is None or end >= end_offset or self.nodes[member].lost_data
                assert is_there, f"{ledger.name}: acknowledged up to {end_offset}, node {member} is in the ISR with {end}"

    def is_in_sync(self) -> bool:
        """Return whether all nodes serve and, by the newest metadata, every partition has a leader and all its replicas in sync, or is an
        orphan.
        """
        if not all(node.is_serving for node in self.nodes.values()):
            return False
        image = self.latest_image()
        topics = image.topics.by_name
        return (
            self.is_newest(image)
            and all(name in topics for name in self.topics)
            and all(
                is_orphan(one)
                or (one.leader >= 0 and set(one.isr) == set(one.replicas) and not one.adding_replicas and not one.removing_replicas)
                for topic in topics.values()
                for one in topic.partitions.values()
            )
        )


# installation in the product ------------------------------------------------------------------------------------------------------------


@contextlib.contextmanager
def simulated(world: NodeWorld) -> Iterator[None]:
    """Give the product's modules the sockets and ids of the world, and let them load logs without threads."""
    ids = seeded_ids(world.clock.random)
    seams: list[Seam] = [
        (acceptor, "socket", SocketModule(world.clock)),
        *((module, "threads_runner", in_turn) for module in (log_start, broker_server)),
        *((module, "random_uuid", ids) for module in (node_format, metadata_directory)),
        (raft_node, "CLEAN_PERIOD_MS", METADATA_CLEAN_MS),
    ]
    with replaced(seams):
        yield


@contextlib.contextmanager
def replaced(seams: list[Seam]) -> Iterator[None]:
    """Replace names in modules while the block runs."""
    real = [getattr(module, name) for module, name, _ in seams]
    for module, name, other in seams:
        setattr(module, name, other)
    try:
        yield
    finally:
        for (module, name, _), found in zip(seams, real, strict=True):
            setattr(module, name, found)


def in_turn(threads_per_dir: int) -> Runner:
    """Return a runner that loads one log after another."""
    return run_in_turn


def address_of(node_id: int) -> str:
    """Return the address of a node's machine."""
    return f"10.0.0.{node_id}"


@functools.cache
def formatted_disk(
    node_id: int, roles: str, log_dirs: tuple[str, ...], extra: tuple[tuple[str, str | int], ...]
) -> tuple[BrokerConfig, MemoryFiles]:
    """Return a node's configuration and the contents of its disk before its first start."""
    voters = ",".join(f"{one}@{address_of(one)}:{CONTROLLER_PORT}" for one in VOTERS)
    address = address_of(node_id)
    listening = {"broker": f"PLAINTEXT://{address}:{BROKER_PORT}", "controller": f"CONTROLLER://{address}:{CONTROLLER_PORT}"}
    listeners = ",".join(listening[role] for role in roles.split(","))
    own = {"process.roles": roles, "node.id": node_id, "controller.quorum.voters": voters, "listeners": listeners}
    own["log.dirs"] = ",".join(log_dirs)
    config = BrokerConfig.from_properties({name: str(value) for name, value in {**SETTINGS, **dict(extra), **own}.items()})
    files = MemoryFiles(now_ms=lambda: 0)
    with replaced([(node_format, "random_uuid", seeded_ids(random.Random(node_id)))]):
        format_node(files, config, FormatOptions(CLUSTER_ID), now_ms=0)
    return config, files


def seeded_ids(chance: random.Random) -> Callable[..., bytes]:
    """Return a function that replaces `random_uuid`."""
    return lambda taken=(): chance.randbytes(16)


def is_orphan(partition: PartitionRegistration) -> bool:
    """Return whether a partition has no leader and an eligible leader that is not one of its replicas."""
    return partition.leader < 0 and not set(partition.elr) <= set(partition.replicas)
