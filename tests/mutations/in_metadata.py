"""Mutations of `kops.metadata`."""

from __future__ import annotations

from tests.mutations.mutation import Mutation

MUTATIONS = (
    Mutation(
        "votes-twice",
        "kops/metadata/raft/roles/states.py",
        "        return voted_key.is_matched_by(candidate)\n",
        "        return is_up_to_date\n",
        "tests/unit/metadata/raft/test_node.py",
    ),
    Mutation(
        "commits-an-earlier-epoch",
        "kops/metadata/raft/roles/leader.py",
        "        if candidate is None or candidate <= self.epoch_start_offset:\n",
        "        if candidate is None:\n",
        "tests/unit/metadata/raft/test_node.py",
    ),
    Mutation(
        "an-old-partition-epoch-is-taken",
        "kops/metadata/controller/partitions/isr_changes.py",
        "        if requested.partition_epoch < partition.partition_epoch:\n",
        "        if requested.partition_epoch < 0:\n",
        "tests/unit/metadata/controller/test_partitions.py",
    ),
    Mutation(
        "a-fenced-broker-gets-in-sync",
        "kops/metadata/controller/partitions/isr_changes.py",
        "broker is not None and broker.is_active and replica.broker_epoch in",
        "broker is not None and replica.broker_epoch in",
        "tests/unit/metadata/controller/test_partitions.py",
    ),
    Mutation(
        "a-session-ends-a-tick-early",
        "kops/metadata/controller/cluster/heartbeats.py",
        "        return contact_ms + self._session_timeout_ms < now_ms\n",
        "        return contact_ms + self._session_timeout_ms <= now_ms\n",
        "tests/unit/metadata/controller/test_cluster.py",
    ),
    Mutation(
        "a-new-leader-in-the-old-epoch",
        "kops/metadata/partition_registration.py",
        "            leader_epoch=self.leader_epoch + led_anew,\n",
        "            leader_epoch=self.leader_epoch,\n",
        "tests/unit/metadata/controller/test_partitions.py",
    ),
    Mutation(
        "blocks-of-producer-ids-overlap",
        "kops/metadata/controller/cluster/producer_ids.py",
        "producer_id_len=BLOCK_SIZE)",
        "producer_id_len=BLOCK_SIZE + 1)",
        "tests/unit/metadata/controller/test_cluster.py",
    ),
    Mutation(
        "a-move-ends-before-the-new-replicas-are-in-sync",
        "kops/metadata/controller/partitions/reassignment_replicas.py",
        "    if not set(adding).issubset(new_isr):\n",
        "    if not new_isr:\n",
        "tests/unit/metadata/controller/test_partitions.py",
    ),
    Mutation(
        "eligible-leaders-stay-at-min-insync",
        "kops/metadata/controller/partitions/partition_change.py",
        "        if len(self._isr) >= self._rules.min_isr:\n",
        "        if len(self._isr) > self._rules.min_isr:\n",
        "tests/unit/metadata/controller/test_partitions.py",
    ),
    Mutation(
        "an-old-epoch-of-the-quorum-is-served",
        "kops/metadata/raft/node/core.py",
        '        if epoch > self.quorum.epoch:\n            return "UNKNOWN_LEADER_EPOCH"\n',
        "",
        "tests/unit/metadata/raft/test_node.py",
    ),
)
