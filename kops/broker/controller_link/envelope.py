"""Envelopes: a client's request inside a broker's request to the controller, and its response inside the broker's response (KIP-590).

Source: Kafka's EnvelopeUtils, ForwardingManagerUtil, RequestContext.buildResponseEnvelopePayload, RequestChannel.buildResponse
(EnvelopeResponse), DefaultKafkaPrincipalBuilder (the principal's bytes).
"""

from __future__ import annotations

import ipaddress
import struct
from typing import TYPE_CHECKING, Final, NamedTuple

from kops.errors import ApiError, DecodeError
from kops.protocol.api_keys import BY_KEY, Listener
from kops.protocol.connections.connection import Request, read_request
from kops.protocol.errors import by_name
from kops.protocol.messages import (
    DefaultPrincipalData,
    DescribeQuorumResponse,
    EnvelopeRequest,
    EnvelopeResponse,
    RequestHeader,
    ResponseHeader,
)
from kops.protocol.registry import response_class

if TYPE_CHECKING:
    from kops.protocol.declaration import Message

_VERSION: Final = struct.Struct(">h")
_NOT_CONTROLLER: Final = by_name("NOT_CONTROLLER").code
_NOT_LEADER: Final = by_name("NOT_LEADER_OR_FOLLOWER").code


class Forwarded(NamedTuple):
    """The contents of an envelope: the request, the client's principal (`type:name`) and its address."""

    request: Request
    principal: str
    client_host: str


# The broker's side.


def envelope(request: Request, message: Message, principal: str, client_host: str) -> EnvelopeRequest:
    """Make the envelope of a client's request, with `message` in place of the request's own."""
    header = RequestHeader(request.api.key, request.version, request.correlation_id, request.client_id)
    (start,) = header.write(request.api.request_header_version(request.version))
    assert isinstance(start, bytearray)
    data = b"".join(message.write(request.version, start))  # type: ignore[arg-type]  # no request that is forwarded has records
    return EnvelopeRequest(data, _write_principal(principal), ipaddress.ip_address(client_host.partition("%")[0]).packed)


def read_response(request: Request, data: bytes | None) -> Message:
    """Read the response inside an envelope's response. Raises DecodeError if it does not answer this request."""
    if data is None:
        raise DecodeError("an envelope without a response", code="bad-response")
    header, position = ResponseHeader.read(data, request.api.response_header_version(request.version))
    if header.correlation_id != request.correlation_id:
        raise DecodeError(f"a response of correlation id {header.correlation_id}, not {request.correlation_id}", code="bad-response")
    message, _ = response_class(request.api).read(data, request.version, position)
    return message


# The controller's side.


def open_envelope(message: EnvelopeRequest, *, unstable_versions: bool = False) -> Forwarded:
    """The contents of an envelope. Raises ApiError with the code of the envelope's response: PRINCIPAL_DESERIALIZATION_FAILURE,
    INVALID_REQUEST for an invalid address or an API that is not forwarded, UNSUPPORTED_VERSION for a request that can't be read.
    """
    principal = _read_principal(message.request_principal)
    try:
        client_host = str(ipaddress.ip_address(bytes(message.client_host_address)))
    except ValueError as error:
        raise ApiError("INVALID_REQUEST", "Failed to parse client address from envelope") from error
    data = message.request_data
    api = BY_KEY.get(_VERSION.unpack_from(data)[0]) if len(data) >= _VERSION.size else None
    if api is not None and not api.forwardable:
        raise ApiError("INVALID_REQUEST", f"API {api.constant} is not enabled or is not eligible for forwarding")
    try:
        request = read_request(data, Listener.CONTROLLER, unstable_versions=unstable_versions)
    except (ApiError, DecodeError) as error:
        raise ApiError("UNSUPPORTED_VERSION", f"Failed to parse forwarded request: {error}") from error
    return Forwarded(request, principal, client_host)


def envelope_response(request: Request, message: Message) -> EnvelopeResponse:
    """The answer to an envelope whose request is answered with `message`.

    If `message` contains the code NOT_CONTROLLER (for the quorum: NOT_LEADER_OR_FOLLOWER), this becomes the envelope's own code and nothing
    else is sent. The broker then asks the next controller.
    """
    if (_NOT_LEADER if isinstance(message, DescribeQuorumResponse) else _NOT_CONTROLLER) in _error_codes(message):
        return EnvelopeResponse(error_code=_NOT_CONTROLLER)
    header = ResponseHeader(request.correlation_id)
    (start,) = header.write(request.api.response_header_version(request.version))
    assert isinstance(start, bytearray)
    return EnvelopeResponse(b"".join(message.write(request.version, start)))  # type: ignore[arg-type]  # nor has its response


def _error_codes(message: object) -> set[int]:
    """All error codes in a response."""
    found: set[int] = set()
    for field in getattr(type(message), "FIELDS", ()):
        value = getattr(message, field.name)
        if field.name == "error_code":
            found.add(value)
        elif field.of is not None and value is not None:
            for one in value if field.is_array else [value]:
                found |= _error_codes(one)
    return found


def _write_principal(principal: str) -> bytes:
    kind, _, name = principal.partition(":")
    version = DefaultPrincipalData.VERSIONS.stop - 1
    return _VERSION.pack(version) + DefaultPrincipalData(kind, name).encode(version)


def _read_principal(data: bytes | None) -> str:
    try:
        if data is None or len(data) < _VERSION.size:
            raise DecodeError("no principal", code="bad-request")
        (version,) = _VERSION.unpack_from(data)
        principal, _ = DefaultPrincipalData.read(data, version, _VERSION.size)
    except (ApiError, DecodeError) as error:
        raise ApiError("PRINCIPAL_DESERIALIZATION_FAILURE", "Failed to deserialize client principal from envelope") from error
    return f"{principal.type}:{principal.name}"
