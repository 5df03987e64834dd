"""KRaft, the quorum that keeps the cluster's metadata: a pure core, requests and time in, actions out.

Source: Apache Kafka 4.3's `raft` module; KIP-595 (KRaft), KIP-630 (snapshots), KIP-853 (dynamic voters), KIP-996 (pre-vote).
"""

from kops.metadata.raft.node.node import RaftNode

__all__ = ["RaftNode"]
