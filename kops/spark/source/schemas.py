"""The columns of `spark.read.format("kafkalog")`, by mode, as Spark's types (DDL) and as Arrow's.

Names in mode `records` are those of Spark's own Kafka connector (key, value, topic, partition, offset, timestamp, timestampType,
headers); kops's own columns follow. The column `damage` is null in rows of good data. A row of damage has it, and has null in the
columns of a record or batch.
"""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import pyarrow as pa

DAMAGE = "struct<code: string, reason: string, position: bigint, length: bigint, baseOffset: bigint, lastOffset: bigint>"

SCHEMAS: dict[str, dict[str, str]] = {
    "segments": {
        "path": "string",
        "topic": "string",
        "partition": "int",
        "baseOffset": "bigint",
        "state": "string",
        "size": "bigint",
        "batches": "bigint",
        "records": "bigint",
        "firstOffset": "bigint",
        "lastOffset": "bigint",
        "maxTimestamp": "timestamp",
        "damages": f"array<{DAMAGE}>",
    },
    "batches": {
        "path": "string",
        "topic": "string",
        "partition": "int",
        "position": "bigint",
        "size": "bigint",
        "baseOffset": "bigint",
        "lastOffset": "bigint",
        "count": "int",
        "magic": "int",
        "codec": "string",
        "timestampType": "int",
        "baseTimestamp": "timestamp",
        "maxTimestamp": "timestamp",
        "leaderEpoch": "int",
        "producerId": "bigint",
        "producerEpoch": "int",
        "baseSequence": "int",
        "isTransactional": "boolean",
        "isControl": "boolean",
        "crc": "bigint",
        "damage": DAMAGE,
    },
    "records": {
        "key": "binary",
        "value": "binary",
        "topic": "string",
        "partition": "int",
        "offset": "bigint",
        "timestamp": "timestamp",
        "timestampType": "int",
        "headers": "array<struct<key: string, value: binary>>",
        "leaderEpoch": "int",
        "isControl": "boolean",
        "path": "string",
        "damage": DAMAGE,
    },
}
"""mode → column → Spark type."""

TIMESTAMP_TYPES = {"NoTimestampType": -1, "CreateTime": 0, "LogAppendTime": 1}


def ddl(mode: str) -> str:
    """The schema of a mode as Spark's DDL."""
    return ", ".join(f"{name} {kind}" for name, kind in SCHEMAS[mode].items())


@cache
def arrow_type(kind: str) -> pa.DataType:
    """The Arrow type that Spark expects for one of the types above."""
    import pyarrow as pa

    damage = pa.struct(
        [
            ("code", pa.string()),
            ("reason", pa.string()),
            ("position", pa.int64()),
            ("length", pa.int64()),
            ("baseOffset", pa.int64()),
            ("lastOffset", pa.int64()),
        ]
    )
    types: dict[str, Any] = {
        "string": pa.string(),
        "binary": pa.binary(),
        "int": pa.int32(),
        "bigint": pa.int64(),
        "boolean": pa.bool_(),
        "timestamp": pa.timestamp("us", tz="UTC"),
        SCHEMAS["records"]["headers"]: pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())])),
        DAMAGE: damage,
        f"array<{DAMAGE}>": pa.list_(damage),
    }
    return types[kind]


def arrow_schema(mode: str, columns: list[str]) -> pa.Schema:
    """The Arrow schema of some columns of a mode, in their order."""
    import pyarrow as pa

    return pa.schema([(name, arrow_type(SCHEMAS[mode][name])) for name in columns])
