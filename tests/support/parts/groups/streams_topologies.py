"""Valid and invalid topologies of Streams applications for tests."""

from __future__ import annotations

from typing import Final

from kops.protocol.messages.streams_group_heartbeat_request import CopartitionGroup, KeyValue, Subtopology, TopicInfo, Topology


def _internal(name: str, partitions: int = 0, replication_factor: int = 0, **configs: str) -> TopicInfo:
    listed = [KeyValue(key.replace("_", "."), value) for key, value in configs.items()]
    return TopicInfo(f"app-{name}", partitions, replication_factor, listed)


def _sub(
    subtopology_id: str,
    sources: list[str],
    *,
    repartition: list[TopicInfo] | None = None,
    sinks: list[str] | None = None,
    changelogs: list[TopicInfo] | None = None,
    joined: list[CopartitionGroup] | None = None,
) -> Subtopology:
    return Subtopology(
        subtopology_id,
        sources,
        [],
        changelogs or [],
        [f"app-{name}" for name in sinks or ()],
        repartition or [],
        joined or [],
    )


def _counting() -> list[Subtopology]:
    changelog = _internal("count-changelog", cleanup_policy="compact", min_compaction_lag_ms="5", retention_ms="7")
    return [
        _sub("0", ["orders"], sinks=["count-repartition"]),
        _sub("1", [], repartition=[_internal("count-repartition", cleanup_policy="delete")], changelogs=[changelog]),
    ]


def _joined() -> list[Subtopology]:
    return [
        _sub("0", ["orders"], sinks=["left"]),
        _sub("1", ["stock"], sinks=["right"]),
        _sub(
            "2",
            [],
            repartition=[_internal("left"), _internal("right", replication_factor=1)],
            changelogs=[_internal("join-changelog"), _internal("join-other-changelog")],
            joined=[CopartitionGroup([], [], [0, 1])],
        ),
    ]


def _fixed() -> list[Subtopology]:
    return [
        _sub("a", ["big", "stock"], sinks=["left", "right"], changelogs=[_internal("seen")]),
        _sub(
            "b",
            ["stock"],
            repartition=[_internal("left", 3), _internal("right")],
            changelogs=[_internal("b-changelog")],
            joined=[CopartitionGroup([], [], [0, 1])],
        ),
    ]


def _external() -> list[Subtopology]:
    groups = [CopartitionGroup([0, 1], [], []), CopartitionGroup([0], [], [0])]
    return [
        _sub("0", ["big"], sinks=["part"]),
        _sub("1", ["orders", "stock"], repartition=[_internal("part")], changelogs=[_internal("x")], joined=groups),
    ]


def _looped() -> list[Subtopology]:
    return [
        _sub("0", [], repartition=[_internal("one")], sinks=["two"]),
        _sub("1", [], repartition=[_internal("two")], sinks=["one"]),
    ]


TOPOLOGIES: Final = {
    "plain": [_sub("0", ["orders"])],
    "stateful": [
        _sub("0", ["orders", "stock"], changelogs=[_internal("store-changelog"), _internal("again-changelog")]),
        _sub("1", ["big"]),
    ],
    "counting": _counting(),
    "wide": [
        _sub("0", ["orders", "big", "stock"], sinks=["wide"], changelogs=[_internal("wide-changelog")]),
        _sub("1", [], repartition=[_internal("wide")], changelogs=[_internal("narrow-changelog")]),
    ],
    "joined": _joined(),
    "fixed": _fixed(),
    "external": _external(),
    "looped": _looped(),
    "many": [
        _sub(str(number), [("orders", "stock")[number % 2]], changelogs=[_internal(f"s{number}")] * (number % 3 == 0))
        for number in range(23)
    ],
    "missing": [_sub("0", ["orders", "none", "no", "nothing", "nowhere"])],
    "without sink": [_sub("0", ["orders"], repartition=[_internal("lonely")])],
    "without source": [_sub("0", [], changelogs=[_internal("lonely")])],
    "bad index": [_sub("0", ["orders"], joined=[CopartitionGroup([3], [], [])])],
    "bad name": [_sub("0", ["orders"], changelogs=[TopicInfo("app-ä", 0, 0, [])])],
    "fixed apart": [_sub("0", ["orders"], repartition=[_internal("p", 2), _internal("q", 5)], joined=[CopartitionGroup([], [], [0, 1])])],
    "same names": [_sub("0", ["orders"]), _sub("0", ["stock"])],
    "same settings": [_sub("0", ["orders"], changelogs=[TopicInfo("app-twice", 0, 0, [KeyValue("a", "1"), KeyValue("a", "2")])])],
}
"""Subtopologies by name."""


def topology(name: str, epoch: int = 0) -> Topology:
    """Return a topology as members send it."""
    return Topology(epoch, TOPOLOGIES[name])
