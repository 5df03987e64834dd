"""Kafka's own Java clients on three nodes: idempotent by default, every codec, read back with both isolation levels."""

from __future__ import annotations

import base64
import uuid

import pytest

from tests.support.kafka.oracle import Oracle
from tests.support.nodes.kops_nodes import KopsNodes

pytestmark = pytest.mark.slow


@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4", "zstd"])
def test_records_in_every_codec(oracle: Oracle, nodes: KopsNodes, codec: str) -> None:
    topic = f"orders-{uuid.uuid4().hex}"
    oracle.create_topic(nodes.bootstrap, topic, partitions=2)
    records = [(b"key%d" % number if number % 3 else None, b"value%d" % number * 30 if number % 4 else None) for number in range(120)]
    for partition in range(2):
        oracle.produce(nodes.bootstrap, topic, partition, records, settings={"compression.type": codec}, per_batch=40)
    for isolation in ("read_uncommitted", "read_committed"):
        consumed = oracle.read_records(nodes.bootstrap, topic, 1, isolation=isolation)
        assert consumed.meta["error"] is None and consumed.meta["endOffset"] == 120
        found = [(decoded(record["key"]), decoded(record["value"])) for record in consumed.records]
        assert found == records
        assert [record["offset"] for record in consumed.records] == list(range(120))
        assert {record["leaderEpoch"] for record in consumed.records} == {0}


def decoded(text: str | None) -> bytes | None:
    """Return the fields of a record."""
    return None if text is None else base64.b64decode(text)


@pytest.mark.parametrize("settings", [{"acks": "1", "enable.idempotence": "false"}, {"acks": "0", "enable.idempotence": "false"}], ids=str)
def test_acks(oracle: Oracle, nodes: KopsNodes, settings: dict[str, str]) -> None:
    topic = f"orders-{uuid.uuid4().hex}"
    oracle.create_topic(nodes.bootstrap, topic)
    oracle.produce(nodes.bootstrap, topic, 0, [(None, b"%d" % number) for number in range(50)], settings=settings)
    assert oracle.read_records(nodes.bootstrap, topic, 0).meta["records"] == 50
