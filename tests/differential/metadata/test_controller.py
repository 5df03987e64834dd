"""The controller against the real ReplicationControlManager, ClusterControlManager, ConfigurationControlManager and FeatureControlManager.

Random requests go to both. After each one, the records, the responses and the errors are compared, and each controller replays its own
records. The tests reproduce the random numbers of java.util.Random, so the placement of replicas is compared, too. The records of a request
that changes several partitions may come in another order, because Kafka takes them out of hash maps.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest

from kops.metadata.controller.base.result import ControllerResult, Record, RequestContext
from kops.metadata.controller.cluster.feature_versions import bootstrap_records
from kops.metadata.controller.cluster.settings import ControllerSettings
from kops.metadata.controller.controller import Controller
from kops.metadata.metadata_version import LATEST_PRODUCTION, from_level
from kops.metadata.partition_registration import PartitionRegistration
from kops.metadata.records import write_record
from kops.protocol import messages
from kops.protocol.declaration import Message
from kops.protocol.errors import by_name
from kops.protocol.messages.alter_configs_request import AlterableConfig as LegacyConfig
from kops.protocol.messages.alter_configs_request import AlterConfigsResource as LegacyResource
from kops.protocol.messages.alter_partition_reassignments_request import ReassignablePartition, ReassignableTopic
from kops.protocol.messages.alter_partition_request import BrokerState, PartitionData, TopicData
from kops.protocol.messages.assign_replicas_to_dirs_request import DirectoryData
from kops.protocol.messages.assign_replicas_to_dirs_request import PartitionData as AssignedPartition
from kops.protocol.messages.assign_replicas_to_dirs_request import TopicData as AssignedTopic
from kops.protocol.messages.create_partitions_request import CreatePartitionsAssignment, CreatePartitionsTopic
from kops.protocol.messages.delete_topics_request import DeleteTopicState
from kops.protocol.messages.elect_leaders_request import TopicPartitions
from kops.protocol.messages.incremental_alter_configs_request import AlterableConfig, AlterConfigsResource
from kops.protocol.messages.list_partition_reassignments_request import ListPartitionReassignmentsTopics
from kops.protocol.messages.update_features_request import FeatureUpdateKey
from tests.support.kafka.oracle import Oracle
from tests.support.kafka.real_controller import NODE_ID, RealController, RealError, StaleIndexError
from tests.support.parts.controlling import CLUSTER_ID, creation, directory, registration

BROKERS = range(1, 7)
SESSION_TIMEOUT_MS = 9_000
LATEST_EPOCH = 2**63 - 1
_MULTIPLIER, _MASK = 0x5DEECE66D, (1 << 48) - 1


class JavaDraws:
    """java.util.Random with a seed, and the topic ids that the real controller drew."""

    def __init__(self, seed: int) -> None:
        self._state = (seed ^ _MULTIPLIER) & _MASK
        self.ids: list[bytes] = []

    def _next(self) -> int:
        self._state = (self._state * _MULTIPLIER + 0xB) & _MASK
        return self._state >> 17

    def next_int(self, bound: int) -> int:
        if bound & (bound - 1) == 0:
            return bound * self._next() >> 31
        while True:
            bits = self._next()
            if bits - bits % bound + bound - 1 < 1 << 31:
                return bits % bound

    def uuid(self) -> bytes:
        return self.ids.pop(0)


class Twins:
    """Both controllers, and the events of a run."""

    def __init__(self, oracle: Oracle, seed: int, level: int, *, elr: bool) -> None:
        self.source = random.Random(seed)
        version = from_level(level)
        assert version is not None
        levels = {"eligible.leader.replicas.version": 1} if elr else {}
        static = {"min.insync.replicas": "2", "log.retention.hours": "24"}
        settings = ControllerSettings(
            CLUSTER_ID,
            bootstrap_records(version, levels),
            quorum_node_ids=(NODE_ID,),
            static_config=static,
            session_timeout_ms=SESSION_TIMEOUT_MS,
            default_replication_factor=3,
        )
        self.draws = JavaDraws(seed)
        self.ours = Controller(NODE_ID, settings, self.draws)
        self.theirs = RealController(oracle, CLUSTER_ID, seed, static, SESSION_TIMEOUT_MS)
        self.offset = 0
        self.epochs: dict[int, int] = {}
        self.incarnations: Counter[int] = Counter()
        self.done: Counter[str] = Counter()
        self.replay(self.ours.on_claim(1, 0, self.now_ms).records, None)

    @property
    def now_ms(self) -> int:
        return self.theirs.clock.now_ms if hasattr(self, "theirs") else 1 << 40

    def replay(self, ours: list[Record], theirs: list[Record] | None) -> None:
        """Replay records into both, each its own."""
        for position, record in enumerate(ours):
            self.ours.replay(record[0], self.offset + position)
        for position, record in enumerate(ours if theirs is None else theirs):
            if type(record[0]).__name__ not in ("BeginTransactionRecord", "EndTransactionRecord", "NoOpRecord"):
                self.theirs.replay(record, self.offset + position)
        self.offset += len(ours)

    def compare(self, name: str, ours: list[Record], theirs: list[Record]) -> None:
        """Check that the records are the same, in any order. Then both replay them."""
        mine, real = (sorted(write_record(*record) for record in records) for records in (ours, theirs))
        assert mine == real, f"{name}: {sorted(map(repr, ours))} and not {sorted(map(repr, theirs))}"
        self.done[name] += 1
        self.done[f"{name} with records"] += bool(ours)
        self.replay(ours, theirs)

    def ask(self, request: Message, version: int | None = None) -> ControllerResult:
        """Return our result."""
        context = RequestContext(type(request).VERSIONS[-1] if version is None else version)
        return self.ours.handle(context, request, self.now_ms)

    def both(self, request: Message, manager: Any, method: str, *arguments: object, version: int | None = None) -> None:
        """Send a request whose response the manager makes itself."""
        number = type(request).VERSIONS[-1] if version is None else version
        name = type(request).__name__
        result: Any = None
        error: str | None = None
        try:
            result = self.theirs.call(manager, method, *arguments)
            theirs = self.theirs.records(result)
        except RealError as caught:
            error, theirs = caught.name, []
        if isinstance(request, messages.CreateTopicsRequest) and result is not None:
            made = messages.CreateTopicsResponse.decode(self.theirs.bytes_of(self.theirs.response(result), number), number)
            self.draws.ids = [topic.topic_id for topic in made.topics if topic.error_code == 0]
        ours = self.ask(request, number)
        assert ours.response is not None
        if error is not None:
            assert getattr(ours.response, "error_code", None) == by_name(error).code, (request, ours.response, error)
            self.done[error] += 1
        else:
            self.compare_responses(ours.response, result, number)
        self.compare(name, ours.records, theirs)

    def compare_responses(self, ours: Message, result: Any, number: int) -> None:
        """Compare two responses as bytes."""
        theirs = type(ours).decode(self.theirs.bytes_of(self.theirs.response(result), number), number)
        assert type(ours).decode(ours.encode(number), number) == theirs

    # The events

    def partitions(self) -> list[tuple[str, bytes, int, PartitionRegistration]]:
        topics = self.ours.parts.state.topics.values()
        return [(topic.name, topic.id, number, one) for topic in topics for number, one in topic.partitions.items()]

    def some_replicas(self) -> list[int]:
        found = self.source.sample(BROKERS, self.source.choice([1, 2, 3, 3, 4]))
        return [*found, *found[: self.source.random() < 0.02]]

    def register(self) -> None:
        broker_id = self.source.choice(BROKERS)
        is_new = broker_id not in self.epochs or self.source.random() < 0.6
        previous = self.epochs.get(broker_id, -1) if self.source.random() < 0.5 else -1
        self.registration(broker_id, is_new, previous, self.source.choice([2, 3, 4]))

    def registration(self, broker_id: int, is_new: bool, previous: int, version: int) -> None:
        """Register a broker that starts. `previous` is the epoch that it knows from before a clean stop, or -1 after a crash."""
        incarnation = self.incarnations[broker_id] + is_new
        rack = [None, "a", "b", "c"][broker_id % 4]
        request = registration(broker_id, incarnation, rack, 1 + broker_id % 3, previous)
        finalized = self.theirs.call(self.theirs.features, "finalizedFeatures", LATEST_EPOCH)
        real = self.theirs.message(request, request.VERSIONS[-1])
        try:
            result = self.theirs.call(self.theirs.cluster, "registerBroker", real, self.offset, finalized, version >= 3)
        except RealError as caught:
            response = self.ask(request, version).response
            assert isinstance(response, messages.BrokerRegistrationResponse)
            assert response.error_code == by_name(caught.name).code
            self.done[caught.name] += 1
            return
        ours = self.ask(request, version)
        assert isinstance(ours.response, messages.BrokerRegistrationResponse)
        assert ours.response.broker_epoch == self.theirs.response(result).epoch()
        self.incarnations[broker_id] = incarnation
        self.epochs[broker_id] = ours.response.broker_epoch
        self.compare("register", ours.records, self.theirs.records(result))

    def heartbeat(self) -> None:
        if self.epochs:
            self.beat(self.source.choice(list(self.epochs)), self.odd_heartbeat)

    def calm(self) -> None:
        """Send a heartbeat of every running broker."""
        for broker_id in self.epochs:
            self.beat(broker_id, lambda broker_id: messages.BrokerHeartbeatRequest(broker_id, self.epochs[broker_id], self.offset))

    def odd_heartbeat(self, broker_id: int) -> messages.BrokerHeartbeatRequest:
        epoch = self.epochs[broker_id] + (self.source.random() < 0.02)
        dirs = [directory(broker_id, number) for number in range(1 + broker_id % 3)]
        return messages.BrokerHeartbeatRequest(
            broker_id,
            epoch,
            self.offset if self.source.random() < 0.9 else 0,
            want_fence=self.source.random() < 0.05,
            want_shut_down=self.source.random() < 0.1,
            offline_log_dirs=self.source.sample(dirs, self.source.randrange(len(dirs))) if self.source.random() < 0.05 else [],
            cordoned_log_dirs=self.source.sample(dirs, self.source.randrange(len(dirs))) if self.source.random() < 0.1 else None,
        )

    def beat(self, broker_id: int, make: Callable[[int], messages.BrokerHeartbeatRequest]) -> None:
        request = make(broker_id)
        theirs = self.theirs
        theirs.call(theirs.cluster, "trackBrokerHeartbeat", broker_id, request.broker_epoch)
        registered = theirs.call(theirs.cluster, "registerBrokerRecordOffset", broker_id)
        ours = self.ask(request)
        assert isinstance(ours.response, messages.BrokerHeartbeatResponse)
        if not registered.isPresent():
            assert ours.response.error_code == by_name("STALE_BROKER_EPOCH").code
            return
        real = theirs.message(request, request.VERSIONS[-1])
        try:
            result = theirs.call(theirs.replication, "processBrokerHeartbeat", real, registered.getAsLong())
        except RealError as caught:
            assert ours.response.error_code == by_name(caught.name).code
            self.done[caught.name] += 1
            return
        reply = theirs.response(result)
        expected = (reply.isCaughtUp(), reply.isFenced(), reply.shouldShutDown())
        assert (ours.response.is_caught_up, ours.response.is_fenced, ours.response.should_shut_down) == expected
        self.compare("heartbeat", ours.records, theirs.records(result))
        assert (ours.shutting_down is not None) == reply.inControlledShutdown()
        self.ours.appended(ours, self.offset - 1)
        if reply.inControlledShutdown():
            manager = theirs.call(theirs.cluster, "heartbeatManager")
            theirs.call(manager, "maybeUpdateControlledShutdownOffset", broker_id, self.offset - 1)
            self.done["controlled shutdown"] += 1

    def go_stale(self, dead: int | None = None) -> None:
        """Send heartbeats of all but one broker, and let the session timeout pass."""
        dead = self.source.choice(BROKERS) if dead is None else dead
        self.theirs.clock.now_ms += SESSION_TIMEOUT_MS - 1_000
        for broker_id, epoch in self.epochs.items():
            if broker_id != dead:
                self.theirs.call(self.theirs.cluster, "trackBrokerHeartbeat", broker_id, epoch)
                self.ours.parts.cluster.heartbeats.contact(broker_id, epoch, self.now_ms)
        self.theirs.clock.now_ms += 2_000
        has_more = True
        ours: list[Record] = []
        while has_more:
            records, has_more = self.ours.parts.brokers.fence_one_stale(self.now_ms)
            ours += records
        theirs: list[Record] = []
        has_more = True
        while has_more:
            result = self.theirs.call(self.theirs.replication, "maybeFenceOneStaleBroker")
            theirs += self.theirs.records(result)
            has_more = self.theirs.response(result)
        self.compare("stale", ours, theirs)

    def unregister(self, broker_id: int | None = None) -> None:
        request = messages.UnregisterBrokerRequest(self.source.choice(BROKERS) if broker_id is None else broker_id)
        ours = self.ask(request)
        assert isinstance(ours.response, messages.UnregisterBrokerResponse)
        try:
            result = self.theirs.call(self.theirs.replication, "unregisterBroker", request.broker_id)
        except RealError as caught:
            assert (ours.response.error_code, ours.response.error_message) == (by_name(caught.name).code, caught.text)
            return
        self.epochs.pop(request.broker_id)
        self.compare("unregister", ours.records, self.theirs.records(result))

    def create_topic(self) -> None:
        draw = self.source.random
        name = self.source.choice(["a", "b", "c.d", "c_d", "e f", "g", "h", "i", "j"])
        configs: dict[str, str | None] = {}
        if draw() < 0.5:
            configs["min_insync_replicas"] = self.source.choice(["1", "2", "3", "0"])
        if draw() < 0.3:
            configs["unclean_leader_election_enable"] = self.source.choice(["true", "false"])
        if draw() < 0.05:
            configs["segment_bytes"] = self.source.choice([None, "x", "2097152"])
        if draw() < 0.4:
            assignments = [self.some_replicas() for _ in range(self.source.randint(1, 3))]
            if draw() < 0.8:
                assignments = [assignments[0], *(self.source.sample(BROKERS, len(assignments[0])) for _ in assignments[1:])]
            request = creation(name, *assignments, configs=configs)
        else:
            request = creation(
                name, partitions=self.source.choice([-1, 0, 1, 3, 8]), factor=self.source.choice([-1, 1, 2, 3, 3, 9]), configs=configs
            )
        request.validate_only = draw() < 0.1
        self.create(name, request)

    def create(self, name: str, request: messages.CreateTopicsRequest) -> None:
        """Create one topic."""
        version = request.VERSIONS[-1]
        context = self.theirs.context(type(request), version)
        names = self.theirs.oracle.java_class("java.util.Set").of(name)
        self.both(request, self.theirs.replication, "createTopics", context, self.theirs.message(request, version), names, True)

    def delete_topic(self) -> None:
        topics = list(self.ours.parts.state.topics)
        if not topics:
            return
        topic_id = self.source.choice(topics)
        ids = self.theirs.jvm.java.util.ArrayList()
        ids.add(self.java_uuid(topic_id))
        context = self.theirs.context(messages.DeleteTopicsRequest, 6)
        result = self.theirs.call(self.theirs.replication, "deleteTopics", context, ids)
        ours = self.ask(messages.DeleteTopicsRequest([DeleteTopicState(None, topic_id)]))
        self.compare("delete", ours.records, self.theirs.records(result))

    def java_uuid(self, uuid: bytes) -> Any:
        most, least = (int.from_bytes(half, "big", signed=True) for half in (uuid[:8], uuid[8:]))
        return self.theirs.oracle.java_class("org.apache.kafka.common.Uuid")(most, least)

    def add_partitions(self) -> None:
        topics = list(self.ours.parts.state.topics.values())
        if not topics:
            return
        topic = self.source.choice(topics)
        if len({len(partition.replicas) for partition in topic.partitions.values()}) > 1:
            return  # the real manager takes the replication factor of any partition, in the order of a hash map
        count = len(topic.partitions) + self.source.choice([-1, 0, 1, 1, 2])
        assignments = None
        if self.source.random() < 0.5:
            factor = len(topic.partitions[0].replicas)
            assignments = [CreatePartitionsAssignment(self.source.sample(BROKERS, factor)) for _ in range(self.source.randint(1, 2))]
        request = messages.CreatePartitionsRequest([CreatePartitionsTopic(topic.name, count, assignments)])
        real = self.theirs.message(request, request.VERSIONS[-1])
        wanted = self.theirs.jvm.java.util.ArrayList(real.topics())
        context = self.theirs.context(type(request), request.VERSIONS[-1])
        result = self.theirs.call(self.theirs.replication, "createPartitions", context, wanted)
        (answer,) = self.theirs.response(result)
        ours = self.ask(request)
        assert isinstance(ours.response, messages.CreatePartitionsResponse)
        (mine,) = ours.response.results
        assert (mine.name, mine.error_code, mine.error_message) == (answer.name(), answer.errorCode(), answer.errorMessage())
        # Kafka writes the partitions before the one that fails, although it answers with an error.
        theirs = [] if mine.error_code else self.theirs.records(result)
        self.compare("add partitions", ours.records, theirs)

    def alter_isr(self) -> None:
        found = self.partitions()
        if not found:
            return
        _, topic_id, number, partition = self.source.choice(found)
        broker_id = partition.leader if self.source.random() < 0.95 else self.source.choice(BROKERS)
        members = [one for one in partition.replicas if one == partition.leader or self.source.random() < 0.7]
        if self.source.random() < 0.5:
            members = list(partition.replicas)
        if self.source.random() < 0.05:
            members = self.some_replicas()
        isr = [BrokerState(one, self.epochs.get(one, 5) if self.source.random() < 0.8 else -1) for one in members]
        off = [0] * 20 + [1, -1]
        recovery = int(partition.leader_recovery_state) if self.source.random() < 0.6 else 0
        data = PartitionData(
            number,
            partition.leader_epoch + self.source.choice(off),
            new_isr_with_epochs=isr,
            leader_recovery_state=1 if self.source.random() < 0.03 else recovery,
            partition_epoch=partition.partition_epoch + self.source.choice(off),
        )
        topics = [TopicData(topic_id if self.source.random() < 0.98 else bytes(15) + b"\x55", [data])]
        request = messages.AlterPartitionRequest(broker_id, self.epochs.get(broker_id, 3), topics)
        version = request.VERSIONS[-1]
        context = self.theirs.context(type(request), version)
        self.both(request, self.theirs.replication, "alterPartition", context, self.theirs.message(request, version))

    def elect(self) -> None:
        wanted = None
        if self.source.random() < 0.6:
            wanted = [TopicPartitions(self.source.choice(["a", "b", "g", "h", "nowhere"]), [0, 1, 7])]
        request = messages.ElectLeadersRequest(self.source.choice([0, 0, 1, 1, 2]), wanted)
        version = request.VERSIONS[-1]
        real = self.theirs.message(request, version)
        if wanted is not None or request.election_type == 2:
            self.both(request, self.theirs.replication, "electLeaders", real)
            return
        result = self.theirs.call(self.theirs.replication, "electLeaders", real)  # topics come in the order of a hash map
        self.compare("elect all", self.ask(request).records, self.theirs.records(result))

    def periodic(self) -> None:
        name = self.source.choice(["maybeBalancePartitionLeaders", "maybeElectUncleanLeaders"])
        elections = self.ours.parts.elections
        ours, _ = elections.balance() if name == "maybeBalancePartitionLeaders" else elections.elect_unclean()
        result = self.theirs.call(self.theirs.replication, name)
        self.compare(name, ours, self.theirs.records(result))

    def reassign(self) -> None:
        found = self.partitions()
        if not found:
            return
        name, _, number, partition = self.source.choice(found)
        replicas: list[int] | None = self.some_replicas()
        if self.source.random() < 0.3:
            replicas = None
        elif self.source.random() < 0.3:
            replicas = self.source.sample(partition.replicas, len(partition.replicas))
        self.move(name, number, replicas, allow_change=self.source.random() < 0.8)

    def move(self, name: str, number: int, replicas: list[int] | None, *, allow_change: bool = True) -> None:
        """Reassign one partition, or cancel its reassignment (None)."""
        topics = [ReassignableTopic(name, [ReassignablePartition(number, replicas)])]
        request = messages.AlterPartitionReassignmentsRequest(allow_replication_factor_change=allow_change, topics=topics)
        real = self.theirs.message(request, request.VERSIONS[-1])
        self.both(request, self.theirs.replication, "alterPartitionReassignments", real)

    def list_reassignments(self) -> None:
        names = ["a", "b", "c.d", "g", "h", "nowhere"]
        request = messages.ListPartitionReassignmentsRequest(topics=[ListPartitionReassignmentsTopics(one, [0, 1, 2]) for one in names])
        number = request.VERSIONS[-1]
        real = self.theirs.message(request, number)
        theirs = self.theirs.call(self.theirs.replication, "listPartitionReassignments", real.topics(), LATEST_EPOCH)
        ours = self.ask(request).response
        assert isinstance(ours, messages.ListPartitionReassignmentsResponse)
        assert ours == type(ours).decode(self.theirs.bytes_of(theirs, number), number)
        self.done["ongoing reassignments"] += len(ours.topics)

    def assign_directories(self) -> None:
        found = self.partitions()
        if not found or not self.epochs:
            return
        broker_id = self.source.choice(list(self.epochs))
        chosen = [(topic_id, number) for _, topic_id, number, _ in self.source.sample(found, min(3, len(found)))]
        topics = [AssignedTopic(topic_id, [AssignedPartition(number)]) for topic_id, number in dict(chosen).items()]
        request = messages.AssignReplicasToDirsRequest(
            broker_id, self.epochs[broker_id], [DirectoryData(directory(broker_id, self.source.randrange(4)), topics)]
        )
        real = self.theirs.message(request, request.VERSIONS[-1])
        self.both(request, self.theirs.replication, "handleAssignReplicasToDirs", real)

    def alter_configs(self) -> None:
        kind, name = self.source.choice([(2, "a"), (2, "b"), (2, "g"), (4, ""), (4, "1"), (4, "x")])
        if kind == 2 and self.ours.parts.state.named(name) is None:
            return
        settings = dict(self.some_setting(kind) for _ in range(self.source.randint(1, 2)))
        resource = self.theirs.jvm.org.apache.kafka.common.config.ConfigResource(self.java_type(kind), name)
        changes = self.theirs.jvm.java.util.HashMap()
        operations = self.theirs.oracle.java_class("org.apache.kafka.clients.admin.AlterConfigOp$OpType")
        is_legacy = self.source.random() < 0.3
        for key, (operation, value) in settings.items():
            entry = self.theirs.jvm.java.util.AbstractMap.SimpleEntry(operations.values()[operation], value)
            changes.put(key, value if is_legacy else entry)
        all_changes = self.theirs.jvm.java.util.HashMap()
        all_changes.put(resource, changes)
        method = "legacyAlterConfigs" if is_legacy else "incrementalAlterConfigs"
        self.ours.parts.configs.check_existence = lambda _resource: None  # the real manager has no check of QuorumController
        result = self.theirs.call(self.theirs.configs, method, all_changes, False, True)
        error = self.theirs.response(result).get(resource)
        request: Message
        if is_legacy:
            legacy = [LegacyConfig(key, value) for key, (_, value) in settings.items()]
            request = messages.AlterConfigsRequest([LegacyResource(kind, name, legacy)])
        else:
            changed = [AlterableConfig(key, operation, value) for key, (operation, value) in settings.items()]
            request = messages.IncrementalAlterConfigsRequest([AlterConfigsResource(kind, name, changed)])
        ours = self.ask(request)
        assert isinstance(ours.response, messages.AlterConfigsResponse | messages.IncrementalAlterConfigsResponse)
        (mine,) = ours.response.responses
        assert (mine.error_code, mine.error_message) == (error.error().code(), error.message())
        self.compare(method, ours.records, self.theirs.records(result))

    def some_setting(self, kind: int) -> tuple[str, tuple[int, str]]:
        """Draw a name, an operation and a value. Brokers check their own settings, so the values for brokers are valid."""
        names = ["min.insync.replicas", "cleanup.policy", "unclean.leader.election.enable", "retention.ms", "no.such"]
        name, operation = self.source.choice(names), self.source.choice([0, 0, 0, 1, 2, 3])
        if kind == 4 and name in ("min.insync.replicas", "unclean.leader.election.enable"):
            value = self.source.choice(["1", "2", "3"] if name.startswith("min") else ["true", "false"])
        else:
            value = self.source.choice(["1", "2", "true", "compact", "delete", "compact,delete", "-1"])
        return name, (operation, value)

    def java_type(self, kind: int) -> Any:
        types = self.theirs.oracle.java_class("org.apache.kafka.common.config.ConfigResource$Type")
        return types.TOPIC if kind == 2 else types.BROKER

    def update_features(self) -> None:
        names = ["metadata.version", "group.version", "transaction.version", "eligible.leader.replicas.version", "no.such"]
        name, level, kind = (
            self.source.choice(names),
            self.source.choice([0, 1, 2, 3, 22, 29, 30, 31, 90]),
            self.source.choice([1, 1, 2, 3, 9]),
        )
        updates, types = self.theirs.jvm.java.util.HashMap(), self.theirs.jvm.java.util.HashMap()
        self.theirs.put_short(updates, name, level)
        types.put(name, self.theirs.oracle.java_class("org.apache.kafka.clients.admin.FeatureUpdate$UpgradeType").fromCode(kind))
        result = self.theirs.call(self.theirs.configs, "updateFeatures", updates, types, False, 1)
        error = self.theirs.response(result)
        parts = self.ours.parts
        parts.features.brokers = parts.features.controllers = tuple  # the real manager does not know any others here either
        ours = self.ask(messages.UpdateFeaturesRequest(feature_updates=[FeatureUpdateKey(name, level, upgrade_type=kind)]))
        assert isinstance(ours.response, messages.UpdateFeaturesResponse)
        assert ours.response.error_code == error.error().code()
        if ours.response.error_code:
            prefix = "The update failed for all features since the following feature had an error: "
            assert ours.response.error_message == f"{prefix}{error.message()}"
        self.compare("update features", ours.records, self.theirs.records(result))


STEPS = (
    (Twins.heartbeat, 12),
    (Twins.calm, 8),
    (Twins.alter_isr, 30),
    (Twins.register, 8),
    (Twins.create_topic, 8),
    (Twins.reassign, 10),
    (Twins.go_stale, 4),
    (Twins.elect, 5),
    (Twins.periodic, 5),
    (Twins.assign_directories, 4),
    (Twins.alter_configs, 5),
    (Twins.add_partitions, 3),
    (Twins.list_reassignments, 2),
    (Twins.delete_topic, 2),
    (Twins.unregister, 1),
    (Twins.update_features, 1),
)


def live(oracle: Oracle, seed: int, steps: int) -> Counter[str]:
    """Run one life, and return how often each thing was compared."""
    level = (LATEST_PRODUCTION.level, LATEST_PRODUCTION.level, 20, 14)[seed % 4]
    twins = Twins(oracle, seed, level, elr=seed % 2 == 0 and level >= 23)
    for _ in BROKERS:
        twins.register()
    twins.calm()
    twins.create_topic()
    for step in twins.source.choices([step for step, _ in STEPS], [weight for _, weight in STEPS], k=steps):
        try:
            step(twins)
        except StaleIndexError:
            twins.done["ended by Kafka's own mistake"] += 1
            break
    return twins.done


class MovedAway:
    """Partitions 0 and 1 on brokers 1, 2, 3. Brokers 2 and 3 were fenced, so 2 is an eligible leader. Then partition 1 moved to broker 1
    alone.
    """

    def __init__(self, oracle: Oracle) -> None:
        self.twins = Twins(oracle, 7, LATEST_PRODUCTION.level, elr=True)
        for broker_id in (1, 2, 3, 4):
            self.start(broker_id)
        self.twins.create("a", creation("a", [1, 2, 3], [1, 2, 3]))
        self.fence(3)
        self.fence(2)
        assert (self.of(1).isr, self.of(1).elr) == ((1,), (2,))
        self.twins.move("a", 1, [1])
        assert (self.of(1).replicas, self.of(1).isr, self.of(1).elr) == ((1,), (1,), (2,))

    def of(self, number: int) -> PartitionRegistration:
        return next(partition for _, _, known, partition in self.twins.partitions() if known == number)

    def start(self, broker_id: int) -> None:
        """Start the broker's process, after a crash if it was there before, and send its heartbeat."""
        self.twins.registration(broker_id, True, -1, 4)
        self.beat(broker_id)

    def crash(self, broker_id: int) -> None:
        """End the broker's process and its session, and start it again."""
        self.twins.go_stale(broker_id)
        self.start(broker_id)

    def fence(self, broker_id: int) -> None:
        self.beat(broker_id, want_fence=True)

    def beat(self, broker_id: int, *, want_fence: bool = False) -> None:
        twins = self.twins
        twins.beat(
            broker_id,
            lambda one: messages.BrokerHeartbeatRequest(one, twins.epochs[one], twins.offset, want_fence=want_fence),
        )


