"""Brokers and controllers: registration, sessions, fencing, controlled shutdown, features, producer ids, settings, leadership."""

from __future__ import annotations

from dataclasses import replace

import pytest

from kops.errors import ApiError
from kops.metadata.controller.cluster.feature_versions import bootstrap_records, default_level
from kops.metadata.metadata_version import LATEST_PRODUCTION, VERSIONS, from_level, metadata_changed_between
from kops.protocol import messages
from kops.protocol.messages.alter_configs_request import AlterableConfig as LegacyConfig
from kops.protocol.messages.alter_configs_request import AlterConfigsResource as LegacyResource
from kops.protocol.messages.incremental_alter_configs_request import AlterableConfig, AlterConfigsResource
from kops.protocol.messages.update_features_request import FeatureUpdateKey
from tests.support.parts.controlling import CLUSTER_ID, SETTINGS, World, creation, directory, error_name, registration


def test_the_first_records_of_a_cluster() -> None:
    names = [type(message).__name__ for message, _ in World().log]
    assert names == ["BeginTransactionRecord", *["FeatureLevelRecord"] * 6, "ConfigRecord", "EndTransactionRecord"]
    old = World(replace(SETTINGS, bootstrap=bootstrap_records(VERSIONS[3])))
    assert [type(message).__name__ for message, _ in old.log] == ["FeatureLevelRecord"]


@pytest.mark.parametrize("is_named", [True, False])
def test_a_transaction_left_open_is_ended(is_named: bool) -> None:
    world = World(claim=False)
    started = [(messages.BeginTransactionRecord("Bootstrap records"), 0), *bootstrap_records(LATEST_PRODUCTION)]
    for record in started[: None if is_named else 1]:
        world.controller.replay(record[0], len(world.log))
        world.log.append(record)
    world.controller.committed(len(world.log) - 1)
    assert world.controller.last_stable_offset == -1
    first = len(world.log)
    world.append(world.controller.on_claim(1, first, world.now_ms))
    names = [type(message).__name__ for message, _ in world.log[first:]]
    assert names[:2] == ["AbortTransactionRecord", "BeginTransactionRecord"]
    assert world.controller.parts.features.metadata_version == LATEST_PRODUCTION


def test_a_new_leader_of_a_log_writes_nothing() -> None:
    world = World.with_brokers(1)
    world.controller.on_resign(7)
    assert world.controller.on_claim(2, len(world.log), world.now_ms).records == []
    assert world.controller.epoch == 2
    assert world.controller.on_claim(3, len(world.log), world.now_ms).records == []


def test_who_does_not_lead_says_who_does() -> None:
    world = World.with_brokers(1)
    world.controller.on_resign(7)
    (result,) = world.ask(creation("t"), messages.CreateTopicsResponse).topics
    assert (error_name(result.error_code), result.error_message) == ("NOT_CONTROLLER", "The active controller appears to be node 7.")
    assert world.controller.tick(10**12) is None
    world.controller.leader_id = None
    assert error_name(world.heartbeat(1).error_code) == "NOT_CONTROLLER"
    assert str(world.controller.not_controller()) == "No controller appears to be active."


def test_what_is_not_committed_is_taken_back() -> None:
    world = World.with_brokers(1, 2)
    world.ask(creation("kept"), messages.CreateTopicsResponse)
    world.commits = False
    world.ask(creation("lost"), messages.CreateTopicsResponse)
    world.heartbeat(2, want_fence=True)
    world.ask(messages.UnregisterBrokerRequest(1), messages.UnregisterBrokerResponse)
    world.controller.on_resign()
    state = world.controller.parts
    assert state.state.named("lost") is None
    assert state.state.named("kept") is not None
    assert sorted(state.cluster.brokers) == [1, 2]
    assert not state.cluster.brokers[2].fenced


