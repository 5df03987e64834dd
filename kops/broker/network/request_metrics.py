"""The request metrics of a server: numbers by API and version, their times and sizes, and the errors in the answers.

Source: Kafka's RequestMetrics, RequestChannelMetrics and RequestChannel (updateRequestMetrics, updateErrorMetrics). A request is recorded
when its answer has been sent, or when its connection is gone. Records are added up in blocks, so that each costs little.

A loop has no queues between threads. A request's time in the queue is the time that it waits for earlier ones of the same connection that
arrived with it. A response's is the time until its turn to be sent comes. The time of a conversion includes the write of the batch.
Percentiles are those of the last requests; Kafka's are those of a sample that prefers the last five minutes.
"""

from __future__ import annotations

import math
from collections import Counter, deque
from operator import mul
from typing import TYPE_CHECKING, Any, Final

from kops.protocol.errors import by_code

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from kops.protocol.connections.connection import Request
    from kops.protocol.declaration import Message, Struct

    CountErrors = Callable[[Struct, Counter[int]], None]
    # The times, in ms, when a request arrived, its handler was called and returned, it was answered, the answer's turn came, and it was
    # sent.
    Times = tuple[float, float, float, float, float, float]
    # Version; times; ms of throttling; bytes; ms of conversions; bytes of temporary memory.
    Note = tuple[int, Times, int, int, float, int]

PREFIX: Final = "kafka.network:type=RequestMetrics,name="
_SIZES: Final = "RequestBytes"
HISTOGRAMS: Final = (
    "RequestQueueTimeMs",
    "LocalTimeMs",
    "RemoteTimeMs",
    "ThrottleTimeMs",
    "ResponseQueueTimeMs",
    "ResponseSendTimeMs",
    "TotalTimeMs",
    _SIZES,
)
CONVERSIONS: Final = ("MessageConversionsTimeMs", "TemporaryMemoryBytes")
"""The histograms that only Fetch and Produce have."""
_WITH_CONVERSIONS: Final = frozenset(("Fetch", "Produce"))
_PERCENTILES: Final = (
    ("50thPercentile", 0.5),
    ("75thPercentile", 0.75),
    ("95thPercentile", 0.95),
    ("98thPercentile", 0.98),
    ("99thPercentile", 0.99),
    ("999thPercentile", 0.999),
)
# These are counted under both names; the parts are added up on request.
_PARTS: Final = {"FetchConsumer": "Fetch", "FetchFollower": "Fetch", "ListClientMetricsResources": "ListConfigResources"}
_BLOCK: Final = 128
_SHORTEST_MS: Final = 0.5  # Shorter times round to 0.
_SAMPLE: Final = 1028


class Histogram:
    """Whole numbers: their count, sum, extremes and the last of them (Yammer's Histogram)."""

    __slots__ = ("count", "least", "most", "recent", "squares", "sum")

    def __init__(self) -> None:
        self.count = self.sum = self.squares = self.least = self.most = 0
        self.recent: deque[int] = deque(maxlen=_SAMPLE)

    def update(self, values: Sequence[int]) -> None:
        """Add values, at least one."""
        least, most = min(values), max(values)
        self.least = min(self.least, least) if self.count else least
        self.most = max(self.most, most) if self.count else most
        self.count += len(values)
        self.sum += sum(values)
        self.squares += sum(map(mul, values, values)) if most else 0
        self.recent.extend(values)

    def update_zeros(self, count: int) -> None:
        """Add 0 this many times."""
        if not self.count or self.least > 0:
            self.least = 0
        self.count += count
        self.recent.extend([0] * count)

    def merge(self, other: Histogram) -> None:
        """Add another histogram."""
        if other.count:
            self.least = min(self.least, other.least) if self.count else other.least
            self.most = max(self.most, other.most) if self.count else other.most
            self.count += other.count
            self.sum += other.sum
            self.squares += other.squares
            self.recent.extend(other.recent)

    def attributes(self) -> dict[str, float]:
        """By the names of the MBean's attributes."""
        mean = self.sum / self.count if self.count else 0.0
        variance = (self.squares - self.count * mean * mean) / (self.count - 1) if self.count > 1 else 0.0
        found = {"Count": self.count, "Min": self.least, "Max": self.most, "Mean": mean, "StdDev": math.sqrt(max(variance, 0.0))}
        ordered = sorted(self.recent)
        return found | {name: _percentile(ordered, part) for name, part in _PERCENTILES}


