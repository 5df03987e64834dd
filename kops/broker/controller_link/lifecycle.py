"""The broker's states as the controller sees them: registered, caught up, unfenced, shutting down.

Source: Kafka's BrokerLifecycleManager. One request at a time is in flight to the controller: the registration until it is accepted, then
heartbeats. A heartbeat reports changes of the broker (it wants to be fenced or to shut down, these directories are offline, these take no
new replicas). The answer moves the broker to the next state.

A broker that shuts down asks the controller whether it may stop, at growing intervals (Kafka: once soon, then at the usual interval). It
stops when it has had no answer for the time of its session: by then it is fenced, or there is no quorum that could move its leaderships.
Kafka waits five minutes.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Final, Protocol

from kops.broker.controller_link.status import BrokerState
from kops.errors import ApiError
from kops.metadata.directory_id import uuid_order
from kops.protocol.errors import by_code

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Sequence

    from kops.broker.controller_link.to_controller import ToController
    from kops.protocol.declaration import Message
    from kops.protocol.messages import BrokerRegistrationRequest
    from kops.protocol.messages.broker_registration_request import Feature, Listener

log = logging.getLogger(__name__)

CATCH_UP_INTERVAL_MS: Final = 10
CONTROLLED_SHUTDOWN_INTERVAL_MS: Final = 50


class Cancellable(Protocol):
    """A scheduled call."""

    def cancel(self) -> None:
        """Cancel the call."""


class Timers(Protocol):
    """The part of `Loop` that is needed here."""

    def call_later(self, delay_ms: float, run: Callable[[], object]) -> Cancellable:
        """Call once, `delay_ms` from now."""


class LifecycleOwner(Protocol):
    """Receives the events of the life cycle. Each method is called at most once, except `state_changed`."""

    def state_changed(self, state: BrokerState) -> None:
        """The state of the broker has changed."""

    def caught_up(self) -> None:
        """The controller says that this broker has caught up with the metadata."""

    def unfenced(self) -> None:
        """The controller has unfenced the broker: clients may now be sent here."""

    def controlled_shutdown_over(self) -> None:
        """The controller has moved the leaderships of this broker, or there was nothing to wait for."""

    def must_shut_down(self, reason: str) -> None:
        """The broker can't continue."""


@dataclass(frozen=True, slots=True)
class Registration:
    """The data of a registration. `log_dirs` are the directories' ids. The epoch is that of the last clean stop, or -1."""

    node_id: int
    cluster_id: str
    incarnation_id: bytes
    listeners: Sequence[Listener]
    features: Sequence[Feature]
    rack: str | None
    log_dirs: Sequence[bytes]
    previous_broker_epoch: int = -1

    def request(self) -> BrokerRegistrationRequest:
        """The request with this data."""
        from kops.protocol.messages import BrokerRegistrationRequest

        return BrokerRegistrationRequest(
            broker_id=self.node_id,
            cluster_id=self.cluster_id,
            incarnation_id=self.incarnation_id,
            listeners=list(self.listeners),
            features=list(self.features),
            rack=self.rack,
            log_dirs=sorted(self.log_dirs, key=uuid_order),
            previous_broker_epoch=self.previous_broker_epoch,
        )


@dataclass(frozen=True, slots=True)
class LifecycleSettings:
    """`broker.heartbeat.interval.ms`, `initial.broker.registration.timeout.ms`, `broker.session.timeout.ms`."""

    heartbeat_interval_ms: int = 2000
    registration_timeout_ms: int = 60_000
    session_timeout_ms: int = 9000


