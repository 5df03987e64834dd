"""The generated declarations, and what the compiled readers and writers do with values and bytes."""

from __future__ import annotations

import ast
import inspect
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from kops.errors import ApiError, DecodeError
from kops.protocol import api_keys, errors, messages
from kops.protocol.declaration import ZERO_UUID, Message, Struct
from kops.protocol.messages import (
    ApiVersionsResponse,
    FetchRequest,
    FetchResponse,
    MetadataRequest,
    OffsetCommitValue,
    ProduceRequest,
    RequestHeader,
    UpdateFeaturesRequest,
)
from kops.protocol.messages.api_versions_response import SupportedFeatureKey
from kops.protocol.messages.fetch_response import FetchableTopicResponse, PartitionData
from kops.protocol.primitives import size_of
from kops.protocol.registry import message_class, request_class, response_class
from kops.protocol.structure import SMALL_RECORDS_SIZE, parse_versions
from tests.support.requests.messages import all_messages, all_versions, random_message
from tools.make_messages import TARGET, generate

PROJECT = Path(messages.__file__).parents[3]


def structures(declared: type[Struct]) -> Iterator[type[Struct]]:
    """Yield a structure and all structures inside of it."""
    yield declared
    for field in declared.FIELDS:
        if field.of is not None:
            yield from structures(field.of)


def test_generating_again_gives_the_same_files(tmp_path: Path) -> None:
    generate(tmp_path)
    made = {path.name: path.read_text() for path in tmp_path.glob("*.py")}
    assert made == {path.name: path.read_text() for path in TARGET.glob("*.py")}


