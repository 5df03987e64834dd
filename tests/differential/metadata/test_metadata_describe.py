"""The descriptions of quotas and credentials in images, compared with those of the real ClientQuotasImage and ScramImage."""

from __future__ import annotations

import random
from typing import Any

import pytest
from py4j.protocol import Py4JJavaError

from kops.errors import ApiError
from kops.metadata.image.metadata_delta import MetadataDelta
from kops.metadata.image.metadata_image import EMPTY, MetadataImage, MetadataProvenance
from kops.protocol.declaration import Message
from kops.protocol.messages import (
    DescribeClientQuotasRequest,
    DescribeClientQuotasResponse,
    DescribeUserScramCredentialsRequest,
    DescribeUserScramCredentialsResponse,
)
from kops.protocol.messages.describe_client_quotas_request import ComponentData
from kops.protocol.messages.describe_user_scram_credentials_request import UserName
from tests.differential.metadata.test_metadata_image import RealImages, replay_both
from tests.support.kafka.oracle import Oracle
from tests.support.requests.metadata_records import RecordSource

MESSAGES = "org.apache.kafka.common.message"


@pytest.fixture(scope="module")
def images(oracle: Oracle) -> tuple[RealImages, MetadataImage, Any]:
    """Provide the same image of ours and of Kafka's."""
    real, source = RealImages(oracle), RecordSource(8)
    source.delta, delta = MetadataDelta(EMPTY), real.delta(real.empty)
    replay_both(real, source, delta, 400)
    return real, source.delta.apply(MetadataProvenance(0, 1, 1, True)), real.apply(delta, 0)


def asked(real: RealImages, part: Any, name: str, request: Message, response: type[Message]) -> Message | str:
    """Return the answer of Kafka's part of an image, or the text of its exception."""
    data = request.encode(0)
    java = real.oracle.java_class(f"{MESSAGES}.{name}RequestData")(real.accessor(real.buffers.wrap(data)), real.oracle.short(0))
    try:
        told = part.describe(java)
    except Py4JJavaError as error:
        return str(error.java_exception.getMessage())
    buffer = (
        real.oracle.java_class("org.apache.kafka.common.protocol.MessageUtil").toByteBufferAccessor(told, real.oracle.short(0)).buffer()
    )
    return response.decode(bytes(buffer.array())[: buffer.limit()], 0)


def in_order(values: list[Any]) -> list[str]:
    """Return the texts of structures, sorted where Kafka has the order of a HashMap."""
    for value in values:
        for name in ("entity", "values", "credential_infos"):
            if name in value.__slots__:
                getattr(value, name).sort(key=repr)
    return sorted(map(repr, values))


def test_quotas(images: tuple[RealImages, MetadataImage, Any]) -> None:
    """Valid and invalid filters give the same answers."""
    real, ours, theirs = images
    rng = random.Random(2)
    outcomes = set()
    for _ in range(150):
        kinds = rng.choices(["user", "client-id", "ip", "user", "client-id", "", "group"], k=rng.randrange(3))
        components = [ComponentData(kind, rng.choice([0, 0, 1, 2, 2, 5]), rng.choice([None, "a", "b"])) for kind in kinds]
        request = DescribeClientQuotasRequest(components, rng.random() < 0.4)
        expected = asked(real, theirs.clientQuotas(), "DescribeClientQuotas", request, DescribeClientQuotasResponse)
        try:
            found = ours.client_quotas.describe(request)
        except ApiError as error:
            assert error.message == expected
            outcomes.add(error.message)
        else:
            assert isinstance(expected, DescribeClientQuotasResponse)
            assert in_order(found.entries or []) == in_order(expected.entries or [])
            outcomes.add(str(len(found.entries or [])))
    assert len(outcomes) > 9


def test_credentials(images: tuple[RealImages, MetadataImage, Any]) -> None:
    """Requests for all users, some users, some twice and unknown ones give the same answers."""
    real, ours, theirs = images
    rng = random.Random(3)
    for count in (0, 1, 3, 9):
        request = DescribeUserScramCredentialsRequest([UserName(f"user-{rng.randrange(25):02}") for _ in range(count)])
        expected = asked(real, theirs.scram(), "DescribeUserScramCredentials", request, DescribeUserScramCredentialsResponse)
        assert isinstance(expected, DescribeUserScramCredentialsResponse)
        assert in_order(ours.scram.describe(request).results) == in_order(expected.results)
        assert expected.results
