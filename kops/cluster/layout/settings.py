"""The settings of a cluster's nodes: a `server.properties` for each, which also starts Apache Kafka.

Source: Kafka's config/server.properties and KafkaConfig. Nodes have the ids 1 to N and both roles. Clients connect to node N at port P+N-1,
the quorum at P+100+N-1. The quorum is static (`controller.quorum.voters`), so a port may change between two starts. A node that is added
later is only a broker.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from kops.config.values.properties import read_properties
from kops.errors import DecodeError, KopsError, UsageError

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

HOST: Final = "127.0.0.1"
CLIENT_LISTENER: Final = "PLAINTEXT"
CONTROLLER_LISTENER: Final = "CONTROLLER"
DEFAULT_PORT: Final = 9092
CONTROLLER_PORT_OFFSET: Final = 100
MAX_NODES: Final = 100

OWNED: Final = (
    "process.roles",
    "node.id",
    "broker.id",
    "controller.quorum.voters",
    "controller.quorum.bootstrap.servers",
    "listeners",
    "advertised.listeners",
    "inter.broker.listener.name",
    "security.inter.broker.protocol",
    "controller.listener.names",
    "listener.security.protocol.map",
    "log.dirs",
    "log.dir",
    "metadata.log.dir",
)
"""The settings that the cluster sets for each node. They are ignored in a given file, and rejected in `--config`."""

_SESSION_TIMEOUT_MS: Final = 2_000
_HEARTBEAT_MS: Final = 250
_IDLE_RECORD_MS: Final = 5_000
_FIRST_ELECTION_MS: Final = 50
# Names with this similarity differ by one or two letters.
_TYPING_ERROR: Final = 0.85
_TOPIC_NAME: Final = re.compile(r"[a-zA-Z0-9._-]{1,249}\Z")


@dataclass(frozen=True, slots=True)
class SeedTopic:
    """A topic that is created as soon as the cluster answers."""

    name: str
    partition_count: int
    replication_factor: int


@dataclass(frozen=True, slots=True)
class Voter:
    """A node of the quorum and its address."""

    node_id: int
    port: int


def combined_ids(count: int) -> range:
    """Return the ids of a cluster's first nodes. Raises UsageError for an invalid number."""
    if not 1 <= count <= MAX_NODES:
        raise UsageError(f"{count} brokers: allowed are 1 to {MAX_NODES}")
    return range(1, count + 1)


def client_port(base_port: int, node_id: int) -> int:
    """The port of a node for clients."""
    return base_port + node_id - 1


def controller_port(base_port: int, node_id: int) -> int:
    """The port of a node for the quorum."""
    return base_port + CONTROLLER_PORT_OFFSET + node_id - 1


def node_properties(
    node_id: int,
    voters: Sequence[Voter],
    *,
    port: int,
    log_dir: str,
    broker_count: int,
    settings: Mapping[str, str],
) -> dict[str, str]:
    """Return a node's properties in the order of its file. `settings` override kops's defaults, but not the settings that form the
    cluster.
    """
    own_voter = next((voter for voter in voters if voter.node_id == node_id), None)
    listeners = f"{CLIENT_LISTENER}://{HOST}:{port}"
    if own_voter is not None:
        listeners += f",{CONTROLLER_LISTENER}://{HOST}:{own_voter.port}"
    made = {
        "process.roles": "broker" if own_voter is None else "broker,controller",
        "node.id": str(node_id),
        "controller.quorum.voters": ",".join(f"{voter.node_id}@{HOST}:{voter.port}" for voter in voters),
        "listeners": listeners,
        "advertised.listeners": f"{CLIENT_LISTENER}://{HOST}:{port}",
        "inter.broker.listener.name": CLIENT_LISTENER,
        "controller.listener.names": CONTROLLER_LISTENER,
        "listener.security.protocol.map": f"{CONTROLLER_LISTENER}:PLAINTEXT,{CLIENT_LISTENER}:PLAINTEXT",
        "log.dirs": log_dir,
    }
    is_first_voter = bool(voters) and voters[0].node_id == node_id
    chosen = {**defaults(broker_count, is_first_voter=is_first_voter), **settings}
    return {**made, **{key: value for key, value in chosen.items() if key not in OWNED}}


