"""Properties of nodes for the tests: files with the keys of those that Kafka ships, hand-made odd ones, random sets."""

from __future__ import annotations

import random
from typing import Final

from kops.config.broker_keys.table import KAFKA_CONFIG_DEF
from kops.config.values.definition import ConfigKey

_COMMON: Final = """
num.network.threads=3
num.io.threads=8
socket.send.buffer.bytes=102400
socket.receive.buffer.bytes=102400
socket.request.max.bytes=104857600
num.partitions=1
num.recovery.threads.per.data.dir=2
offsets.topic.replication.factor=1
share.coordinator.state.topic.replication.factor=1
share.coordinator.state.topic.min.isr=1
transaction.state.log.replication.factor=1
transaction.state.log.min.isr=1
# log.flush.interval.messages=10000
# log.flush.interval.ms=1000
log.retention.hours=168
#log.retention.bytes=1073741824
log.segment.bytes=1073741824
log.retention.check.interval.ms=300000
"""
_PROTOCOLS: Final = (
    "listener.security.protocol.map=CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT,SSL:SSL,SASL_PLAINTEXT:SASL_PLAINTEXT,SASL_SSL:SASL_SSL\n"
)
KAFKA_FILES: Final = {
    "server.properties": f"""process.roles=broker,controller
node.id=1
controller.quorum.bootstrap.servers=localhost:9093
listeners=PLAINTEXT://:9092,CONTROLLER://:9093
inter.broker.listener.name=PLAINTEXT
advertised.listeners=PLAINTEXT://localhost:9092,CONTROLLER://localhost:9093
controller.listener.names=CONTROLLER
log.dirs=/tmp/kraft-combined-logs
{_PROTOCOLS}{_COMMON}""",
    "broker.properties": f"""process.roles=broker
node.id=2
controller.quorum.bootstrap.servers=localhost:9093
listeners=PLAINTEXT://localhost:9092
inter.broker.listener.name=PLAINTEXT
advertised.listeners=PLAINTEXT://localhost:9092
controller.listener.names=CONTROLLER
log.dirs=/tmp/kraft-broker-logs
{_PROTOCOLS}{_COMMON}""",
    "controller.properties": f"""process.roles=controller
node.id=1
controller.quorum.bootstrap.servers=localhost:9093
listeners=CONTROLLER://:9093
advertised.listeners=CONTROLLER://localhost:9093
controller.listener.names=CONTROLLER
log.dirs=/tmp/kraft-controller-logs
{_PROTOCOLS}{_COMMON}""",
}
COMBINED: Final = {
    "process.roles": "broker,controller",
    "node.id": "1",
    "listeners": "PLAINTEXT://:9092,CONTROLLER://:9093",
    "controller.listener.names": "CONTROLLER",
    "controller.quorum.voters": "1@host1:9093,2@host2:9093",
}
BROKER: Final = {
    "process.roles": "broker",
    "node.id": "7",
    "listeners": "PLAINTEXT://:9092",
    "controller.listener.names": "CONTROLLER",
    "controller.quorum.bootstrap.servers": "host1:9093",
}
CONTROLLER: Final = {
    "process.roles": "controller",
    "node.id": "3",
    "listeners": "CONTROLLER://:9093",
    "controller.listener.names": "CONTROLLER",
    "controller.quorum.voters": "3@host3:9093",
}
BASES: Final = (COMBINED, BROKER, CONTROLLER)
_MAP: Final = "listener.security.protocol.map"

