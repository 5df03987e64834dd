"""A real Apache Kafka node (broker and controller in one process) on given log directories. It listens only on the loopback address.

    with RealBroker(oracle, tmp_path / "run", log_dirs=[tmp_path / "disk1"]) as broker:  # formats empty dirs, starts, waits until ready
        oracle.create_topic(broker.bootstrap, "orders")
        broker.stop()                                                        # TERM: a clean stop; broker.kill() is kill -9
        damage(tmp_path / "disk1" / "orders-0")
        broker.start()                                                       # again, on other ports; raises BrokerEnded if it ends

A directory of the corpus needs its node id. If its quorum is static, it needs nothing else: `RealBroker(…, node_id=case.json["nodeId"])`.
"""

from __future__ import annotations

import subprocess
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Self

from tests.support.kafka.oracle import Oracle, java_command
from tests.support.ports import free_ports

READY = "Kafka Server started"
START_TIMEOUT_S = 180
STOP_TIMEOUT_S = 60
LOGGERS = {"kafka.server.KafkaRaftServer": "info"}  # says READY
LOG4J = """log4j.rootLogger={level}, out
log4j.appender.out=org.apache.log4j.ConsoleAppender
log4j.appender.out.layout=org.apache.log4j.PatternLayout
log4j.appender.out.layout.ConversionPattern=%p %m (%c)%n
log4j.logger.kafka.server.KafkaRaftServer=info
"""

SMALL = {
    "offsets.topic.replication.factor": 1,
    "offsets.topic.num.partitions": 1,
    "transaction.state.log.replication.factor": 1,
    "transaction.state.log.min.isr": 1,
    "transaction.state.log.num.partitions": 1,
    "share.coordinator.state.topic.replication.factor": 1,
    "share.coordinator.state.topic.min.isr": 1,
    "group.initial.rebalance.delay.ms": 0,
    "log.cleaner.dedupe.buffer.size": 2_097_152,
    "num.partitions": 1,
}


class BrokerEnded(Exception):
    """The process ended by itself before it was ready. The error has its exit code and its output."""

    def __init__(self, exit_code: int, output: str) -> None:
        super().__init__(f"the broker ended with {exit_code}:\n" + "\n".join(output.splitlines()[-30:]))
        self.exit_code = exit_code
        self.output = output


