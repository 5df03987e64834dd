"""Settings that a program gives to a client: types, limits, unknown names, and rules between settings."""

from __future__ import annotations

import pytest

from kops.client.config.consumer import CONSUMER_CONFIG_DEF, NOT_FOR_SHARE_GROUPS, share_consumer_settings
from kops.client.config.producer import PRODUCER_CONFIG_DEF, producer_settings
from kops.errors import UsageError

SERVERS = {"bootstrap.servers": "a:1"}


def test_values_of_python_and_texts() -> None:
    values = producer_settings({"bootstrap.servers": ["a:1", "b:2"], "linger.ms": 7, "batch.size": "9", "partitioner.ignore.keys": True})
    assert values["bootstrap.servers"] == ["a:1", "b:2"]
    assert (values["linger.ms"], values["batch.size"], values["partitioner.ignore.keys"]) == (7, 9, True)
    assert (values["acks"], values["retries"], values["enable.idempotence"]) == ("-1", 2**31 - 1, True)
    assert set(values) == set(PRODUCER_CONFIG_DEF.keys)


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"linger.ms": True}, "linger.ms=True: not allowed; allowed: 0 or more"),
        ({"linger.ms": "soon"}, "linger.ms=soon: not a 64-bit integer; allowed: 0 or more"),
        ({"batch.size": 2**31}, "batch.size=2147483648: not allowed; allowed: 0 or more"),
        ({"batch.size": -1}, "batch.size=-1: not allowed; allowed: 0 or more"),
        ({"enable.idempotence": 1}, "enable.idempotence=1: not allowed; allowed: true or false"),
        ({"acks": 2}, "acks=2: not allowed; allowed: all or -1 or 0 or 1"),
        ({"client.id": None}, "client.id=None: not allowed; allowed: text"),
        ({"bootstrap.servers": []}, "bootstrap.servers=[]: not allowed; allowed: a list that is not empty"),
        ({"ssl.truststore.location": "/x"}, "ssl.truststore.location: not supported: TLS and SASL are not supported yet"),
        ({"security.protocol": "sasl_ssl"}, "security.protocol=sasl_ssl: TLS and SASL are not supported yet; allowed: PLAINTEXT"),
        ({"config.providers": "file"}, "config.providers: not supported: config providers are Java classes"),
        ({"enable.idempotence": True, "acks": "1"}, "acks=1: not with enable.idempotence=true; allowed: all"),
        ({"enable.idempotence": True, "retries": 0}, "retries=0: not with enable.idempotence=true; allowed: 1 or more"),
        ({"max.in.flight.requests.per.connection": 6}, "max.in.flight.requests.per.connection=6: not with an idempotent producer"),
        ({"transactional.id": "t", "acks": "1"}, "transactional.id=t: a transactional producer needs"),
        ({"delivery.timeout.ms": 30_000}, "delivery.timeout.ms=30000: not allowed; allowed: linger.ms + request.timeout.ms (30005)"),
        ({"transaction.two.phase.commit.enable": True}, "transaction.two.phase.commit.enable: not supported"),
    ],
)
def test_what_is_not_allowed_is_named(given: dict[str, object], words: str) -> None:
    with pytest.raises(UsageError) as error:
        producer_settings({**SERVERS, **given})
    assert str(error.value).startswith(words)


def test_servers_are_required() -> None:
    with pytest.raises(UsageError, match=r"^bootstrap\.servers: missing"):
        producer_settings({})


def test_idempotence_gives_way_unless_it_was_asked_for() -> None:
    assert producer_settings({**SERVERS, "acks": "1"})["enable.idempotence"] is False
    assert producer_settings({**SERVERS, "acks": 1})["acks"] == "1"  # as other clients take it
    values = producer_settings({**SERVERS, "acks": "0", "max.in.flight.requests.per.connection": 5})
    assert (values["acks"], values["enable.idempotence"]) == ("0", False)
    assert producer_settings({**SERVERS, "enable.idempotence": False, "max.in.flight.requests.per.connection": 9})["retries"] == 2**31 - 1


def test_what_follows_from_other_settings(caplog: pytest.LogCaptureFixture) -> None:
    values = producer_settings({**SERVERS, "reconnect.backoff.ms": 7, "linger.ms": 100_000})
    assert values["reconnect.backoff.max.ms"] == 7
    assert values["delivery.timeout.ms"] == 130_000
    assert "delivery.timeout.ms is 130000" in caplog.text


def test_unknown_names_are_logged(caplog: pytest.LogCaptureFixture) -> None:
    values = producer_settings({**SERVERS, "linger": 1, "metric.reporters": ""})
    assert "linger" not in values
    assert "unknown setting linger is ignored; did you mean linger.ms?" in caplog.text
    assert "no effect here: metric.reporters" in caplog.text


def test_a_share_consumer_has_settings_of_its_own() -> None:
    values = share_consumer_settings({**SERVERS, "group.id": "g", "share.acquire.mode": "record_limit"})
    assert (values["share.acknowledgement.mode"], values["max.poll.records"]) == ("implicit", 500)
    assert set(values) == set(CONSUMER_CONFIG_DEF.keys)
    for name in NOT_FOR_SHARE_GROUPS:
        with pytest.raises(UsageError, match=f"^{name}: not allowed in a share group"):
            share_consumer_settings({**SERVERS, "group.id": "g", name: CONSUMER_CONFIG_DEF.keys[name].default or "x"})
    with pytest.raises(UsageError, match=r"^group\.id=: missing"):
        share_consumer_settings({**SERVERS, "group.id": " "})
