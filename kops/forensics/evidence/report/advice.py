"""The summary in words: what is there, what is damaged, what was lost, and what to do next, with command lines as they have to be typed."""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from typing import Final

from kops.forensics.evidence.analysis import DAMAGED
from kops.forensics.evidence.case import MANIFEST
from kops.forensics.evidence.names import get_name
from kops.forensics.evidence.report.model import CaseReport, PartitionView
from kops.forensics.evidence.report.wording import command, count, size, total

SHOWN_COMMANDS: Final = 8

_REFUSALS: Final = {
    "does-not-start": "The broker does not start",
    "started-log-dir-offline": "The broker starts without one of its log directories",
}


@dataclass(slots=True)
class Verdict:
    """One sentence on the whole, how bad it is (`bad`, `warn`, `good`), and a second sentence."""

    grade: str
    sentence: str
    more: str


@dataclass(slots=True)
class Step:
    """Something to do: why, and the commands."""

    text: str
    commands: list[str] = field(default_factory=list)


def verdict(report: CaseReport) -> Verdict:
    """The whole in one sentence."""
    if report.altered:
        return Verdict("bad", "This case was changed after its collection.", "Do not rely on it: " + "; ".join(report.altered) + ".")
    incomplete = "" if report.manifest.get("complete", True) else " The collection was interrupted, so this is only a part."
    unreadable = sum(total(each.unreadable) for each in report.partitions)
    saved = sum(total(each.lost_though_intact) for each in report.partitions)
    refused = [reason for outcome, reason in report.brokers if outcome != "started"]
    if unreadable or any(each.missing for each in report.partitions):
        where = count(len({each.name for each in report.partitions if each.unreadable or each.missing}), "partition")
        more = f"{count(unreadable, 'offset')} cannot be read as written."
        if saved:
            more += f" A broker that starts now would give up {count(saved, 'more offset')}, which are still intact."
        return Verdict("bad", f"Records of {where} are damaged or missing.", more + incomplete)
    if refused:
        return Verdict("bad", "A broker would not start on these directories, or not serve all of them.", f"{refused[0] or ''}{incomplete}")
    if saved or any(each.lost for each in report.partitions):
        return Verdict(
            "bad", "A broker that starts now would give up records.", f"{count(saved, 'offset')} of them are intact.{incomplete}"
        )
    if report.manifest["totals"].get("unreadable"):
        return Verdict("bad", "Some files could not be read.", f"What could be read is not damaged.{incomplete}")
    problems = sum(1 for each in report.findings if each.is_problem and each.code != "file-changed")
    if problems:
        return Verdict(
            "warn", "No record is lost, but some files are not as Kafka writes them.", f"{count(problems, 'problem')}.{incomplete}"
        )
    if not report.partitions:
        return Verdict("warn", "No log of Kafka was found here.", f"Files were collected, and nothing else is known of them.{incomplete}")
    return Verdict("good", "No damage was found.", f"Every check of level {report.manifest['verify_level']} was passed.{incomplete}")


def paragraphs(report: CaseReport) -> list[tuple[str, str]]:
    """`(heading, text)`: what is here, what is damaged, what was lost."""
    partitions = report.partitions
    damaged = report.damaged
    segments = sum(len(each.segments) for each in partitions)
    here = (
        f"{count(len(partitions), 'partition directory', 'partition directories')} with {count(segments, 'segment')}, "
        f"{size(sum(each.size for each in partitions))} of logs, {count(report.batches, 'batch', 'batches')} and "
        f"{count(report.records, 'record')} that can be read. "
        f"They are in {count(len(report.manifest['sources']), 'collected directory', 'collected directories')}."
    )
    amount = sum(each.bytes_of(DAMAGED) for each in partitions)
    distinct = list(dict.fromkeys(each.name for each in damaged))
    names = ", ".join(distinct[:5]) + (f" and {len(distinct) - 5:,} more" if len(distinct) > 5 else "")
    bad = f"{count(len(damaged), 'partition directory', 'partition directories')} of {len(partitions):,}: {names}. "
    bad += f"{size(amount)} of logs are damaged." if amount else "Every byte of the logs is intact."
    if not damaged:
        bad = "Nothing that was checked is damaged."
        if not report.shown:
            return [("What is here", here), ("What is damaged", bad)]
    unreadable = sum(total(each.unreadable) for each in partitions)
    lost = f"{count(unreadable, 'offset')} in these files cannot be read or are missing." if unreadable else "No offset is unreadable."
    start = sum(total(each.lost) for each in partitions)
    intact = sum(total(each.lost_though_intact) for each in partitions)
    if start:
        lost += f" When a Kafka 4.3 broker starts on the directories as they are, {count(start, 'offset')} are no longer served"
        lost += f"; {intact:,} of them are intact and can be saved." if intact else "."
    else:
        lost += " A start of a Kafka 4.3 broker would give up nothing more."
    found = [("What is here", here), ("What is damaged", bad), ("What is lost", lost)]
    refused = [f"{_REFUSALS.get(outcome, outcome)}: {reason}" for outcome, reason in report.brokers if outcome != "started"]
    return [*found, *(("What a broker's start does", each) for each in refused[:5])]