_ODD_FOR_ALL: Final[tuple[dict[str, str], ...]] = (
    {},
    {"process.roles": ""},
    {"process.roles": "broker,"},
    {"process.roles": "zookeeper"},
    {"process.roles": " controller , broker,broker"},
    {"node.id": "-1"},
    {"node.id": "2147483648"},
    {"node.id": "\t4 "},
    {"broker.id": "9"},
    {"controller.listener.names": ""},
    {"controller.listener.names": "controller"},
    {"controller.listener.names": "CONTROLLER,PLAINTEXT"},
    {"controller.listener.names": "CONTROLLER,OTHER", "listeners": "CONTROLLER://:1,OTHER://0.0.0.0:2,PLAINTEXT://:3"},
    {"controller.listener.names": "CONTROLLER,OTHER"},
    {"controller.listener.names": "SSL"},
    {"listeners": ""},
    {"listeners": "PLAINTEXT://:9092,"},
    {"listeners": "PLAINTEXT"},
    {"listeners": "PLAINTEXT:"},
    {"listeners": "PLAINTEXT://host"},
    {"listeners": "PLAINTEXT://host:99999999999"},
    {"listeners": "PLAINTEXT://host:-1"},
    {"listeners": "://host:1"},
    {"listeners": "OTHER://host:1"},
    {"listeners": "plaintext://[::1]:9092,controller://fe80::1%eth0:9093"},
    {"listeners": "PLAINTEXT://:9092,PLAINTEXT://:9095,CONTROLLER://:9093"},
    {"listeners": "PLAINTEXT://:9092,CONTROLLER://:9092"},
    {"listeners": "PLAINTEXT://:0,CONTROLLER://:0"},
    {"listeners": "PLAINTEXT://127.0.0.1:9092,CONTROLLER://[::1]:9092"},
    {"listeners": "PLAINTEXT://127.0.0.1:9092,CONTROLLER://127.0.0.2:9092"},
    {"listeners": "PLAINTEXT://127.0.0.1:9092,CONTROLLER://[::1]:9092,SSL://:9092"},
    {"listeners": "PLAINTEXT://127.0.0.1:9092,CONTROLLER://[::1]:9092,SSL://127.0.0.3:9092"},
    {"listeners": "PLAINTEXT://127.0.0.1:9092,CONTROLLER://host:9092"},
    {"listeners": "SSL://:9092,CONTROLLER://:9093", "security.inter.broker.protocol": "SSL"},
    {"listeners": "CONTROLLER://0.0.0.0:9093"},
    {"listeners": "CONTROLLER://:9093,PLAINTEXT://0.0.0.0:9092"},
    {"advertised.listeners": ""},
    {"advertised.listeners": "PLAINTEXT://b:1,CONTROLLER://c:1"},
    {"advertised.listeners": "PLAINTEXT://0.0.0.0:9092"},
    {"advertised.listeners": "CONTROLLER://0.0.0.0:9093,PLAINTEXT://h:1"},
    {"advertised.listeners": "CONTROLLER://c:9093"},
    {"advertised.listeners": "SSL://c:9093"},
    {"advertised.listeners": "SSL://c:9093,PLAINTEXT://h:1"},
    {"advertised.listeners": "X://c:9093"},
    {"advertised.listeners": "PLAINTEXT://b:1,PLAINTEXT://b:2"},
    {_MAP: ""},
    {_MAP: "PLAINTEXT"},
    {_MAP: "PLAINTEXT:PLAINTEXT,"},
    {_MAP: ",PLAINTEXT:PLAINTEXT"},
    {_MAP: "PLAINTEXT:PLAINTEXT,CONTROLLER:X"},
    {_MAP: "PLAINTEXT:PLAINTEXT"},
    {_MAP: "plaintext:ssl,Controller:Sasl_Ssl,"},
    {_MAP: ":PLAINTEXT"},
    {_MAP: "A:PLAINTEXT , CONTROLLER:PLAINTEXT,PLAINTEXT: PLAINTEXT "},
    {_MAP: "A:PLAINTEXT,a:SSL"},
    {"inter.broker.listener.name": "PLAINTEXT"},
    {"inter.broker.listener.name": "plaintext", "security.inter.broker.protocol": "PLAINTEXT"},
    {"inter.broker.listener.name": "X"},
    {"inter.broker.listener.name": ""},
    {"inter.broker.listener.name": "CONTROLLER"},
    {"inter.broker.listener.name": "SSL"},
    {"security.inter.broker.protocol": "SASL_SSL"},
    {"security.inter.broker.protocol": "ssl"},
    {"security.inter.broker.protocol": "SASL_PLAINTEXT", "sasl.enabled.mechanisms": "PLAIN", "listeners": "SASL_PLAINTEXT://:1"},
    {
        "security.inter.broker.protocol": "SASL_PLAINTEXT",
        "listener.name.sasl_plaintext.sasl.enabled.mechanisms": "PLAIN,GSSAPI",
        "sasl.enabled.mechanisms": "PLAIN",
        "listeners": "SASL_PLAINTEXT://:1,CONTROLLER://:2",
    },
    {"early.start.listeners": "PLAINTEXT"},
    {"early.start.listeners": "plaintext"},
    {"early.start.listeners": ""},
    {"controller.quorum.voters": ""},
    {"controller.quorum.voters": "1@h"},
    {"controller.quorum.voters": "1@h:x"},
    {"controller.quorum.voters": "x@h:1"},
    {"controller.quorum.voters": "1@@h:1"},
    {"controller.quorum.voters": "1@h:1@"},
    {"controller.quorum.voters": "1@h:70000"},
    {"controller.quorum.voters": "1@0.0.0.0:9093,3@0.0.0.0:9093"},
    {"controller.quorum.voters": "1@PLAINTEXT://[::1]:9093,7@:9"},
    {"controller.quorum.voters": "5@a:1,6@b:2"},
    {"controller.quorum.voters": "20@a:1,3000@b:2,6@b:2", "node.id": "9"},
    {"controller.quorum.voters": "40@a:1,8@b:2,24@b:2", "node.id": "8"},
    {"controller.quorum.voters": "", "controller.quorum.bootstrap.servers": ""},
    {"controller.quorum.bootstrap.servers": "h"},
    {"controller.quorum.bootstrap.servers": "h:1,"},
    {"controller.quorum.bootstrap.servers": "h:99999999999"},
    {"controller.quorum.bootstrap.servers": "h:1, [::1]:2,x://h:3"},
    {"controller.quorum.auto.join.enable": "true"},
    {"log.dirs": ""},
    {"log.dirs": "/a,/b,/a"},
    {"log.dirs": "/a,,/b"},
    {"log.dir": ""},
    {"log.dirs": "/a,/b", "cordoned.log.dirs": "*"},
    {"log.dirs": "/a,/b", "cordoned.log.dirs": "*,/a"},
    {"log.dirs": "/a,/b", "cordoned.log.dirs": "/b"},
    {"log.dirs": "/a,/b", "cordoned.log.dirs": "/c,/d"},
    {"cordoned.log.dirs": ""},
    {"log.roll.ms": "0"},
    {"log.roll.ms": "1", "log.roll.hours": "3"},
    {"log.roll.jitter.ms": "-1"},
    {"log.retention.ms": "0"},
    {"log.retention.ms": "-7"},
    {"log.retention.minutes": "0"},
    {"log.retention.minutes": "20", "log.retention.hours": "1"},
    {"log.retention.hours": "-3"},
    {"log.flush.interval.ms": "5", "log.flush.scheduler.interval.ms": "6"},
    {"log.cleaner.threads": "200"},
    {"log.cleaner.threads": "0"},
    {"log.cleaner.dedupe.buffer.size": "1048576"},
    {"log.cleanup.policy": ""},
    {"log.cleanup.policy": "delete,compact,delete"},
    {"replica.fetch.wait.max.ms": "30001"},
    {"replica.fetch.wait.max.ms": "20000", "replica.lag.time.max.ms": "10000"},
    {"broker.heartbeat.interval.ms": "9000"},
    {"queued.max.request.bytes": "7"},
    {"queued.max.request.bytes": "7", "socket.request.max.bytes": "7"},
    {"max.connections.per.ip": "0"},
    {"max.connections.per.ip": "0", "max.connections.per.ip.overrides": "h:5"},
    {"max.connections.per.ip.overrides": "h"},
    {"max.connections.per.ip.overrides": "h:x"},
    {"max.connections.per.ip.overrides": "h/1:5"},
    {"max.connections.per.ip.overrides": "127.0.0.1:5, ::1 : 6".replace(" : ", ":")},
    {"connections.max.idle.ms": "100"},
    {"connections.max.idle.ms": "-1"},
    {"group.coordinator.rebalance.protocols": "consumer"},
    {"group.coordinator.rebalance.protocols": ""},
    {"group.coordinator.rebalance.protocols": "classic,share"},
    {"group.consumer.assignors": "uniform,x.Y"},
    {"group.consumer.assignors": ""},
    {"group.share.assignors": "simple,simple"},
    {"group.share.assignors": "x"},
    {"group.consumer.migration.policy": "Upgrade"},
    {"group.consumer.migration.policy": "no"},
    {"group.consumer.heartbeat.interval.ms": "16000"},
    {"group.consumer.heartbeat.interval.ms": "1"},
    {"group.consumer.max.heartbeat.interval.ms": "1"},
    {"group.share.session.timeout.ms": "44999"},
    {"group.streams.session.timeout.ms": "60001"},
    {"group.streams.num.standby.replicas": "3"},
    {"group.streams.assignment.interval.ms": "15001"},
    {"group.share.delivery.count.limit": "10", "group.share.max.delivery.count.limit": "9"},
    {"group.share.record.lock.duration.ms": "14999"},
    {"group.share.max.share.sessions": "199"},
    {"offsets.topic.compression.codec": "5"},
    {"share.coordinator.state.topic.compression.codec": "-1"},
    {"compression.gzip.level": "0"},
    {"sasl.login.refresh.buffer.seconds": "32768"},
    {"sasl.login.refresh.buffer.seconds": "-32768"},
    {"ssl.keystore.password": " secret "},
    {"ssl.client.auth": "NONE"},
    {"authorizer.class.name": ""},
    {"remote.log.manager.task.retry.jitter": "0.51"},
    {"remote.log.storage.manager.class.name": ""},
    {"controlled.shutdown.enable": "yes"},
    {"log.cleaner.io.buffer.load.factor": "x"},
    {"no.such.setting": "x", "listener.name.plaintext.max.connections": "z"},
)
ODD_SETS: Final = [base | change for change in _ODD_FOR_ALL for base in BASES] + [
    {name: text for name, text in base.items() if name != missing} for base in BASES for missing in base
]

