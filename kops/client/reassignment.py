"""Moving partitions to other brokers and log directories as kafka-reassign-partitions does: JSON plans, execution, verification,
cancellation.

Source: Kafka's ReassignPartitionsCommand (the JSON files, the throttles and the replicas they apply to, the conditions for completion) and
StripedReplicaPlacer (the placement of replicas by `generate`).
"""

from __future__ import annotations

import json
import random
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from kops.client.offsets import json_entries, json_field
from kops.client.partitions import (
    PartitionOutcomes,
    Reassignment,
    Replica,
    alter_reassignments,
    alter_replica_log_dirs,
    find_log_dirs,
    list_reassignments,
)
from kops.client.topics import DELETE, SET, ResourceType, TopicInfo, alter_configs, describe_topics
from kops.errors import ApiError, DecodeError, KopsError, NotFoundError, UnreachableError
from kops.metadata.controller.cluster.placement import UsableBroker, place
from kops.records.log_offsets import TopicPartition

if TYPE_CHECKING:
    from kops.client.client import Client

ANY_LOG_DIR: Final = "any"
_LAG_MS: Final = 1000
_LOOK_AGAIN_MS: Final = 100
LEADER_RATE: Final = "leader.replication.throttled.rate"
FOLLOWER_RATE: Final = "follower.replication.throttled.rate"
LOG_DIRS_RATE: Final = "replica.alter.log.dirs.io.max.bytes.per.second"
LEADER_REPLICAS: Final = "leader.replication.throttled.replicas"
FOLLOWER_REPLICAS: Final = "follower.replication.throttled.replicas"
Assignment = dict[TopicPartition, list[int]]


class Plan(NamedTuple):
    """The target replicas of partitions, and the replicas that must be in a certain log directory."""

    partitions: Assignment
    log_dirs: dict[Replica, str]


class Move(NamedTuple):
    """The source brokers of a partition's records, and the target brokers."""

    sources: set[int]
    destinations: set[int]


@dataclass(frozen=True, slots=True)
class PartitionState:
    """The progress of a partition. `state`: `completed`, `in-progress`, `differs` (no reassignment, but other replicas)."""

    state: str
    replicas: list[int]
    target: list[int]


@dataclass(frozen=True, slots=True)
class LogDirState:
    """The progress of a replica. `state`: `completed`, `in-progress`, `differs`, `missing` (the broker has no such replica)."""

    state: str
    log_dir: str | None
    target: str


@dataclass(slots=True)
class Verified:
    """The progress of a plan. `ongoing` is whether any reassignment in the cluster is in progress."""

    partitions: dict[TopicPartition, PartitionState]
    log_dirs: dict[Replica, LogDirState]
    ongoing: bool
    throttles_cleared: bool = False


@dataclass(slots=True)
class Executed:
    """The outcome of starting a plan. `before` is the plan that restores the previous replicas."""

    before: Plan
    partitions: PartitionOutcomes
    log_dirs: dict[Replica, KopsError | None] = field(default_factory=dict)
    throttled_brokers: list[int] = field(default_factory=list)


# the JSON files


def parse_plan(text: str, file: str) -> Plan:
    """Parse `{"version": 1, "partitions": [{"topic", "partition", "replicas": […], "log_dirs": [path or "any"…]}…]}`.

    Raises DecodeError (`bad-json`), also for an empty list, duplicates, and lists of different lengths.
    """
    partitions: Assignment = {}
    log_dirs: dict[Replica, str] = {}
    for entry in json_entries(text, file, "partitions"):
        key = TopicPartition(json_field(entry, "topic", str, file), json_field(entry, "partition", int, file))
        name = f"{key.topic}-{key.partition}"
        replicas: list[Any] = json_field(entry, "replicas", list, file)
        paths: list[Any] = json_field(entry, "log_dirs", list, file) if "log_dirs" in entry else [ANY_LOG_DIR] * len(replicas)
        if key in partitions:
            raise _bad(file, f"{name} appears twice")
        if not replicas or not all(type(one) is int for one in replicas):
            raise _bad(file, f'"replicas" of {name} is not a list of broker ids')
        if len(set(replicas)) < len(replicas):
            raise _bad(file, f"a broker appears twice among the replicas of {name}: {replicas}")
        if len(paths) != len(replicas) or not all(type(one) is str for one in paths):
            raise _bad(file, f'"log_dirs" of {name} needs one path, or "any", for each replica')
        partitions[key] = replicas
        for broker, path in zip(replicas, paths, strict=True):
            if path != ANY_LOG_DIR:
                log_dirs[Replica(key.topic, key.partition, broker)] = path
    if not partitions:
        raise _bad(file, "it contains no partitions")
    return Plan(partitions, log_dirs)


