"""A stream of a log that is being written, without Spark. Every row comes once, whatever happens to the log."""

from __future__ import annotations

from pathlib import Path

import pytest

from kops.errors import NotFoundError, UsageError
from kops.files import OsFiles
from kops.spark.source.ranges import DataLossError
from kops.spark.source.stream import KafkaLogStreamReader
from tests.spark.stream.tailing import OTHER_ID, LiveLog, Query, damages, offsets, values


def test_what_is_appended_comes_once(tmp_path: Path) -> None:
    log = LiveLog(tmp_path)
    query = Query(tmp_path)
    assert query.batch() == []
    log.append(b"a", b"b")
    assert offsets(query.batch()) == [0, 1, 2, 3]
    assert query.batch() == []
    log.log.roll()
    log.append(b"c")
    rows = query.batch()
    assert (offsets(rows), values(rows)) == ([4, 5], [b"c", b"c"])
    assert {(row["topic"], row["partition"], row["broker"]) for row in rows} == {("orders", 0, 1)}
    assert query.start == {"orders": {"0": 6}, "@ids": {"orders": "AAAAAAAAAAAAAAAAAAAAAQ"}, "@epochs": {"orders": {"0": 0}}}


def test_nothing_above_the_high_watermark(tmp_path: Path) -> None:
    log = LiveLog(tmp_path)
    log.append(b"a", b"b", is_kept=False)
    log.keep(3)
    query = Query(tmp_path)
    assert offsets(query.batch()) == [0, 1, 2]
    assert offsets(Query(tmp_path, bound="log-end").batch()) == [0, 1, 2, 3]
    log.keep()
    assert offsets(query.batch()) == [3]


def test_a_batch_that_was_not_committed_has_the_same_rows_again(tmp_path: Path) -> None:
    log = LiveLog(tmp_path)
    log.append(b"a", b"b")
    query = Query(tmp_path, maxOffsetsPerTrigger="3")
    first = query.batch(commits=False)
    log.append(b"c")
    log.log.roll()
    query.restart()
    assert query.batch() == first
    assert offsets(query.drain()) == [3, 4, 5]


@pytest.mark.parametrize("isolation", ["read_uncommitted", "read_committed"])
@pytest.mark.parametrize("limit", [{}, {"maxOffsetsPerTrigger": "1"}, {"maxBytesPerTrigger": "100"}])
def test_transactions(tmp_path: Path, isolation: str, limit: dict[str, str]) -> None:
    log = LiveLog(tmp_path)
    query = Query(tmp_path, isolation=isolation, **limit)
    log.append(b"plain")
    log.append(b"lost", producer_id=1, sequence=0, transactional=True)
    log.append(b"kept", producer_id=2, sequence=0, transactional=True)
    log.log.roll()
    log.append(b"after")
    committed = isolation == "read_committed"
    assert set(values(query.drain())) == ({b"plain"} if committed else {b"plain", b"lost", b"kept", b"after"})
    log.end(1, commit=False)
    assert values(query.drain()) == []
    log.end(2, commit=True)
    log.append(b"again", producer_id=1, sequence=2, transactional=True)
    query.restart()
    got = query.drain()
    assert values(got) == ([b"kept"] * 2 + [b"after"] * 2 if committed else [b"again"] * 2)
    log.end(1, commit=True)
    query.drain()
    assert len(values(query.rows)) == (8 if committed else 10)
    assert len(set(offsets(query.rows))) == len(offsets(query.rows))


def test_retention_of_what_was_not_read(tmp_path: Path) -> None:
    log = LiveLog(tmp_path)
    log.append(b"a")
    query, strict = Query(tmp_path, failOnDataLoss="false"), Query(tmp_path)
    query.drain()
    strict.drain()
    log.append(b"b")
    log.log.roll()
    log.append(b"c")
    log.delete_before(5)
    rows = query.drain()
    assert (offsets(rows), damages(rows)) == ([5], [("data-loss", 2, 4)])
    assert query.drain() == []
    with pytest.raises(DataLossError, match="orders-0: offsets 2 to 4 were deleted before they were read; the log begins at 5"):
        strict.batch()


