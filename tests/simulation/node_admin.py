"""What an administrator of the nodes of `node_world` does during faults: it creates, moves and deletes topics and creates them again."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from kops.errors import ApiError
from kops.protocol.declaration import Message
from kops.protocol.messages import (
    AlterPartitionReassignmentsRequest,
    AlterReplicaLogDirsRequest,
    CreatePartitionsRequest,
    CreateTopicsRequest,
    DeleteRecordsRequest,
    DeleteTopicsRequest,
    ElectLeadersRequest,
    IncrementalAlterConfigsRequest,
)
from kops.protocol.messages.alter_partition_reassignments_request import ReassignablePartition, ReassignableTopic
from kops.protocol.messages.alter_replica_log_dirs_request import AlterReplicaLogDir, AlterReplicaLogDirTopic
from kops.protocol.messages.create_partitions_request import CreatePartitionsTopic
from kops.protocol.messages.create_topics_request import CreatableTopic, CreatableTopicConfig
from kops.protocol.messages.delete_records_request import DeleteRecordsPartition, DeleteRecordsTopic
from kops.protocol.messages.delete_topics_request import DeleteTopicState
from kops.protocol.messages.incremental_alter_configs_request import AlterableConfig, AlterConfigsResource
from tests.simulation.node_checks import DELETE_RETENTION_MS, Ledger

if TYPE_CHECKING:
    from tests.simulation.node_client import SimClient
    from tests.simulation.node_world import NodeWorld

STABLE, CHANGING, COMPACTED = "orders", "events", "accounts"
"""A topic that keeps everything, a topic that loses its first records and is deleted and recreated, and a topic that keeps the last record
of each key."""

MIN_INSYNC = 2
TIMEOUT_MS = 3_000
MOST_PARTITIONS = 3
TOPIC_RESOURCE = 2


class SimAdmin:
    """An administrator. It sends each request once, to any node. The answers hardly matter."""

    def __init__(self, world: NodeWorld, client: SimClient) -> None:
        self.world = world
        self.client = client
        self.chance = world.clock.random
        self.deleted: set[bytes] = set()
        # A request may take effect late, on the next topic of the same name.
        self.asked_starts: dict[tuple[str, int], int] = {}
        self._asked_retention: dict[str, int] = {}
        self.replication_factor = self.chance.choice((2, 3))
        self.retention_bytes = self.chance.choice((None, 3_000))
        self.retention_ms = self.chance.choice((None, None, 4_000))
        self.segment_bytes = self.chance.choice((1_500, 4_000))

    # topics -----------------------------------------------------------------------------------------------------------------------

    def create_topics(self) -> None:
        """Create the topics that are missing, now and again and again."""
        image = self.world.latest_image()
        makers = self.makers()
        missing = [name for name in makers if name not in image.topics.by_name] if self.world.is_newest(image) else []
        if missing:
            topics = [makers[name]() for name in missing]
            self._ask(CreateTopicsRequest(topics, TIMEOUT_MS), "creates " + ", ".join(missing))
        if missing or set(self.client.topic_ids) != set(self.world.topics):
            self.client.refresh()
        self.client.later(self.create_topics, 200, 1_000)

    def makers(self) -> dict[str, Callable[[], CreatableTopic]]:
        """Return the topics that must exist, with the function that makes the request for each."""
        makers = {STABLE: self._stable, CHANGING: self._changing, COMPACTED: self._compacted}
        return {name: makers[name] for name in self.world.topics}

    def _stable(self) -> CreatableTopic:
        configs = {"min.insync.replicas": MIN_INSYNC}
        return CreatableTopic(STABLE, 2, 3, [], [CreatableTopicConfig(name, str(value)) for name, value in configs.items()])

    def _changing(self) -> CreatableTopic:
        configs = {"min.insync.replicas": MIN_INSYNC, "internal.segment.bytes": self.segment_bytes, "file.delete.delay.ms": 1_000}
        if self.retention_bytes is not None:
            configs["retention.bytes"] = self.retention_bytes
        if self.retention_ms is not None:
            configs["retention.ms"] = self.retention_ms
        given = [CreatableTopicConfig(name, str(value)) for name, value in configs.items()]
        return CreatableTopic(CHANGING, 1, self.replication_factor, [], given)

    def _compacted(self) -> CreatableTopic:
        configs = {
            "min.insync.replicas": MIN_INSYNC,
            "cleanup.policy": "compact",
            "internal.segment.bytes": 250,
            "min.cleanable.dirty.ratio": "0.01",
            "delete.retention.ms": DELETE_RETENTION_MS,
            "file.delete.delay.ms": 1_000,
        }
        return CreatableTopic(COMPACTED, 1, 3, [], [CreatableTopicConfig(name, str(value)) for name, value in configs.items()])

    def new_ledger(self, ledger: Ledger) -> None:
        """Set what may be deleted from a new partition."""
        ledger.asked_start = self.asked_starts.get((ledger.topic, ledger.partition), 0)
        if ledger.topic == CHANGING:
            ledger.may_retain(self.retention_bytes, self.retention_ms)
            ledger.may_retain(self._asked_retention.get("retention.bytes"), self._asked_retention.get("retention.ms"))

    # actions ----------------------------------------------------------------------------------------------------------------------

    def do_something(self) -> None:
        """Do one random thing."""
        work = (self.reassign, self.elect, self.recreate, self.recreate, self.add_partition, self.configure, self.delete_records, self.move)
        self.chance.choice(work)()

    def reassign(self) -> None:
        """Ask for other replicas of a partition, or for another order of them."""
        ledger = self._any_ledger()
        if ledger is not None:
            count = self.replication_factor if ledger.topic == CHANGING else 3
            replicas = self.chance.sample(self.world.brokers, count)
            topic = ReassignableTopic(ledger.topic, [ReassignablePartition(ledger.partition, replicas)])
            self._ask(AlterPartitionReassignmentsRequest(TIMEOUT_MS, topics=[topic]), f"moves {ledger.name} to {replicas}")

    def elect(self) -> None:
        """Elect the preferred leaders."""
        self._ask(ElectLeadersRequest(0, None, TIMEOUT_MS), "elects preferred leaders")

    def recreate(self) -> None:
        """Delete a topic. `create_topics` creates it again."""
        topic_id = self.client.topic_ids.get(CHANGING)
        if topic_id is not None and not self.world.is_gone(topic_id):
            self.deleted.add(topic_id)
            self._ask(DeleteTopicsRequest([DeleteTopicState(None, topic_id)], timeout_ms=TIMEOUT_MS), f"deletes {CHANGING}")

    def add_partition(self) -> None:
        """Add a partition to one of the topics."""
        self.add_partition_of(self.chance.choice(self.world.topics), MOST_PARTITIONS)

    def add_partition_of(self, name: str, most: int) -> None:
        """Add a partition to a topic that has fewer than `most`."""
        topic = self.world.latest_image().topics.by_name.get(name)
        if topic is not None and len(topic.partitions) < most:
            count = len(topic.partitions) + 1
            wanted = CreatePartitionsTopic(name, count, None)
            self._ask(CreatePartitionsRequest([wanted], TIMEOUT_MS), f"wants {count} partitions of {name}")

    def configure(self) -> None:
        """Change the retention or the size of segments."""
        name, values = self.chance.choice(
            (("retention.bytes", (2_000, 6_000)), ("retention.ms", (3_000, 8_000)), ("internal.segment.bytes", (1_400, 8_000)))
        )
        value = self.chance.choice(values)
        asked = self._asked_retention
        asked[name] = min(value, asked.get(name, value))
        for ledger in self.world.checks.ledgers.values():
            if ledger.topic == CHANGING:
                ledger.may_retain(asked.get("retention.bytes"), asked.get("retention.ms"))
        resource = AlterConfigsResource(TOPIC_RESOURCE, CHANGING, [AlterableConfig(name, 0, str(value))])
        self._ask(IncrementalAlterConfigsRequest([resource]), f"sets {name}={value}")

    def delete_records(self) -> None:
        """Delete the first records of a partition, but not the last acknowledged batch, because its answer may be lost."""
        ledger = self._any_ledger(CHANGING)
        offset = 0 if ledger is None or len(ledger.sent) < 3 else ledger.sent[-3].end_offset
        if ledger is not None and offset > ledger.start_offset:
            offset = self.chance.randint(ledger.start_offset, offset)
            key = ledger.topic, ledger.partition
            self.asked_starts[key] = max(offset, self.asked_starts.get(key, 0))
            ledger.asked_start = max(offset, ledger.asked_start)
            topic = DeleteRecordsTopic(ledger.topic, [DeleteRecordsPartition(ledger.partition, offset)])
            self._ask(DeleteRecordsRequest([topic], TIMEOUT_MS), f"deletes {ledger.name} below {offset}", self.client.leader(ledger))

    def move(self) -> None:
        """Move a replica to another directory of its node."""
        ledger, node = self._any_ledger(), self.client.any_node()
        if ledger is not None and len(self.world.log_dirs) > 1:
            path = self.chance.choice(self.world.log_dirs)
            directory = AlterReplicaLogDir(path, [AlterReplicaLogDirTopic(ledger.topic, [ledger.partition])])
            self._ask(AlterReplicaLogDirsRequest([directory]), f"moves {ledger.name} of node {node} to {path}", node)

    def _any_ledger(self, topic: str | None = None) -> Ledger | None:
        found = [one for one in self.world.checks.ledgers.values() if topic in (None, one.topic) and not self.world.is_gone(one.topic_id)]
        return self.chance.choice(found) if found else None

    def _ask(self, message: Message, what: str, node: int | None = None) -> None:
        world = self.world
        node = self.client.any_node() if node is None else node
        world.say(f"admin: {what}, asks node {node}")

        def answered(answer: Message | ApiError) -> None:
            world.tell(lambda: f"admin: {what}: {str(answer)[:200]}")

        world.clock.at(0, lambda: self.client.send(node, message, answered), self.client.host)
