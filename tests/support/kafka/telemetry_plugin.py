"""A broker plug-in of Apache Kafka that receives the metrics of clients (KIP-714), and the file to which it writes them.

    plugin = TelemetryPlugin(tmp_path)
    with RealBroker(oracle, tmp_path / "run", log_dirs=[…], settings=plugin.settings) as broker:
        broker.command = plugin.on_class_path(broker.command)   # before it starts

A broker without such a plug-in offers no client the APIs. Janino, the compiler of Spark, compiles it: a Java runtime has none.
"""

from __future__ import annotations

import os
import subprocess
from base64 import b64decode
from pathlib import Path
from typing import Final, NamedTuple

import pyspark

from tests.support.kafka.kafka_jars import BROKER, KAFKA_VERSION, kafka_jars
from tests.support.kafka.oracle import java_command

_NAME: Final = "TelemetryToFile"
_SOURCE: Final = """
import java.io.FileOutputStream;
import java.nio.ByteBuffer;
import java.util.Base64;
import java.util.List;
import java.util.Map;
import org.apache.kafka.common.metrics.KafkaMetric;
import org.apache.kafka.common.metrics.MetricsReporter;
import org.apache.kafka.server.telemetry.*;

public class TelemetryToFile implements MetricsReporter, ClientTelemetryExporterProvider, ClientTelemetryExporter {
    public void configure(Map configs) { }
    public void init(List metrics) { }
    public void metricChange(KafkaMetric metric) { }
    public void metricRemoval(KafkaMetric metric) { }
    public void close() { }
    public ClientTelemetryExporter clientTelemetryExporter() { return this; }

    public synchronized void exportMetrics(ClientTelemetryContext context, ClientTelemetryPayload payload) {
        try {
            ByteBuffer data = (ByteBuffer) payload.data().duplicate();
            byte[] bytes = new byte[data.remaining()];
            data.get(bytes);
            FileOutputStream out = new FileOutputStream(System.getProperty("telemetry.file"), true);
            out.write((payload.isTerminating() + " " + Base64.getEncoder().encodeToString(bytes) + "\\n").getBytes());
            out.close();
        } catch (java.io.IOException error) {
            throw new RuntimeException(error);
        }
    }
}
"""


class Push(NamedTuple):
    """What a client has pushed: whether it was the last push, and the metrics, decompressed, in OpenTelemetry's format."""

    is_last: bool
    data: bytes


class TelemetryPlugin:
    """The compiled plug-in. `work` gets its class, and what clients push."""

    settings: Final = {"metric.reporters": _NAME}

    def __init__(self, work: Path) -> None:
        self.work = work
        self.file = work / "telemetry"
        source = work / f"{_NAME}.java"
        source.write_text(_SOURCE)
        folder = Path(pyspark.__file__).parent / "jars"
        compiler = [str(next(folder.glob(f"{name}-[0-9]*.jar"))) for name in ("janino", "commons-compiler")]
        clients = next(kafka_jars(KAFKA_VERSION, BROKER).glob("kafka-clients-*.jar"))
        command = [
            java_command()[0],
            "-cp",
            os.pathsep.join([*compiler, str(clients)]),
            "org.codehaus.commons.compiler.samples.CompilerDemo",
        ]
        ran = subprocess.run(
            [*command, "-d", str(work), "-classpath", str(clients), str(source)], capture_output=True, text=True, check=False
        )
        assert (work / f"{_NAME}.class").exists(), ran.stdout + ran.stderr

    def on_class_path(self, command: list[str]) -> list[str]:
        """Return the command of a broker with the plug-in on its class path."""
        position = command.index("-cp") + 1
        return [
            *command[: position - 1],
            f"-Dtelemetry.file={self.file}",
            "-cp",
            os.pathsep.join([command[position], str(self.work)]),
            *command[position + 1 :],
        ]

    def pushes(self) -> list[Push]:
        """Return what clients have pushed so far."""
        lines = self.file.read_text().splitlines() if self.file.exists() else []
        rows = (line.split(" ") for line in lines)
        return [Push(row[0] == "true", b64decode(row[1])) for row in rows if len(row) == 2]
