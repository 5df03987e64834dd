"""The settings of a topic in Kafka 4.3, and how a broker's settings become their defaults.

Sources: Kafka's LogConfig and TopicConfig (names, types, defaults, limits), ServerTopicConfigSynonyms and KafkaConfig.extractLogConfigMap
(the broker settings that are the default of a topic setting, of which the first one that is set counts).
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Final

from kops.config.broker_keys.table import KAFKA_CONFIG_DEF
from kops.config.values.definition import GZIP_LEVEL, ConfigDef, ConfigKey, Validator, Value, at_least, between, invalid, list_of, one_of
from kops.config.values.java import LONG_MAX, trim
from kops.errors import ApiError, UsageError

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

_HOUR_MS: Final = 3_600_000
_MINUTE_MS: Final = 60_000
_MIB: Final = 1 << 20
_THROTTLED = re.compile(r"(?:[0-9]+:[0-9]+)?", re.ASCII)


def _no_throttled_list(name: str, value: Value) -> str | None:
    replicas = [trim(replica) for replica in value] if isinstance(value, list) else [""]
    if "".join(replicas) == "*" or all(_THROTTLED.fullmatch(replica) for replica in replicas):
        return None
    allowed = "the literal '*' or a list of replicas in the following format: [partitionId]:[brokerId],[partitionId]:[brokerId],..."
    return invalid(name, value, f"{name} must be {allowed}")


_THROTTLED_LIST: Final = Validator(_no_throttled_list, "* or a list of partition:broker")
_COMPRESSION: Final = one_of("uncompressed", "zstd", "lz4", "snappy", "gzip", "producer")
_TIMESTAMP_TYPE: Final = one_of("CreateTime", "LogAppendTime")
_CLEANUP_POLICY: Final = list_of("compact", "delete")

TOPIC_CONFIG_DEF: Final = ConfigDef(
    (
        ConfigKey("segment.bytes", "int", 1 << 30, at_least(_MIB)),
        ConfigKey("segment.ms", "long", 168 * _HOUR_MS, at_least(1)),
        ConfigKey("segment.jitter.ms", "long", 0, at_least(0)),
        ConfigKey("segment.index.bytes", "int", 10 * _MIB, at_least(4)),
        ConfigKey("flush.messages", "long", LONG_MAX, at_least(1)),
        ConfigKey("flush.ms", "long", LONG_MAX, at_least(0)),
        ConfigKey("retention.bytes", "long", -1),
        ConfigKey("retention.ms", "long", 168 * _HOUR_MS, at_least(-1)),
        ConfigKey("max.message.bytes", "int", _MIB + 12, at_least(0)),
        ConfigKey("index.interval.bytes", "int", 4096, at_least(0)),
        ConfigKey("delete.retention.ms", "long", 24 * _HOUR_MS, at_least(0)),
        ConfigKey("min.compaction.lag.ms", "long", 0, at_least(0)),
        ConfigKey("max.compaction.lag.ms", "long", LONG_MAX, at_least(1)),
        ConfigKey("file.delete.delay.ms", "long", 60_000, at_least(0)),
        ConfigKey("min.cleanable.dirty.ratio", "double", 0.5, between(0, 1)),
        ConfigKey("cleanup.policy", "list", ["delete"], _CLEANUP_POLICY),
        ConfigKey("unclean.leader.election.enable", "boolean", False),
        ConfigKey("min.insync.replicas", "int", 1, at_least(1)),
        ConfigKey("compression.type", "string", "producer", _COMPRESSION),
        ConfigKey("compression.gzip.level", "int", -1, GZIP_LEVEL),
        ConfigKey("compression.lz4.level", "int", 9, between(1, 17)),
        ConfigKey("compression.zstd.level", "int", 3, between(-131072, 22)),
        ConfigKey("preallocate", "boolean", False),
        ConfigKey("message.timestamp.type", "string", "CreateTime", _TIMESTAMP_TYPE),
        ConfigKey("message.timestamp.before.max.ms", "long", LONG_MAX, at_least(0)),
        ConfigKey("message.timestamp.after.max.ms", "long", _HOUR_MS, at_least(0)),
        ConfigKey("leader.replication.throttled.replicas", "list", [], _THROTTLED_LIST),
        ConfigKey("follower.replication.throttled.replicas", "list", [], _THROTTLED_LIST),
        ConfigKey("remote.storage.enable", "boolean", False),
        ConfigKey("local.retention.ms", "long", -2, at_least(-2)),
        ConfigKey("local.retention.bytes", "long", -2, at_least(-2)),
        ConfigKey("remote.log.copy.disable", "boolean", False),
        ConfigKey("remote.log.delete.on.disable", "boolean", False),
        ConfigKey("internal.segment.bytes", "int", None, internal=True),
    )
)

# The broker settings that are defaults of topic settings, and the factor for their values. The first one that is set counts.
_SYNONYMS: Final[dict[str, tuple[tuple[str, int], ...]]] = {
    "segment.bytes": (("log.segment.bytes", 1),),
    "segment.ms": (("log.roll.ms", 1), ("log.roll.hours", _HOUR_MS)),
    "segment.jitter.ms": (("log.roll.jitter.ms", 1), ("log.roll.jitter.hours", _HOUR_MS)),
    "segment.index.bytes": (("log.index.size.max.bytes", 1),),
    "flush.messages": (("log.flush.interval.messages", 1),),
    "flush.ms": (("log.flush.interval.ms", 1), ("log.flush.scheduler.interval.ms", 1)),
    "retention.bytes": (("log.retention.bytes", 1),),
    "retention.ms": (("log.retention.ms", 1), ("log.retention.minutes", _MINUTE_MS), ("log.retention.hours", _HOUR_MS)),
    "max.message.bytes": (("message.max.bytes", 1),),
    "index.interval.bytes": (("log.index.interval.bytes", 1),),
    "delete.retention.ms": (("log.cleaner.delete.retention.ms", 1),),
    "min.compaction.lag.ms": (("log.cleaner.min.compaction.lag.ms", 1),),
    "max.compaction.lag.ms": (("log.cleaner.max.compaction.lag.ms", 1),),
    "file.delete.delay.ms": (("log.segment.delete.delay.ms", 1),),
    "min.cleanable.dirty.ratio": (("log.cleaner.min.cleanable.ratio", 1),),
    "cleanup.policy": (("log.cleanup.policy", 1),),
    "unclean.leader.election.enable": (("unclean.leader.election.enable", 1),),
    "min.insync.replicas": (("min.insync.replicas", 1),),
    "compression.type": (("compression.type", 1),),
    "compression.gzip.level": (("compression.gzip.level", 1),),
    "compression.lz4.level": (("compression.lz4.level", 1),),
    "compression.zstd.level": (("compression.zstd.level", 1),),
    "preallocate": (("log.preallocate", 1),),
    "message.timestamp.type": (("log.message.timestamp.type", 1),),
    "message.timestamp.before.max.ms": (("log.message.timestamp.before.max.ms", 1),),
    "message.timestamp.after.max.ms": (("log.message.timestamp.after.max.ms", 1),),
    "local.retention.ms": (("log.local.retention.ms", 1),),
    "local.retention.bytes": (("log.local.retention.bytes", 1),),
}


@dataclass(frozen=True, slots=True)
class TopicConfig:
    """A topic's settings. Each field is Kafka's name with `_` for `.`. Times are ms, sizes bytes.

    `overridden` names the settings that the topic itself has.
    """

    segment_bytes: int = 1 << 30
    segment_ms: int = 168 * _HOUR_MS
    segment_jitter_ms: int = 0
    segment_index_bytes: int = 10 * _MIB
    flush_messages: int = LONG_MAX
    flush_ms: int = LONG_MAX
    retention_bytes: int = -1
    retention_ms: int = 168 * _HOUR_MS
    max_message_bytes: int = _MIB + 12
    index_interval_bytes: int = 4096
    delete_retention_ms: int = 24 * _HOUR_MS
    min_compaction_lag_ms: int = 0
    max_compaction_lag_ms: int = LONG_MAX
    file_delete_delay_ms: int = 60_000
    min_cleanable_dirty_ratio: float = 0.5
    cleanup_policy: tuple[str, ...] = ("delete",)
    unclean_leader_election_enable: bool = False
    min_insync_replicas: int = 1
    compression_type: str = "producer"
    compression_gzip_level: int = -1
    compression_lz4_level: int = 9
    compression_zstd_level: int = 3
    preallocate: bool = False
    message_timestamp_type: str = "CreateTime"
    message_timestamp_before_max_ms: int = LONG_MAX
    message_timestamp_after_max_ms: int = _HOUR_MS
    leader_replication_throttled_replicas: tuple[str, ...] = ()
    follower_replication_throttled_replicas: tuple[str, ...] = ()
    remote_storage_enable: bool = False
    local_retention_ms: int = -2
    local_retention_bytes: int = -2
    remote_log_copy_disable: bool = False
    remote_log_delete_on_disable: bool = False
    internal_segment_bytes: int | None = None
    overridden: frozenset[str] = field(default=frozenset(), compare=False)

    def with_overrides(self, settings: Mapping[str, str]) -> TopicConfig:
        """Return these settings, a broker's defaults, with those of a topic on top (LogConfig.fromProps). Unknown names are ignored.

        Raises ApiError INVALID_CONFIG.
        """
        values: dict[str, Any] = {
            _field(name): _frozen(key.accept(settings[name])) for name, key in TOPIC_CONFIG_DEF.keys.items() if name in settings
        }
        return replace(self, **values, overridden=frozenset(settings))

    def with_values(self, values: Mapping[str, Value]) -> TopicConfig:
        """Return these settings with a broker's values, by topic names, on top. Raises ApiError INVALID_CONFIG."""
        accepted: dict[str, Any] = {_field(name): _frozen(TOPIC_CONFIG_DEF.keys[name].accept(value)) for name, value in values.items()}
        return replace(self, **accepted)

    @property
    def values(self) -> dict[str, Value]:
        """The settings by Kafka's names."""
        found = {name: getattr(self, _field(name)) for name in TOPIC_CONFIG_DEF.keys}
        return {name: list(value) if isinstance(value, tuple) else value for name, value in found.items()}

    @property
    def segment_size(self) -> int:
        """The size at which a segment is rolled: `internal.segment.bytes` if it is set."""
        return self.segment_bytes if self.internal_segment_bytes is None else self.internal_segment_bytes

    @property
    def compact(self) -> bool:
        """Whether the log is compacted."""
        return "compact" in self.cleanup_policy

    @property
    def delete(self) -> bool:
        """Whether retention deletes old segments."""
        return "delete" in self.cleanup_policy

    @property
    def init_file_size(self) -> int:
        """The size to which a new `.log` is preallocated."""
        return self.segment_size if self.preallocate else 0

    @property
    def max_segment_ms(self) -> int:
        """The age at which a segment is rolled."""
        if self.compact and self.max_compaction_lag_ms > 0:
            return min(self.max_compaction_lag_ms, self.segment_ms)
        return self.segment_ms


