"""A stream in a process of its own, which a test kills: `python -m tests.spark.stream.stream_process LOG_DIRS CHECKPOINT OUT`.

Each micro-batch becomes a file, which replaces the file of an earlier attempt. The sink fails once, and the query is started again.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any

from kops.spark import register, spark_session


def main(log_dirs: str, checkpoint: str, out: Path) -> None:
    """Run until it is killed."""
    from pyspark.errors import StreamingQueryException

    spark = spark_session("local[2]", "a stream", light=True)
    register(spark)

    def write(frame: Any, number: int) -> None:
        rows = frame.select("topic", "partition", "offset", "value", "damage").collect()
        found = [(row.topic, row.partition, row.offset, bytes(row.value or b"").decode(), row.damage) for row in rows]
        path = out / f"batch-{number:06}.json"
        beside = path.with_suffix(".tmp")
        beside.write_text(json.dumps(found))
        os.replace(beside, path)
        failed = out / "failed"
        if number == 1 and not failed.exists():
            failed.touch()
            raise RuntimeError("the sink is broken")

    options = {"subscribe": "orders,paid", "startingOffsets": "earliest", "isolation": "read_committed", "maxOffsetsPerTrigger": "1000"}
    frame = spark.readStream.format("kafkalog").options(**options).load(log_dirs)
    while True:
        query = frame.writeStream.foreachBatch(write).option("checkpointLocation", checkpoint).start()
        try:
            query.awaitTermination()
        except StreamingQueryException as error:
            if "the sink is broken" not in str(error):
                (out / "error").write_text(str(error))
                raise


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], Path(sys.argv[3]))
