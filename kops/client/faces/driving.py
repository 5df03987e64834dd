"""What all clients need: the settings and metrics of their connections, their texts, and a call of a program's code that may fail.

Source: Kafka's ClientUtils.createNetworkClient; ProducerBatch.completeFutureAndFireCallbacks, ConsumerInterceptors (errors are logged).
"""

from __future__ import annotations

import logging
from dataclasses import fields, replace
from typing import TYPE_CHECKING, Any

from kops.client.metrics.sensors import Metrics
from kops.client.settings import ClientSettings

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from kops.client.network import NetworkClient

logger = logging.getLogger("kops.client")


def shielded(function: Callable[..., Any], *arguments: object, what: str) -> Any:
    """Call code that may fail without harm to the rest, such as a program's callback. If it fails, log the error and return None."""
    try:
        return function(*arguments)
    except Exception:
        logger.exception("%s has failed; the client goes on", what)
        return None


def client_metrics(values: Mapping[str, Any], client_id: str) -> Metrics:
    """Return the metrics of a client."""
    return Metrics(client_id, values["metrics.num.samples"], values["metrics.sample.window.ms"])


def network_settings(values: Mapping[str, object], client_id: str) -> ClientSettings:
    """Return the settings of a client's connections. `values` may have others, too."""
    names = {field.name for field in fields(ClientSettings)}
    plain = {name.replace(".", "_"): tuple(value) if isinstance(value, list) else value for name, value in values.items()}
    known = {name: value for name, value in plain.items() if name in names and value is not None}
    known["client_id"] = client_id
    changes: Any = known
    return replace(ClientSettings.from_properties({}), **changes)


def client_text(kind: str, network: NetworkClient, *, is_closed: bool) -> str:
    """Return what `repr` of a client is. It takes no lock, so a debugger can show a client that waits. `kind` is as in kops.Producer."""
    settings = network.settings
    servers = ",".join(settings.bootstrap_servers or settings.bootstrap_controllers)
    return f"<{kind} {settings.client_id} {'closed' if is_closed else f'at {servers}'}>"