@pytest.mark.parametrize(
    ("changes", "error"),
    [
        ({"cluster_id": "other"}, "INCONSISTENT_CLUSTER_ID"),
        ({"log_dirs": []}, "INVALID_REGISTRATION"),
        ({"log_dirs": [bytes(16)]}, "INVALID_REGISTRATION"),
        ({"log_dirs": [directory(9)] * 2}, "INVALID_REGISTRATION"),
        ({"log_dirs": [directory(1)]}, "INVALID_REGISTRATION"),
        ({"is_migrating_zk_broker": True}, "BROKER_ID_NOT_REGISTERED"),
        ({"features": []}, "INVALID_REGISTRATION"),
        ({"features": [messages.broker_registration_request.Feature("metadata.version", 1, 7)]}, "UNSUPPORTED_VERSION"),
        ({"broker_id": 1, "incarnation_id": b"x" * 16}, "DUPLICATE_BROKER_REGISTRATION"),
        ({"listeners": [messages.broker_registration_request.Listener("A", "b", 1, 9)]}, "UNKNOWN_SERVER_ERROR"),
    ],
)
def test_registrations_that_are_refused(changes: dict[str, object], error: str) -> None:
    world = World.with_brokers(1)
    request = registration(9)
    for name, value in changes.items():
        setattr(request, name, value)
    assert error_name(world.ask(request, messages.BrokerRegistrationResponse).error_code) == error


def test_a_finalized_feature_that_a_broker_lacks() -> None:
    world = World()
    request = registration(1)
    request.features = [feature for feature in request.features if feature.name != "transaction.version"]
    assert error_name(world.ask(request, messages.BrokerRegistrationResponse).error_code) == "UNSUPPORTED_VERSION"


def test_a_registration_is_amended_or_begins_anew() -> None:
    world = World.with_brokers(1)
    epoch = world.epochs[1]
    assert world.register(1, dirs=2) == 0
    assert (world.epochs[1], world.controller.parts.cluster.brokers[1].fenced) == (epoch, False)
    world.now_ms += 10_000
    assert world.register(1, incarnation=2) == 0
    assert world.epochs[1] > epoch
    assert world.controller.parts.cluster.brokers[1].fenced


def test_a_broker_is_unfenced_when_it_has_caught_up() -> None:
    world = World()
    world.register(1)
    answer = world.heartbeat(1, current_metadata_offset=3)
    assert (answer.is_caught_up, answer.is_fenced) == (False, True)
    answer = world.heartbeat(1)
    assert (answer.is_caught_up, answer.is_fenced, answer.should_shut_down) == (True, False, False)


def test_a_session_holds_to_its_very_end() -> None:
    """It is still valid at its last millisecond, as in BrokerHeartbeatTracker.isExpired."""
    world = World.with_brokers(1)
    heartbeats, epoch, now_ms = world.controller.parts.cluster.heartbeats, world.epochs[1], world.now_ms
    heartbeats.contact(1, epoch, now_ms)
    assert heartbeats.has_valid_session(1, epoch, now_ms + 9_000)
    assert not heartbeats.has_valid_session(1, epoch, now_ms + 9_001)
    assert heartbeats.take_expired(now_ms + 9_000) is None
    assert heartbeats.take_expired(now_ms + 9_001) == (1, epoch)


def test_a_silent_broker_is_fenced() -> None:
    world = World.with_brokers(1, 2)
    assert world.controller.next_tick_ms == world.now_ms + 9_000 // 8
    assert world.tick(8_000) == []
    world.heartbeat(1)
    (fenced,) = world.tick(2_000)
    assert isinstance(fenced, messages.BrokerRegistrationChangeRecord)
    assert (fenced.broker_id, fenced.fenced) == (2, 1)


def test_controlled_shutdown() -> None:
    world = World.with_brokers(1, 2)
    world.ask(creation("t", [1, 2]), messages.CreateTopicsResponse)
    answer = world.heartbeat(1, want_shut_down=True)
    assert not answer.should_shut_down
    assert world.partition("t").leader == 2
    moved_at = len(world.log) - 1
    world.heartbeat(2, current_metadata_offset=moved_at - 1)
    assert not world.heartbeat(1, want_shut_down=True).should_shut_down  # the other one has not learned yet that it leads
    world.heartbeat(2, current_metadata_offset=moved_at)
    answer = world.heartbeat(1, want_shut_down=True)
    assert (answer.should_shut_down, answer.is_fenced) == (True, True)
    assert world.controller.parts.cluster.brokers[1].fenced


def test_brokers_without_leaderships_and_fenced_ones_go_at_once() -> None:
    world = World.with_brokers(1)
    world.register(2)
    assert world.heartbeat(1, want_shut_down=True).should_shut_down
    assert world.heartbeat(2, want_shut_down=True).should_shut_down


def test_epochs_of_brokers() -> None:
    world = World.with_brokers(1)
    world.epochs[1] += 1
    assert error_name(world.heartbeat(1).error_code) == "STALE_BROKER_EPOCH"
    world.epochs[5] = 1
    assert error_name(world.heartbeat(5).error_code) == "STALE_BROKER_EPOCH"
    answer = world.ask(messages.AllocateProducerIdsRequest(5, 1), messages.AllocateProducerIdsResponse)
    assert error_name(answer.error_code) == "STALE_BROKER_EPOCH"


