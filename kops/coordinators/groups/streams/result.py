"""The result of a heartbeat to a streams group (Kafka's StreamsGroupHeartbeatResult)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from kops.protocol.messages.create_topics_request import CreatableTopic
from kops.protocol.messages.streams_group_heartbeat_response import StreamsGroupHeartbeatResponse


class HeartbeatResult(NamedTuple):
    """The response, and the internal topics, by name, that the broker must create."""

    response: StreamsGroupHeartbeatResponse
    topics_to_create: Mapping[str, CreatableTopic]
