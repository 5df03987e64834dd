"""kops reads, verifies, rebuilds and recovers the files of Apache Kafka, byte-compatible with Apache Kafka 4.3.

The public API is that of `kops.api`. Each name is loaded on first use, so `import kops` itself imports next to nothing.
"""

from kops import _compiled

TYPE_CHECKING = False
if TYPE_CHECKING:
    from kops.api import (
        AcknowledgeType,
        Admin,
        AsyncCluster,
        Batch,
        BatchBuilder,
        BytesSource,
        Cluster,
        Consumer,
        ConsumerGroupMetadata,
        ConsumerRecord,
        ConsumerRecords,
        Damage,
        DecodeError,
        FileEntry,
        Files,
        Inventory,
        KafkaError,
        KafkaTimeoutError,
        KopsError,
        LockHeldError,
        LogDir,
        MissingDependencyError,
        NotFoundError,
        OffsetAndMetadata,
        OffsetAndTimestamp,
        OsFiles,
        PartitionDir,
        PartitionInfo,
        Producer,
        ProducerClosedError,
        Record,
        RecordFuture,
        RecordMetadata,
        Segment,
        SerializationError,
        ShareConsumer,
        ShareRecord,
        SubscriptionPattern,
        TopicPartition,
        UsageError,
        WakeupError,
        append_lines,
        build_batch,
        compact,
        export_lines,
        forecast,
        import_lines,
        open_partition,
        open_paths,
        read_records,
        rebuild_indexes,
        recover,
        repair,
        rollback,
        scan,
        scan_file,
        truncate,
        verify,
    )

__version__ = "0.1.0"

__all__ = [
    "AcknowledgeType",
    "Admin",
    "AsyncCluster",
    "Batch",
    "BatchBuilder",
    "BytesSource",
    "Cluster",
    "Consumer",
    "ConsumerGroupMetadata",
    "ConsumerRecord",
    "ConsumerRecords",
    "Damage",
    "DecodeError",
    "FileEntry",
    "Files",
    "Inventory",
    "KafkaError",
    "KafkaTimeoutError",
    "KopsError",
    "LockHeldError",
    "LogDir",
    "MissingDependencyError",
    "NotFoundError",
    "OffsetAndMetadata",
    "OffsetAndTimestamp",
    "OsFiles",
    "PartitionDir",
    "PartitionInfo",
    "Producer",
    "ProducerClosedError",
    "Record",
    "RecordFuture",
    "RecordMetadata",
    "Segment",
    "SerializationError",
    "ShareConsumer",
    "ShareRecord",
    "SubscriptionPattern",
    "TopicPartition",
    "UsageError",
    "WakeupError",
    "append_lines",
    "build_batch",
    "compact",
    "export_lines",
    "forecast",
    "import_lines",
    "open_partition",
    "open_paths",
    "read_records",
    "rebuild_indexes",
    "recover",
    "repair",
    "rollback",
    "scan",
    "scan_file",
    "truncate",
    "verify",
]

_compiled.install()


if not TYPE_CHECKING:  # a type checker sees the imports above, so it knows which names exist

    def __getattr__(name: str) -> object:
        """Import a name of the public API on first use (PEP 562)."""
        if name not in __all__:
            raise AttributeError(f"module 'kops' has no attribute {name!r}")
        from kops import api

        value: object = getattr(api, name)
        globals()[name] = value
        return value


def __dir__() -> list[str]:
    return sorted([*globals(), *__all__])
