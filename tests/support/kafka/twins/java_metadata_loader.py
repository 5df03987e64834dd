"""Kafka's MetadataLoader on the files of a metadata log: the newest snapshot, then the log after it, as when a node starts."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final

from py4j.protocol import Py4JJavaError

from kops.forensics.metadata_log.source import MetadataSource
from kops.records import Batch, BytesSource, Record, scan
from tests.support.kafka.manual_jvm import constant, named, proxy
from tests.support.kafka.oracle import Oracle
from tests.support.kafka.twins.java_coordinators import KAFKA, JavaCoordinators
from tests.support.kafka.twins.java_groups import Calls

LOADER: Final = f"{KAFKA}image.loader.MetadataLoader"
BATCH_BYTES: Final = 8 << 20


class JavaMetadataLoader:
    """Loads metadata logs, each with a new MetadataLoader."""

    def __init__(self, oracle: Oracle) -> None:
        self.oracle = oracle
        self.java = JavaCoordinators(oracle)
        self._serde = oracle.java_class(f"{KAFKA}metadata.MetadataRecordSerde").INSTANCE
        self._context = oracle.java_class(f"{KAFKA}common.utils.LogContext")()
        self._closed = Calls(self.java, f"{KAFKA}raft.internals.CloseListener", None)

    def refusals(self, source: MetadataSource) -> list[str]:
        """Return the faults of the loader, each with its cause."""
        faults = Calls(self.java, f"{KAFKA}server.fault.FaultHandler", self.oracle.jvm.java.lang.RuntimeException("told"))
        end = self._end(source)
        builder = self.oracle.java_class(f"{LOADER}$Builder")().setFaultHandler(faults.object)
        known = self.oracle.java_class("java.util.OptionalLong").of(self.java.long(end))
        accessor = proxy(self.oracle, "java.util.function.Supplier", constant(self.oracle, known))
        loader = builder.setHighWaterMarkAccessor(accessor).build()
        try:
            start = 0
            if source.snapshots:
                start = self._load_snapshot(loader, Path(source.snapshots[-1].path))
            for entry in source.logs:
                self._load_segment(loader, Path(entry.path), start)
            self._wait(loader)
        finally:
            loader.close()
        return [": ".join(str(each) for each in arguments) for _, arguments in faults.drain()] + self._quorum_refusals(source, start)

    def _end(self, source: MetadataSource) -> int:
        end = source.snapshots[-1].offset or 0 if source.snapshots else 0
        for entry in source.logs:
            for batch in scan(BytesSource(Path(entry.path).read_bytes())):
                if isinstance(batch, Batch):
                    end = max(end, batch.next_offset)
        return end

    def _quorum_refusals(self, source: MetadataSource, start: int) -> list[str]:
        """Return what the quorum does not understand (KRaftControlRecordStateMachine): voters and versions."""
        found = []
        for entry in (*source.snapshots[-1:], *source.logs):
            for batch in scan(BytesSource(Path(entry.path).read_bytes())):
                is_read = entry.kind == "checkpoint" or (isinstance(batch, Batch) and batch.next_offset > start)
                if not isinstance(batch, Batch) or not batch.is_control or not is_read or not batch.crc_ok:
                    continue
                for record in batch.records():
                    error = self._quorum_refusal(record)
                    found += [error] if error else []
        return found

    def _quorum_refusal(self, record: Record) -> str | None:
        if record.key not in (b"\0\0\0\5", b"\0\0\0\6") or record.value is None:
            return None
        try:
            read = self.oracle.java_class(f"{KAFKA}raft.ControlRecord").of(self.java.wrap(record.key), self.java.wrap(record.value))
            if record.key[-1] == 5:
                self.oracle.java_class(f"{KAFKA}server.common.KRaftVersion").fromFeatureLevel(read.message().kRaftVersion())
            else:
                self.oracle.java_class(f"{KAFKA}raft.VoterSet").fromVotersRecord(read.message())
        except Py4JJavaError as caught:
            return str(caught.java_exception.toString())
        return None

    def _buffers(self) -> Any:
        return self.oracle.java_class(f"{KAFKA}common.utils.BufferSupplier").create()

    def _load_snapshot(self, loader: Any, path: Path) -> int:
        offset, epoch = (int(part) for part in path.name.split(".")[0].split("-"))
        snapshot_id = self.java.make("server.common.OffsetAndEpoch", self.java.long(offset), epoch)
        folder = self.oracle.java_class("java.nio.file.Path").of(
            str(path.parent), self.oracle.gateway.new_array(self.oracle.jvm.java.lang.String, 0)
        )
        raw = self.oracle.java_class(f"{KAFKA}snapshot.FileRawSnapshotReader").open(folder, snapshot_id)
        try:
            reader = self.oracle.java_class(f"{KAFKA}snapshot.RecordsSnapshotReader").of(
                raw, self._serde, self._buffers(), BATCH_BYTES, True, self._context
            )
            loader.handleLoadSnapshot(reader)
            self._wait(loader)
        finally:
            raw.close()
        return offset

    def _load_segment(self, loader: Any, path: Path, start: int) -> None:
        data = path.read_bytes()
        position = next(
            (each.position for each in scan(BytesSource(data)) if isinstance(each, Batch) and each.next_offset > start), len(data)
        )
        if position == len(data):
            return
        records = self.oracle.java_class(f"{KAFKA}common.record.internal.MemoryRecords").readableRecords(self.java.wrap(data[position:]))
        reader = self.oracle.java_class(f"{KAFKA}raft.internals.RecordsBatchReader").of(
            self.java.long(start), records, self._serde, self._buffers(), BATCH_BYTES, self._closed.object, True, self._context
        )
        loader.handleCommit(reader)

    def _wait(self, loader: Any) -> None:
        """Wait until the loader's thread has done its work."""
        method = next(each for each in named(self.oracle, LOADER).getDeclaredMethods() if each.getName() == "waitForAllEventsToBeHandled")
        method.setAccessible(True)
        try:
            method.invoke(loader, self.oracle.gateway.new_array(self.oracle.jvm.java.lang.Object, 0))
        except Py4JJavaError as caught:  # its queue does not take part in what is tested
            raise AssertionError(str(caught.java_exception)) from caught