@pytest.mark.slow
def test_an_eligible_leader_that_was_moved_away_never_leads(oracle: Oracle) -> None:
    """Kafka's ELR keeps a broker that is not a replica any more until the ISR is large enough again. Only replicas become leaders."""
    world = MovedAway(oracle)
    world.fence(1)
    assert [(world.of(number).leader, world.of(number).isr, sorted(world.of(number).elr)) for number in (0, 1)] == [(-1, (), [1, 2])] * 2
    world.beat(2)
    assert (world.of(0).leader, world.of(1).leader) == (2, -1)
    world.beat(1)
    assert (world.of(1).leader, world.of(1).isr, world.of(1).elr) == (1, (1,), (2,))


def test_an_eligible_leader_that_was_moved_away_stands_in_the_last_leaders_way(oracle: Oracle) -> None:
    """After a crash, the last known leader leads only if there is no eligible leader. Unregistering the other broker does not help."""
    world = MovedAway(oracle)
    world.crash(1)
    assert (world.of(1).leader, world.of(1).elr, world.of(1).last_known_elr) == (-1, (2,), (1,))
    world.twins.unregister(2)
    assert world.of(1).elr == (2,)
    world.start(2)
    assert world.of(1).elr == ()
    world.fence(1)
    world.beat(1)
    assert (world.of(1).leader, world.of(1).isr) == (1, (1,))


