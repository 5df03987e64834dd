"""Requests to a cluster through kops's own client: its controller, new topics, the replicas of a broker."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from kops.errors import ApiError, KopsError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from kops.client.client import Client
    from kops.cluster.layout.settings import SeedTopic

_LOOK_TIMEOUT_MS: Final = 3_000
_CHANGE_TIMEOUT_MS: Final = 30_000


def client_of(bootstrap_servers: str, *, timeout_ms: int) -> Client:
    """Return a client with this time-out."""
    from kops.client.client import Client
    from kops.client.settings import ClientSettings

    # A paused broker does not answer, so there must be time to ask another one.
    times = {"default.api.timeout.ms": str(timeout_ms), "request.timeout.ms": str(timeout_ms // 3)}
    return Client(ClientSettings.from_properties({"bootstrap.servers": bootstrap_servers, "client.id": "kops-cluster", **times}))


def active_controller(bootstrap_servers: str) -> int | None:
    """Return the node that leads the quorum, or None if no broker answers."""
    from kops.client.quorum import describe_quorum

    try:
        with client_of(bootstrap_servers, timeout_ms=_LOOK_TIMEOUT_MS) as client:
            leader_id = describe_quorum(client).leader_id
    except KopsError:
        return None
    return leader_id if leader_id >= 0 else None


def create_topics(bootstrap_servers: str, topics: Sequence[SeedTopic], config: Mapping[str, str] | None = None) -> None:
    """Create topics. Existing ones do not change. Raises ApiError for the first one that can't be created, and UnreachableError."""
    from kops.client import topics as admin

    wanted = [admin.NewTopic(topic.name, topic.partition_count, topic.replication_factor, config=config or {}) for topic in topics]
    with client_of(bootstrap_servers, timeout_ms=_CHANGE_TIMEOUT_MS) as client:
        for name, outcome in admin.create_topics(client, wanted).items():
            if isinstance(outcome, ApiError) and outcome.name != "TOPIC_ALREADY_EXISTS":
                raise ApiError(outcome.name, f"topic {name}: {outcome}")


def partitions_on(bootstrap_servers: str, node_id: int) -> list[str]:
    """Return the partitions (`orders-0`) with a replica on a broker. Raises UnreachableError."""
    from kops.client.topics import list_topics

    with client_of(bootstrap_servers, timeout_ms=_CHANGE_TIMEOUT_MS) as client:
        topics = list_topics(client)
    return [f"{topic.name}-{one.partition}" for topic in topics for one in topic.partitions if node_id in one.replicas]


def unregister_broker(bootstrap_servers: str, node_id: int) -> None:
    """Unregister a stopped broker from the cluster. Raises ApiError, UnreachableError."""
    from kops.client.client import To, check
    from kops.protocol.messages import UnregisterBrokerRequest, UnregisterBrokerResponse

    def handle(response: object) -> None:
        assert isinstance(response, UnregisterBrokerResponse)
        check(response.error_code, response.error_message)

    with client_of(bootstrap_servers, timeout_ms=_CHANGE_TIMEOUT_MS) as client:
        client.call("unregister broker", To.ANY, lambda _: UnregisterBrokerRequest(broker_id=node_id), handle)