def plan_document(plan: Plan) -> dict[str, Any]:
    """Return the document of such a file, as Kafka's tool writes it."""
    return {
        "version": 1,
        "partitions": [
            {
                "topic": key.topic,
                "partition": key.partition,
                "replicas": list(replicas),
                "log_dirs": [plan.log_dirs.get(Replica(key.topic, key.partition, broker), ANY_LOG_DIR) for broker in replicas],
            }
            for key, replicas in sorted(plan.partitions.items())
        ],
    }


def plan_text(plan: Plan) -> str:
    """Return the text of such a file, as Kafka's tool writes it."""
    return json.dumps(plan_document(plan), separators=(",", ":"), ensure_ascii=False)


def parse_topics_to_move(text: str, file: str) -> list[str]:
    """Parse `{"topics": [{"topic": name}…], "version": 1}`. Raises DecodeError."""
    names = [json_field(entry, "topic", str, file) for entry in json_entries(text, file, "topics")]
    if len(set(names)) < len(names):
        raise _bad(file, "a topic appears twice")
    return names


def _bad(file: str, reason: str) -> DecodeError:
    return DecodeError(reason, code="bad-json", file=file)


# generate


class _Draws:
    def __init__(self, rng: random.Random) -> None:
        self._rng = rng

    def next_int(self, bound: int) -> int:
        return self._rng.randrange(bound)

    def uuid(self) -> bytes:
        return self._rng.randbytes(16)


def generate(
    client: Client, topics: Sequence[str], brokers: Sequence[int], *, rack_aware: bool = True, rng: random.Random | None = None
) -> tuple[Plan, Plan]:
    """Return (the current plan of the topics, a plan that spreads them over these brokers). Raises NotFoundError, ApiError."""
    infos = known_topics(client, topics)
    nodes = [node for node in sorted(client.metadata.nodes.values()) if node.id in set(brokers)]
    missing = sorted(set(brokers) - {node.id for node in nodes})
    if missing:
        raise NotFoundError(f"no such broker: {', '.join(map(str, missing))}")
    usable = [UsableBroker(node.id, node.rack if rack_aware else None, False) for node in nodes]
    if rack_aware and len({broker.rack is None for broker in usable}) > 1:
        raise KopsError("some of these brokers have a rack and some have none; --disable-rack-aware places replicas without racks")
    current = {TopicPartition(info.name, one.partition): one.replicas for info in infos for one in info.partitions}
    proposed: Assignment = {}
    for info in infos:
        placed = place(usable, len(info.partitions), info.replication_factor, _Draws(rng or random.Random()))
        proposed |= {TopicPartition(info.name, index): replicas for index, replicas in enumerate(placed)}
    return Plan(current, _current_log_dirs(client, current)), Plan(proposed, {})


def known_topics(client: Client, names: Iterable[str]) -> list[TopicInfo]:
    """Return topics by name. Raises NotFoundError for a missing topic, ApiError for any other error."""
    found = []
    for name, info in describe_topics(client, names).items():
        if isinstance(info, ApiError):
            raise NotFoundError(f"no such topic: {name}") if info.name == "UNKNOWN_TOPIC_OR_PARTITION" else info
        found.append(info)
    return sorted(found, key=lambda info: info.name)


def _current_log_dirs(client: Client, assignment: Assignment) -> dict[Replica, str]:
    """Return the log directories of the replicas on live brokers."""
    alive = client.metadata.nodes
    replicas = [Replica(key.topic, key.partition, broker) for key, brokers in assignment.items() for broker in brokers if broker in alive]
    return {replica: current for replica, (current, _) in find_log_dirs(client, replicas).items() if current is not None}


# execute


