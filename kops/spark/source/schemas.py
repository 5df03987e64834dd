"""The columns of `spark.read.format("kafkalog")`, by mode, as Spark's types (DDL) and as Arrow's.

Names in mode `records` are those of Spark's own Kafka connector (key, value, topic, partition, offset, timestamp, timestampType,
headers); kops's own columns follow. The column `damage` is null in rows of good data. A row of damage has it, and has null in the
columns of a record or batch.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from functools import cache
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import pyarrow as pa

DAMAGE = "struct<code: string, reason: string, position: bigint, length: bigint, baseOffset: bigint, lastOffset: bigint>"

SCHEMAS: dict[str, dict[str, str]] = {
    "segments": {
        "path": "string",
        "broker": "int",
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
        "broker": "int",
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
        "broker": "int",
        "damage": DAMAGE,
    },
    "groups": {
        "group": "string",
        "topic": "string",
        "partition": "int",
        "offset": "bigint",
        "leaderEpoch": "int",
        "metadata": "string",
        "state": "string",
        "timestamp": "timestamp",
        "expires": "timestamp",
        "producerId": "bigint",
        "recordOffset": "bigint",
        "path": "string",
        "broker": "int",
        "damage": DAMAGE,
    },
    "transactions": {
        "transactionalId": "string",
        "state": "string",
        "producerId": "bigint",
        "producerEpoch": "int",
        "partitions": "array<struct<topic: string, partition: int>>",
        "timeoutMs": "int",
        "started": "timestamp",
        "updated": "timestamp",
        "overdue": "timestamp",
        "expires": "timestamp",
        "previousProducerId": "bigint",
        "nextProducerId": "bigint",
        "recordOffset": "bigint",
        "path": "string",
        "broker": "int",
        "damage": DAMAGE,
    },
    "metadata": {
        "node": "string",
        "value": "string",
        "offset": "bigint",
        "path": "string",
        "broker": "int",
        "damage": DAMAGE,
    },
}
"""mode → column → Spark type."""

STATE_MODES = ("groups", "transactions", "metadata")
"""Modes whose rows are the state in an internal topic, not the contents of segments."""

ROWS = 10_000
"""The rows of a record batch that is made row by row."""
TIMESTAMP_TYPES = {"NoTimestampType": -1, "CreateTime": 0, "LogAppendTime": 1}


def ddl(mode: str) -> str:
    """Return the schema of a mode as Spark's DDL."""
    return ddl_of(SCHEMAS[mode])


def ddl_of(columns: Mapping[str, str]) -> str:
    """Columns with their types as Spark's DDL."""
    return ", ".join(f"`{name}` {kind}" for name, kind in columns.items())


def arrow_types(columns: Mapping[str, str]) -> list[tuple[str, pa.DataType]]:
    """Columns with the Arrow types that Spark expects for theirs."""
    return [(name, arrow_type(kind)) for name, kind in columns.items()]


@cache
def arrow_type(kind: str) -> pa.DataType:
    """The Arrow type that Spark expects for one of its types, as DDL writes it."""
    import pyarrow as pa

    plain: dict[str, Any] = {
        "string": pa.string(),
        "binary": pa.binary(),
        "int": pa.int32(),
        "bigint": pa.int64(),
        "double": pa.float64(),
        "boolean": pa.bool_(),
        "timestamp": pa.timestamp("us", tz="UTC"),
    }
    outer, _, inner = kind.removesuffix(">").partition("<")
    if outer == "array":
        return pa.list_(arrow_type(inner))
    if outer == "struct":
        return pa.struct([(name.strip(), arrow_type(type_.strip())) for name, _, type_ in (each.partition(":") for each in _parts(inner))])
    return plain[kind]


def _parts(text: str) -> list[str]:
    """Split a text at its outer commas."""
    parts, depth = [""], 0
    for letter in text:
        depth += {"<": 1, ">": -1}.get(letter, 0)
        if letter == "," and not depth:
            parts.append("")
        else:
            parts[-1] += letter
    return parts


def arrow_schema(mode: str, columns: list[str]) -> pa.Schema:
    """The Arrow schema of some columns of a mode, in their order."""
    import pyarrow as pa

    return pa.schema([(name, arrow_type(SCHEMAS[mode][name])) for name in columns])


def record_batches(rows: Iterable[Mapping[str, Any]], columns: Mapping[str, str]) -> Iterator[pa.RecordBatch]:
    """Yield rows as Arrow batches. Missing values are null."""
    from itertools import islice

    import pyarrow as pa

    schema = pa.schema(arrow_types(columns))
    source = iter(rows)
    while piece := list(islice(source, ROWS)):
        arrays = [pa.array([row.get(field.name) for row in piece], type=field.type) for field in schema]
        yield pa.RecordBatch.from_arrays(arrays, schema=schema)
