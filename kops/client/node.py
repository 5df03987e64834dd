"""The address of a node (Kafka's Node)."""

from __future__ import annotations

from typing import NamedTuple


class Node(NamedTuple):
    """The address of a node. Bootstrap servers have negative ids."""

    id: int
    host: str
    port: int
    rack: str | None = None

    @property
    def address(self) -> str:
        """`host:port`."""
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"
