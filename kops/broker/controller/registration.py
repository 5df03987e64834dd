"""Registers this controller with the active controller, with its addresses and supported features, until the metadata shows it.

Source: Kafka's ControllerRegistrationManager (KIP-919).
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Final

from kops.errors import ApiError
from kops.metadata.controller.cluster.feature_versions import production_features
from kops.protocol.connections.backoff import ExponentialBackoff
from kops.protocol.errors import by_code
from kops.protocol.messages import ControllerRegistrationRequest, ControllerRegistrationResponse
from kops.protocol.messages.controller_registration_request import Feature, Listener

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from kops.broker.controller_link.to_controller import ToController
    from kops.broker.network.events.loop import Loop, Timer
    from kops.metadata.broker_registration import Endpoint
    from kops.metadata.image.batch_loader import Manifest
    from kops.metadata.image.metadata_delta import MetadataDelta
    from kops.metadata.image.metadata_image import MetadataImage
    from kops.protocol.declaration import Message

log = logging.getLogger(__name__)

_RESEND_MS: Final = 100
_RESEND_MAX_MS: Final = 120_000
_JITTER: Final = 0.02


class ControllerRegistrationManager:
    """A Publisher. `incarnation_id` is new at every start. `draw()` returns numbers from 0 to below 1."""

    def __init__(
        self,
        loop: Loop,
        channel: ToController,
        node_id: int,
        incarnation_id: bytes,
        listeners: Mapping[str, Endpoint],
        *,
        draw: Callable[[], float],
    ) -> None:
        self.is_registered = False
        self._loop = loop
        self._channel = channel
        self._node_id = node_id
        self._incarnation_id = incarnation_id
        self._listeners = dict(listeners)
        self._backoff = ExponentialBackoff(_RESEND_MS, _RESEND_MAX_MS, draw, jitter=_JITTER)
        self._failures = 0
        self._may_register = self._is_asking = self._is_closed = False
        self._timer: Timer | None = None

    def on_metadata_update(self, delta: MetadataDelta, image: MetadataImage, manifest: Manifest) -> None:
        """Check whether the cluster knows this incarnation, and whether its metadata.version lets controllers register."""
        version = image.features.metadata_version
        self._may_register = version is not None and version.has_controller_registration
        if delta.has("cluster") and self._node_id in delta.cluster.changed_controllers:
            known = image.cluster.controllers.get(self._node_id)
            self.is_registered = known is not None and known.incarnation_id == self._incarnation_id
        elif not delta.has("features"):
            return
        self._maybe_register()

    def close(self) -> None:
        """Send no more registrations."""
        self._is_closed = True
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _maybe_register(self) -> None:
        if self.is_registered or self._is_asking or self._is_closed or not self._may_register:
            return
        self._is_asking = True
        request = ControllerRegistrationRequest(
            controller_id=self._node_id,
            incarnation_id=self._incarnation_id,
            listeners=[Listener(*endpoint) for endpoint in self._listeners.values()],
            features=[Feature(name, known.min, known.max) for name, known in production_features().items()],
        )
        self._channel.send(request, self._answered)

    def _answered(self, result: Message | ApiError) -> None:
        self._is_asking = False
        if self._is_closed:
            return
        if isinstance(result, ControllerRegistrationResponse) and result.error_code == 0:
            self._failures = 0
            return  # The metadata will show it.
        reason = result if isinstance(result, ApiError) else by_code(getattr(result, "error_code", -1)).name
        log.info("[ControllerRegistrationManager id=%d] Registering failed: %s", self._node_id, reason)
        self._timer = self._loop.call_later(self._backoff.delay_ms(self._failures), self._maybe_register)
        self._failures += 1
