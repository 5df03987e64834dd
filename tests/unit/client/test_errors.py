"""Errors of clients in other processes: a pool of workers gives them to its caller as they were."""

from __future__ import annotations

import pickle

import pytest

from kops.client.consumer.errors import (
    CorruptRecordError,
    LogTruncationError,
    NoOffsetForPartitionError,
    OffsetOutOfRangeError,
    RecordDeserializationError,
)
from kops.client.consumer.records import OffsetAndMetadata
from kops.client.errors import KafkaError, KafkaTimeoutError, ProducerFencedError
from kops.records.log_offsets import TopicPartition

KEY = TopicPartition("orders", 3)


@pytest.mark.parametrize(
    "error",
    [
        KafkaError("words", "NOT_ENOUGH_REPLICAS"),
        KafkaTimeoutError("late"),
        ProducerFencedError().marked(fatal=True),
        CorruptRecordError("bad", partition=KEY, offset=7),
        NoOffsetForPartitionError("none", [KEY]),
        OffsetOutOfRangeError("gone", {KEY: 5}),
        LogTruncationError("cut", {KEY: 5}, {KEY: OffsetAndMetadata(4)}),
        RecordDeserializationError("bad", "key", KEY, 5, 1000, "CreateTime", b"k", None, (("h", b"v"),)),
    ],
)
def test_errors_are_the_same_in_another_process(error: KafkaError) -> None:
    found = pickle.loads(pickle.dumps(error))
    assert (type(found), str(found), found.args, vars(found)) == (type(error), str(error), error.args, vars(error))
    assert (found.name, found.retriable, found.fatal) == (error.name, error.retriable, error.fatal)
