"""Kafka's Sender, RecordAccumulator and TransactionManager in the oracle's JVM, with the clock and the network in a test's hands.

Javassist, which is among Kafka's jars, builds one class in their package. This class is their clock (Time) and their network (KafkaClient):
it hands out requests as bytes, and a test decides when and how each ends. `run` is one turn of the sender's thread.
"""

from __future__ import annotations

from typing import Any, Final, NamedTuple

from kops.errors import ApiError
from kops.protocol.declaration import Message
from kops.protocol.messages import ApiVersionsResponse, MetadataResponse
from tests.support.kafka.manual_jvm import named
from tests.support.kafka.oracle import Oracle

_CLIENTS: Final = "org.apache.kafka.clients."
_COMMON: Final = "org.apache.kafka.common."
_INTERNALS: Final = f"{_CLIENTS}producer.internals."
_NAME: Final = f"{_INTERNALS}KopsProducer"
METADATA_VERSION: Final = 13
_FIELDS: Final = (
    "public long now;",
    "public int correlation;",
    "public java.util.ArrayList requests = new java.util.ArrayList();",
    "public java.util.ArrayList futures = new java.util.ArrayList();",
    "public java.util.ArrayList results = new java.util.ArrayList();",
    "public java.util.LinkedHashSet problems = new java.util.LinkedHashSet();",
    f"public {_CLIENTS}ApiVersions versions = new {_CLIENTS}ApiVersions();",
    f"public {_INTERNALS}ProducerMetadata metadata;",
    f"public {_INTERNALS}RecordAccumulator accumulator;",
    f"public {_INTERNALS}TransactionManager manager;",
    f"public {_INTERNALS}Sender sender;",
)
TIME: Final = (
    "public long milliseconds() { return now; }",
    "public long hiResClockMs() { return now; }",
    "public long nanoseconds() { return now * 1000000L; }",
    "public void sleep(long ms) { now += ms; }",
    "public void waitObject(Object one, java.util.function.Supplier condition, long deadline) { }",
)
CLIENT: Final = (
    f"public boolean isReady({_COMMON}Node node, long at) {{ return true; }}",
    f"public boolean ready({_COMMON}Node node, long at) {{ return true; }}",
    f"public long connectionDelay({_COMMON}Node node, long at) {{ return 0L; }}",
    f"public long pollDelayMs({_COMMON}Node node, long at) {{ return 0L; }}",
    f"public boolean connectionFailed({_COMMON}Node node) {{ return false; }}",
    f"public {_COMMON}errors.AuthenticationException authenticationException({_COMMON}Node node) {{ return null; }}",
    "public java.util.List poll(long timeout, long at) { return java.util.Collections.emptyList(); }",
    "public void disconnect(String node) { }",
    "public void close(String node) { }",
    "public void close() { }",
    f"""public {_CLIENTS}LeastLoadedNode leastLoadedNode(long at) {{
        return new {_CLIENTS}LeastLoadedNode(metadata.fetch().nodeById(1), true);
    }}""",
    "public int inFlightRequestCount() { return 0; }",
    "public boolean hasInFlightRequests() { return false; }",
    "public int inFlightRequestCount(String node) { return 0; }",
    "public boolean hasInFlightRequests(String node) { return false; }",
    "public boolean hasReadyNodes(long at) { return true; }",
    "public void wakeup() { }",
    "public void initiateClose() { }",
    "public boolean active() { return true; }",
    f"""public {_CLIENTS}ClientRequest newClientRequest(String node, {_COMMON}requests.AbstractRequest.Builder builder, long at,
            boolean expects) {{
        return newClientRequest(node, builder, at, expects, 30000, null);
    }}""",
    f"""public {_CLIENTS}ClientRequest newClientRequest(String node, {_COMMON}requests.AbstractRequest.Builder builder, long at,
            boolean expects, int timeout, {_CLIENTS}RequestCompletionHandler callback) {{
        return new {_CLIENTS}ClientRequest(node, builder, correlation++, "kops", at, expects, timeout, callback);
    }}""",
    f"""public void send({_CLIENTS}ClientRequest request, long at) {{
        {_COMMON}requests.AbstractRequest.Builder builder = request.requestBuilder();
        short version = versions.get(request.destination()).latestUsableVersion(
            request.apiKey(), builder.oldestAllowedVersion(), builder.latestAllowedVersion());
        {_COMMON}requests.AbstractRequest made = builder.build(version);
        java.nio.ByteBuffer buffer = made.serialize().buffer().duplicate();
        byte[] data = new byte[buffer.remaining()];
        buffer.get(data);
        requests.add(new Object[] {{ request, Integer.valueOf(request.destination()), Integer.valueOf(request.apiKey().id),
            Integer.valueOf(made.version()), data, Boolean.valueOf(request.expectResponse()) }});
    }}""",
)
_DRIVEN: Final = (
    f"""public void setUp(String id, boolean isIdempotent, int batch, int linger, int delivery, int timeout, int acks, int retries,
            boolean keepsOrder, int largest) {{
        {_COMMON}utils.LogContext context = new {_COMMON}utils.LogContext();
        {_COMMON}metrics.Metrics metrics = new {_COMMON}metrics.Metrics();
        {_COMMON}utils.Time time = this;
        metadata = new {_INTERNALS}ProducerMetadata(0L, 0L, 300000L, 300000L, context,
            new {_COMMON}internals.ClusterResourceListeners(), time);
        if (isIdempotent)
            manager = new {_INTERNALS}TransactionManager(context, id, 60000, 0L, versions, false);
        {_INTERNALS}BufferPool pool = new {_INTERNALS}BufferPool(33554432L, batch, metrics, time, "m");
        accumulator = new {_INTERNALS}RecordAccumulator(context, batch, {_COMMON}compress.Compression.NONE, linger, 0L, 0L, delivery,
            metrics, "m", time, manager, pool);
        sender = new {_INTERNALS}Sender(context, this, metadata, accumulator, keepsOrder, largest, (short) acks, retries,
            new {_INTERNALS}SenderMetricsRegistry(metrics), time, timeout, 0L, manager);
    }}""",
    f"""public void learnVersions(byte[] data, int version) {{
        {_COMMON}message.ApiVersionsResponseData response = new {_COMMON}message.ApiVersionsResponseData(
            new {_COMMON}protocol.ByteBufferAccessor(java.nio.ByteBuffer.wrap(data)), (short) version);
        {_CLIENTS}NodeApiVersions found = new {_CLIENTS}NodeApiVersions(
            response.apiKeys(), response.supportedFeatures(), response.finalizedFeatures(), response.finalizedFeaturesEpoch());
        versions.update("1", found);
        versions.update("2", found);
    }}""",
    f"""public void learn(byte[] data, int version, String topics) {{
        String[] names = topics.split(",");
        for (int i = 0; i < names.length; i++) metadata.add(names[i], now);
        metadata.updateWithCurrentRequestVersion({_COMMON}requests.MetadataResponse.parse(
            new {_COMMON}protocol.ByteBufferAccessor(java.nio.ByteBuffer.wrap(data)), (short) version), false, now);
    }}""",
    f"""public String append(String topic, int partition, long timestamp, byte[] value) {{
        try {{
            {_INTERNALS}RecordAccumulator.RecordAppendResult result = accumulator.append(topic, partition, timestamp, null, value,
                {_COMMON}record.internal.Record.EMPTY_HEADERS, null, 0L, now, metadata.fetch());
            futures.add(result.future);
            if (manager != null) manager.maybeAddPartition(new {_COMMON}TopicPartition(topic, partition));
            return "";
        }} catch (Exception error) {{ return error.getClass().getSimpleName(); }}
    }}""",
    """public void run() {
        try { sender.runOnce(); } catch (Exception error) { problems.add(error.toString()); }
    }""",
    f"""public void answer(int index, int kind, byte[] data) {{
        Object[] entry = (Object[]) requests.get(index);
        {_CLIENTS}ClientRequest request = ({_CLIENTS}ClientRequest) entry[0];
        short version = (short) ((Integer) entry[3]).intValue();
        {_COMMON}requests.AbstractResponse response = null;
        if (kind == 0)
            response = {_COMMON}requests.AbstractResponse.parseResponse(request.apiKey(),
                new {_COMMON}protocol.ByteBufferAccessor(java.nio.ByteBuffer.wrap(data)), version);
        {_COMMON}errors.UnsupportedVersionException mismatch = null;
        if (kind == 3) mismatch = new {_COMMON}errors.UnsupportedVersionException("too old");
        try {{
            request.callback().onComplete(new {_CLIENTS}ClientResponse(request.makeHeader(version), request.callback(),
                request.destination(), now, now, kind == 1 || kind == 2, kind == 2, mismatch, null, response));
        }} catch (Exception error) {{ problems.add(error.toString()); }}
    }}""",
    """public String call(String name) {
        try {
            if (name.equals("begin")) manager.beginTransaction();
            else if (name.equals("init")) results.add(manager.initializeTransactions(false));
            else if (name.equals("commit")) results.add(manager.beginCommit());
            else results.add(manager.beginAbort());
            return "";
        } catch (Exception error) { return error.getClass().getSimpleName(); }
    }""",
    f"""public String commitOffset(String topic, int partition, long offset, String group, int generation, String member) {{
        try {{
            java.util.HashMap offsets = new java.util.HashMap();
            offsets.put(new {_COMMON}TopicPartition(topic, partition), new {_CLIENTS}consumer.OffsetAndMetadata(offset));
            results.add(manager.sendOffsetsToTransaction(offsets,
                new {_CLIENTS}consumer.ConsumerGroupMetadata(group, generation, member, java.util.Optional.empty())));
            return "";
        }} catch (Exception error) {{ return error.getClass().getSimpleName(); }}
    }}""",
    f"""public String see(boolean isInit) {{
        {_INTERNALS}TransactionalRequestResult result = ({_INTERNALS}TransactionalRequestResult) results.get(results.size() - 1);
        if (!result.isCompleted()) return "pending";
        try {{
            result.await(0L, java.util.concurrent.TimeUnit.MILLISECONDS, "");
            if (isInit) manager.maybeUpdateTransactionV2Enabled(true);
            return "";
        }} catch (Exception error) {{ return error.getClass().getSimpleName(); }}
    }}""",
    f"""public String state() {{
        if (manager == null) return "";
        java.lang.reflect.Field field = {_INTERNALS}TransactionManager.class.getDeclaredField("currentState");
        field.setAccessible(true);
        return field.get(manager).toString() + " " + manager.producerIdAndEpoch().producerId + " " + manager.producerIdAndEpoch().epoch;
    }}""",
    f"""public String outcomes() {{
        StringBuilder text = new StringBuilder();
        for (int i = 0; i < futures.size(); i++) {{
            {_INTERNALS}FutureRecordMetadata future = ({_INTERNALS}FutureRecordMetadata) futures.get(i);
            if (i > 0) text.append(" ");
            if (!future.isDone()) text.append("-");
            else {{
                try {{
                    {_CLIENTS}producer.RecordMetadata place = future.get();
                    text.append(place.offset()).append("@").append(place.timestamp());
                }} catch (java.util.concurrent.ExecutionException error) {{ text.append(error.getCause().getClass().getSimpleName()); }}
            }}
        }}
        return text.toString();
    }}""",
    """public String report() {
        Object problem = problems.isEmpty() ? "" : problems.iterator().next();
        return problem + "|" + state() + "|" + outcomes();
    }""",
    """public java.util.List outgoing(int from) {
        java.util.ArrayList found = new java.util.ArrayList();
        for (int i = from; i < requests.size(); i++) {
            Object[] entry = (Object[]) requests.get(i);
            found.add(new Object[] { entry[1], entry[2], entry[3], entry[4], entry[5] });
        }
        return found;
    }""",
)