def test_an_eligible_leader_that_was_moved_away_and_back(oracle: Oracle) -> None:
    """The broker is eligible again although it has no data. Kafka lets it lead, so the records of the other one are lost. kops does the
    same.
    """
    world = MovedAway(oracle)
    world.twins.move("a", 1, [1, 2])
    assert (world.of(1).replicas, world.of(1).elr) == ((1, 2), (2,))
    world.beat(2)
    world.fence(1)
    assert (world.of(1).leader, world.of(1).isr, world.of(1).elr) == (2, (2,), (1,))


def test_an_isr_that_is_large_enough_ends_it(oracle: Oracle) -> None:
    """Partition 0 is now as small as partition 1, so one replica is enough for both."""
    world = MovedAway(oracle)
    world.twins.move("a", 0, [1])
    world.twins.move("a", 1, [1, 4])
    assert (world.of(1).adding_replicas, world.of(1).elr) == ((4,), ())


def test_a_controllers_life(oracle: Oracle) -> None:
    done: Counter[str] = Counter()
    for seed in range(2):
        done += live(oracle, seed, 150)
    assert done["AlterPartitionRequest with records"] > 10, done
    assert done["CreateTopicsRequest with records"] > 5, done


@pytest.mark.slow
def test_many_lives(oracle: Oracle, seed_count: int | None) -> None:
    done: Counter[str] = Counter()
    for seed in range(100, 100 + (seed_count or 10)):
        done += live(oracle, seed, 300)
    for name in ("heartbeat", "stale", "AlterPartitionRequest", "AlterPartitionReassignmentsRequest", "AssignReplicasToDirsRequest"):
        assert done[f"{name} with records"] > 15, done
    assert done["controlled shutdown"] > 3, done
