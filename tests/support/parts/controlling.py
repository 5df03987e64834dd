"""A controller with a log in memory, and brokers that register with it, for tests of the controller."""

from __future__ import annotations

import random
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, TypeVar

from kops.metadata.broker_registration import VersionRange
from kops.metadata.controller.base.result import ControllerResult, Record, RequestContext
from kops.metadata.controller.cluster.feature_versions import bootstrap_records, production_features
from kops.metadata.controller.cluster.settings import ControllerSettings
from kops.metadata.controller.controller import Controller
from kops.metadata.metadata_version import LATEST_PRODUCTION
from kops.protocol.declaration import Message
from kops.protocol.errors import by_code
from kops.protocol.messages import (
    BrokerHeartbeatRequest,
    BrokerHeartbeatResponse,
    BrokerRegistrationRequest,
    BrokerRegistrationResponse,
    CreateTopicsRequest,
)
from kops.protocol.messages.broker_registration_request import Feature, Listener
from kops.protocol.messages.create_topics_request import CreatableReplicaAssignment, CreatableTopic, CreatableTopicConfig

CLUSTER_ID = "xCfPM2xHQ7uRqQmH5cUo1w"
M = TypeVar("M", bound=Message)
SETTINGS = ControllerSettings(CLUSTER_ID, bootstrap_records(LATEST_PRODUCTION), quorum_node_ids=(3000,), max_idle_interval_ms=None)


class SeededDraws:
    """Random numbers from a seed."""

    def __init__(self, seed: int = 0) -> None:
        self._random = random.Random(seed)

    def next_int(self, bound: int) -> int:
        return self._random.randrange(bound)

    def uuid(self) -> bytes:
        return b"\x01" + self._random.randbytes(15)


class World:
    """One controller that leads, its log, and the brokers' epochs. Records are committed at once unless `commits` is False."""

    def __init__(self, settings: ControllerSettings = SETTINGS, seed: int = 0, *, claim: bool = True, commits: bool = True) -> None:
        self.settings = settings
        self.controller = Controller(3000, settings, SeededDraws(seed))
        self.log: list[Record] = []
        self.now_ms = 1_000_000
        self.epochs: dict[int, int] = {}
        self.commits = commits
        if claim:
            self.append(self.controller.on_claim(1, 0, self.now_ms))

    @classmethod
    def with_brokers(cls, *broker_ids: int, elr: bool = True, **changes: Any) -> World:
        """Return a world whose brokers are registered and unfenced."""
        levels = None if elr else {"group.version": 1}
        settings = replace(SETTINGS, bootstrap=bootstrap_records(LATEST_PRODUCTION, levels), **changes)
        world = cls(settings)
        for broker_id in broker_ids:
            world.register(broker_id)
            world.heartbeat(broker_id)
        return world

    def append(self, result: ControllerResult) -> None:
        """Append and replay the records of a result."""
        for message, version in result.records:
            decoded = type(message).decode(message.encode(version), version)
            assert decoded == message, "a record holds more than its version can carry"
            self.controller.replay(message, len(self.log))
            self.log.append((message, version))
        self.controller.appended(result, len(self.log) - 1)
        if self.commits:
            self.controller.committed(len(self.log) - 1)

    def ask(self, request: Message, response: type[M], version: int | None = None, *, is_late: bool = False) -> M:
        """Handle a request, append its records, and return its response."""
        context = RequestContext(type(request).VERSIONS[-1] if version is None else version, is_late=is_late)
        result = self.controller.handle(context, request, self.now_ms)
        self.append(result)
        assert isinstance(result.response, response)
        return result.response

    def tick(self, after_ms: int = 0) -> list[Message]:
        """Let time pass. Return the records of what was due."""
        self.now_ms += after_ms
        first = len(self.log)
        while (result := self.controller.tick(self.now_ms)) is not None:
            self.append(result)
        return [message for message, _ in self.log[first:]]

    def register(self, broker_id: int, *, incarnation: int = 1, rack: str | None = None, dirs: int = 1, previous: int = -1) -> int:
        """Register a broker. Return the error's code."""
        response = self.ask(registration(broker_id, incarnation, rack, dirs, previous), BrokerRegistrationResponse)
        if response.error_code == 0:
            self.epochs[broker_id] = response.broker_epoch
        return response.error_code

    def heartbeat(self, broker_id: int, **fields: Any) -> BrokerHeartbeatResponse:
        """Send a broker's heartbeat. It is caught up unless the arguments say otherwise."""
        fields = {"current_metadata_offset": len(self.log), **fields}
        request = BrokerHeartbeatRequest(broker_id, self.epochs[broker_id], **fields)
        return self.ask(request, BrokerHeartbeatResponse)

    def heartbeats(self, *broker_ids: int) -> None:
        """Send heartbeats of several brokers."""
        for broker_id in broker_ids:
            self.heartbeat(broker_id)

    def topic_id(self, name: str) -> bytes:
        """Return a topic's id."""
        topic = self.controller.parts.state.named(name)
        assert topic is not None
        return topic.id

    def partition(self, name: str, number: int = 0) -> Any:
        """Return the present state of a partition."""
        return self.controller.parts.state.topics[self.topic_id(name)].partitions[number]


def directory(broker_id: int, number: int = 0) -> bytes:
    """Return the id of a broker's log directory."""
    return bytes([7, number]) + bytes(10) + broker_id.to_bytes(4, "big")


def registration(
    broker_id: int, incarnation: int = 1, rack: str | None = None, dirs: int = 1, previous: int = -1
) -> BrokerRegistrationRequest:
    """Return a broker's registration that a controller of 4.3 accepts."""
    features: dict[str, VersionRange] = production_features()
    return BrokerRegistrationRequest(
        broker_id=broker_id,
        cluster_id=CLUSTER_ID,
        incarnation_id=incarnation.to_bytes(16, "big"),
        listeners=[Listener("PLAINTEXT", "localhost", 9000 + broker_id)],
        features=[Feature(name, versions.min, versions.max) for name, versions in features.items()],
        rack=rack,
        log_dirs=[directory(broker_id, number) for number in range(dirs)],
        previous_broker_epoch=previous,
    )


def creation(
    name: str,
    *assignments: list[int],
    partitions: int = -1,
    factor: int = -1,
    configs: Mapping[str, str | None] | Mapping[str, str] | None = None,
    **more: str | None,
) -> CreateTopicsRequest:
    """Return a request for one topic.

    It has partitions and a replication factor, or the replicas of each partition. Names of settings have `_` for dots.
    """
    topic = CreatableTopic(
        name,
        partitions,
        factor,
        [CreatableReplicaAssignment(number, replicas) for number, replicas in enumerate(assignments)],
        [CreatableTopicConfig(key.replace("_", "."), value) for key, value in {**(configs or {}), **more}.items()],
    )
    return CreateTopicsRequest([topic])


def error_name(code: int) -> str:
    """Return the name of a code."""
    return by_code(code).name
