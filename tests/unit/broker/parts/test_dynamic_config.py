"""A running broker's settings: new metadata reaches the parts that it concerns, and only those."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest

from kops.broker.coordinators.group_coordinator import GroupCoordinator
from kops.broker.parts.dynamic_config import DynamicBrokerConfig
from kops.broker.parts.parts import BrokerParts
from kops.config import BrokerConfig
from kops.metadata.image.metadata_image import MetadataImage
from kops.metadata.image.parts.configs import ConfigResource, ConfigurationsImage, ResourceType
from kops.metadata.image.parts.shared_map import SharedMap
from kops.records.log_offsets import TopicPartition
from kops.replication.quota import UNLIMITED, ReplicationQuotaManager
from kops.storage.manager.settings import LogManagerConfig, TopicConfigs
from tests.support.nodes.node_properties import COMBINED


class Server:
    """A socket server that records its calls."""

    def __init__(self) -> None:
        self.calls: list[tuple[str, Any]] = []

    def update_limits(self, settings: Any) -> None:
        self.calls.append(("limits", (settings.max_connections, settings.listeners[0].max_connections)))

    def add_listener(self, listener: Any) -> None:
        self.calls.append(("add", listener.name))

    def remove_listener(self, name: str) -> None:
        self.calls.append(("remove", name))


class Logs:
    """The settings of a LogManager."""

    def __init__(self, config: BrokerConfig) -> None:
        self.topics = TopicConfigs(lambda topic: self.overrides.get(topic, {}), config.topic_defaults())
        self.overrides: dict[str, dict[str, str]] = {}
        self.config = LogManagerConfig()
        self.all_logs = [SimpleNamespace(producers=SimpleNamespace(expiration_ms=1, verification_enabled=True))]
        self.dirs = SimpleNamespace(cordoned=frozenset(), ids={"/a": "AAAAAAAAAAAAAAAAAAAAAQ"})
        self.files = SimpleNamespace(absolute=lambda path: path)

    def update_broker_config(self, broker: dict[str, str]) -> None:
        self.topics.set_broker(broker)


class Broker:
    """The parts that a `DynamicBrokerConfig` uses."""

    def __init__(self, **settings: str) -> None:
        given = {name.replace("_", "."): text for name, text in settings.items()}
        self.fetchers: list[int] = []
        self.cordoned: list[list[bytes]] = []
        config = BrokerConfig.from_properties(COMBINED | {"log.dirs": "/a,/b"} | given)
        self.parts: Any = SimpleNamespace(
            config=config,
            node_id=1,
            logs=Logs(config),
            socket_server=Server(),
            lifecycle=SimpleNamespace(directories_cordoned=lambda ids: self.cordoned.append(list(ids))),
            replica_manager=SimpleNamespace(
                fetchers=SimpleNamespace(resize=self.fetchers.append),
                **{name: ReplicationQuotaManager(lambda: 0) for name in ("leader_quota", "follower_quota", "alter_log_dirs_quota")},
            ),
        )
        self.dynamic = DynamicBrokerConfig(cast(BrokerParts, self.parts))

    def update(self, broker: dict[str, str] | None = None, cluster: dict[str, str] | None = None) -> None:
        resources = {
            ConfigResource(ResourceType.BROKER, name): SharedMap(settings)
            for name, settings in (("1", broker or {}), ("", cluster or {}))
            if settings
        }
        self.dynamic.update(MetadataImage(configs=ConfigurationsImage(SharedMap(resources))))


def test_defaults_of_topics() -> None:
    broker = Broker(log_retention_hours="3")
    broker.update(cluster={"log.retention.ms": "77", "compression.type": "gzip"})
    default = broker.parts.logs.topics.default
    assert (default.retention_ms, default.compression_type) == (77, "gzip")
    assert broker.parts.config["log.retention.ms"] == 77
    broker.update(broker={"log.retention.ms": "88"}, cluster={"log.retention.ms": "77"})
    assert (broker.parts.logs.topics.default.retention_ms, broker.parts.logs.topics.default.compression_type) == (88, "producer")
    broker.update()
    assert broker.parts.logs.topics.default.retention_ms == 3 * 3_600_000
    assert (broker.fetchers, broker.parts.socket_server.calls) == ([], [])


def test_connections_and_listeners() -> None:
    broker = Broker(advertised_listeners="PLAINTEXT://b:9092")
    server = broker.parts.socket_server
    broker.update(cluster={"max.connections": "9"}, broker={"listener.name.plaintext.max.connections": "5"})
    assert server.calls == [("limits", (9, 9)), ("limits", (9, 5))]
    server.calls.clear()
    broker.update(
        broker={
            "listeners": "PLAINTEXT://:9092,CONTROLLER://:9093,B://:9095",
            "listener.security.protocol.map": "B:PLAINTEXT,PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT",
        }
    )
    assert [name for name, _ in server.calls] == ["limits", "limits", "add"]
    broker.update()
    assert server.calls[-2][0] == "remove"


def test_producers_fetchers_directories_and_quotas() -> None:
    broker = Broker()
    broker.update(
        cluster={"producer.id.expiration.ms": "123", "num.replica.fetchers": "2", "leader.replication.throttled.rate": "1000"},
        broker={"cordoned.log.dirs": "*", "follower.replication.throttled.rate": "7"},
    )
    parts = broker.parts
    assert (parts.logs.config.producer_id_expiration_ms, parts.logs.all_logs[0].producers.expiration_ms) == (123, 123)
    assert broker.fetchers == [2]
    assert parts.logs.dirs.cordoned == {"/a", "/b"}
    assert broker.cordoned == [[bytes(15) + b"\1"]]
    limits = [getattr(parts.replica_manager, f"{name}_quota").upper_bound for name in ("leader", "follower", "alter_log_dirs")]
    assert limits == [1000, 7, UNLIMITED]
    broker.update()
    assert parts.replica_manager.leader_quota.upper_bound == UNLIMITED


def test_what_cannot_be_applied_leaves_the_rest(caplog: pytest.LogCaptureFixture) -> None:
    broker = Broker()
    broker.update(cluster={"background.threads": "99", "log.retention.ms": "77"}, broker={"log.retention.ms": "88"})
    assert "Dynamic thread count update validation failed for background.threads=99" in caplog.text
    assert broker.parts.config["log.retention.ms"] is None
    broker.update(cluster={"log.flush.interval.ms": "-1", "message.max.bytes": "5"})
    assert "Failed to update broker configuration: Invalid value -1 for configuration flush.ms" in caplog.text
    assert (broker.parts.config["message.max.bytes"], broker.parts.logs.topics.default.max_message_bytes) == (5, 1_048_588)


def test_throttled_replicas_of_a_topic() -> None:
    broker = Broker()
    names = ("leader.replication.throttled.replicas", "follower.replication.throttled.replicas")
    leader, follower = broker.parts.replica_manager.leader_quota, broker.parts.replica_manager.follower_quota
    for text, throttled in (("0:1, 1:2,3:1", [0, 3]), ("*", [0, 1, 2, 3]), ("", []), ("2:9", [])):
        broker.parts.logs.overrides["t"] = {names[0]: text}
        broker.dynamic.update_topic("t")
        assert [partition for partition in range(4) if leader.is_throttled(TopicPartition("t", partition))] == throttled
        assert not follower.has_throttled


def test_stored_settings_that_count() -> None:
    dynamic = Broker().dynamic
    assert dynamic.from_persistent({"node.id": "3", "num.io.threads": "x", "log.roll.ms": "5"}, per_broker=True) == {"log.roll.ms": "5"}


def test_assignment_intervals_of_groups() -> None:
    broker = Broker()
    config = broker.parts.config
    of_groups = SimpleNamespace(of=lambda kind, name: {"consumer.session.timeout.ms": "50000"} if name == "own" else {})
    cache: Any = SimpleNamespace(image=SimpleNamespace(configs=of_groups))
    nothing: Any = None
    groups = broker.parts.groups = GroupCoordinator(
        nothing, config, nothing, cache, new_id=nothing, start_verification=nothing, persister=nothing, end_offsets=nothing
    )
    name = "consumer.assignment.interval.ms"
    assert groups.group_settings("g") is None
    own = groups.group_settings("own")
    assert own is not None and own[name] == 1000
    broker.update(cluster={"group.consumer.assignment.interval.ms": "7"})
    for group in ("g", "own"):
        settings = groups.group_settings(group)
        assert settings is not None and settings[name] == 7