def topic_config(
    overrides: Mapping[str, str] | None = None, broker: Mapping[str, str] | None = None, *, ignore_unknown: bool = False
) -> TopicConfig:
    """Return the settings of a topic: `overrides` by topic names, then a broker's server.properties, then Kafka's defaults.

    Raises UsageError for an unknown topic setting or a value that is not allowed. Unknown broker settings are ignored. `ignore_unknown`
    ignores topic settings that 4.3 does not know, as a broker does with settings that an older one has stored.
    """
    values = broker_defaults(broker) if broker else {}
    values.update(TOPIC_CONFIG_DEF.parse(overrides or {}, ignore_unknown=ignore_unknown))
    arguments: dict[str, Any] = {_field(name): _frozen(value) for name, value in values.items()}
    config = TopicConfig(**arguments, overridden=frozenset(overrides or ()))
    low, high = config.min_compaction_lag_ms, config.max_compaction_lag_ms
    if low > high:
        raise UsageError(f"min.compaction.lag.ms={low}: not allowed; allowed: max.compaction.lag.ms ({high}) or less")
    return config


def _field(name: str) -> str:
    return name.replace(".", "_")


def _frozen(value: Value) -> object:
    return tuple(value) if isinstance(value, list) else value


def server_synonyms(name: str) -> tuple[str, ...]:
    """Return the broker settings that are defaults of this topic setting. The first one that is set counts (ALL_TOPIC_CONFIG_SYNONYMS)."""
    return tuple(synonym for synonym, _ in synonyms_with_factors(name))


