"""The broker settings of LogManager, a table of its periodic tasks, and the current settings of the topics.

Sources: Kafka's ServerLogConfigs, ReplicationConfigs, TransactionLogConfig and TransactionStateManagerConfig (names, types, defaults,
limits), LogManager.startupWithConfigOverrides and ReplicaManager.startHighWatermarkCheckPointThread (tasks),
DynamicBrokerConfig.DynamicLogConfig (defaults that change at run time).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from kops.config.broker_keys.table import KAFKA_CONFIG_DEF
from kops.config.topic import TopicConfig, topic_config
from kops.config.values.definition import ConfigDef
from kops.config.values.java import LONG_MAX
from kops.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

RETENTION_CHECK: Final = "log.retention.check.interval.ms"
FLUSH_CHECK: Final = "log.flush.scheduler.interval.ms"
RECOVERY_POINT_INTERVAL: Final = "log.flush.offset.checkpoint.interval.ms"
LOG_START_INTERVAL: Final = "log.flush.start.offset.checkpoint.interval.ms"
HIGH_WATERMARK_INTERVAL: Final = "replica.high.watermark.checkpoint.interval.ms"
PRODUCER_ID_CHECK: Final = "producer.id.expiration.check.interval.ms"
DELETE_DELAY: Final = "log.segment.delete.delay.ms"
INITIAL_DELAY: Final = "log.initial.task.delay.ms"

LOG_MANAGER_CONFIG_DEF: Final = ConfigDef(
    KAFKA_CONFIG_DEF.keys[name]
    for name in (
        RETENTION_CHECK,
        FLUSH_CHECK,
        RECOVERY_POINT_INTERVAL,
        LOG_START_INTERVAL,
        HIGH_WATERMARK_INTERVAL,
        PRODUCER_ID_CHECK,
        INITIAL_DELAY,
        "num.recovery.threads.per.data.dir",
        "producer.id.expiration.ms",
        "transaction.max.timeout.ms",
        "transaction.partition.verification.enable",
    )
)


@dataclass(frozen=True, slots=True)
class LogManagerConfig:
    """Settings by Kafka's names, with `_` for `.`. Times are ms."""

    log_retention_check_interval_ms: int = 300_000
    log_flush_scheduler_interval_ms: int = LONG_MAX
    log_flush_offset_checkpoint_interval_ms: int = 60_000
    log_flush_start_offset_checkpoint_interval_ms: int = 60_000
    replica_high_watermark_checkpoint_interval_ms: int = 5_000
    producer_id_expiration_check_interval_ms: int = 600_000
    log_initial_task_delay_ms: int = 30_000
    num_recovery_threads_per_data_dir: int = 2
    producer_id_expiration_ms: int = 86_400_000
    transaction_max_timeout_ms: int = 900_000
    transaction_partition_verification_enable: bool = True

    def value(self, key: str) -> int:
        """The setting with Kafka's name `key`."""
        value = getattr(self, key.replace(".", "_"))
        assert isinstance(value, int)
        return value


def log_manager_config(broker: Mapping[str, str]) -> LogManagerConfig:
    """Read the settings from a broker's server.properties. Raises UsageError for a value that is not allowed."""
    known = {key: text for key, text in broker.items() if key in LOG_MANAGER_CONFIG_DEF.keys}
    values = LOG_MANAGER_CONFIG_DEF.parse(known)
    arguments: dict[str, Any] = {key.replace(".", "_"): value for key, value in values.items()}
    return LogManagerConfig(**arguments)


class PeriodicTask(NamedTuple):
    """A periodic task of the logs: its name, the setting for its period, and the setting for the delay of its first run (None: no delay).

    For a task with `schedules_itself`, the period is the maximum time between two runs.
    """

    name: str
    period_key: str
    delay_key: str | None = INITIAL_DELAY
    schedules_itself: bool = False


LOG_RETENTION: Final = PeriodicTask("kafka-log-retention", RETENTION_CHECK)
LOG_FLUSHER: Final = PeriodicTask("kafka-log-flusher", FLUSH_CHECK)
RECOVERY_POINTS: Final = PeriodicTask("kafka-recovery-point-checkpoint", RECOVERY_POINT_INTERVAL)
LOG_STARTS: Final = PeriodicTask("kafka-log-start-offset-checkpoint", LOG_START_INTERVAL)
DELETE_LOGS: Final = PeriodicTask("kafka-delete-logs", DELETE_DELAY, schedules_itself=True)
HIGH_WATERMARKS: Final = PeriodicTask("highwatermark-checkpoint", HIGH_WATERMARK_INTERVAL, None)
PRODUCER_EXPIRATION: Final = PeriodicTask("PeriodicProducerExpirationCheck", PRODUCER_ID_CHECK, PRODUCER_ID_CHECK)
PERIODIC_TASKS: Final = (LOG_RETENTION, LOG_FLUSHER, RECOVERY_POINTS, LOG_STARTS, DELETE_LOGS, HIGH_WATERMARKS, PRODUCER_EXPIRATION)


def _no_overrides(topic: str) -> Mapping[str, str]:
    return {}


class TopicConfigs:
    """The settings of every topic. Its own settings (`overrides(topic)`, from the current metadata) take precedence over the broker's, and
    these over Kafka's defaults."""

    def __init__(self, overrides: Callable[[str], Mapping[str, str]] = _no_overrides, broker: Mapping[str, str] | None = None) -> None:
        self._overrides = overrides
        self._broker = dict(broker or {})
        self.default = topic_config(None, self._broker)

    def of(self, topic: str) -> TopicConfig:
        """Return the topic's settings. Raises UsageError for a value that is not allowed."""
        overrides = self._overrides(topic)
        if not overrides:
            return self.default
        try:
            return topic_config(overrides, self._broker, ignore_unknown=True)
        except UsageError as error:
            raise UsageError(f"topic {topic}: {error}") from error

    def set_broker(self, broker: Mapping[str, str]) -> None:
        """Apply changed broker settings. If this raises UsageError, nothing has changed."""
        self.default = topic_config(None, broker)
        self._broker = dict(broker)
