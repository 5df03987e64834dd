"""Kafka's own consumers of share groups, in the oracle's JVM.

with ShareConsumer(oracle, bootstrap, "group", "topic") as member:
    records = until(member, bool)                  # [Taken(partition, offset, value, delivery_count, record), …]
    member.acknowledge(records[0], "REJECT")
    member.commit()
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from types import TracebackType
from typing import Any, Final, NamedTuple, Self

from tests.support.kafka.oracle import Oracle

PATIENCE_S: Final = 60
_DESERIALIZER: Final = "org.apache.kafka.common.serialization.StringDeserializer"


class Taken(NamedTuple):
    """A record as a member gets it. `record` is Kafka's ConsumerRecord."""

    partition: int
    offset: int
    value: str
    delivery_count: int
    record: Any

    @property
    def seen(self) -> tuple[int, int, str, int]:
        """Everything that can be compared."""
        return self[:4]


class ShareConsumer:
    """A KafkaShareConsumer that acknowledges each record itself, unless `settings` say otherwise."""

    def __init__(self, oracle: Oracle, bootstrap: str, group: str, topic: str, settings: Mapping[str, object] | None = None) -> None:
        base = {
            "bootstrap.servers": bootstrap,
            "group.id": group,
            "key.deserializer": _DESERIALIZER,
            "value.deserializer": _DESERIALIZER,
            "share.acknowledgement.mode": "explicit",
        }
        self._oracle = oracle
        self._types = oracle.jvm.org.apache.kafka.clients.consumer.AcknowledgeType
        self._consumer = oracle.jvm.org.apache.kafka.clients.consumer.KafkaShareConsumer(oracle.properties({**base, **(settings or {})}))
        self._consumer.subscribe(oracle.jvm.java.util.List.of(topic))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()

    def close(self) -> None:
        """Leave the group. The broker releases the records that were acquired."""
        self._consumer.close()

    def abandon(self) -> None:
        """Close it without a request to the broker, which may be gone."""
        self._consumer.close(self._oracle.jvm.java.time.Duration.ZERO)

    @property
    def lock_ms(self) -> int:
        """How long records stay acquired, as the last answer says."""
        return int(self._consumer.acquisitionLockTimeoutMs().get())

    def poll(self, ms: int = 500) -> list[Taken]:
        """Poll once."""
        found = self._consumer.poll(self._oracle.jvm.java.time.Duration.ofMillis(ms))
        taken = []
        records = found.iterator()
        while records.hasNext():
            record = records.next()
            taken.append(Taken(record.partition(), record.offset(), record.value(), record.deliveryCount().get(), record))
        return taken

    def acknowledge(self, taken: Taken, kind: str) -> None:
        """Acknowledge a record with ACCEPT, RELEASE, REJECT or RENEW."""
        self._consumer.acknowledge(taken.record, getattr(self._types, kind))

    def commit(self) -> list[str]:
        """Send the acknowledgements. Return the errors of the partitions, by name."""
        results = self._consumer.commitSync()
        errors = []
        for each in results.entrySet():
            if each.getValue().isPresent():
                errors.append(str(each.getValue().get().getClass().getSimpleName()))
        return errors


def until(member: ShareConsumer, holds: Callable[[Sequence[Taken]], bool]) -> list[Taken]:
    """Poll until the records of one poll are as wanted."""
    deadline = time.monotonic() + PATIENCE_S
    while True:
        found = member.poll()
        if holds(found):
            return found
        assert time.monotonic() < deadline, [each.seen for each in found]


def configure_group(oracle: Oracle, bootstrap: str, group: str, settings: Mapping[str, str]) -> None:
    """Set settings of a share group."""
    jvm = oracle.jvm
    admin = oracle.java_class("org.apache.kafka.clients.admin.Admin").create(oracle.properties({"bootstrap.servers": bootstrap}))
    resource = jvm.org.apache.kafka.common.config.ConfigResource
    kinds = oracle.java_class("org.apache.kafka.common.config.ConfigResource$Type")
    operations = oracle.java_class("org.apache.kafka.clients.admin.AlterConfigOp$OpType")
    changes = jvm.java.util.ArrayList()
    for name, value in settings.items():
        entry = jvm.org.apache.kafka.clients.admin.ConfigEntry(name, value)
        changes.add(jvm.org.apache.kafka.clients.admin.AlterConfigOp(entry, operations.SET))
    try:
        admin.incrementalAlterConfigs({resource(kinds.GROUP, group): changes}).all().get()
    finally:
        admin.close()
