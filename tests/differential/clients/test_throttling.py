"""Which responses a client obeys when they have a throttle time (KIP-219)."""

from __future__ import annotations

import pytest

from kops.protocol.api_keys import API_KEYS
from kops.protocol.connections.connection import Response
from kops.protocol.connections.throttling import throttle_ms
from kops.protocol.registry import response_class
from tests.support.kafka.oracle import Oracle

RAFT = {52, 53, 54, 55, 59, 80, 81, 82}  # spoken between nodes, not by clients


@pytest.mark.slow
def test_every_version_of_every_api(oracle: Oracle) -> None:
    kafka = oracle.jvm.org.apache.kafka.common
    seen = 0
    for api in API_KEYS:
        if api.key in RAFT:
            continue
        for version in api.versions:
            message = response_class(api)()
            if not hasattr(message, "throttle_time_ms"):
                continue
            data = b"".join(bytes(part) for part in message.write(version))  # type: ignore[arg-type]  # all in memory
            accessor = kafka.protocol.ByteBufferAccessor(oracle.jvm.java.nio.ByteBuffer.wrap(data))
            java = kafka.requests.AbstractResponse.parseResponse(kafka.protocol.ApiKeys.forId(api.key), accessor, version)
            message.throttle_time_ms = 9
            expected = 9 if java.shouldClientThrottle(version) else 0
            assert throttle_ms(Response(api, version, 0, message, len(data))) == expected, (api.name, version)
            seen += 1
    assert seen > 150
