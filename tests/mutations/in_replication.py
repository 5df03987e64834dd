"""Mutations of `kops.replication`."""

from __future__ import annotations

from tests.mutations.mutation import Mutation

MUTATIONS = (
    Mutation(
        "joins-only-behind-the-high-watermark",
        "kops/replication/leading/partition.py",
        "log is not None and end_offset >= log.high_watermark and",
        "log is not None and end_offset > log.high_watermark and",
        "tests/unit/replication/test_partition.py",
    ),
    Mutation(
        "a-broker-that-shuts-down-joins",
        "kops/replication/leading/partition.py",
        "brokers.is_fenced(replica_id) or brokers.is_shutting_down(replica_id):",
        "brokers.is_fenced(replica_id):",
        "tests/unit/replication/test_partition.py",
    ),
    Mutation(
        "a-former-life-joins",
        "kops/replication/leading/partition.py",
        "        return fetched_with is not None and known is not None and fetched_with in (-1, known)\n",
        "        return fetched_with is not None and known is not None\n",
        "tests/unit/replication/test_partition.py",
    ),
    Mutation(
        "high-watermark-below-min-insync",
        "kops/replication/leading/partition.py",
        "        if in_sync < log.config.min_insync_replicas and in_sync < self._effective_min_isr(log):\n",
        "        if not isr_state.isr:\n",
        "tests/unit/replication/test_partition.py",
    ),
    Mutation(
        "min-insync-is-too-few",
        "kops/replication/leading/partition.py",
        "        if required_acks == -1 and len(self.isr_state.isr) < self._effective_min_isr(log):\n",
        "        if required_acks == -1 and len(self.isr_state.isr) <= self._effective_min_isr(log):\n",
        "tests/unit/replication/test_partition.py",
    ),
    Mutation(
        "a-stale-fetch-counts",
        "kops/replication/leading/replica.py",
        "known_epoch is not None and known_epoch > broker_epoch:",
        "known_epoch is not None and known_epoch < broker_epoch:",
        "tests/unit/replication/test_partition.py",
    ),
    Mutation(
        "cuts-to-the-own-epochs-end-only",
        "kops/replication/following/fetcher.py",
        "Truncation(min(epoch_end_offset, leader_end.end_offset, end_offset), True)",
        "Truncation(min(epoch_end_offset, end_offset), True)",
        "tests/unit/replication/test_fetcher.py",
    ),
    Mutation(
        "session-epoch-never-wraps",
        "kops/replication/leading/fetch_session.py",
        "    return 1 if epoch == _LAST_EPOCH else epoch + 1\n",
        "    return epoch + 1\n",
        "tests/unit/replication/test_fetch_session.py",
    ),
    Mutation(
        "fenced-and-unknown-epochs-swapped",
        "kops/replication/leading/partition_reads.py",
        'return "FENCED_LEADER_EPOCH" if current_leader_epoch < self.leader_epoch else "UNKNOWN_LEADER_EPOCH"',
        'return "FENCED_LEADER_EPOCH" if current_leader_epoch > self.leader_epoch else "UNKNOWN_LEADER_EPOCH"',
        "tests/unit/replication/test_partition.py",
    ),
    Mutation(
        "min-bytes-and-one-more",
        "kops/replication/waiting/delayed.py",
        "        return size >= self.params.min_bytes and self.force_complete()\n",
        "        return size > self.params.min_bytes and self.force_complete()\n",
        "tests/unit/replication/test_purgatory.py",
    ),
)