def execute(
    client: Client,
    plan: Plan,
    *,
    additional: bool = False,
    throttle: int | None = None,
    log_dirs_throttle: int | None = None,
    timeout_ms: int = 10_000,
    allow_replication_factor_change: bool = True,
) -> Executed:
    """Start a plan. Throttles in bytes a second are set first.

    `timeout_ms` is the time that replicas have to appear on their brokers before they can be moved to another log directory. Raises
    NotFoundError, ApiError, and KopsError if a reassignment is in progress and this one is not `additional`.
    """
    ongoing = list_reassignments(client)
    if ongoing and not additional:
        busy = ", ".join(f"{key.topic}-{key.partition}" for key in sorted(ongoing))
        raise KopsError(f"a reassignment is in progress ({busy}); --additional starts this one as well, or changes the throttle")
    unknown = sorted({broker for replicas in plan.partitions.values() for broker in replicas} - set(client.metadata.nodes))
    if unknown:
        raise NotFoundError(f"no such broker: {', '.join(map(str, unknown))}")
    current = _current_assignment(client, plan)
    executed = Executed(Plan(current, _current_log_dirs(client, current)), {})
    if throttle is not None:
        executed.throttled_brokers = _set_throttle(client, moves(ongoing, plan.partitions, current), throttle)
    if log_dirs_throttle is not None:
        brokers = {replica.broker for replica in plan.log_dirs}
        _alter(client, {(ResourceType.BROKER, str(broker)): [(LOG_DIRS_RATE, SET, str(log_dirs_throttle))] for broker in brokers})
    executed.partitions = alter_reassignments(client, plan.partitions, allow_replication_factor_change=allow_replication_factor_change)
    if plan.log_dirs and not any(executed.partitions.values()):
        executed.log_dirs = _begin_log_dir_moves(client, plan.log_dirs, timeout_ms)
    return executed


def _current_assignment(client: Client, plan: Plan) -> Assignment:
    current = {
        TopicPartition(info.name, one.partition): one.replicas
        for info in known_topics(client, {key.topic for key in plan.partitions})
        for one in info.partitions
    }
    for key in plan.partitions:
        if key not in current:
            raise NotFoundError(f"no such partition: {key.topic}-{key.partition}")
    return {key: current[key] for key in plan.partitions}


def _begin_log_dir_moves(client: Client, wanted: Mapping[Replica, str], timeout_ms: int) -> dict[Replica, KopsError | None]:
    """Start the moves. Replicas that are not on their brokers yet are tried again until the time is over."""
    deadline_ms = client.now_ms() + timeout_ms
    outcomes: dict[Replica, KopsError | None] = {}
    left = dict(wanted)
    while left:
        found = alter_replica_log_dirs(client, left)
        for replica, error in found.items():
            if not (isinstance(error, ApiError) and error.name == "REPLICA_NOT_AVAILABLE"):
                outcomes[replica] = error
                del left[replica]
        if left and client.now_ms() >= deadline_ms:
            late = UnreachableError(f"its broker did not create the replica within {timeout_ms} ms")
            return outcomes | dict.fromkeys(left, late)
        if left:
            _wait(client, 100)
    return outcomes


def _wait(client: Client, pause_ms: float) -> None:
    until_ms = client.now_ms() + pause_ms
    while (left_ms := until_ms - client.now_ms()) > 0:
        client.turn(left_ms)


# throttles


def moves(ongoing: Mapping[TopicPartition, Reassignment], proposed: Assignment, current: Assignment) -> dict[TopicPartition, Move]:
    """Return the source and target brokers of each partition, including reassignments in progress."""
    found = {key: Move(set(one.replicas) - set(one.adding), set(one.adding)) for key, one in ongoing.items()}
    for key, replicas in proposed.items():
        sources = set(found[key].sources) if key in found else set(current[key])
        found[key] = Move(sources, set(replicas) - sources)
    return found


def throttled_replicas(found: Mapping[TopicPartition, Move]) -> dict[str, tuple[str, str]]:
    """Return the texts of `leader.replication.throttled.replicas` and `follower.replication.throttled.replicas` by topic."""
    texts = {}
    for topic in sorted({key.topic for key in found}):
        of_topic = [(key.partition, move) for key, move in found.items() if key.topic == topic]
        leaders = sorted({f"{partition}:{broker}" for partition, move in of_topic for broker in move.sources})
        followers = sorted({f"{partition}:{broker}" for partition, move in of_topic for broker in move.destinations - move.sources})
        texts[topic] = ",".join(leaders), ",".join(followers)
    return texts


def _set_throttle(client: Client, found: Mapping[TopicPartition, Move], rate: int) -> list[int]:
    """Limit the moves to `rate` bytes a second, and return the throttled brokers."""
    changes: dict[tuple[ResourceType, str], list[tuple[str, int, str | None]]] = {}
    for topic, (leaders, followers) in throttled_replicas(found).items():
        changes[ResourceType.TOPIC, topic] = [(LEADER_REPLICAS, SET, leaders), (FOLLOWER_REPLICAS, SET, followers)]
    _alter(client, changes)
    brokers = sorted({broker for move in found.values() for broker in move.sources | move.destinations})
    rates: list[tuple[str, int, str | None]] = [(LEADER_RATE, SET, str(rate)), (FOLLOWER_RATE, SET, str(rate))]
    _alter(client, {(ResourceType.BROKER, str(broker)): rates for broker in brokers})
    return brokers


