"""The metrics of a client's connections: of all, and of each node.

Source: Kafka's Selector.SelectorMetrics, NetworkClient (latency of a node). There is no authentication yet, so its metrics stay at 0.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from kops.client.metrics.sensors import Stat, Stats, average, count_meter, meter

if TYPE_CHECKING:
    from kops.client.metrics.sensors import Metrics

_AUTHENTICATION: Final[Stats] = {
    **meter("successful-authentication"),
    **meter("successful-reauthentication"),
    **meter("failed-authentication"),
    **meter("failed-reauthentication"),
    "successful-authentication-no-reauth-total": Stat.TOTAL,
}


class NodeMetrics:
    """The metrics of the connection to one node."""

    __slots__ = ("latency", "received", "requests", "responses", "sent")

    def __init__(self, metrics: Metrics, group: str, node_id: int) -> None:
        tags = {"node-id": f"node-{node_id}"}
        self.requests = metrics.sensor(group, {**count_meter("request"), **average("request-size")}, tags)
        self.responses = metrics.sensor(group, count_meter("response"), tags)
        self.sent = metrics.sensor(group, meter("outgoing-byte"), tags)
        self.received = metrics.sensor(group, meter("incoming-byte"), tags)
        self.latency = metrics.sensor(group, average("request-latency"), tags)


class NetworkMetrics:
    """The metrics of all connections. `connections` is how many there are."""

    def __init__(self, metrics: Metrics, prefix: str) -> None:
        group = f"{prefix}-metrics"
        self.connections = 0
        self._metrics = metrics
        self._node_group = f"{prefix}-node-metrics"
        self._nodes: dict[int, NodeMetrics] = {}
        self._created = metrics.sensor(group, meter("connection-creation"))
        self._closed = metrics.sensor(group, meter("connection-close"))
        self._transfers = metrics.sensor(group, count_meter("network-io"))
        self._sent = metrics.sensor(group, meter("outgoing-byte"))
        self._received = metrics.sensor(group, meter("incoming-byte"))
        self._requests = metrics.sensor(group, {**count_meter("request"), **average("request-size")})
        self._responses = metrics.sensor(group, count_meter("response"))
        waits = {"io-wait-time-ns-avg": Stat.AVG, "io-wait-ratio": Stat.SHARE, "io-wait-time-ns-total": Stat.TOTAL}
        self._waits = metrics.sensor(group, {**count_meter("select"), **waits})
        self._work = metrics.sensor(group, {"io-time-ns-avg": Stat.AVG, "io-ratio": Stat.SHARE, "io-time-ns-total": Stat.TOTAL})
        metrics.sensor(group, _AUTHENTICATION)
        metrics.sensor(group, average("reauthentication-latency"))
        metrics.gauge(group, "connection-count", lambda now_ms: self.connections)

    def node(self, node_id: int) -> NodeMetrics:
        """Return the metrics of one node."""
        found = self._nodes.get(node_id)
        if found is None:
            found = self._nodes[node_id] = NodeMetrics(self._metrics, self._node_group, node_id)
        return found

    def opened(self, node_id: int, now_ms: float) -> None:
        """Count a new connection."""
        self.node(node_id)
        self.connections += 1
        self._created.record(1, now_ms)

    def closed(self, now_ms: float) -> None:
        """Count a connection that has ended."""
        self.connections -= 1
        self._closed.record(1, now_ms)

    def asked(self, node_id: int, size: int, now_ms: float) -> None:
        """Count a request."""
        self._requests.record(size, now_ms)
        self.node(node_id).requests.record(size, now_ms)

    def answered(self, node_id: int, now_ms: float) -> None:
        """Count a response."""
        self._responses.record(1, now_ms)
        self.node(node_id).responses.record(1, now_ms)

    def sent(self, node_id: int, size: int, now_ms: float) -> None:
        """Count bytes that were written."""
        self._transfers.record(size, now_ms)
        self._sent.record(size, now_ms)
        self.node(node_id).sent.record(size, now_ms)

    def received(self, node_id: int, size: int, now_ms: float) -> None:
        """Count bytes that were read."""
        self._transfers.record(size, now_ms)
        self._received.record(size, now_ms)
        self.node(node_id).received.record(size, now_ms)

    def polled(self, wait_ns: int, work_ns: int, now_ms: float) -> None:
        """Count one turn: the wait for the sockets, and the work on them."""
        self._waits.record(wait_ns, now_ms)
        self._work.record(work_ns, now_ms)

    def worked(self, work_ns: int, now_ms: float) -> None:
        """Count work on a socket for which a thread of the program has waited, while the client's own thread still waits."""
        self._work.record(work_ns, now_ms)
