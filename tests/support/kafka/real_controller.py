"""The managers of Kafka's controller in the oracle's JVM. Requests and records go in as bytes, records and responses come out as bytes.

The managers are not public, so java.lang.reflect opens them. Nothing else of QuorumController is present: no raft client and no event
queue.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from py4j.protocol import Py4JJavaError

from kops.metadata.controller.base.result import Record
from kops.metadata.records import read_record, write_record
from kops.protocol.declaration import Message
from kops.protocol.errors import by_exception
from tests.support.kafka.manual_jvm import ManualClock, constant, named, proxy
from tests.support.kafka.oracle import Oracle

CONTROLLER = "org.apache.kafka.controller"
MESSAGES = "org.apache.kafka.common.message"
NODE_ID = 3000
INVOKE = ("java.lang.Object", "java.lang.reflect.Method", "[Ljava.lang.Object;")


class RealError(AssertionError):
    """An exception of a manager: the error's name and text as ApiError.fromThrowable gives them, and the exception's own text."""

    def __init__(self, name: str, text: str | None, reason: str) -> None:
        super().__init__(f"{name}: {reason}")
        self.name = name
        self.text = text


class StaleIndexError(AssertionError):
    """Kafka's controller failed on an outdated BrokersToElrs.

    A ClearElrRecord leaves BrokersToElrs as it was. Once the topic is gone, a look-up there fails and the controller resigns.
    """


class RealController:
    """The managers of one controller.

    The clock returns one number as milliseconds and as nanoseconds, so the session timeout is in either unit.
    """

    def __init__(self, oracle: Oracle, cluster_id: str, seed: int, static_config: Mapping[str, str], session_timeout: int) -> None:
        self.oracle = oracle
        self.jvm = oracle.jvm
        self.clock = ManualClock(oracle, 1 << 40)
        self._methods: dict[tuple[str, str], Any] = {}
        self._fields(static_config)
        features = oracle.java_class("org.apache.kafka.controller.QuorumFeatures")
        ids = self.jvm.java.util.ArrayList()
        ids.add(NODE_ID)
        quorum = features(NODE_ID, features.defaultSupportedFeatureMap(False), ids)
        self.features = self._build("FeatureControlManager", setQuorumFeatures=quorum)
        placer = oracle.java_class("org.apache.kafka.metadata.placement.StripedReplicaPlacer")
        random = self.jvm.java.util.Random(seed)
        handler = proxy(oracle, f"{CONTROLLER}.ClusterControlManager$BrokerShutdownHandler", constant(oracle, True))
        self.cluster = self._build(
            "ClusterControlManager",
            setClusterId=cluster_id,
            setTime=self.clock.time,
            setSessionTimeoutNs=session_timeout,
            setReplicaPlacer=placer(random),
            setFeatureControlManager=self.features,
            setBrokerShutdownHandler=handler,
        )
        self.configs = self._build(
            "ConfigurationControlManager",
            setKafkaConfigSchema=oracle.java_class("kafka.server.KafkaRaftServer").configSchema(),
            setValidator=oracle.java_class("kafka.server.ControllerConfigurationValidator")(self.kafka_config),
            setStaticConfig=self.static_config,
            setNodeId=NODE_ID,
            setFeatureControl=self.features,
        )
        self.replication = self._build(
            "ReplicationControlManager",
            setConfigurationControl=self.configs,
            setClusterControl=self.cluster,
            setFeatureControl=self.features,
        )
        self._connect_shutdown_handler()
        self.call(self.cluster, "activate")

    def _fields(self, static_config: Mapping[str, str]) -> None:
        oracle = self.oracle
        self.serde = oracle.java_class("org.apache.kafka.metadata.MetadataRecordSerde").INSTANCE
        self.accessor = oracle.java_class("org.apache.kafka.common.protocol.ByteBufferAccessor")
        self.cache = oracle.java_class("org.apache.kafka.common.protocol.ObjectSerializationCache")
        self.buffers = oracle.java_class("java.nio.ByteBuffer")
        self.to_buffer = oracle.java_class("org.apache.kafka.common.protocol.MessageUtil").toByteBufferAccessor
        self.static_config = self.jvm.java.util.HashMap()
        needed = {"process.roles": "controller", "node.id": str(NODE_ID), "controller.listener.names": "CONTROLLER"}
        needed |= {"listeners": "CONTROLLER://localhost:0", "controller.quorum.voters": f"{NODE_ID}@localhost:9093"}
        for name, value in {**needed, **static_config}.items():
            self.static_config.put(name, value)
        self.kafka_config = oracle.java_class("kafka.server.KafkaConfig")(self.static_config)

    def _build(self, name: str, **values: object) -> Any:
        constructor = named(self.oracle, f"{CONTROLLER}.{name}$Builder").getDeclaredConstructor(self._classes())
        constructor.setAccessible(True)
        builder = constructor.newInstance(self._array())
        for setter, value in values.items():
            self.call(builder, setter, value)
        return self.call(builder, "build")

    def _connect_shutdown_handler(self) -> None:
        """Connect the two managers: that of the brokers is built before that of the partitions, which it calls."""
        handles = self.jvm.java.lang.invoke.MethodHandles
        handle = handles.publicLookup().unreflect(self._method(self.replication, "handleBrokerShutdown")).bindTo(self.replication)
        kind = self.jvm.java.lang.invoke.MethodType.genericMethodType(3)
        spread = handle.asType(kind).asSpreader(named(self.oracle, "[Ljava.lang.Object;"), 3)
        kinds = self.jvm.java.util.List.of(*(named(self.oracle, one) for one in INVOKE[:2]))
        handler = proxy(self.oracle, f"{CONTROLLER}.ClusterControlManager$BrokerShutdownHandler", handles.dropArguments(spread, 0, kinds))
        field = self.cluster.getClass().getDeclaredField("brokerShutdownHandler")
        field.setAccessible(True)
        field.set(self.cluster, handler)

    # Calls

    def call(self, target: Any, name: str, *arguments: object) -> Any:
        """Call a method of any visibility. Raises RealError for an exception."""
        try:
            return self._method(target, name, len(arguments)).invoke(target, self._array(*arguments))
        except Py4JJavaError as caught:
            thrown = caught.java_exception.getCause() or caught.java_exception
            if "existed in isrMembers, but not in" in str(thrown.getMessage()):
                raise StaleIndexError from caught
            error = self.oracle.java_class("org.apache.kafka.common.requests.ApiError").fromThrowable(thrown)
            raise RealError(by_exception(str(thrown.getClass().getName())).name, error.message(), str(thrown.getMessage())) from caught

    def _method(self, target: Any, name: str, count: int | None = None) -> Any:
        key = (str(target.getClass().getName()), f"{name}/{count}")
        if key not in self._methods:
            found = [one for one in target.getClass().getDeclaredMethods() if one.getName() == name and not one.isSynthetic()]
            method = next(one for one in found if count is None or one.getParameterCount() == count)
            method.setAccessible(True)
            self._methods[key] = method
        return self._methods[key]

    def _array(self, *values: object) -> Any:
        array = self.oracle.gateway.new_array(self.jvm.java.lang.Object, len(values))
        for index, value in enumerate(values):
            array[index] = value
        return array

    def _classes(self) -> Any:
        return self.oracle.gateway.new_array(self.jvm.java.lang.Class, 0)

    # Messages

    def message(self, message: Message, version: int) -> Any:
        """Return a request as an object of Kafka's generated class."""
        made = self.oracle.java_class(f"{MESSAGES}.{type(message).__name__}Data")
        return made(self.accessor(self.buffers.wrap(message.encode(version))), self.oracle.short(version))

    def bytes_of(self, message: Any, version: int) -> bytes:
        """Return the bytes of a response."""
        return bytes(self.to_buffer(message, self.oracle.short(version)).buffer().array())

    def context(self, request: type[Message], version: int) -> Any:
        """Return the context of a request."""
        header = self.jvm.org.apache.kafka.common.message.RequestHeaderData()
        header.setRequestApiKey(self.oracle.short(request.API_KEY or 0))
        header.setRequestApiVersion(self.oracle.short(version))
        anonymous = self.oracle.java_class("org.apache.kafka.common.security.auth.KafkaPrincipal").ANONYMOUS
        nothing = self.oracle.java_class("java.util.OptionalLong").empty()
        return self.oracle.java_class(f"{CONTROLLER}.ControllerRequestContext")(header, anonymous, nothing)

    def records(self, result: Any) -> list[Record]:
        """Return the records of a ControllerResult."""
        found: list[Record] = []
        for record in self.call(result, "records").toArray():
            cache = self.cache()
            buffer = self.buffers.allocate(self.serde.recordSize(record, cache))
            self.serde.write(record, cache, self.accessor(buffer))
            found.append(read_record(bytes(buffer.array())))
        return found

    def response(self, result: Any) -> Any:
        """Return the response of a ControllerResult."""
        return self.call(result, "response")

    def put_short(self, target: Any, key: str, value: int) -> None:
        """Put a java.lang.Short into a map. py4j itself makes an Integer of every number that it passes on."""
        shorts = self.oracle.gateway.new_array(self.jvm.java.lang.Short, 1)
        shorts[0] = value
        entry = self._array(key, None)
        self.oracle.java_class("java.lang.System").arraycopy(shorts, 0, entry, 1, 1)
        self._method(target, "put", 2).invoke(target, entry)

    def replay(self, record: Record, offset: int) -> None:
        """Replay a record in the manager that it belongs to."""
        value = write_record(*record)
        message = self.serde.read(self.accessor(self.buffers.wrap(value)), len(value)).message()
        name = type(record[0]).__name__
        if name == "RegisterBrokerRecord":
            self.cluster.replay(message, offset)
        elif name in ("UnregisterBrokerRecord", "BrokerRegistrationChangeRecord"):
            self.cluster.replay(message)
        elif name == "ConfigRecord":
            self.configs.replay(message)
        elif name == "FeatureLevelRecord":
            self.features.replay(message)
        else:
            self.replication.replay(message)
