"""Each kind of damage in the corpus is found at the lowest level that can see it and at every higher level, but at no lower level. Findings
point at the damaged bytes.

`KINDS`: kind → (lowest level, codes that must be found from that level on). `UNSEEN`: kinds that leave no trace on disk, with the reason.
"""

from __future__ import annotations

from typing import Any

import pytest

from kops.forensics.findings.finding import Finding
from kops.forensics.verify.facts.facts import CRC, DEEP, FULL, LEVELS, QUICK
from kops.forensics.verify.run import verify
from tests.support import corpus
from tests.support.logs.positions import check_positions
from tests.support.logs.verifying import codes, folder, problems

KINDS: dict[str, tuple[str, set[str]]] = {
    "attributes-codec": (DEEP, {"batch-undecodable"}),
    "base-offset-back": (QUICK, {"offset-not-increasing"}),
    "base-offset-below-segment": (QUICK, {"offset-outside-segment"}),
    "base-offset-forward": (QUICK, {"offset-not-increasing"}),
    "base-offset-huge": (QUICK, {"offset-not-increasing"}),
    "base-offset-negative": (QUICK, {"offset-not-increasing"}),
    "batches-swapped": (QUICK, {"offset-not-increasing"}),
    "body-garbage-crc-ok": (DEEP, {"batch-undecodable"}),
    "control-batch-flip": (CRC, {"batch-crc-mismatch"}),
    "count-wrong-crc-ok": (QUICK, {"batch-count-mismatch"}),
    "crc-field": (CRC, {"batch-crc-mismatch"}),
    "duplicate-batch-old": (QUICK, {"offset-not-increasing"}),
    "duplicate-batch-tail": (QUICK, {"offset-not-increasing"}),
    "extra-empty-segment": (QUICK, {"index-missing", "time-index-missing"}),
    "flip-body-active": (CRC, {"batch-crc-mismatch"}),
    "flip-body-first-segment": (CRC, {"batch-crc-mismatch"}),
    "flip-body-old": (CRC, {"batch-crc-mismatch"}),
    "flip-first-batch-active": (CRC, {"batch-crc-mismatch"}),
    "flip-last-batch-active": (CRC, {"batch-crc-mismatch"}),
    "garbage-tail": (QUICK, {"garbage-tail"}),
    "hole-in-active": (QUICK, {"offset-gap"}),
    "index-empty-old": (FULL, {"index-incomplete"}),
    "index-garbage-active": (QUICK, {"index-disorder"}),
    "index-garbage-last-entry": (QUICK, {"index-disorder"}),
    "index-garbage-old": (QUICK, {"index-disorder"}),
    "index-truncated-entries": (FULL, {"index-incomplete"}),
    "index-truncated-odd": (QUICK, {"index-size-odd"}),
    "index-wrong-middle-entry": (QUICK, {"index-disorder"}),
    "index-zero-tail": (QUICK, {"index-zero-tail"}),
    "last-offset-delta-wrong-crc-ok": (QUICK, {"batch-last-offset-mismatch"}),
    "leader-epoch-beyond-end": (FULL, {"leader-epoch-beyond-end"}),
    "leader-epoch-empty": (FULL, {"leader-epoch-file-wrong"}),
    "leader-epoch-malformed": (FULL, {"leader-epoch-file-malformed"}),
    "leader-epoch-minus": (QUICK, {"leader-epoch-negative"}),
    "leader-epoch-missing": (FULL, {"leader-epoch-file-missing"}),
    "leader-epoch-up": (QUICK, {"leader-epoch-back"}),
    "leftover-cleaned": (QUICK, {"leftover-cleaned"}),
    "leftover-swap": (QUICK, {"leftover-swap"}),
    "leftover-swap-after-split": (QUICK, {"leftover-swap"}),
    "leftover-swap-and-cleaned": (QUICK, {"leftover-cleaned", "leftover-swap"}),
    "leftover-swap-log-only": (QUICK, {"leftover-swap"}),
    "length-below-minimum": (QUICK, {"batch-length-invalid"}),
    "length-below-v2-header": (QUICK, {"batch-length-invalid"}),
    "length-huge": (QUICK, {"batch-length-invalid"}),
    "length-larger-active": (QUICK, set()),
    "length-larger-old": (QUICK, set()),
    "length-negative": (QUICK, {"batch-length-invalid"}),
    "length-smaller-active": (QUICK, set()),
    "length-zero": (QUICK, {"batch-length-invalid"}),
    "magic-negative": (QUICK, {"batch-magic-invalid"}),
    "magic-one": (CRC, {"batch-crc-mismatch"}),
    "magic-unknown": (QUICK, {"batch-magic-invalid"}),
    "magic-zero-old": (CRC, {"batch-crc-mismatch"}),
    "missing-active-segment": (FULL, {"log-end-missing", "snapshot-beyond-end"}),
    "missing-all-indexes": (QUICK, {"index-missing", "time-index-missing"}),
    "missing-first-segment": (FULL, {"log-start-missing"}),
    "missing-index-active": (QUICK, {"index-missing"}),
    "missing-index-old": (QUICK, {"index-missing"}),
    "missing-log-with-index": (QUICK, {"log-file-missing", "segment-gap"}),
    "missing-middle-segment": (QUICK, {"segment-gap"}),
    "missing-timeindex-old": (QUICK, {"time-index-missing"}),
    "partition-metadata-malformed": (FULL, {"partition-metadata-malformed"}),
    "partition-metadata-missing": (FULL, {"partition-metadata-missing"}),
    "segment-copy-overlap": (QUICK, {"segment-overlap", "offset-outside-segment"}),
    "segment-overlap": (QUICK, {"segment-overlap"}),
    "sequence-gap-crc-ok": (FULL, {"sequence-gap"}),
    "snapshot-corrupt-all": (FULL, {"snapshot-malformed"}),
    "snapshot-corrupt-last": (FULL, {"snapshot-malformed"}),
    "snapshot-empty-last": (FULL, {"snapshot-malformed"}),
    "snapshot-last-missing": (FULL, {"snapshot-missing"}),
    "snapshot-stale": (FULL, {"snapshot-beyond-end", "snapshot-missing"}),
    "snapshots-missing": (FULL, {"snapshot-missing"}),
    "stray-files": (QUICK, {"file-name-invalid"}),
    "timeindex-empty-old": (FULL, {"index-incomplete"}),
    "timeindex-garbage-old": (QUICK, {"index-disorder"}),
    "timeindex-last-before-first": (QUICK, {"index-disorder"}),
    "timeindex-truncated-entries": (FULL, {"index-incomplete"}),
    "timeindex-truncated-odd": (QUICK, {"index-size-odd"}),
    "torn-tail": (QUICK, {"torn-tail"}),
    "torn-tail-few-bytes": (QUICK, {"torn-tail"}),
    "torn-tail-header": (QUICK, {"torn-tail"}),
    "two-flips": (CRC, {"batch-crc-mismatch"}),
    "txnindex-garbage": (FULL, {"transaction-index-malformed"}),
    "txnindex-missing": (FULL, {"transaction-index-missing"}),
    "txnindex-truncated": (FULL, {"transaction-index-malformed", "transaction-index-wrong"}),
    "txnindex-wrong-version": (FULL, {"transaction-index-malformed"}),
    "zero-length-active": (QUICK, {"index-beyond-log"}),
    "zero-length-all": (QUICK, {"index-beyond-log", "segment-empty"}),
    "zero-length-old": (QUICK, {"index-beyond-log", "segment-empty"}),
    "zero-page-active": (QUICK, set()),
    "zero-page-old": (QUICK, {"zeroed-range"}),
    "zero-tail": (QUICK, {"zero-tail"}),
    "zero-tail-old-segment": (QUICK, {"zero-tail"}),
}
UNSEEN = {
    "none": "nothing was damaged",
    "leftover-deleted": "a .deleted file is what every deletion leaves for a while: told as info",
}

