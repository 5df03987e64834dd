"""The addresses on which a node listens, those that it advertises, and the security protocol of each listener.

Sources: Kafka's AbstractKafkaConfig (the map of protocols, rules of listeners), SocketServerConfigs.listenerListToEndPoints,
Csv.parseCsvMap, KafkaConfig (controller and advertised listeners). All errors are ApiError INVALID_CONFIG with Kafka's text.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final, NamedTuple, NoReturn

from kops.config.broker_keys.quorum import NON_ROUTABLE_HOST
from kops.config.values.definition import java_text
from kops.config.values.java import SPACES, parse_int, split, trim
from kops.errors import ApiError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from kops.config.broker_keys.quorum import HostPort
    from kops.config.values.definition import Value

PROTOCOL_MAP: Final = "listener.security.protocol.map"
PROTOCOLS: Final = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")
_ENDPOINT = re.compile(r"([^\n\r\u0085\u2028\u2029]*)://\[?([0-9a-zA-Z\-%._:]*)\]?:(-?[0-9]+)")
_COMMA: Final = rf"(?:{SPACES})?,(?:{SPACES})?"


class Endpoint(NamedTuple):
    """A listener. `name` is in upper case, as in the map of protocols. `host` "" is every interface, and `port` 0 any free port."""

    name: str
    host: str
    port: int
    security_protocol: str


def refuse(text: str) -> NoReturn:
    """Raise ApiError INVALID_CONFIG."""
    raise ApiError("INVALID_CONFIG", text)


def parse_map(name: str, text: str) -> dict[str, str]:
    """Parse comma-separated `key:value` pairs, split at the last colon."""
    found = {}
    for pair in split(_COMMA, text) if text else []:
        key, colon, value = pair.rpartition(":")
        if not colon:
            refuse(f"Error parsing configuration property '{name}': begin 0, end -1, length {len(pair)}")
        found[trim(key)] = trim(value)
    return found


def security_protocol(name: str, key: str) -> str:
    """Return the security protocol for a name in upper or lower case."""
    if name.upper() not in PROTOCOLS:
        refuse(f"Invalid security protocol `{name}` defined in {key}")
    return name.upper()


def listener_name(name: str) -> str:
    """Return a listener's name in the form in which Kafka compares names."""
    if not trim(name):
        refuse("The provided listener name is null or empty string")
    return name.upper()


def effective_protocols(values: Mapping[str, Value], *, is_given: bool) -> dict[str, str]:
    """Return the security protocols by listener name. `is_given` says whether the node's properties have the map.

    Without it, the controller's listeners are PLAINTEXT, unless a listener is named after a more secure protocol.
    """
    protocols: dict[str, str] = {}
    for name, protocol in parse_map(PROTOCOL_MAP, str(values[PROTOCOL_MAP])).items():
        normal, known = listener_name(name), security_protocol(protocol, PROTOCOL_MAP)
        if normal in protocols:
            refuse(f"Duplicate key ListenerName({normal}) (attempted merging values {protocols[normal]} and {known})")
        protocols[normal] = known
    if is_given:
        return protocols
    controller = words(values, "controller.listener.names")
    if any(map(_is_safe, controller)) or any(_is_safe(_name_of(entry)) for entry in words(values, "listeners")):
        return protocols
    return protocols | {name: "PLAINTEXT" for name in controller if name != "PLAINTEXT"}


def parse_listeners(entries: Sequence[str], protocols: Mapping[str, str], *, distinct_ports: bool = True) -> tuple[Endpoint, ...]:
    """Parse entries of the form `name://host:port`."""
    try:
        endpoints = tuple(_endpoint(entry, protocols) for entry in entries)
        _check_distinct(endpoints, entries, distinct_ports)
    except (ApiError, ValueError) as error:
        raise ApiError("INVALID_CONFIG", f"Error creating broker listeners from '{java_text(list(entries))}': {error}") from error
    return endpoints


