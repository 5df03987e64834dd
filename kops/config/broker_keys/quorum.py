"""The addresses of a controller quorum in a node's settings: `controller.quorum.voters` and `controller.quorum.bootstrap.servers`.

Source: Kafka's QuorumConfig (parsing and texts), Utils.getHost and getPort.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from kops.config.values.definition import Validator, invalid
from kops.config.values.java import parse_int, split
from kops.errors import ApiError

if TYPE_CHECKING:
    from collections.abc import Iterable

    from kops.config.values.definition import Value

NON_ROUTABLE_HOST: Final = "0.0.0.0"
_VOTERS: Final = "controller.quorum.voters"
_BOOTSTRAP: Final = "controller.quorum.bootstrap.servers"
_HOST_PORT = re.compile(r"(?:[0-9a-zA-Z\-%._]*://)?\[?([0-9a-zA-Z\-%._:]*)]?:([0-9]+)", re.ASCII)
HostPort = tuple[str, int]


def parse_voters(entries: Iterable[str], *, routable: bool = True) -> dict[int, HostPort]:
    """Return the voters' addresses by node id. Raises ApiError INVALID_CONFIG, and with `routable` also for the address 0.0.0.0."""
    voters = {}
    for entry in entries:
        form = "Each entry should be in the form `{id}@{host}:{port}`."
        parts = split("@", entry)
        if len(parts) != 2:
            raise ApiError("INVALID_CONFIG", f"Invalid configuration value for {_VOTERS}. {form}")
        try:
            voter_id = parse_int(parts[0])
        except ValueError as error:
            raise ApiError("INVALID_CONFIG", f"Failed to parse voter ID as an integer from {parts[0]}") from error
        found = _host_port(parts[1])
        if found is None:
            raise ApiError("INVALID_CONFIG", f"Failed to parse host name from entry {entry} for the configuration {_VOTERS}. {form}")
        if routable and found[0] == NON_ROUTABLE_HOST:
            raise ApiError("INVALID_CONFIG", f"Host string ({found[0]}) is not routeable")
        voters[voter_id] = found
    return voters


def parse_bootstrap_servers(entries: Iterable[str]) -> list[HostPort]:
    """Return hosts and ports. Raises ApiError INVALID_CONFIG."""
    servers = []
    for entry in entries:
        found = _host_port(entry)
        if found is None:
            form = 'Each entry should be in the form "{host}:{port}"'
            raise ApiError("INVALID_CONFIG", f"Failed to parse host name from {entry} for the configuration {_BOOTSTRAP}. {form}")
        servers.append(found)
    return servers


def _host_port(address: str) -> HostPort | None:
    """Return host and port. Raises ApiError INVALID_CONFIG for a port that no socket can have."""
    found = _HOST_PORT.fullmatch(address)
    if found is None:
        return None
    try:
        port = parse_int(found[2])
    except ValueError as error:
        raise ApiError("INVALID_CONFIG", str(error)) from error
    if port > 0xFFFF:
        raise ApiError("INVALID_CONFIG", f"port out of range:{port}")
    return found[1], port


def _no_voters(name: str, value: Value) -> str | None:
    if not isinstance(value, list):
        return invalid(name, value)
    try:
        parse_voters(value, routable=False)
    except ApiError as error:
        return error.message
    return None


def _no_servers(name: str, value: Value) -> str | None:
    if not isinstance(value, list):
        return invalid(name, value)
    try:
        parse_bootstrap_servers(value)
    except ApiError as error:
        return error.message
    return None


VOTERS: Final = Validator(_no_voters, "a list of id@host:port")
BOOTSTRAP_SERVERS: Final = Validator(_no_servers, "a list of host:port")