def defaults(broker_count: int, *, is_first_voter: bool) -> dict[str, str]:
    """Return the settings in which a small cluster on one machine differs from Kafka's defaults, including time-outs."""
    copies = str(min(broker_count, 3))
    in_sync = str(min(broker_count, 2))
    chosen = {
        "default.replication.factor": copies,
        "offsets.topic.replication.factor": copies,
        "transaction.state.log.replication.factor": copies,
        "transaction.state.log.min.isr": in_sync,
        "share.coordinator.state.topic.replication.factor": copies,
        "share.coordinator.state.topic.min.isr": in_sync,
        "broker.session.timeout.ms": str(_SESSION_TIMEOUT_MS),
        "broker.heartbeat.interval.ms": str(_HEARTBEAT_MS),
        # Appends during one fsync share the next one anyway.
        "controller.quorum.append.linger.ms": "0",
        # Each no-op record costs every node an fsync, for which its clients wait.
        "metadata.max.idle.interval.ms": str(_IDLE_RECORD_MS),
    }
    if is_first_voter and broker_count > 1:
        # One node starts an election long before the others, so a new cluster has its leader at once and no split vote.
        chosen["controller.quorum.election.timeout.ms"] = str(_FIRST_ELECTION_MS)
    return chosen


def parse_settings(pairs: Iterable[str], *, source: str = "--config") -> dict[str, str]:
    """Parse `K=V`s of a command line. Raises UsageError, with the source's name, for another form and for settings that the cluster sets
    itself.
    """
    settings: dict[str, str] = {}
    for pair in pairs:
        key, equals, value = pair.partition("=")
        if not equals or not key.strip():
            raise UsageError(f"{source} {pair}: allowed is KEY=VALUE")
        settings[key.strip()] = value.strip()
    for key in settings:
        if key in OWNED:
            raise UsageError(f"{source} {key}: kops sets it for each broker (other options choose ports and directories)")
    return settings


def check_given(given: Mapping[str, str], *, source: str, is_file: bool = False) -> None:
    """Check each setting by itself. Raises UsageError with the source for values that are not allowed, and for unknown settings.

    A file may contain an unknown setting, as in Kafka, where plug-ins read such settings (`unknown_settings` lists them). A command line
    may not, because it is most likely a typing error.
    """
    from kops.config import BrokerConfig
    from kops.config.broker.settings import LISTENER_PREFIX

    for key, value in given.items():
        name = key.removeprefix(LISTENER_PREFIX).partition(".")[2] if key.startswith(LISTENER_PREFIX) else key
        if name not in BrokerConfig.definition.keys and (is_file or name != key):
            continue
        try:
            BrokerConfig.definition[name].parse(value)
        except KopsError as error:
            is_own = name not in BrokerConfig.definition.keys and not BrokerConfig.definition.near(name)
            hint = " (the setting of a plug-in goes into a properties file)" if is_own else ""
            raise UsageError(f"{source}: {key.removesuffix(name)}{error}{hint}") from error


def unknown_settings(properties: Mapping[str, str], *, file: str) -> list[str]:
    """Return a warning about each setting that Kafka's nodes do not have. Kafka and kops keep it, and only a plug-in could read it."""
    from kops.config import BrokerConfig
    from kops.config.broker.settings import LISTENER_PREFIX

    found = []
    for key in properties:
        if key not in BrokerConfig.definition.keys and not key.startswith(LISTENER_PREFIX):
            near = BrokerConfig.definition.near(key, cutoff=_TYPING_ERROR)
            hint = f"; did you mean {near[0]}?" if near else ""
            found.append(f"{file}: unknown setting {key}: it is kept for plug-ins of Kafka, but has no effect in kops{hint}")
    return found


def parse_seed_topics(texts: Iterable[str], broker_count: int, *, source: str = "--seed-topic") -> list[SeedTopic]:
    """Parse `NAME:PARTITIONS:RF`s. Both numbers may be omitted (1, and the number of brokers up to 3). Raises UsageError with the source's
    name.
    """
    return [_seed_topic(text, broker_count, source) for text in texts]


