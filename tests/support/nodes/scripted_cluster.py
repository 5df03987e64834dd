"""A cluster that answers as a test wants: servers on loopback, each of them a broker, and a script for their answers.

with ScriptedCluster(2) as cluster:
    cluster.script(CreateTopicsRequest, lambda context, message: CreateTopicsResponse(…))    # None: no answer
    cluster.requests(2)                                                                      # what the broker 2 was asked, in order
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from types import TracebackType
from typing import Any, Self

from kops.broker.network.channel import RequestContext
from kops.client.client import Client
from kops.client.network import NetworkClient
from kops.client.settings import ClientSettings
from kops.protocol.api_keys import API_KEYS, Listener
from kops.protocol.declaration import Message
from kops.protocol.messages import ApiVersionsRequest, ApiVersionsResponse, MetadataRequest, MetadataResponse
from kops.protocol.messages.api_versions_response import ApiVersion
from kops.protocol.messages.metadata_response import MetadataResponseBroker, MetadataResponsePartition, MetadataResponseTopic
from tests.support.nodes.networking import Served

Answer = Callable[[RequestContext, Any], Message | None]
QUICK = {
    "retry.backoff.ms": "1",
    "retry.backoff.max.ms": "5",
    "reconnect.backoff.ms": "1",
    "reconnect.backoff.max.ms": "5",
    "linger.ms": "0",
}


class ScriptedCluster:
    """`count` brokers with ids from 1 on. The first one is the controller.

    `topics["a"] = [1, 2]` sets the leaders of a topic's partitions; -1 means none.
    """

    def __init__(self, count: int = 1) -> None:
        self.controller_id = 1
        self.topics: dict[str, list[int]] = {}
        self.epochs: dict[str, int] = {}
        self.hidden: set[int] = set()  # brokers that are not in the metadata
        self.unknown_apis: set[int] = set()
        self.last_versions: dict[int, int] = {}  # API key → the latest version, if it is older than that of kops
        self._script: dict[type[Message], Answer] = {}
        self._asked: dict[int, list[Message]] = {node_id: [] for node_id in range(1, count + 1)}
        self.servers: dict[int, Served] = {}
        for node_id in self._asked:
            self.servers[node_id] = Served(lambda context, node_id=node_id: self._handle(node_id, context))  # type: ignore[misc]

    @property
    def bootstrap(self) -> str:
        return ",".join(f"127.0.0.1:{served.port()}" for served in self.servers.values())

    def script(self, request: type[Message], answer: Answer) -> None:
        """Set the function that answers such requests."""
        self._script[request] = answer

    def requests(self, node_id: int, kind: type[Message] | None = None) -> list[Any]:
        """Return the requests that a broker got, without ApiVersions."""
        return [message for message in self._asked[node_id] if kind is None or isinstance(message, kind)]

    def client(self, properties: Mapping[str, str] | None = None, **more: str) -> Client:
        settings = ClientSettings.from_properties({"bootstrap.servers": self.bootstrap, **QUICK, **(properties or {}), **more})
        return Client(settings, network=NetworkClient(settings, draw=lambda: 0.0), draw=lambda: 0.5)

    def hurried(self, **settings: int) -> Client:
        """Return a client that has got one answer, and has these settings from then on."""
        client = self.client()
        client.fetch_metadata([])
        client.settings = replace(client.settings, **settings)  # type: ignore[arg-type]  # mypy takes them for all fields at once
        return client

    def stop(self, node_id: int) -> None:
        """End a broker. Its port refuses connections from then on."""
        self.servers[node_id].__exit__(None, None, None)
        del self.servers[node_id]

    def _handle(self, node_id: int, context: RequestContext) -> None:
        message = context.request.message
        if isinstance(message, ApiVersionsRequest):
            context.respond(self._versions())
            return
        self._asked[node_id].append(message)
        answer = self._script.get(type(message))
        found = answer(context, message) if answer is not None else self.metadata(message) if isinstance(message, MetadataRequest) else None
        if found is not None:
            context.respond(found)

    def _versions(self) -> Message:
        served = [(api, api.advertised_versions(Listener.BROKER)) for api in API_KEYS if api.key not in self.unknown_apis]
        return ApiVersionsResponse(
            api_keys=[
                ApiVersion(api.key, versions.start, min(versions.stop - 1, self.last_versions.get(api.key, versions.stop)))
                for api, versions in served
                if versions
            ]
        )

    def metadata(self, message: MetadataRequest) -> MetadataResponse:
        """Return the brokers, and the topics that were requested."""
        names = list(self.topics) if message.topics is None else [topic.name or "" for topic in message.topics]
        ports = {node_id: served.port() for node_id, served in self.servers.items()}
        brokers = [
            MetadataResponseBroker(node_id=node_id, host="127.0.0.1", port=port)
            for node_id, port in ports.items()
            if node_id not in self.hidden
        ]
        topics = [self._topic(name) for name in names]
        return MetadataResponse(brokers=brokers, cluster_id="scripted", controller_id=self.controller_id, topics=topics)

    def _topic(self, name: str) -> MetadataResponseTopic:
        if name not in self.topics:
            return MetadataResponseTopic(error_code=3, name=name)
        epoch, nodes = self.epochs.get(name, 0), list(self.servers)
        partitions = [
            MetadataResponsePartition(partition_index=index, leader_id=leader, leader_epoch=epoch, replica_nodes=nodes, isr_nodes=nodes)
            for index, leader in enumerate(self.topics[name])
        ]
        return MetadataResponseTopic(name=name, topic_id=name.encode().ljust(16, b"\1"), partitions=partitions)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        for served in self.servers.values():
            served.__exit__(kind, error, trace)
