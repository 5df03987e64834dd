"""An answer that comes in parts ends the client's wait only once."""

from __future__ import annotations

import socket
import threading
from typing import Any

from kops.client.network import NetworkClient
from kops.client.node import Node
from kops.client.settings import ClientSettings
from kops.protocol.connections.connection import Request, ServerConnection
from kops.protocol.messages import ApiVersionsResponse, MetadataRequest, MetadataResponse
from kops.protocol.messages.api_versions_response import ApiVersion
from kops.protocol.messages.metadata_response import MetadataResponseTopic


class Received:
    """Metrics that let another thread wait until the client has received something."""

    def __init__(self) -> None:
        self.has_come = threading.Event()
        self.turns = 0

    def received(self, node_id: int, size: int, now_ms: float) -> None:
        self.has_come.set()

    def polled(self, wait_ns: int, work_ns: int, now_ms: float) -> None:
        self.turns += 1

    def __getattr__(self, name: str) -> Any:
        return lambda *arguments: None


def next_request(sock: socket.socket, server: ServerConnection) -> Request:
    while (request := server.next_event()) is None:
        server.receive_data(sock.recv(65536))
    return request


def test_a_poll_waits_for_the_whole_answer() -> None:
    listener = socket.create_server(("127.0.0.1", 0))
    metrics = Received()

    def serve() -> None:
        sock, _ = listener.accept()
        with sock:
            server = ServerConnection()
            versions = ApiVersionsResponse(api_keys=[ApiVersion(api_key=3, min_version=0, max_version=12)])
            sock.sendall(b"".join(map(bytes, server.send_response(next_request(sock, server), versions))))  # type: ignore[arg-type]
            request = next_request(sock, server)
            answer = MetadataResponse(topics=[MetadataResponseTopic(name="t" * 200) for _ in range(500)])
            data = b"".join(map(bytes, server.send_response(request, answer)))  # type: ignore[arg-type]
            for start in range(0, len(data), 20_000):
                metrics.has_come.clear()
                sock.sendall(data[start : start + 20_000])
                assert metrics.has_come.wait(60)
            sock.recv(1)

    thread = threading.Thread(target=serve)
    thread.start()
    network = NetworkClient(ClientSettings.from_properties({"bootstrap.servers": "x:1"}), metrics=metrics)  # type: ignore[arg-type]
    node = Node(1, "127.0.0.1", listener.getsockname()[1])
    answers: list[object] = []
    network.send(node, MetadataRequest(topics=[]), answers.append)
    while network.latest_version(node, 3) < 0:
        network.poll(60_000)
    before = metrics.turns
    network.poll(60_000)
    if not answers:
        network.poll(60_000)  # the one before may have only sent the request
    assert len(answers) == 1 and isinstance(answers[0], MetadataResponse) and len(answers[0].topics) == 500
    assert metrics.turns - before >= 5
    network.close()
    thread.join(60)
    assert not thread.is_alive()
    listener.close()
