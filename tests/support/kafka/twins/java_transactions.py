"""Kafka's TransactionCoordinator in the oracle's JVM. A test controls its log, metadata, producer ids and brokers.

The coordinator needs classes, not interfaces (ReplicaManager, NetworkClient). Javassist, which is among Kafka's jars, makes subclasses of
them: an append waits until the test ends it, and requests to brokers are handed out. The objects are made without a constructor.
"""

from __future__ import annotations

from typing import Any, Final

from kops.protocol.declaration import Message
from tests.support.kafka.manual_jvm import ManualClock, ManualScheduler, named
from tests.support.kafka.twins.java_coordinators import KAFKA, JavaCoordinators

TXN: Final = "kafka.coordinator.transaction."
RECORDS: Final = f"{KAFKA}common.record.internal.MemoryRecords"
PARTITION_RESPONSE: Final = f"{KAFKA}common.requests.ProduceResponse.PartitionResponse"
_REPLICAS: Final = (
    "public java.util.ArrayList appends; public Object log; public Object config;",
    "public void start() { appends = new java.util.ArrayList(); }",
    "public void setLog(Object made) { log = made; }",
    "public void setConfig(Object made) { config = made; }",
    f"""public {KAFKA}common.TopicIdPartition topicIdPartition({KAFKA}common.TopicPartition key) {{
        return new {KAFKA}common.TopicIdPartition({KAFKA}common.Uuid.ZERO_UUID, key);
    }}""",
    f"public scala.Option getLogConfig({KAFKA}common.TopicPartition key) {{ return scala.Option.apply(config); }}",
    f"public scala.Option getLog({KAFKA}common.TopicPartition key) {{ return scala.Option.apply(log); }}",
    f"public scala.Option getLogEndOffset({KAFKA}common.TopicPartition key) {{ return scala.Option.apply((Object) Long.valueOf(1L)); }}",
    f"""public void appendRecords(long timeoutMs, short acks, boolean internal, {KAFKA}storage.internals.log.AppendOrigin origin,
            scala.collection.Map entries, scala.Function1 done, scala.Function1 stats, {KAFKA}server.common.RequestLocal local,
            scala.collection.Map guards, short version) {{
        scala.Tuple2 entry = (scala.Tuple2) ((scala.collection.IterableOps) entries).head();
        java.nio.ByteBuffer buffer = (({RECORDS}) entry._2()).buffer().duplicate();
        byte[] data = new byte[buffer.remaining()];
        buffer.get(data);
        appends.add(new Object[] {{ Long.valueOf(timeoutMs), data, entry._1(), done, origin.toString() + acks + internal }});
    }}""",
    f"""public void end({KAFKA}common.protocol.Errors error) {{
        Object[] append = (Object[]) appends.remove(0);
        Object response = new {PARTITION_RESPONSE}(error);
        ((scala.Function1) append[3]).apply(java.util.Collections.singletonMap(append[2], response));
    }}""",
)
_LOG: Final = (
    "public Object records;",
    "public void setRecords(Object made) { records = made; }",
    "public long logStartOffset() { return 0L; }",
    f"""public {KAFKA}storage.internals.log.FetchDataInfo read(long offset, int size,
            {KAFKA}server.storage.log.FetchIsolation isolation, boolean atLeastOne) {{
        return new {KAFKA}storage.internals.log.FetchDataInfo(
            new {KAFKA}storage.internals.log.LogOffsetMetadata(0L), ({KAFKA}common.record.internal.Records) records);
    }}""",
)
_CACHE: Final = (
    "public java.util.HashMap leaders = new java.util.HashMap(); public Object features;",
    f"""public void setVersion(int version) {{
        features = new {KAFKA}server.common.FinalizedFeatures({KAFKA}server.common.MetadataVersion.LATEST_PRODUCTION,
            java.util.Collections.singletonMap("transaction.version", Short.valueOf((short) version)), 0L);
    }}""",
    f"public {KAFKA}server.common.FinalizedFeatures features() {{ return ({KAFKA}server.common.FinalizedFeatures) features; }}",
    f"""public java.util.Optional getPartitionLeaderEndpoint(String topic, int partition, {KAFKA}common.network.ListenerName listener) {{
        return (java.util.Optional) leaders.get(topic + "-" + partition);
    }}""",
)
_IDS: Final = (
    "public long next = 1000L;",
    "public void setNext(long value) { next = value; }",
    "public Object apply() { return this; }",
    f"""public long generateProducerId() throws Exception {{
        if (next < 0L) throw {KAFKA}common.protocol.Errors.COORDINATOR_LOAD_IN_PROGRESS.exception();
        return next++;
    }}""",
)
_COUNT: Final = ("public int count = 1;", "public Object apply() { return Integer.valueOf(count); }")
_TOLD: Final = (
    "public java.util.ArrayList told = new java.util.ArrayList(); public boolean isGiver;",
    "public void give() { isGiver = true; }",
    "public Object apply(Object one) { if (isGiver) return this; told.add(one); return scala.runtime.BoxedUnit.UNIT; }",
    """public Object apply(Object one, Object two, Object three) {
        told.add(new Object[] { one, two, three }); return scala.runtime.BoxedUnit.UNIT;
    }""",
)