class Sent(NamedTuple):
    """A request: its node, API, version and bytes, and whether it expects an answer."""

    node: int
    api_key: int
    version: int
    data: bytes
    expects_response: bool


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
    return made.toClass(named(oracle, f"{_INTERNALS}Sender"))


class JavaProducer:
    """A producer of Kafka's classes. `java` has the methods above."""

    def __init__(self, oracle: Oracle, now_ms: int, settings: dict[str, Any]) -> None:
        jvm = oracle.jvm
        maker = _class(oracle).getDeclaredConstructor(oracle.gateway.new_array(jvm.java.lang.Class, 0))
        self.java = maker.newInstance(oracle.gateway.new_array(jvm.java.lang.Object, 0))
        self._seen = 0
        self.advance(now_ms)
        self.java.setUp(
            settings.get("transactional.id"),
            settings["enable.idempotence"],
            settings["batch.size"],
            settings["linger.ms"],
            settings["delivery.timeout.ms"],
            settings["request.timeout.ms"],
            settings["acks"],
            settings["retries"],
            settings["max.in.flight.requests.per.connection"] == 1,
            settings["max.request.size"],
        )

    def advance(self, ms: int) -> None:
        """Let time pass."""
        if ms:
            self.java.sleep(ms)

    def learn_versions(self, response: ApiVersionsResponse) -> None:
        """Set the versions and features of all nodes."""
        self.java.learnVersions(response.encode(4), 4)

    def learn(self, response: MetadataResponse) -> None:
        """Set the metadata of the topics."""
        self.java.learn(response.encode(METADATA_VERSION), METADATA_VERSION, ",".join(topic.name or "" for topic in response.topics))

    def take(self) -> list[Sent]:
        """Return the new requests."""
        found = [Sent(node, key, version, bytes(data), expects) for node, key, version, data, expects in self.java.outgoing(self._seen)]
        self._seen += len(found)
        return found

    def answer(self, index: int, answer: Message | ApiError | None, version: int) -> None:
        """End a request. None means that it is written and expects no answer."""
        if isinstance(answer, Message):
            self.java.answer(index, 0, answer.encode(version))
        else:
            kinds = {"NETWORK_EXCEPTION": 1, "REQUEST_TIMED_OUT": 2, "UNSUPPORTED_VERSION": 3}
            self.java.answer(index, 4 if answer is None else kinds[answer.name], b"")

    def report(self) -> tuple[str, str, str]:
        """Return the first exception outside of calls, the state, the producer id, and the outcome of each record."""
        problem, state, outcomes = str(self.java.report()).split("|")
        return problem, state, outcomes
