"""Calls to coordinators of groups and transactional ids, and calls to all brokers.

Source: Kafka's CoordinatorStrategy (FindCoordinator, batched since version 4), AllBrokersStrategy, AdminApiDriver (which looks up the
coordinator again after NOT_COORDINATOR, and retries while a coordinator loads).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from enum import IntEnum
from typing import TYPE_CHECKING, Final, TypeVar

from kops.client.client import WAITING_MS, Call, Client, To, check
from kops.client.node import Node
from kops.client.topics import error_of
from kops.errors import ApiError, KopsError
from kops.protocol.errors import by_name

if TYPE_CHECKING:
    from kops.protocol.declaration import Message

T = TypeVar("T")
_BATCHED: Final = 4
_TOLD: Final = 3


class KeyType(IntEnum):
    """The types of coordinators (FindCoordinatorRequest.CoordinatorType)."""

    GROUP = 0
    TRANSACTION = 1


def find_coordinators(client: Client, kind: KeyType, keys: Iterable[str]) -> dict[str, int | ApiError]:
    """Return the id of each key's coordinator, or an error. The client remembers the coordinators' addresses."""
    wanted = list(keys)
    try:
        return _find(client, kind, wanted)
    except ApiError as error:
        if error.name != "UNSUPPORTED_VERSION":
            raise
    found: dict[str, int | ApiError] = {}
    for key in wanted:
        found |= _find_one(client, kind, key)
    return found


def _find(client: Client, kind: KeyType, keys: list[str]) -> dict[str, int | ApiError]:
    from kops.protocol.messages import FindCoordinatorRequest, FindCoordinatorResponse

    def handle(response: Message) -> dict[str, int | ApiError]:
        assert isinstance(response, FindCoordinatorResponse)
        found: dict[str, int | ApiError] = {}
        for one in response.coordinators:
            error = error_of(one.error_code, one.error_message)
            found[one.key] = one.node_id if error is None else error
            if error is None:
                client.metadata.add_nodes([Node(one.node_id, one.host, one.port)])
        return found

    versions = range(_BATCHED, FindCoordinatorRequest.VERSIONS.stop)
    return client.call(
        "find coordinators",
        To.ANY,
        lambda _: FindCoordinatorRequest(key_type=kind, coordinator_keys=keys),
        handle,
        versions=versions,
    )


def _find_one(client: Client, kind: KeyType, key: str) -> dict[str, int | ApiError]:
    from kops.protocol.messages import FindCoordinatorRequest, FindCoordinatorResponse

    def handle(response: Message) -> dict[str, int | ApiError]:
        assert isinstance(response, FindCoordinatorResponse)
        error = error_of(response.error_code, response.error_message)
        if error is not None:
            return {key: error}
        client.metadata.add_nodes([Node(response.node_id, response.host, response.port)])
        return {key: response.node_id}

    versions = range(1, _BATCHED)
    return client.call("find coordinator", To.ANY, lambda _: FindCoordinatorRequest(key=key, key_type=kind), handle, versions=versions)


def by_coordinator(
    client: Client,
    name: str,
    kind: KeyType,
    keys: Iterable[str],
    make: Callable[[list[str]], Message],
    handle: Callable[[Message], Mapping[str, T | ApiError]],
    *,
    versions: range | None = None,
) -> dict[str, T | ApiError]:
    """Ask the coordinator of each key, all coordinators at the same time. Retry after a coordinator has moved or while it loads.

    `handle` returns an outcome for each key of its request. A key without an answer within `default.api.timeout.ms` has its last error.
    """
    began_ms = client.now_ms()
    deadline_ms = began_ms + client.settings.default_api_timeout_ms
    pending = list(dict.fromkeys(keys))
    outcomes: dict[str, T | ApiError] = {}
    tries = 0
    while pending:
        nodes, again = _nodes(client, kind, pending, outcomes)
        left_ms = max(int(deadline_ms - client.now_ms()), 1)
        calls = [_call(name, node_id, make(group), handle, left_ms, versions) for node_id, group in nodes.items()]
        client.run(calls)
        for call, group in zip(calls, nodes.values(), strict=True):
            for key, outcome in _of_call(call, group).items():
                if isinstance(outcome, ApiError) and _may_succeed_later(outcome):
                    again[key] = outcome
                else:
                    outcomes[key] = outcome
        pending = list(again)
        if not pending or client.now_ms() >= deadline_ms:
            return outcomes | again
        if client.now_ms() - began_ms >= WAITING_MS:
            client.tell("; ".join(str(error) for error in list(again.values())[:_TOLD]))
        _pause(client, client.backoff.delay_ms(tries))
        tries += 1
    return outcomes


def _call(
    name: str,
    node_id: int,
    request: Message,
    handle: Callable[[Message], Mapping[str, T | ApiError]],
    timeout_ms: int,
    versions: range | None,
) -> Call[Mapping[str, T | ApiError]]:
    return Call(name, node_id, lambda _: request, handle, timeout_ms=timeout_ms, versions=versions, may_move=True)


def _nodes(
    client: Client, kind: KeyType, keys: list[str], outcomes: dict[str, T | ApiError]
) -> tuple[dict[int, list[str]], dict[str, ApiError]]:
    """Return (keys by coordinator, keys whose coordinator is still unknown). Keys that cannot succeed are added to `outcomes`."""
    nodes: dict[int, list[str]] = {}
    again: dict[str, ApiError] = {}
    for key, found in find_coordinators(client, kind, keys).items():
        if not isinstance(found, ApiError):
            nodes.setdefault(found, []).append(key)
        elif _may_succeed_later(found):
            again[key] = found
        else:
            outcomes[key] = found
    return nodes, again


def _of_call(call: Call[Mapping[str, T | ApiError]], group: list[str]) -> Mapping[str, T | ApiError]:
    if isinstance(call.error, ApiError):
        return dict.fromkeys(group, call.error)
    return call.value


def _may_succeed_later(error: ApiError) -> bool:
    # Look up the coordinator again even if the broker is gone: its groups will have another coordinator.
    return by_name(error.name).retriable or error.name == "NETWORK_EXCEPTION"


def _pause(client: Client, pause_ms: float) -> None:
    until_ms = client.now_ms() + pause_ms
    while (left_ms := until_ms - client.now_ms()) > 0:
        client.turn(left_ms)


def by_all_brokers(
    client: Client, name: str, request: Message, handle: Callable[[Message], T], *, versions: range | None = None
) -> tuple[dict[int, T], dict[int, KopsError]]:
    """Ask every broker. Returns (answers by broker, errors by broker). Raises UnreachableError if no broker answers at all."""
    client.fetch_metadata([])
    ids = sorted(client.metadata.nodes)
    calls = [Call(name, node_id, lambda _: request, handle, versions=versions) for node_id in ids]
    client.run(calls)
    answers = {node_id: call.value for node_id, call in zip(ids, calls, strict=True) if call.error is None}
    return answers, {node_id: call.error for node_id, call in zip(ids, calls, strict=True) if call.error is not None}


def outcome_of(code: int, message: str | None = None) -> ApiError | None:
    """Return the outcome of an item without a value."""
    return error_of(code, message)


def raise_for(code: int, message: str | None = None) -> None:
    """Raise ApiError for the error code of a whole response."""
    check(code, message)
