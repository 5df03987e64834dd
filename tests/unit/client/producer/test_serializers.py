"""Serializers: bytes of fixed width, values that do not fit, functions of a program."""

from __future__ import annotations

from typing import Any

import pytest

from kops.client.errors import SerializationError
from kops.client.producer.serializers import find_serializer
from kops.errors import UsageError


@pytest.mark.parametrize(
    ("name", "value", "data"),
    [
        ("short", -2, b"\xff\xfe"),
        ("int", 258, b"\x00\x00\x01\x02"),
        ("long", -1, b"\xff" * 8),
        ("float", 1.0, b"\x3f\x80\x00\x00"),
        ("double", 1, b"\x3f\xf0" + b"\x00" * 6),
        ("string", "a\udc80b", b"a?b"),
        ("bytes", bytearray(b"x"), b"x"),
        ("void", None, None),
        ("org.apache.kafka.common.serialization.LongSerializer", 1, b"\x00" * 7 + b"\x01"),
    ],
)
def test_bytes(name: str, value: object, data: bytes | None) -> None:
    assert find_serializer(name)("t", (), value) == data


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("short", 32768),
        ("int", 2**31),
        ("long", 2**63),
        ("long", 1.5),
        ("int", True),
        ("float", 1e39),
        ("uuid", "x"),
        ("void", 1),
        ("bytes", "x"),
    ],
)
def test_what_does_not_fit(name: str, value: object) -> None:
    with pytest.raises(SerializationError):
        find_serializer(name)("t", (), value)


def test_functions_and_objects_of_a_program() -> None:
    class Upper:
        def serialize(self, topic: str, headers: Any, value: str) -> bytes:
            return f"{topic}:{value.upper()}".encode()

    def both(topic: str, headers: Any, value: str) -> bytes:
        return f"{topic}{value}".encode()

    assert find_serializer(str.encode)("t", (), "a") == b"a"
    assert find_serializer(lambda value: value[::-1])("t", (), b"ab") == b"ba"
    assert find_serializer(both)("t", (), "a") == b"ta"
    assert find_serializer(Upper)("t", (), "a") == find_serializer(Upper())("t", (), "a") == b"t:A"
    assert find_serializer(lambda value: bytearray(value + b"b"))("t", (), b"a") == b"ab"
    with pytest.raises(SerializationError, match="it returned str; allowed: bytes or None"):
        find_serializer(str.upper)("t", (), "a")
    for wrong in ("strings", 7):
        with pytest.raises(UsageError, match="is no serializer; allowed: bytes, string"):
            find_serializer(wrong)
