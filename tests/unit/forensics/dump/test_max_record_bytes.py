"""Records that are too large to show: what the dump prints in their place, and the option that shows them."""

from __future__ import annotations

from pathlib import Path

import pytest

from kops.files import OsFiles
from kops.forensics.dump.documents import DocumentOptions, Documents
from kops.forensics.dump.kafka_text import KafkaDump
from kops.forensics.dump.text import DumpOptions, DumpText
from kops.forensics.inventory.tree import open_paths
from kops.records import BatchBuilder
from kops.records.windows import WINDOW

LIMIT = WINDOW + 1000


@pytest.fixture
def log(tmp_path: Path) -> Path:
    """Provide three batches. The second one decompresses to a record below the limit, one above it and another below it."""
    path = tmp_path / "00000000000000000000.log"
    data = b""
    offset = 0
    for sizes in ((1,), (10, LIMIT, 10), (1,)):
        builder = BatchBuilder(codec="zstd", base_offset=offset)
        for size in sizes:
            builder.append(1, b"key", bytes(size))
            offset += 1
        data += builder.build()
    path.write_bytes(data)
    return path


def documents(log: Path, limit: int) -> list[dict[str, object]]:
    files = OsFiles(read_only=True)
    entry = open_paths([str(log)], files).loose_files[0]
    return list(Documents(files, DocumentOptions(records=True, max_record_bytes=limit)).of_file(entry))


def test_a_document_says_that_a_record_is_too_large(log: Path) -> None:
    shown = documents(log, LIMIT)
    assert [document.get("offset") for document in shown] == [0, 1, None, 4]
    damage = shown[2]["damage"]
    assert isinstance(damage, dict) and damage["code"] == "too-large" and damage["file"] == str(log)
    assert (damage["baseOffset"], damage["lastOffset"]) == (1, 3)
    assert (
        damage["reason"]
        == f"record 1 of the batch takes {LIMIT + 16} bytes, the limit is {LIMIT}; --max-record-bytes allows larger records"
    )
    assert [document.get("offset") for document in documents(log, LIMIT + 16)] == [0, 1, 2, 3, 4]


def test_kafkas_text_goes_on_behind_it(log: Path) -> None:
    for limit, payloads in ((LIMIT, 3), (LIMIT + 16, 5)):
        lines: list[bytes] = []
        text = DumpText(lines.append, lines.append)
        KafkaDump(OsFiles(read_only=True), DumpOptions(print_data_log=True, max_record_bytes=limit), text).file(str(log))
        assert b"".join(lines).count(b"payload: ") == payloads
        if limit == LIMIT:
            (problem,) = text.problems
            assert str(log) in str(problem) and "offsets 1 to 3: record 1 of the batch takes" in str(problem)
            assert "--max-record-bytes" in str(problem)
        else:
            assert not text.problems
