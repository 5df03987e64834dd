"""Log directories as DataFrames, and scans of whole clusters, on Spark.

The jobs of `kops scan` are functions here: `kops.spark.offsets(spark, paths)` is a DataFrame with the columns of `kops log offsets`.

Only this package imports pyspark. It needs `kops[spark]`.

```python
from kops.spark import register, spark_session

spark = spark_session("local[2]")
register(spark)
spark.read.format("kafkalog").option("mode", "batches").load("/data/broker-1,/data/broker-2").show()
```
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from kops.spark.jobs.diff import diff, scan_diff
    from kops.spark.jobs.grep import grep
    from kops.spark.jobs.lost.carve import carve, scan_carve
    from kops.spark.jobs.offsets import offsets
    from kops.spark.jobs.producers import producers
    from kops.spark.jobs.recover import recover, scan_recover
    from kops.spark.jobs.statistics import keys, stats
    from kops.spark.jobs.timeline import timeline
    from kops.spark.jobs.txns import txns
    from kops.spark.jobs.verify import scan_verify, verify
    from kops.spark.source.data_source import records


def register(spark: SparkSession) -> None:
    """Make `spark.read.format("kafkalog")` known to a session.

    Also lets Python data sources see filters in this session. Spark turns that off by default, and then refuses a source that uses them.
    """
    from kops.spark.source.data_source import KafkaLogDataSource

    spark.conf.set("spark.sql.python.filterPushdown.enabled", "true")
    spark.dataSource.register(KafkaLogDataSource)


def spark_session(
    master: str | None = None, app_name: str = "kops", settings: dict[str, str] | None = None, *, light: bool = False
) -> SparkSession:
    """A session with what kops needs, see `kops.spark.session`."""
    from kops.spark.session import spark_session as make

    return make(master, app_name, settings, light=light)


_FUNCTIONS = {
    "carve": "jobs.lost.carve",
    "diff": "jobs.diff",
    "grep": "jobs.grep",
    "keys": "jobs.statistics",
    "offsets": "jobs.offsets",
    "producers": "jobs.producers",
    "records": "source.data_source",
    "recover": "jobs.recover",
    "scan_carve": "jobs.lost.carve",
    "scan_diff": "jobs.diff",
    "scan_recover": "jobs.recover",
    "scan_verify": "jobs.verify",
    "stats": "jobs.statistics",
    "timeline": "jobs.timeline",
    "txns": "jobs.txns",
    "verify": "jobs.verify",
}


def __getattr__(name: str) -> Any:
    """The functions, imported when they are first used: they need pyspark."""
    if name not in _FUNCTIONS:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(f"kops.spark.{_FUNCTIONS[name]}"), name)


__all__ = [
    "carve",
    "diff",
    "grep",
    "keys",
    "offsets",
    "producers",
    "records",
    "recover",
    "register",
    "scan_carve",
    "scan_diff",
    "scan_recover",
    "scan_verify",
    "spark_session",
    "stats",
    "timeline",
    "txns",
    "verify",
]
