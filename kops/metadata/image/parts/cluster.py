"""The registered brokers and controllers (Kafka ClusterImage, ClusterDelta)."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from kops.metadata.broker_registration import BrokerRegistration, ControllerRegistration
from kops.metadata.image.parts.changes import contradiction, remove_unnamed
from kops.metadata.image.parts.shared_map import SharedMap

if TYPE_CHECKING:
    from kops.protocol.messages import (
        BrokerRegistrationChangeRecord,
        FenceBrokerRecord,
        RegisterBrokerRecord,
        RegisterControllerRecord,
        UnfenceBrokerRecord,
        UnregisterBrokerRecord,
    )

_FENCING: Final = {1: True, 0: None, -1: False}
_SHUTDOWN: Final = {1: True, 0: None}


@dataclass(frozen=True, slots=True)
class ClusterImage:
    """The nodes by id."""

    brokers: SharedMap[int, BrokerRegistration] = field(default_factory=SharedMap)
    controllers: SharedMap[int, ControllerRegistration] = field(default_factory=SharedMap)

    def broker_epoch(self, broker_id: int) -> int:
        """Return the epoch of a broker, or -1 if it is not registered."""
        broker = self.brokers.get(broker_id)
        return -1 if broker is None else broker.epoch


class ClusterDelta:
    """The changes that records make to the nodes."""

    def __init__(self, image: ClusterImage) -> None:
        self.image = image
        self.changed_brokers: dict[int, BrokerRegistration | None] = {}
        self.changed_controllers: dict[int, ControllerRegistration | None] = {}

    def broker(self, broker_id: int) -> BrokerRegistration | None:
        """Return the broker after the changes."""
        if broker_id in self.changed_brokers:
            return self.changed_brokers[broker_id]
        return self.image.brokers.get(broker_id)

    def replay_register_broker(self, record: RegisterBrokerRecord) -> None:
        """Replay the registration of a broker, which may replace an earlier one."""
        self.changed_brokers[record.broker_id] = BrokerRegistration.from_record(record)

    def replay_unregister_broker(self, record: UnregisterBrokerRecord) -> None:
        """Replay the unregistration of a broker. As in Kafka, the epoch is not checked."""
        self.changed_brokers[record.broker_id] = None

    def replay_register_controller(self, record: RegisterControllerRecord) -> None:
        """Replay the registration of a controller."""
        self.changed_controllers[record.controller_id] = ControllerRegistration.from_record(record)

    def replay_fence(self, record: FenceBrokerRecord) -> None:
        """Replay the fencing of a broker. Raises DecodeError if it is not registered with this epoch."""
        self.changed_brokers[record.id] = self._known(record.id, record.epoch, "fence").changed(fenced=True)

    def replay_unfence(self, record: UnfenceBrokerRecord) -> None:
        """Replay the unfencing of a broker. Raises DecodeError if it is not registered with this epoch."""
        self.changed_brokers[record.id] = self._known(record.id, record.epoch, "unfence").changed(fenced=False)

    def replay_change(self, record: BrokerRegistrationChangeRecord) -> None:
        """Replay a change of a broker. Raises DecodeError if it is not registered with this epoch, or if Kafka does not know the change."""
        broker = self._known(record.broker_id, record.broker_epoch, "change")
        if record.fenced not in _FENCING:
            raise contradiction(f"Unable to replay {record}: unknown value for fenced field: {record.fenced}")
        if record.in_controlled_shutdown not in _SHUTDOWN:
            raise contradiction(f"Unable to replay {record}: unknown value for inControlledShutdown field: {record.in_controlled_shutdown}")
        changed = broker.changed(
            fenced=_FENCING[record.fenced],
            in_controlled_shutdown=_SHUTDOWN[record.in_controlled_shutdown],
            directories=record.log_dirs or None,
            cordoned_directories=record.cordoned_log_dirs,
        )
        if changed != broker:
            self.changed_brokers[record.broker_id] = changed

    def finish_snapshot(self) -> None:
        """Finish a snapshot: remove everything that it did not name."""
        remove_unnamed(self.image.brokers, self.changed_brokers)
        remove_unnamed(self.image.controllers, self.changed_controllers)

    def apply(self) -> ClusterImage:
        """Return the image with the changes."""
        return ClusterImage(self.image.brokers.changed(self.changed_brokers), self.image.controllers.changed(self.changed_controllers))

    def _known(self, broker_id: int, epoch: int, action: str) -> BrokerRegistration:
        broker = self.broker(broker_id)
        if broker is None:
            raise contradiction(f"Tried to {action} broker {broker_id}, but that broker was not registered.")
        if broker.epoch != epoch:
            raise contradiction(
                f"Tried to {action} broker {broker_id}, but the given epoch, {epoch}, did not match the current broker epoch, "
                f"{broker.epoch}"
            )
        return broker
