"""Metadata records against what Kafka's own dump tool decoded from the same files."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from kops.errors import DecodeError
from kops.metadata import ClusterImage, read_metadata_record
from kops.records import Batch, BytesSource, scan
from tests.support import corpus

CASES = [case for case in corpus.cases("broker-damage") if "-none" in case]
NAMES = {"RegisterBrokerRecord", "TopicRecord", "PartitionRecord", "ConfigRecord", "PartitionChangeRecord", "FeatureLevelRecord"}


def _values(data: bytes) -> list[bytes]:
    return [
        record.value
        for batch in scan(BytesSource(data))
        if isinstance(batch, Batch) and not batch.is_control
        for record in batch.records()
        if record.value is not None
    ]


def _snake(name: str) -> str:
    return re.sub(r"(?<!^)(?=[A-Z])", "_", name).lower()


@pytest.mark.parametrize("case_id", CASES)
def test_fields_are_those_that_kafka_decodes(case_id: str) -> None:
    case = corpus.load(case_id)
    seen = 0
    for path in case.files("before"):
        if "__cluster_metadata-0/" not in path or not path.endswith((".log", ".checkpoint")):
            continue
        text = case.text(f"truth/dump/{path}.decoded.txt")
        payloads = [json.loads(line.split("payload: ", 1)[1]) for line in text.splitlines() if 'payload: {"type":"' in line]
        values = _values(case.read(path))
        told = [each for each in payloads if each["type"].endswith("_RECORD")]
        assert len(told) == len(values)
        for payload, value in zip(told, values, strict=True):
            record = read_metadata_record(value)
            assert _snake(record.name).upper() == payload["type"]
            assert record.version == payload["version"]
            for key, wanted in payload["data"].items():
                name = _snake(key)
                got = record.fields.get(name)
                if key not in ("endPoints", "features"):
                    assert got == wanted, (payload, name)
                    seen += 1
    assert seen > 40


@pytest.mark.parametrize("case_id", CASES)
def test_image_has_the_topics_that_clients_saw(case_id: str) -> None:
    case = corpus.load(case_id)
    image = ClusterImage()
    logs = [path for path in case.files("before") if "__cluster_metadata-0/" in path]
    snapshots = sorted(path for path in logs if path.endswith(".checkpoint"))
    start = 0
    if snapshots:
        start = int(Path(snapshots[-1]).name.split("-")[0])
        for value in _values(case.read(snapshots[-1])):
            image.replay(read_metadata_record(value))
    for path in logs:
        if path.endswith(".log"):
            for batch in scan(BytesSource(case.read(path))):
                if isinstance(batch, Batch) and not batch.is_control and batch.base_offset >= start:
                    for record in batch.records():
                        assert record.value is not None
                        image.replay(read_metadata_record(record.value))
    seen = {each["topicId"]: each["name"] for each in case.json["cleanSeen"]["topics"]}
    assert image.topics == seen
    for each in case.json["cleanSeen"]["topics"]:
        for partition in each["partitions"]:
            assert image.replicas(each["topicId"], partition["partition"]) == [1]
    assert image.replicas("AAAAAAAAAAAAAAAAAAAAAQ", 0) == []


def test_every_cut_of_a_record_is_a_decode_error() -> None:
    case = corpus.load("broker-damage-4.3.0-none")
    values = _values(case.read("before/disk1/__cluster_metadata-0/00000000000000000000.log"))
    cut = 0
    for value in values:
        if read_metadata_record(value).fields:
            for end in range(len(value)):
                with pytest.raises(DecodeError):
                    read_metadata_record(value[:end])
                cut += 1
    assert cut > 500
    assert {read_metadata_record(value).name for value in values} >= NAMES
