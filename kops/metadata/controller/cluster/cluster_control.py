"""The brokers and controllers of the cluster: registration, fencing, shutdown, unregistration.

Source: Kafka's ClusterControlManager.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from kops.errors import ApiError
from kops.metadata.broker_registration import BrokerRegistration, ControllerRegistration, VersionRange
from kops.metadata.controller.cluster.heartbeats import HeartbeatManager
from kops.metadata.controller.cluster.placement import UsableBroker
from kops.metadata.directory_id import MIGRATING, UNASSIGNED, is_reserved
from kops.metadata.metadata_version import FEATURE_NAME
from kops.protocol.json_text import uuid_text
from kops.protocol.messages import (
    BrokerRegistrationChangeRecord,
    FenceBrokerRecord,
    RegisterBrokerRecord,
    RegisterControllerRecord,
    UnfenceBrokerRecord,
    UnregisterBrokerRecord,
)
from kops.protocol.messages.register_broker_record import BrokerEndpoint, BrokerFeature
from kops.protocol.messages.register_controller_record import ControllerEndpoint, ControllerFeature
from kops.timeline import Timeline, TimelineDict

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from kops.metadata.controller.base.result import Record
    from kops.metadata.controller.cluster.feature_control import FeatureControl
    from kops.metadata.metadata_version import MetadataVersion
    from kops.protocol.messages import BrokerRegistrationRequest, ControllerRegistrationRequest
    from kops.protocol.messages.broker_registration_request import Listener as BrokerListener
    from kops.protocol.messages.controller_registration_request import Listener as ControllerListener

FENCE: Final = 1
UNFENCE: Final = -1
NO_CHANGE: Final = 0
_SECURITY_PROTOCOLS: Final = range(4)


class ClusterControl:
    """The replayed registrations, and the heartbeats of an active controller.

    `on_new_incarnation(broker_id, clean)` returns the records that move the partitions which a broker led before its restart.
    """

    def __init__(self, timeline: Timeline, cluster_id: str, session_timeout_ms: int, features: FeatureControl) -> None:
        self._cluster_id = cluster_id
        self._session_timeout_ms = session_timeout_ms
        self._features = features
        self.brokers: TimelineDict[int, BrokerRegistration] = TimelineDict(timeline)
        self.controllers: TimelineDict[int, ControllerRegistration] = TimelineDict(timeline)
        self._register_offsets: TimelineDict[int, int] = TimelineDict(timeline)
        self._directory_brokers: TimelineDict[bytes, int] = TimelineDict(timeline)
        self._heartbeats: HeartbeatManager | None = None
        self.on_new_incarnation: Callable[[int, bool], list[Record]] = lambda _id, _clean: []

    # An active controller

    def activate(self, now_ms: int) -> None:
        """Become active. Every unfenced broker has one session timeout to send a heartbeat."""
        self._heartbeats = HeartbeatManager(self._session_timeout_ms)
        for broker in self.brokers.values():
            self._heartbeats.register(broker.id, fenced=broker.fenced)
            if not broker.fenced:
                self._heartbeats.contact(broker.id, broker.epoch, now_ms)

    def deactivate(self) -> None:
        """Become inactive."""
        self._heartbeats = None

    @property
    def heartbeats(self) -> HeartbeatManager:
        """The heartbeats, which exist only while the controller leads."""
        assert self._heartbeats is not None, "the controller does not lead"
        return self._heartbeats

    def register_broker(
        self, request: BrokerRegistrationRequest, new_epoch: int, finalized: Mapping[str, int], now_ms: int, *, tells_clean_shutdown: bool
    ) -> tuple[list[Record], int]:
        """Return the records of a registration and the broker's epoch.

        `finalized` are all finalized levels, including kraft.version. `tells_clean_shutdown` means that the request has a previous broker
        epoch. Raises ApiError: INCONSISTENT_CLUSTER_ID, DUPLICATE_BROKER_REGISTRATION, INVALID_REGISTRATION, UNSUPPORTED_VERSION …
        """
        version = self._features.metadata_version
        existing = self.brokers.get(request.broker_id)
        self._check_identity(request, existing, now_ms)
        if version.has_directory_assignment:
            self._check_directories(request)
        _check_listeners(request.listeners)
        _check_features(request, finalized)
        record = _registration_record(request, version)
        records: list[Record] = []
        if existing is None or existing.incarnation_id != request.incarnation_id:
            stored_epoch = -2 if existing is None else existing.epoch
            is_clean = tells_clean_shutdown and stored_epoch == request.previous_broker_epoch
            records += self.on_new_incarnation(request.broker_id, is_clean)
            record.broker_epoch = new_epoch
            self.heartbeats.remove(request.broker_id)
        else:
            record.fenced = existing.fenced
            record.in_controlled_shutdown = existing.in_controlled_shutdown
            record.broker_epoch = existing.epoch
        records.append((record, version.register_broker_record_version))
        self.heartbeats.register(request.broker_id, fenced=record.fenced)
        return records, record.broker_epoch

    def _check_identity(self, request: BrokerRegistrationRequest, existing: BrokerRegistration | None, now_ms: int) -> None:
        if request.cluster_id != self._cluster_id:
            text = f"Expected cluster ID {self._cluster_id}, but got cluster ID {request.cluster_id}"
            raise ApiError("INCONSISTENT_CLUSTER_ID", text)
        is_other = existing is not None and existing.incarnation_id != request.incarnation_id
        if existing is not None and is_other and self.heartbeats.has_valid_session(existing.id, existing.epoch, now_ms):
            raise ApiError(
                "DUPLICATE_BROKER_REGISTRATION",
                "Another broker is registered with that broker id. If the broker was recently restarted this should self-resolve "
                "once the heartbeat manager expires the broker's session.",
            )
        if request.is_migrating_zk_broker:
            raise ApiError("BROKER_ID_NOT_REGISTERED", "Controller does not support registering ZK brokers.")

    def _check_directories(self, request: BrokerRegistrationRequest) -> None:
        if not request.log_dirs:
            raise ApiError("INVALID_REGISTRATION", "No directories specified in request")
        if any(map(is_reserved, request.log_dirs)):
            raise ApiError("INVALID_REGISTRATION", "Reserved directory ID in request")
        if len(set(request.log_dirs)) != len(request.log_dirs):
            raise ApiError("INVALID_REGISTRATION", "Duplicate directory ID in request")
        for directory in request.log_dirs:
            owner = self._directory_brokers.get(directory, request.broker_id)
            if owner != request.broker_id:
                raise ApiError("INVALID_REGISTRATION", f"Broker {owner} is already registered with directory {uuid_text(directory)}")

    def register_controller(self, request: ControllerRegistrationRequest) -> list[Record]:
        """Return the records of a controller's registration. Raises ApiError UNSUPPORTED_VERSION before metadata.version 3.7-IV0."""
        if not self._features.metadata_version.has_controller_registration:
            raise ApiError("UNSUPPORTED_VERSION", "The current MetadataVersion is too old to support controller registrations.")
        _check_listeners(request.listeners)
        record = RegisterControllerRecord(
            controller_id=request.controller_id,
            incarnation_id=request.incarnation_id,
            zk_migration_ready=False,
            end_points=[ControllerEndpoint(one.name, one.host, one.port, one.security_protocol) for one in request.listeners],
            features=[ControllerFeature(one.name, one.min_supported_version, one.max_supported_version) for one in request.features],
        )
        return [(record, 0)]

    # Questions

    def registration(self, broker_id: int) -> BrokerRegistration | None:
        """Return the broker's registration."""
        return self.brokers.get(broker_id)

    def is_active(self, broker_id: int) -> bool:
        """Whether the broker is registered and neither fenced nor shutting down."""
        broker = self.brokers.get(broker_id)
        return broker is not None and broker.is_active

    def has_online_dir(self, broker_id: int, directory: bytes) -> bool:
        """Whether the broker is registered and the directory is not known to be lost."""
        broker = self.brokers.get(broker_id)
        return broker is not None and broker.has_online_dir(directory)

    def check_broker_epoch(self, broker_id: int, epoch: int) -> BrokerRegistration:
        """Return the broker's registration if it has this epoch. Raises ApiError STALE_BROKER_EPOCH."""
        broker = self.brokers.get(broker_id)
        if broker is None:
            raise ApiError("STALE_BROKER_EPOCH", f"No broker registration found for broker id {broker_id}")
        if broker.epoch != epoch:
            raise ApiError("STALE_BROKER_EPOCH", f"Expected broker epoch {broker.epoch}, but got broker epoch {epoch}")
        return broker

    def register_offset(self, broker_id: int) -> int | None:
        """Return the offset of the broker's registration in the log."""
        return self._register_offsets.get(broker_id)

    def default_dir(self, broker_id: int) -> bytes:
        """Return the directory of a new replica on a broker: the broker's only one, otherwise the broker decides."""
        if not self._features.metadata_version.has_directory_assignment:
            return MIGRATING
        broker = self.brokers.get(broker_id)
        if broker is None:
            return UNASSIGNED
        if not broker.directories:
            return MIGRATING
        return broker.directories[0] if len(broker.directories) == 1 else UNASSIGNED

    def usable_brokers(self) -> list[UsableBroker]:
        """Return the brokers on which new replicas can be placed."""
        found = ((heartbeats, self.brokers[heartbeats.id]) for heartbeats in self.heartbeats.usable())
        return [UsableBroker(one.id, broker.rack, one.fenced) for one, broker in found if broker.has_uncordoned_dirs]

    # Records

    def replay_register(self, record: RegisterBrokerRecord, offset: int) -> None:
        """Replay a RegisterBrokerRecord at its offset."""
        broker = BrokerRegistration.from_record(record)
        previous = self.brokers.get(broker.id)
        self._register_offsets[broker.id] = offset
        self.brokers[broker.id] = broker
        self._replace_directories(broker.id, () if previous is None else previous.directories, broker.directories)
        if self._heartbeats is not None:
            if previous is not None:
                self._heartbeats.remove(broker.id)
            self._heartbeats.register(broker.id, fenced=broker.fenced)

    def replay_unregister(self, record: UnregisterBrokerRecord) -> None:
        """Replay an UnregisterBrokerRecord."""
        broker = self._replayed(record.broker_id, record.broker_epoch)
        del self._register_offsets[broker.id]
        if self._heartbeats is not None:
            self._heartbeats.remove(broker.id)
        self._replace_directories(broker.id, broker.directories, ())
        del self.brokers[broker.id]

    def replay_fence(self, record: FenceBrokerRecord | UnfenceBrokerRecord) -> None:
        """Replay a FenceBrokerRecord or UnfenceBrokerRecord of an old log."""
        broker = self._replayed(record.id, record.epoch)
        self._replace(broker, broker.changed(fenced=isinstance(record, FenceBrokerRecord)))

    def replay_change(self, record: BrokerRegistrationChangeRecord) -> None:
        """Replay a BrokerRegistrationChangeRecord."""
        broker = self._replayed(record.broker_id, record.broker_epoch)
        changed = broker.changed(
            fenced=None if record.fenced == NO_CHANGE else record.fenced == FENCE,
            in_controlled_shutdown=True if record.in_controlled_shutdown else None,
            directories=record.log_dirs or None,
            cordoned_directories=record.cordoned_log_dirs,
        )
        self._replace(broker, changed)

    def replay_register_controller(self, record: RegisterControllerRecord) -> None:
        """Replay a RegisterControllerRecord."""
        self.controllers[record.controller_id] = ControllerRegistration.from_record(record)

    def _replayed(self, broker_id: int, epoch: int) -> BrokerRegistration:
        broker = self.brokers.get(broker_id)
        if broker is None or broker.epoch != epoch:
            raise ValueError(f"a record names broker {broker_id} at epoch {epoch}, which is not registered")
        return broker

    def _replace(self, old: BrokerRegistration, new: BrokerRegistration) -> None:
        self.brokers[new.id] = new
        self._replace_directories(new.id, old.directories, new.directories)
        if self._heartbeats is not None:
            self._heartbeats.register(new.id, fenced=new.fenced)

    def _replace_directories(self, broker_id: int, old: tuple[bytes, ...], new: tuple[bytes, ...]) -> None:
        if old == new:
            return
        for directory in old:
            del self._directory_brokers[directory]
        for directory in new:
            if self._directory_brokers.setdefault(directory, broker_id) != broker_id:
                raise ValueError(f"broker {broker_id} and another broker have the directory {directory.hex()}")


