"""Parts of the producer beside Kafka's classes: serializers byte for byte, and the probability of each partition."""

from __future__ import annotations

import random
import uuid
from typing import Any

import pytest
from py4j.protocol import Py4JJavaError

from kops.client.errors import SerializationError
from kops.client.producer.partitioners import BuiltInPartitioner
from kops.client.producer.serializers import find_serializer, list_serializer
from tests.support.kafka.oracle import Oracle

PACKAGE = "org.apache.kafka.common.serialization."
# py4j makes an Integer or a Double of every number, so shorts, longs and floats are not given to Java (see the unit tests).
JAVA = {"string": "String", "int": "Integer", "double": "Double", "uuid": "UUID"}
VALUES: dict[str, list[Any]] = {
    "string": ["", "é€😀", "a\x00b"],
    "int": [0, -1, 2**31 - 1, -(2**31)],
    "double": [0.0, -1.5, 1e300],
    "uuid": [uuid.UUID(int=0), uuid.UUID("0123456789abcdef0123456789abcdef")],
}


def as_java(oracle: Oracle, value: Any) -> Any:
    """Return a value as the Java object that the serializer accepts."""
    return oracle.jvm.java.util.UUID.fromString(str(value)) if isinstance(value, uuid.UUID) else value


@pytest.mark.parametrize("kind", JAVA)
def test_bytes_are_kafkas(oracle: Oracle, kind: str) -> None:
    name = f"{PACKAGE}{JAVA[kind]}Serializer"
    real = oracle.java_class(name)()
    for value in VALUES[kind]:
        assert find_serializer(kind)("t", (), value) == bytes(real.serialize("t", as_java(oracle, value))), value
    assert find_serializer(name) is find_serializer(kind)
    assert find_serializer(name)("t", (), None) is None
    with pytest.raises(SerializationError):
        find_serializer(kind)("t", (), [])


@pytest.mark.parametrize("kind", JAVA)
def test_lists_are_kafkas(oracle: Oracle, kind: str) -> None:
    real = oracle.java_class(f"{PACKAGE}ListSerializer")(oracle.java_class(f"{PACKAGE}{JAVA[kind]}Serializer")())
    for values in ([], VALUES[kind], [None, VALUES[kind][-1], None]):
        listed = oracle.jvm.java.util.ArrayList()
        for value in values:
            listed.add(None if value is None else as_java(oracle, value))
        assert list_serializer(kind)("t", (), values) == bytes(real.serialize("t", listed)), values


@pytest.mark.parametrize("seed", range(4))
def test_loads_of_partitions(oracle: Oracle, seed: int) -> None:
    """Both have a table of loads in the same cases, with the same range of random numbers."""
    dice = random.Random(seed)
    context = oracle.java_class("org.apache.kafka.common.utils.LogContext")()
    tables = 0
    for _ in range(12):
        count = dice.randint(1, 6)
        sizes, partitions, looked_at = [dice.randint(0, 4) for _ in range(count)], dice.sample(range(10), count), dice.randint(0, count)
        real = oracle.java_class("org.apache.kafka.clients.producer.internals.BuiltInPartitioner")(context, "t", 100)
        queue_sizes, ids = (oracle.gateway.new_array(oracle.jvm.int, count) for _ in range(2))
        for index in range(count):
            queue_sizes[index], ids[index] = sizes[index], partitions[index]
        real.updatePartitionLoadStats(queue_sizes, ids, looked_at)
        own = BuiltInPartitioner(100, lambda: 0, lambda: [99], lambda: 1)
        own.load(sizes[:looked_at], partitions[:looked_at], count)
        if own.range_end is None:
            with pytest.raises(Py4JJavaError):
                real.loadStatsRangeEnd()
        else:
            assert own.range_end == real.loadStatsRangeEnd(), (sizes, looked_at)
            assert own.current() == partitions[0]
            tables += 1
    assert tables
