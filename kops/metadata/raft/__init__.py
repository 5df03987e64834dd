"""KRaft, the quorum that replicates the metadata log, as a pure core.

In: requests, responses and the time. Out: actions. Source: the `raft` module of Apache Kafka 4.3; KIP-595 (KRaft), KIP-630 (snapshots),
KIP-853 (dynamic voters), KIP-996 (pre-vote).
"""

from kops.metadata.raft.node.node import RaftNode

__all__ = ["RaftNode"]
