"""`dump --format kafka` prints the same bytes as Kafka's own tool, for every file of the corpus."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from kops.files import Files, OsFiles, OverlayFiles
from kops.forensics.dump.kafka_text import KafkaDump
from kops.forensics.dump.messages import PARSERS
from kops.forensics.dump.text import DumpOptions, DumpProblem, DumpText
from tests.support import corpus

MODES = {
    "deep": DumpOptions(deep_iteration=True, print_data_log=True),
    "shallow": DumpOptions(),
    "index": DumpOptions(),
    "sanity": DumpOptions(index_sanity_check=True),
    "verify": DumpOptions(verify_index_only=True),
    "plain": DumpOptions(),
    "decoded": DumpOptions(print_data_log=True),
}
DECODERS = {
    "__consumer_offsets": "offsets",
    "__transaction_state": "transaction-log",
    "__share_group_state": "share-group-state",
    "__remote_log_metadata": "remote-log-metadata",
    "__cluster_metadata": "cluster-metadata",
}
HAVE_DUMPS = [case_id for case_id in corpus.cases() if not case_id.startswith("fuzz-")]


def dumped(files: Files, path: str, options: DumpOptions) -> tuple[bytes, list[DumpProblem]]:
    """Return the text, with both streams in one, and the problems."""
    pieces: list[bytes] = []
    text = DumpText(pieces.append, pieces.append)
    run = KafkaDump(files, options, text)
    run.file(path)
    run.finish()
    return b"".join(pieces), text.problems


def as_dumped(case: corpus.Case) -> Files:
    """Return the files as Kafka's tool found them. The tool has left an empty offset index beside each time index that it dumped without
    one.
    """
    files = OverlayFiles(OsFiles(read_only=True))
    listed = case.json.get("before")
    if listed is not None:
        for path in case.files("before"):
            if path.endswith(".index") and path.removeprefix("before/") not in listed:
                files.unlink(path)
    return files


def truths(case: corpus.Case) -> Iterator[tuple[Path, str]]:
    for path in sorted((case.root / "truth/dump").rglob("*.txt")):
        mode = path.name.rsplit(".", 2)[1]
        if mode in MODES:
            yield path, mode


def options_for(mode: str, target: str) -> DumpOptions:
    """Return the flags with which Kafka's tool was run, with the decoder of the topic if it prints records."""
    if mode != "decoded":
        return MODES[mode]
    topic = os.path.basename(os.path.dirname(target)).partition("-")[0]
    parser = PARSERS[DECODERS.get(topic, "cluster-metadata")]
    return replace(MODES[mode], parser=parser, skip_record_metadata=target.endswith(".checkpoint"))


def exception(text: bytes) -> int:
    """Return where the line begins that names the exception with which Kafka's tool ended, or -1 if there is none."""
    place = text.rfind(b"!! ")
    return place if place >= 0 and b"\n" not in text[place:].rstrip(b"\n") else -1


@pytest.mark.parametrize("case_id", HAVE_DUMPS)
def test_the_text_is_that_of_kafkas_tool(case_id: str, monkeypatch: pytest.MonkeyPatch) -> None:
    case = corpus.load(case_id)
    monkeypatch.chdir(case.root)
    files = as_dumped(case)
    here = os.fsencode(os.getcwd()) + b"/"
    for path, mode in truths(case):
        expected = path.read_bytes()
        target = expected.split(b"\n", 1)[0].removeprefix(b"Dumping ").decode()
        if not files.exists(target):  # a stray folder, whose random id is different in the listing
            target = f"{os.path.dirname(path.relative_to(case.root / 'truth/dump'))}/{path.name.rsplit('.', 2)[0]}"
        text, problems = dumped(files, target, options_for(mode, target))
        text = text.replace(here, b"")
        ended = exception(expected)
        if ended < 0:
            assert text == expected, path.name
            assert not any(problem.ends_kafka for problem in problems), path.name
        else:
            assert text.startswith(expected[:ended]), path.name
            assert any(problem.ends_kafka for problem in problems), path.name


def test_every_mode_has_been_compared() -> None:
    counts = dict.fromkeys(MODES, 0)
    for case_id in HAVE_DUMPS:
        for _, mode in truths(corpus.load(case_id)):
            counts[mode] += 1
    assert counts["deep"] > 1500 and counts["index"] > 1500 and counts["plain"] > 800 and counts["decoded"] > 100
    assert all(counts.values())


@pytest.mark.parametrize("case_id", corpus.cases("damage"))
def test_behind_the_damage_it_goes_on(case_id: str) -> None:
    """The text has every batch that is intact on disk, also after the place where Kafka's tool ended."""
    case = corpus.load(case_id)
    folder = case.root / "before" / case.json["damagedDir"].removeprefix("before/")
    shown: set[int] = set()
    ended = False
    for path in sorted(folder.glob("*.log")):
        text, problems = dumped(OsFiles(read_only=True), str(path), MODES["deep"])
        ended = ended or any(problem.ends_kafka for problem in problems)
        for line in text.split(b"\n"):
            if line.startswith(b"| offset: "):
                shown.add(int(line[10:].split(b" ", 1)[0]))
    intact = {offset for first, last in case.json["offsetsIntactOnDisk"] for offset in range(first, last + 1)}
    wanted = {row["offset"] for row in case.lines("truth/records/clean.read_uncommitted.jsonl")} & intact
    if ended:
        assert wanted <= shown
