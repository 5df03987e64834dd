"""The contents of a node's server.properties, and what a command line may ask for."""

from __future__ import annotations

import pytest

from kops.cluster.layout import settings
from kops.config import BrokerConfig
from kops.errors import UsageError

VOTERS = [settings.Voter(node_id, settings.controller_port(9092, node_id)) for node_id in (1, 2, 3)]


def made(node_id: int = 2, own: dict[str, str] | None = None) -> dict[str, str]:
    port = settings.client_port(9092, node_id)
    return settings.node_properties(node_id, VOTERS, port=port, log_dir=f"/d/broker-{node_id}", broker_count=3, settings=own or {})


def test_a_node_has_both_roles_and_its_ports() -> None:
    properties = made()
    config = BrokerConfig.from_properties(properties)
    assert (config.node_id, config.is_broker, config.is_controller) == (2, True, True)
    assert config.quorum_voters == {1: ("127.0.0.1", 9192), 2: ("127.0.0.1", 9193), 3: ("127.0.0.1", 9194)}
    assert [(one.name, one.port) for one in config.listeners] == [("PLAINTEXT", 9093), ("CONTROLLER", 9193)]
    assert config.log_dirs == ("/d/broker-2",)
    assert settings.listener_address(properties) == ("127.0.0.1", 9093)
    assert settings.listening_ports(properties) == [("127.0.0.1", 9093), ("127.0.0.1", 9193)]
    assert settings.quorum_voters(properties) == config.quorum_voters


def test_a_node_that_was_added_does_not_vote() -> None:
    properties = made(4)
    config = BrokerConfig.from_properties(properties)
    assert (config.is_broker, config.is_controller) == (True, False)
    assert settings.listening_ports(properties) == [("127.0.0.1", 9095)]


def test_one_node_wants_to_lead_first() -> None:
    key = "controller.quorum.election.timeout.ms"
    assert [key in made(node_id) for node_id in (1, 2, 3)] == [True, False, False]
    alone = settings.node_properties(1, VOTERS[:1], port=9092, log_dir="/d", broker_count=1, settings={})
    assert key not in alone
    assert alone["offsets.topic.replication.factor"] == "1"


def test_settings_win_but_not_over_what_makes_the_cluster() -> None:
    properties = made(own={"broker.session.timeout.ms": "9000", "node.id": "7", "log.dirs": "/elsewhere", "num.partitions": "4"})
    assert (properties["broker.session.timeout.ms"], properties["num.partitions"]) == ("9000", "4")
    assert (properties["node.id"], properties["log.dirs"]) == ("2", "/d/broker-2")


def test_kafkas_own_file_is_taken_without_what_the_cluster_sets() -> None:
    text = b"# comment\nprocess.roles=broker,controller\nnode.id=1\nlisteners=PLAINTEXT://:9092\nnum.partitions = 1\nlog.dirs=/tmp/x\n"
    found, left_out = settings.parse_server_properties(text, file="server.properties")
    assert found == {"num.partitions": "1"}
    assert left_out == ["process.roles", "node.id", "listeners", "log.dirs"]
    with pytest.raises(UsageError, match=r"server\.properties"):
        settings.parse_server_properties(b"a=\\u12", file="server.properties")


def test_pairs_of_a_command_line() -> None:
    assert settings.parse_settings(["a.b=c", " d = e=f "]) == {"a.b": "c", "d": "e=f"}
    for wrong in ("a", "=b"):
        with pytest.raises(UsageError, match="KEY=VALUE"):
            settings.parse_settings([wrong])
    with pytest.raises(UsageError, match=r"listeners: kops sets it"):
        settings.parse_settings(["listeners=PLAINTEXT://:1"])