def synonyms_with_factors(name: str) -> tuple[tuple[str, int], ...]:
    """Return `server_synonyms`, each with the factor that converts its value to this setting's unit."""
    return _SYNONYMS.get(name, ())


def broker_defaults(properties: Mapping[str, str]) -> dict[str, Value]:
    """Return the topic settings, by topic names, whose defaults a server.properties sets (KafkaConfig.extractLogConfigMap)."""
    values: dict[str, Value] = {}
    for name, given in _SYNONYMS.items():
        synonym, factor = next((found for found in given if found[0] in properties), (None, 1))
        if synonym is not None:
            values[name] = _broker_default(name, synonym, factor, properties[synonym])
    return values


def _broker_default(name: str, synonym: str, factor: int, text: str) -> Value:
    value = KAFKA_CONFIG_DEF.keys[synonym].parse(text)
    if isinstance(value, int) and not isinstance(value, bool):
        value *= factor
        if name == "retention.ms":
            if value == 0:
                raise UsageError(f"{synonym}={text}: not allowed; allowed: 1 or more, or a negative number for no limit")
            value = max(value, -1)
    key = TOPIC_CONFIG_DEF.keys[name]
    try:
        return key.accept(value)
    except ApiError as error:
        raise UsageError(f"{synonym}={text}: not allowed; allowed: {key.allowed}") from error


def parse_settings(arguments: Iterable[str], *, source: str) -> dict[str, str]:
    """Parse `key=value` arguments. Raises UsageError for one without `=`, which names `source`, the option."""
    settings = {}
    for argument in arguments:
        key, equals, value = argument.partition("=")
        if not equals or not key.strip():
            raise UsageError(f"{source} {argument}: not a setting; allowed: key=value")
        settings[key.strip()] = value
    return settings