def _percentile(ordered: list[int], part: float) -> float:
    """Yammer's Snapshot.getValue: between two values, by the distance from each."""
    if not ordered:
        return 0.0
    place = part * (len(ordered) + 1)
    if place < 1:
        return ordered[0]
    if place >= len(ordered):
        return ordered[-1]
    lower, upper = ordered[int(place) - 1], ordered[int(place)]
    return lower + (place - math.floor(place)) * (upper - lower)


class ApiMetrics:
    """The requests of one name. Of most, all times are 0 ms: for these only the size is kept until they are added up."""

    __slots__ = ("_count_errors", "_counted", "_notes", "_short", "errors", "histograms", "versions")

    def __init__(self) -> None:
        self.versions: Counter[int] = Counter()
        self.errors: Counter[int] = Counter()
        self.histograms = {name: Histogram() for name in (*HISTOGRAMS, *CONVERSIONS)}
        self._notes: list[Note] = []
        self._short: list[int] = []
        # The counter for answers like the last one, and their class and version.
        self._count_errors: CountErrors | None = None
        self._counted: tuple[type[Message] | None, int] = (None, 0)

    def note(self, note: Note) -> None:
        """Record a request that has been answered."""
        self._notes.append(note)
        if len(self._notes) + len(self._short) >= _BLOCK:
            self.add_up()

    def note_short(self, version: int, size: int) -> None:
        """Record a request that took so little time that all times are 0."""
        self.versions[version] += 1
        self._short.append(size)
        if len(self._notes) + len(self._short) >= _BLOCK:
            self.add_up()

    def _add_up_short(self) -> None:
        sizes, self._short = self._short, []
        if not sizes:
            return
        for name, histogram in self.histograms.items():
            if name == _SIZES:
                histogram.update(sizes)
            else:
                histogram.update_zeros(len(sizes))

    def count_errors(self, message: Message, version: int) -> None:
        """See `RequestMetrics.count_errors`."""
        kind = type(message)
        count = self._count_errors
        if count is None or self._counted[0] is not kind or self._counted[1] != version:
            count = _COUNTERS.get((kind, version))
            if count is None:
                count = _COUNTERS[kind, version] = error_counter(kind, version)
            self._count_errors, self._counted = count, (kind, version)
        count(message, self.errors)

    def add_up(self) -> None:
        """Add the recorded requests to the sums."""
        self._add_up_short()
        notes, self._notes = self._notes, []
        if not notes:
            return
        versions, times, throttled, sizes, conversions, memory = zip(*notes, strict=True)
        received, started, handled, answered, taken, sent = zip(*times, strict=True)
        self.versions.update(versions)
        columns = (
            _elapsed(received, started),
            _elapsed(started, handled),
            _elapsed(handled, answered),
            throttled,
            _elapsed(answered, taken),
            _elapsed(taken, sent),
            _elapsed(received, sent),
            sizes,
            [int(one + 0.5) for one in conversions] if any(conversions) else [0] * len(notes),
            memory,
        )
        for histogram, column in zip(self.histograms.values(), columns, strict=True):
            histogram.update(column)

    def merge(self, other: ApiMetrics) -> None:
        """Add the metrics of another server."""
        other.add_up()
        self.versions += other.versions
        self.errors += other.errors
        for name, histogram in other.histograms.items():
            self.histograms[name].merge(histogram)


