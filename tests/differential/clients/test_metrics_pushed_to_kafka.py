"""The push of metrics to a broker of Apache Kafka 4.3.0 that has a plug-in for them (KIP-714). Kafka's own parser reads what came."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path

import pytest

import kops
from kops.admin import AlterConfigOp, ConfigResource, NewTopic
from tests.support.kafka.oracle import Oracle
from tests.support.kafka.real_broker import RealBroker
from tests.support.kafka.telemetry_plugin import TelemetryPlugin
from tests.support.patience import until

pytestmark = pytest.mark.slow
WANTED = {
    "org.apache.kafka.producer.record.send.total",
    "org.apache.kafka.consumer.coordinator.heartbeat.total",
    "org.apache.kafka.consumer.share.coordinator.heartbeat.total",
    "org.apache.kafka.admin.client.connection.count",
}


def test_all_clients_push(oracle: Oracle, tmp_path: Path) -> None:
    plugin = TelemetryPlugin(tmp_path)
    broker = RealBroker(oracle, tmp_path / "run", log_dirs=[tmp_path / "disk"], settings=plugin.settings)
    broker.command = plugin.on_class_path(broker.command)
    utils = oracle.java_class("org.apache.kafka.common.telemetry.internals.ClientTelemetryUtils")

    def names(*, last: bool) -> set[str]:
        """Return the names of the metrics that have come, or of those that came with last pushes."""
        found: set[str] = set()
        for push in plugin.pushes():
            if push.is_last or not last:
                parsed = utils.deserializeMetricsData(oracle.jvm.java.nio.ByteBuffer.wrap(push.data))
                for resource in parsed.getResourceMetricsList():
                    found |= {metric.getName() for scope in resource.getScopeMetricsList() for metric in scope.getMetricsList()}
        return found

    with broker:
        settings = {"bootstrap.servers": broker.bootstrap}
        with kops.Admin(settings) as admin:
            subscription = [AlterConfigOp.set("metrics", ",".join(WANTED)), AlterConfigOp.set("interval.ms", "100")]
            admin.incremental_alter_configs({ConfigResource.client_metrics("all"): subscription}).all()
            admin.create_topics([NewTopic("t", 1, 1)]).all()
        with (
            kops.Admin(settings, enable_metrics_push=True) as admin,
            kops.Producer(settings) as producer,
            kops.Consumer(settings, group_id="g") as consumer,
            closing(kops.ShareConsumer(settings, group_id="s")) as member,
        ):
            producer.send("t", b"x").result(60)
            consumer.subscribe(["t"])
            member.subscribe(["t"])
            assert admin.list_topics()

            def pushed_so_far() -> set[str]:
                consumer.poll(0.1)
                member.poll(0.1)
                return names(last=False)

            until(pushed_so_far, WANTED.issubset)
        until(lambda: names(last=True), WANTED.issubset)
        assert names(last=False) == WANTED
