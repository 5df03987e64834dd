"""`dump --format jsonl`: records as a consumer of either isolation level got them. Every other file of the corpus is decoded."""

from __future__ import annotations

from typing import Any

import pytest

from kops.files import OsFiles
from kops.forensics.dump.documents import DocumentOptions, Documents, chosen_files
from kops.forensics.dump.filters import RecordFilter
from kops.forensics.dump.isolation import ISOLATIONS
from kops.forensics.inventory.tree import open_paths
from tests.support import corpus

KEYS = ("offset", "timestamp", "tsType", "key", "value", "headers", "leaderEpoch")


def documents(path: str, options: DocumentOptions) -> list[dict[str, Any]]:
    files = OsFiles(read_only=True)
    source = Documents(files, options)
    inventory = open_paths([path], files)
    assert not inventory.problems
    return [document for entry, partition in chosen_files(inventory, options) for document in source.of_file(entry, partition)]


@pytest.mark.parametrize("case_id", corpus.cases("format"))
def test_records_are_what_a_consumer_got(case_id: str) -> None:
    case = corpus.load(case_id)
    compared = 0
    for folder in sorted((case.root / "data").iterdir()):
        for isolation in ISOLATIONS if folder.is_dir() else ():
            truth = f"truth/records/{folder.name}.{isolation}.jsonl"
            if not (case.root / truth).exists():
                if folder.name not in case.json.get("readCommittedSameAsUncommitted", []):
                    continue  # clients of that version know no isolation levels
                truth = f"truth/records/{folder.name}.read_uncommitted.jsonl"
            found = documents(str(folder), DocumentOptions(records=True, isolation=isolation))
            assert [{key: row[key] for key in KEYS} for row in found] == case.lines(truth)
            assert all(row["schema"] == "kops.record/v1" and f"{row['topic']}-{row['partition']}" == folder.name for row in found)
            compared += 1
    assert compared


@pytest.mark.parametrize("case_id", [*corpus.cases("format"), *corpus.cases("cluster"), *corpus.cases("broker-dir")])
def test_everything_on_an_undamaged_disk_is_decoded(case_id: str) -> None:
    case = corpus.load(case_id)
    folders = [path for path in sorted(case.root.iterdir()) if path.is_dir() and path.name != "truth"]
    for folder in folders:
        found = documents(str(folder), DocumentOptions())
        assert not [row for row in found if row["schema"] == "kops.damage/v1"]
        assert not [row for row in found if row.get("kind") == "unknown" and not row["file"].endswith((".json", ".tmp"))]
        assert found or case_id.endswith("-empty")


@pytest.mark.parametrize("case_id", corpus.cases("damage"))
def test_damage_is_a_document_and_the_rest_is_there(case_id: str) -> None:
    case = corpus.load(case_id)
    folder = case.root / "before" / case.json["damagedDir"].removeprefix("before/")
    found = documents(str(folder), DocumentOptions(records=True))
    offsets = {row["offset"] for row in found if row["schema"] == "kops.record/v1"}
    clean = {row["offset"] for row in case.lines("truth/records/clean.read_uncommitted.jsonl")}
    intact = {offset for first, last in case.json["offsetsIntactOnDisk"] for offset in range(first, last + 1)}
    assert clean & intact <= offsets
    for row in found:
        if row["schema"] == "kops.damage/v1":
            assert row["damage"]["code"] and row["damage"]["reason"]


def test_a_filter_gives_what_filtering_everything_gives() -> None:
    case = corpus.load("v2-4.3.0-transactions")
    folder = str(next((case.root / "data").iterdir()))
    everything = documents(folder, DocumentOptions(records=True))
    middle = everything[len(everything) // 2]
    wanted = RecordFilter(from_offset=20, to_offset=middle["offset"], producer_id=middle["batch"]["producerId"], control=False)
    found = documents(folder, DocumentOptions(records=True, filter=wanted))
    assert found and found == [
        row
        for row in everything
        if 20 <= row["offset"] <= middle["offset"]
        and row["batch"]["producerId"] == middle["batch"]["producerId"]
        and "control" not in row["batch"]["flags"]
    ]


def test_control_records_say_what_they_are() -> None:
    case = corpus.load("v2-4.3.0-transactions")
    folder = str(next((case.root / "data").iterdir()))
    found = documents(folder, DocumentOptions(records=True, filter=RecordFilter(control=True)))
    assert {row["control"]["type"] for row in found} == {"COMMIT", "ABORT"}
