"""Controllers on loopback with their logs on the disk: activation, requests held until they are committed, fail-over, snapshots."""

from __future__ import annotations

from pathlib import Path

from kops.protocol.messages import CreateTopicsResponse
from tests.support.controllers import Controllers, ask, register_broker
from tests.support.controlling import creation


def test_a_controller_alone_serves(tmp_path: Path) -> None:
    with Controllers(tmp_path) as controllers:
        assert controllers.active_id() == 1
        with controllers.client(1) as client:
            register_broker(client, 7)
            created = ask(client, creation("orders", partitions=3, factor=1), CreateTopicsResponse)
            assert [(topic.name, topic.error_code, topic.num_partitions) for topic in created.topics] == [("orders", 0, 3)]
            image = controllers.thread.call(lambda: controllers.nodes[1].running.shared.image)
            assert sorted(image.topics.by_name["orders"].partitions) == [0, 1, 2]
            again = ask(client, creation("orders", partitions=3, factor=1), CreateTopicsResponse)
            assert again.topics[0].error_message == "Topic 'orders' already exists."
        controllers.stop(1)
        controllers.open(1)
        controllers.active_id()
        image = controllers.thread.call(lambda: controllers.nodes[1].running.shared.image)
        assert sorted(image.topics.by_name["orders"].partitions) == [0, 1, 2]
