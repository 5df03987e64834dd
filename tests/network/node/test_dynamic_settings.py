"""The effects of changed settings in a running kops node: connections, listeners, sizes of batches, defaults of topics."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from kops.protocol.errors import by_name
from kops.protocol.messages import (
    ApiVersionsRequest,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
    ProduceRequest,
    ProduceResponse,
)
from kops.protocol.messages.incremental_alter_configs_request import AlterableConfig, AlterConfigsResource
from kops.protocol.messages.produce_request import PartitionProduceData, TopicProduceData
from kops.records.build import BatchBuilder
from tests.support.kafka.two_brokers import Side
from tests.support.nodes.kops_nodes import KopsNodes
from tests.support.nodes.raw_client import RawClient
from tests.support.patience import until
from tests.support.ports import free_ports

BROKER = 4
SET, DELETE = 0, 1


@pytest.fixture(scope="module")
def nodes(tmp_path_factory: pytest.TempPathFactory) -> Iterator[KopsNodes]:
    """Provide a node that is broker and controller."""
    with KopsNodes(tmp_path_factory.mktemp("node"), 1) as found:
        yield found


@pytest.fixture(scope="module")
def side(nodes: KopsNodes) -> Iterator[Side]:
    """Provide a connection to it, and a topic."""
    found = Side("kops", nodes.bootstrap)
    found.create("t")
    yield found
    found.client.close()


def change(side: Side, node: str, **settings: str | None) -> None:
    """Set the settings that have a value, remove the others."""
    configs = [AlterableConfig(name.replace("_", "."), DELETE if value is None else SET, value) for name, value in settings.items()]
    found = side.client.ask(IncrementalAlterConfigsRequest([AlterConfigsResource(BROKER, node, configs)], validate_only=False), 1)
    assert isinstance(found, IncrementalAlterConfigsResponse)
    assert [(one.error_code, one.error_message) for one in found.responses] == [(0, None)]


def is_answered(address: str) -> bool:
    """Return whether a new connection is served."""
    try:
        with RawClient(address) as client:
            return client.ask(ApiVersionsRequest("x", "1"), 3) is not None
    except OSError:
        return False


def produced(side: Side, size: int) -> str:
    """Return the error of a batch with a value of this size."""
    builder = BatchBuilder()
    builder.append(1_700_000_000_000, None, bytes(size))
    data = PartitionProduceData(0, builder.build())
    found = side.client.ask(ProduceRequest(acks=1, timeout_ms=30_000, topic_data=[TopicProduceData(name="t", partition_data=[data])]), 9)
    assert isinstance(found, ProduceResponse)
    code = found.responses[0].partition_responses[0].error_code
    return next(name for name in ("NONE", "MESSAGE_TOO_LARGE") if by_name(name).code == code)


def test_the_size_of_batches(side: Side) -> None:
    assert produced(side, 5000) == "NONE"
    change(side, "", message_max_bytes="1000")
    until(lambda: produced(side, 5000) == "MESSAGE_TOO_LARGE")
    change(side, "1", message_max_bytes="10000")
    until(lambda: produced(side, 5000) == "NONE")
    change(side, "1", message_max_bytes=None)
    change(side, "", message_max_bytes=None)
    until(lambda: produced(side, 20_000) == "NONE")


def test_connections(side: Side) -> None:
    assert is_answered(side.bootstrap)
    change(side, "", max_connections_per_ip="1")
    until(lambda: not is_answered(side.bootstrap))
    change(side, "", max_connections_per_ip=None)
    until(lambda: is_answered(side.bootstrap))


def test_listeners(nodes: KopsNodes, side: Side) -> None:
    (port,) = free_ports(1)
    more = f"127.0.0.1:{port}"
    listeners = f"PLAINTEXT://{side.bootstrap},CONTROLLER://127.0.0.1:{nodes.controller_ports[1]},B://{more}"
    change(side, "1", listeners=listeners, listener_security_protocol_map="PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT,B:PLAINTEXT")
    until(lambda: is_answered(more))
    # After a start, changed settings are back before the first request.
    assert nodes.stop(1) == 0
    assert not is_answered(more)
    nodes.start(1)
    nodes.wait(1)
    assert is_answered(more)
    side.client.close()  # it belonged to the former process
    change(side, "1", listeners=None, listener_security_protocol_map=None)
    until(lambda: not is_answered(more))
    assert is_answered(side.bootstrap)
