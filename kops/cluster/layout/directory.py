"""The directory of a cluster: `broker-N` is the log directory of node N, `N.properties` its settings, `.kops` the additions of kops.

Broker directories and settings are plain Kafka. A stopped cluster needs nothing from `.kops`, so Apache Kafka can take over without any
change to a file, and kops can take over again. `.kops` contains output, status and process of each broker, and the supervisor's socket.
"""

from __future__ import annotations

import json
import os
import re
import shutil
from typing import TYPE_CHECKING, Any, Final

from kops.cluster.layout import settings
from kops.config.values.properties import read_properties, write_properties
from kops.errors import DecodeError, KopsError, NotFoundError, UsageError
from kops.files import OsFiles

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from types import TracebackType

    from kops.files import Files

DEFAULT_PATH: Final = "kops-data"
STATE_DIR: Final = ".kops"
_NODE_FILE: Final = re.compile(r"([0-9]+)\.properties\Z")
_KEY: Final = re.compile(r"(?:[^=\\]|\\.)*=")
_ESCAPED: Final = re.compile(r"((?<!\\)(?:\\\\)*)\\([:=#!])")
_COMMENT: Final = " A node of a cluster. Apache Kafka can start with this file unchanged."
_MAX_SOCKET_PATH: Final = 100  # the address of a Unix socket has 104 (macOS) or 108 bytes