def _elapsed(begins: Sequence[float], ends: Sequence[float]) -> list[int]:
    """Times in whole ms, rounded as Java's Math.round does."""
    return [int(end - begin + 0.5) for begin, end in zip(begins, ends, strict=True)]


class RequestMetrics:
    """The metrics of all requests of a server, or the sums over several servers."""

    def __init__(self, servers: Iterable[RequestMetrics] = ()) -> None:
        self.by_name: dict[str, ApiMetrics] = {}
        for server in servers:
            for name, metrics in server.by_name.items():
                self._of(name).merge(metrics)
                if name in _PARTS:
                    self._of(_PARTS[name]).merge(metrics)

    def _of(self, name: str) -> ApiMetrics:
        found = self.by_name.get(name)
        if found is None:
            found = self.by_name[name] = ApiMetrics()
        return found

    def note(self, request: Request, times: Times, throttle_ms: int, conversion_ms: float, temporary_bytes: int) -> None:
        """Record a request that is done."""
        name = request.api.name
        if name == "Fetch":
            name = "FetchFollower" if _is_from_follower(request) else "FetchConsumer"
        elif name == "ListConfigResources" and request.version == 0:
            name = "ListClientMetricsResources"
        metrics = self.by_name.get(name) or self._of(name)
        if times[5] - times[0] < _SHORTEST_MS and not (throttle_ms or conversion_ms or temporary_bytes):
            metrics.note_short(request.version, request.body_size)
            return
        metrics.note((request.version, times, throttle_ms, request.body_size, conversion_ms, temporary_bytes))

    def count_errors(self, api: str, message: Message, version: int) -> None:
        """Count the error codes in an answer; NONE is one of them."""
        (self.by_name.get(api) or self._of(api)).count_errors(message, version)

    def histograms(self) -> dict[str, float]:
        """Times in ms and sizes in bytes: `MBean:attribute`, as Kafka's JmxTool writes it."""
        found: dict[str, float] = {}
        for name, metrics in sorted(self.by_name.items()):
            metrics.add_up()
            for kind, histogram in metrics.histograms.items():
                if histogram.count and (kind in HISTOGRAMS or name in _WITH_CONVERSIONS):
                    bean = f"{PREFIX}{kind},request={name}"
                    found |= {f"{bean}:{attribute}": value for attribute, value in histogram.attributes().items()}
        return found


def request_counts(servers: Iterable[RequestMetrics]) -> dict[str, float]:
    """The meters of all these servers: requests by name and version, errors by name and kind."""
    versions: dict[str, Counter[int]] = {}
    errors: dict[str, Counter[int]] = {}
    for server in servers:
        for name, metrics in server.by_name.items():
            metrics.add_up()
            for each in {name, _PARTS.get(name, name)}:
                versions.setdefault(each, Counter()).update(metrics.versions)
                errors.setdefault(each, Counter()).update(metrics.errors)
    found: dict[str, float] = {}
    for name in sorted(versions):
        for version, count in sorted(versions[name].items()):
            found[f"{PREFIX}RequestsPerSec,request={name},version={version}"] = count
        for code, count in sorted(errors[name].items()):
            found[f"{PREFIX}ErrorsPerSec,request={name},error={by_code(code).name}"] = count
    return found


def _is_from_follower(request: Request) -> bool:
    """FetchRequest.isFromFollower."""
    message = request.message
    replica_id: int = message.replica_id if request.version < 15 else message.replica_state.replica_id  # type: ignore[attr-defined]
    return replica_id >= 0


# errors -------------------------------------------------------------------------------------------------------------------------------

_COUNTERS: dict[tuple[type[Message], int], CountErrors] = {}