def test_unregistered_brokers() -> None:
    world = World.with_brokers(1, 2)
    world.ask(creation("t", [1, 2]), messages.CreateTopicsResponse)
    assert world.ask(messages.UnregisterBrokerRequest(1), messages.UnregisterBrokerResponse).error_code == 0
    assert world.partition("t").leader == 2
    answer = world.ask(messages.UnregisterBrokerRequest(1), messages.UnregisterBrokerResponse)
    assert (error_name(answer.error_code), answer.error_message) == (
        "BROKER_ID_NOT_REGISTERED",
        "Broker ID 1 is not currently registered",
    )


def test_controllers_register() -> None:
    world = World()
    request = messages.ControllerRegistrationRequest(3000, b"i" * 16)
    assert world.ask(request, messages.ControllerRegistrationResponse).error_code == 0
    assert world.controller.parts.cluster.controllers[3000].incarnation_id == b"i" * 16
    old = World(replace(SETTINGS, bootstrap=bootstrap_records(VERSIONS[3])))
    assert error_name(old.ask(request, messages.ControllerRegistrationResponse).error_code) == "UNSUPPORTED_VERSION"


def test_producer_ids_come_in_blocks() -> None:
    world = World.with_brokers(1)
    request = messages.AllocateProducerIdsRequest(1, world.epochs[1])
    given = [world.ask(request, messages.AllocateProducerIdsResponse) for _ in range(2)]
    assert [(one.producer_id_start, one.producer_id_len) for one in given] == [(0, 1000), (1000, 1000)]


def update(world: World, name: str, level: int, kind: int = 1, *, validate_only: bool = False) -> tuple[str, str | None]:
    """Return the error and the text after the common beginning."""
    request = messages.UpdateFeaturesRequest(
        feature_updates=[FeatureUpdateKey(name, level, upgrade_type=kind)], validate_only=validate_only
    )
    answer = world.ask(request, messages.UpdateFeaturesResponse)
    return error_name(answer.error_code), (answer.error_message or "").rpartition("an error: ")[2] or None


def test_features() -> None:
    world = World.with_brokers(1, elr=False)
    assert update(world, "transaction.version", 2, validate_only=True) == ("NONE", None)
    assert "transaction.version" not in world.controller.parts.features.finalized
    assert update(world, "transaction.version", 2) == ("NONE", None)
    assert world.controller.parts.features.finalized["transaction.version"] == 2
    invalid = "Invalid update version 1 for feature transaction.version. Can't downgrade the version of this feature without setting the "
    assert update(world, "transaction.version", 1) == (
        "INVALID_UPDATE_VERSION",
        f"{invalid}upgrade type to either safe or unsafe downgrade.",
    )
    assert update(world, "transaction.version", 0, 2) == ("NONE", None)
    assert "transaction.version" not in world.controller.parts.features.finalized
    assert update(world, "eligible.leader.replicas.version", 1) == ("NONE", None)
    assert world.log[-2] == (messages.ConfigRecord(4, "", "min.insync.replicas", "1"), 0)
    refused = update(world, "metadata.version", 29, 2)
    assert refused[1] == (
        "Unsupported metadata.version downgrade from 30 to 29. "
        "Refusing to perform the requested downgrade because it might delete metadata information."
    )
    assert update(world, "nonsense", 1)[0] == "INVALID_UPDATE_VERSION"
    assert update(world, "kraft.version", 1)[0] == "UNSUPPORTED_VERSION"


def test_metadata_versions() -> None:
    assert (LATEST_PRODUCTION.level, LATEST_PRODUCTION.name, LATEST_PRODUCTION.release) == (30, "4.3-IV0", "4.3")
    assert [(version.level, version.name) for version in VERSIONS[::8]] == [
        (7, "3.3-IV3"),
        (15, "3.7-IV0"),
        (23, "4.0-IV1"),
        (31, "4.4-IV0"),
    ]
    assert from_level(6) is None
    assert not metadata_changed_between(VERSIONS[17], VERSIONS[22])
    assert metadata_changed_between(VERSIONS[22], VERSIONS[23])
    assert default_level("transaction.version", LATEST_PRODUCTION) == 2