NODE_KINDS: dict[str, tuple[str, set[str]]] = {
    "bootstrap-corrupt": (QUICK, {"bootstrap-malformed"}),
    "bootstrap-corrupt-metadata-log-empty": (QUICK, {"bootstrap-malformed", "index-beyond-log"}),
    "bootstrap-empty": (QUICK, {"bootstrap-malformed"}),
    "bootstrap-missing-metadata-log-empty": (QUICK, {"index-beyond-log"}),
    "bootstrap-truncated": (QUICK, {"bootstrap-malformed"}),
    "clean-shutdown-empty": (QUICK, {"clean-shutdown-malformed"}),
    "clean-shutdown-malformed": (QUICK, {"clean-shutdown-malformed"}),
    "clean-shutdown-version-wrong": (QUICK, {"clean-shutdown-malformed"}),
    "cleaner-beyond-end": (FULL, {"cleaner-offset-invalid"}),
    "cleaner-malformed": (QUICK, {"checkpoint-malformed"}),
    "cleaner-malformed-two-dirs": (QUICK, {"checkpoint-malformed"}),
    "cleaner-missing": (QUICK, {"checkpoint-missing"}),
    "directory-empty-unknown": (QUICK, {"directory-name-invalid"}),
    "directory-name-bad-characters": (QUICK, {"directory-name-invalid"}),
    "directory-name-no-number": (QUICK, {"directory-name-invalid"}),
    "directory-name-not-a-number": (QUICK, {"directory-name-invalid"}),
    "directory-name-starts-with-dash": (QUICK, {"directory-name-invalid"}),
    "dynamic-first-snapshot-and-log-missing": (QUICK, {"log-file-missing"}),
    "dynamic-first-snapshot-flipped": (FULL, {"metadata-snapshot-malformed"}),
    "dynamic-first-snapshot-truncated": (FULL, {"metadata-snapshot-malformed"}),
    "dynamic-meta-directory-id-missing": (QUICK, {"directory-id-missing"}),
    "dynamic-metadata-flip-middle": (CRC, {"batch-crc-mismatch"}),
    "dynamic-metadata-log-empty": (QUICK, {"index-beyond-log"}),
    "dynamic-quorum-state-empty": (FULL, {"quorum-state-malformed"}),
    "dynamic-quorum-state-missing": (FULL, {"quorum-state-missing"}),
    "flip-old-recovery-point-at-end": (CRC, {"batch-crc-mismatch"}),
    "flip-old-recovery-point-missing": (QUICK, {"checkpoint-missing"}),
    "flip-old-recovery-point-negative": (CRC, {"batch-crc-mismatch"}),
    "flip-old-recovery-point-not-a-number": (QUICK, {"checkpoint-number-invalid"}),
    "high-watermark-below-start": (FULL, {"high-watermark-invalid"}),
    "high-watermark-beyond-end": (FULL, {"high-watermark-beyond-end"}),
    "high-watermark-empty": (QUICK, {"checkpoint-missing"}),
    "high-watermark-malformed-line": (QUICK, {"checkpoint-malformed"}),
    "high-watermark-malformed-two-dirs": (QUICK, {"checkpoint-malformed"}),
    "high-watermark-missing": (QUICK, {"checkpoint-missing"}),
    "high-watermark-missing-two-dirs": (QUICK, {"checkpoint-missing"}),
    "high-watermark-negative": (FULL, {"high-watermark-invalid"}),
    "high-watermark-not-a-number": (QUICK, {"checkpoint-number-invalid"}),
    "log-start-below-base": (FULL, {"log-start-below-base"}),
    "log-start-beyond-end": (FULL, {"log-start-beyond-end"}),
    "log-start-empty": (QUICK, {"checkpoint-missing"}),
    "log-start-in-middle": (FULL, {"log-start-ahead"}),
    "log-start-malformed-line": (QUICK, {"checkpoint-malformed"}),
    "log-start-malformed-two-dirs": (QUICK, {"checkpoint-malformed"}),
    "log-start-missing": (QUICK, {"checkpoint-missing"}),
    "log-start-negative": (FULL, {"log-start-below-base"}),
    "log-start-not-a-number": (QUICK, {"checkpoint-number-invalid"}),
    "meta-cluster-id-differs-two-dirs": (FULL, {"meta-properties-differ"}),
    "meta-directory-id-duplicate-two-dirs": (FULL, {"meta-properties-differ"}),
    "meta-directory-id-malformed": (QUICK, {"meta-properties-malformed"}),
    "meta-directory-id-missing": (QUICK, {"directory-id-missing"}),
    "meta-directory-id-missing-two-dirs": (QUICK, {"directory-id-missing"}),
    "meta-empty": (QUICK, {"meta-properties-malformed"}),
    "meta-garbage": (QUICK, {"meta-properties-malformed"}),
    "meta-malformed": (QUICK, {"meta-properties-malformed"}),
    "meta-malformed-two-dirs": (QUICK, {"meta-properties-malformed"}),
    "meta-missing": (QUICK, {"meta-properties-missing"}),
    "meta-missing-two-dirs": (QUICK, {"meta-properties-missing"}),
    "meta-node-id-missing": (QUICK, {"meta-properties-malformed"}),
    "meta-node-id-not-a-number": (QUICK, {"meta-properties-malformed"}),
    "meta-torn": (QUICK, {"meta-properties-malformed"}),
    "meta-version-wrong": (QUICK, {"meta-properties-malformed"}),
    "meta-version-zero": (QUICK, {"meta-properties-malformed"}),
    "metadata-flip-first": (CRC, {"batch-crc-mismatch"}),
    "metadata-flip-last": (CRC, {"batch-crc-mismatch"}),
    "metadata-flip-late": (CRC, {"batch-crc-mismatch"}),
    "metadata-flip-middle": (CRC, {"batch-crc-mismatch"}),
    "metadata-flip-topic-record": (CRC, {"batch-crc-mismatch"}),
    "metadata-garbage-tail": (QUICK, {"garbage-tail"}),
    "metadata-index-missing": (QUICK, {"index-missing", "time-index-missing"}),
    "metadata-leader-epoch-missing": (FULL, {"leader-epoch-file-missing"}),
    "metadata-log-empty": (QUICK, {"index-beyond-log"}),
    "metadata-log-missing": (QUICK, {"log-file-missing"}),
    "metadata-partition-metadata-missing": (FULL, {"partition-metadata-missing"}),
    "metadata-torn-tail": (QUICK, {"torn-tail"}),
    "metadata-torn-tail-header": (QUICK, {"torn-tail"}),
    "metadata-zero-tail": (QUICK, {"zero-tail"}),
    "partition-in-both-dirs": (FULL, {"partition-twice"}),
    "quorum-state-empty": (FULL, {"quorum-state-malformed"}),
    "quorum-state-epoch-behind": (FULL, {"quorum-state-wrong"}),
    "quorum-state-leader-wrong": (FULL, {"quorum-state-wrong"}),
    "quorum-state-malformed": (FULL, {"quorum-state-malformed"}),
    "quorum-state-missing": (FULL, {"quorum-state-missing"}),
    "quorum-state-version-wrong": (FULL, {"quorum-state-malformed"}),
    "quorum-state-voter-wrong": (FULL, {"quorum-state-wrong"}),
    "recovery-point-beyond-end": (FULL, {"recovery-point-beyond-end"}),
    "recovery-point-count-wrong": (QUICK, {"checkpoint-malformed"}),
    "recovery-point-empty": (QUICK, {"checkpoint-missing"}),
    "recovery-point-malformed-line": (QUICK, {"checkpoint-malformed"}),
    "recovery-point-malformed-two-dirs": (QUICK, {"checkpoint-malformed"}),
    "recovery-point-missing": (QUICK, {"checkpoint-missing"}),
    "recovery-point-negative": (FULL, {"recovery-point-invalid"}),
    "recovery-point-not-a-number": (QUICK, {"checkpoint-number-invalid"}),
    "recovery-point-version-wrong": (QUICK, {"checkpoint-malformed"}),
    "snapshot-empty": (FULL, {"metadata-snapshot-malformed"}),
    "snapshot-flipped": (FULL, {"metadata-snapshot-malformed"}),
    "snapshot-footer-missing": (FULL, {"metadata-snapshot-incomplete"}),
    "snapshot-metadata-log-missing": (QUICK, {"log-file-missing"}),
    "snapshot-truncated": (FULL, {"metadata-snapshot-malformed"}),
    "snapshots-all-missing": (FULL, {"metadata-start-missing"}),
    "torn-tail-clean-shutdown-empty": (QUICK, {"torn-tail", "clean-shutdown-malformed"}),
    "torn-tail-clean-shutdown-epoch-wrong": (QUICK, {"torn-tail"}),
    "torn-tail-clean-shutdown-malformed": (QUICK, {"torn-tail", "clean-shutdown-malformed"}),
    "torn-tail-recovery-point-at-end": (QUICK, {"torn-tail"}),
    "torn-tail-recovery-point-beyond-end": (QUICK, {"torn-tail"}),
}
_OTHER_NODE = "the file is well-formed and only another node's files (or the metadata log's records) say otherwise"
UNSEEN_NODE_KINDS = {
    "none": "nothing was damaged",
    "none-compact": "nothing was damaged",
    "none-dynamic": "nothing was damaged",
    "none-snapshot": "nothing was damaged",
    "none-two": "nothing was damaged",
    "bootstrap-missing": "directories formatted by versions before 3.3 never had the file",
    "clean-shutdown-epoch-wrong": _OTHER_NODE,
    "dynamic-first-snapshot-missing": "a quorum that became dynamic later never had the snapshot, and old snapshots are deleted",
    "dynamic-meta-directory-id-changed": _OTHER_NODE,
    "dynamic-quorum-state-leader-wrong": _OTHER_NODE,
    "dynamic-quorum-state-voted-directory-wrong": _OTHER_NODE,
    "meta-cluster-id-wrong": _OTHER_NODE,
    "meta-directory-id-changed": _OTHER_NODE,
    "meta-directory-ids-swapped-two-dirs": _OTHER_NODE,
    "meta-node-id-wrong": _OTHER_NODE,
    "metadata-dir-missing": "only the first of a controller's log directories has a metadata log, and a broker's need not",
    "metadata-record-type-wrong-crc-ok": "the contents of metadata records are for kops log dump --cluster-metadata-decoder",
    "partition-number-unknown": _OTHER_NODE,
    "partition-other-topic-id": _OTHER_NODE,
    "partition-unknown-topic-id": _OTHER_NODE,
    "quorum-state-epoch-ahead": "an election that nobody won leaves the same",
    "recovery-point-unknown-partition": "what a deleted partition leaves for a while: told as info",
    "snapshot-last-missing": "the log still reaches back to an older snapshot, as before the last one was taken",
}


