"""kops's UnifiedLog compared with Kafka's own: random lives of a log, equal after every step (tests/support/logs/twins/twin_logs.py)."""

from __future__ import annotations

from pathlib import Path

import pytest

from kops.records import BatchBuilder
from tests.support.kafka.oracle import Oracle
from tests.support.logs.twins.twin_logs import KopsLog, Refused, Twin, TwinMismatch
from tests.support.logs.twins.twin_steps import START_MS, Life


def live(oracle: Oracle, directory: Path, seed: int, steps: int) -> Twin:
    directory.mkdir()
    twin = Twin(oracle, directory, START_MS)
    Life(twin, seed).run(steps)
    return twin


@pytest.mark.parametrize("seed", range(6))
def test_a_life(oracle: Oracle, tmp_path: Path, seed: int) -> None:
    live(oracle, tmp_path / "life", seed, 60)


@pytest.mark.slow
@pytest.mark.timeout(0)
def test_many_lives(oracle: Oracle, tmp_path: Path, seed_count: int | None) -> None:
    """The lives have about two thousand steps. `--seeds N` runs more."""
    steps = sum(len(live(oracle, tmp_path / str(seed), seed, 100).history) for seed in range(1000, 1000 + (seed_count or 20)))
    assert steps > 60 * (seed_count or 20)


def test_a_difference_is_found(oracle: Oracle, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A difference in a result, in the state or in a file is found."""
    twin = live(oracle, tmp_path / "life", 1, 0)
    builder = BatchBuilder()
    builder.append(START_MS, b"key", b"value")
    twin.do("append_leader", builder.build(), 0, "CLIENT", None, -1)
    monkeypatch.setattr(KopsLog, "end_of_epoch", lambda self, epoch: (epoch, 7))
    with pytest.raises(TwinMismatch, match=r"Kafka: \(0, 1\)\nkops:  \(0, 7\)"):
        twin.do("end_of_epoch", 0)
    monkeypatch.setattr(KopsLog, "flush", lambda self, force: None)
    with pytest.raises(TwinMismatch, match="recovery point:\n Kafka 1\n kops  0"):
        twin.do("flush", False)
    monkeypatch.setattr(twin, "compare_state", lambda: None)
    monkeypatch.setattr(KopsLog, "take_snapshot", lambda self: None)
    with pytest.raises(TwinMismatch, match=r"00000000000000000001\.snapshot: 10 bytes.*kops missing"):
        twin.do("take_snapshot")


def test_errors_are_compared(oracle: Oracle, tmp_path: Path) -> None:
    twin = live(oracle, tmp_path / "life", 1, 0)
    assert twin.do("append_leader", b"\0" * 40, 0, "CLIENT", None, -1) == Refused(
        "CORRUPT_MESSAGE", "CorruptRecordException", "Record size 0 is less than the minimum record overhead (14)"
    )
    assert not Refused("A", None, "text").same(Refused("B", None, "text"))
    assert not Refused("A", None, "text").same(Refused("A", None, "other"))
    assert Refused("A", "X", "text").same(Refused(None, "X", "text"))


def batch_of_producer(sequence: int) -> bytes:
    """Return a batch with one record."""
    builder = BatchBuilder(producer_id=7, producer_epoch=0, base_sequence=sequence)
    builder.append(START_MS, b"key", b"value")
    return builder.build()


def test_any_first_sequence_number_of_a_producer_is_accepted(oracle: Oracle, tmp_path: Path) -> None:
    twin = live(oracle, tmp_path / "life", 1, 0)
    assert offset_of(twin.do("append_leader", batch_of_producer(2), 0, "CLIENT", None, -1)) == "0"
    refused = twin.do("append_leader", batch_of_producer(0), 0, "CLIENT", None, -1)
    assert isinstance(refused, Refused)
    assert refused.code == "OUT_OF_ORDER_SEQUENCE_NUMBER"


def test_a_batch_before_the_last_five_of_a_producer_is_no_longer_known(oracle: Oracle, tmp_path: Path) -> None:
    twin = live(oracle, tmp_path / "life", 1, 0)
    for sequence in (0, 1, 2, 3, 4, 5, 1):
        assert offset_of(twin.do("append_leader", batch_of_producer(sequence), 0, "CLIENT", None, -1)) == str(sequence)
    refused = twin.do("append_leader", batch_of_producer(0), 0, "CLIENT", None, -1)
    assert isinstance(refused, Refused)
    assert refused.code == "OUT_OF_ORDER_SEQUENCE_NUMBER"


@pytest.mark.parametrize("is_clean", [True, False])
def test_a_restarted_log_knows_only_the_last_batch_of_a_producer(oracle: Oracle, tmp_path: Path, is_clean: bool) -> None:
    """Before the restart a batch that is sent again is known. Afterwards only the last one is, because snapshots have no more."""

    def append(sequence: int) -> object:
        return twin.do("append_leader", batch_of_producer(sequence), 0, "CLIENT", None, -1)

    twin = live(oracle, tmp_path / "life", 1, 0)
    for sequence in range(3):
        append(sequence)
    assert [offset_of(append(sequence)) for sequence in range(3)] == ["0", "1", "2"]
    if is_clean:
        twin.do("close", open_afterwards=False)
    else:
        twin.kill()
    twin.do("open", {}, 0, 3 if is_clean else 0, is_clean)
    refused = append(1)
    assert isinstance(refused, Refused)
    assert refused.code == "OUT_OF_ORDER_SEQUENCE_NUMBER"
    assert offset_of(append(2)) == "2"
    assert offset_of(append(3)) == "3"


def offset_of(appended: object) -> str:
    """Return the first offset of an append."""
    assert isinstance(appended, dict), appended
    return str(appended["firstOffset"])