def test_segments_that_were_deleted_after_the_range_was_planned(tmp_path: Path) -> None:
    log = LiveLog(tmp_path)
    log.append(b"a")
    log.log.roll()
    log.append(b"b")
    query, strict = Query(tmp_path, failOnDataLoss="false"), Query(tmp_path)
    planned = []
    for each in (query, strict):
        start = each.reader.initialOffset()
        planned.append(each.reader.partitions(start, each.reader.latestOffset(start, each.reader.getDefaultReadLimit())))
    log.delete_before(2)
    for path in log.path.glob("*.deleted"):
        path.unlink()
    rows = [row for task in planned[0] for found in query.reader.read(task) for row in found.to_pylist()]
    assert (offsets(rows), damages(rows)) == ([2, 3], [("data-loss", 0, 1)])
    with pytest.raises(DataLossError, match="offsets 0 to 1 are no longer in the log"):
        [rows for task in planned[1] for rows in strict.reader.read(task)]


def test_a_renamed_segment_is_read(tmp_path: Path) -> None:
    log = LiveLog(tmp_path)
    log.append(b"a")
    query = Query(tmp_path)
    start = query.reader.initialOffset()
    tasks = query.reader.partitions(start, query.reader.latestOffset(start, query.reader.getDefaultReadLimit()))
    log.log.close()
    found = query.reader.read(tasks[0])
    segment = log.path / f"{0:020}.log"
    segment.rename(f"{segment}.deleted")
    (log.path / f"{2:020}.log").write_bytes(b"")
    with pytest.raises(DataLossError):
        list(found)
    segment.with_name(f"{segment.name}.deleted").rename(segment)
    assert [row["offset"] for rows in query.reader.read(tasks[0]) for row in rows.to_pylist()] == [0, 1]


def test_a_leader_change_that_cuts_the_log(tmp_path: Path) -> None:
    log = LiveLog(tmp_path)
    log.append(b"a", b"b", b"c")
    query, strict = Query(tmp_path, failOnDataLoss="false", bound="log-end"), Query(tmp_path)
    query.drain()
    strict.drain()
    log.log.truncate_to(2)
    log.scheduler.run_due()
    log.append(b"other", epoch=1)
    rows = query.drain()
    assert (values(rows), offsets(rows), damages(rows)) == ([b"other"] * 2, [2, 3], [("data-loss", 2, 5)])
    with pytest.raises(DataLossError, match="orders-0: the log was cut at offset 2; offsets 2 to 5, which were read, are gone"):
        strict.batch()


def test_a_log_that_was_cut_and_grew_beyond(tmp_path: Path) -> None:
    log = LiveLog(tmp_path)
    log.append(b"a", b"b")
    query = Query(tmp_path, failOnDataLoss="false")
    query.drain()
    log.log.truncate_to(2)
    log.append(*[b"other"] * 5, epoch=1)
    query.restart()
    rows = query.drain()
    assert (offsets(rows), damages(rows)) == ([*range(2, 12)], [("data-loss", 2, 3)])


def test_a_topic_that_is_deleted_and_created_again(tmp_path: Path) -> None:
    log = LiveLog(tmp_path)
    log.append(b"a")
    query, strict = Query(tmp_path, failOnDataLoss="false"), Query(tmp_path)
    query.drain()
    strict.drain()
    log.delete_topic()
    rows = query.drain()
    assert damages(rows) == [("data-loss", None, None)]
    assert "the partition is gone" in rows[0]["damage"]["reason"]
    assert query.start is not None and "orders" not in query.start and query.start["@gone"] == {"orders": {"0": 2}}
    with pytest.raises(DataLossError, match="orders-0: the partition is gone"):
        strict.batch()
    LiveLog(tmp_path, topic_id=OTHER_ID).append(b"new", b"newer")
    rows = query.drain()
    assert (values(rows), offsets(rows)) == ([b"new"] * 2 + [b"newer"] * 2, [0, 1, 2, 3])
    assert "created again" in rows[0]["damage"]["reason"]
    with pytest.raises(DataLossError, match="deleted and created again"):
        strict.batch()


def test_a_directory_that_comes_back_is_continued(tmp_path: Path) -> None:
    log = LiveLog(tmp_path)
    log.append(b"a")
    query = Query(tmp_path, failOnDataLoss="false")
    query.drain()
    away = log.path.rename(tmp_path.parent / "away")
    query.drain()
    away.rename(log.path)
    log.append(b"b")
    assert offsets(query.drain()) == [2, 3]


