"""`kops.forensics.questions.values`: it decodes what other libraries encoded, rejects bytes that do not fit, and selects parts by path."""

from __future__ import annotations

import json
import pickle
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from kops.errors import DecodeError, UsageError
from kops.forensics.questions.values.avro import AvroDecoder
from kops.forensics.questions.values.json_path import parse_condition, select
from kops.forensics.questions.values.protobuf import ProtobufDecoder

ENCODED = json.loads((Path(__file__).parent / "encoded_values.json").read_text())
AVRO = AvroDecoder(json.dumps(ENCODED["avro"]["schema"]))
PROTOBUF = ProtobufDecoder(bytes.fromhex(ENCODED["protobuf"]["descriptors"]), "shop.Order")
PREFIX = b"\0\0\0\1\7"


@pytest.mark.parametrize("text,expected", ENCODED["avro"]["values"])
def test_avro_with_and_without_the_prefix_of_a_registry(text: str, expected: Any) -> None:
    data = bytes.fromhex(text)
    decoder = pickle.loads(pickle.dumps(AVRO))
    assert decoder(data) == expected
    assert decoder(PREFIX + data) == expected


@pytest.mark.parametrize("text,expected", ENCODED["protobuf"]["values"])
def test_protobuf_with_and_without_the_prefix_of_a_registry(text: str, expected: Any) -> None:
    data = bytes.fromhex(text)
    decoder = pickle.loads(pickle.dumps(PROTOBUF))
    assert decoder(data) == expected
    assert decoder(PREFIX + b"\0" + data) == expected  # the first message of the file
    assert decoder(PREFIX + b"\4\2\0" + data) == expected  # a nested one


@pytest.mark.parametrize("decoder", [AVRO, PROTOBUF], ids=["avro", "protobuf"])
def test_any_bytes_give_a_value_or_a_decode_error(decoder: Callable[[bytes], Any]) -> None:
    randomly = random.Random(3)
    good = [bytes.fromhex(text) for kind in ("avro", "protobuf") for text, _ in ENCODED[kind]["values"]]
    refused = 0
    for _ in range(1500):
        data = bytearray(randomly.choice(good)[: randomly.randrange(200)])
        for _ in range(randomly.randrange(3)):
            if data:
                data[randomly.randrange(len(data))] = randomly.randrange(256)
        try:
            decoder(bytes(data))
        except DecodeError:
            refused += 1
    assert refused > 300


def test_avro_that_is_cut_or_too_long_is_refused() -> None:
    decoder = AvroDecoder(
        '{"type": "record", "name": "R", "fields": [{"name": "a", "type": "string"}, {"name": "b", "type": ["null", "R"]}]}'
    )
    assert decoder(b"\4hi\0") == {"a": "hi", "b": None}
    assert decoder(b"\4hi\2\2x\0") == {"a": "hi", "b": {"a": "x", "b": None}}
    for data, reason in (
        (b"\4h", "2 bytes, 1 are left"),
        (b"\4hi\0x", "1 bytes follow"),
        (b"\4hi\4", "has 2 branches, not number 2"),
        (b"\2\xff\0", "not UTF-8"),
        (b"\2x\2" * 200, "nested more than 100 times"),
        (b"\xff" * 11, "more than 64 bits"),
    ):
        with pytest.raises(DecodeError, match=reason):
            decoder(data)
    with pytest.raises(DecodeError, match="an Avro block of"):
        AvroDecoder('{"type": "array", "items": "null"}')(b"\x80\x80\x80\x80\x10")


@pytest.mark.parametrize(
    "text,reason",
    [
        ("{", "not JSON"),
        ("7", "not an Avro schema: 7"),
        ('"Order"', "the Avro type Order is not defined"),
        ('{"type": "record", "name": "R"}', "the attribute fields is missing"),
        ('{"type": "array"}', "the attribute items is missing"),
        ('[{"type": "fixed", "name": "F", "size": 1}, {"type": "fixed", "name": "F", "size": 2}]', "defined twice"),
    ],
)
def test_what_is_no_avro_schema(text: str, reason: str) -> None:
    with pytest.raises(UsageError, match=reason):
        AvroDecoder(text)


def test_messages_of_a_descriptor_set() -> None:
    descriptors = bytes.fromhex(ENCODED["protobuf"]["descriptors"])
    assert ProtobufDecoder(descriptors, "Item")(b"\x0a\1a\x10\5\x78\1") == {"sku": "a", "count": 5}  # field 15 is unknown
    with pytest.raises(UsageError, match=r"no such message; it has shop\.Item, shop\.Order"):
        ProtobufDecoder(descriptors, "Nothing")
    with pytest.raises(UsageError, match="not a descriptor set"):
        ProtobufDecoder(b"\x0a\x05abc", "Order")
    for data, reason in ((b"\x0a\5a", "5 bytes, 1 are left"), (b"\x10", "end within"), (b"\7", "number 0"), (b"\x0f\1", "wire type 7")):
        with pytest.raises(DecodeError, match=reason):
            ProtobufDecoder(descriptors, "Item")(data)


DOCUMENT = {"a": {"b": [1, {"c": "x"}, {"c": "yes"}], "odd name": True}, "n": 5, "zero": None, "list": [[1], [2]]}


@pytest.mark.parametrize(
    "path,found",
    [
        ("$", [DOCUMENT]),
        ("$.n", [5]),
        ("n", [5]),
        ("$.a.b[0]", [1]),
        ("$.a.b[-1].c", ["yes"]),
        ("$.a.b[9]", []),
        ("$.a.b[*].c", ["x", "yes"]),
        ("$..c", ["x", "yes"]),
        ("$..[0]", [1, [1], 1, 2]),
        ("$['a']['odd name']", [True]),
        ('$.a["odd name"]', [True]),
        ("$.list[*][0]", [1, 2]),
        ("$.n.x", []),
        ("$.zero", [None]),
    ],
)
def test_paths(path: str, found: list[Any]) -> None:
    assert sorted(map(repr, select(DOCUMENT, parse_condition(path, "--jsonpath").steps))) == sorted(map(repr, found))


@pytest.mark.parametrize(
    "text,holds",
    [
        ("$.n=5", True),
        ("$.n=5.0", True),
        ("$.n=6", False),
        ("$.n=true", False),
        ("$.n", True),
        ("$.m", False),
        ("$.zero=null", True),
        ("$..c=yes", True),
        ('$..c="yes"', True),
        ("$..c=~^y", True),
        ("$..c=~^z", False),
        ("$.a['odd name']=true", True),
        ("$.a['odd name']=1", False),
        ("$.list=[[1], [2]]", True),
        ("$..c=", False),
    ],
)
def test_conditions(text: str, holds: bool) -> None:
    assert parse_condition(text, "--jsonpath").holds(DOCUMENT) is holds


@pytest.mark.parametrize("text", ["$.", "$a", "$[", "$[a]", "$.a[?(@.b)]", "$.a b", "$.a=~("])
def test_what_is_no_condition(text: str) -> None:
    with pytest.raises(UsageError, match="--jsonpath"):
        parse_condition(text, "--jsonpath")