def kind_of(case_id: str) -> str:
    """Return the kind in the id of a (broker-)damage case."""
    return case_id.split(".", 2)[2].split("-", 1)[1]


def check_levels(case_id: str, lowest: str, wanted: set[str], directory: str = "") -> None:
    """Check that nothing is found below the lowest level, and the codes from there on. The findings point at the damaged bytes, whose files
    the case names in `directory`.
    """
    root = folder(case_id)
    for level in LEVELS:
        report = verify([root], level)
        if LEVELS.index(level) < LEVELS.index(lowest):
            assert problems(report.findings) == [], level
        else:
            assert report.has_problems, level
            assert wanted <= codes(found for found in report.findings if found.is_problem), level
    check_positions(report.findings, corpus.load(case_id).json["damage"], root / directory)


@pytest.mark.parametrize("case_id", [case for case in corpus.cases("damage") if kind_of(case) not in UNSEEN])
def test_damage_is_found(case_id: str) -> None:
    """A damaged partition in a log directory is found."""
    check_levels(case_id, *KINDS[kind_of(case_id)], corpus.load(case_id).json["damagedDir"].removeprefix("before/"))


@pytest.mark.parametrize("case_id", [case for case in corpus.cases("broker-damage") if kind_of(case) not in UNSEEN_NODE_KINDS])
def test_damage_of_a_node_is_found(case_id: str) -> None:
    """Damaged files of a node are found."""
    check_levels(case_id, *NODE_KINDS[kind_of(case_id)])


