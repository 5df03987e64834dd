"""Which tests run one after another on one worker, and in which order. The longest run first, so that all workers end together.

Tests of one file stay together, because they share fixtures. `ALONE` are files whose tests share nothing and take long. Each test runs on
any free worker. `TOGETHER` are files that share something expensive of a worker, such as a Spark session. `JVMS` does so for the fast ring:
its short tests against Kafka's classes share two JVMs, because starting one costs more than most of them. `SECONDS` are measured. Only
their order matters. `tools/tests.sh` prints the longest tests at its end.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from xdist.scheduler import LoadScopeScheduling

if TYPE_CHECKING:
    from collections.abc import Iterable

    import pytest
    from xdist.workermanage import WorkerController

ALONE = {
    "tests/cluster/test_embedded.py",
    "tests/faults/test_log_crash.py",
    "tests/fuzz/test_loader.py",
    "tests/network/controller/test_controller_server.py",
    "tests/network/node/test_node.py",
    "tests/network/controller/test_raft_quorum.py",
    "tests/network/node/test_slow_disk.py",
    "tests/simulation/coordinators/test_coordinator_bugs.py",
    "tests/simulation/test_node_bugs.py",
    "tests/soak/test_hostile_node.py",
    "tests/soak/test_mixed_soak.py",
    "tests/soak/test_transfers.py",
    "tests/unit/test_install.py",
}
TOGETHER: dict[str, str] = {
    "tests/spark/source/test_object_storage.py": "spark",
    "tests/spark/jobs/test_generated_cluster.py": "spark",
    "tests/spark/running/test_pages.py": "spark",
    "tests/spark/jobs/test_progress.py": "spark",
    "tests/spark/jobs/test_scan_answers.py": "spark",
    "tests/spark/jobs/test_scan_carve.py": "spark",
    "tests/spark/jobs/test_scan_kept.py": "spark",
    "tests/spark/jobs/test_scan_recover.py": "spark",
    "tests/spark/jobs/test_scan_verify.py": "spark",
    "tests/spark/jobs/test_scan_questions.py": "spark",
    "tests/spark/jobs/test_scan_state.py": "spark",
    "tests/spark/source/test_source.py": "spark",
    "tests/spark/stream/test_stream.py": "spark",
    "tests/spark/running/test_two_jvms.py": "spark",
    "tests/spark/source/test_writer.py": "spark",
    "tests/differential/broker/test_node_apis_cluster.py": "three nodes",
    "tests/differential/clients/test_client_cluster.py": "three nodes",
    "tests/differential/clients/commands/test_tools.py": "three nodes",
    # These let `kops cluster` find ports. Two of them at once would find the same ones.
    "tests/cli/clusters/test_cluster.py": "clusters",
    "tests/cli/clusters/test_cluster_adopt.py": "clusters",
    "tests/cluster/test_recording.py": "clusters",
    "tests/differential/together/test_both_ways.py": "clusters",
}
JVMS = {
    "tests/differential/broker/": "JVM 1",
    "tests/differential/coordinators/": "JVM 1",
    "tests/differential/metadata/": "JVM 1",
    "tests/differential/clients/": "JVM 2",
    "tests/differential/forensics/": "JVM 2",
    "tests/differential/storage/": "JVM 2",
}
SECONDS: dict[str, float] = {
    "tests/simulation/shares/test_share_lives.py": 20,
    "tests/simulation/groups/test_group_lives.py": 24,
    "tests/simulation/clients/test_client_lives.py": 20,
    "tests/simulation/clients/test_static_lives.py": 18,
    "tests/network/client/test_cycles.py": 15,
    "tests/differential/clients/consumer/test_fetch_dialogues.py": 12,
    "tests/differential/clients/consumer/test_coordinator_errors.py": 12,
    "tests/differential/clients/consumer/test_consumer_calls.py": 8,
    "tests/differential/clients/consumer/test_replicas.py": 40,
    "tests/differential/clients/consumer/test_consumer_programs.py": 45,
    "tests/differential/clients/consumer/test_replaced_members.py": 20,
    "tests/differential/clients/producer/test_producer_programs.py": 25,
    "tests/differential/clients/share/test_share_programs.py": 8,
    "tests/differential/together/test_mixed_groups.py": 45,
    "tests/network/client/test_share_consumer.py": 12,
    "tests/differential/clients/test_metrics_pushed_to_kafka.py": 16,
    "tests/differential/clients/share/test_share_consumer_real.py": 20,
    "spark": 130,
    "tests/soak/test_soak.py": 75,
    "tests/soak/test_mixed_soak.py": 72,
    "tests/soak/test_transfers.py": 68,
    "tests/soak/test_partitions.py": 50,
    "tests/soak/test_hostile_node.py": 42,
    "JVM 1": 129,
    "JVM 2": 128,
    "tests/simulation/test_nodes.py": 75,
    "tests/spark/running/test_standalone.py": 257,
    "tests/simulation/coordinators/test_coordinator_lives.py": 15,
    "tests/simulation/coordinators/test_coordinator_bugs.py": 6,
    "tests/simulation/test_node_lives.py": 55,
    "tests/fuzz/test_records.py": 50,
    "tests/spark/stream/test_stream_cluster.py": 45,
    "tests/spark/stream/test_tail_lives.py": 6,
    "clusters": 110,
    "three nodes": 110,
    "tests/differential/forensics/test_repair_broker.py": 90,
    "tests/differential/forensics/test_heal_broker.py": 15,
    "tests/differential/metadata/test_controller.py": 60,
    "tests/differential/storage/test_loader.py": 40,
    "tests/differential/storage/test_log_manager_broker.py": 55,
    "tests/differential/storage/test_real_logs.py": 54,
    "tests/differential/together/test_both_ways_coordinators.py": 60,
    "tests/differential/together/test_mixed_cluster.py": 50,
    "tests/differential/together/test_mixed_coordinators.py": 35,
    "tests/fuzz/test_loader.py": 50,
    "tests/fuzz/test_repair_fuzz.py": 46,
    "tests/fuzz/test_counts.py": 15,
    "tests/faults/test_log_crash.py": 45,
    "tests/golden/nodes/test_node_damage.py": 44,
    "tests/unit/test_install.py": 40,
    "tests/cli/documents/test_demo.py": 35,
    "tests/cli/documents/test_docs.py": 35,
    "tests/cli/evidence/test_report_browser.py": 9,
    "tests/differential/storage/test_log_twin.py": 35,
    "tests/differential/storage/test_log_crash.py": 30,
    "tests/fuzz/test_storage_formats.py": 26,
    "tests/faults/test_node.py": 25,
    "tests/differential/broker/test_node_apis.py": 28,
    "tests/differential/together/test_share_consumers.py": 50,
    "tests/clients/java/test_share_groups.py": 18,
    "tests/network/sockets/test_hostile.py": 24,
    "tests/differential/storage/test_validate.py": 70,
    "tests/differential/metadata/test_metadata_image.py": 20,
    "tests/differential/metadata/test_metadata_verify.py": 9,
    "tests/differential/coordinators/test_verified_appends.py": 8,
    "tests/differential/coordinators/test_verification.py": 8,
    "tests/differential/coordinators/share/test_share_fetch.py": 8,
    "tests/differential/metadata/test_raft_log.py": 20,
    "tests/differential/broker/test_node_settings.py": 20,
    "tests/differential/metadata/test_controller_server.py": 20,
    "tests/differential/broker/test_broker_config.py": 18,
    "tests/unit/records/test_large.py": 17,
    "tests/cluster/test_embedded.py": 16,
    "tests/differential/together/test_share_state.py": 16,
    "tests/network/controller/test_controller_server.py": 15,
    "tests/cli/clusters/test_topic.py": 15,
    "tests/cli/clusters/test_topic_transactions.py": 5,
    "tests/cli/clusters/test_log_replay.py": 8,
    "tests/cli/clusters/test_situations.py": 9,
    "tests/differential/clients/commands/test_replay.py": 16,
    "tests/differential/clients/consumer/test_group_members.py": 15,
    "tests/differential/clients/consumer/test_classic_member.py": 16,
    "tests/differential/clients/consumer/test_commit_lives.py": 13,
    "tests/network/node/test_node.py": 17,
    "tests/network/node/test_slow_disk.py": 16,
    "tests/network/node/test_log_dirs.py": 11,
    "tests/network/controller/test_raft_quorum.py": 11,
    "tests/clients/test_failover.py": 10,
    "tests/clients/test_copiers.py": 30,
    "tests/clients/java/test_connect.py": 20,
    "tests/clients/java/test_streams.py": 30,
    "tests/clients/java/test_suites.py": 165,
    "tests/differential/together/test_both_ways_streams.py": 35,
    "tests/differential/coordinators/test_streams_groups.py": 10,
    "tests/differential/clients/commands/test_group_tools.py": 35,
    "tests/differential/clients/producer/test_producer_dialogues.py": 15,
    "tests/differential/clients/consumer/test_consumer_real.py": 50,
    "tests/differential/clients/producer/test_producer_real.py": 50,
    "tests/differential/storage/test_records.py": 8,
    "tests/simulation/raft/test_raft.py": 55,
    "tests/network/node/test_node_process.py": 7,
    "tests/differential/storage/test_storage_formats.py": 7,
    "tests/network/sockets/test_network_limits.py": 6,
    "tests/unit/forensics/repair/test_repair_dirs.py": 6,
    "tests/simulation/test_node_bugs.py": 6,
    "tests/faults/test_repair_interrupted.py": 5,
    "tests/golden/forensics/test_heal.py": 12,
    "tests/golden/forensics/test_diff.py": 8,
    "tests/faults/test_heal_interrupted.py": 8,
    "tests/unit/forensics/repair/test_repair_corpus.py": 5,
    "tests/golden/forensics/test_forecast.py": 5,
    "tests/golden/forensics/test_verify_splits.py": 5,
    "tests/differential/forensics/test_carved_logs.py": 10,
    "tests/cli/frame/test_terminal.py": 5,
    "tests/clients/test_confluent.py": 5,
    "tests/network/client/test_admin.py": 10,
    "tests/differential/clients/admin/test_admin_tables.py": 25,
    "tests/differential/clients/admin/test_admin_real.py": 30,
    "tests/network/client/test_consumer.py": 10,
    "tests/network/client/test_producer.py": 10,
    "tests/golden/logs/test_loader_fuzz.py": 4,
    "tests/cli/frame/test_sinks.py": 4,
    "tests/cluster/test_pytest_plugin.py": 4,
}


def unit_of(nodeid: str, *, fast: bool = False) -> str:
    """Return the unit of work that a test belongs to: a file, several files, or the test itself.

    `fast` says whether this is the fast ring.
    """
    file = nodeid.partition("::")[0]
    if file in ALONE:
        return nodeid
    jvm = next((unit for folder, unit in JVMS.items() if fast and file.startswith(folder)), None)
    return TOGETHER.get(file) or jvm or file


def is_fast(config: pytest.Config) -> bool:
    """Return whether this is the fast ring."""
    return "not slow" in config.option.markexpr


def seconds_of(unit: str) -> float:
    """Return how long a unit takes, or 0 if it was not measured. For a file in `ALONE` it is the time of the longest test."""
    return SECONDS.get(unit.partition("::")[0], 0)


def longest_first(items: Iterable[pytest.Item], *, fast: bool) -> list[pytest.Item]:
    """Return the tests in the order of their units. Within a unit they keep their order."""
    return sorted(items, key=lambda item: -seconds_of(unit_of(item.nodeid, fast=fast)))


class LongestFirst(LoadScopeScheduling):  # type: ignore[misc]  # xdist has types of its own, but says so nowhere
    """A scheduler that gives the next unit to the next free worker, in the order in which the workers have collected the units."""

    def __init__(self, config: pytest.Config, log: object = None) -> None:
        super().__init__(config, log)
        self.fast = is_fast(config)
        self.config.option.loadscopereorder = False

    def _split_scope(self, nodeid: str) -> str:
        return unit_of(nodeid, fast=self.fast)

    def mark_test_complete(self, node: WorkerController, item_index: int, duration: float = 0) -> None:
        """Mark a test as complete. A unit that is done is not counted again for each test that follows."""
        super().mark_test_complete(node, item_index, duration)
        unit = unit_of(self.registered_collections[node][item_index], fast=self.fast)
        if all(self.assigned_work[node][unit].values()):
            del self.assigned_work[node][unit]
