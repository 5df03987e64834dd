"""Apache Kafka itself as the oracle: one long-lived JVM with Kafka's jars, and real brokers.

py4j drives the JVM. Nothing is compiled.

A test uses it like this (fixtures of `tests/conftest.py`; each worker of a test session starts one JVM when it first needs it):

    def test_dump(oracle: Oracle, tmp_path: Path) -> None:
        oracle.dump(["--deep-iteration", "--print-data-log", "--files", str(path)], root=case.root)     # text of DumpLogSegments
        oracle.run("org.apache.kafka.tools.DumpLogSegments", [...])                                    # any tool's main: .text, .error
        oracle.load_log(tmp_path / "orders-0", recovery_point=7, clean=False, config={"index.interval.bytes": 256})   # UnifiedLog.create
        oracle.jvm.org.apache.kafka…                                                                  # any class, as py4j has it

    @pytest.mark.slow
    def test_broker(oracle: Oracle, tmp_path: Path) -> None:  # RealBroker: tests/support/kafka/real_broker.py
        with RealBroker(oracle, tmp_path / "run", log_dirs=[tmp_path / "disk1"]) as broker:  # formats if need be, waits until ready
            oracle.create_topic(broker.bootstrap, "orders", partitions=2, config={"internal.segment.bytes": "7000"})
            oracle.read_records(broker.bootstrap, "orders", 0)                                          # as the corpus's truth/records

Everything listens only on the loopback address and ends with the test session.
"""

from __future__ import annotations

import base64
import json
import os
import subprocess
import threading
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

import pyspark
from py4j.java_gateway import GatewayParameters, JavaGateway
from py4j.protocol import Py4JJavaError

from kops.environment import find_java
from tests.support.kafka.kafka_jars import BROKER, KAFKA_VERSION, Jars, kafka_jars

DUMP = "org.apache.kafka.tools.DumpLogSegments"
CONSUMER_TIMEOUT_S = 60


@dataclass(frozen=True, slots=True)
class ToolRun:
    """The output of a tool's main (stdout and stderr together) and the exception that ended it as `class: message`, or None.

    A tool that calls Kafka's `Exit` ends with an IllegalStateException instead of ending the JVM.
    """

    text: str
    error: str | None


@dataclass(frozen=True, slots=True)
class Consumed:
    """A consumer's view of a partition, in the shapes of the corpus: `truth/records/*.jsonl` and `*.meta.json`."""

    records: list[dict[str, Any]]
    meta: dict[str, Any]