@pytest.mark.parametrize(
    "case_id",
    [
        *(case for case in corpus.cases("damage") if kind_of(case) in UNSEEN),
        *(case for case in corpus.cases("broker-damage") if kind_of(case) in UNSEEN_NODE_KINDS),
    ],
)
def test_what_leaves_no_trace_is_no_problem(case_id: str) -> None:
    """`verify` does not guess."""
    assert problems(verify([folder(case_id)], FULL).findings) == []


def test_every_kind_of_the_tables_is_there() -> None:
    """The tables name only kinds that the corpus has."""
    assert set(KINDS) | set(UNSEEN) == {kind_of(case) for case in corpus.cases("damage")}
    assert set(NODE_KINDS) | set(UNSEEN_NODE_KINDS) == {kind_of(case) for case in corpus.cases("broker-damage")}


# the exact loss ---------------------------------------------------------------------------------------------------------------------------

UNREADABLE = {
    "batch-crc-mismatch",
    "batch-length-invalid",
    "batch-magic-invalid",
    "unreadable-bytes",
    "zeroed-range",
    "torn-tail",
    "offset-gap",
    "segment-gap",
    "segment-empty",
    "log-start-missing",
    "log-end-missing",
    "offset-not-increasing",
}
REPEATED = ("duplicate-batch-old", "duplicate-batch-tail", "batches-swapped")
"""The offsets that such a finding names are there, at another place."""


