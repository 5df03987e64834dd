"""The tree of commands: path, where its function is, and one line of help.

This table is all that `kops --help` and the help of a group need, so printing them imports no command and not even typer. A command
stands here when it works; there are no stubs. How a command module looks is written in `kops/cli/commands/__init__.py`.
"""

from __future__ import annotations

GROUPS: dict[tuple[str, ...], str] = {
    ("cluster",): "Kafka clusters on this machine: brokers as processes, made and started in a second",
    ("cluster", "broker"): "One broker of a cluster: stop, start, pause, kill, add, remove",
    ("log",): "Look into, verify, mend and salvage log directories, offline",
    ("log", "index"): "Check, rebuild and compare offset, time and transaction indexes",
    ("scan",): "The same questions over a whole cluster, on Spark",
    ("topic",): "Topics of a running cluster: what there is, made, changed, written and read",
    ("partition",): "Partitions and their replicas: elections, reassignments, log directories",
    ("partition", "reassign"): "Move partitions to other brokers and log directories",
    ("quorum",): "The quorum of controllers",
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
        """As typed, `kops` included."""
        return "kops " + " ".join(self.path)


# In the order in which help lists them.
COMMANDS: tuple[Entry, ...] = (
    Entry("cluster up", "cluster.up:up", "Make and start a cluster on this machine; prints its bootstrap address"),
    Entry("cluster down", "cluster.down:down", "Stop a cluster cleanly"),
    Entry("cluster kill", "cluster.down:kill", "Kill all brokers of a cluster, as kill -9 does"),
    Entry("cluster restart", "cluster.restart:restart", "Stop a cluster and start it again"),
    Entry("cluster ls", "cluster.ls:ls", "The clusters of this user on this machine"),
    Entry("cluster status", "cluster.status:status", "The brokers of a cluster and what they do"),
    Entry("cluster env", "cluster.env:env", "Where clients find a cluster, for a shell"),
    Entry("cluster logs", "cluster.logs:logs", "What the brokers said; -f goes on"),
    Entry("cluster purge", "cluster.purge:purge", "Remove a cluster that is down, with all its data"),
    Entry("cluster format", "cluster.format:format_", "Format log directories, as kafka-storage format does"),
    Entry("cluster adopt", "cluster.adopt:adopt", "Make a cluster of log directories of Apache Kafka's that are there"),
    Entry("cluster broker stop", "cluster.broker:stop", "Stop brokers cleanly"),
    Entry("cluster broker start", "cluster.broker:start", "Start brokers that are down"),
    Entry("cluster broker pause", "cluster.broker:pause", "Hold brokers where they are; nothing answers"),
    Entry("cluster broker resume", "cluster.broker:resume", "Let paused brokers go on"),
    Entry("cluster broker kill", "cluster.broker:kill", "Kill brokers, as kill -9 does"),
    Entry("cluster broker add", "cluster.broker:add", "Add a broker to a cluster that is up"),
    Entry("cluster broker remove", "cluster.broker:remove", "Remove a broker that was added"),
    Entry("log dump", "log.dump:dump", "What is in segments, indexes, snapshots and checkpoints"),
    Entry("log ls", "log.ls:ls", "Segments and their states, ranges, epochs"),
    Entry("log forecast", "log.forecast:forecast", "What a Kafka broker's start would truncate, delete or refuse"),
    Entry("log verify", "log.verify:verify", "Whether everything is on disk as Kafka would have written it; read-only"),
    Entry("log repair", "log.repair:repair", "Mend what verify finds, with a journal; -n shows the plan"),
    Entry("log recover", "log.recover:recover", "Salvage every intact batch past any damage"),
    Entry("log export", "log.export:export", "Logs as jsonl that has all that is needed to make them again; read-only"),
    Entry("log import", "log.import_:import_", "Segments, indexes, snapshots and epochs from an export"),
    Entry("log append", "log.append:append", "Append records to a partition's folder, offline"),
    Entry("log truncate", "log.truncate:truncate", "Cut a partition's log at an offset, with a journal; -n shows the plan"),
    Entry("log compact", "log.compact:compact", "Keep the latest record of each key, as a broker's cleaner does, in a new directory"),
    Entry("scan verify", "scan:verify", "Verify a whole cluster's log directories on Spark; read-only"),
    Entry("log index check", "log.index.check:check", "Whether offset, time and transaction indexes fit their logs; read-only"),
    Entry("log index rebuild", "log.index.rebuild:rebuild", "Make wrong or missing indexes anew, as a broker writes them"),
    Entry("log index diff", "log.index.diff:diff", "Index entries that differ from what a broker would write now; read-only"),
    Entry("topic list", "topic.list:list_", "The topics of a cluster"),
    Entry("topic describe", "topic.describe:describe", "Partitions, leaders, replicas and settings of topics"),
    Entry("topic create", "topic.create:create", "Make topics"),
    Entry("topic delete", "topic.delete:delete", "Delete topics and all their records"),
    Entry("topic alter", "topic.alter:alter", "More partitions, other settings"),
    Entry("topic offsets", "topic.offsets:offsets", "Where partitions start and end, and which offset a time has"),
    Entry("topic trim", "topic.trim:trim", "Delete the records below an offset"),
    Entry("topic produce", "topic.produce:produce", "Write records, from lines of text or of JSON"),
    Entry("topic consume", "topic.consume:consume", "Read records by partition, as JSON or as text"),
    Entry("partition elect", "partition.elect:elect", "Elect preferred leaders, or leaders that are not in sync"),
    Entry("partition reassign generate", "partition.reassign:generate", "A plan that spreads topics over brokers"),
    Entry("partition reassign execute", "partition.reassign:execute", "Begin a plan"),
    Entry("partition reassign verify", "partition.reassign:verify", "How far a plan is; takes throttles off when all is done"),
    Entry("partition reassign cancel", "partition.reassign:cancel", "Stop what is under way of a plan"),
    Entry("partition reassign list", "partition.reassign:list_", "What is under way"),
    Entry("partition under-replicated", "partition.under_replicated:under_replicated", "Partitions with a replica that is not in sync"),
    Entry("partition log-dirs", "partition.log_dirs:log_dirs", "What lies in the log directories of brokers"),
    Entry("quorum describe", "quorum:describe", "Leader, voters and observers of the metadata quorum"),
    Entry("doctor", "doctor:doctor", "What this machine lacks for kops, and how to get it"),
    Entry("completion", "completion:completion", "Print the completion script for bash, zsh or fish"),
)


def find(path: tuple[str, ...]) -> Entry | None:
    """The command at exactly this path."""
    return next((entry for entry in COMMANDS if entry.path == path), None)


def is_group(path: tuple[str, ...]) -> bool:
    """Whether commands stand below this path."""
    return any(len(entry.path) > len(path) and entry.path[: len(path)] == path for entry in COMMANDS)


def children(path: tuple[str, ...]) -> list[tuple[str, str]]:
    """`(name, one line of help)` of what stands directly below a group, in the table's order."""
    seen: dict[str, str] = {}
    depth = len(path)
    for entry in COMMANDS:
        if len(entry.path) > depth and entry.path[:depth] == path:
            name = entry.path[depth]
            seen.setdefault(name, entry.help if len(entry.path) == depth + 1 else GROUPS[entry.path[: depth + 1]])
    return list(seen.items())