class ClusterDirectory:
    """Names and files below one directory. Kafka's files are read through `files`. `.kops` is always on a disk of this machine."""

    def __init__(self, path: str, *, files: Files | None = None) -> None:
        if not path:
            raise UsageError("the name of the cluster's directory is empty")
        self.path = os.path.abspath(path)
        self.files: Files = files or OsFiles()

    # names ------------------------------------------------------------------------------------------------------------------------

    @property
    def state_dir(self) -> str:
        """The directory of kops's own files."""
        return os.path.join(self.path, STATE_DIR)

    def log_dir(self, node_id: int) -> str:
        """A node's log directory as kops creates it. (The node's file may have others.)"""
        return os.path.join(self.path, f"broker-{node_id}")

    def properties_path(self, node_id: int) -> str:
        """The path of a node's settings."""
        return os.path.join(self.path, f"{node_id}.properties")

    def output_path(self, node_id: int) -> str:
        """The path of a broker's output, from all its runs."""
        return os.path.join(self.state_dir, f"broker-{node_id}.out")

    def status_path(self, node_id: int) -> str:
        """The path of the status that a node reports (`kops.broker.controller_link.status`)."""
        return os.path.join(self.state_dir, f"broker-{node_id}.json")

    def process_path(self, node_id: int) -> str:
        """The path of the file that identifies a broker's process."""
        return os.path.join(self.state_dir, f"broker-{node_id}.process")

    @property
    def supervisor_path(self) -> str:
        """The path of the file with the supervisor's process and socket."""
        return os.path.join(self.state_dir, "supervisor.json")

    @property
    def supervisor_output_path(self) -> str:
        """The path of the supervisor's output."""
        return os.path.join(self.state_dir, "supervisor.out")

    @property
    def socket_path(self) -> str | None:
        """The path of the supervisor's socket, or None if it would be too long."""
        path = os.path.join(self.state_dir, "control")
        return path if len(os.fsencode(path)) <= _MAX_SOCKET_PATH else None

    # nodes ------------------------------------------------------------------------------------------------------------------------

    @property
    def is_cluster(self) -> bool:
        """Whether the directory contains nodes."""
        return bool(self.node_ids())

    def node_ids(self) -> list[int]:
        """The ids of all nodes, in order."""
        try:
            names = os.listdir(self.path)
        except (FileNotFoundError, NotADirectoryError):
            return []
        return sorted(int(found[1]) for name in names if (found := _NODE_FILE.match(name)))

    def require(self) -> None:
        """Raise NotFoundError if there are no nodes."""
        if not self.is_cluster:
            raise NotFoundError(f"{self.path}: no cluster here (kops cluster up --data-dir {self.path} creates one)")

    def require_node(self, node_id: int) -> None:
        """Raise NotFoundError if there is no such node."""
        ids = self.node_ids()
        if node_id not in ids:
            raise NotFoundError(f"{self.path}: no broker {node_id}; there are {', '.join(map(str, ids)) or 'none'}")

    def properties(self, node_id: int) -> dict[str, str]:
        """Return a node's settings. Raises UsageError for a file that can't be parsed."""
        path = self.properties_path(node_id)
        try:
            return read_properties(self.files.read_all(path), file=path)
        except DecodeError as error:
            raise UsageError(str(error)) from error

    def write_properties(self, node_id: int, properties: Mapping[str, str]) -> None:
        """Write a node's settings."""
        text = _readable(write_properties(properties, comments=(_COMMENT,), escape_unicode=True))
        self.files.write_atomic(self.properties_path(node_id), text.encode("latin-1"))

    def bootstrap_servers(self) -> str:
        """The addresses of the brokers for clients."""
        addresses = (settings.listener_address(self.properties(node_id)) for node_id in self.broker_ids())
        return ",".join(f"{host}:{port}" for host, port in addresses)

    def broker_ids(self) -> list[int]:
        """The nodes that are brokers. (Nodes of a real Kafka may be controllers only.)"""
        return [node_id for node_id in self.node_ids() if "broker" in _roles(self.properties(node_id))]

    def voter_ids(self) -> list[int]:
        """The nodes that vote in the quorum."""
        return [node_id for node_id in self.node_ids() if "controller" in _roles(self.properties(node_id))]

    def log_dirs(self, node_id: int) -> list[str]:
        """The log directories in a node's settings."""
        properties = self.properties(node_id)
        named = properties.get("log.dirs") or properties.get("log.dir") or ""
        return [name.strip() for name in named.split(",") if name.strip()]

    # state ------------------------------------------------------------------------------------------------------------------------

    def read_state(self, path: str) -> dict[str, Any]:
        """Read a JSON object from a file of `.kops`. Returns an empty one if the file is missing or incomplete."""
        try:
            with open(path, "rb") as file:
                document = json.loads(file.read())
        except (FileNotFoundError, NotADirectoryError, ValueError):
            return {}
        return document if isinstance(document, dict) else {}

    def write_state(self, path: str, document: Mapping[str, Any]) -> None:
        """Write a file of `.kops` atomically."""
        temporary = f"{path}.tmp"
        with open(temporary, "w") as file:
            json.dump(document, file)
        os.replace(temporary, path)

    def last_lines(self, path: str, count: int = 10) -> list[str]:
        """Return the last lines of an output, or none if it does not exist."""
        try:
            with open(path, "rb") as file:
                size = file.seek(0, os.SEEK_END)
                file.seek(max(size - 64 * 1024, 0))
                text = file.read().decode("utf-8", "replace")
        except FileNotFoundError:
            return []
        return text.splitlines()[-count:]

    def remove(self) -> list[str]:
        """Remove the cluster: the nodes' settings, their directories here, and `.kops`. Returns the files that were left because they are
        not kops's.
        """
        for node_id in self.node_ids():
            shutil.rmtree(self.log_dir(node_id), ignore_errors=not os.path.exists(self.log_dir(node_id)))
            os.unlink(self.properties_path(node_id))
        if os.path.exists(self.state_dir):
            shutil.rmtree(self.state_dir)
        left = sorted(os.listdir(self.path))
        if not left:
            os.rmdir(self.path)
        return left


def _readable(text: str) -> str:
    """Return properties as a user writes them. Java also escapes `:`, `=`, `#` and `!` in values, where that is not necessary."""
    lines = []
    for line in text.split("\n"):
        end = _KEY.match(line)
        at = end.end() if end else len(line)
        lines.append(line[:at] + _ESCAPED.sub(r"\1\2", line[at:]))
    return "\n".join(lines)


def _roles(properties: Mapping[str, str]) -> set[str]:
    return {role.strip() for role in properties.get("process.roles", "").split(",")}


def check_name(path: str) -> None:
    """Raise UsageError if `log.dirs` can't contain a directory: it is a list, and blanks around the names are ignored."""
    if "," in path or path != path.strip():
        raise UsageError(f"'{path}': log.dirs can't name a directory with a comma, or with a blank at the end; choose another name")