def test_new_topics_and_partitions(tmp_path: Path) -> None:
    LiveLog(tmp_path).append(b"a")
    query = Query(tmp_path, startingOffsets="latest")
    assert query.drain() == []
    LiveLog(tmp_path, partition=1).append(b"b")
    LiveLog(tmp_path, topic="other", topic_id=OTHER_ID).append(b"c")
    assert sorted((row["topic"], row["partition"], row["offset"]) for row in query.drain()) == [
        ("orders", 1, 0),
        ("orders", 1, 1),
        ("other", 0, 0),
        ("other", 0, 1),
    ]


def test_another_replica_goes_on(tmp_path: Path) -> None:
    leader, follower = LiveLog(tmp_path / "1", broker=1), LiveLog(tmp_path / "2", broker=2)
    for log in (leader, follower):
        log.append(b"a", b"b", epoch=3)
    leader.append(b"c", epoch=3)
    query = Query(tmp_path / "1", tmp_path / "2")
    assert {row["broker"] for row in query.batch()} == {1}
    follower.append(b"c", epoch=3)
    follower.append(b"d", epoch=4)
    leader.delete_topic()
    rows = query.batch()
    assert (offsets(rows), {row["broker"] for row in rows}) == ([6, 7], {2})


def test_a_replica_whose_records_differ_does_not_go_on(tmp_path: Path) -> None:
    leader, follower = LiveLog(tmp_path / "1", broker=1), LiveLog(tmp_path / "2", broker=2)
    leader.append(b"a", b"b", epoch=3)
    follower.append(b"x", b"y", b"z", epoch=2)
    query = Query(tmp_path / "1", tmp_path / "2")
    assert values(query.batch()) == [b"a"] * 2 + [b"b"] * 2
    leader.delete_topic()
    with pytest.raises(DataLossError, match="the log has no leader epoch 3, which was read up to offset 4"):
        query.batch()


def test_a_range_is_read_on_where_a_replica_disappears(tmp_path: Path) -> None:
    logs = [LiveLog(tmp_path / name, broker=int(name)) for name in "12"]
    for log in logs:
        log.append(b"a")
        log.log.roll()
        log.append(b"b")
    query = Query(tmp_path / "1", tmp_path / "2", taskBytes="1")
    start = query.reader.initialOffset()
    tasks = query.reader.partitions(start, query.reader.latestOffset(start, query.reader.getDefaultReadLimit()))
    logs[0].delete_topic()
    rows = [row for task in tasks for found in query.reader.read(task) for row in found.to_pylist()]
    assert (offsets(rows), {row["broker"] for row in rows}) == ([0, 1, 2, 3], {2})


