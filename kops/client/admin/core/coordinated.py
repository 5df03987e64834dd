"""Requests to coordinators of groups and transactional ids: one handler, which an operation fills with its request and its answer.

Source: what the handlers of Kafka's admin client have in common (DescribeShareGroupsHandler, DeleteGroupsHandler …): a coordinator that
loads is asked again, one that moved is looked up again, any other error belongs to the key.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Final, Generic, TypeVar

from kops.client.admin.core.keyed import Lookup, Outcome, keyed
from kops.client.admin.core.lookups import Coordinators, KeyType
from kops.client.admin.core.results import Results
from kops.client.admin.core.values import as_names
from kops.client.errors import KafkaError
from kops.client.node import Node

if TYPE_CHECKING:
    from kops.client.admin.core.operation import Steps
    from kops.client.client import Client
    from kops.protocol.declaration import Message

V = TypeVar("V")
LOADING: Final = frozenset(("COORDINATOR_LOAD_IN_PROGRESS",))
LOADING_OR_REBALANCING: Final = LOADING | {"REBALANCE_IN_PROGRESS"}
LOADING_OR_CONCURRENT: Final = LOADING | {"CONCURRENT_TRANSACTIONS"}
_MOVED: Final = ("NOT_COORDINATOR", "COORDINATOR_NOT_AVAILABLE")


class Coordinated(Generic[V]):
    """Asks coordinators. `read(broker, response)` yields the outcome of each key; errors in `later` are asked again."""

    versions: range | None = None

    def __init__(
        self,
        client: Client,
        name: str,
        kind: KeyType,
        make: Callable[[list[str]], Message],
        read: Callable[[Node, Message], Iterable[tuple[str, V | KafkaError]]],
        *,
        later: frozenset[str] = LOADING,
        at_once: bool = True,
        versions: range | None = None,
    ) -> None:
        self.name = name
        self.lookup: Lookup[str] = Coordinators(client, kind)
        self.versions = versions
        self._client = client
        self._make = make
        self._read = read
        self._later = later
        self._at_once = at_once

    def build(self, keys: list[str]) -> tuple[list[str], Callable[[int], Message]]:
        some = keys if self._at_once else keys[:1]
        request = self._make(some)
        return some, lambda _: request

    def handle(self, broker: int, keys: list[str], response: Message) -> Outcome[str, V]:
        node = self._client.metadata.nodes.get(broker, Node(broker, "", -1))
        outcome = Outcome[str, V]()
        for key, one in self._read(node, response):
            if key not in keys:
                continue
            if not isinstance(one, KafkaError):
                outcome.completed[key] = one
            elif one.name in _MOVED:
                outcome.unmapped.append(key)
                outcome.later[key] = one
            elif one.name in self._later:
                outcome.later[key] = one
            else:
                outcome.failed[key] = one
        return outcome

    def unsupported(self, keys: list[str], error: KafkaError) -> dict[str, KafkaError]:
        return dict.fromkeys(keys, error)


def ask_groups(
    client: Client,
    name: str,
    group_ids: Iterable[str],
    make: Callable[[list[str]], Message],
    read: Callable[[Node, Message], Iterable[tuple[str, V | KafkaError]]],
    deadline: float,
    *,
    later: frozenset[str] = LOADING,
    versions: range | None = None,
) -> Steps[Results[str, V]]:
    """Ask the coordinators of groups."""
    return keyed(
        client, Coordinated(client, name, KeyType.GROUP, make, read, later=later, versions=versions), as_names(group_ids), deadline
    )


def ask_group(
    client: Client,
    name: str,
    group_id: str,
    request: Message,
    read: Callable[[Message], V | KafkaError],
    deadline: float,
    *,
    later: frozenset[str] = LOADING,
    versions: range | None = None,
) -> Steps[V]:
    """Ask the coordinator of one group. Raises the group's error."""

    def read_one(_: Node, response: Message) -> list[tuple[str, V | KafkaError]]:
        return [(group_id, read(response))]

    found = yield from ask_groups(client, name, [group_id], lambda _: request, read_one, deadline, later=later, versions=versions)
    return found[group_id]