def check_usable(directory: ClusterDirectory) -> None:
    """Raise UsageError if no new cluster can be created there: it is not a directory, or a log directory itself, or contains other
    files.
    """
    path = directory.path
    check_name(directory.log_dir(1))
    if not os.path.exists(path):
        return
    if not os.path.isdir(path):
        raise UsageError(f"{path} is not a directory")
    names = [name for name in os.listdir(path) if name != STATE_DIR]
    if "meta.properties" in names:
        raise UsageError(
            f"{path} is itself a log directory of Kafka, so it cannot hold a cluster's settings; "
            "kops cluster adopt takes it over, with another --data-dir"
        )
    if names:
        raise UsageError(f"{path} is not empty and holds no kops cluster ({', '.join(sorted(names)[:3])}); choose another --data-dir")


def check_nodes(directory: ClusterDirectory) -> str | None:
    """Return the cluster's id, or None if nothing is formatted yet.

    Raises UsageError if nodes belong to different clusters, or a directory belongs to another node.
    """
    from kops.storage.formats.meta_properties import read_meta_properties

    cluster_id = found_in = None
    for node_id in directory.node_ids():
        for log_dir in directory.log_dirs(node_id):
            path = os.path.join(log_dir, "meta.properties")
            if not os.path.exists(path):
                continue
            try:
                meta = read_meta_properties(directory.files.read_all(path), file=path)
            except DecodeError as error:
                raise KopsError(str(error)) from error
            if meta.node_id is not None and meta.node_id != node_id:
                raise UsageError(f"{path} belongs to node {meta.node_id}, {directory.properties_path(node_id)} is node {node_id}'s")
            if cluster_id is None:
                cluster_id, found_in = meta.cluster_id, path
            elif meta.cluster_id != cluster_id:
                raise UsageError(f"{path} belongs to cluster {meta.cluster_id}, {found_in} to {cluster_id}: another cluster's directory")
    return cluster_id


def follow_a_move(directory: ClusterDirectory) -> list[str]:
    """Update settings that still refer to `broker-N` at the old place after the whole directory was moved or copied. Returns the changes.

    A `log.dirs` of another form was set by the user and does not change.
    """
    changed = []
    for node_id in directory.node_ids():
        named = directory.log_dirs(node_id)
        here = directory.log_dir(node_id)
        is_ours = len(named) == 1 and os.path.basename(named[0]) == os.path.basename(here)
        if is_ours and named[0] != here and os.path.isdir(here):
            directory.write_properties(node_id, {**directory.properties(node_id), "log.dirs": here})
            changed.append(f"{node_id}.properties: log.dirs was {named[0]}, is {here}")
    return changed


def move_ports(directory: ClusterDirectory, base_port: int) -> None:
    """Assign ports to all nodes, starting with `base_port`, in the order of their ids."""
    node_ids = directory.node_ids()
    if not settings.quorum_voters(directory.properties(node_ids[0])):
        raise UsageError(f"{directory.path}: the quorum is dynamic, so its ports are in the metadata log and can't be changed here")
    every = {node_id: directory.properties(node_id) for node_id in node_ids}
    voters = [settings.Voter(node_id, settings.controller_port(base_port, node_id)) for node_id in directory.voter_ids()]
    for node_id, properties in every.items():
        moved = settings.node_properties(
            node_id,
            voters,
            port=settings.client_port(base_port, node_id),
            log_dir=properties["log.dirs"],
            broker_count=len(node_ids),
            settings=properties,
        )
        kept = {key: value for key, value in moved.items() if key in settings.OWNED or key in properties}
        directory.write_properties(node_id, kept)


class Undo:
    """Files that were created. Unless they are kept, they are removed again, so that a failed start leaves nothing.

    with Undo() as undo:
        undo.made(path)
        ...
        undo.keep()
    """

    def __init__(self) -> None:
        self._paths: list[str] = []

    def making(self, paths: Iterable[str]) -> None:
        """Announce paths that will be created. kops must not remove paths that exist already."""
        self._paths += [path for path in paths if not os.path.lexists(path)]

    def made(self, path: str) -> None:
        """Record a path that was created."""
        self._paths.append(path)

    def keep(self) -> None:
        """Keep all files, because there was no error."""
        self._paths.clear()

    def __enter__(self) -> Undo:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        for path in reversed(self._paths):
            if os.path.isdir(path) and not os.path.islink(path):
                shutil.rmtree(path, ignore_errors=True)
            elif os.path.lexists(path):
                os.unlink(path)
