"""One call of the persister for one share partition: the look-up of the coordinator, the request, and retries.

Source: PersisterStateManager.PersisterStateManagerHandler and its five subclasses, which differ only in their messages.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from enum import Enum, auto
from typing import Any, Final

from kops.coordinators.runtime.promise import Promise
from kops.coordinators.share import responses
from kops.coordinators.share.key import SharePartitionKey
from kops.coordinators.share.responses import StateApi, message_of
from kops.errors import ApiError
from kops.protocol.connections.backoff import ExponentialBackoff
from kops.protocol.declaration import Message
from kops.protocol.errors import by_code
from kops.protocol.json_text import uuid_text
from kops.protocol.messages import delete_share_group_state_request as deleting
from kops.protocol.messages import initialize_share_group_state_request as initializing
from kops.protocol.messages import read_share_group_state_request as reading
from kops.protocol.messages import read_share_group_state_summary_request as summing
from kops.protocol.messages import write_share_group_state_request as writing
from kops.protocol.messages.find_coordinator_response import FindCoordinatorResponse

BACKOFF_MS: Final = 1000
BACKOFF_MAX_MS: Final = 30_000
MAX_ATTEMPTS: Final = 5
RETRIABLE: Final = frozenset({"COORDINATOR_NOT_AVAILABLE", "COORDINATOR_LOAD_IN_PROGRESS", "NOT_COORDINATOR", "UNKNOWN_TOPIC_OR_PARTITION"})
_BROKEN: Final = "NETWORK_EXCEPTION"
_LATE: Final = "REQUEST_TIMED_OUT"
_EXHAUSTED: Final = "Exhausted max retries to"


@dataclass(frozen=True, slots=True, eq=False)
class Rpc:
    """One of the five requests. In messages, `words` is its name and `of` precedes the share partition."""

    words: str
    title: str
    of: str
    api: StateApi[Any]
    request: Callable[[str, list[Any]], Message]
    topic: Callable[[bytes, list[Any]], Any]


INITIALIZE: Final = Rpc(
    "initialize state",
    "Initialize share group",
    "share partition: ",
    responses.INITIALIZE,
    initializing.InitializeShareGroupStateRequest,
    initializing.InitializeStateData,
)
READ: Final = Rpc(
    "read state",
    "Read share group",
    "share partition ",
    responses.READ,
    reading.ReadShareGroupStateRequest,
    reading.ReadStateData,
)
WRITE: Final = Rpc(
    "write state",
    "Write share group",
    "share partition: ",
    responses.WRITE,
    writing.WriteShareGroupStateRequest,
    writing.WriteStateData,
)
DELETE: Final = Rpc(
    "delete state",
    "Delete share group",
    "share partition: ",
    responses.DELETE,
    deleting.DeleteShareGroupStateRequest,
    deleting.DeleteStateData,
)
SUMMARY: Final = Rpc(
    "read state summary",
    "Read share group summary",
    "share partition ",
    responses.SUMMARY,
    summing.ReadShareGroupStateSummaryRequest,
    summing.ReadStateSummaryData,
)


@dataclass(frozen=True, slots=True)
class Node:
    """A broker in the answer of a look-up."""

    id: int
    host: str
    port: int


class Next(Enum):
    """The next step of a call after an answer."""

    DONE = auto()
    """The call is complete."""
    SEND = auto()
    """The coordinator is known."""
    RETRY = auto()
    """The call starts again after `Call.delay_ms`."""


@dataclass(slots=True, eq=False)
class Call:
    """A request for one share partition; `data` is the partition's part of the request. All calls share `backoff`."""

    rpc: Rpc
    key: SharePartitionKey
    data: Any
    backoff: ExponentialBackoff
    promise: Promise[Any] = field(default_factory=Promise)
    coordinator: Node | None = None
    delay_ms: int = 0
    _lookups: int = 0
    _attempts: int = 0

    def on_lookup(self, answer: Message | ApiError) -> Next:
        """Handle the answer to FindCoordinator."""
        self._lookups += 1
        if isinstance(answer, ApiError):
            if answer.name not in (_BROKEN, _LATE):
                return self.fail_lookup(answer.name, message_of(answer.name))
            # After a request time-out Kafka closes the connection, and sees only a lost connection.
            return self._look_up_again(_BROKEN)
        assert isinstance(answer, FindCoordinatorResponse)
        if len(answer.coordinators) > 1:
            return self.fail_lookup("UNKNOWN_SERVER_ERROR", "Invalid response with multiple coordinators.")
        # In older versions the response has no list; its fields are at the top level.
        found = answer.coordinators[0] if answer.coordinators else answer
        error = by_code(found.error_code).name
        if error in RETRIABLE:
            return self._look_up_again(error)
        if error != "NONE":
            return self.fail_lookup(error, found.error_message or message_of(error))
        self._lookups = 0
        self.coordinator = Node(found.node_id, found.host, found.port)
        return Next.SEND

    def on_answer(self, answer: Message | ApiError) -> Next:
        """Handle the coordinator's answer, which may also have results for other share partitions."""
        self._attempts += 1
        if isinstance(answer, ApiError):
            if answer.name not in (_BROKEN, _LATE):
                return self.fail(answer.name, message_of(answer.name))
            return self._ask_again(_BROKEN)
        found = self._result(answer)
        if found is None:
            text = f"Failed to {self.rpc.words} for {self.rpc.of}{_key_text(self.key)}"
            return self.fail("UNKNOWN_SERVER_ERROR", text)
        error = by_code(found.error_code).name
        if error in RETRIABLE:
            return self._ask_again(error)
        if error != "NONE":
            return self.fail(error, found.error_message or message_of(error))
        self._attempts = 0
        self.promise.complete(self.rpc.api.single(self.key.topic_id, found))
        return Next.DONE

    def fail_lookup(self, error: str, message: str) -> Next:
        """Complete the call with an error of the look-up."""
        return self._end(error, f"Error in find coordinator. {message}")

    def fail(self, error: str, message: str) -> Next:
        """Complete the call with an error of the request."""
        return self._end(error, f"Error in {self.rpc.words} RPC. {message}")

    def _end(self, error: str, message: str) -> Next:
        self.promise.complete(self.rpc.api.error(self.key.topic_id, self.key.partition, error, message))
        return Next.DONE

    def _look_up_again(self, error: str) -> Next:
        if self._lookups >= MAX_ATTEMPTS:
            return self.fail_lookup(error, f"{_EXHAUSTED} find coordinator without success.")
        return self._retry(self._lookups)

    def _ask_again(self, error: str) -> Next:
        if self._attempts >= MAX_ATTEMPTS:
            return self.fail(error, f"{_EXHAUSTED} complete {self.rpc.words} RPC without success.")
        return self._retry(self._attempts)

    def _retry(self, attempts: int) -> Next:
        self.coordinator = None
        self.delay_ms = self.backoff.delay_ms(attempts)
        return Next.RETRY

    def _result(self, answer: Any) -> Any:
        """Return the result for this share partition, or None."""
        for topic in answer.results:
            if topic.topic_id == self.key.topic_id:
                for each in topic.partitions:
                    if each.partition == self.key.partition:
                        return each
        return None


def _key_text(key: SharePartitionKey) -> str:
    """Format a key as SharePartitionKey.toString does if the topic's name is unknown."""
    return f"SharePartitionKey{{groupId={key.group_id}, topicIdPartition={uuid_text(key.topic_id)}:null-{key.partition}}}"
