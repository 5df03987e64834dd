"""An example and the usual causes of each finding code. `kops log explain` and kops-findings(7) print them.

An example is a file, a position where a finding has one, and the detail that `kops log verify` prints. Most are findings of the damaged
directories that real brokers wrote. The causes are the usual ones of such damage; a finding does not prove any of them.
`kops.forensics.findings.codes` has meaning, severity, consequence and remedy.
"""

from __future__ import annotations

from dataclasses import dataclass

from kops.errors import NotFoundError
from kops.forensics.findings.codes import CODES, CodeText

__all__ = ["EXPLANATIONS", "Explanation", "explanation", "to_json"]


@dataclass(frozen=True, slots=True)
class Explanation:
    """One code: the place and the detail of an example, and the cause."""

    code: str
    place: str
    detail: str
    cause: str


_ALL = (
    Explanation(
        "batch-crc-mismatch",
        "00000000000000000021.log:534",
        "the checksum is wrong; offsets 27-29 are unreadable",
        "A bit flipped on the disk, in a cable or in memory without ECC, or something wrote into the file.",
    ),
    Explanation(
        "batch-length-invalid",
        "00000000000000000084.log:563",
        "the length field says 2147483646, the batch has 241; offsets 90-92 are unreadable",
        "The four bytes of the length were overwritten or flipped. The rest of the batch is often intact.",
    ),
    Explanation(
        "batch-magic-invalid",
        "00000000000000000084.log:257",
        "the magic byte says 3, the checksum matches a batch of magic 2; offsets 87-89 are unreadable",
        "The magic byte was overwritten or flipped, or a newer broker with another format wrote the log.",
    ),
    Explanation(
        "unreadable-bytes",
        "00000000000000000084.log:818",
        "242 bytes that are not a batch; offsets 93-95 are unreadable",
        "Blocks of another file were written here, or a disk or a controller returned wrong sectors.",
    ),
    Explanation(
        "zeroed-range",
        "00000000000000000021.log:893",
        "262 zero bytes; offsets 30-32 are unreadable",
        "The machine lost power before the file system wrote the blocks, or the disk returned empty ones (a hole, a discarded or "
        "remapped sector).",
    ),
    Explanation(
        "torn-tail",
        "00000000000000000084.log:1151",
        "the batch claims 302 bytes, 71 are left; offsets 96-98 are unreadable",
        "The broker was killed, the machine lost power, or the disk became full in the middle of an append.",
    ),
    Explanation(
        "garbage-tail",
        "00000000000000000084.log:1368",
        "158 bytes that are not a batch; no offsets are missing",
        "The machine lost power while the file grew, or something appended to the file.",
    ),
    Explanation(
        "zero-tail",
        "00000000000000000084.log:1328",
        "4096 zero bytes; no offsets are missing",
        "The machine lost power after the file system had made the file longer and before it wrote the contents, or log.preallocate "
        "is set.",
    ),
    Explanation(
        "preallocated-tail",
        "00000000000000000084.log:1363",
        "1047213 zero bytes; no offsets are missing; there is no clean-shutdown marker, so the next start cuts them off",
        "The broker runs or was killed while log.preallocate is set.",
    ),
    Explanation(
        "batch-undecodable",
        "00000000000000000084.log:298",
        "the gzip data can't be decompressed: it has no whole header; offsets 87-89 are unreadable",
        "A client with a defect compressed the batch, or the batch was damaged before its checksum was computed (memory of the "
        "producer or the broker).",
    ),
    Explanation(
        "batch-count-mismatch",
        "00000000000000000084.log:263",
        "the batch claims 6 records for the offsets 87-89",
        "A client with a defect wrote the batch, or it was damaged before its checksum was computed.",
    ),
    Explanation(
        "batch-last-offset-mismatch",
        "00000000000000000084.log:253",
        "the batch claims to end with offset 129, but has 3 records from 87 on, and the next one begins with 90",
        "A client with a defect wrote the batch, or it was damaged before its checksum was computed.",
    ),
    Explanation(
        "batch-offsets-disorder",
        "00000000000000000084.log:253",
        "the offsets of its records do not increase",
        "A client with a defect wrote the batch, or it was damaged before its checksum was computed.",
    ),
    Explanation(
        "batch-max-timestamp-mismatch",
        "00000000000000000084.log:253",
        "the header says 1700000041000 is the maximum timestamp, the records say 1700000040000",
        "A client with a defect wrote the batch, or a broker with a defect converted it.",
    ),
    Explanation(
        "offset-not-increasing",
        "00000000000000000084.log:533",
        "offset goes back: 81-83 after 89, where 90-92 should be",
        "The base offset, which no checksum covers, was damaged, or a part of the log was copied into it a second time.",
    ),
    Explanation(
        "offset-outside-segment",
        "00000000000000000084.log:0",
        "the segment holds offset 64, but its name says that it begins with 84",
        "The file was renamed, a file of another partition was copied here, or the base offset of the batch was damaged.",
    ),
    Explanation(
        "offset-gap",
        "00000000000000000084.log:251",
        "the batch at 0 ends with offset 86, the next one begins with 90",
        "A tool cut batches out of the file, or the topic was compacted and the file that says so is missing.",
    ),
    Explanation(
        "segment-gap",
        "00000000000000000042.log",
        "the segment before ends with offset 20, this one begins with 42",
        "A segment was deleted by hand, was not restored from a backup, or a file system check removed it.",
    ),
    Explanation(
        "segment-overlap",
        "00000000000000000018.log",
        "the segment begins with offset 18, but the one before it ends with 20",
        "A segment was copied back from a backup or from a .deleted file although its offsets were still there.",
    ),
    Explanation(
        "segment-empty",
        "00000000000000000021.log",
        "the segment is empty, although the next one begins with 42",
        "The file was truncated by hand (to free space), or the machine lost power before its contents were written.",
    ),
    Explanation(
        "log-start-missing",
        "00000000000000000051.log",
        "the log begins with offset 51, but leader-epoch-checkpoint begins with 0",
        "The first segment was deleted by hand, or a start after a crash removed a damaged one.",
    ),
    Explanation(
        "log-end-missing",
        "orders-0",
        "orders-0's log is empty at 0, but recovery point and high watermark are 90",
        "The last segment was deleted by hand, a start after damage cut the log, or an older state of the directory was restored.",
    ),
    Explanation(
        "log-file-missing",
        "00000000000000000084.log",
        "its index, timeindex are there without it",
        "The .log was deleted or moved by hand, or a recovery removed it and the broker stopped before it removed the rest.",
    ),
    Explanation(
        "file-unreadable",
        "00000000000000000021.log",
        "Input/output error",
        "The disk has unreadable sectors, or the user has no permission.",
    ),
    Explanation(
        "file-changed",
        "00000000000000000084.log:1024",
        "the file had 2048 bytes when it was opened, and ended at 1024",
        "A broker runs on the directory and truncated, replaced, renamed or deleted the file.",
    ),
    Explanation(
        "sequence-gap",
        "00000000000000000084.log:255",
        "producer 2, epoch 0: sequence 71 after 20 (epoch 0)",
        "Batches were removed from the log by damage, by a tool, or by a truncation.",
    ),
    Explanation(
        "sequence-duplicate",
        "00000000000000000084.log:255",
        "producer 2, epoch 0: sequence 18 after 20 (epoch 0)",
        "A part of the log was copied into it a second time, or the base sequence was damaged before the checksum was computed.",
    ),
    Explanation(
        "producer-epoch-back",
        "00000000000000000084.log:255",
        "producer 2: epoch 0 after 1",
        "A part of an older log was copied into this one, or a leader wrote after it had lost its producer state.",
    ),
    Explanation(
        "leader-epoch-negative",
        "00000000000000000084.log:568",
        "the batch has no leader epoch, but the one before it has 0",
        "The leader epoch, which no checksum covers, was damaged, or a tool wrote the batch.",
    ),
    Explanation(
        "leader-epoch-back",
        "00000000000000000084.log:562",
        "leader epoch 7 between batches of 0",
        "A leader epoch, which no checksum covers, was damaged, or parts of two replicas were mixed.",
    ),
    Explanation(
        "leader-epoch-file-missing",
        "leader-epoch-checkpoint",
        "it is missing, but the batches have leader epochs up to 0",
        "The file was deleted, or the segments were copied without it.",
    ),
    Explanation(
        "leader-epoch-file-malformed",
        "leader-epoch-checkpoint",
        "line 4 is malformed: xx",
        "The file was edited, or its blocks were damaged.",
    ),
    Explanation(
        "leader-epoch-file-wrong",
        "leader-epoch-checkpoint",
        "it begins with offset 17, but the log begins with 15",
        "The file was edited, or it was restored from another time or replica than the segments.",
    ),
    Explanation(
        "leader-epoch-beyond-end",
        "leader-epoch-checkpoint",
        "epoch 0 begins with offset 99, but the log ends with 83",
        "The end of the log was lost, and the file was not.",
    ),
    Explanation(
        "snapshot-malformed",
        "00000000000000000021.snapshot:2",
        "the producer snapshot's checksum is 2217958620, its contents have 2217957596",
        "The machine lost power while the file was written, or its blocks were damaged.",
    ),
    Explanation(
        "snapshot-beyond-end",
        "00000000000000000599.snapshot",
        "the log ends with offset 98",
        "The end of the log was lost and the snapshot was not, or the file belongs to another partition.",
    ),
    Explanation(
        "snapshot-wrong",
        "00000000000000000042.snapshot",
        "producer 2 has epoch 3, but its last batch in the log has 2",
        "The snapshot or the segments were restored from another time, or batches were removed from the log.",
    ),
    Explanation(
        "snapshot-missing",
        "00000000000000000099.snapshot",
        "the log was closed cleanly at offset 99, when Kafka writes a snapshot",
        "The file was deleted, or the segments were copied without it.",
    ),
    Explanation(
        "transaction-index-malformed",
        "00000000000000000000.txnindex:0",
        "27 bytes are not a multiple of 34",
        "The machine lost power while the file was written, or its blocks were damaged.",
    ),
    Explanation(
        "transaction-index-wrong",
        "00000000000000000000.txnindex",
        "the aborted transaction of producer 39, offsets 0-12, is not in it",
        "The file was damaged, cut, or restored from another time than its segment.",
    ),
    Explanation(
        "transaction-index-missing",
        "00000000000000000022.txnindex",
        "the segment has the abort markers of 1 transactions",
        "The file was deleted, or the segment was copied without it.",
    ),
    Explanation(
        "partition-metadata-missing",
        "partition.metadata",
        "partition.metadata is missing, so the topic's id is not known.",
        "The directory was copied without the file, or is from a broker before 2.8.",
    ),
    Explanation(
        "partition-metadata-malformed",
        "partition.metadata",
        "line 2 is malformed: topic_id",
        "The file was edited, or its blocks were damaged.",
    ),
    Explanation(
        "index-missing",
        "00000000000000000084.index",
        "A segment has no offset index.",
        "The file was deleted, or the segment was copied without it.",
    ),
    Explanation(
        "time-index-missing",
        "00000000000000000084.timeindex",
        "A segment has no time index.",
        "The file was deleted, or the segment was copied without it.",
    ),
    Explanation(
        "index-size-odd",
        "00000000000000000021.index:24",
        "29 bytes are not a multiple of 8; 5 bytes are left over",
        "The file was cut while it was copied, or the machine lost power.",
    ),
    Explanation(
        "index-disorder",
        "00000000000000000021.index:24",
        "entry 3 of 4 does not increase",
        "The machine lost power before the pages of the memory-mapped index were written, or its blocks were damaged.",
    ),
    Explanation(
        "index-entry-wrong",
        "00000000000000000084.index:0",
        "entries 0 to 1 of 3 are wrong: offset 89 is before the batch 90-92 at 263",
        "The index belongs to another state of the segment: one of the two was restored, replaced or changed by hand.",
    ),
    Explanation(
        "index-beyond-log",
        "00000000000000000084.index:16",
        "entry 2 of 3 points beyond the log's end (the log ends at offset 98, 1083 bytes)",
        "The segment was cut and its index was not.",
    ),
    Explanation(
        "index-zero-tail",
        "00000000000000000021.index:48",
        "100 entries of zeroes follow 6 entries",
        "The broker was killed while the segment was the active one, and the index was not trimmed, or the machine lost power.",
    ),
    Explanation(
        "index-preallocated",
        "00000000000000000084.index:24",
        "1310717 entries of zeroes: the segment is the active one and there is no clean-shutdown marker, so this is preallocation, "
        "not damage",
        "A broker preallocates the index of the active segment (segment.index.bytes) and trims it when it rolls or stops.",
    ),
    Explanation(
        "index-incomplete",
        "00000000000000000021.index:0",
        "0 entries, but the time index has 4 after the last of them",
        "The file was cut, or created again empty, or the machine lost power before its pages were written.",
    ),
    Explanation(
        "leftover-cleaned",
        "00000000000000000021.log.cleaned",
        "00000000000000000021.log.cleaned, 00000000000000000021.index.cleaned, 00000000000000000021.timeindex.cleaned",
        "The broker was killed while the log cleaner wrote a new segment.",
    ),
    Explanation(
        "leftover-swap",
        "00000000000000000021.log.swap",
        "00000000000000000021.log.swap, 00000000000000000021.index.swap, 00000000000000000021.timeindex.swap",
        "The broker was killed while the log cleaner replaced segments by a new one.",
    ),
    Explanation(
        "leftover-deleted",
        "00000000000000000042.log.deleted",
        "There is a .deleted file: a segment that waits for its deletion.",
        "Retention, DeleteRecords, compaction, or a recovery deleted the segment; kops log why-deleted says which.",
    ),
    Explanation(
        "file-unknown",
        "notes.txt",
        "notes.txt is not one of Kafka's files",
        "Somebody or another program put the file here.",
    ),
    Explanation(
        "file-name-invalid",
        "foo.index",
        "foo.index has a suffix of segment files, but does not begin with an offset",
        "Somebody renamed or copied a file by hand.",
    ),
    Explanation(
        "directory-deleted",
        "orders-0.bedfa0622697425e891d1c9dd79ba6fd-delete",
        "The directory of a deleted partition waits for its removal.",
        "The topic was deleted, or the partition moved to another broker, less than file.delete.delay.ms before the broker stopped.",
    ),
    Explanation(
        "directory-stray",
        "orders-0.e39da1567b644a2bb634f857f5df65c1-stray",
        "A directory holds a partition that the broker did not know when it started.",
        "The topic was deleted while the broker was down, the partition was moved away, or partition.metadata is missing or has "
        "another topic's id.",
    ),
    Explanation(
        "directory-future",
        "orders-0.4d5f0b89cefe4a1ebec27487bbc6a25d-future",
        "A directory holds the copy of a partition that is moving to another log directory.",
        "AlterReplicaLogDirs was requested (kafka-reassign-partitions with log_dirs), and the copy is not complete.",
    ),
    Explanation(
        "directory-name-invalid",
        "lost+found",
        "'lost+found' is not the name of a partition directory, and the broker does not start",
        "The log directory is the root of a file system, or somebody made a directory or a copy in it.",
    ),
    Explanation(
        "partition-twice",
        "disk2/orders-0",
        "it is also in disk1/orders-0",
        "Somebody copied the directory between disks by hand, or a disk that was offline came back after its partitions had been moved.",
    ),
    Explanation(
        "checkpoint-malformed",
        "recovery-point-offset-checkpoint",
        "line 5 is malformed: orders @home 0 36",
        "The file was edited, the machine lost power, or a directory name has a space.",
    ),
    Explanation(
        "checkpoint-number-invalid",
        "replication-offset-checkpoint",
        'line 4: not a number: "12x"',
        "The file was edited, or its blocks were damaged.",
    ),
    Explanation(
        "checkpoint-missing",
        "log-start-offset-checkpoint",
        "log-start-offset-checkpoint is missing, although a broker has run here",
        "The file was deleted, or the partitions were copied without the files of the log directory.",
    ),
    Explanation(
        "recovery-point-beyond-end",
        "recovery-point-offset-checkpoint",
        "36, but orders-0's log is empty at 0",
        "The end of the log was lost or removed, or an older state of the partition was restored.",
    ),
    Explanation(
        "recovery-point-invalid",
        "recovery-point-offset-checkpoint",
        "-19 for orders-0",
        "The file was edited, or its blocks were damaged.",
    ),
    Explanation(
        "high-watermark-beyond-end",
        "replication-offset-checkpoint",
        "36, but orders-0's log is empty at 0",
        "The end of the log was lost or removed, or an older state of the partition was restored.",
    ),
    Explanation(
        "high-watermark-invalid",
        "replication-offset-checkpoint",
        "11, but orders-0's log holds 15-35 and starts at 17",
        "The file was edited or restored from another time than the segments.",
    ),
    Explanation(
        "log-start-beyond-end",
        "log-start-offset-checkpoint",
        "183, but orders-0's log holds 15-35",
        "The file was edited or restored, or the end of the log was lost.",
    ),
    Explanation(
        "log-start-ahead",
        "00000000000000000015.log",
        "log-start-offset-checkpoint says 29, but leader-epoch-checkpoint begins with 17",
        "The file was edited, or it was restored from another time or replica.",
    ),
    Explanation(
        "log-start-below-base",
        "log-start-offset-checkpoint",
        "3, but orders-0's log holds 15-35",
        "The broker was killed after retention deleted segments and before it wrote the file, or the file was edited.",
    ),
    Explanation(
        "cleaner-offset-invalid",
        "cleaner-offset-checkpoint",
        "148, but user_profiles-0's log holds 0-71",
        "The end of the log was lost, or the file was restored from another time.",
    ),
    Explanation(
        "topic-id-differs",
        "orders-1/partition.metadata",
        "topic id 7Lx2CXk2QLGjzVPVBOPsUQ, but orders-0 has aTR5xJSMRVu0gxQmQ2ePmA",
        "A directory of an older topic of the same name was left or copied back, or the file was written by hand.",
    ),
    Explanation(
        "bootstrap-malformed",
        "bootstrap.checkpoint:83",
        "the checksum is wrong",
        "The disk damaged the file, or somebody edited it.",
    ),
    Explanation(
        "directory-id-missing",
        "meta.properties",
        "meta.properties has no directory.id, although the broker's version writes one.",
        "The file was written by hand, or restored from the time before an upgrade to 3.7.",
    ),
    Explanation(
        "checkpoint-unknown-partition",
        "recovery-point-offset-checkpoint",
        "it names payments-0, which is not in this log directory",
        "The partition was deleted or moved away by hand, or its directory is on another disk now.",
    ),
    Explanation(
        "meta-properties-missing",
        "meta.properties",
        "meta.properties is missing.",
        "The file was deleted, the disk is new and not formatted, or only partitions were copied here.",
    ),
    Explanation(
        "meta-properties-malformed",
        "meta.properties",
        "it has neither cluster.id nor a node id",
        "The file was edited, or the machine lost power while it was written.",
    ),
    Explanation(
        "meta-properties-differ",
        "disk2/meta.properties",
        "directory.id eDXKTqJ08GcIMYpoTzeCSQ is also that of disk1",
        "A disk of another broker or cluster is in log.dirs, or a directory was copied with its meta.properties.",
    ),
    Explanation(
        "clean-shutdown-malformed",
        ".kafka_cleanshutdown",
        "version 5 is unknown",
        "The machine lost power while the file was written, or another version of Kafka wrote it.",
    ),
    Explanation(
        "unclean-shutdown",
        "/var/lib/kafka",
        "There is no marker of a clean stop: the broker was killed, it crashed, or it still runs.",
        "The broker was killed (also by the out-of-memory killer or a time-out of the service manager), the machine lost power, or "
        "the broker runs.",
    ),
    Explanation(
        "quorum-state-malformed",
        "__cluster_metadata-0/quorum-state",
        "quorum state: the file is empty",
        "The machine lost power while the file was written, or its blocks were damaged.",
    ),
    Explanation(
        "quorum-state-wrong",
        "__cluster_metadata-0/quorum-state",
        "epoch 0, but the log has batches of epoch 1",
        "The file or the metadata log was restored from another time or node.",
    ),
    Explanation(
        "quorum-state-missing",
        "__cluster_metadata-0/quorum-state",
        "quorum-state is missing, although there is a metadata log.",
        "The file was deleted, or the metadata log was copied without it.",
    ),
    Explanation(
        "metadata-snapshot-malformed",
        "00000000000000000497-0000000001.checkpoint:0",
        "the checksum is wrong, at byte 0 of 241",
        "The disk damaged the file, or it was cut while it was copied.",
    ),
    Explanation(
        "metadata-snapshot-incomplete",
        "00000000000000000497-0000000001.checkpoint:1338",
        "A snapshot of the metadata log has no footer: it was not finished.",
        "The file was cut at the end of a batch, by a copy or by a crash of the machine.",
    ),
    Explanation(
        "metadata-start-missing",
        "__cluster_metadata-0",
        "the log begins with offset 500, and no snapshot covers the offsets below",
        "The snapshot was deleted by hand, or the log was copied without it.",
    ),
    Explanation(
        "metadata-record-unreadable",
        "__cluster_metadata-0/00000000000000000000.log",
        "Unknown metadata id 99",
        "A newer version of Kafka wrote the record, or it was damaged before its checksum was computed.",
    ),
    Explanation(
        "metadata-record-contradiction",
        "__cluster_metadata-0/00000000000000000000.log",
        "FenceBrokerRecord: Tried to fence broker 4, but that broker was not registered.",
        "Records before this one are missing, or parts of two logs were mixed.",
    ),
    Explanation(
        "metadata-snapshot-differs",
        "00000000000000000497-0000000001.checkpoint",
        "/topics/orders/0 leader: 2 in the log, 1 here",
        "The snapshot and the log are of different nodes, clusters or times, or one of them was changed.",
    ),
    Explanation(
        "metadata-partition-invalid",
        "__cluster_metadata-0",
        "orders-0: its leader 4 is not in its ISR [1, 2]",
        "The metadata was changed by a tool, or parts of two logs were mixed.",
    ),
    Explanation(
        "replica-damaged",
        "broker-2/orders-0/00000000000000000021.log:534",
        "the checksum is wrong; offsets 27 to 29 are intact in broker-1/orders-0, broker-3/orders-0",
        "A fault of this broker's disk, controller or memory. Replication never copies damage: a follower checks what it fetches.",
    ),
    Explanation(
        "replica-gap",
        "broker-2/orders-0",
        "offsets 21 to 41 are missing; broker-1/orders-0, broker-3/orders-0 have them",
        "A segment was deleted or not restored, or somebody or a repair removed batches.",
    ),
    Explanation(
        "replica-behind",
        "broker-2/orders-0",
        "it ends at 84; broker-1/orders-0 ends at 99",
        "The broker was stopped or slow while the leader appended. That is normal for a replica that is not in sync.",
    ),
    Explanation(
        "replica-truncation-due",
        "broker-1/orders-0/00000000000000000000.log:1465",
        "from offset 20 on it has batches of leader epoch 0, while broker-2/orders-0 has others of leader epoch 1",
        "The broker was the leader, appended batches that no other replica fetched, and crashed. Another replica was elected.",
    ),
    Explanation(
        "replica-diverged",
        "broker-2/clicks-unclean-0/00000000000000000000.log:1465",
        "from offset 20 on it has batches of leader epoch 0, while broker-3/clicks-unclean-0 has others of leader epoch 2. "
        "Its high watermark was 35, so offsets 20 to 34 were committed: an unclean election",
        "A replica that was not in sync was elected (unclean.leader.election.enable), because no other one was alive.",
    ),
    Explanation(
        "replica-contents-differ",
        "broker-2/orders-0/00000000000000000084.log:255",
        "broker-1/orders-0 has offsets 87 to 89 of leader epoch 0 with checksum 28feefee; broker-2/orders-0 has offsets 87 to 89 of "
        "leader epoch 0 with checksum 7a1c0e42",
        "A tool rewrote a batch with a new checksum, or a batch was damaged in memory before its checksum was computed.",
    ),
    Explanation(
        "replica-epoch-differs",
        "broker-2/orders-0/00000000000000000084.log:568",
        "broker-1/orders-0 has offsets 90 to 92 of leader epoch 0 with checksum 2f027b3a; broker-2/orders-0 has offsets 90 to 92 of "
        "leader epoch -1 with checksum 2f027b3a",
        "A leader epoch, which no checksum covers, was damaged.",
    ),
)

EXPLANATIONS: dict[str, Explanation] = {each.code: each for each in _ALL}


def explanation(code: str) -> tuple[CodeText, Explanation]:
    """Everything about a code. NotFoundError, with the nearest names, if there is none."""
    if code not in CODES:
        import difflib

        near = difflib.get_close_matches(code, CODES, 3, 0.5)
        hint = f"; did you mean {' or '.join(near)}?" if near else ""
        raise NotFoundError(f"{code}: no finding has this code{hint}")
    return CODES[code], EXPLANATIONS[code]


def to_json(code: str) -> dict[str, str]:
    """The catalogue's entry, in the order in which it is printed. Raises NotFoundError."""
    text, more = explanation(code)
    return {
        "code": text.code,
        "severity": text.severity,
        "meaning": text.meaning,
        "example": f"{more.place}: {more.detail}",
        "cause": more.cause,
        "kafka": text.consequence,
        "remedy": text.fix,
    }
