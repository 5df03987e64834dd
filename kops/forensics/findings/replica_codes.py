"""The codes of findings that only a comparison of replicas makes (`kops log diff`)."""

from __future__ import annotations

from kops.forensics.findings.texts import CodeText

REPLICAS = (
    CodeText(
        "replica-damaged",
        "error",
        "A replica has damage: bytes that are not a batch, or a batch that is not in its place.",
        "As leader, the replica fails consumers here. A recovery truncates the log here, including the intact batches after this place.",
        "kops log heal replaces the damage with the batches of an intact replica",
    ),
    CodeText(
        "replica-gap",
        "error",
        "A replica lacks offsets that another one has, and neither compaction nor retention explains it.",
        "Kafka never reports it. If this replica leads, consumers skip the offsets silently.",
        "kops log heal fills it from the other replica",
    ),
    CodeText(
        "replica-behind",
        "info",
        "A replica ends before another one.",
        "A follower fetches the rest. If it is elected uncleanly, the rest is lost.",
        "",
    ),
    CodeText(
        "replica-truncation-due",
        "warning",
        "A replica has batches of an older leader epoch where a later leader has others, and it is not known that they were committed.",
        "When it follows the later leader, Kafka truncates them (KIP-101). If it is elected uncleanly, the others are lost.",
        "",
    ),
    CodeText(
        "replica-diverged",
        "error",
        "A replica has committed batches of an older leader epoch where a later leader has others: there was an unclean election.",
        "When it follows the later leader, Kafka truncates them: committed records are lost.",
        "kops log recover on this replica alone saves its records before any start",
    ),
    CodeText(
        "replica-contents-differ",
        "error",
        "Two replicas have different records at the same offset and of the same leader epoch, and all checksums are correct.",
        "Kafka never compares replicas. Consumers get different records after a change of leader.",
        "the logs do not show which is right; keep both, and compare the records with their source",
    ),
    CodeText(
        "replica-epoch-differs",
        "warning",
        "Two replicas have the same batch with different leader epochs.",
        "Followers may truncate to a wrong offset.",
        "kops log repair corrects an epoch that its neighbours contradict",
    ),
)
