"""An image as a tree of nodes, named as in Kafka's metadata shell, with JSON values as leaves.

Sources: the classes of `org.apache.kafka.image.node` (names and places of nodes), `PartitionRegistration.toString`,
`BrokerRegistration.toString` (names of fields). Kafka prints the `toString` of a leaf. A leaf here is the same as JSON.
"""

from __future__ import annotations

import fnmatch
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any, Final

from kops.config.broker_keys.table import KAFKA_CONFIG_DEF
from kops.protocol.json_text import uuid_text

if TYPE_CHECKING:
    from kops.metadata.broker_registration import BrokerRegistration, ControllerRegistration, Endpoint, VersionRange
    from kops.metadata.image.metadata_image import MetadataImage
    from kops.metadata.image.parts.topics import TopicImage
    from kops.metadata.partition_registration import PartitionRegistration

REDACTED: Final = "[redacted]"
_MECHANISMS: Final = {1: "SCRAM-SHA-256", 2: "SCRAM-SHA-512"}
_PROTOCOLS: Final = {0: "PLAINTEXT", 1: "SSL", 2: "SASL_PLAINTEXT", 3: "SASL_SSL"}
_SECOND_WAY: Final = "topics/byId"


class Folder(dict[str, Any]):
    """A node with children. Every other value is a leaf."""


def tree(image: MetadataImage) -> Folder:
    """All nodes of an image. Secrets are `[redacted]`, as in Kafka's shell."""
    provenance = image.provenance
    return Folder(
        provenance={
            "offset": provenance.last_contained_offset,
            "epoch": provenance.last_contained_epoch,
            "timeMs": provenance.last_contained_log_time_ms,
        },
        features=_features(image),
        cluster=Folder(
            brokers=Folder({str(number): _broker(one) for number, one in sorted(image.cluster.brokers.items())}),
            controllers=Folder({str(number): _controller(one) for number, one in sorted(image.cluster.controllers.items())}),
        ),
        topics=_topics(image),
        configs=_configs(image),
        clientQuotas=_quotas(image),
        producerIds=Folder() if image.next_producer_id < 0 else Folder(nextProducerId=image.next_producer_id),
        acls=_acls(image),
        scram=_scram(image),
        delegationToken=_tokens(image),
    )


def find_node(root: Folder, path: str) -> Any:
    """The node at a path as `topics/byName/orders/0`. KeyError if there is none."""
    node: Any = root
    rest = path.strip("/")
    while rest:
        if not isinstance(node, Folder):
            raise KeyError(path)
        # A name may contain a slash: the longest name that fits is taken.
        fitting = [name for name in node if rest == name or rest.startswith(name + "/")]
        if not fitting:
            raise KeyError(path)
        name = max(fitting, key=len)
        node, rest = node[name], rest[len(name) :].strip("/")
    return node


def walk(node: Any, path: str = "", *, twice: bool = True) -> Iterator[tuple[str, Any]]:
    """`(path, node)` of everything below a node, itself first. Without `twice`, topics appear by name only."""
    yield path, node
    if isinstance(node, Folder):
        for name, child in node.items():
            below = f"{path}/{name}" if path else name
            if twice or below != _SECOND_WAY:
                yield from walk(child, below, twice=twice)


def matching(root: Folder, start: str, pattern: str | None) -> Iterator[tuple[str, Any]]:
    """Nodes below `start` whose last name, or whole path, fits a shell's pattern (`*`, `?`, `[…]`). KeyError if `start` is not there."""
    for path, node in walk(find_node(root, start), start.strip("/")):
        name = path.rpartition("/")[2]
        if pattern is None or fnmatch.fnmatchcase(name, pattern) or fnmatch.fnmatchcase(path, pattern):
            yield path, node


def _features(image: MetadataImage) -> Folder:
    version = image.features.metadata_version
    found = Folder(metadataVersion=None if version is None else str(version))
    for name, level in sorted(image.features.levels.items()):
        found[f"finalized_{name}"] = level
    return found


def _endpoints(listeners: Mapping[str, Endpoint]) -> list[dict[str, Any]]:
    return [
        {"name": name, "host": one.host, "port": one.port, "securityProtocol": _PROTOCOLS.get(one.security_protocol, one.security_protocol)}
        for name, one in sorted(listeners.items())
    ]


def _ranges(features: Mapping[str, VersionRange]) -> dict[str, str]:
    return {name: str(features[name]) for name in sorted(features)}