# Responses of which Kafka does not count all error codes (their methods errorCounts).
_NOT_AT_THE_TOP: Final = frozenset(("MetadataResponse", "DescribeUserScramCredentialsResponse"))
_ONLY_AT_THE_TOP: Final = frozenset(("AssignReplicasToDirsResponse",))
_NO_NONE_AT_THE_TOP: Final = frozenset(
    ("AddRaftVoterResponse", "RemoveRaftVoterResponse", "UpdateRaftVoterResponse", "UnregisterBrokerResponse", "FetchSnapshotResponse")
)
_OFFSETS_OF_ONE_GROUP: Final = range(2, 8)
"""Versions of OffsetFetch that have one error for the group at the top."""
_TOP_WHERE_EMPTY: Final = frozenset(("FindCoordinatorResponse",))


def error_counter(kind: type[Message], version: int) -> CountErrors:
    """A function that counts the error codes of a response in this version as Kafka counts them."""
    name = kind.__name__
    if name == "AddPartitionsToTxnResponse":
        return _count_added_partitions
    if name == "DescribeShareGroupOffsetsResponse":
        return _count_share_offsets
    count_all = _counter(kind)
    own = name not in _NOT_AT_THE_TOP and _has_own(kind) and not (name == "OffsetFetchResponse" and version not in _OFFSETS_OF_ONE_GROUP)
    lists = () if name in _ONLY_AT_THE_TOP else _lists(kind)

    def count(message: Struct, errors: Counter[int]) -> None:
        inner = [(one, counter) for name, counter in lists for one in getattr(message, name) or ()]
        if own and not (name in _TOP_WHERE_EMPTY and inner):
            code: int = message.error_code  # type: ignore[attr-defined]
            if code or name not in _NO_NONE_AT_THE_TOP:
                errors[code] += 1
        for one, counter in inner:
            counter(one, errors)

    special = {"OffsetFetchResponse"} | _NOT_AT_THE_TOP | _ONLY_AT_THE_TOP | _NO_NONE_AT_THE_TOP | _TOP_WHERE_EMPTY
    return count if name in special else count_all


def _count_added_partitions(message: Any, errors: Counter[int]) -> None:
    """AddPartitionsToTxnResponse.errorCounts: a repeated transaction or partition counts once."""
    old = message.results_by_topic_v3_and_below
    if not old:
        errors[message.error_code] += 1
    transactions = {one.transactional_id: one.topic_results for one in message.results_by_transaction}
    for topics in ([old] if old else []) + [*transactions.values()]:
        found = {(topic.name, one.partition_index): one.partition_error_code for topic in topics for one in topic.results_by_partition}
        errors.update(found.values())


def _count_share_offsets(message: Any, errors: Counter[int]) -> None:
    """DescribeShareGroupOffsetsResponse.errorCounts: a group with an error counts only this one, and a repeated group counts once."""
    errors.update({group.group_id: group.error_code for group in message.groups if group.error_code}.values())
    for group in message.groups:
        errors.update(one.error_code for topic in group.topics for one in topic.partitions)


def _counter(kind: type[Struct]) -> CountErrors:
    """All error codes of a structure and of those in it."""
    own, lists = _has_own(kind), _lists(kind)

    def count(struct: Struct, errors: Counter[int]) -> None:
        if own:
            errors[struct.error_code] += 1  # type: ignore[attr-defined]
        for name, counter in lists:
            for one in getattr(struct, name) or ():
                counter(one, errors)

    return count


def _lists(kind: type[Struct]) -> tuple[tuple[str, CountErrors], ...]:
    """The arrays of structures that have error codes in them."""
    inner = [(field.name, field.of) for field in kind.FIELDS if field.of is not None and field.type.startswith("[]")]
    return tuple((name, _counter(of)) for name, of in inner if _has_error(of))


def _has_own(kind: type[Struct]) -> bool:
    return any(field.name == "error_code" for field in kind.FIELDS)


def _has_error(kind: type[Struct]) -> bool:
    return _has_own(kind) or any(field.of is not None and _has_error(field.of) for field in kind.FIELDS)