class RealBroker:
    """One node. `work` holds its settings and output; `settings` are further lines of server.properties that override the defaults."""

    def __init__(
        self,
        oracle: Oracle,
        work: Path,
        *,
        log_dirs: Sequence[Path],
        node_id: int = 1,
        settings: Mapping[str, object] | None = None,
        heap: str = "512m",
        log_level: str = "warn",
    ) -> None:
        self.oracle = oracle
        self.work = work
        self.log_dirs = list(log_dirs)
        self.node_id = node_id
        self.settings = dict(settings or {})
        self.command = java_command(oracle.version, heap=heap, log_level=log_level, loggers=LOGGERS)
        self.process: subprocess.Popen[bytes] | None = None
        self.bootstrap = ""
        self.said_before = 0
        work.mkdir(parents=True, exist_ok=True)
        if oracle.version.startswith("3."):  # its jars bind slf4j to log4j, which needs a file of settings
            settings_file = work / "log4j.properties"
            settings_file.write_text(LOG4J.format(level=log_level))
            self.command.insert(1, f"-Dlog4j.configuration=file:{settings_file}")

    @property
    def properties(self) -> Path:
        """The server.properties of the last start."""
        return self.work / "server.properties"

    @property
    def output_file(self) -> Path:
        """The stdout and stderr of all starts, appended."""
        return self.work / "broker.out"

    def output(self) -> str:
        """Return what it has printed in all starts."""
        return self.output_file.read_text(errors="replace") if self.output_file.exists() else ""

    def write_properties(self) -> None:
        """Write settings with two unused ports."""
        port, controller_port = free_ports(2)
        self.bootstrap = f"127.0.0.1:{port}"
        values: dict[str, object] = {
            "process.roles": "broker,controller",
            "node.id": self.node_id,
            "controller.quorum.voters": f"{self.node_id}@127.0.0.1:{controller_port}",
            "listeners": f"PLAINTEXT://{self.bootstrap},CONTROLLER://127.0.0.1:{controller_port}",
            "advertised.listeners": f"PLAINTEXT://{self.bootstrap}",
            "controller.listener.names": "CONTROLLER",
            "log.dirs": ",".join(str(path) for path in self.log_dirs),
            **SMALL,
            **self.settings,
        }
        self.properties.write_text("".join(f"{name}={value}\n" for name, value in values.items()))

    def format(self) -> None:
        """Format the log directories that have no meta.properties, with Kafka's storage tool."""
        for path in self.log_dirs:
            path.mkdir(parents=True, exist_ok=True)
        if all((path / "meta.properties").exists() for path in self.log_dirs):
            return
        cluster_id = str(self.oracle.java_class("org.apache.kafka.common.Uuid").randomUuid().toString())
        self.write_properties()
        arguments = ["format", "--cluster-id", cluster_id, "--config", str(self.properties), "--ignore-formatted"]
        ran = self.oracle.run("kafka.tools.StorageTool", arguments)
        if not all((path / "meta.properties").exists() for path in self.log_dirs):
            raise RuntimeError(f"kafka-storage format failed: {ran.error}\n{ran.text}")

    def start(self) -> Self:
        """Start it and wait until it is ready. Raises BrokerEnded if it ends by itself."""
        self.format()
        self.write_properties()
        self.launch()
        self.wait_ready()
        return self

    def launch(self) -> None:
        """Start the process without waiting."""
        assert self.process is None, "is running"
        self.said_before = len(self.output())
        with open(self.output_file, "ab") as output:
            self.process = subprocess.Popen(
                [*self.command, "kafka.Kafka", str(self.properties)], stdin=subprocess.DEVNULL, stdout=output, stderr=subprocess.STDOUT
            )

    def wait_ready(self) -> None:
        """Wait until it is ready. Raises BrokerEnded if it ends by itself."""
        assert self.process is not None, "is not running"
        deadline = time.monotonic() + START_TIMEOUT_S
        while READY not in (said := self.output()[self.said_before :]):
            if self.process.poll() is not None:
                exit_code = self.process.returncode
                self.process = None
                raise BrokerEnded(exit_code, self.output()[self.said_before :])
            if time.monotonic() > deadline:
                self.kill()
                raise TimeoutError(f"no {READY!r} after {START_TIMEOUT_S} s:\n{said[-3000:]}")
            time.sleep(0.05)

    def stop(self) -> int:
        """Stop it cleanly (TERM) and wait.

        Return its exit code (143). If it takes longer than a minute, it is killed; the code is then -9.
        """
        return self.end(kill=False)

    def kill(self) -> int:
        """End it as kill -9 does, without a clean shutdown."""
        return self.end(kill=True)

    def end(self, *, kill: bool) -> int:
        """End the process and wait for it. Return its exit code, or 0 if none runs."""
        if self.process is None:
            return 0
        process, self.process = self.process, None
        if not kill:
            process.terminate()
            try:
                return process.wait(STOP_TIMEOUT_S)
            except subprocess.TimeoutExpired:
                pass
        process.kill()
        return process.wait()

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(self, *_: object) -> None:
        self.stop()


class RealNode(RealBroker):
    """A node on an existing server.properties, with the directories and ports that it names. Nothing is formatted."""

    def __init__(self, oracle: Oracle, work: Path, properties: Path, *, heap: str = "384m", log_level: str = "warn") -> None:
        super().__init__(oracle, work, log_dirs=(), heap=heap, log_level=log_level)
        self._properties = properties

    @property
    def properties(self) -> Path:
        """The file that was given."""
        return self._properties

    def write_properties(self) -> None:
        """Do nothing: the file exists."""

    def format(self) -> None:
        """Do nothing: the directories are formatted."""


class RealCluster:
    """Several nodes of one cluster. They start side by side, since none is ready before a majority is.

    with RealCluster(oracle, tmp_path / "run", [data / "1.properties", data / "2.properties", data / "3.properties"]): ...
    """

    def __init__(self, oracle: Oracle, work: Path, properties: Sequence[Path]) -> None:
        self.nodes = [RealNode(oracle, work / path.stem, path) for path in properties]

    def start(self) -> Self:
        """Start all and wait until all are ready. If this raises BrokerEnded, none runs any more."""
        try:
            for node in self.nodes:
                node.launch()
            for node in self.nodes:
                node.wait_ready()
        except BaseException:
            self.kill()
            raise
        return self

    def stop(self) -> list[int]:
        """Stop all cleanly, side by side. Return their exit codes."""
        for node in self.nodes:
            if node.process is not None:
                node.process.terminate()
        return [node.stop() for node in self.nodes]

    def kill(self) -> list[int]:
        """Kill all with kill -9. Return their exit codes."""
        for node in self.nodes:
            if node.process is not None:
                node.process.kill()
        return [node.kill() for node in self.nodes]

    def output(self) -> str:
        """Return the output of all."""
        return "\n".join(f"== node {node.properties.stem}\n{node.output()}" for node in self.nodes)

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(self, *_: object) -> None:
        self.stop()
