"""Kafka's Fetcher, OffsetFetcher and SubscriptionState in the oracle's JVM, with the clock and the network in a test's hands.

Javassist, which is among Kafka's jars, builds one class in their package. This class is their clock (Time) and their network (KafkaClient),
as in `java_producer`. Its methods do what ClassicKafkaConsumer does with these parts in `assign`, `seek`, `poll` and `close`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from kops.errors import ApiError
from kops.protocol.declaration import Message
from kops.protocol.messages import ApiVersionsResponse, MetadataResponse
from tests.support.kafka.manual_jvm import named
from tests.support.kafka.oracle import Oracle
from tests.support.kafka.twins.java_producer import CLIENT, METADATA_VERSION, TIME, Sent

_CLIENTS: Final = "org.apache.kafka.clients."
_COMMON: Final = "org.apache.kafka.common."
_INTERNALS: Final = f"{_CLIENTS}consumer.internals."
_NAME: Final = f"{_INTERNALS}KopsFetcher"
_FIELDS: Final = (
    "public long now;",
    "public int correlation;",
    "public java.util.ArrayList requests = new java.util.ArrayList();",
    "public boolean isCommitted;",
    "public java.lang.reflect.Method assigned;",
    "public java.lang.reflect.Field retry;",
    f"public {_CLIENTS}ApiVersions versions = new {_CLIENTS}ApiVersions();",
    f"public {_INTERNALS}ConsumerMetadata metadata;",
    f"public {_INTERNALS}SubscriptionState subscriptions;",
    f"public {_INTERNALS}ConsumerNetworkClient network;",
    f"public {_INTERNALS}Fetcher fetcher;",
    f"public {_INTERNALS}OffsetFetcher offsets;",
    f"public {_INTERNALS}RequestFuture lookUp;",
)
_DRIVEN: Final = (
    f"""public void setUp(int largest, boolean isCommitted, boolean checksCrcs, String reset, String rack, int backoff, int timeout,
            int age) {{
        this.isCommitted = isCommitted;
        {_COMMON}utils.LogContext context = new {_COMMON}utils.LogContext();
        {_COMMON}utils.Time time = this;
        {_COMMON}IsolationLevel isolation = isCommitted ? {_COMMON}IsolationLevel.READ_COMMITTED
            : {_COMMON}IsolationLevel.READ_UNCOMMITTED;
        subscriptions = new {_INTERNALS}SubscriptionState(context, {_INTERNALS}AutoOffsetResetStrategy.fromString(reset));
        metadata = new {_INTERNALS}ConsumerMetadata(0L, 0L, (long) age, false, true, subscriptions, context,
            new {_COMMON}internals.ClusterResourceListeners());
        network = new {_INTERNALS}ConsumerNetworkClient(context, this, metadata, time, (long) backoff, timeout, 1000);
        {_INTERNALS}FetchConfig config = new {_INTERNALS}FetchConfig(1, 1000000, 500, 100000, largest, checksCrcs, rack, isolation);
        {_COMMON}metrics.Metrics metrics = new {_COMMON}metrics.Metrics();
        {_COMMON}serialization.ByteArrayDeserializer bytes = new {_COMMON}serialization.ByteArrayDeserializer();
        fetcher = new {_INTERNALS}Fetcher(context, network, metadata, subscriptions, config,
            new {_INTERNALS}Deserializers(bytes, bytes, metrics),
            new {_INTERNALS}FetchMetricsManager(metrics, new {_INTERNALS}FetchMetricsRegistry("c")), time, versions);
        offsets = new {_INTERNALS}OffsetFetcher(context, network, metadata, subscriptions, time, (long) backoff, timeout, isolation,
            versions);
        assigned = {_INTERNALS}SubscriptionState.class.getDeclaredMethod("assignedStateOrNull",
            new Class[] {{ {_COMMON}TopicPartition.class }});
        assigned.setAccessible(true);
        retry = Class.forName("{_INTERNALS}SubscriptionState$TopicPartitionState").getDeclaredField("nextRetryTimeMs");
        retry.setAccessible(true);
    }}""",
    f"""public void learnVersions(byte[] data, int version) {{
        {_COMMON}message.ApiVersionsResponseData response = new {_COMMON}message.ApiVersionsResponseData(
            new {_COMMON}protocol.ByteBufferAccessor(java.nio.ByteBuffer.wrap(data)), (short) version);
        {_CLIENTS}NodeApiVersions found = new {_CLIENTS}NodeApiVersions(
            response.apiKeys(), response.supportedFeatures(), response.finalizedFeatures(), response.finalizedFeaturesEpoch());
        for (int i = 1; i < 4; i++) versions.update(String.valueOf(i), found);
    }}""",
    f"""public void learn(byte[] data, int version) {{
        metadata.updateWithCurrentRequestVersion({_COMMON}requests.MetadataResponse.parse(
            new {_COMMON}protocol.ByteBufferAccessor(java.nio.ByteBuffer.wrap(data)), (short) version), false, now);
    }}""",
    f"""public {_COMMON}TopicPartition at(String key) {{
        int cut = key.lastIndexOf("-");
        return new {_COMMON}TopicPartition(key.substring(0, cut), Integer.parseInt(key.substring(cut + 1)));
    }}""",
    """public String order() { return subscriptions.assignedPartitionsList().toString(); }""",
    """public String assign(String keys) {
        java.util.HashSet wanted = new java.util.HashSet();
        String[] each = keys.split(",");
        for (int i = 0; i < each.length; i++) wanted.add(at(each[i]));
        fetcher.clearBufferedDataForUnassignedPartitions(wanted);
        if (subscriptions.assignFromUser(wanted)) metadata.requestUpdateForNewTopics();
        return order();
    }""",
    f"""public void seek(String key, long offset, int epoch) {{
        java.util.Optional known = epoch < 0 ? java.util.Optional.empty() : java.util.Optional.of(Integer.valueOf(epoch));
        {_INTERNALS}SubscriptionState.FetchPosition position =
            new {_INTERNALS}SubscriptionState.FetchPosition(offset, known, metadata.currentLeader(at(key)));
        if (epoch >= 0) metadata.updateLastSeenEpochIfNewer(at(key), epoch);
        subscriptions.seekUnvalidated(at(key), position);
    }}""",
    f"""public void reset(String key, String strategy) {{
        subscriptions.requestOffsetReset(at(key), {_INTERNALS}AutoOffsetResetStrategy.fromString(strategy));
    }}""",
    """public void pause(String key, boolean isPaused) {
        if (isPaused) subscriptions.pause(at(key)); else subscriptions.resume(at(key));
    }""",
    f"""public java.util.Map text(java.util.Map found) {{
        java.util.TreeMap made = new java.util.TreeMap();
        java.util.Iterator each = found.entrySet().iterator();
        while (each.hasNext()) {{
            java.util.Map.Entry entry = (java.util.Map.Entry) each.next();
            Object value = entry.getValue();
            if (value instanceof {_CLIENTS}consumer.OffsetAndMetadata) {{
                {_CLIENTS}consumer.OffsetAndMetadata one = ({_CLIENTS}consumer.OffsetAndMetadata) value;
                value = one.offset() + "/" + one.leaderEpoch().orElse(Integer.valueOf(-1));
            }}
            made.put(entry.getKey().toString(), value.toString());
        }}
        return made;
    }}""",
    f"""public String told(Exception error) {{
        if (error instanceof {_CLIENTS}consumer.LogTruncationException)
            return " " + new java.util.TreeMap(text((({_CLIENTS}consumer.LogTruncationException) error).offsetOutOfRangePartitions()))
                + text((({_CLIENTS}consumer.LogTruncationException) error).divergentOffsets());
        return "";
    }}""",
    """public String positions() {
        try {
            offsets.validatePositionsIfNeeded();
            subscriptions.resetInitializingPositions();
            offsets.resetPositionsIfNeeded();
            return "";
        } catch (Exception error) { return error.getClass().getSimpleName() + told(error); }
    }""",
    f"""public String collect() {{
        try {{
            {_INTERNALS}Fetch fetch = fetcher.collectFetch();
            StringBuilder text = new StringBuilder();
            java.util.Iterator parts = fetch.records().entrySet().iterator();
            while (parts.hasNext()) {{
                java.util.Map.Entry part = (java.util.Map.Entry) parts.next();
                java.util.Iterator records = ((java.util.List) part.getValue()).iterator();
                text.append(part.getKey()).append(":");
                while (records.hasNext()) {{
                    {_CLIENTS}consumer.ConsumerRecord record = ({_CLIENTS}consumer.ConsumerRecord) records.next();
                    text.append(record.offset()).append("/").append(record.leaderEpoch().orElse(Integer.valueOf(-1))).append("=")
                        .append(new String((byte[]) record.value())).append(",");
                }}
                text.append(" ");
            }}
            return (fetch.positionAdvanced() ? "+" : "-") + text;
        }} catch (Exception error) {{ return "!" + error.getClass().getSimpleName(); }}
    }}""",
    "public void fetches() { fetcher.sendFetches(); network.transmitSends(); }",
    "public void end() { fetcher.close(timer(0L)); network.transmitSends(); }",
    f"""public String answer(int index, int kind, byte[] data) {{
        Object[] entry = (Object[]) requests.get(index);
        {_CLIENTS}ClientRequest request = ({_CLIENTS}ClientRequest) entry[0];
        short version = (short) ((Integer) entry[3]).intValue();
        {_COMMON}requests.AbstractResponse response = null;
        if (kind == 0)
            response = {_COMMON}requests.AbstractResponse.parseResponse(request.apiKey(),
                new {_COMMON}protocol.ByteBufferAccessor(java.nio.ByteBuffer.wrap(data)), version);
        {_COMMON}errors.UnsupportedVersionException mismatch = null;
        if (kind == 3) mismatch = new {_COMMON}errors.UnsupportedVersionException("too old");
        if (kind == 1 || kind == 2) metadata.requestUpdate(false);
        request.callback().onComplete(new {_CLIENTS}ClientResponse(request.makeHeader(version), request.callback(),
            request.destination(), now, now, kind == 1 || kind == 2, kind == 2, mismatch, null, response));
        try {{ network.pollNoWakeup(); return ""; }} catch (Exception error) {{ return error.toString(); }}
    }}""",
    f"""public void lookUp(String keys, long time) {{
        java.util.HashMap wanted = new java.util.HashMap();
        String[] each = keys.split(",");
        for (int i = 0; i < each.length; i++) wanted.put(at(each[i]), Long.valueOf(time));
        java.lang.reflect.Method send = {_INTERNALS}OffsetFetcher.class.getDeclaredMethod("sendListOffsetsRequests",
            new Class[] {{ java.util.Map.class, Boolean.TYPE }});
        send.setAccessible(true);
        lookUp = ({_INTERNALS}RequestFuture) send.invoke(offsets, new Object[] {{ wanted, Boolean.TRUE }});
        network.transmitSends();
    }}""",
    # As OffsetFetcher.fetchOffsetsByTimes before it asks again (ConsumerNetworkClient.awaitMetadataUpdate).
    """public String again() { metadata.requestUpdate(false); return "again"; }""",
    f"""public String lookedUp() {{
        if (!lookUp.isDone()) return "pending";
        if (lookUp.failed()) return lookUp.isRetriable() ? again() : lookUp.exception().getClass().getSimpleName();
        {_INTERNALS}OffsetFetcherUtils.ListOffsetResult found = ({_INTERNALS}OffsetFetcherUtils.ListOffsetResult) lookUp.value();
        if (!found.partitionsToRetry.isEmpty()) return again();
        java.util.TreeMap made = new java.util.TreeMap();
        java.util.Iterator each = found.fetchedOffsets.entrySet().iterator();
        while (each.hasNext()) {{
            java.util.Map.Entry entry = (java.util.Map.Entry) each.next();
            {_INTERNALS}OffsetFetcherUtils.ListOffsetData one = ({_INTERNALS}OffsetFetcherUtils.ListOffsetData) entry.getValue();
            made.put(entry.getKey().toString(), one.offset + "/" + one.leaderEpoch.orElse(Integer.valueOf(-1)) + "@" + one.timestamp);
        }}
        return made.toString();
    }}""",
    f"""public String report() {{
        StringBuilder text = new StringBuilder();
        {_COMMON}IsolationLevel isolation = isCommitted ? {_COMMON}IsolationLevel.READ_COMMITTED
            : {_COMMON}IsolationLevel.READ_UNCOMMITTED;
        java.util.Iterator keys = subscriptions.assignedPartitionsList().iterator();
        while (keys.hasNext()) {{
            {_COMMON}TopicPartition key = ({_COMMON}TopicPartition) keys.next();
            {_INTERNALS}SubscriptionState.FetchPosition place = subscriptions.positionOrNull(key);
            Object next = retry.get(assigned.invoke(subscriptions, new Object[] {{ key }}));
            text.append(key).append(" ").append(subscriptions.awaitingValidation(key) ? "VALIDATING"
                : subscriptions.isOffsetResetNeeded(key) ? "RESETTING"
                : subscriptions.hasValidPosition(key) ? "FETCHING" : "INITIALIZING");
            if (place != null) text.append(" ").append(place.offset).append("/").append(place.offsetEpoch.orElse(Integer.valueOf(-1)))
                .append("@").append(place.currentLeader.leader.isPresent()
                    ? (({_COMMON}Node) place.currentLeader.leader.get()).id() : -1)
                .append("/").append(place.currentLeader.epoch.orElse(Integer.valueOf(-1)));
            text.append(" ").append(subscriptions.preferredReadReplica(key, now).orElse(Integer.valueOf(-1)))
                .append(" ").append(subscriptions.isPaused(key))
                .append(" ").append(subscriptions.partitionEndOffset(key, isolation))
                .append(" ").append(place == null ? null : subscriptions.partitionLead(key))
                .append(" ").append(next == null || ((Long) next).longValue() <= now ? 0L : ((Long) next).longValue() - now)
                .append(";");
        }}
        return text.append(metadata.updateRequested()).toString();
    }}""",
    """public java.util.List outgoing(int from) {
        java.util.ArrayList found = new java.util.ArrayList();
        for (int i = from; i < requests.size(); i++) {
            Object[] entry = (Object[]) requests.get(i);
            found.add(new Object[] { entry[1], entry[2], entry[3], entry[4], entry[5] });
        }
        return found;
    }""",
)


def _class(oracle: Oracle) -> Any:
    pool = oracle.jvm.javassist.ClassPool.getDefault()
    if pool.getOrNull(_NAME) is not None:
        return named(oracle, _NAME)
    made = pool.makeClass(_NAME)
    for interface in (f"{_CLIENTS}KafkaClient", f"{_COMMON}utils.Time"):
        made.addInterface(pool.get(interface))
    for field in _FIELDS:
        made.addField(oracle.jvm.javassist.CtField.make(field, made))
    made.addConstructor(oracle.jvm.javassist.CtNewConstructor.defaultConstructor(made))
    for method in (*TIME, *CLIENT, *_DRIVEN):
        made.addMethod(oracle.jvm.javassist.CtNewMethod.make(method, made))
    return made.toClass(named(oracle, f"{_INTERNALS}Fetcher"))


class JavaFetcher:
    """The parts of a consumer of Kafka that fetch. `java` has the methods above."""

    def __init__(self, oracle: Oracle, now_ms: int, settings: dict[str, Any]) -> None:
        jvm = oracle.jvm
        maker = _class(oracle).getDeclaredConstructor(oracle.gateway.new_array(jvm.java.lang.Class, 0))
        self.java = maker.newInstance(oracle.gateway.new_array(jvm.java.lang.Object, 0))
        self._seen = 0
        self.advance(now_ms)
        self.java.setUp(
            settings["max.poll.records"],
            settings["isolation.level"] == "read_committed",
            settings["check.crcs"],
            settings["auto.offset.reset"],
            settings["client.rack"],
            settings["retry.backoff.ms"],
            settings["request.timeout.ms"],
            settings["metadata.max.age.ms"],
        )

    def advance(self, ms: int) -> None:
        """Let time pass."""
        if ms:
            self.java.sleep(ms)

    def learn_versions(self, response: ApiVersionsResponse) -> None:
        """Set the versions of all nodes."""
        self.java.learnVersions(response.encode(4), 4)

    def learn(self, response: MetadataResponse) -> None:
        """Set the metadata."""
        self.java.learn(response.encode(METADATA_VERSION), METADATA_VERSION)

    def assign(self, keys: Sequence[str]) -> list[str]:
        """Assign partitions. Returns them in the order of the fetches, which is that of a hash set."""
        return str(self.java.assign(",".join(keys)))[1:-1].split(", ")

    def take(self) -> list[Sent]:
        """Return the new requests."""
        found = [Sent(node, key, version, bytes(data), expects) for node, key, version, data, expects in self.java.outgoing(self._seen)]
        self._seen += len(found)
        return found

    def answer(self, index: int, answer: Message | ApiError, version: int) -> str:
        """End a request. Returns an exception that was not caught."""
        if isinstance(answer, Message):
            return str(self.java.answer(index, 0, answer.encode(version)))
        kinds = {"NETWORK_EXCEPTION": 1, "REQUEST_TIMED_OUT": 2, "UNSUPPORTED_VERSION": 3}
        return str(self.java.answer(index, kinds[answer.name], b""))
