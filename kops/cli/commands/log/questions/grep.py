"""`kops log grep`: finds records by key, value, header, offset, time, producer, transaction or a part of the value."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice
from typing import TYPE_CHECKING, Any

from kops.cli.commands.log.questions import searching as search
from kops.cli.commands.log.questions.reading import Jobs, Paths, Topic, tell_unread
from kops.cli.commands.log.state.reporting import LostLines, tell_replicas
from kops.cli.printing.output import Output
from kops.cli.running.exit_codes import NOT_FOUND
from kops.cli.running.options import command
from kops.errors import NotFoundError

if TYPE_CHECKING:
    from kops.forensics.inventory.replicas import Replica
    from kops.forensics.questions.matches import Match, Matches


@command(
    formats=("table", "wide", "json", "jsonl", "yaml", "csv"),
    examples=[
        ("Every record of a customer.", "kops log grep --key '^customer-17$' /var/lib/kafka"),
        ("What was written in a quarter of an hour.", "kops log grep --from-time 2026-11-21T03:00Z --to-time 2026-11-21T03:15Z orders-0"),
        ("Orders in JSON that failed, as JSON lines.", "kops log grep --jsonpath '$.order.state=failed' --format jsonl /var/lib/kafka"),
        ("How many records of a customer, in Avro.", "kops log grep -c --avro order.avsc --jsonpath '$.customer.id=17' orders-0"),
        ("What a transactional id wrote and aborted.", "kops log grep --txn-id payments-1 --txn-state aborted /var/lib/kafka"),
    ],
)
def grep(
    out: Output,
    paths: Paths,
    key: search.Key = None,
    value: search.Value = None,
    header: search.Header = None,
    jsonpath: search.JsonPath = None,
    avro: search.Avro = None,
    protobuf: search.Protobuf = None,
    message: search.MessageName = None,
    topic: Topic = None,
    from_offset: search.FromOffset = None,
    to_offset: search.ToOffset = None,
    from_time: search.FromTime = None,
    to_time: search.ToTime = None,
    pid: search.Pid = None,
    epoch: search.Epoch = None,
    leader_epoch: search.LeaderEpoch = None,
    txn_id: search.TxnId = None,
    txn_state: search.TxnState = None,
    invert_match: search.Invert = False,
    count: search.Count = False,
    max_count: search.MaxCount = None,
    jobs: Jobs = 0,
) -> int:
    """Find records by key, value, header, offset, time, producer or transaction; read-only.

    A record must meet all conditions. Regular expressions are Python's and may match anywhere in the bytes. --jsonpath selects parts of
    values in JSON, Avro or Protobuf, with or without the prefix of a schema registry; V is compared as text or as JSON. Of several replicas
    of a partition, one is read. Keys and values are text in tables, where long ones are cut, and base64 elsewhere. Damage, and values that
    do not fit their schema, are warnings; the search continues, and the exit code includes 4.
    """
    from kops.files import OsFiles
    from kops.forensics.questions.matches import Matches
    from kops.forensics.questions.outcomes import producers_of
    from kops.forensics.questions.reading import find_logs, one_of_each

    wanted = search.search_of(locals())
    files = OsFiles(read_only=True)
    try:
        found = find_logs(paths, files, topic or ())
    except NotFoundError as error:
        if len(paths) == 1 or any(each is not None for each in (key, value, header, jsonpath)):
            raise
        raise NotFoundError(f"{error} (kops log grep takes a pattern behind --key or --value)") from None
    tell_unread(out, found.unread)
    if txn_id is not None:
        wanted.producers = producers_of(files, found, txn_id)
    replicas, left_out = one_of_each(files, found.replicas)
    tell_replicas(out, left_out)
    lost = LostLines(out)
    matches = [0]
    found_in = Matches(files, replicas, wanted, counts=count, jobs=jobs or None)
    if count:
        rows = _counts(out, replicas, found_in, lost, matches, max_count)
        out.rows(rows, search.COUNT_COLUMNS, schema=search.COUNT_SCHEMA, key="partitions")
    else:
        records = (search.shown(row, out.format) for row in islice(_rows(out, found_in, lost, matches), max_count))
        out.rows(records, search.columns(wanted), schema=search.SCHEMA, key="records")
    lost.end()
    return 0 if matches[0] else NOT_FOUND


def _rows(out: Output, found_in: Matches, lost: LostLines, matches: list[int]) -> Iterator[dict[str, Any]]:
    for own in found_in.by_replica():
        for each in _told(out, own, lost):
            if isinstance(each, dict):
                matches[0] += 1
                yield each


def _counts(
    out: Output, replicas: list[Replica], found_in: Matches, lost: LostLines, matches: list[int], most: int | None
) -> Iterator[dict[str, Any]]:
    """A row for each partition. With `most`, nothing is read any more after that many records, and the partitions behind have no row."""
    for replica, own in zip(replicas, found_in.by_replica(), strict=False):
        left = None if most is None else most - matches[0]
        if left == 0:
            return
        number = 0
        for each in _told(out, own, lost):
            number += each if isinstance(each, int) else 1
            if left is not None and number >= left:
                number = left
                break
        matches[0] += number
        where = replica.directory
        partition = where.partition if where.topic is not None else None
        yield {"topic": where.topic, "partition": partition, "records": number, "path": replica.given, "broker": replica.broker}


def _told(out: Output, found: Iterator[Match], lost: LostLines) -> Iterator[dict[str, Any] | int]:
    """The records, or their numbers. Damage is told, and so is a file that can't be read."""
    from kops.forensics.coordinators.records import Lost
    from kops.forensics.questions.reading import Unread

    for each in found:
        if isinstance(each, Lost):
            lost.tell(each)
        elif isinstance(each, Unread):
            tell_unread(out, [each])
        else:
            yield each
