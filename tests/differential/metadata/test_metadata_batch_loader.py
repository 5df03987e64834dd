"""Batches with transactions over, in and across them: both loaders give the same images and faults as the real MetadataBatchLoader."""

from __future__ import annotations

import random
from typing import Any

from kops.errors import DecodeError
from kops.metadata.image.batch_loader import BatchLoader, LoadedBatch, Manifest
from kops.metadata.image.metadata_delta import MetadataDelta
from kops.metadata.image.metadata_image import MetadataImage
from kops.metadata.records import write_record
from kops.protocol.declaration import Message
from kops.protocol.messages import (
    AbortTransactionRecord,
    BeginTransactionRecord,
    EndTransactionRecord,
    NoOpRecord,
    RemoveTopicRecord,
    TopicRecord,
)
from tests.differential.metadata.test_metadata_image import RealImages, texts
from tests.support.kafka.manual_jvm import ManualClock, constant, named, proxy
from tests.support.kafka.oracle import Oracle

INVOKE = ("java.lang.Object", "java.lang.reflect.Method", "[Ljava.lang.Object;")
LOADER = "org.apache.kafka.image.loader"


def recording(oracle: Oracle, interface: str, answer: Any) -> tuple[Any, Any]:
    """Return an object of an interface that answers every call alike, and the queue with the arguments of the calls."""
    handles = oracle.jvm.java.lang.invoke
    queue = oracle.jvm.java.util.concurrent.ConcurrentLinkedQueue()
    kind = handles.MethodType.methodType(oracle.jvm.java.lang.Boolean.TYPE, named(oracle, "java.lang.Object"))
    add = handles.MethodHandles.publicLookup().findVirtual(named(oracle, "java.util.concurrent.ConcurrentLinkedQueue"), "add", kind)
    add = add.bindTo(queue).asType(handles.MethodType.methodType(oracle.jvm.java.lang.Void.TYPE, named(oracle, INVOKE[2])))
    add = handles.MethodHandles.dropArguments(add, 0, oracle.jvm.java.util.List.of(*(named(oracle, name) for name in INVOKE[:2])))
    return proxy(oracle, interface, handles.MethodHandles.foldArguments(constant(oracle, answer), add)), queue


class Both:
    """Both loaders, and what each has given."""

    def __init__(self, oracle: Oracle) -> None:
        self.real = RealImages(oracle)
        self.oracle = oracle
        never = oracle.jvm.java.lang.RuntimeException("told")
        fault, self.java_faults = recording(oracle, "org.apache.kafka.server.fault.FaultHandler", never)
        update, self.java_updates = recording(oracle, f"{LOADER}.MetadataBatchLoader$MetadataUpdater", True)
        checker = proxy(oracle, "org.apache.kafka.metadata.SupportedConfigChecker", constant(oracle, True))
        context = oracle.java_class("org.apache.kafka.common.utils.LogContext")()
        clock = ManualClock(oracle, 1_700_000_000_000).time
        self.java = oracle.java_class(f"{LOADER}.MetadataBatchLoader")(context, clock, fault, update, checker)
        self.leader = oracle.java_class("org.apache.kafka.raft.LeaderAndEpoch").UNKNOWN
        self.images: list[tuple[object, ...]] = []
        self.faults: list[str] = []
        self.loader = BatchLoader(self._update, self._fault)
        self.end = 0

    def _update(self, delta: MetadataDelta, image: MetadataImage, manifest: Manifest) -> None:
        at = manifest.provenance
        told = (at.last_contained_offset, at.last_contained_epoch, at.last_contained_log_time_ms, at.is_offset_batch_aligned)
        self.images.append((*told, manifest.batch_count, manifest.size, set(image.topics.by_name)))

    def _fault(self, where: str, error: DecodeError) -> None:
        self.faults.append(where)

    def load(self, records: list[Message], epoch: int) -> None:
        """Load a batch into both."""
        wrapped = self.oracle.jvm.java.util.ArrayList()
        versioned = self.oracle.java_class("org.apache.kafka.server.common.ApiMessageAndVersion")
        for record in records:
            wrapped.append(versioned(self.real.message(write_record(record, 0)), self.oracle.short(0)))
        batch = self.oracle.java_class("org.apache.kafka.raft.Batch").data(self.end, epoch, 1000 + self.end, 77, wrapped)
        self.java.loadBatch(batch, self.leader)
        last = self.end + len(records) - 1
        self.loader.load(LoadedBatch(self.end, last, epoch, 1000 + self.end, 77, records))
        self.end = last + 1

    def flush(self) -> None:
        """Load everything that was committed so far."""
        self.java.maybeFlushBatches(self.leader, True)
        self.loader.flush()

    def check(self) -> None:
        """Check that both gave the same images and faults."""
        theirs = []
        for _, image, manifest in self.java_updates.toArray():
            at = manifest.provenance()
            told = (at.lastContainedOffset(), at.lastContainedEpoch(), at.lastContainedLogTimeMs(), at.isOffsetBatchAligned())
            theirs.append((*told, manifest.numBatches(), manifest.numBytes(), texts(image.topics().topicNameToIdView().keySet())))
        assert self.images == theirs
        assert self.faults == [where for where, _ in self.java_faults.toArray()]


def drawn(rng: random.Random) -> Message:
    """Draw a record, often the begin or end of a transaction."""
    if rng.random() < 0.45:
        frame: tuple[Message, ...] = (BeginTransactionRecord(), EndTransactionRecord(), AbortTransactionRecord(), NoOpRecord())
        return rng.choice(frame)
    return TopicRecord(f"t{rng.randrange(1000)}", rng.randbytes(16)) if rng.random() < 0.95 else RemoveTopicRecord(topic_id=bytes(16))


def test_transactions(oracle: Oracle) -> None:
    """Transactions with matching and wrong frames give the same results, over batches of one to six records and commits of one to three
    batches.
    """
    images = faults = 0
    for seed in range(6):
        rng = random.Random(seed)
        both = Both(oracle)
        for epoch in range(1, 15):
            for _ in range(rng.randrange(1, 4)):
                both.load([drawn(rng) for _ in range(rng.randrange(1, 7))], epoch)
            both.flush()
        both.check()
        images += len(both.images)
        faults += len(both.faults)
    assert images > 80
    assert faults > 50