class BrokerLifecycle:
    """The life cycle of one broker, from start to stop. `supports_cordoned_dirs()` says whether the cluster's metadata.version supports
    them."""

    def __init__(
        self, timers: Timers, owner: LifecycleOwner, settings: LifecycleSettings, *, supports_cordoned_dirs: Callable[[], bool]
    ) -> None:
        self.state = BrokerState.NOT_RUNNING
        self.broker_epoch = -1
        self._timers = timers
        self._owner = owner
        self._settings = settings
        self._supports_cordoned_dirs = supports_cordoned_dirs
        self._channel: ToController | None = None
        self._registration: Registration | None = None
        self._metadata_offset: Callable[[], int] = lambda: -1
        self._offline_dirs: dict[bytes, bool] = {}  # By id: whether the controller knows.
        self._cordoned_dirs: frozenset[bytes] = frozenset()
        self._is_ready_to_unfence = self._is_registered = self._was_registered = self._was_caught_up = False
        self._is_in_flight = self._is_next_immediate = False
        self._next: Cancellable | None = None
        self._deadlines: list[Cancellable] = []
        self._patience: Cancellable | None = None  # While the broker shuts down.
        self._leaving_interval_ms = CONTROLLED_SHUTDOWN_INTERVAL_MS

    # requests to it ---------------------------------------------------------------------------------------------------------------

    def start(
        self, channel: ToController, registration: Registration, metadata_offset: Callable[[], int], cordoned_dirs: Collection[bytes] = ()
    ) -> None:
        """Register. `metadata_offset()` returns the last offset of the metadata log that this broker has applied."""
        self._channel = channel
        self._registration = registration
        self._metadata_offset = metadata_offset
        self._cordoned_dirs = frozenset(cordoned_dirs)
        self._change_state(BrokerState.STARTING)
        self._deadlines.append(self._timers.call_later(self._settings.registration_timeout_ms, self._registration_timed_out))
        self._communicate()

    def set_ready_to_unfence(self) -> None:
        """Everything is loaded: ask to be unfenced."""
        self._is_ready_to_unfence = True
        self._schedule(0)

    def resend_registration(self) -> None:
        """Register again: the data of the registration has changed."""
        self._is_registered = False
        self._schedule(0)

    def directory_failed(self, directory_id: bytes, timeout_ms: int) -> None:
        """Report that a directory is offline. The broker has to stop if the controller does not confirm within `timeout_ms`."""
        self._offline_dirs[directory_id] = False
        if self._is_registered:
            self._schedule(0)
        self._deadlines.append(self._timers.call_later(timeout_ms, partial(self._directory_timed_out, directory_id)))

    def directories_cordoned(self, directory_ids: Iterable[bytes]) -> None:
        """Report the directories that take no new replicas."""
        self._cordoned_dirs = frozenset(directory_ids)
        if self._is_registered and self._supports_cordoned_dirs():
            self._schedule(0)

    def begin_controlled_shutdown(self) -> None:
        """Ask the controller to move this broker's leaderships. A broker that is not running has none."""
        if self.state is BrokerState.PENDING_CONTROLLED_SHUTDOWN:
            log.info("Attempted to enter pending controlled shutdown state, but we are already in that state.")
        elif self.state is BrokerState.RUNNING:
            log.info("Beginning controlled shutdown.")
            self._change_state(BrokerState.PENDING_CONTROLLED_SHUTDOWN)
            self._renew_patience()
            self._schedule(0)
        else:
            log.info("Skipping controlled shutdown because we are in state %s.", self.state.name)
            self.begin_shutdown()

    def begin_shutdown(self) -> None:
        """Send nothing more to the controller. A second call does nothing."""
        if self.state is BrokerState.SHUTTING_DOWN:
            return
        log.info("Transitioning from %s to SHUTTING_DOWN.", self.state.name)
        self._channel = None
        for pending in (*self._deadlines, self._next, self._patience):
            if pending is not None:
                pending.cancel()
        self._deadlines.clear()
        self._next = None
        self._change_state(BrokerState.SHUTTING_DOWN)
        self._owner.controlled_shutdown_over()

    # when to speak ----------------------------------------------------------------------------------------------------------------

    def _change_state(self, state: BrokerState) -> None:
        self.state = state
        self._owner.state_changed(state)

    def _schedule(self, delay_ms: float) -> None:
        if self._channel is None:
            return
        if self._is_next_immediate:
            delay_ms = 0
        self._is_next_immediate = False
        if self._next is not None:
            self._next.cancel()
        self._next = self._timers.call_later(delay_ms, self._communicate)

    def _schedule_after_failure(self) -> None:
        # However urgent the next request is, a failed one is not retried at once.
        self._is_next_immediate = False
        self._schedule(self._settings.heartbeat_interval_ms)

    def _communicate(self) -> None:
        self._next = None
        if self._channel is None:
            return
        if self._is_in_flight:
            self._is_next_immediate = True
            return
        self._is_in_flight = True
        timeout_ms = self._settings.heartbeat_interval_ms
        if self._is_registered:
            told = tuple(self._offline_dirs)
            self._channel.send(self._heartbeat(), partial(self._on_heartbeat_answer, told), timeout_ms=timeout_ms)
        else:
            assert self._registration is not None
            self._channel.send(self._registration.request(), self._on_registration_answer, timeout_ms=timeout_ms)

    def _heartbeat(self) -> Message:
        from kops.protocol.messages import BrokerHeartbeatRequest

        assert self._registration is not None
        return BrokerHeartbeatRequest(
            broker_id=self._registration.node_id,
            broker_epoch=self.broker_epoch,
            current_metadata_offset=self._metadata_offset(),
            want_fence=not self._is_ready_to_unfence,
            want_shut_down=self.state is BrokerState.PENDING_CONTROLLED_SHUTDOWN,
            offline_log_dirs=list(self._offline_dirs),
            cordoned_log_dirs=sorted(self._cordoned_dirs) if self._was_caught_up and self._supports_cordoned_dirs() else None,
        )

    # what was answered ------------------------------------------------------------------------------------------------------------

    def _on_registration_answer(self, answer: Message | ApiError) -> None:
        from kops.protocol.messages import BrokerRegistrationResponse

        self._is_in_flight = False
        if self._channel is None:
            return
        if isinstance(answer, ApiError):
            log.info("Unable to register the broker: %s", answer)
            self._schedule_after_failure()
            return
        assert isinstance(answer, BrokerRegistrationResponse)
        if answer.error_code:
            log.info("Unable to register the broker because the controller returned error %s", by_code(answer.error_code).name)
            self._schedule_after_failure()
            return
        self.broker_epoch = answer.broker_epoch
        self._is_registered = self._was_registered = True
        log.info("Successfully registered broker with broker epoch %d", self.broker_epoch)
        self._schedule(0)

    def _on_heartbeat_answer(self, told: tuple[bytes, ...], answer: Message | ApiError) -> None:
        from kops.protocol.messages import BrokerHeartbeatResponse

        self._is_in_flight = False
        if self._channel is None:
            return
        if isinstance(answer, ApiError):
            log.info("Unable to send a heartbeat: %s", answer)
            self._schedule_after_failure()
            return
        assert isinstance(answer, BrokerHeartbeatResponse)
        if answer.error_code:
            log.warning("A heartbeat was answered with error %s.", by_code(answer.error_code).name)
            self._schedule_after_failure()
            return
        self._offline_dirs.update(dict.fromkeys(told, True))
        match self.state:
            case BrokerState.STARTING:
                self._while_starting(answer.is_caught_up)
            case BrokerState.RECOVERY:
                self._while_recovering(answer.is_fenced)
            case BrokerState.RUNNING:
                self._schedule(self._settings.heartbeat_interval_ms)
            case BrokerState.PENDING_CONTROLLED_SHUTDOWN:
                self._while_leaving(answer.should_shut_down)
            case _:
                raise AssertionError(f"a heartbeat was answered in state {self.state.name}")

    def _while_starting(self, is_caught_up: bool) -> None:
        if is_caught_up:
            log.info("The broker has caught up. Transitioning from STARTING to RECOVERY.")
            self._was_caught_up = True
            self._change_state(BrokerState.RECOVERY)
            self._owner.caught_up()
        self._schedule(CATCH_UP_INTERVAL_MS)

    def _while_recovering(self, is_fenced: bool) -> None:
        if not is_fenced:
            log.info("The broker has been unfenced. Transitioning from RECOVERY to RUNNING.")
            self._change_state(BrokerState.RUNNING)
            self._owner.unfenced()
        self._schedule(self._settings.heartbeat_interval_ms)

    def _while_leaving(self, should_shut_down: bool) -> None:
        if should_shut_down:
            log.info("The controller has asked us to exit controlled shutdown.")
            self.begin_shutdown()
            return
        self._renew_patience()
        self._schedule(self._leaving_interval_ms)
        self._leaving_interval_ms = min(2 * self._leaving_interval_ms, self._settings.heartbeat_interval_ms)

    # what took too long -----------------------------------------------------------------------------------------------------------

    def _renew_patience(self) -> None:
        if self._patience is not None:
            self._patience.cancel()
        self._patience = self._timers.call_later(self._settings.session_timeout_ms, self._give_up)

    def _give_up(self) -> None:
        log.error("The controller has not answered for %d ms, the broker goes without its approval", self._settings.session_timeout_ms)
        self.begin_shutdown()

    def _registration_timed_out(self) -> None:
        if not self._was_registered:
            self._owner.must_shut_down("Shutting down because we were unable to register with the controller quorum.")

    def _directory_timed_out(self, directory_id: bytes) -> None:
        if not self._offline_dirs.get(directory_id, False):
            self._owner.must_shut_down("Shutting down because an offline log directory could not be told to the controllers in time.")