def test_a_message_is_imported_alone() -> None:
    program = (
        "import sys\nfrom kops.protocol.messages import FetchRequest\n"
        "print(*[name for name in sys.modules if name.startswith('kops.protocol.messages.') or name in ('dataclasses', 'json')])"
    )
    done = subprocess.run([sys.executable, "-c", program], cwd=PROJECT, capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["kops.protocol.messages.fetch_request"]


def test_declarations_are_whole() -> None:
    """Slots, parameters and declared fields have the same names. None hides a method, and defaults are the declared ones."""
    for message in all_messages():
        for declared in structures(message):
            names = [field.name for field in declared.FIELDS]
            assert sorted(names) == sorted(declared.__slots__)
            assert list(inspect.signature(declared.__init__).parameters)[1:] == names
            assert not set(names) & set(dir(Message)), declared
            made = declared()
            assert {field.name: getattr(made, field.name) for field in declared.FIELDS} == {
                field.name: field.default_value() for field in declared.FIELDS
            }
            assert made == declared() and made.unknown_tagged_fields == ()


def elements(declared: type[Struct], version: int) -> Iterator[type[Struct]]:
    """Yield the structures in arrays of this version."""
    for field in declared.FIELDS:
        if field.of is not None and version in parse_versions(field.versions):
            if field.is_array:
                yield field.of
            yield from elements(field.of, version)


def test_no_structure_without_bytes_stands_in_an_array() -> None:
    """The reader allows as many elements as there are bytes left. If each element takes bytes, the work is proportional to the bytes."""
    for message, version in all_versions():
        for declared in elements(message, version):
            there = any(version in parse_versions(field.versions) for field in declared.FIELDS)
            assert there or message.is_flexible(version), (message, declared, version)


@pytest.mark.parametrize("seed", range(2))
def test_every_version_goes_round(seed: int) -> None:
    for declared, version in all_versions():
        message = random_message(declared, version, seed)
        data = message.encode(version)
        assert declared.read(data, version) == (message, len(data))
        behind = memoryview(b"head" + data + b"tail")
        assert declared.read(behind, version, 4) == (message, 4 + len(data))


def test_values_that_a_version_lacks() -> None:
    with pytest.raises(ApiError, match="Attempted to write a non-default clusterAuthorizedOperations at version 7") as caught:
        message_class("MetadataResponse")(cluster_authorized_operations=3).encode(7)  # type: ignore[call-arg]
    assert caught.value.name == "UNSUPPORTED_VERSION"
    assert FetchRequest(rack_id="a").encode(10) == FetchRequest().encode(10)  # may be ignored
    with pytest.raises(ApiError, match="ProduceRequest has no version 2"):
        ProduceRequest().encode(2)
    with pytest.raises(ApiError, match="has no version 14"):
        ProduceRequest.decode(b"", 14)
    header = RequestHeader(client_id="me")
    header.unknown_tagged_fields = ((5, b"x"),)
    assert RequestHeader.decode(header.encode(2), 2) == header
    with pytest.raises(ApiError, match="Tagged fields were set, but version 1"):
        header.encode(1)


@pytest.mark.parametrize(
    ("unknown", "words"),
    [(((9, b""), (9, b"")), "tag 9 comes after tag 9"), (((0, b"x"),), "tag 0 as an undefined"), (((9, b""), (4, b"")), "4")],
)
def test_unknown_tagged_fields_out_of_order(unknown: tuple[tuple[int, bytes], ...], words: str) -> None:
    message = ApiVersionsResponse(zk_migration_ready=True, finalized_features_epoch=7)
    message.unknown_tagged_fields = unknown
    if unknown[0][0] == 0:
        message.supported_features.append(SupportedFeatureKey())
    with pytest.raises(ApiError, match=words):
        message.encode(4)


def test_unknown_tagged_fields_stand_between_the_known() -> None:
    message = FetchRequest(cluster_id="c")
    message.unknown_tagged_fields = ((2, b"two"), (300, b"y" * 200))
    data = message.encode(12)
    assert data.index(b"two") > data.index(b"\x02c")
    assert FetchRequest.decode(data, 12) == message
    message.unknown_tagged_fields = ((1, b"one"),)
    with pytest.raises(DecodeError, match="tag 1 is not valid for version 12"):  # it is known from version 15 on
        FetchRequest.decode(message.encode(12), 12)


def test_texts() -> None:
    assert OffsetCommitValue.decode(OffsetCommitValue(metadata="a\ud800b").encode(4), 4).metadata == "a?b"
    with pytest.raises(ApiError, match="'metadata' field is too long"):
        OffsetCommitValue(metadata="x" * 0x8000).encode(4)


@dataclass(frozen=True)
class Slice:
    """Part of a file."""

    size: int


def test_records_are_not_copied() -> None:
    """They are read as views of the received data, and written as the objects that they are."""
    records, in_file = memoryview(b"r" * 70_000), Slice(1 << 30)
    partitions = [PartitionData(partition_index=number, records=some) for number, some in enumerate((records, in_file, None, b""))]
    response = FetchResponse(responses=[FetchableTopicResponse(topic_id=ZERO_UUID, partitions=partitions)])
    buffers = response.write(13, bytearray(b"head"))
    assert bytes(buffers[0][:4]) == b"head"  # type: ignore[index]
    assert buffers[1] is records and buffers[3] is in_file
    assert sum(map(size_of, buffers)) > 70_000 + (1 << 30)
    partitions[1].records = b"s"
    data = bytearray(response.encode(13))
    found = FetchResponse.decode(data, 13).responses[0].partitions
    assert isinstance(found[0].records, memoryview) and found[0].records.obj is data
    assert [None if one.records is None else bytes(one.records) for one in found] == [bytes(records), b"s", None, b""]  # type: ignore[arg-type]


@pytest.mark.parametrize(("size", "count"), [(0, 1), (SMALL_RECORDS_SIZE, 1), (SMALL_RECORDS_SIZE + 1, 3)])
def test_a_few_bytes_of_records_go_into_the_buffer_of_their_message(size: int, count: int) -> None:
    """The bytes are the same, in one buffer or in three."""
    records = b"r" * size
    response = FetchResponse(responses=[FetchableTopicResponse(topic_id=ZERO_UUID, partitions=[PartitionData(records=records)])])
    buffers = response.write(13)
    assert len(buffers) == count
    response.responses[0].partitions[0].records = memoryview(records)  # always a separate buffer
    assert len(response.write(13)) == 3
    assert response.encode(13) == b"".join(buffers)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("declared", "version", "data", "words"),
    [
        (MetadataRequest, 4, b"", "within a field"),
        (MetadataRequest, 4, b"\x7f\xff\xff\xff\x00", "topics has a length of 2147483647, 1 byte"),
        (MetadataRequest, 9, b"\xff\xff\xff\xff\x07\x00", "topics has a length of 2147483646"),
        (MetadataRequest, 9, b"\xff\xff\xff\xff\xff\xff\x07", "does not end within 5 bytes"),
        (MetadataRequest, 0, b"\xff\xff\xff\xff", "topics is null"),
        (UpdateFeaturesRequest, 0, b"\x00\x00\x00\x00\x02\x00\x00", "feature is null"),
        (OffsetCommitValue, 0, b"\x00" * 8 + b"\x00\x05ab", "metadata has a length of 5, 2 byte"),
        (RequestHeader, 2, b"\x00" * 8 + b"\xff\xff\x01\x07\x09a", "an unknown tagged field has a length of 9, 1 byte"),
    ],
)
def test_bad_bytes(declared: type[Message], version: int, data: bytes, words: str) -> None:
    with pytest.raises(DecodeError, match=words) as caught:
        declared.decode(data, version)
    assert caught.value.code == "bad-message" and caught.value.position is not None
    assert 0 <= caught.value.position <= len(data)


