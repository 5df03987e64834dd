"""The registrations of brokers and controllers: epochs, listeners, features, directories (Kafka BrokerRegistration,
ControllerRegistration)."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, NamedTuple

from kops.metadata.directory_id import is_online, uuid_order

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from kops.protocol.messages import RegisterBrokerRecord, RegisterControllerRecord


class Endpoint(NamedTuple):
    """The address of a listener."""

    name: str
    host: str
    port: int
    security_protocol: int = 0


class VersionRange(NamedTuple):
    """The versions of a feature that a node supports, both inclusive."""

    min: int
    max: int

    def __contains__(self, version: object) -> bool:
        return isinstance(version, int) and self.min <= version <= self.max

    def __str__(self) -> str:
        if self.min == self.max:
            return str(self.min)
        return f"{self.min}+" if self.max == 0x7FFF else f"{self.min}-{self.max}"


@dataclass(frozen=True, slots=True)
class BrokerRegistration:
    """A registered broker. `directories` are sorted as Uuids; `cordoned_directories` is None if the broker never sent them."""

    id: int
    epoch: int
    incarnation_id: bytes
    listeners: Mapping[str, Endpoint] = field(default_factory=dict)
    features: Mapping[str, VersionRange] = field(default_factory=dict)
    rack: str | None = None
    fenced: bool = True
    in_controlled_shutdown: bool = False
    is_migrating_zk_broker: bool = False
    directories: tuple[bytes, ...] = ()
    cordoned_directories: tuple[bytes, ...] | None = None

    @classmethod
    def from_record(cls, record: RegisterBrokerRecord) -> BrokerRegistration:
        """Return the registration in a RegisterBrokerRecord."""
        return cls(
            id=record.broker_id,
            epoch=record.broker_epoch,
            incarnation_id=record.incarnation_id,
            listeners={point.name: Endpoint(point.name, point.host, point.port, point.security_protocol) for point in record.end_points},
            features={one.name: VersionRange(one.min_supported_version, one.max_supported_version) for one in record.features},
            rack=record.rack,
            fenced=record.fenced,
            in_controlled_shutdown=record.in_controlled_shutdown,
            is_migrating_zk_broker=record.is_migrating_zk_broker,
            directories=tuple(sorted(record.log_dirs, key=uuid_order)),
            cordoned_directories=None if record.cordoned_log_dirs is None else tuple(record.cordoned_log_dirs),
        )

    def changed(
        self,
        *,
        fenced: bool | None = None,
        in_controlled_shutdown: bool | None = None,
        directories: Collection[bytes] | None = None,
        cordoned_directories: Collection[bytes] | None = None,
    ) -> BrokerRegistration:
        """Return the registration with these fields changed."""
        return replace(
            self,
            fenced=self.fenced if fenced is None else fenced,
            in_controlled_shutdown=self.in_controlled_shutdown if in_controlled_shutdown is None else in_controlled_shutdown,
            directories=self.directories if directories is None else tuple(sorted(directories, key=uuid_order)),
            cordoned_directories=self.cordoned_directories if cordoned_directories is None else tuple(cordoned_directories),
        )

    @property
    def is_active(self) -> bool:
        """Whether the broker is neither fenced nor shutting down."""
        return not self.fenced and not self.in_controlled_shutdown

    def has_online_dir(self, directory: bytes) -> bool:
        """Whether a replica in this directory is available."""
        return is_online(directory, self.directories)

    @property
    def has_uncordoned_dirs(self) -> bool:
        """Whether the broker may get new partitions."""
        if not self.directories or self.cordoned_directories is None:
            return True
        return not set(self.directories).issubset(self.cordoned_directories)


@dataclass(frozen=True, slots=True)
class ControllerRegistration:
    """A registered controller."""

    id: int
    incarnation_id: bytes
    zk_migration_ready: bool = False
    listeners: Mapping[str, Endpoint] = field(default_factory=dict)
    features: Mapping[str, VersionRange] = field(default_factory=dict)

    @classmethod
    def from_record(cls, record: RegisterControllerRecord) -> ControllerRegistration:
        """Return the registration in a RegisterControllerRecord."""
        return cls(
            id=record.controller_id,
            incarnation_id=record.incarnation_id,
            zk_migration_ready=record.zk_migration_ready,
            listeners={point.name: Endpoint(point.name, point.host, point.port, point.security_protocol) for point in record.end_points},
            features={one.name: VersionRange(one.min_supported_version, one.max_supported_version) for one in record.features},
        )
