"""Log directories as DataFrames, and scans of whole clusters, on Spark.

Only this package imports pyspark. It needs `kops[spark]`.

```python
from kops.spark import register, spark_session

spark = spark_session("local[2]")
register(spark)
spark.read.format("kafkalog").option("mode", "batches").load("/data/broker-1,/data/broker-2").show()
```
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def register(spark: SparkSession) -> None:
    """Make `spark.read.format("kafkalog")` known to a session."""
    from kops.spark.source.data_source import KafkaLogDataSource

    spark.dataSource.register(KafkaLogDataSource)


def spark_session(
    master: str | None = None, app_name: str = "kops", settings: dict[str, str] | None = None, *, light: bool = False
) -> SparkSession:
    """A session with what kops needs, see `kops.spark.session`."""
    from kops.spark.session import spark_session as make

    return make(master, app_name, settings, light=light)


__all__ = ["register", "spark_session"]
