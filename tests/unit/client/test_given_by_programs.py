"""What a program gives to a client: a misspelt setting is named in the error, and headers are as they were at `send`."""

from __future__ import annotations

import asyncio
import re
from typing import Any

import pytest

import kops
import kops.aio
from kops.client.producer.faces.driving import ProducerRecord, freeze_headers
from tests.support.ports import free_ports


@pytest.mark.parametrize("client", [kops.Producer, kops.Consumer, kops.ShareConsumer, kops.Admin])
def test_a_misspelt_address_is_named(client: Any) -> None:
    with pytest.raises(kops.UsageError, match=re.escape("did you mean bootstrap.servers")) as caught:
        client(bootstrap_server="localhost:9092")
    assert "bootstrap.servers: missing" in str(caught.value)
    assert "unknown setting bootstrap.server," in str(caught.value)
    with pytest.raises(kops.UsageError) as caught:
        client(client_idd="x")
    assert "did you mean" not in str(caught.value)  # it has nothing to do with the address


@pytest.mark.parametrize("client", [kops.Producer, kops.Consumer, kops.ShareConsumer, kops.Admin])
def test_a_text_that_can_not_be_sent_is_refused(client: Any) -> None:
    """In a message there would be a question mark for the lone surrogate, and so another name."""
    for name in ("client.id", "group.id", "transactional.id"):
        with pytest.raises(kops.UsageError, match=re.escape(rf"{name}='a\udcff': not a text that UTF-8 can encode")):
            client({"bootstrap.servers": "localhost:9092", name: "a\udcff"})


def test_a_topic_that_can_not_be_sent_is_refused() -> None:
    with kops.Consumer(bootstrap_servers="localhost:9092", group_id="g") as consumer:
        with pytest.raises(kops.UsageError, match="is not the name of a topic"):
            consumer.subscribe(["\udcff"])
        with pytest.raises(kops.UsageError, match="is not a partition"):
            consumer.assign([("\udcff", 0)])
    with kops.Producer(bootstrap_servers="localhost:9092") as producer, pytest.raises(kops.UsageError, match="is not the name of a topic"):
        producer.partitions_for("\udcff")


def test_headers_do_not_change_after_the_send() -> None:
    """Kafka makes the headers of a record read-only (KafkaProducer.setReadOnly). Here they are copied."""
    pairs: list[tuple[str, bytes | None]] = [("a", b"1"), ("a", None)]
    mapping: dict[str, bytes | None] = {"a": b"1"}
    frozen, of_mapping = freeze_headers(pairs), freeze_headers(mapping)
    pairs[0] = ("b", b"2")
    pairs.clear()
    mapping["a"] = b"2"
    assert frozen == (("a", b"1"), ("a", None))
    assert of_mapping == (("a", b"1"),)
    with pytest.raises(kops.UsageError, match="headers"):  # bytes that can change are refused
        freeze_headers([("a", bytearray(b"1"))])  # type: ignore[list-item]


def test_a_producer_sends_the_headers_of_the_time_of_send() -> None:
    seen: list[ProducerRecord] = []

    class Interceptor:
        def on_send(self, record: ProducerRecord) -> ProducerRecord:
            seen.append(record)
            pairs.clear()  # as another thread of the program could
            return record

        def on_acknowledgement(self, metadata: object, error: object) -> None:
            assert error is not None  # there is no broker

    pairs: list[tuple[str, bytes | None]] = [("a", b"1")]
    (port,) = free_ports(1)
    producer = kops.Producer(bootstrap_servers=f"127.0.0.1:{port}", max_block_ms=0, interceptor_classes=[Interceptor])
    future = producer.send("t", b"x", headers=pairs)
    producer.close(0)
    assert pairs == []
    assert [one.headers for one in seen] == [(("a", b"1"),)]
    assert isinstance(future.exception(), kops.KafkaError)


@pytest.mark.parametrize("client", [kops.Producer, kops.Consumer, kops.ShareConsumer, kops.Admin])
def test_the_text_of_a_client_says_where_it_connects_and_whether_it_is_closed(client: Any) -> None:
    [port] = free_ports(1)
    kind = f"kops.{client.__name__}"
    with client({"bootstrap.servers": f"127.0.0.1:{port}", "client.id": "till", "group.id": "g"}) as one:
        assert repr(one) == f"<{kind} till at 127.0.0.1:{port}>"
    assert repr(one) == f"<{kind} till closed>"


@pytest.mark.parametrize("client", [kops.aio.Producer, kops.aio.Consumer, kops.aio.ShareConsumer, kops.aio.Admin])
def test_the_text_of_a_client_for_asyncio(client: Any) -> None:
    [port] = free_ports(1)
    kind = f"kops.aio.{client.__name__}"

    async def live() -> None:
        async with client({"bootstrap.servers": f"127.0.0.1:{port}", "client.id": "till", "group.id": "g"}) as one:
            assert repr(one) == f"<{kind} till at 127.0.0.1:{port}>"
        assert repr(one) == f"<{kind} till closed>"

    asyncio.run(live())
