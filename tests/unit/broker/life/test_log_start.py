"""How a broker starts its logs: threads per directory, replicas that are not its own."""

from __future__ import annotations

import threading

import pytest

from kops.broker.life.log_start import stray_rule, threads_runner
from kops.metadata.image.metadata_delta import MetadataDelta
from kops.metadata.image.metadata_image import EMPTY, MetadataProvenance
from kops.protocol.messages import PartitionRecord, TopicRecord
from kops.storage.formats.kafka_uuid import uuid_text

TOPIC = b"t" * 16


def test_directories_are_loaded_side_by_side() -> None:
    # Each job waits for one of the other directory. A single thread would wait forever.
    barrier = threading.Barrier(2, timeout=60)
    done: list[str] = []

    def job(name: str) -> None:
        barrier.wait()
        done.append(name)

    threads_runner(1)([[lambda: job("a0"), lambda: job("a1")], [], [lambda: job("b0"), lambda: job("b1")]])
    assert sorted(done) == ["a0", "a1", "b0", "b1"]


def test_several_threads_work_on_one_directory() -> None:
    barrier = threading.Barrier(2, timeout=60)
    done: list[str] = []

    def job() -> None:
        barrier.wait()
        done.append("done")

    threads_runner(2)([[job, job]])
    assert done == ["done", "done"]


def test_an_error_of_a_job_comes_out() -> None:
    def fail() -> None:
        raise OSError("gone")

    with pytest.raises(OSError, match="gone"):
        threads_runner(2)([[fail], [lambda: None]])


def test_which_replicas_are_stray() -> None:
    delta = MetadataDelta(EMPTY)
    delta.replay(TopicRecord(name="t", topic_id=TOPIC))
    delta.replay(PartitionRecord(partition_id=0, topic_id=TOPIC, replicas=[1, 2], isr=[1], leader=1))
    topics = delta.apply(MetadataProvenance(0, 0, 0, True)).topics
    rule = stray_rule(topics, 2)
    assert rule(uuid_text(TOPIC), "t", 0) is None
    assert rule(None, "t", 0) == "it has no topic id"
    assert "does not exist" in str(rule(uuid_text(TOPIC), "t", 1))
    assert "does not exist" in str(rule(uuid_text(b"x" * 16), "t", 0))
    assert "[1, 2] does not contain the local brokerId 3" in str(stray_rule(topics, 3)(uuid_text(TOPIC), "t", 0))