def _registration_record(request: BrokerRegistrationRequest, version: MetadataVersion) -> RegisterBrokerRecord:
    return RegisterBrokerRecord(
        broker_id=request.broker_id,
        is_migrating_zk_broker=request.is_migrating_zk_broker,
        incarnation_id=request.incarnation_id,
        rack=request.rack,
        end_points=[BrokerEndpoint(one.name, one.host, one.port, one.security_protocol) for one in request.listeners],
        features=[BrokerFeature(one.name, one.min_supported_version, one.max_supported_version) for one in request.features],
        log_dirs=list(request.log_dirs) if version.has_directory_assignment else [],
    )


def _check_listeners(listeners: Sequence[BrokerListener] | Sequence[ControllerListener]) -> None:
    if any(listener.security_protocol not in _SECURITY_PROTOCOLS for listener in listeners):
        raise ApiError("UNKNOWN_SERVER_ERROR")


def _check_features(request: BrokerRegistrationRequest, finalized: Mapping[str, int]) -> None:
    """Check that the broker supports the level of every finalized feature and of every feature that it names."""
    supported = {one.name: VersionRange(one.min_supported_version, one.max_supported_version) for one in request.features}
    for name, versions in supported.items():
        _check_feature(name, versions, finalized)
    if FEATURE_NAME not in supported:
        raise ApiError("INVALID_REGISTRATION", f"Request features do not contain '{FEATURE_NAME}'")
    for name, level in finalized.items():
        if level != 0 and name not in supported:
            _check_feature(name, VersionRange(0, 0), finalized)


def _check_feature(name: str, versions: VersionRange, finalized: Mapping[str, int]) -> None:
    level = finalized.get(name, 0)
    if level not in versions:
        wanted = f"The broker wants a version between {versions.min} and {versions.max}, inclusive."
        reason = f"the broker does not support finalized version {level} of {name}"
        raise ApiError("UNSUPPORTED_VERSION", f"Unable to register because {reason}. {wanted}")
