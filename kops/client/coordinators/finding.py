"""Requests of commands to coordinators and to all brokers, until each key has an answer.

Source: Kafka's AdminApiDriver with CoordinatorStrategy (`kops.client.admin.core.keyed` does the work), AllBrokersStrategy.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Final, TypeVar

from kops.client.admin.core.asking import deadline_ms
from kops.client.admin.core.coordinated import Coordinated
from kops.client.admin.core.keyed import keyed
from kops.client.admin.core.lookups import KeyType
from kops.client.admin.core.operation import execute
from kops.client.admin.core.results import kafka_error
from kops.client.client import Call, Client
from kops.errors import ApiError, KopsError
from kops.protocol.errors import ERRORS

if TYPE_CHECKING:
    from kops.client.errors import KafkaError
    from kops.client.node import Node
    from kops.protocol.declaration import Message

__all__ = ["KeyType", "by_all_brokers", "by_coordinator"]
T = TypeVar("T")
_RETRIABLE: Final = frozenset(error.name for error in ERRORS if error.retriable)


def by_coordinator(
    client: Client,
    name: str,
    kind: KeyType,
    keys: Iterable[str],
    make: Callable[[list[str]], Message],
    handle: Callable[[Node, Message], Mapping[str, T | ApiError]],
) -> dict[str, T | ApiError]:
    """Ask the coordinator of each key, all coordinators at the same time. Ask again after a coordinator has moved or while it loads.

    `handle(coordinator, response)` returns an outcome for each key of its request. A key without an answer within
    `default.api.timeout.ms` has an error that names the last one.
    """

    def read(node: Node, response: Message) -> Iterator[tuple[str, T | KafkaError]]:
        for key, outcome in handle(node, response).items():
            yield key, kafka_error(outcome) if isinstance(outcome, ApiError) else outcome

    handler = Coordinated(client, name, kind, make, read, later=_RETRIABLE)
    return dict(execute(client, keyed(client, handler, keys, deadline_ms(client, None))).outcomes())


def by_all_brokers(
    client: Client, name: str, request: Message, handle: Callable[[Message], T]
) -> tuple[dict[int, T], dict[int, KopsError]]:
    """Ask every broker. Returns (answers by broker, errors by broker). Raises UnreachableError if no broker answers at all."""
    client.fetch_metadata([])
    ids = sorted(client.metadata.nodes)
    calls = [Call(name, node_id, lambda _: request, handle) for node_id in ids]
    client.run(calls)
    answers = {node_id: call.value for node_id, call in zip(ids, calls, strict=True) if call.error is None}
    return answers, {node_id: call.error for node_id, call in zip(ids, calls, strict=True) if call.error is not None}
