"""Slices of files in responses: sent by sendfile or read, whole, in pieces, and from a file that has changed."""

from __future__ import annotations

import errno
import os
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from kops.broker.network.channel import RequestContext
from kops.files import OsFiles
from kops.protocol.messages import FetchRequest, FetchResponse
from kops.protocol.messages.fetch_response import FetchableTopicResponse, PartitionData
from kops.storage.segment_files.file_records import FileRecords, LogView
from tests.support.nodes.networking import Client, Served

SIZE = 9_000_000
# Small slices are read and sent with their neighbours. Larger ones are sent by sendfile, the largest in several pieces.
SLICES = [(0, 1), (0, SIZE), (5, 0), (17, 16 * 1024), (SIZE - 3, 3), (1000, 16 * 1024 + 1), (SIZE // 2, 3_000_000), (7, 100), (9, 100)]


@pytest.fixture
def data() -> bytes:
    return random.Random(3).randbytes(SIZE)


@pytest.fixture
def records(tmp_path: Path, data: bytes) -> Iterator[FileRecords]:
    path = tmp_path / "00000000000000000000.log"
    path.write_bytes(data)
    file = FileRecords.open(OsFiles(), str(path), already_exists=True)
    yield file
    file.file.close()


def fetched(records: LogView, slices: list[tuple[int, int]]) -> FetchResponse:
    """Return a response with slices of a file."""
    partitions = [PartitionData(partition_index=index, records=records.slice(*span)) for index, span in enumerate(slices)]
    return FetchResponse(responses=[FetchableTopicResponse(topic="t", partitions=partitions)])


def received(client: Client) -> list[bytes]:
    response = client.receive()
    assert response is not None
    assert isinstance(response.message, FetchResponse)
    records = [partition.records for partition in response.message.responses[0].partitions]
    return [bytes(view) for view in records if isinstance(view, memoryview)]


class WithoutDescriptor:
    """A file of a kind without a descriptor."""

    def __init__(self, file: Any) -> None:
        self._file = file
        self.read = file.read
        self.size = file.size

    def fileno(self) -> int:
        raise OSError(errno.ENOTSUP, os.strerror(errno.ENOTSUP))


@pytest.mark.parametrize("has_descriptor", [True, False])
def test_slices_arrive_whole_and_in_order(records: FileRecords, data: bytes, has_descriptor: bool) -> None:
    view = records if has_descriptor else LogView(WithoutDescriptor(records.file), records.path)

    def handler(context: RequestContext) -> None:
        context.respond(fetched(view, SLICES))

    with Served(handler) as served, served.client() as client, served.client(receive_buffer_size=4096) as slow:
        for each in (client, slow):
            each.sock.sendall(each.encoded(FetchRequest(), 12) + each.encoded(FetchRequest(), 12))
        for each in (client, client, slow, slow):
            assert received(each) == [data[position : position + size] for position, size in SLICES]


@pytest.mark.parametrize("slices", [[(0, SIZE)], [(SIZE - 100, 100), (0, 10)]], ids=["sendfile", "read"])
def test_a_file_that_became_shorter_ends_the_connection(
    records: FileRecords, slices: list[tuple[int, int]], caplog: pytest.LogCaptureFixture
) -> None:
    def handler(context: RequestContext) -> None:
        response = fetched(records, slices)
        os.truncate(records.path, SIZE // 2)
        context.respond(response)

    with Served(handler) as served, served.client() as client, served.client() as other:
        client.send(FetchRequest(), 12)
        assert client.receive() is None
        other.send(FetchRequest(), 12)
        assert other.receive() is None
    assert "is shorter than the" in caplog.text


def test_a_file_that_was_closed_ends_the_connection(records: FileRecords, caplog: pytest.LogCaptureFixture) -> None:
    def handler(context: RequestContext) -> None:
        response = fetched(records, [(0, SIZE)])
        records.file.close()
        context.respond(response)

    with Served(handler) as served, served.client() as client:
        client.send(FetchRequest(), 12)
        assert client.receive() is None
    assert "Bad file descriptor" in caplog.text


def test_a_client_that_goes_away_in_the_middle(records: FileRecords) -> None:
    def handler(context: RequestContext) -> None:
        context.respond(fetched(records, [(0, SIZE)] * 5))

    with Served(handler) as served:
        for _ in range(5):
            with served.client() as client:
                client.send(FetchRequest(), 12)
                assert client.sock.recv(1000)
        served.wait_for(lambda: served.server.connection_count == 0)
