"""The tree of commands: the path, the function and one line of help of each.

This table is all that `kops --help` and the help of a group need, so printing them imports no command and not even typer. Only working
commands are listed, no stubs. `kops/cli/commands/__init__.py` describes a command module.
"""

from __future__ import annotations

GROUPS: dict[tuple[str, ...], str] = {
    ("cluster",): "Run Kafka clusters on this machine: brokers as processes, started in a second",
    ("cluster", "broker"): "Stop, start, pause, kill, add and remove single brokers",
    ("log",): "Inspect, verify, repair and recover log directories, offline",
    ("log", "meta"): "Show, compare and check the metadata log of a cluster and its snapshots, offline",
    ("log", "index"): "Check, rebuild and compare offset, time and transaction indexes",
    ("evidence",): "Collect log directories as evidence, prove them unchanged, and report them",
    ("scan",): "Verify, search and recover the log directories of a whole cluster, on Spark",
    ("topic",): "Manage, write and read topics of a running cluster",
    ("group",): "Show consumer groups and their lag, and set their offsets",
    ("txn",): "Show transactions, and find and abort those that hang",
    ("partition",): "Manage partitions and replicas: elections, reassignments, log directories",
    ("partition", "reassign"): "Move partitions to other brokers and log directories",
    ("quorum",): "Show the controller quorum",
}


class Entry:
    """One command: `path` as typed, `target` as `module:function` below `kops.cli.commands`, `help` in one line without a full stop."""

    __slots__ = ("help", "path", "target")

    def __init__(self, path: str, target: str, help: str) -> None:
        self.path: tuple[str, ...] = tuple(path.split())
        self.target = target
        self.help = help

    @property
    def name(self) -> str:
        """The command as typed, including `kops`."""
        return "kops " + " ".join(self.path)