def _broker(one: BrokerRegistration) -> dict[str, Any]:
    node: dict[str, Any] = {
        "id": one.id,
        "epoch": one.epoch,
        "incarnationId": uuid_text(one.incarnation_id),
        "listeners": _endpoints(one.listeners),
        "supportedFeatures": _ranges(one.features),
        "rack": one.rack,
        "fenced": one.fenced,
        "inControlledShutdown": one.in_controlled_shutdown,
        "isMigratingZkBroker": one.is_migrating_zk_broker,
        "directories": [uuid_text(each) for each in one.directories],
    }
    if one.cordoned_directories is not None:
        node["cordonedDirectories"] = [uuid_text(each) for each in one.cordoned_directories]
    return node


def _controller(one: ControllerRegistration) -> dict[str, Any]:
    return {
        "id": one.id,
        "incarnationId": uuid_text(one.incarnation_id),
        "zkMigrationReady": one.zk_migration_ready,
        "listeners": _endpoints(one.listeners),
        "supportedFeatures": _ranges(one.features),
    }


def partition_node(one: PartitionRegistration) -> dict[str, Any]:
    """A partition's leaf."""
    return {
        "replicas": list(one.replicas),
        "directories": [uuid_text(each) for each in one.directories],
        "isr": list(one.isr),
        "removingReplicas": list(one.removing_replicas),
        "addingReplicas": list(one.adding_replicas),
        "elr": list(one.elr),
        "lastKnownElr": list(one.last_known_elr),
        "leader": one.leader,
        "leaderRecoveryState": one.leader_recovery_state.name,
        "leaderEpoch": one.leader_epoch,
        "partitionEpoch": one.partition_epoch,
    }


def _topic(topic: TopicImage) -> Folder:
    node = Folder(name=topic.name, id=uuid_text(topic.id))
    for number, partition in sorted(topic.partitions.items()):
        node[str(number)] = partition_node(partition)
    return node


def _topics(image: MetadataImage) -> Folder:
    by_name = Folder({name: _topic(topic) for name, topic in sorted(image.topics.by_name.items())})
    by_id = Folder({node["id"]: node for node in sorted(by_name.values(), key=lambda node: str(node["id"]))})
    return Folder(byName=by_name, byId=by_id)


def _configs(image: MetadataImage) -> Folder:
    found = Folder()
    for resource, values in sorted(image.configs.resources.items()):
        kind = resource.type.name
        name = f"{kind}:{resource.name}" if resource.name else kind
        found[name] = Folder({key: _setting(key, values[key]) for key in sorted(values)})
    return found


def _setting(name: str, value: str) -> str:
    key = KAFKA_CONFIG_DEF.keys.get(name[len("listener.name.") :].partition(".")[2] if name.startswith("listener.name.") else name)
    secret = key is not None and key.kind == "password"
    return REDACTED if secret or name.endswith(("password", "jaas.config")) else value


def _quotas(image: MetadataImage) -> Folder:
    found = Folder()
    for entity, quotas in sorted(image.client_quotas.entities.items(), key=repr):
        names = dict(entity)
        parts = [
            f"{label}({_escaped(name)})"
            for kind, label in (("client-id", "clientId"), ("ip", "ip"), ("user", "user"))
            if (name := names.get(kind)) is not None
        ]
        parts += [f"{label}(<default>)" for kind, label in (("client-id", "clientId"), ("user", "user")) if names.get(kind, "") is None]
        found["_".join(parts)] = Folder({key: quotas[key] for key in sorted(quotas)})
    return found


def _escaped(text: str) -> str:
    return text.replace("\\", "\\\\").replace("(", "\\(").replace(")", "\\)")


def _acls(image: MetadataImage) -> Folder:
    nodes = {uuid_text(key): {name: getattr(acl, name) for name in acl.__slots__} for key, acl in image.acls.acls.items()}
    return Folder(byId=Folder({key: nodes[key] for key in sorted(nodes)}))


def _scram(image: MetadataImage) -> Folder:
    found = Folder()
    for number, users in sorted(image.scram.mechanisms.items()):
        hidden = {"salt": REDACTED, "storedKey": REDACTED, "serverKey": REDACTED}
        found[_MECHANISMS.get(number, str(number))] = Folder(
            {user: {**hidden, "iterations": one.iterations} for user, one in sorted(users.items())}
        )
    return found


def _tokens(image: MetadataImage) -> Folder:
    tokens = image.delegation_tokens.tokens
    return Folder({key: {name: getattr(one, name) for name in one.__slots__} for key, one in sorted(tokens.items())})