def clear_throttles(client: Client, topics: Iterable[str]) -> None:
    """Remove the throttles of all live brokers and of these topics."""
    rates: list[tuple[str, int, str | None]] = [(name, DELETE, None) for name in (LEADER_RATE, FOLLOWER_RATE, LOG_DIRS_RATE)]
    replicas: list[tuple[str, int, str | None]] = [(name, DELETE, None) for name in (LEADER_REPLICAS, FOLLOWER_REPLICAS)]
    there = {name for name, info in describe_topics(client, topics).items() if isinstance(info, TopicInfo)}
    _alter(client, {(ResourceType.BROKER, str(node_id)): rates for node_id in sorted(client.metadata.nodes)})
    _alter(client, {(ResourceType.TOPIC, topic): replicas for topic in sorted(there)})


def _alter(client: Client, changes: Mapping[tuple[ResourceType, str], Sequence[tuple[str, int, str | None]]]) -> None:
    for (_, name), error in alter_configs(client, changes).items():
        if error is not None:
            raise ApiError(error.name, f"{name}: {error}")


# verify, cancel


def verify(client: Client, plan: Plan, *, preserve_throttles: bool = False) -> Verified:
    """Return the progress of a plan. If no reassignment is in progress, remove the throttles."""
    deadline_ms = client.now_ms() + _LAG_MS
    ongoing, states = _partition_states(client, plan)
    # The controller knows the reassignments, and a broker knows its replicas. The broker may be slightly behind.
    while any(one.state == "differs" for one in states.values()) and client.now_ms() < deadline_ms:
        _wait(client, _LOOK_AGAIN_MS)
        ongoing, states = _partition_states(client, plan)
    log_dirs = _log_dir_states(client, plan)
    verified = Verified(states, log_dirs, bool(ongoing) or any(one.state == "in-progress" for one in log_dirs.values()))
    if not verified.ongoing and not preserve_throttles:
        clear_throttles(client, {key.topic for key in plan.partitions})
        verified.throttles_cleared = True
    return verified


def _partition_states(client: Client, plan: Plan) -> tuple[Mapping[TopicPartition, Reassignment], dict[TopicPartition, PartitionState]]:
    """Return (all reassignments in progress, the states of the plan's partitions)."""
    ongoing = list_reassignments(client)
    infos = describe_topics(client, {key.topic for key in plan.partitions if key not in ongoing})
    states = {}
    for key, target in plan.partitions.items():
        if key in ongoing:
            states[key] = PartitionState("in-progress", ongoing[key].replicas, target)
            continue
        info = infos[key.topic]
        if isinstance(info, ApiError) and info.name != "UNKNOWN_TOPIC_OR_PARTITION":
            raise info
        partitions = [] if isinstance(info, ApiError) else info.partitions
        replicas = next((one.replicas for one in partitions if one.partition == key.partition), [])
        states[key] = PartitionState("completed" if replicas == target else "differs", replicas, target)
    return ongoing, states


def _log_dir_states(client: Client, plan: Plan) -> dict[Replica, LogDirState]:
    alive = client.metadata.nodes
    found = find_log_dirs(client, [replica for replica in plan.log_dirs if replica.broker in alive]) if plan.log_dirs else {}
    states = {}
    for replica, target in plan.log_dirs.items():
        current, future = found.get(replica, (None, None))
        if current is None:
            state = "missing"
        elif future is not None:
            state = "in-progress"
        else:
            state = "completed" if current == target else "differs"
        states[replica] = LogDirState(state, current, target)
    return states


def cancel(client: Client, plan: Plan, *, preserve_throttles: bool = False, timeout_ms: int = 10_000) -> Executed:
    """Cancel the plan's reassignments and remove the throttles. A partition without a reassignment has no outcome."""
    ongoing = list_reassignments(client, plan.partitions)
    active = [key for key, one in ongoing.items() if one.adding or one.removing]
    outcomes = alter_reassignments(client, dict.fromkeys(active)) if active else {}
    executed = Executed(Plan({key: ongoing[key].replicas for key in active}, {}), outcomes)
    back = {
        replica: state.log_dir
        for replica, state in _log_dir_states(client, plan).items()
        if state.state == "in-progress" and state.log_dir is not None
    }
    if back and not any(outcomes.values()):
        executed.log_dirs = _begin_log_dir_moves(client, back, timeout_ms)
    if not preserve_throttles and not any(outcomes.values()):
        clear_throttles(client, {key.topic for key in plan.partitions})
    return executed
