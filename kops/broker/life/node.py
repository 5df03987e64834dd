"""A node: starts and stops its controller and its broker in Kafka's order, on a loop that other nodes may share.

Source: Kafka's KafkaRaftServer. All ports are bound and all locks are taken before anything starts. An error names the step that failed and
leaves nothing open. `kops.broker.life.process` runs a node as a process.
"""

from __future__ import annotations

import logging
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

from kops.broker.controller.server import ControllerServer
from kops.broker.controller_link.status import BrokerState, NodeStatus
from kops.broker.life.broker_server import BrokerServer
from kops.broker.life.metrics import ACTIVE_CONTROLLER_COUNT, broker_metrics, cluster_metrics, rate_counts, request_metrics
from kops.broker.life.rates import Rates
from kops.broker.quorum.shared_server import SharedServer
from kops.errors import KopsError
from kops.files import OsFiles
from kops.storage.start.log_dirs import StartRefusedError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from kops.broker.network.events.loop import Loop
    from kops.broker.network.socket_server import SocketServer
    from kops.config import BrokerConfig
    from kops.files import Files
    from kops.metadata.controller.cluster.settings import Draws

log = logging.getLogger(__name__)

_STAY_MS: Final = 20
_LONGEST_STAY_MS: Final = 2000


class Node:
    """One node. It calls `on_state(status)` after changes, once for all changes of a turn of the loop. It calls `on_ready()` once, when it
    serves, and `on_failed(reason)` once, when it has ended by itself and everything is closed. All methods are for the loop's thread.
    """

    def __init__(
        self,
        loop: Loop,
        config: BrokerConfig,
        *,
        files: Files | None = None,
        draws: Draws | None = None,
        on_state: Callable[[NodeStatus], object] | None = None,
    ) -> None:
        self.loop = loop
        self.config = config
        self.on_ready: Callable[[], object] | None = None
        self.on_failed: Callable[[str], object] | None = None
        self.shared: SharedServer | None = None
        self.controller: ControllerServer | None = None
        self.broker: BrokerServer | None = None
        self._rates: Rates | None = None
        self._files = OsFiles() if files is None else files
        self._draws = draws
        self._on_state = on_state
        self._state = BrokerState.NOT_RUNNING
        self._error: str | None = None
        self._listeners: dict[str, tuple[str, int]] = {}
        self._stays = 0
        self._is_telling = self._is_ending = False
        self._when_ended: list[Callable[[], object]] = []

    # facts ------------------------------------------------------------------------------------------------------------------------

    def bound_port(self, listener: str) -> int:
        """The port of a listener of broker or controller. Raises KeyError for an unknown listener."""
        if self.controller is not None and listener in self.config.controller_listener_names:
            return self.controller.bound_port(listener)
        if self.broker is None:
            raise KeyError(listener)
        return self.broker.parts.socket_server.bound_port(listener)

    def status(self) -> NodeStatus:
        """The present status of the node."""
        return NodeStatus(
            self._state if self.broker is None or self._is_over else self.broker.state,
            self.config.node_id,
            None if self.shared is None else self.shared.cluster_id,
            {} if self._is_over else self._listeners,
            () if self.broker is None or self._is_over else self.broker.recovery,
            self._error,
        )

    def metrics(self) -> dict[str, float]:
        """The present metrics by Kafka's names; empty if the node is not started or has ended."""
        if self.shared is None or self._is_over:
            return {}
        found = {} if self.broker is None else broker_metrics(self.broker)
        if self.controller is not None:
            found |= {ACTIVE_CONTROLLER_COUNT: int(self.controller.is_active), **cluster_metrics(self.shared.image)}
        if self._rates is not None:
            found |= request_metrics(self._servers()) | self._rates.attributes(self.loop.monotonic_ms())
        return found

    def _servers(self) -> list[SocketServer]:
        found = [] if self.broker is None else [self.broker.parts.socket_server]
        return found if self.controller is None else [*found, self.controller.socket_server]

    @property
    def is_closed(self) -> bool:
        """Whether everything is closed. A node that is killed while it loads its logs is closed a little later."""
        return self._is_over and (self.broker is None or self.broker.is_closed)

    @property
    def _is_over(self) -> bool:
        return self._is_ending and self._state is BrokerState.NOT_RUNNING

    # life -------------------------------------------------------------------------------------------------------------------------

    def start(self) -> None:
        """Start the node. `on_ready` is called when it serves. Raises KopsError that names the step that failed; nothing is open then."""
        config = self.config
        for warning in config.warnings:
            log.warning("%s", warning)
        for name, why in config.unused:
            log.warning("%s has no effect: %s", name, why)
        self._state = BrokerState.STARTING
        with self._step("check the log directories"):
            self.shared = shared = SharedServer(self.loop, config, self._files, draws=self._draws)
        if config.is_broker:
            with self._step("lock the log directories and listen"):
                self.broker = BrokerServer(shared, self)
        if config.is_controller:
            with self._step("listen as a controller"):
                self.controller = ControllerServer(shared)
        self._rates = Rates(self.loop.monotonic_ms(), lambda: rate_counts(self.broker, self._servers()))
        for server in self._servers():
            server.on_request = self._rates.on_time
        self._listeners = self._addresses()
        if self.controller is not None:
            with self._step("start the controller"):
                self.controller.start()
        if self.broker is not None:
            with self._step("start the broker"):
                self.broker.start()
        else:
            self._state = BrokerState.RUNNING
            self.loop.call_soon(self.broker_ready)
        shared.raft.on_fault = lambda error: self.broker_failed(f"The metadata log can't be used any more: {error}", is_at_once=True)
        self.status_changed()

    def _addresses(self) -> dict[str, tuple[str, int]]:
        found = {} if self.broker is None else self.broker.listeners()
        if self.controller is not None:
            found |= {name: (endpoint.host, endpoint.port) for name, endpoint in self.controller.listeners().items()}
        return found

    @contextmanager
    def _step(self, what: str) -> Iterator[None]:
        try:
            yield
        except (KopsError, StartRefusedError, OSError) as error:
            self._end_at_once(f"Node {self.config.node_id} does not start, it could not {what}: {error}")
            raise KopsError(self._error) from error

    def shut_down(self, done: Callable[[], object]) -> None:
        """Hand over leaderships and stop, the broker first, because it needs the controller for that. Calls `done` once."""
        if self._is_over:
            self.loop.call_soon(done)
            return
        self._when_ended.append(done)
        if self._is_ending:
            return
        self._is_ending = True
        self._state = BrokerState.SHUTTING_DOWN
        self.status_changed()
        if self.broker is None:
            self._stop_controller()
        else:
            self.broker.shut_down(self._stop_controller)

    def hurry(self) -> None:
        """End a shutdown's wait for other nodes: without a quorum no controller lets a broker stop, and no other node can lead."""
        if self.broker is not None:
            self.broker.hurry()
        if self.shared is not None:
            self.shared.hurry()

    def _stop_controller(self) -> None:
        """Stop the controller. If the whole cluster is being stopped, keep the quorum until it has let all brokers go."""
        if self._is_over:
            return
        if self.controller is not None and self._others_are_leaving() and self._stays < _LONGEST_STAY_MS:
            self._stays += _STAY_MS
            self.loop.call_later(_STAY_MS, self._stop_controller)
        elif self.controller is not None:
            self.controller.shut_down(self._stop_shared)
        else:
            self._stop_shared()

    def _others_are_leaving(self) -> bool:
        assert self.shared is not None
        brokers = self.shared.image.cluster.brokers.values()
        return any(broker.in_controlled_shutdown and not broker.fenced and broker.id != self.config.node_id for broker in brokers)

    def _stop_shared(self) -> None:
        if self._is_over:
            return
        if self.shared is None:
            self._ended()
        else:
            self.shared.shut_down(self._ended)

    def _ended(self) -> None:
        if self._is_over:
            return
        self._state = BrokerState.NOT_RUNNING
        self._tell_state()
        waiting, self._when_ended = self._when_ended, []
        for done in waiting:
            done()

    def kill(self) -> None:
        """End at once, as `kill -9` does: without notice to other nodes, with files as they are. The `done` of pending `shut_down` calls is
        called. A second call does nothing."""
        if self._is_over:
            return
        self._is_ending = True
        if self.shared is not None:
            self.shared.end_side_work()
        if self.broker is not None:
            self.broker.kill()
        if self.controller is not None:
            self.controller.close()
        if self.shared is not None:
            self.shared.abandon()
        self._ended()

    def _end_at_once(self, reason: str) -> None:
        self._error = reason
        self.kill()

    # BrokerOwner ------------------------------------------------------------------------------------------------------------------

    def status_changed(self) -> None:
        """See `BrokerOwner`."""
        if self._on_state is not None and not self._is_telling:
            self._is_telling = True
            self.loop.call_soon(self._tell_state)

    def _tell_state(self) -> None:
        self._is_telling = False
        if self._on_state is not None:
            self._on_state(self.status())

    def broker_ready(self) -> None:
        """See `BrokerOwner`."""
        if self.on_ready is not None and not self._is_ending:
            self.on_ready()

    def broker_failed(self, reason: str, *, is_at_once: bool) -> None:
        """See `BrokerOwner`."""
        if self._error is not None or self._is_over:
            return
        log.critical("%s", reason)
        self._error = reason

        def tell() -> None:
            if self.on_failed is not None:
                self.on_failed(reason)

        # The part that reported the failure is still running.
        if is_at_once:
            self._when_ended.append(tell)
            self.loop.call_soon(self.kill)
        else:
            self.loop.call_soon(lambda: self.shut_down(tell))