# Kafka looks up the class. The marks say which of these values kops takes.
_CLASSES: Final = {"authorizer.class.name", "config.providers"}
_NUMBERS: Final = ("0", "1", "-1", "-2", "2", "10", "100", "500", "1000", "1024", "45000", "60000", "1048576", "1073741824", "2147483647")
_VALUES: Final = {
    "boolean": ("true", "false", " TRUE ", "True"),
    "short": ("0", "1", "3", "32767", "-1"),
    "int": _NUMBERS,
    "long": (*_NUMBERS, "9223372036854775807"),
    "double": ("0", "1", "0.25", "0.5", "1e-5", "NaN", "-0.1"),
    "string": ("producer", "gzip", "CreateTime", "none", "PLAINTEXT", "x", "", "a:1"),
    "password": ("secret", ""),
    "list": ("a", "a,b", "", "delete", "compact,delete", "a,,b", "uniform"),
}
_WORDS: Final = ("", " ", "x", "1.5", "2147483648", "1e3", "+5", "é", "٣")


def some_properties(source: random.Random) -> dict[str, str]:
    """Return properties of one of the three kinds of node, with up to six random settings of any kind."""
    properties = dict(source.choice(BASES))
    names = [name for name, key in KAFKA_CONFIG_DEF.keys.items() if key.kind != "class" and name not in _CLASSES and name not in properties]
    for name in source.sample(names, source.randint(0, 6)):
        properties[name] = some_value(source, KAFKA_CONFIG_DEF.keys[name])
    return properties


def some_value(source: random.Random, key: ConfigKey) -> str:
    if source.random() < 0.05:
        return source.choice(_WORDS)
    if source.random() < 0.5 and isinstance(key.default, int) and not isinstance(key.default, bool):
        return str(key.default + source.choice((-1, 0, 1)))
    return source.choice(_VALUES[key.kind])
