"""The persister's manager of kops and Kafka's PersisterStateManager. Both get the same calls, answers and timers. Nothing is sent."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from py4j.java_gateway import get_field

from kops.coordinators.runtime.promise import Promise
from kops.coordinators.share.key import SharePartitionKey
from kops.coordinators.share.persister.calls import BACKOFF_MAX_MS, BACKOFF_MS, DELETE, INITIALIZE, READ, SUMMARY, WRITE, Call, Node, Rpc
from kops.coordinators.share.persister.default import DefaultPersister
from kops.coordinators.share.persister.manager import Lookup, StateManager, StateRequest
from kops.errors import ApiError
from kops.protocol.connections.backoff import ExponentialBackoff
from kops.protocol.declaration import Message
from kops.protocol.messages.delete_share_group_state_request import DeleteShareGroupStateRequest
from kops.protocol.messages.find_coordinator_response import Coordinator, FindCoordinatorResponse
from tests.support.kafka.manual_jvm import ManualClock, constant, named, proxy
from tests.support.kafka.oracle import Oracle
from tests.support.kafka.twins.java_coordinators import KAFKA
from tests.support.kafka.twins.share_partition_twins import JavaSide, same

SHARE = f"{KAFKA}server.share.persister."
NAMES = {INITIALIZE: "Initialize", READ: "Read", WRITE: "Write", DELETE: "Delete", SUMMARY: "Read"}
VERSIONS = {INITIALIZE: 0, READ: 0, WRITE: 1, DELETE: 0, SUMMARY: 1}
KEYS = {
    INITIALIZE: "INITIALIZE_SHARE_GROUP_STATE",
    READ: "READ_SHARE_GROUP_STATE",
    WRITE: "WRITE_SHARE_GROUP_STATE",
    DELETE: "DELETE_SHARE_GROUP_STATE",
    SUMMARY: "READ_SHARE_GROUP_STATE_SUMMARY",
}
LOOKUP_VERSION = 6
JITTER = 0.2


def message_name(rpc: Rpc) -> str:
    """Return the name of its request and response."""
    return f"{NAMES[rpc]}ShareGroupState{'Summary' if rpc is SUMMARY else ''}"


@dataclass
class Asked:
    """A request of both."""

    ours: Lookup | StateRequest
    theirs: Any


class PersisterTwins:
    """Both managers. Every step compares their requests, their timers and the responses of the calls."""

    def __init__(self, oracle: Oracle, side: JavaSide) -> None:
        self.oracle, self.side, self.java = oracle, side, side.java
        self.some_node: Node | None = Node(9, "some", 9)
        self.timers: list[tuple[Callable[[], object], int, Any]] = []
        self._new_timers: list[tuple[int, Callable[[], object]]] = []
        self.calls: list[tuple[Call, Any]] = []
        self.outstanding: list[Asked] = []
        self._backoff = ExponentialBackoff(BACKOFF_MS, BACKOFF_MAX_MS, lambda: 0.5)
        self.ours = StateManager(lambda key: None, lambda: self.some_node, lambda: None, self._call_later)
        timer, self._timer_queue = side.timer()
        client = proxy(oracle, f"{KAFKA}clients.KafkaClient", constant(oracle, None))
        self._cache = oracle.jvm.java.util.HashMap()
        helper = proxy(oracle, f"{SHARE}ShareCoordinatorMetadataCacheHelper", self._by_name(self._cache))
        self._node = oracle.java_class(f"{KAFKA}common.Node")
        self.manager = oracle.java_class(f"{SHARE}PersisterStateManager")(client, helper, ManualClock(oracle, 1 << 40).time, timer)
        field = self.manager.getClass().getDeclaredField("sender")
        field.setAccessible(True)
        self._sender = field.get(self.manager)
        self._generate = self._accessible(self._sender.getClass(), "generateRequests")
        queue = self._sender.getClass().getDeclaredField("queue")
        queue.setAccessible(True)
        self._queue = queue.get(self._sender)
        self._cache.put("containsTopic", False)

    def _accessible(self, java_class: Any, name: str) -> Any:
        found = next(each for each in java_class.getDeclaredMethods() if each.getName() == name)
        found.setAccessible(True)
        return found

    def _by_name(self, answers: Any) -> Any:
        """Return a handle for InvocationHandler.invoke that returns the value of a map for the method's name."""
        handles, kind = self.oracle.jvm.java.lang.invoke, self.oracle.jvm.java.lang.invoke.MethodType
        lookup, objects = handles.MethodHandles.publicLookup(), named(self.oracle, "java.lang.Object")
        method = named(self.oracle, "java.lang.reflect.Method")
        get = lookup.findVirtual(named(self.oracle, "java.util.HashMap"), "get", kind.methodType(objects, objects)).bindTo(answers)
        name = lookup.findVirtual(method, "getName", kind.methodType(named(self.oracle, "java.lang.String")))
        name = name.asType(kind.methodType(objects, method))
        filters = self.oracle.gateway.new_array(handles.MethodHandle, 1)
        filters[0] = name
        found = handles.MethodHandles.filterArguments(get, 0, filters)
        found = handles.MethodHandles.dropArguments(found, 0, self.side.list_of(objects))
        return handles.MethodHandles.dropArguments(found, 2, self.side.list_of(named(self.oracle, "[Ljava.lang.Object;")))

    # steps ------------------------------------------------------------------------------------------------------------------------

    def enqueue(self, rpc: Rpc, key: SharePartitionKey, data: Any, arguments: Sequence[object]) -> None:
        """Add a new call. `arguments` are those of Kafka's handler after the partition."""
        call = Call(rpc, key, data, self._backoff, Promise())
        future = self.oracle.jvm.java.util.concurrent.CompletableFuture()
        suffix = "StateSummaryHandler" if rpc is SUMMARY else "StateHandler"
        handler = self.oracle.java_class(f"{SHARE}PersisterStateManager${NAMES[rpc]}{suffix}")
        made = handler(self.manager, key.group_id, self.java.uuid(key.topic_id), key.partition, *arguments, future, None)
        self.calls.append((call, future))
        self.ours.enqueue(call)
        self.manager.enqueue(made)

    def pump(self) -> None:
        """Let both build the requests that they want to send."""
        self._cache.put("getClusterNodes", self._nodes())
        theirs: list[Any] = []
        while not self._queue.isEmpty() or not theirs:
            found = list(self._generate.invoke(self._sender, self.side.array()))
            theirs += found
            if not found and self._queue.isEmpty():
                break
        theirs += list(self._generate.invoke(self._sender, self.side.array()))
        # Kafka's order is that of hash codes of enums. The look-ups for one share partition look the same and stay in order.
        told = sorted(((self._their_text(each), each) for each in theirs), key=lambda pair: pair[0])
        ours = sorted(((self._our_text(each), each) for each in self.ours.take_requests()), key=lambda pair: pair[0])
        same([text for text, _ in ours], [text for text, _ in told])
        self.outstanding += [Asked(mine, their) for (_, mine), (_, their) in zip(ours, told, strict=True)]
        self.check()

    def answer(self, asked: Asked, answer: Message | ApiError) -> None:
        """Give both one answer."""
        self.outstanding.remove(asked)
        if isinstance(asked.ours, Lookup):
            key, version = "FIND_COORDINATOR", LOOKUP_VERSION
            self.ours.on_lookup(asked.ours, answer)
        else:
            key, version = KEYS[asked.ours.rpc], VERSIONS[asked.ours.rpc]
            self.ours.on_answer(asked.ours, answer)
        get_field(asked.theirs, "handler").onComplete(self._their_answer(key, version, answer))
        self.check()

    def run_timer(self, index: int) -> None:
        """Let one call start again."""
        run, _, task = self.timers.pop(index)
        run()
        task.run()

    def check(self) -> None:
        """Check that responses and timers are the same."""
        for run_ms, run in self._new_timers:
            entry = self._timer_queue.poll()
            assert entry is not None, "Kafka has set no timer"
            task = get_field(entry, "timerTask")
            delay_ms = int(get_field(task, "delayMs"))
            assert int(run_ms * (1 - JITTER)) - 1 <= delay_ms <= min(run_ms * (1 + JITTER) + 1, BACKOFF_MAX_MS), (run_ms, delay_ms)
            self.timers.append((run, run_ms, task))
        self._new_timers.clear()
        assert self._timer_queue.isEmpty(), "only Kafka has set a timer"
        for call, future in self.calls:
            same(call.promise.is_done, bool(future.isDone()))
            if call.promise.is_done:
                version = VERSIONS[call.rpc]
                same(call.promise.result().encode(version), self.java.message_bytes(future.get().data(), version))
        self.calls = [(call, future) for call, future in self.calls if not call.promise.is_done]

    def delete(self, request: DeleteShareGroupStateRequest) -> tuple[Promise[Any], Any]:
        """Ask both persisters to delete. Return our promise and Kafka's future."""
        started = self.manager.getClass().getDeclaredField("isStarted")
        started.setAccessible(True)
        started.get(self.manager).set(True)  # so its thread is not started
        theirs = self.oracle.java_class(f"{SHARE}DefaultStatePersister")(self.manager)
        parameters = self.oracle.java_class(f"{SHARE}DeleteShareGroupStateParameters")
        asked = getattr(parameters, "from")(self.java.message(request, 0))
        return DefaultPersister(self.ours, lambda: 0.5).delete_state(request), theirs.deleteState(asked)

    # values for both sides --------------------------------------------------------------------------------------------------------

    def _call_later(self, delay_ms: int, run: Callable[[], object]) -> None:
        self._new_timers.append((delay_ms, run))

    def _nodes(self) -> Any:
        some = self.some_node
        return self.side.list_of() if some is None else self.side.list_of(self._node(some.id, some.host, some.port))

    def _our_text(self, asked: Lookup | StateRequest) -> str:
        version = LOOKUP_VERSION if isinstance(asked, Lookup) else VERSIONS[asked.rpc]
        message = asked.message()
        return f"{asked.node.id} {type(message).__name__} {message.encode(version).hex()}"

    def _their_text(self, asked: Any) -> str:
        builder = get_field(asked, "request")
        request = builder.build(builder.latestAllowedVersion())
        name = str(request.getClass().getSimpleName())
        return f"{get_field(asked, 'destination').id()} {name} {self.java.message_bytes(request.data(), int(request.version())).hex()}"

    def _their_answer(self, key: str, version: int, answer: Message | ApiError) -> Any:
        keys = self.oracle.java_class(f"{KAFKA}common.protocol.ApiKeys")
        header = self.java.make("common.requests.RequestHeader", keys.valueOf(key), self.java.short(version), "client", 1)
        is_disconnected = is_timed_out = False
        mismatch = body = None
        if isinstance(answer, ApiError):
            is_timed_out = answer.name == "REQUEST_TIMED_OUT"
            is_disconnected = is_timed_out or answer.name == "NETWORK_EXCEPTION"
            if answer.name == "UNSUPPORTED_VERSION":
                mismatch = self.java.make("common.errors.UnsupportedVersionException", "too old")
        else:
            name = type(answer).__name__
            body = self.java.make(f"common.requests.{name}", self.java.message(answer, version))
        times = self.java.long(0), self.java.long(0)
        return self.java.make("clients.ClientResponse", header, None, "1", *times, is_disconnected, is_timed_out, mismatch, None, body)


def lookup_answer(key: SharePartitionKey, coordinators: Sequence[tuple[Node, int, str | None]]) -> FindCoordinatorResponse:
    """Return an answer of FindCoordinator with nodes, error codes and messages."""
    found = [Coordinator(key.coordinator_key, node.id, node.host, node.port, code, text) for node, code, text in coordinators]
    return FindCoordinatorResponse(coordinators=found)
