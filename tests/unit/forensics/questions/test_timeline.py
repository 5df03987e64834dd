"""`kops.forensics.questions.timeline`: events of a log with everything in it, the order, the body file."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from kops.files import OsFiles
from kops.forensics.coordinators.records import Lost
from kops.forensics.questions.reading import find_logs
from kops.forensics.questions.timeline import HOUR_MS, KEYS, Choice, bars, body_line, events_of, order_of
from kops.records import Record, build_batch, end_txn_marker
from kops.records.build import empty_batch
from tests.support import corpus

START = 472_222 * HOUR_MS
N1 = corpus.load("cluster-4.3.0").root / "nodes" / "n1"


def batch(*offsets: int, at: int, **fields: object) -> bytes:
    return build_batch([Record(offset, at, "CreateTime", b"k", b"v") for offset in offsets], **fields)


def events(path: Path, choice: Choice | None = None) -> list[dict[str, Any]]:
    files = OsFiles(read_only=True)
    found = [event for replica in find_logs([str(path)], files).replicas for event in events_of(files, replica, choice or Choice())]
    return sorted((event for event in found if not isinstance(event, Lost)), key=order_of)


def make(path: Path) -> None:
    path.mkdir()
    marker = {"coordinator_epoch": 0, "producer_epoch": 0, "partition_leader_epoch": 4}
    first = [
        batch(0, 1, at=START + 5, partition_leader_epoch=3),
        batch(2, at=START + HOUR_MS - 1, partition_leader_epoch=3),
        batch(3, 4, 5, at=START + HOUR_MS, partition_leader_epoch=4),
        empty_batch(base_offset=6, last_offset=8, producer_id=3, timestamp=START + HOUR_MS, partition_leader_epoch=4),
    ]
    second = [
        batch(9, at=START + 2 * HOUR_MS, partition_leader_epoch=4),
        end_txn_marker(10, START + 2 * HOUR_MS, commit=True, producer_id=7, **marker),
        end_txn_marker(11, START + 2 * HOUR_MS, commit=True, producer_id=8, **marker),
        end_txn_marker(12, START + 2 * HOUR_MS, commit=False, producer_id=9, **marker),
    ]
    (path / "00000000000000000000.log").write_bytes(b"".join(first))
    (path / "00000000000000000009.log").write_bytes(b"".join(second))
    (path / "00000000000000000000.log.deleted").write_bytes(b"x" * 17)


def test_a_log_with_everything_in_it(tmp_path: Path) -> None:
    make(tmp_path / "t-0")
    found = [event for event in events(tmp_path / "t-0") if event["event"] != "deleted"]
    names = ("time", "event", "offset", "last_offset", "records", "leader_epoch", "producer_id")
    assert [tuple(event[name] for name in names) for event in found] == [
        (START, "appends", 0, 2, 3, None, None),
        (START + 5, "leader-epoch", 0, None, None, 3, None),
        (START + HOUR_MS, "appends", 3, 8, 3, None, None),
        (START + HOUR_MS, "leader-epoch", 3, None, None, 4, None),
        (START + 2 * HOUR_MS, "appends", 9, 9, 1, None, None),
        (START + 2 * HOUR_MS, "roll", 9, None, None, None, None),
        (START + 2 * HOUR_MS, "commit", 10, 11, 2, None, None),
        (START + 2 * HOUR_MS, "abort", 12, 12, 1, None, 9),
    ]
    [deleted] = [event for event in events(tmp_path / "t-0") if event["event"] == "deleted"]
    assert (deleted["bytes"], deleted["detail"]) == (17, "00000000000000000000.log.deleted")
    assert all(tuple(event) == KEYS for event in found)


def test_only_what_is_wanted(tmp_path: Path) -> None:
    make(tmp_path / "t-0")
    path = tmp_path / "t-0"
    assert {event["event"] for event in events(path, Choice(events=("roll", "abort")))} == {"roll", "abort"}
    assert events(path, Choice(topics=("other",))) == []
    inside = events(path, Choice(from_time=START + 10, to_time=START + HOUR_MS))
    assert [event["event"] for event in inside] == ["appends", "appends", "leader-epoch"]
    by_minute = events(path, Choice(interval_ms=60_000, events=("appends",)))
    assert [event["records"] for event in by_minute] == [2, 1, 3, 1]


def test_bars_compare_the_records_of_appends(tmp_path: Path) -> None:
    make(tmp_path / "t-0")
    shown = [(event["event"], event["bar"]) for event in bars(events(tmp_path / "t-0")) if event["event"] != "deleted"]
    assert [len(bar) for event, bar in shown if event == "appends" and bar is not None] == [20, 20, 7]
    assert {bar for event, bar in shown if event != "appends"} == {None}


def test_lines_of_a_body_file() -> None:
    event = dict.fromkeys(KEYS)
    roll = {
        **event,
        "time": 5_999,
        "event": "roll",
        "topic": "t",
        "partition": 0,
        "offset": 9,
        "bytes": 12,
        "path": "a|b.log",
        "detail": "x",
    }
    assert body_line(roll) == "0|a_b.log (roll: t-0; offset 9, x)|0|r/rrw-r--r--|0|0|12|0|0|0|5"
    for name, place in (("appends", 8), ("deleted", 9), ("election", 8), ("topic-created", 10)):
        fields = body_line({**roll, "event": name}).split("|")
        assert len(fields) == 11
        assert [number for number in range(7, 11) if fields[number] == "5"] == [place]
    assert body_line({**roll, "time": None}).endswith("|0|0|0|0")


def test_epochs_and_elections_are_those_of_the_cluster() -> None:
    found = [event for event in events(N1) if event["topic"] == "orders-epochs"]
    epochs = [f"{event['leader_epoch']} {event['offset']}" for event in found if event["event"] == "leader-epoch"]
    lines = (N1 / "orders-epochs-0" / "leader-epoch-checkpoint").read_text().split("\n")[2:]
    assert epochs == [line for line in lines if line]
    elections = [event for event in found if event["event"] == "election"]
    assert [event["leader_epoch"] for event in elections] == list(range(len(elections)))
    assert elections[-1]["detail"] == "leader 1 -> 2, in sync [2, 3]"
    assert [event["event"] for event in found if event["event"].startswith("topic-")] == ["topic-created"]
    gone = [event["event"] for event in events(N1) if event["topic"] == "gone" and event["event"].startswith("topic-")]
    assert gone == ["topic-created", "topic-deleted"]


@pytest.mark.parametrize("path", ["/a|b/orders-0", "/a\nb/orders-0", "/a\r\x1b[31m\t\x00\u2028\udcff/orders-0", "#/o", "/größe/orders-0"])
@pytest.mark.parametrize(
    ("kind", "time", "places"), [("roll", 1_999, [10]), ("deleted", 1_999, [9]), ("appends", 1_999, [8]), ("isr", None, [])]
)
def test_mactime_reads_every_line(path: str, kind: str, time: int | None, places: list[int]) -> None:
    """mactime skips lines that begin with #, splits the others at each | into eleven fields, and shows times above 0."""
    event = dict.fromkeys(KEYS) | {"time": time, "event": kind, "topic": "orders", "partition": 0, "offset": 7, "path": path, "bytes": 12}
    line = body_line(event | {"detail": "of | and \n"})
    assert not line.startswith("#")
    (only,) = line.splitlines()
    fields = only.split("|")
    assert len(fields) == 11
    assert fields[0] == "0" and fields[1].endswith(f"({kind}: orders-0; offset 7, of _ and _)")
    assert [int(each) for each in fields[2:3] + fields[4:7]] == [0, 0, 0, 12]
    assert [place for place in range(7, 11) if int(fields[place])] == places
    assert {fields[place] for place in places} <= {"1"}
    line.encode()