def lost_offsets(findings: list[Finding]) -> set[int]:
    """Return the offsets that the findings report as unreadable or missing."""
    lost: set[int] = set()
    for found in findings:
        if found.code in UNREADABLE and found.base_offset is not None and found.last_offset is not None:
            lost.update(range(found.base_offset, found.last_offset + 1))
    return lost


def expected_loss(case: dict[str, Any], clean_offsets: set[int]) -> set[int]:
    """Return the offsets of clean records whose batch is not on the disk any more."""
    intact = {offset for first, last in case["offsetsIntactOnDisk"] for offset in range(first, last + 1)}
    return clean_offsets - intact


LOSING = sorted(kind for kind, (_, wanted) in KINDS.items() if wanted & UNREADABLE and kind not in REPEATED)


@pytest.mark.parametrize("case_id", [case for case in corpus.cases("damage") if kind_of(case) in LOSING])
def test_lost_offsets(case_id: str) -> None:
    """The reported lost offsets are exactly those whose batches are gone."""
    case = corpus.load(case_id)
    records = next(path for path in case.files("truth/records") if path.startswith("truth/records/clean.") and path.endswith(".jsonl"))
    clean_offsets = {line["offset"] for line in case.lines(records)}
    found = lost_offsets(verify([folder(case_id) / case.json["damagedDir"].removeprefix("before/")], FULL).findings)
    assert found & clean_offsets == expected_loss(case.json, clean_offsets)