# In the order in which help lists them.
COMMANDS: tuple[Entry, ...] = (
    Entry("cluster up", "cluster.up:up", "Create and start a cluster on this machine; prints its bootstrap address"),
    Entry("cluster down", "cluster.down:down", "Stop a cluster cleanly"),
    Entry("cluster kill", "cluster.down:kill", "Kill all brokers of a cluster, as kill -9 does"),
    Entry("cluster restart", "cluster.restart:restart", "Stop a cluster and start it again"),
    Entry("cluster ls", "cluster.ls:ls", "List this user's clusters on this machine"),
    Entry("cluster status", "cluster.status:status", "Show the brokers of a cluster and their states"),
    Entry("cluster env", "cluster.env:env", "Print a cluster's address as a shell variable"),
    Entry("cluster logs", "cluster.logs:logs", "Print the brokers' output; -f follows it"),
    Entry("cluster purge", "cluster.purge:purge", "Delete a stopped cluster with all its data"),
    Entry("cluster format", "cluster.format:format_", "Format log directories, as kafka-storage format does"),
    Entry("cluster adopt", "cluster.adopt:adopt", "Make a cluster from existing log directories of Apache Kafka"),
    Entry("cluster broker stop", "cluster.broker:stop", "Stop brokers cleanly"),
    Entry("cluster broker start", "cluster.broker:start", "Start brokers that are down"),
    Entry("cluster broker pause", "cluster.broker:pause", "Suspend brokers: they stop answering"),
    Entry("cluster broker resume", "cluster.broker:resume", "Let paused brokers continue"),
    Entry("cluster broker kill", "cluster.broker:kill", "Kill brokers, as kill -9 does"),
    Entry("cluster broker add", "cluster.broker:add", "Add a broker to a running cluster"),
    Entry("cluster broker remove", "cluster.broker:remove", "Remove a broker that was added"),
    Entry("log dump", "log.dump:dump", "Print the contents of segments, indexes, snapshots and checkpoints"),
    Entry(
        "log stats",
        "log.questions.stats:stats",
        "Show sizes, codecs, producers, gaps and times of partitions; read-only",
    ),
    Entry("log grep", "log.questions.grep:grep", "Find records by key, value, header, offset, time, producer or transaction; read-only"),
    Entry("log compaction", "log.questions.compaction:compaction", "Show what the log cleaner would do, and when tombstones go; read-only"),
    Entry("log timeline", "log.questions.timeline:timeline", "Show what happened to partitions over time, also as a body file; read-only"),
    Entry("log ls", "log.ls:ls", "List segments with their states, offsets and epochs"),
    Entry("log forecast", "log.forecast:forecast", "Predict what a Kafka broker would truncate, delete or refuse when it starts"),
    Entry("log verify", "log.verify:verify", "Check that all files are as Kafka would have written them; read-only"),
    Entry("log repair", "log.repair:repair", "Repair what verify finds, with a journal; -n shows the plan"),
    Entry("log recover", "log.recover:recover", "Copy every intact batch into a new directory, past any damage"),
    Entry("log carve", "log.lost.carve:carve", "Find intact batches in disk images and unknown files, and build logs from them"),
    Entry("log undelete", "log.lost.undelete:undelete", "Restore files that Kafka renamed for deletion, with a journal; -n shows the plan"),
    Entry("log why-deleted", "log.lost.why_deleted:why_deleted", "Show why segments and partitions were deleted, and how certain that is"),
    Entry("log explain", "log.lost.explain:explain", "Explain the code of a finding: meaning, cause, what Kafka does, remedy"),
    Entry("log heal", "log.replicas.heal:heal", "Fill damage from the intact batches of other replicas, with a journal; -n shows the plan"),
    Entry("log diff", "log.replicas.diff:diff", "Compare the replicas of partitions: where they differ, why, and which is best; read-only"),
    Entry("log export", "log.export:export", "Write logs as jsonl, complete enough to rebuild them; read-only"),
    Entry("log import", "log.import_:import_", "Build segments, indexes, snapshots and epochs from an export"),
    Entry("log replay", "log.lost.replay:replay", "Send the records of logs to a running cluster, each once"),
    Entry("log append", "log.append:append", "Append records to a partition directory, offline"),
    Entry("log truncate", "log.truncate:truncate", "Truncate a partition's log at an offset, with a journal; -n shows the plan"),
    Entry("log compact", "log.compact:compact", "Keep the latest record of each key, as a broker's cleaner does, in a new directory"),
    Entry("log offsets", "log.state.offsets:offsets", "Show committed offsets of consumer groups, as of any time; read-only"),
    Entry("log txnstate", "log.state.txnstate:txnstate", "Show transactional ids and their transactions; read-only"),
    Entry("log txns", "log.state.txns:txns", "Show open and hanging transactions, and the command that ends each; read-only"),
    Entry("log meta ls", "log.meta.nodes:ls", "List nodes of a cluster's metadata; read-only"),
    Entry("log meta cat", "log.meta.nodes:cat", "Print a node of a cluster's metadata with all below it; read-only"),
    Entry("log meta find", "log.meta.nodes:find", "Find nodes of a cluster's metadata by name; read-only"),
    Entry("log meta diff", "log.meta.diff:diff", "Show what changed in a cluster's metadata; read-only"),
    Entry("log meta verify", "log.meta.verify:verify", "Check that the metadata log replays and agrees with its snapshots; read-only"),
    Entry(
        "evidence collect",
        "evidence.collect:collect",
        "Collect directories as evidence: copies with hashes, and what verify and forecast find",
    ),
    Entry(
        "evidence verify",
        "evidence.verify:verify",
        "Prove that a case is unchanged: nothing differs, is missing or was added; read-only",
    ),
    Entry("evidence report", "evidence.report:report", "Make a report of a case: one HTML page with maps and explanations"),
    Entry("scan verify", "scan.verify:verify", "Verify a whole cluster's log directories on Spark; read-only"),
    Entry("scan offsets", "scan.offsets:offsets", "Show committed offsets of all consumer groups of a cluster, on Spark; read-only"),
    Entry("scan txns", "scan.txns:txns", "Show open and hanging transactions of a whole cluster, on Spark; read-only"),
    Entry("scan diff", "scan.diff:diff", "Compare the replicas of all partitions of a cluster, on Spark; read-only"),
    Entry("scan stats", "scan.stats:stats", "Show sizes, codecs, producers, gaps and times of all replicas, on Spark; read-only"),
    Entry("scan producers", "scan.producers:producers", "Show producers of all partitions, and breaks in their sequences; read-only"),
    Entry("scan keys", "scan.keys:keys", "Show the keys with the most records, on Spark; read-only"),
    Entry("scan grep", "scan.grep:grep", "Find records by key, value, header, offset, time or producer, on Spark; read-only"),
    Entry("scan timeline", "scan.timeline:timeline", "Show what happened in a cluster over time, on Spark; read-only"),
    Entry("scan carve", "scan.lost.carve:carve", "Find intact batches in disk images, and make logs of them, on Spark"),
    Entry("scan recover", "scan.recover:recover", "Recover a whole cluster on Spark: what any replica has intact"),
    Entry("log index check", "log.index.check:check", "Check offset, time and transaction indexes against their logs; read-only"),
    Entry("log index rebuild", "log.index.rebuild:rebuild", "Rebuild wrong or missing indexes, as a broker writes them"),
    Entry("log index diff", "log.index.diff:diff", "Show index entries that differ from what a broker would write; read-only"),
    Entry("topic list", "topic.list:list_", "List topics"),
    Entry("topic describe", "topic.describe:describe", "Show partitions, leaders, replicas and settings of topics"),
    Entry("topic create", "topic.create:create", "Create topics"),
    Entry("topic delete", "topic.delete:delete", "Delete topics and all their records"),
    Entry("topic alter", "topic.alter:alter", "Add partitions to topics and change their settings"),
    Entry("topic offsets", "topic.offsets:offsets", "Show where partitions start and end, or the offset for a time"),
    Entry("topic trim", "topic.trim:trim", "Delete the records below an offset"),
    Entry("topic produce", "topic.produce:produce", "Write records, from lines of text or of JSON"),
    Entry("topic consume", "topic.consume:consume", "Read records by partition, as JSON or as text"),
    Entry("group list", "group.list:list_", "List groups"),
    Entry("group describe", "group.describe:describe", "Show the offsets, members and states of groups"),
    Entry("group lag", "group.lag:lag", "Show how far groups are behind, by topic"),
    Entry("group reset", "group.reset:reset", "Set offsets of groups; without --execute shows the new offsets"),
    Entry("group delete", "group.delete:delete", "Delete groups and all their offsets"),
    Entry("group delete-offsets", "group.delete:delete_offsets", "Delete offsets of a group"),
    Entry("group export", "group.reset:export", "Print offsets of groups as Kafka's CSV"),
    Entry("group import", "group.reset:import_", "Set offsets from a CSV file; without --execute shows them"),
    Entry("txn list", "txn.list:list_", "List transactional ids"),
    Entry("txn describe", "txn.describe:describe", "Show the state of transactional ids"),
    Entry("txn producers", "txn.describe:producers", "Show the producers that partitions remember"),
    Entry("txn find-hanging", "txn.hanging:find_hanging", "Find transactions that no coordinator will end"),
    Entry("txn abort", "txn.hanging:abort", "Abort a transaction"),
    Entry("partition elect", "partition.elect:elect", "Elect preferred leaders, or leaders that are not in sync"),
    Entry("partition reassign generate", "partition.reassign:generate", "Propose a plan that spreads topics over brokers"),
    Entry("partition reassign execute", "partition.reassign:execute", "Start the moves of a plan"),
    Entry("partition reassign verify", "partition.reassign:verify", "Show the progress of a plan; removes throttles when it is done"),
    Entry("partition reassign cancel", "partition.reassign:cancel", "Cancel the moves of a plan that are in progress"),
    Entry("partition reassign list", "partition.reassign:list_", "List the moves that are in progress"),
    Entry(
        "partition under-replicated", "partition.under_replicated:under_replicated", "List partitions with a replica that is not in sync"
    ),
    Entry("partition log-dirs", "partition.log_dirs:log_dirs", "List replicas by broker and log directory, with sizes"),
    Entry("quorum describe", "quorum:describe", "Show leader, voters and observers of the metadata quorum"),
    Entry("doctor", "doctor:doctor", "Show what is missing on this machine for kops, and how to install it"),
    Entry("completion", "completion:completion", "Print the completion script for bash, zsh or fish"),
)


def find(path: tuple[str, ...]) -> Entry | None:
    """The command at exactly this path."""
    return next((entry for entry in COMMANDS if entry.path == path), None)


def is_group(path: tuple[str, ...]) -> bool:
    """Whether there are commands below this path."""
    return any(len(entry.path) > len(path) and entry.path[: len(path)] == path for entry in COMMANDS)


def children(path: tuple[str, ...]) -> list[tuple[str, str]]:
    """`(name, one line of help)` of everything directly below a group, in the table's order."""
    seen: dict[str, str] = {}
    depth = len(path)
    for entry in COMMANDS:
        if len(entry.path) > depth and entry.path[:depth] == path:
            name = entry.path[depth]
            seen.setdefault(name, entry.help if len(entry.path) == depth + 1 else GROUPS[entry.path[: depth + 1]])
    return list(seen.items())