def test_every_cut_is_a_decode_error() -> None:
    for declared, version in all_versions():
        if version == declared.VERSIONS[-1]:
            data = random_message(declared, version, 7).encode(version)[:400]
            whole = random_message(declared, version, 7).encode(version)
            for end in range(0, min(len(whole), len(data)), 3):
                with pytest.raises(DecodeError):
                    declared.decode(data[:end], version)


def test_apis_and_messages_agree() -> None:
    for api in api_keys.API_KEYS:
        if len(api.versions):
            for declared in (request_class(api), response_class(api)):
                assert (api.key, api.versions) == (declared.API_KEY, declared.VERSIONS)
                assert [declared.is_flexible(one) for one in api.versions] == [api.is_flexible(one) for one in api.versions]
                assert (api.unstable_version if declared.KIND == "request" else None) == declared.UNSTABLE_VERSION
    assert (len(api_keys.API_KEYS), sum(len(api.versions) for api in api_keys.API_KEYS)) == (93, 302)


def test_every_api_error_in_kops_is_in_the_table() -> None:
    found = set()
    sources = (path.read_text() for path in (PROJECT / "kops").rglob("*.py"))
    for source in sources:
        for node in ast.walk(ast.parse(source)) if "ApiError(" in source else ():
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "ApiError":
                first: Any = node.args[0] if node.args else None
                if isinstance(first, ast.Constant):
                    found.add(first.value)
    assert found <= set(errors.BY_NAME) and "UNSUPPORTED_VERSION" in found


def test_the_table_of_errors_is_found_by_everything() -> None:
    assert errors.by_code(45).name == "OUT_OF_ORDER_SEQUENCE_NUMBER"
    assert errors.by_code(31_000).name == "UNKNOWN_SERVER_ERROR"
    assert errors.by_name("NOT_LEADER_OR_FOLLOWER").retriable and not errors.by_name("INVALID_TOPIC_EXCEPTION").retriable
    assert errors.by_exception("org.apache.kafka.common.errors.TimeoutException").code == 7
    assert errors.by_exception("java.lang.NullPointerException").code == -1
    for table in (errors.BY_CODE, errors.BY_NAME):
        assert len(table) == len(errors.ERRORS)