def test_what_was_given_is_judged_with_the_name_of_where_it_was() -> None:
    settings.check_given({"num.partitions": "3", "listener.name.x.ssl.keystore.type": "JKS"}, source="--config")
    with pytest.raises(UsageError, match=r"^--config: num\.partitions=many: not a 32-bit integer; allowed: 1 or more$"):
        settings.check_given({"num.partitions": "many"}, source="--config")
    with pytest.raises(UsageError, match=r"^--config: unknown setting num\.partition; did you mean num\.partitions"):
        settings.check_given({"num.partition": "1"}, source="--config")
    with pytest.raises(UsageError, match=r"none of the \d+ known is similar \(the setting of a plug-in goes into a properties file\)$"):
        settings.check_given({"foo.bar": "1"}, source="--config")


def test_a_file_may_hold_settings_that_kafka_does_not_know() -> None:
    own = {"super.users": "User:admin", "num.partition": "1", "listener.name.x.y": "z"}
    settings.check_given(own, source="/x/server.properties", is_file=True)
    settings.check_properties(made(own=own), file="1.properties")
    assert settings.unknown_settings(made(own=own), file="1.properties") == [
        "1.properties: unknown setting super.users: it is kept for plug-ins of Kafka, but has no effect in kops",
        "1.properties: unknown setting num.partition: it is kept for plug-ins of Kafka, but has no effect in kops; "
        "did you mean num.partitions?",
    ]
    with pytest.raises(UsageError, match=r"^/x/server\.properties: num\.partitions=many"):
        settings.check_given({**own, "num.partitions": "many"}, source="/x/server.properties", is_file=True)


def test_who_is_wrong_is_named() -> None:
    right, wrong = made(own={}), made(own={"log.roll.ms": "0"})
    assert settings.changed_properties(wrong, {"log.roll.ms": "1"}, file="1.properties", source="--config")["log.roll.ms"] == "1"
    with pytest.raises(UsageError, match=r"^--config: requirement failed: log\.roll\.ms"):
        settings.changed_properties(right, {"log.roll.ms": "0"}, file="1.properties", source="--config")
    with pytest.raises(UsageError, match=r"^1\.properties: requirement failed: log\.roll\.ms"):
        settings.changed_properties(wrong, {"num.partitions": "2"}, file="1.properties", source="--config")


def test_impossible_settings_are_named() -> None:
    with pytest.raises(UsageError, match=r"num\.partitions"):
        settings.check_properties(made(own={"num.partitions": "many"}), file="1.properties")


@pytest.mark.parametrize(
    ("text", "topic"),
    [
        ("orders:3:2", settings.SeedTopic("orders", 3, 2)),
        ("orders:4", settings.SeedTopic("orders", 4, 3)),
        ("orders", settings.SeedTopic("orders", 1, 3)),
    ],
)
def test_seed_topics(text: str, topic: settings.SeedTopic) -> None:
    assert settings.parse_seed_topics([text], 3) == [topic]


@pytest.mark.parametrize("text", ["", ".", "a b:1:1", "orders:x:1", "orders:0:1", "orders:1:0", "orders:1:4", "orders:1:1:1", "x" * 250])
def test_seed_topics_that_make_no_sense(text: str) -> None:
    with pytest.raises(UsageError, match="--seed-topic"):
        settings.parse_seed_topics([text], 3)


@pytest.mark.parametrize("count", [0, -1, 101])
def test_how_many_brokers(count: int) -> None:
    with pytest.raises(UsageError, match="allowed are 1 to 100"):
        settings.combined_ids(count)


def test_wrong_addresses_in_a_file_are_named() -> None:
    with pytest.raises(UsageError, match="no listener for clients in 'CONTROLLER://:9093'"):
        settings.listener_address({"listeners": "CONTROLLER://:9093", "controller.listener.names": "CONTROLLER"})
    with pytest.raises(UsageError, match=r"allowed is ID@HOST:PORT"):
        settings.quorum_voters({"controller.quorum.voters": "1@localhost"})
    assert settings.listener_address({"listeners": "PLAINTEXT://[::1]:1,C://:2", "controller.listener.names": "C"}) == ("::1", 1)
