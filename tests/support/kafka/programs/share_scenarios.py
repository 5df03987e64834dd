"""The commands of kafka-share-groups in a scenario, and a member of a share group for it. `group_scenarios` runs it."""

from __future__ import annotations

import time

from kops.protocol import messages
from tests.support.kafka.programs.tool_texts import PATIENCE_S, Scenario
from tests.support.nodes.kops_nodes import KopsNodes
from tests.support.nodes.raw_client import RawClient


def coordinator_of(bootstrap: str, group: str) -> str:
    """Return the address of a group's coordinator. It ends with -1 as long as there is none."""
    with RawClient(bootstrap.split(",")[0]) as client:
        answer = client.ask(messages.FindCoordinatorRequest(key_type=0, coordinator_keys=[group]), 6)
    assert isinstance(answer, messages.FindCoordinatorResponse)
    return f"{answer.coordinators[0].host}:{answer.coordinators[0].port}"


class ShareMember:
    """A member of a share group that only sends heartbeats."""

    def __init__(self, nodes: KopsNodes, group: str) -> None:
        self.nodes, self.group = nodes, group
        self.id = "5e0c2f5e-6a6e-4a2f-8f6b-0d6a3f1f9d11"
        self.epoch = 0

    def heartbeat(self, topics: list[str] | None = None) -> messages.ShareGroupHeartbeatResponse:
        """Send heartbeats until a coordinator answers one without an error."""
        request = messages.ShareGroupHeartbeatRequest(self.group, self.id, self.epoch, subscribed_topic_names=topics)
        deadline = time.monotonic() + PATIENCE_S
        while True:
            address = coordinator_of(self.nodes.bootstrap, self.group)
            if not address.endswith(":-1"):
                with RawClient(address, client_id="share") as client:
                    answer = client.ask(request, 1)
                assert isinstance(answer, messages.ShareGroupHeartbeatResponse)
                if not answer.error_code:
                    self.epoch = answer.member_epoch
                    return answer
            assert time.monotonic() < deadline, "no coordinator"
            time.sleep(0.1)

    def join(self, topic: str) -> None:
        """Join, and stay until there are partitions to read. Then their state is initialized."""
        answer = self.heartbeat([topic])
        deadline = time.monotonic() + PATIENCE_S
        while answer.assignment is None or not answer.assignment.topic_partitions:
            assert time.monotonic() < deadline, "no assignment"
            time.sleep(0.1)
            answer = self.heartbeat()

    def leave(self) -> None:
        """Leave the group."""
        self.epoch = -1
        self.heartbeat()


def share_groups(scenario: Scenario) -> None:
    """Run all commands of kafka-share-groups for groups that are missing, have a member, or are empty."""
    run = scenario.run
    run("topics", "--create", "--topic", "shared", "--replica-assignment", "1:2:3,2:3:1")
    scenario.until(lambda text: "shared" in text, "topics", "--list", "--exclude-internal")
    for partition in range(2):
        run("console-producer", "--topic", "shared", "--property", "parse.key=true", stdin=f"key{partition}\tvalue\n" * 5)
    run("share-groups", "--list")
    for what in ((), ("--members",), ("--state",), ("--offsets", "--verbose")):
        run("share-groups", "--describe", "--group", "none", *what)
    run("share-groups", "--delete", "--group", "none")
    run("share-groups", "--delete-offsets", "--group", "none", "--topic", "shared")
    member = ShareMember(scenario.nodes, "s1")
    member.join("shared")
    one = ("share-groups", "--group", "s1")
    run("share-groups", "--list")
    run("share-groups", "--list", "--state")
    for what in ((), ("--offsets", "--verbose"), ("--members",), ("--members", "--verbose"), ("--state",), ("--state", "--verbose")):
        run(*one, "--describe", *what)
    run(*one, "--delete")
    run(*one, "--reset-offsets", "--topic", "shared", "--to-earliest", "--execute")
    run(*one, "--delete-offsets", "--topic", "shared")
    member.leave()
    scenario.until(lambda text: "Empty" in text, *one, "--describe", "--state")
    run(*one, "--describe")
    for how in (("--to-earliest",), ("--to-latest",), ("--to-datetime", "2020-01-01T00:00:00.000")):
        run(*one, "--reset-offsets", "--topic", "shared", *how, "--dry-run")
    run(*one, "--reset-offsets", "--topic", "shared:1", "--to-earliest", "--execute")
    run(*one, "--describe")
    run(*one, "--reset-offsets", "--all-topics", "--to-latest", "--execute")
    run(*one, "--describe", "--offsets", "--verbose")
    run(*one, "--reset-offsets", "--topic", "nothing", "--to-earliest", "--execute")
    run("share-groups", "--group", "s2", "--reset-offsets", "--topic", "shared", "--to-earliest", "--execute")
    run("share-groups", "--describe", "--all-groups")
    run(*one, "--delete-offsets", "--topic", "shared", "--topic", "nothing")
    run(*one, "--describe")
    run(*one, "--delete")
    run("share-groups", "--delete", "--group", "s1", "--group", "s2")
    run("share-groups", "--list")
    run("consumer-groups", "--list")
    run("topics", "--delete", "--topic", "shared")
    scenario.until(lambda text: "shared" not in text, "topics", "--list", "--exclude-internal")
