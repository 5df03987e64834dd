"""Logs of real Kafka, exported and imported again: the second export and the files are the same."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from kops.config.topic import topic_config
from kops.files import Files, MemoryFiles, OsFiles
from kops.forensics.dump.isolation import ISOLATIONS
from kops.forensics.inventory.tree import open_paths
from kops.forensics.lines.exported import exported_partitions
from kops.forensics.lines.exporting import END, SEGMENT, ExportCounts, export_documents
from kops.forensics.lines.importing import ImportReport, import_lines
from kops.forensics.lines.salvaged import ExportSource, LogSource
from tests.support import corpus

# Kafka of these versions writes indexes and snapshots as 4.3 does.
AS_NOW = ("v2-3.9.1", "v2-4.3.0")
# They have a start offset, leader epochs or snapshots that cannot be derived from the batches alone.
NOT_OF_THE_LOG_ALONE = ("deleterecords", "compacted", "compacted-idempotent")
NOT_IN_THE_LOG = (".deleted", ".cleaned")
KEPT_TOGETHER = {"segment.bytes": "2147483647", "segment.ms": "9223372036854775807"}


def partitions(case: corpus.Case) -> Iterator[Path]:
    """Yield the partition folders of a format case."""
    for folder in sorted((case.root / "data").iterdir()):
        if folder.is_dir() and list(folder.glob("*.log")) and folder.name.rpartition("-")[2].isdigit():
            yield folder


def exported(files: Files, path: str, *, raw: bool = False) -> list[dict[str, Any]]:
    """Return the lines of an export, parsed."""
    documents = export_documents(files, open_paths([path], files), ExportCounts(), raw=raw)
    return [json.loads(json.dumps(document)) for document in documents]


def imported(documents: list[dict[str, Any]], case: corpus.Case) -> MemoryFiles:
    """Return the files that an import makes of them, below /out."""
    files = MemoryFiles(now_ms=lambda: 1)
    files.mkdir("/out")
    interval = case.json.get("config", {}).get("index.interval.bytes", 4096)
    config = topic_config(KEPT_TOGETHER | {"index.interval.bytes": str(interval)})
    import_lines(files, enumerate(documents, 1), "/out", config, file="export", now_ms=lambda: 1, report=ImportReport("/out"))
    return files


@pytest.mark.parametrize("group", ["v0", "v1", "v2"])
def test_an_export_has_the_records_of_the_log(group: str, tmp_path: Path) -> None:
    """`kops log replay` sends the same records of an export as of a directory."""
    files, export, records = OsFiles(read_only=True), tmp_path / "export.jsonl", 0
    for case_id in corpus.cases(group):
        for folder in partitions(corpus.load(case_id)):
            export.write_text("".join(json.dumps(document) + "\n" for document in exported(files, str(folder))))
            (part,) = exported_partitions(str(export))
            (found,) = open_paths([str(folder)], files).partitions()
            for isolation in ISOLATIONS:
                log, lines = LogSource(files, found, "t", isolation), ExportSource(part, "t", isolation)
                wanted = [*log.records(0)]
                start = log.view().log_start_offset
                assert [*lines.records(start)] == wanted, case_id
                assert (lines.name, lines.topic, lines.partition) == (log.name, log.topic, log.partition)
                assert (lines.left_out.aborted, lines.left_out.undecided) == (log.left_out.aborted, log.left_out.undecided)
                records += len(wanted)
    assert records > 100


@pytest.mark.parametrize("group", ["v0", "v1", "v2"])
def test_export_import_export_is_the_same(group: str) -> None:
    files = OsFiles(read_only=True)
    batches = 0
    for case_id in corpus.cases(group):
        case = corpus.load(case_id)
        for folder in partitions(case):
            documents = exported(files, str(folder))
            again = imported(documents, case)
            assert exported(again, f"/out/{folder.name}") == documents, case_id
            batches += sum("magic" in document for document in documents)
    assert batches > 100


@pytest.mark.parametrize("raw", [False, True], ids=["rebuilt", "raw"])
def test_the_files_are_the_same(raw: bool) -> None:
    files = OsFiles(read_only=True)
    compared = 0
    for case_id in corpus.cases("v2"):
        case = corpus.load(case_id)
        for folder in partitions(case):
            documents = exported(files, str(folder), raw=raw)
            batches = [document for document in documents if "magic" in document]
            if not raw and any(batch["codec"] != "none" for batch in batches):
                continue
            again = imported(documents, case)
            for log in folder.glob("*.log"):
                assert again.read_all(f"/out/{folder.name}/{log.name}") == log.read_bytes(), (case_id, log.name)
            if not case_id.startswith(AS_NOW) or not batches or case_id.endswith(NOT_OF_THE_LOG_ALONE):
                continue
            for path in folder.iterdir():
                if path.suffix not in NOT_IN_THE_LOG:
                    assert again.read_all(f"/out/{folder.name}/{path.name}") == path.read_bytes(), (case_id, path.name)
                    compared += 1
    assert compared > (200 if raw else 50)


def without_segments(documents: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return the lines without those that begin a segment, and without their number."""
    return [document | ({"segments": 0} if document["schema"] == END else {}) for document in documents if document["schema"] != SEGMENT]


@pytest.mark.parametrize("case_id", corpus.cases("exotic"))
def test_exotic_batches_come_back(case_id: str, tmp_path: Path) -> None:
    case = corpus.load(case_id)
    files = OsFiles(read_only=True)
    logs = [path for path in case.root.rglob("*.log") if path.is_file()]
    assert logs
    for number, log in enumerate(logs):
        folder = tmp_path / f"topic-{number}"
        folder.mkdir()
        (folder / log.name).write_bytes(log.read_bytes())
        documents = exported(files, str(folder), raw=True)
        assert documents[0]["name"] == folder.name
        # These files have offsets that do not fit into one segment. The import makes several segments of them.
        assert without_segments(exported(imported(documents, case), f"/out/{folder.name}", raw=True)) == without_segments(documents)