def _seed_topic(text: str, broker_count: int, source: str) -> SeedTopic:
    name, *numbers = text.split(":")
    if not _TOPIC_NAME.match(name) or name in (".", "..") or len(numbers) > 2:
        raise UsageError(f"{source} {text}: allowed is NAME:PARTITIONS:RF, the name of letters, digits, '.', '_' and '-'")
    try:
        partition_count, replication_factor = map(int, [*numbers, *["1", str(min(broker_count, 3))][len(numbers) :]])
    except ValueError:
        raise UsageError(f"{source} {text}: partitions and replication factor are whole numbers") from None
    if partition_count < 1:
        raise UsageError(f"{source} {text}: at least 1 partition")
    if not 1 <= replication_factor <= broker_count:
        raise UsageError(f"{source} {text}: replication factor {replication_factor}, allowed are 1 to {broker_count} (the brokers)")
    return SeedTopic(name, partition_count, replication_factor)


def parse_server_properties(data: bytes, *, file: str) -> tuple[dict[str, str], list[str]]:
    """Return a `server.properties` as settings of all nodes, and the ignored keys, which the cluster sets itself. Raises UsageError."""
    try:
        found = read_properties(data, file=file)
    except DecodeError as error:
        raise UsageError(str(error)) from error
    return {key: value for key, value in found.items() if key not in OWNED}, [key for key in found if key in OWNED]


def check_properties(properties: Mapping[str, str], *, file: str) -> None:
    """Raise UsageError with the file's name for settings with which no node can start. Unknown ones are allowed (`unknown_settings`)."""
    from kops.config import BrokerConfig

    try:
        BrokerConfig.from_properties(properties)
    except KopsError as error:
        raise UsageError(f"{file}: {error}") from error


def changed_properties(properties: Mapping[str, str], changes: Mapping[str, str], *, file: str, source: str) -> dict[str, str]:
    """Return properties with changes applied. Raises UsageError with the source of the changes, or the file that is invalid without
    them.
    """
    changed = {**properties, **changes}
    try:
        check_properties(changed, file=source)
    except UsageError:
        check_properties(properties, file=file)
        raise
    return changed


def listener_address(properties: Mapping[str, str]) -> tuple[str, int]:
    """Return host and port of a node for clients: the first advertised listener that is not for controllers. Raises UsageError."""
    controllers = {name.strip() for name in properties.get("controller.listener.names", "").split(",")}
    text = properties.get("advertised.listeners") or properties.get("listeners") or f"{CLIENT_LISTENER}://{HOST}:{DEFAULT_PORT}"
    for endpoint in text.split(","):
        name, _, address = endpoint.strip().partition("://")
        host, _, port = address.rpartition(":")
        if name not in controllers and port.isdigit():
            return host.strip("[]") or HOST, int(port)
    raise UsageError(f"no listener for clients in '{text}'")


def node_address(properties: Mapping[str, str]) -> tuple[str, int]:
    """Return the address of a node: for clients, or for the quorum if it is only a controller. Raises UsageError."""
    if "broker" in properties.get("process.roles", "broker"):
        return listener_address(properties)
    found = listening_ports(properties)
    if not found:
        raise UsageError("a controller without listeners")
    return found[0]


def listening_ports(properties: Mapping[str, str]) -> list[tuple[str, int]]:
    """Return host and port of each listener that a node binds."""
    found = []
    for endpoint in properties.get("listeners", "").split(","):
        host, _, port = endpoint.strip().partition("://")[2].rpartition(":")
        if port.isdigit():
            found.append((host.strip("[]"), int(port)))
    return found


def quorum_voters(properties: Mapping[str, str]) -> dict[int, tuple[str, int]]:
    """Return node id → host and port of the static quorum, or nothing if the quorum is dynamic."""
    voters = {}
    for text in filter(None, properties.get("controller.quorum.voters", "").split(",")):
        node_id, _, address = text.strip().partition("@")
        host, _, port = address.rpartition(":")
        if not node_id.isdigit() or not port.isdigit():
            raise UsageError(f"controller.quorum.voters '{text}': allowed is ID@HOST:PORT")
        voters[int(node_id)] = (host, int(port))
    return voters
