"""`kops log replay` into Apache Kafka 4.3.0: after lost answers and a killed broker, every record is there once."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.cli.conftest import Ran
from tests.support.kafka.oracle import Oracle
from tests.support.kafka.real_broker import RealBroker
from tests.support.logs.replaying import replay_with_stops, rows_of, stop_at
from tests.support.logs.salvaged import SalvagedLog, salvaged_log

Kops = Callable[..., Ran]
pytestmark = pytest.mark.slow


def test_every_record_once(
    oracle: Oracle, tmp_path: Path, capsysbinary: pytest.CaptureFixture[bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    from kops.cli.main import main

    def kops(*arguments: str) -> Ran:
        code = main(list(arguments))
        captured = capsysbinary.readouterr()
        return Ran(code, captured.out, captured.err.decode())

    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("kops.client.replay.rounds.BATCH_BYTES", 700)
    logs = [salvaged_log(), salvaged_log(batches=3)]
    logs[1].batch(2, size=3000)
    for number, log in enumerate(logs):
        log.write(tmp_path / "in" / f"orders-{number}")
    with RealBroker(oracle, tmp_path / "run", log_dirs=[tmp_path / "disk"]) as broker:
        for topic in ("orders", "killed"):
            ran = kops("topic", "create", topic, "--partitions", "2", "--config", "max.message.bytes=1000", "-b", broker.bootstrap)
            assert ran.code == 0, ran.err
        runs = replay_with_stops(kops, monkeypatch, tmp_path / "in", tmp_path, broker.bootstrap)
        assert runs > 3
        sent = [row for row in logs[1].committed if len(row[2] or "") < 3000]
        assert rows_of(kops, "orders", broker.bootstrap) == {0: logs[0].committed, 1: sent}
        rejected = [json.loads(line) for line in (tmp_path / "rejected").read_text().splitlines()]
        assert [row["reason"].partition(":")[0] for row in rejected] == ["MESSAGE_TOO_LARGE"] * 2
        log = SalvagedLog()
        for _ in range(4):
            log.batch(5, size=90)
        log.write(tmp_path / "killed-1")
        with monkeypatch.context() as patched:
            stop_at(patched, 3)
            assert kops("log", "replay", "killed-1", "-b", broker.bootstrap).code & 8
        broker.kill()
        broker.start()
        ran = kops("log", "replay", "killed-1", "--resume", "-b", broker.bootstrap)
        assert ran.code == 0, ran.err
        got = rows_of(kops, "killed", broker.bootstrap)[1]
        assert got == log.committed
