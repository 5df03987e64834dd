"""Apache Kafka 4.3.0 opens the indexes of `kops log index rebuild`: after a clean stop it accepts them unchanged, and its tool agrees."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from kops.forensics.index.rebuild import apply_rebuild, plan_rebuild
from tests.support import corpus
from tests.support.kafka.oracle import Oracle

pytestmark = pytest.mark.slow
INDEXES = (".index", ".timeindex", ".txnindex")


def _partition(case_id: str, target: Path) -> Path:
    case = corpus.load(case_id)
    (folder,) = {Path(path).parent for path in case.files("data") if path.endswith(".log")}
    return case.copy(target / folder.name, str(folder))


def _indexes(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in sorted(folder.iterdir()) if path.suffix in INDEXES}


@pytest.mark.parametrize("case_id", [case for case in corpus.cases("format") if not case.endswith("-empty")])
def test_kafka_opens_rebuilt_indexes(case_id: str, tmp_path: Path, oracle: Oracle) -> None:
    folder = _partition(case_id, tmp_path)
    for path in folder.iterdir():
        if path.suffix in INDEXES:
            path.unlink()
    apply_rebuild(plan_rebuild([folder]), [folder])
    rebuilt = _indexes(folder)
    assert {Path(name).stem for name in rebuilt} == {path.stem for path in folder.glob("*.log")}
    for path in sorted(folder.glob("*.index")):
        text = oracle.dump(["--files", str(path), "--index-sanity-check"])
        assert text.endswith((f"{path.name} passed sanity check.\n", f"{path.name} is empty.\n")), text
        assert "Mismatches" not in oracle.dump(["--files", str(path)])
    opened = oracle.load_log(folder, clean=True)
    case = corpus.load(case_id)
    (meta,) = [path for path in case.files("truth/records") if path.endswith("read_uncommitted.meta.json")]
    assert opened["ok"], opened
    assert opened["closeError"] is None
    assert opened["logEndOffset"] == json.loads(case.text(meta))["endOffset"]
    after = _indexes(folder)
    assert {name: after[name] for name in rebuilt} == rebuilt, "the broker found something to mend"
