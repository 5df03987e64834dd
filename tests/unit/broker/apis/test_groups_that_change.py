"""Requests that change a group, after which no heartbeat waits for others: its members learn of the change with theirs."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from kops.broker.apis.table import HANDLERS
from kops.coordinators.runtime.promise import Promise
from kops.metadata.image.metadata_cache import MetadataCache
from kops.protocol.declaration import Message
from kops.protocol.messages import (
    ConsumerGroupHeartbeatRequest,
    HeartbeatRequest,
    JoinGroupRequest,
    LeaveGroupRequest,
    ShareGroupHeartbeatRequest,
    StreamsGroupHeartbeatRequest,
    SyncGroupRequest,
)
from tests.support.parts.answering import Asked

MEMBER = "AAAAAAAAAAAAAAAAAAAAAQ"


class Hurried(Asked):
    """A request that counts how often it hurries heartbeats."""

    count = 0

    def hurry_heartbeats(self) -> None:
        self.count += 1


class Service:
    """A coordinator that never answers. No heartbeat leaves everything as it is."""

    share: Service

    def __init__(self) -> None:
        self.share = self

    def __getattr__(self, name: str) -> Any:
        if name.startswith("kept_"):
            return lambda *_: None
        return lambda *_: Promise[Any]()


def hurries(request: Message, version: int) -> int:
    """Pass a request to its handler."""
    levels = dict.fromkeys(("group.version", "share.version", "streams.version"), 1)
    image: Any = SimpleNamespace(features=SimpleNamespace(levels=levels))
    parts = SimpleNamespace(
        groups=SimpleNamespace(service=Service()),
        config={"group.coordinator.rebalance.protocols": ["classic", "consumer", "share", "streams"]},
        cache=MetadataCache(image),
    )
    asked = Hurried(request, version, "someone")
    assert request.API_KEY is not None
    HANDLERS[request.API_KEY](parts, asked)  # type: ignore[arg-type]
    return asked.count


@pytest.mark.parametrize(
    ("request_", "version", "changes"),
    [
        (HeartbeatRequest("g", 1, "m"), 4, False),
        (JoinGroupRequest("g", 10_000, 10_000), 9, True),
        (SyncGroupRequest("g", 1, "m", protocol_type="consumer", protocol_name="range"), 5, True),
        (LeaveGroupRequest("g"), 5, True),
        (ConsumerGroupHeartbeatRequest("g", "m", 3), 1, False),
        (ConsumerGroupHeartbeatRequest("g", "m", 0), 1, True),
        (ConsumerGroupHeartbeatRequest("g", "m", -1), 1, True),
        (ConsumerGroupHeartbeatRequest("g", "m", 3, topic_partitions=[]), 1, True),
        (ShareGroupHeartbeatRequest("g", MEMBER, 3), 1, False),
        (ShareGroupHeartbeatRequest("g", MEMBER, 0), 1, True),
        (ShareGroupHeartbeatRequest("g", MEMBER, -1), 1, True),
        (StreamsGroupHeartbeatRequest("g", "m", 3), 0, False),
        (StreamsGroupHeartbeatRequest("g", "m", 0), 0, True),
        (StreamsGroupHeartbeatRequest("g", "m", -1), 0, True),
        (StreamsGroupHeartbeatRequest("g", "m", 3, active_tasks=[], standby_tasks=[], warmup_tasks=[]), 0, True),
    ],
    ids=repr,
)
def test_what_hurries_heartbeats(request_: Message, version: int, changes: bool) -> None:
    assert bool(hurries(request_, version)) is changes
