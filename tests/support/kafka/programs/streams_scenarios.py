"""The commands of kafka-streams-groups in a scenario, and a member of a streams group for it. `group_scenarios` runs it."""

from __future__ import annotations

import time

from kops.protocol import messages
from kops.protocol.messages import streams_group_heartbeat_request as asking
from tests.support.kafka.programs.share_scenarios import coordinator_of
from tests.support.kafka.programs.tool_texts import PATIENCE_S, Scenario
from tests.support.nodes.raw_client import RawClient

SOURCE, REPARTITION, CHANGELOG = "lines", "app-count-repartition", "app-count-changelog"


def counting(source: str) -> asking.Topology:
    """Return an application that reads lines, writes their words by key, and counts the words."""
    compact = [asking.KeyValue("cleanup.policy", "compact")]
    return asking.Topology(
        0,
        [
            asking.Subtopology("0", [source], [], [], [REPARTITION], [], []),
            asking.Subtopology(
                "1", [], [], [asking.TopicInfo(CHANGELOG, 0, 0, compact)], [], [asking.TopicInfo(REPARTITION, 0, 0, [])], []
            ),
        ],
    )


class StreamsMember:
    """A member of a streams group that only sends heartbeats."""

    def __init__(self, bootstrap: str, group: str, source: str = SOURCE) -> None:
        self.bootstrap, self.group, self.source = bootstrap, group, source
        self.id = "5e0c2f5e-6a6e-4a2f-8f6b-0d6a3f1f9d11"
        self.epoch = 0

    def heartbeat(self) -> messages.StreamsGroupHeartbeatResponse:
        """Send heartbeats until a coordinator answers one without an error."""
        request = messages.StreamsGroupHeartbeatRequest(self.group, self.id, self.epoch)
        if self.epoch == 0:
            request.topology, request.process_id, request.rebalance_timeout_ms = counting(self.source), "process", 60_000
            request.active_tasks, request.standby_tasks, request.warmup_tasks = [], [], []
            request.user_endpoint = asking.Endpoint("localhost", 8080)
        deadline = time.monotonic() + PATIENCE_S
        while True:
            address = coordinator_of(self.bootstrap, self.group)
            if not address.endswith(":-1"):
                with RawClient(address, client_id="streams") as client:
                    answer = client.ask(request, 0)
                assert isinstance(answer, messages.StreamsGroupHeartbeatResponse)
                if not answer.error_code:
                    self.epoch = answer.member_epoch
                    return answer
            assert time.monotonic() < deadline, "no coordinator"
            time.sleep(0.1)

    def join(self) -> None:
        """Join, and stay until there are tasks."""
        answer = self.heartbeat()
        deadline = time.monotonic() + PATIENCE_S
        while not answer.active_tasks:
            assert time.monotonic() < deadline, answer
            time.sleep(0.1)
            answer = self.heartbeat()

    def leave(self) -> None:
        """Leave the group."""
        self.epoch = -1
        self.heartbeat()


def streams_groups(scenario: Scenario) -> None:
    """Run all commands of kafka-streams-groups for groups that are missing, have a member, or are empty."""
    run, tool = scenario.run, "streams-groups"
    run("topics", "--create", "--topic", SOURCE, "--replica-assignment", "1:2:3,2:3:1")
    scenario.until(lambda text: SOURCE in text, "topics", "--list", "--exclude-internal")
    for key in "ad":  # one for each partition
        run("console-producer", "--topic", SOURCE, "--reader-property", "parse.key=true", stdin=f"{key}\tone two\n" * 3)
    run(tool, "--list")
    for what in ((), ("--members",), ("--state",), ("--offsets", "--verbose")):
        run(tool, "--describe", "--group", "none", *what)
    run(tool, "--delete", "--group", "none")
    run(tool, "--delete-offsets", "--group", "none", "--input-topic", SOURCE)
    run(tool, "--reset-offsets", "--group", "none", "--all-input-topics", "--to-earliest", "--dry-run")
    member = StreamsMember(scenario.nodes.bootstrap, "app")
    member.join()
    one = (tool, "--group", "app")
    scenario.until(lambda text: CHANGELOG in text and REPARTITION in text, "topics", "--list", "--exclude-internal")
    run(tool, "--list")
    run(tool, "--list", "--state")
    run(tool, "--list", "--state", "Stable,Empty")
    run("groups", "--list", "--group-type", "streams")
    run("consumer-groups", "--list")
    for what in ((), ("--offsets", "--verbose"), ("--members",), ("--members", "--verbose"), ("--state",), ("--state", "--verbose")):
        run(*one, "--describe", *what)
    run(*one, "--delete")
    run(*one, "--reset-offsets", "--all-input-topics", "--to-earliest", "--execute")
    run(*one, "--delete-offsets", "--input-topic", SOURCE)
    member.leave()
    scenario.until(lambda text: "Empty" in text, *one, "--describe", "--state")
    run(*one, "--describe")
    for how in (("--to-earliest",), ("--to-latest",), ("--to-offset", 1), ("--shift-by", 1), ("--to-current",)):
        run(*one, "--reset-offsets", "--input-topic", SOURCE, *how, "--dry-run")
    run(*one, "--reset-offsets", "--input-topic", f"{SOURCE}:0,1", "--to-offset", 0, "--execute")
    run(*one, "--describe", "--offsets", "--verbose")
    run(*one, "--reset-offsets", "--all-input-topics", "--to-current", "--export")
    run(*one, "--reset-offsets", "--input-topic", "nothing", "--to-earliest", "--execute")
    run(*one, "--reset-offsets", "--input-topic", SOURCE, "--to-latest", "--delete-internal-topic", "nothing", "--execute")
    run(*one, "--delete-offsets", "--input-topic", f"{SOURCE}:1")
    run(*one, "--describe")
    run(*one, "--delete-offsets", "--input-topic", "nothing")
    run(tool, "--describe", "--all-groups", "--state")
    run(*one, "--reset-offsets", "--input-topic", SOURCE, "--to-earliest", "--delete-all-internal-topics", "--execute")
    run(*one, "--delete")
    run(tool, "--list")
    scenario.until(lambda text: "app-" not in text, "topics", "--list", "--exclude-internal")
    run("topics", "--delete", "--topic", SOURCE)
    scenario.until(lambda text: SOURCE not in text, "topics", "--list", "--exclude-internal")