def java_command(
    version: str = KAFKA_VERSION,
    *,
    heap: str = "512m",
    log_level: str = "off",
    loggers: Mapping[str, str] | None = None,
    jars: Sequence[Jars] = (BROKER,),
) -> list[str]:
    """Return the launcher with options and class path, ready for a main class. The path has Kafka's jars, and py4j's out of pyspark."""
    py4j_jar = next((Path(pyspark.__file__).parent / "jars").glob("py4j-*.jar"))
    command = [str(find_java().java), f"-Xmx{heap}", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Dfile.encoding=UTF-8"]
    command.append(f"-Dorg.slf4j.simpleLogger.defaultLogLevel={log_level}")
    command += [f"-Dorg.slf4j.simpleLogger.log.{name}={level}" for name, level in (loggers or {}).items()]
    return [*command, "-cp", os.pathsep.join([*(f"{kafka_jars(version, each)}/*" for each in jars), str(py4j_jar)])]


class Oracle:
    """A JVM with the classes of one version of Apache Kafka. Close it, or use it as a context manager."""

    def __init__(self, version: str = KAFKA_VERSION) -> None:
        self.version = version
        self.process = subprocess.Popen(
            [*java_command(version), "py4j.GatewayServer", "--die-on-broken-pipe", "--enable-auth", "0"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )
        assert self.process.stdout is not None
        port = self.process.stdout.readline().strip()
        secret = self.process.stdout.readline().strip()
        if not port.isdigit():
            self.process.kill()
            raise RuntimeError(f"the oracle's JVM did not start (exit {self.process.wait()})")
        parameters = GatewayParameters(port=int(port), auth_token=secret, auto_convert=True)
        self.gateway = JavaGateway(gateway_parameters=parameters)
        self.jvm: Any = self.gateway.jvm
        self.lock = threading.Lock()
        self.classes: dict[str, Any] = {}
        self.started: dict[str, Any] = {}
        exits = self.java_class("org.apache.kafka.common.utils.Exit")
        exits.resetExitProcedure()  # from now on a call of Exit throws
        exits.resetHaltProcedure()

    def java_class(self, name: str) -> Any:
        """Return py4j's view of a class with its static methods. Each class is looked up once. The names of nested classes have a `$`."""
        if name not in self.classes:
            found: Any = self.jvm
            for part in name.split("."):
                found = getattr(found, part)
            self.classes[name] = found
        return self.classes[name]

    def run(self, main_class: str, args: Sequence[str]) -> ToolRun:
        """Run a tool's main and capture stdout and stderr together."""
        system = self.java_class("java.lang.System")
        with self.lock:
            buffer = self.jvm.java.io.ByteArrayOutputStream()
            stream = self.jvm.java.io.PrintStream(buffer, True, "UTF-8")
            out, err = system.out, system.err
            system.setOut(stream)
            system.setErr(stream)
            error = None
            try:
                self.java_class(main_class).main(self.strings(args))
            except Py4JJavaError as caught:
                error = str(caught.java_exception.toString())
            finally:
                system.setOut(out)
                system.setErr(err)
            stream.flush()
            return ToolRun(bytes(buffer.toByteArray()).decode(errors="surrogateescape"), error)

    def strings(self, values: Sequence[str]) -> Any:
        """Return a Java String[]."""
        array = self.gateway.new_array(self.jvm.java.lang.String, len(values))
        for index, value in enumerate(values):
            array[index] = value
        return array

    def dump(self, args: Sequence[str], root: Path | None = None) -> str:
        """Return the text of `kafka-dump-log` as in the corpus. If an exception ended it, the last line is `!! …`.

        The JVM has another working directory than the test, so give absolute paths. If `root` is given, `root/` is cut out of the text.
        """
        ran = self.run(DUMP, args)
        text = ran.text if ran.error is None else f"{ran.text}!! {ran.error}\n"
        return text if root is None else text.replace(f"{root}/", "")

    def load_log(
        self,
        directory: Path,
        *,
        log_start_offset: int = 0,
        recovery_point: int = 0,
        clean: bool = False,
        config: Mapping[str, object] | None = None,
    ) -> dict[str, Any]:
        """Open (and so recover) a partition folder with UnifiedLog.create, then close it.

        Return it as the `result` of the corpus's fuzz trials: ok, logStartOffset, logEndOffset, segments, producers, closeError; or ok
        (false), class, error.
        """
        settings = {name: str(value) for name, value in (config or {}).items()}
        producer_expiry = int(settings.pop("producer.id.expiration.ms", str(2**31 - 1)))
        log = "org.apache.kafka.storage.internals.log"
        try:
            opened = self.java_class(f"{log}.UnifiedLog").create(
                self.jvm.java.io.File(str(directory)),
                self.java_class(f"{log}.LogConfig")(settings),
                log_start_offset,
                recovery_point,
                self.shared("org.apache.kafka.server.util.KafkaScheduler", 1),
                self.shared("org.apache.kafka.storage.log.metrics.BrokerTopicStats"),
                self.java_class("org.apache.kafka.common.utils.Time").SYSTEM,
                300_000,
                self.java_class(f"{log}.ProducerStateManagerConfig")(producer_expiry, False),
                600_000,
                self.java_class(f"{log}.LogDirFailureChannel")(4),
                clean,
                self.java_class("java.util.Optional").empty(),
            )
        except Py4JJavaError as caught:
            error = caught.java_exception
            text = str(error.toString()).replace(f"{directory}/", "./")
            return {"ok": False, "class": error.getClass().getName(), "error": text}
        result = {
            "ok": True,
            "logStartOffset": opened.logStartOffset(),
            "logEndOffset": opened.logEndOffset(),
            "segments": opened.numberOfSegments(),
            "producers": opened.activeProducers().size(),
            "closeError": None,
        }
        try:
            opened.close()
        except Py4JJavaError as caught:
            result["closeError"] = str(caught.java_exception.toString())
        return result

    def shared(self, name: str, *args: object) -> Any:
        """Return the one object of a class that all calls share. A scheduler is started."""
        if name not in self.started:
            made = self.java_class(name)(*args)
            if name.endswith("Scheduler"):
                made.startup()
            self.started[name] = made
        return self.started[name]

    def settle(self) -> None:
        """Wait until the thread of the shared scheduler has done its due work, such as deleting files and writing epochs."""
        self.shared("org.apache.kafka.server.util.KafkaScheduler", 1).scheduleOnce("settle", self.jvm.java.lang.Thread()).get()

    def create_topic(self, bootstrap: str, topic: str, *, partitions: int = 1, config: Mapping[str, str] | None = None) -> None:
        """Create a topic with replication factor 1 and wait until the broker knows it."""
        admin = self.java_class("org.apache.kafka.clients.admin.Admin").create(self.properties({"bootstrap.servers": bootstrap}))
        try:
            new = self.jvm.org.apache.kafka.clients.admin.NewTopic(topic, partitions, self.short(1)).configs(dict(config or {}))
            admin.createTopics(self.jvm.java.util.List.of(new)).all().get()
        finally:
            admin.close()

    def short(self, value: int) -> Any:
        """Return a java.lang.Short, for which py4j has no literal."""
        return self.jvm.java.lang.Short.valueOf(str(value))

    def properties(self, settings: Mapping[str, object]) -> Any:
        """Return a java.util.Properties of texts."""
        properties = self.jvm.java.util.Properties()
        for name, value in settings.items():
            properties.put(name, str(value))
        return properties

    def produce(
        self,
        bootstrap: str,
        topic: str,
        partition: int,
        records: Iterable[tuple[bytes | None, bytes | None]],
        *,
        settings: Mapping[str, object] | None = None,
        per_batch: int = 10,
    ) -> None:
        """Produce (key, value) pairs with Kafka's own producer.

        Each flush (so each batch) has `per_batch` records; `settings` are the producer's.
        """
        serializer = "org.apache.kafka.common.serialization.ByteArraySerializer"
        base = {"bootstrap.servers": bootstrap, "linger.ms": 1000, "key.serializer": serializer, "value.serializer": serializer}
        producer = self.jvm.org.apache.kafka.clients.producer.KafkaProducer(self.properties({**base, **(settings or {})}))
        record_class = self.jvm.org.apache.kafka.clients.producer.ProducerRecord
        boxed = self.jvm.java.lang.Integer.valueOf(partition)
        transactional = settings is not None and "transactional.id" in settings
        try:
            if transactional:
                producer.initTransactions()
                producer.beginTransaction()
            for number, (key, value) in enumerate(records, 1):
                producer.send(record_class(topic, boxed, key, value))
                if number % per_batch == 0:
                    producer.flush()
            producer.flush()
            if transactional:
                producer.commitTransaction()
        finally:
            producer.close()

    @contextmanager
    def consumer(self, bootstrap: str, isolation: str = "read_uncommitted") -> Iterator[Any]:
        """Provide a KafkaConsumer of bytes for `read_partition`."""
        deserializer = "org.apache.kafka.common.serialization.ByteArrayDeserializer"
        settings = {"bootstrap.servers": bootstrap, "isolation.level": isolation, "key.deserializer": deserializer}
        settings |= {"value.deserializer": deserializer, "enable.auto.commit": "false", "auto.offset.reset": "none"}
        settings["fetch.max.wait.ms"] = "10"  # else the next partition waits for a fetch at the end of the previous one
        made = self.jvm.org.apache.kafka.clients.consumer.KafkaConsumer(self.properties(settings))
        try:
            yield made
        finally:
            made.close()

    def read_records(self, bootstrap: str, topic: str, partition: int, *, isolation: str = "read_uncommitted") -> Consumed:
        """Return all records of a partition as a new consumer gets them."""
        with self.consumer(bootstrap, isolation) as consumer:
            return self.read_partition(consumer, topic, partition, isolation)

    def read_partition(self, consumer: Any, topic: str, partition: int, isolation: str = "read_uncommitted") -> Consumed:
        """Read all records of a partition, from its beginning to its end offset. An error ends the reading and is kept in `meta`."""
        place = self.jvm.org.apache.kafka.common.TopicPartition(topic, partition)
        places = self.jvm.java.util.List.of(place)
        pause = self.jvm.java.time.Duration.ofMillis(200)
        records: list[dict[str, Any]] = []
        error = None
        deadline = time.monotonic() + CONSUMER_TIMEOUT_S
        consumer.assign(places)
        begin = consumer.beginningOffsets(places).get(place)
        end = consumer.endOffsets(places).get(place)
        position = begin
        consumer.seek(place, begin)
        try:
            while position < end:
                records += self.records_json(consumer.poll(pause).records(place))
                position = consumer.position(place)
                if time.monotonic() > deadline:
                    raise TimeoutError(f"{topic}-{partition}: at offset {position} of {end} after {CONSUMER_TIMEOUT_S} s")
        except Py4JJavaError as caught:
            error = str(caught.java_exception.toString())
        meta = {"topic": topic, "partition": partition, "isolation": isolation, "beginningOffset": begin, "endOffset": end}
        return Consumed(records, meta | {"reachedOffset": position, "records": len(records), "error": error})

    def records_json(self, records: Any) -> list[dict[str, Any]]:
        """Return a Java list of ConsumerRecords in the corpus's shape.

        Jackson writes it in one call; reading each field would be a call each.
        """
        if "jackson" not in self.started:
            jackson = self.jvm.com.fasterxml.jackson
            mapper = jackson.databind.ObjectMapper().registerModule(jackson.datatype.jdk8.Jdk8Module())
            accessor = jackson.annotation.PropertyAccessor
            visibility = self.java_class("com.fasterxml.jackson.annotation.JsonAutoDetect$Visibility")
            self.started["jackson"] = mapper.setVisibility(accessor.ALL, visibility.NONE).setVisibility(accessor.FIELD, visibility.ANY)
        return [record_json(record) for record in json.loads(self.started["jackson"].writeValueAsString(records))]

    def close(self) -> None:
        """End the JVM."""
        self.gateway.shutdown()
        self.process.kill()
        self.process.wait()
        for pipe in (self.process.stdin, self.process.stdout):
            if pipe is not None:
                pipe.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


TIMESTAMP_TYPES = {"NO_TIMESTAMP_TYPE": "NoTimestampType", "CREATE_TIME": "CreateTime", "LOG_APPEND_TIME": "LogAppendTime"}


def record_json(record: dict[str, Any]) -> dict[str, Any]:
    """Return the fields of a ConsumerRecord in the corpus's shape."""
    return {
        "offset": record["offset"],
        "timestamp": record["timestamp"],
        "tsType": TIMESTAMP_TYPES[record["timestampType"]],
        "key": record["key"],
        "value": record["value"],
        "headers": [header_json(header) for header in record["headers"]["headers"]],
        "leaderEpoch": record["leaderEpoch"],
    }


def header_json(header: dict[str, Any]) -> list[str | None]:
    """Return a RecordHeader's key and value. It has the bytes that were fetched until its key or value is asked for."""
    key = header["key"]
    if key is None:
        key = base64.b64decode(header["keyBuffer"]).decode("utf-8", "replace")
    return [key, header["valueBuffer"] if header["value"] is None else header["value"]]
