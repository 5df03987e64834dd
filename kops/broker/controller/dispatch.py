"""Dispatches a controller's requests: quorum requests to the Raft node, changes to the controller, queries to the published metadata.

Source: Kafka's ControllerApis and SimpleApiVersionManager. Without ACLs every client may do everything. A bug in a query handler, or in
writing a response, must not end the node. A bug in the Raft node ends it, as in Kafka. `QuorumController` handles bugs in the controller.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

from kops.broker.controller.enveloped import EnvelopedContext
from kops.broker.controller.questions import Questions
from kops.broker.controller_link.envelope import open_envelope
from kops.broker.controller_link.error_responses import error_response
from kops.broker.quorum.raft_manager import RAFT_REQUESTS
from kops.errors import ApiError
from kops.metadata.controller.base.result import RequestContext as ControllerContext
from kops.metadata.controller.base.result import code
from kops.protocol.api_keys import API_KEYS, ApiKey, Listener
from kops.protocol.messages import ElectLeadersResponse, EnvelopeResponse

if TYPE_CHECKING:
    from kops.broker.controller.quorum_controller import QuorumController
    from kops.broker.network.socket_server import RequestContext
    from kops.broker.quorum.shared_server import SharedServer
    from kops.config.broker.dynamic import Change
    from kops.protocol.declaration import Message

Handler = Callable[[Any], None]

log = logging.getLogger(__name__)

_CHANGES: Final = frozenset(
    (
        "AllocateProducerIds",
        "AlterConfigs",
        "AlterPartition",
        "AlterPartitionReassignments",
        "AssignReplicasToDirs",
        "BrokerHeartbeat",
        "BrokerRegistration",
        "ControllerRegistration",
        "CreatePartitions",
        "CreateTopics",
        "DeleteTopics",
        "ElectLeaders",
        "IncrementalAlterConfigs",
        "ListPartitionReassignments",
        "UnregisterBroker",
        "UpdateFeatures",
    )
)
_RAFT: Final = frozenset(request.__name__.removesuffix("Request") for request in RAFT_REQUESTS)
_QUESTIONS: Final = ("ApiVersions", "DescribeCluster", "DescribeConfigs")
_SERVED: Final = frozenset((*_CHANGES, *_RAFT, *_QUESTIONS, "Envelope"))
SERVED_APIS: Final[tuple[ApiKey, ...]] = tuple(api for api in API_KEYS if Listener.CONTROLLER in api.listeners and api.name in _SERVED)
"""The APIs that ApiVersions advertises on a controller's listener."""


class ControllerApis:
    """Requests are handled from `start` on; the socket server reads none before. See `Questions` for `on_settings`."""

    def __init__(self, shared: SharedServer, on_settings: Callable[[Change], None]) -> None:
        self._shared = shared
        self._questions = Questions(shared, SERVED_APIS, on_settings)
        self._controller: QuorumController | None = None
        self._handlers: dict[int, Handler] = {}

    def start(self, controller: QuorumController) -> None:
        """Set the controller. From now on requests can be handled."""
        self._controller = controller
        self._questions.start()
        raft, questions = self._shared.raft, self._questions
        by_name: dict[str, Handler] = {
            **dict.fromkeys(_CHANGES, self._change),
            **dict.fromkeys(_RAFT, raft.handle),
            "ApiVersions": _guarded(questions.api_versions),
            "DescribeCluster": _guarded(questions.describe_cluster),
            "DescribeConfigs": _guarded(questions.describe_configs),
            "Envelope": self._open,
        }
        self._handlers = {api.key: by_name[api.name] for api in SERVED_APIS}

    def close(self) -> None:
        """Handle no more requests."""
        self._questions.close()

    def handle(self, context: RequestContext) -> None:
        """Handle a request. The answer may come later."""
        handler = self._handlers.get(context.request.api.key)
        if handler is None:
            log.warning("Closing %s: %s is not served here", context.connection_id, context.request.api.name)
            context.close_connection()
            return
        try:
            handler(context)
        except ApiError as error:
            _respond_error(context, error)

    def _change(self, context: RequestContext) -> None:
        assert self._controller is not None, "requests are read from the start on"
        request = context.request
        # Requests are handled as they arrive, so only a time-out of 0 (or less) is over.
        is_late = getattr(request.message, "timeout_ms", 1) <= 0
        asked = ControllerContext(request.version, context.principal, isinstance(context, EnvelopedContext), is_late)

        def answer(response: Message) -> None:
            if request.version == 0 and isinstance(response, ElectLeadersResponse):
                response.error_code = 0  # version 0 has no place for it
            _respond(context, response)

        self._controller.handle(asked, request.message, answer)

    def _open(self, context: RequestContext) -> None:
        """Handle a client's request that a broker has forwarded."""
        unstable = self._shared.config["unstable.api.versions.enable"]
        try:
            forwarded = open_envelope(context.request.message, unstable_versions=unstable)  # type: ignore[arg-type]  # the API key says so
        except ApiError as error:
            log.info("An envelope from %s: %s", context.connection_id, error)
            context.respond(EnvelopeResponse(error_code=code(error)))
            return
        self.handle(EnvelopedContext(context, forwarded))


def _guarded(handler: Handler) -> Handler:
    """Return a handler that answers unexpected errors with UNKNOWN_SERVER_ERROR."""

    def handle(context: RequestContext) -> None:
        try:
            handler(context)
        except ApiError as error:
            _respond_error(context, error)
        except Exception:
            log.exception("Unexpected error handling %s of %s", context.request.api.name, context.connection_id)
            if not context.is_answered:
                _respond_error(context, ApiError("UNKNOWN_SERVER_ERROR"))

    return handle


def _respond(context: RequestContext, response: Message) -> None:
    """Write the response. A response that can't be written is an unexpected error, too."""
    _guarded(lambda asked: asked.respond(response))(context)


def _respond_error(context: RequestContext, error: ApiError) -> None:
    response = error_response(context.request.message, context.request.version, error)
    assert response is not None, "every request of a controller has a response"
    context.respond(response)
