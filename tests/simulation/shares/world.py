"""Whole nodes as in `node_world`, with a share group. Its leaders and coordinators are killed, moved, paused and cut off.

Three members (`members`) read a topic. `book` has the rules. After the faults, every record is accepted, rejected or delivered as often as
allowed, and none is skipped.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kops.coordinators.share.key import SharePartitionKey
from kops.errors import ApiError
from kops.protocol.declaration import Message
from kops.protocol.messages import IncrementalAlterConfigsRequest, IncrementalAlterConfigsResponse
from kops.protocol.messages.incremental_alter_configs_request import AlterableConfig, AlterConfigsResource
from tests.simulation.node_admin import MIN_INSYNC, STABLE, SimAdmin
from tests.simulation.node_world import EVERYTHING, Mix, NodeWorld
from tests.simulation.shares.book import DELIVERIES, LOCK_MS, Place, ShareBook
from tests.simulation.shares.members import GROUP, Member

if TYPE_CHECKING:
    from kops.broker.shares.manager import SharePartitionManager
    from tests.simulation.node_checks import Ledger

GROUP_RESOURCE = 32
MEMBERS = 3
BOUND_MS = 90_000
"""More than the 30 seconds after which a group initializes the state of a partition again. A shorter time is not used: in Kafka, too, a
late initialization restarts a partition that was read meanwhile."""
SETTINGS: dict[str, str | int] = {
    "offsets.topic.num.partitions": 2,
    "share.coordinator.state.topic.num.partitions": 2,
    "share.coordinator.state.topic.min.isr": MIN_INSYNC,
    "group.share.heartbeat.interval.ms": 400,
    "group.share.min.heartbeat.interval.ms": 400,
    "group.share.session.timeout.ms": 3_000,
    "group.share.min.session.timeout.ms": 1_000,
    "group.share.assignment.interval.ms": 0,
    "group.share.min.record.lock.duration.ms": 1_000,
    "group.share.record.lock.duration.ms": LOCK_MS,
    "group.share.delivery.count.limit": DELIVERIES,
    "internal.metadata.log.segment.bytes": 6_000,
}


class ShareWorld(NodeWorld):
    """The nodes, their clients and an administrator."""

    shared = STABLE

    def __init__(self, seed: int, *, mix: Mix = EVERYTHING, is_traced: bool = False) -> None:
        self.book = ShareBook()
        self.members: list[Member] = []
        self.is_ending = False
        self._is_configured = False
        self._member_count = 0
        super().__init__(seed, mix=mix, is_traced=is_traced)

    def draw_topics(self) -> tuple[str, ...]:
        """Return the one topic."""
        return (STABLE,)

    def draw_settings(self) -> dict[str, str | int]:
        """Return short times, so that every event happens within a life."""
        return SETTINGS

    def make_admin(self) -> SimAdmin:
        """Return an administrator that moves leaders."""
        return ShareAdmin(self, self.client)

    # facts

    def manager(self, node_id: int) -> SharePartitionManager | None:
        """Return the share group manager of a running node, or None if it has none yet."""
        found = self.nodes.get(node_id)
        broker = None if found is None or found.node is None else found.node.broker
        return None if broker is None or not broker.is_started else broker.parts.shares.known

    def states(self, node_id: int) -> dict[SharePartitionKey, object]:
        """Return what a node currently keeps of each partition."""
        manager = self.manager(node_id)
        if manager is None:
            return {}
        keys = [SharePartitionKey(GROUP, ledger.topic_id, ledger.partition) for ledger in self.checks.ledgers.values()]
        return {key: manager.partitions.get(key) for key in keys}

    def _is_consumed(self, ledger: Ledger) -> bool:
        for node_id in self.brokers:
            manager, log = self.manager(node_id), self.nodes[node_id].log(ledger.topic, ledger.partition)
            if manager is not None and log is not None and self.leads(node_id, ledger):
                found = manager.partitions.get(SharePartitionKey(GROUP, ledger.topic_id, ledger.partition))
                return found is not None and found.cache.start_offset >= log.high_watermark
        return False

    def _is_answered(self) -> bool:
        return not any(member.book.open for member in self.members if not member.is_gone)

    # a life

    def start(self) -> None:
        """Start the nodes, create the topic, and let the group begin at its first record."""
        super().start()
        self._configure()
        self.run_until(lambda: self._is_configured, "the settings of the group")
        for _ in range(MEMBERS):
            self.add_member()
        self.run_until(lambda: self.counts["records acquired"] > 0, "the first record")

    def _configure(self) -> None:
        change = AlterConfigsResource(GROUP_RESOURCE, GROUP, [AlterableConfig("share.auto.offset.reset", 0, "earliest")])

        def done(answer: Message | ApiError) -> None:
            if isinstance(answer, IncrementalAlterConfigsResponse) and not answer.responses[0].error_code:
                self._is_configured = True
            else:
                self.client.later(self._configure)

        self.client.send(self.client.any_node(), IncrementalAlterConfigsRequest([change]), done)

    def add_member(self) -> None:
        """Start another member. Some members die after a while and are replaced."""
        self._member_count += 1
        member = Member(self, f"m{self._member_count}")
        self.members.append(member)
        if self.clock.random.random() < 0.6:
            self.client.later(lambda: self._replace(member), 1_000, 15_000)

    def _replace(self, member: Member) -> None:
        if not self.is_ending:
            member.vanish()
            self.counts["members died"] += 1
            self.add_member()

    def end_work(self) -> None:
        """Wait until everything that was written is consumed."""
        super().end_work()
        self.is_ending = True
        self.run_until(self.is_in_sync, "all replicas in sync")
        ledgers = list(self.checks.ledgers.values())
        self.run_until(lambda: all(map(self._is_consumed, ledgers)), "the end of all records", BOUND_MS)
        self.run_until(self._is_answered, "an outcome of each acknowledgement")
        for ledger in ledgers:
            places = (Place(ledger.partition, offset) for offset in range(ledger.acknowledged_end))
            passed = [place.offset for place in places if self.book.is_passed_over(place)]
            assert not passed, f"{ledger.name}: {passed} were passed over"


class ShareAdmin(SimAdmin):
    """An administrator that changes leaders."""

    def do_something(self) -> None:
        """Do one random thing."""
        self.chance.choice((self.reassign, self.elect, self.move))()
