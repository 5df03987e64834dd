"""Metrics in OpenTelemetry's format: the bytes of a MetricsData message of OTLP 1.0, in protocol buffers.

Source: Kafka's SinglePointMetric, TelemetryMetricNamingConvention; OpenTelemetry's metrics.proto, resource.proto and common.proto. Like
Kafka, each metric has its own ResourceMetrics.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Final, NamedTuple

from kops.records.varint import write_unsigned_varint

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from kops.client.metrics.sensors import MetricName

DOMAIN: Final = "org.apache.kafka"
_DELTA: Final = 1
_CUMULATIVE: Final = 2
_EXCLUDED: Final = "client_id"  # the broker knows it


class Point(NamedTuple):
    """The value of a metric at a time. `since_ms` is the beginning of a sum, None for a gauge. Times are ms since the epoch."""

    name: str
    tags: Mapping[str, str]
    value: float
    at_ms: int
    since_ms: int | None = None
    is_delta: bool = False


def telemetry_name(name: MetricName) -> str:
    """Return OpenTelemetry's name of a metric, such as org.apache.kafka.producer.record.send.total."""
    group = name.group.lower().replace("-", ".").replace(".metrics", "")
    return f"{DOMAIN}.{group}.{name.name.lower().replace('-', '.')}"


def telemetry_tags(name: MetricName) -> dict[str, str]:
    """Return the tags of a metric without the client id."""
    found = {key.lower().replace("-", "_"): value for key, value in name.tags}
    found.pop(_EXCLUDED, None)
    return found


def write_metrics(points: Iterable[Point], attributes: Mapping[str, str]) -> bytes:
    """Return the bytes of a MetricsData message. `attributes` describe the client."""
    resource = _field(1, b"".join(_attribute(1, key, value) for key, value in attributes.items()))
    return b"".join(_field(1, resource + _field(2, _field(2, _metric(point)))) for point in points)


def _metric(point: Point) -> bytes:
    data = b"" if point.since_ms is None else _fixed(2, point.since_ms)
    data += _fixed(3, point.at_ms) + b"\x21" + struct.pack("<d", point.value)  # field 4, 64 bits
    data += b"".join(_attribute(7, key, value) for key, value in point.tags.items())
    name = _field(1, point.name.encode())
    if point.since_ms is None:
        return name + _field(5, _field(1, data))  # gauge
    kind = _DELTA if point.is_delta else _CUMULATIVE
    return name + _field(7, _field(1, data) + bytes((0x10, kind, 0x18, 1)))  # sum: fields 2 (temporality) and 3 (monotonic)


def _attribute(number: int, key: str, value: str) -> bytes:
    return _field(number, _field(1, key.encode()) + _field(2, _field(1, value.encode())))


def _fixed(number: int, ms: int) -> bytes:
    return bytes((number << 3 | 1,)) + struct.pack("<Q", ms * 1_000_000)


def _field(number: int, data: bytes) -> bytes:
    return bytes((number << 3 | 2,)) + write_unsigned_varint(len(data)) + data
