"""Where an append comes from, which decides what is checked of it (Kafka AppendOrigin)."""

from __future__ import annotations

from enum import Enum


class AppendOrigin(Enum):
    """Who appends: a follower's fetcher (nothing is checked again), a coordinator (no sequences), a client, the Raft leader."""

    REPLICATION = "REPLICATION"
    COORDINATOR = "COORDINATOR"
    CLIENT = "CLIENT"
    RAFT_LEADER = "RAFT_LEADER"