def steps(report: CaseReport) -> list[Step]:
    """What to do next, in order."""
    result: list[Step] = []
    damaged = report.shown
    if any(source.get("lock_holder") is not None for source in report.manifest["sources"]):
        words = [
            "kops",
            "evidence",
            "collect",
            *(_path(source) for source in report.manifest["sources"]),
            "--out",
            report.path + "-stopped",
        ]
        result.append(
            Step("A broker was running during the collection, so files changed. Stop it and collect once more.", [command(*words)])
        )
    if report.manifest["totals"].get("unreadable"):
        result.append(
            Step(
                "Some files could not be read. Check the permissions, the kernel's log and the state of the disk (dmesg, smartctl). "
                "If the disk fails, make an image of it first and work on the image."
            )
        )
    intact = sum(total(each.lost_though_intact) for each in damaged)
    refuses = any(outcome != "started" for outcome, _ in report.brokers)
    if intact or refuses:
        why = f"its start would give up {count(intact, 'intact offset')}" if intact else "it would not start or not serve all directories"
        result.append(Step(f"Do not start the broker on these directories yet: {why}."))
    broken = [each for each in damaged if each.unreadable or each.missing or each.lost]
    if broken:
        source = "the copies of this case" if report.copied else "the directories"
        copies = [_copy(report, each) for each in broken[:SHOWN_COMMANDS]]
        lines = [command("kops", "log", "recover", *copies, "--out", report.path + "-recovered")]
        result.append(Step(f"Save everything that is intact from {source} into a new directory, at its offsets.{_left(broken)}", lines))
    holed = [each for each in broken if each.unreadable or each.missing]
    if holed:
        lines = [_heal(report, each) for each in holed[:SHOWN_COMMANDS]]
        named = "" if all(report.replicas(each) for each in holed) else " REPLICA is the directory of the same partition of another broker."
        text = "Fill the damage from other replicas, while no broker runs on the directory. -n shows the plan, -y carries it out."
        result.append(Step(text + named + _left(holed), lines))
    indexes = [each for each in damaged if each not in broken and each.problems and all(_is_index(found.code) for found in each.problems)]
    if indexes:
        lines = [command("kops", "log", "index", "rebuild", each.dir) for each in indexes[:SHOWN_COMMANDS]]
        result.append(Step(f"Rebuild indexes where only they are wrong.{_left(indexes)}", lines))
    others = [each for each in damaged if each not in indexes and each.problems]
    if others:
        lines = [command("kops", "log", "repair", "-n", each.dir) for each in others[:SHOWN_COMMANDS]]
        text = "See what a repair in place would do. -y instead of -n carries it out, with a journal that can be rolled back."
        result.append(Step(text + _left(others), lines))
    if damaged:
        words = ["kops", "log", "verify", "--level", "full", *(_path(source) for source in report.manifest["sources"])]
        result.append(Step("Verify again before the broker starts.", [command(*words)]))
    line = command("kops", "evidence", "verify", report.path, "--manifest-sha256", report.manifest_sha256)
    result.append(Step(f"Prove at any time that this case is unchanged. The hash of {MANIFEST} has to come from your notes.", [line]))
    return result


def _heal(report: CaseReport, partition: PartitionView) -> str:
    """The command that fills damage from the replicas in this case, or from one that the reader names."""
    found = [each.dir for each in report.replicas(partition)]
    start = ("kops", "log", "heal", "-n", partition.dir, "--from")
    return command(*start, *found) if found else command(*start) + " REPLICA"


def _is_index(code: str) -> bool:
    return code.startswith(("index-", "time-index-", "timeindex-", "txnindex-", "transaction-index-"))


def _left(partitions: list[PartitionView]) -> str:
    more = len(partitions) - SHOWN_COMMANDS
    return (
        f" The lines are those of the first {SHOWN_COMMANDS} partitions; {count(more, 'more partition')} need the same." if more > 0 else ""
    )


def _path(source: dict[str, object]) -> str:
    return os.fsdecode(get_name(source, "path"))


def _copy(report: CaseReport, partition: PartitionView) -> str:
    """The directory of a partition in the case, or the original where the case has no copy."""
    if report.copied:
        for source in report.manifest["sources"]:
            root = _path(source)
            if partition.dir == root or partition.dir.startswith(root.rstrip("/") + "/"):
                below = partition.dir[len(root) :].strip("/")
                return os.path.join(report.path, os.fsdecode(get_name(source, "data")), *([below] if below else []))
    return partition.dir