def advertised_to_quorum(
    names: Sequence[str], advertised: Sequence[Endpoint], listening: Sequence[Endpoint], voter: Callable[[], HostPort | None]
) -> tuple[Endpoint, ...]:
    """Return the advertised addresses of the controller's listeners `names`: the given ones, else those on which it listens.

    If the first listener has the address of every interface, its address is replaced by the one that the quorum's voters have for this
    node, if any.
    """
    found = []
    for index, name in enumerate(map(listener_name, names)):
        given = next((endpoint for endpoint in advertised if endpoint.name == name), None)
        own = next((endpoint for endpoint in listening if endpoint.name == name), None)
        if given is None and own is not None:
            given = _routable(own, voter if index == 0 else lambda: None)
        if given is not None:
            found.append(given)
    return tuple(found)


def _routable(endpoint: Endpoint, voter: Callable[[], HostPort | None]) -> Endpoint:
    if endpoint.host not in ("", NON_ROUTABLE_HOST):
        return endpoint
    known = voter()
    return endpoint._replace(host="") if known is None else endpoint._replace(host=known[0], port=known[1])


def words(values: Mapping[str, Value], name: str) -> list[str]:
    """Return a list among the values."""
    found = values[name]
    assert isinstance(found, list), name
    return found


def _endpoint(entry: str, protocols: Mapping[str, str]) -> Endpoint:
    found = _ENDPOINT.fullmatch(entry)
    if found is None:
        refuse(f"Unable to parse {entry} to a broker endpoint")
    name = listener_name(found[1])
    port = parse_int(found[3])
    if name not in protocols:
        refuse(f"No security protocol defined for listener {name}")
    return Endpoint(name, found[2], port, protocols[name])


def _check_distinct(endpoints: Sequence[Endpoint], entries: Sequence[str], distinct_ports: bool) -> None:
    shown = java_text(list(entries))
    if len({endpoint.name for endpoint in endpoints}) != len(endpoints):
        refuse(f"Each listener must have a different name, listeners: {shown}")
    if not distinct_ports:
        return
    by_port: dict[int, list[str]] = {}
    for endpoint in endpoints:
        if endpoint.port != 0:
            by_port.setdefault(endpoint.port, []).append(endpoint.host)
    for port, hosts in by_port.items():
        if len(hosts) > 1:
            _check_same_port(port, hosts, shown)


def _check_same_port(port: int, hosts: Sequence[str], shown: str) -> None:
    """Check that two listeners with the same port have an IPv4 and an IPv6 address."""
    versions = [version for version in map(_ip_version, hosts) if version]
    named = len(hosts) - len(versions)
    if named > 1:
        refuse(f"Each listener must have a different port, listeners: {shown}")
    if len(versions) == 2:
        if named or sorted(versions) != [4, 6]:
            rule = "If you have two listeners on the same port then one needs to be IPv4 and the other IPv6"
            refuse(f"{rule}, listeners: {shown}, port: {port}")
    elif versions:
        rule = "Each listener must have a different port unless exactly one listener has an IPv4 address and the other IPv6 address"
        refuse(f"{rule}, listeners: {shown}, port: {port}")


def _ip_version(host: str) -> int:
    """Return 4 or 6 for an address, and 0 for a name."""
    import ipaddress

    try:
        return ipaddress.ip_address(host).version
    except ValueError:
        return 0


def _is_safe(name: str) -> bool:
    return name in ("SSL", "SASL_SSL", "SASL_PLAINTEXT")


def _name_of(entry: str) -> str:
    name, colon, _ = entry.partition(":")
    if not colon:
        refuse(f"Unable to parse a listener name from {entry}")
    return name.upper()


def connection_overrides(values: Mapping[str, Value]) -> dict[str, int]:
    """Parse `max.connections.per.ip.overrides`: limits by host name or address."""
    name = "max.connections.per.ip.overrides"
    try:
        return {host: parse_int(count) for host, count in parse_map(name, str(values[name])).items()}
    except ValueError as error:
        refuse(str(error))


def number(values: Mapping[str, Value], name: str) -> int:
    """Return a number among the values."""
    found = values[name]
    assert isinstance(found, int), name
    return found