def alter(world: World, kind: int, name: str, *changes: tuple[str, int, str | None]) -> tuple[str, str | None]:
    """Return the error and the text of an incremental change."""
    configs = [AlterableConfig(key, operation, value) for key, operation, value in changes]
    request = messages.IncrementalAlterConfigsRequest([AlterConfigsResource(kind, name, configs)])
    (answer,) = world.ask(request, messages.IncrementalAlterConfigsResponse).responses
    return error_name(answer.error_code), answer.error_message


def test_settings() -> None:
    world = World.with_brokers(1)
    world.ask(creation("t"), messages.CreateTopicsResponse)
    configs = world.controller.parts.configs
    assert alter(world, 2, "t", ("cleanup.policy", 2, "compact"), ("retention.ms", 0, "5")) == ("NONE", None)
    assert configs.settings((2, "t")) == {"cleanup.policy": "delete,compact", "retention.ms": "5"}
    assert alter(world, 2, "t", ("cleanup.policy", 3, "delete"), ("retention.ms", 1, None)) == ("NONE", None)
    assert configs.settings((2, "t")) == {"cleanup.policy": "compact"}
    assert alter(world, 2, "t", ("retention.ms", 2, "5"))[1] == "Can't APPEND to key retention.ms because its type is not LIST."
    assert alter(world, 2, "nowhere", ("retention.ms", 0, "5")) == (
        "UNKNOWN_TOPIC_OR_PARTITION",
        "The topic 'nowhere' does not exist.",
    )
    assert alter(world, 4, "9", ("log.retention.ms", 0, "5")) == ("BROKER_ID_NOT_REGISTERED", "No node with id 9 found.")
    assert alter(world, 4, "x", ("log.retention.ms", 0, "5"))[1] == "Unable to parse broker name as a base 10 number."
    assert (
        alter(world, 4, "1", ("min.insync.replicas", 0, "2"))[1]
        == "Broker-level min.insync.replicas cannot be altered while ELR is enabled."
    )
    assert (
        alter(world, 4, "", ("min.insync.replicas", 1, None))[1]
        == "Cluster-level min.insync.replicas cannot be removed while ELR is enabled."
    )
    assert alter(world, 3, "", ("a", 0, "b"))[0] == "UNSUPPORTED_VERSION"
    assert alter(world, 4, "", ("log.retention.hours", 0, "2")) == ("NONE", None)
    assert configs.topic_setting("t", "retention.ms") == "7200000"


def test_all_settings_at_once() -> None:
    world = World.with_brokers(1)
    world.ask(creation("t", retention_ms="5", segment_ms="6"), messages.CreateTopicsResponse)
    resource = LegacyResource(2, "t", [LegacyConfig("retention.ms", "7")])
    twice = [LegacyResource(2, "u", []), LegacyResource(2, "u", [])]
    answers = world.ask(messages.AlterConfigsRequest([resource, *twice]), messages.AlterConfigsResponse).responses
    assert [(one.resource_name, error_name(one.error_code)) for one in answers] == [("t", "NONE"), ("u", "INVALID_REQUEST")]
    assert world.controller.parts.configs.settings((2, "t")) == {"retention.ms": "7"}


def test_no_op_records_come_in_time() -> None:
    world = World(replace(SETTINGS, max_idle_interval_ms=500))
    assert world.tick(499) == []
    assert world.tick(1) == [messages.NoOpRecord()]


def test_a_log_that_no_controller_wrote() -> None:
    world = World.with_brokers(1)
    for record in (
        messages.PartitionRecord(topic_id=b"x" * 16),
        messages.BrokerRegistrationChangeRecord(9, 9),
        messages.FeatureLevelRecord("metadata.version", 99),
        messages.EndTransactionRecord(),
        messages.RemoveTopicRecord(b"x" * 16),
        messages.ClearElrRecord("nowhere"),
    ):
        with pytest.raises(ValueError):
            world.controller.replay(record, len(world.log))


def test_kraft_version_is_the_raft_layers() -> None:
    asked: list[tuple[int, bool]] = []
    world = World.with_brokers(1)

    def upgrade(level: int, validate_only: bool) -> None:
        asked.append((level, validate_only))
        if len(asked) > 1:
            raise ApiError("INVALID_UPDATE_VERSION", "no")

    world.controller.parts.features.upgrade_kraft_version = upgrade
    assert update(world, "kraft.version", 1) == ("NONE", None)
    assert update(world, "kraft.version", 1) == ("INVALID_UPDATE_VERSION", "no")
    assert asked == [(1, False), (1, False)]
    assert world.settings.cluster_id == CLUSTER_ID