class JavaTransactions:
    """The classes, made once for a JVM."""

    def __init__(self, java: JavaCoordinators) -> None:
        self.java = java
        self.oracle = java.oracle
        jvm = self.oracle.jvm
        field = named(self.oracle, "sun.misc.Unsafe").getDeclaredField("theUnsafe")
        field.setAccessible(True)
        self._unsafe = field.get(None)
        self._pool = jvm.javassist.ClassPool.getDefault()
        self.replicas = self.define("kafka.server.KopsReplicas", "kafka.server.ReplicaManager", _REPLICAS)
        self.log = self.define(f"{KAFKA}storage.internals.log.KopsLog", f"{KAFKA}storage.internals.log.UnifiedLog", _LOG)
        self.network = self.define(f"{KAFKA}clients.KopsNetwork", f"{KAFKA}clients.NetworkClient", ("public void wakeup() {}",))
        beside = f"{TXN}TransactionCoordinator"
        self.cache = self.define(f"{TXN}KopsCache", beside, _CACHE, f"{KAFKA}metadata.MetadataCache")
        self.ids = self.define(f"{TXN}KopsIds", beside, _IDS, f"{KAFKA}coordinator.transaction.ProducerIdManager", "scala.Function0")
        self.count = self.define(f"{TXN}KopsCount", beside, _COUNT, "scala.Function0")
        self.told = self.define(f"{TXN}KopsTold", beside, _TOLD, "scala.Function1", "scala.Function3")

    def define(self, name: str, beside: str, members: tuple[str, ...], *interfaces: str) -> Any:
        """Make a class in the package of `beside`: a subclass of it, or a class with interfaces."""
        jvm = self.oracle.jvm
        made = self._pool.getOrNull(name)
        if made is not None:
            return named(self.oracle, name)
        made = self._pool.makeClass(name) if interfaces else self._pool.makeClass(name, self._pool.get(beside))
        for interface in interfaces:
            made.addInterface(self._pool.get(interface))
        fields = [one.strip() for member in members if "(" not in member.partition("=")[0] for one in member.split(";") if one.strip()]
        methods = [member for member in members if "(" in member.partition("=")[0]]
        for one in fields:
            made.addField(jvm.javassist.CtField.make(f"{one};", made))
        if interfaces:
            made.addConstructor(jvm.javassist.CtNewConstructor.defaultConstructor(made))
        for method in methods:
            made.addMethod(jvm.javassist.CtNewMethod.make(method, made))
        return made.toClass(named(self.oracle, beside))

    def new(self, made: Any) -> Any:
        """Return an object of a class, made without a constructor."""
        return self._unsafe.allocateInstance(made)

    def plain(self, made: Any) -> Any:
        """Return an object of a class, made by its constructor."""
        return made.getDeclaredConstructor(self.oracle.gateway.new_array(self.oracle.jvm.java.lang.Class, 0)).newInstance(
            self.oracle.gateway.new_array(self.oracle.jvm.java.lang.Object, 0)
        )


class JavaCoordinator:
    """One coordinator of Kafka. Its transaction log has one partition."""

    def __init__(self, made: JavaTransactions, clock: ManualClock, *, version: int, two_phase_commit: bool, max_batch: int) -> None:
        self.made, self.java = made, made.java
        oracle = made.oracle
        self.scheduler = ManualScheduler(oracle, clock)
        self.replicas = made.new(made.replicas)
        self.replicas.start()
        log_config = oracle.java_class(f"{KAFKA}storage.internals.log.LogConfig")
        self.replicas.setConfig(log_config(oracle.jvm.java.util.Map.of("max.message.bytes", str(max_batch))))
        self.cache, self.ids = made.plain(made.cache), made.plain(made.ids)
        self.cache.setVersion(version)
        metrics = self.java.make("common.metrics.Metrics")
        config = oracle.java_class(f"{TXN}TransactionConfig")(
            604_800_000, 900_000, 1, oracle.short(1), 1 << 20, 5 << 20, 1, 10_000, 3_600_000, two_phase_commit, 30_000
        )
        properties = oracle.properties(
            {
                "node.id": 1,
                "process.roles": "broker",
                "controller.quorum.bootstrap.servers": "localhost:1",
                "controller.listener.names": "C",
                "listener.security.protocol.map": "C:PLAINTEXT,PLAINTEXT:PLAINTEXT",
            }
        )
        broker = oracle.java_class("kafka.server.KafkaConfig").fromProps(properties)
        self.manager = oracle.java_class(f"{TXN}TransactionStateManager")(
            1, self.scheduler.scheduler, self.replicas, self.cache, config, clock.time, metrics
        )
        self.markers = oracle.java_class(f"{TXN}TransactionMarkerChannelManager")(
            broker, self.cache, made.new(made.network), self.manager, clock.time
        )
        self.coordinator = oracle.java_class(f"{TXN}TransactionCoordinator")(
            config, self.scheduler.scheduler, self.ids, self.manager, self.markers, clock.time, self.java.make("common.utils.LogContext")
        )
        # Not the coordinator's own startup, which also starts the thread for markers.
        self.manager.startup(made.plain(made.count), False)
        self.set_active(True)
        self.local = oracle.java_class(f"{KAFKA}server.common.RequestLocal").noCaching()
        self.errors = oracle.java_class(f"{KAFKA}common.protocol.Errors")
        self.versions = oracle.java_class(f"{KAFKA}server.common.TransactionVersion")

    def set_active(self, is_active: bool) -> None:
        """Let the coordinator answer questions, or not."""
        active = self.coordinator.getClass().getDeclaredField("isActive")
        active.setAccessible(True)
        active.get(self.coordinator).set(is_active)

    def told(self) -> Any:
        """Return a callback. Its arguments are added to `told`."""
        return self.made.plain(self.made.told)

    def option(self, value: Any) -> Any:
        """Return a scala.Option."""
        return self.made.oracle.java_class("scala.Option").apply(value)

    def response(self, message: Message, version: int) -> Any:
        """Return a response of kops as Kafka's object."""
        data = self.java.message(message, version)
        return self.java.make(f"common.requests.{type(message).__name__}", data)
