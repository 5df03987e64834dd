"""Nodes of real Apache Kafka that are only controllers, on directories that kops has formatted."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from kops.broker.quorum.format import FormatOptions, format_node
from kops.config import BrokerConfig
from kops.files import OsFiles
from tests.support.kafka.oracle import Oracle
from tests.support.kafka.real_broker import RealBroker


class RealController(RealBroker):
    """A node with exactly these settings. kops formats its directory before the first start."""

    def __init__(self, oracle: Oracle, work: Path, settings: Mapping[str, str], options: FormatOptions) -> None:
        super().__init__(oracle, work, log_dirs=[Path(settings["log.dirs"])], node_id=int(settings["node.id"]), settings=settings)
        self._options = options

    def write_properties(self) -> None:
        self.properties.write_text("".join(f"{name}={value}\n" for name, value in self.settings.items()))

    def format(self) -> None:
        config = BrokerConfig.accept({name: str(value) for name, value in self.settings.items()})
        if not (self.log_dirs[0] / "meta.properties").exists():
            format_node(OsFiles(), config, self._options, now_ms=1)


def controller_settings(node_id: int, port: int, directory: Path, **more: str) -> dict[str, str]:
    """Return settings of a controller of a dynamic quorum with this one bootstrap server.

    It writes no idle records, so offsets show what happened.
    """
    return {
        "process.roles": "controller",
        "node.id": str(node_id),
        "listeners": f"CONTROLLER://127.0.0.1:{port}",
        "controller.listener.names": "CONTROLLER",
        "controller.quorum.bootstrap.servers": f"127.0.0.1:{port}",
        "log.dirs": str(directory),
        "metadata.max.idle.interval.ms": "0",
        **{name.replace("_", "."): value for name, value in more.items()},
    }
