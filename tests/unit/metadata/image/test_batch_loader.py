"""Batches become images: transactions, provenance, faults, publishers."""

from __future__ import annotations

import pytest

from kops.errors import DecodeError
from kops.metadata.image.batch_loader import BatchLoader, LoadedBatch, Manifest
from kops.metadata.image.loader import MetadataLoader
from kops.metadata.image.metadata_delta import MetadataDelta
from kops.metadata.image.metadata_image import MetadataImage, MetadataProvenance
from kops.protocol.declaration import Message
from kops.protocol.messages import (
    AbortTransactionRecord,
    BeginTransactionRecord,
    EndTransactionRecord,
    FeatureLevelRecord,
    FenceBrokerRecord,
    NoOpRecord,
    ProducerIdsRecord,
    RemoveTopicRecord,
    TopicRecord,
)

BEGIN, END, ABORT = BeginTransactionRecord(), EndTransactionRecord(), AbortTransactionRecord()


def topic(number: int) -> TopicRecord:
    """Return a topic's record."""
    return TopicRecord(name=f"t{number}", topic_id=bytes([number]) * 16)


class Taken:
    """The output of a loader."""

    def __init__(self) -> None:
        self.images: list[tuple[int, list[str], bool, int]] = []
        self.faults: list[str] = []
        self.loader = BatchLoader(self.update, self.fault)
        self.end = 0

    def update(self, delta: MetadataDelta, image: MetadataImage, manifest: Manifest) -> None:
        """Take an image."""
        assert image.provenance == manifest.provenance
        names = sorted(image.topics.by_name)
        self.images.append((image.offset, names, manifest.provenance.is_offset_batch_aligned, manifest.batch_count))

    def fault(self, where: str, error: DecodeError) -> None:
        """Take the fault of a record that does not fit."""
        self.faults.append(f"{where}: {error.reason}")

    def load(self, *records: Message) -> None:
        """Load a batch."""
        last = self.end + len(records) - 1
        self.loader.load(LoadedBatch(self.end, last, 3, 1000 + self.end, 100, records))
        self.end = last + 1


def test_batches_committed_together_make_one_image() -> None:
    taken = Taken()
    taken.load(topic(1), topic(2))
    taken.load(topic(3))
    taken.loader.flush()
    assert taken.images == [(2, ["t1", "t2", "t3"], True, 2)]
    assert taken.loader.image.provenance == MetadataProvenance(2, 3, 1002, True)


def test_a_transaction_is_seen_when_it_ends() -> None:
    """It spans three batches and two commits. The records before it in its batch make a separate image."""
    taken = Taken()
    taken.load(topic(1), BEGIN, topic(2))
    taken.loader.flush()
    taken.load(topic(3))
    taken.loader.flush()
    taken.load(topic(4), END)
    taken.loader.flush()
    assert taken.images == [(0, ["t1"], False, 0), (5, ["t1", "t2", "t3", "t4"], True, 3)]


def test_an_aborted_transaction_leaves_nothing() -> None:
    taken = Taken()
    taken.load(topic(1))
    taken.load(BEGIN, topic(2))
    taken.load(ABORT)
    taken.loader.flush()
    assert taken.images == [(0, ["t1"], True, 1), (3, ["t1"], True, 2)]
    taken.load(topic(5))
    taken.loader.flush()
    assert taken.images[-1] == (4, ["t1", "t5"], True, 1)


def test_several_transactions_in_one_batch() -> None:
    taken = Taken()
    taken.load(BEGIN, topic(1), END, BEGIN, topic(2), END, topic(3))
    taken.loader.flush()
    assert taken.images == [(2, ["t1"], False, 0), (6, ["t1", "t2", "t3"], True, 1)]


def test_faults_are_told_and_passed_over() -> None:
    taken = Taken()
    taken.load(END, RemoveTopicRecord(topic_id=bytes(16)), topic(1), FenceBrokerRecord(id=7, epoch=1), BEGIN, BEGIN, END)
    taken.loader.flush()
    assert [fault.split(": ", 1) for fault in taken.faults] == [
        [
            "Error loading metadata log record from offset 0",
            "Encountered EndTransactionRecord without having seen a BeginTransactionRecord",
        ],
        [
            "Error loading metadata log record from offset 1",
            "Unable to delete topic with id AAAAAAAAAAAAAAAAAAAAAA: no such topic found.",
        ],
        ["Error loading metadata log record from offset 3", "Tried to fence broker 7, but that broker was not registered."],
        ["Error loading metadata log record from offset 5", "Encountered BeginTransactionRecord while already in a transaction"],
    ]
    assert taken.images[-1][:2] == (6, ["t1"])


def test_publishers_are_told_when_the_log_was_read() -> None:
    """They get nothing before the high watermark is reached. Then they get the whole image, and later every change."""
    told: list[tuple[list[str], bool]] = []

    class Publisher:
        def on_metadata_update(self, delta: MetadataDelta, image: MetadataImage, manifest: Manifest) -> None:
            told.append((sorted(one.image.name for one in delta.topics.changed_topics.values()), manifest.is_snapshot))

    def refuse(where: str, error: DecodeError) -> None:
        raise error

    high_watermark: list[int | None] = [None]
    loader = MetadataLoader(lambda: high_watermark[0], refuse)
    publisher = Publisher()
    loader.install(publisher)
    assert not loader.initialize_publishers()
    loader.load_batches([LoadedBatch(0, 1, 1, 10, 50, [FeatureLevelRecord("metadata.version", 30), topic(1)])])
    high_watermark[0] = 4
    assert not loader.initialize_publishers()
    loader.load_batches([LoadedBatch(2, 3, 1, 10, 50, [topic(2), NoOpRecord()])])
    assert told == []
    assert loader.initialize_publishers()
    assert told == [(["t1", "t2"], True)]
    loader.load_batches([LoadedBatch(4, 4, 1, 10, 50, [topic(3)])])
    loader.load_snapshot([FeatureLevelRecord("metadata.version", 30), topic(3), topic(4)], MetadataProvenance(9, 2, 20, True))
    assert told[1:] == [(["t3"], False), (["t3", "t4"], True)]
    assert sorted(loader.image.topics.by_name) == ["t3", "t4"]
    loader.remove(publisher)
    loader.load_batches([LoadedBatch(10, 10, 2, 10, 50, [ProducerIdsRecord(1, 1, 1000)])])
    assert len(told) == 3
    assert loader.image.next_producer_id == 1000
    with pytest.raises(DecodeError):
        loader.load_batches([LoadedBatch(11, 11, 2, 10, 50, [RemoveTopicRecord(topic_id=bytes(16))])])