@pytest.mark.parametrize("limit", [{}, {"maxOffsetsPerTrigger": "1"}, {"maxBytesPerTrigger": "100"}, {"taskBytes": "100"}])
@pytest.mark.parametrize("damaged", [0, 1, 4, 7])
def test_damage_is_a_row_once(tmp_path: Path, damaged: int, limit: dict[str, str]) -> None:
    log = LiveLog(tmp_path)
    log.append(b"0", b"1", b"2")
    log.log.roll()
    log.append(b"3", b"4", b"5", b"6", b"7")
    _flip(log, damaged)
    query = Query(tmp_path, **limit)
    rows = query.drain()
    assert damages(rows) == [("crc-mismatch", 2 * damaged, 2 * damaged + 1)]
    assert offsets(rows) == [offset for offset in range(16) if offset // 2 != damaged]
    batches = Query(tmp_path, mode="batches", **limit).drain()
    assert sorted((row["baseOffset"], row["damage"] is None) for row in batches) == [(2 * each, each != damaged) for each in range(8)]
    assert query.drain() == []


def _flip(log: LiveLog, number: int) -> None:
    """Change a byte in the record of a batch. Each batch has two records."""
    segments = sorted(log.path.glob("*.log"))
    size = len(segments[0].read_bytes()) // 3
    segment, place = (segments[0], number) if number < 3 else (segments[1], number - 3)
    data = bytearray(segment.read_bytes())
    data[place * size + size - 8] ^= 1
    segment.write_bytes(data)


def test_limits(tmp_path: Path) -> None:
    large, small = LiveLog(tmp_path), LiveLog(tmp_path, partition=1)
    large.append(*[b"l"] * 40)
    large.log.roll()
    large.append(*[b"l"] * 10)
    small.append(b"s")
    query = Query(tmp_path, maxOffsetsPerTrigger="20")
    rows = query.batch()
    assert (len([row for row in rows if row["partition"] == 0]), len([row for row in rows if row["partition"] == 1])) == (19, 1)
    assert len(query.batch(everything=True)) == 82
    size = sum(path.stat().st_size for path in tmp_path.glob("*/*.log"))
    query = Query(tmp_path, maxBytesPerTrigger=str(size // 4))
    counts = []
    while rows := query.batch():
        counts.append(len(rows))
    assert sum(counts) == 102
    assert 4 <= len(counts) <= 8 and max(counts) <= 30


def test_available_now_ends_where_it_began(tmp_path: Path) -> None:
    log = LiveLog(tmp_path)
    log.append(b"a", b"b")
    query = Query(tmp_path, maxOffsetsPerTrigger="3")
    query.reader.prepareForTriggerAvailableNow()
    assert len(query.batch()) == 3
    log.append(b"c")
    LiveLog(tmp_path, partition=1).append(b"d")
    assert (offsets(query.batch()), query.batch()) == ([3], [])
    query.restart()
    query.reader.prepareForTriggerAvailableNow()
    assert len(query.drain()) == 4


def test_starting_offsets(tmp_path: Path) -> None:
    for partition in (0, 1):
        LiveLog(tmp_path, partition=partition).append(b"a", b"b")
    assert offsets(Query(tmp_path, startingOffsets='{"orders": {"0": 3, "1": -1}}').batch()) == [3]
    assert len(Query(tmp_path, startingOffsets='{"orders": {"0": -2, "1": 4}}').batch()) == 4
    with pytest.raises(UsageError, match=r"must name all partitions .*: it lacks orders-1; there is no orders-2, other-0"):
        Query(tmp_path, startingOffsets='{"orders": {"0": 3, "2": 0}, "other": {"0": 0}}').batch()
    with pytest.raises(DataLossError, match="the log was cut at offset 4"):
        Query(tmp_path, startingOffsets='{"orders": {"0": 3, "1": 9}}').batch()
    with pytest.raises(DataLossError, match="deleted and created again"):
        Query(tmp_path, startingOffsets=f'{{"orders": {{"0": 3, "1": 3}}, "@ids": {{"orders": "{OTHER_ID}"}}}}').batch()


def test_topics_are_chosen(tmp_path: Path) -> None:
    for number, topic in enumerate(("orders", "order", "pay")):
        LiveLog(tmp_path, topic=topic, topic_id=f"AAAAAAAAAAAAAAAAAAAAA{'QgwA'[number]}").append(b"a")

    def topics(**options: str) -> set[str]:
        return {row["topic"] for row in Query(tmp_path, **options).batch()}

    assert topics(subscribe="order, pay") == {"order", "pay"}
    assert topics(subscribePattern="order.*") == {"order", "orders"}
    assert topics(subscribePattern="rder") == set()


def test_a_copy_without_checkpoint_is_refused(tmp_path: Path) -> None:
    LiveLog(tmp_path).append(b"a")
    (tmp_path / "replication-offset-checkpoint").unlink()
    with pytest.raises(NotFoundError, match=r"replication-offset-checkpoint: .* can be read with bound=log-end"):
        Query(tmp_path).batch()
    assert offsets(Query(tmp_path, bound="log-end").batch()) == [0, 1]
    with pytest.raises(NotFoundError, match="nowhere"):
        Query(tmp_path / "nowhere").batch()


def test_a_checkpoint_that_is_just_being_replaced(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A broker's temporary file is listed, but is gone when it is opened."""
    LiveLog(tmp_path).append(b"a")
    beside = tmp_path / "replication-offset-checkpoint.tmp"
    listed = OsFiles.list

    def list_before(files: OsFiles, path: str) -> list[str]:
        return [*listed(files, path), *([beside.name] if path == str(tmp_path) else [])]

    monkeypatch.setattr(OsFiles, "list", list_before)
    assert offsets(Query(tmp_path).batch()) == [0, 1]


def test_a_directory_that_is_away_for_a_moment_is_not_lost(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    log = LiveLog(tmp_path)
    log.append(b"a")
    query = Query(tmp_path)
    query.drain()
    away = log.path.rename(tmp_path.parent / "away")
    monkeypatch.setattr(KafkaLogStreamReader, "pause", lambda _: away.rename(log.path))
    assert query.batch() == []
