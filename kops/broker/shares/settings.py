"""The current settings of a share group: its own, or the node's. Source: ShareGroupConfigProvider, GroupConfig."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

from kops.config import BrokerConfig
from kops.config.groups import BY_DURATION, duration_ns
from kops.records.log_offsets import Isolation

_EARLIEST_TIMESTAMP: Final = -2
_LATEST_TIMESTAMP: Final = -1
_NS_PER_MS: Final = 1_000_000


class ShareGroupSettings:
    """See `kops.coordinators.share.partition.settings`. `settings_of` returns a group's own settings, or None."""

    def __init__(self, group_id: str, settings_of: Callable[[str], Mapping[str, Any] | None], config: Callable[[], BrokerConfig]) -> None:
        self._group_id = group_id
        self._settings_of = settings_of
        self._config = config

    @property
    def max_in_flight_records(self) -> int:
        """`share.partition.max.record.locks`."""
        return int(self._value("group.share.partition.max.record.locks"))

    @property
    def max_delivery_count(self) -> int:
        """`share.delivery.count.limit`."""
        return int(self._value("group.share.delivery.count.limit"))

    @property
    def record_lock_duration_ms(self) -> int:
        """`share.record.lock.duration.ms`."""
        return int(self._value("group.share.record.lock.duration.ms"))

    @property
    def is_renew_enabled(self) -> bool:
        """`share.renew.acknowledge.enable`."""
        return bool(self._own("share.renew.acknowledge.enable", True))

    @property
    def isolation(self) -> Isolation:
        """The isolation level of the group (`share.isolation.level`)."""
        is_committed = self._own("share.isolation.level", "read_uncommitted") == "read_committed"
        return Isolation.TXN_COMMITTED if is_committed else Isolation.HIGH_WATERMARK

    def reset_timestamp(self, now_ms: int) -> int:
        """Return the timestamp (or -1, -2) at which a group without a start offset begins (`share.auto.offset.reset`)."""
        strategy = str(self._own("share.auto.offset.reset", "latest"))
        if strategy == "earliest":
            return _EARLIEST_TIMESTAMP
        if strategy == "latest":
            return _LATEST_TIMESTAMP
        duration = duration_ns(strategy.removeprefix(BY_DURATION))
        assert duration is not None, "settings are checked when they are set"
        return (now_ms * _NS_PER_MS - duration) // _NS_PER_MS

    def _value(self, name: str) -> Any:
        """Return a setting by the name of the node's setting."""
        own = self._settings_of(self._group_id)
        return self._config()[name] if own is None else own[name.removeprefix("group.")]

    def _own(self, name: str, default: Any) -> Any:
        own = self._settings_of(self._group_id)
        return default if own is None else own[name]
