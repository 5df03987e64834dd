"""Decides which variant of a hot module runs: the one that mypyc compiled, or the interpreted source.

A hot module (`HOT_MODULES`) is a typed Python source: a loop over records or files, or the calls of a request. An install with a C
compiler also has an extension of it in the same directory. It is imported with an ordinary `import`. The finder in this module intervenes
only to use the source although there is an extension:

* if the environment variable `KOPS_PURE` is set and not empty, or
* if the extension of any hot module is missing or older than its source or than this list, as after an edit or a pull in a checkout
  (`make compile` rebuilds all). Then it also passes over the extensions of modules that are no longer hot.

`kops doctor` shows `status()`. `load_hot(name, pure=True)` also loads the interpreted variant, for tests that compare the two.
"""

from __future__ import annotations

import os
import sys

# Every `import kops` runs this module, even for `kops --help`, so it imports only modules that the interpreter has already loaded.
TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence
    from importlib.machinery import ModuleSpec
    from types import ModuleType

LOOPS = (
    "kops.files.api",
    "kops.files.os_files",
    "kops.records._hot",
    "kops.storage.cleaning._hot_clean",
    "kops.forensics.dump._hot_dump",
    "kops.forensics.carve._hot_search",
    "kops.forensics.plans.item",
    "kops.records.batch",
    "kops.records.build",
    "kops.records.scanning._hot_fetch",
    "kops.storage.log_append",
    "kops.storage.segment_files.index_entries",
    "kops.storage.segment_files.header_search",
    "kops.storage.segment_files.mapped_index",
    "kops.storage.segments.segment",
    "kops.storage.segments.epoch_cache",
    "kops.storage.log_end",
    "kops.storage.producers.append",
    "kops.storage.producers.checks",
    "kops.storage.readable_log",
    "kops.storage.appendable_log",
    "kops.client.metrics._hot_recording",
    "kops.client.producer.core._hot_records",
    "kops.spark._hot_columns",
    "kops.records.log_offsets",
    "kops.records.validation.validate",
    "kops.storage.producers.state",
    "kops.storage.log_offsets",
    "kops.config.values.java",
    "kops.records.validation.rules",
    "kops.records.varint",
)
CALLS = (
    "kops.coordinators.groups.context",
    "kops.coordinators.runtime.promise",
    "kops.timeline",
    "kops.protocol.primitives",
    "kops.protocol.connections.frames",
    "kops.protocol.connections.connection",
    "kops.broker.network.events.pipe",
    "kops.broker.network.events.loop",
    "kops.broker.network.outbox",
    "kops.broker.network.events.quiet",
    "kops.broker.network.peer",
    "kops.broker.network.request_metrics",
    "kops.broker.network.channel",
    "kops.broker.apis.dispatch",
    "kops.broker.apis.data.fetch",
    "kops.broker.apis.groups.common",
    "kops.broker.apis.groups.offsets",
    "kops.broker.apis.data.produce",
    "kops.broker.replicas.appends",
    "kops.broker.replicas.hosted_partitions",
    "kops.broker.replicas.purgatory_timer",
    "kops.broker.replicas.reads",
    "kops.replication.waiting.delayed",
    "kops.replication.waiting.purgatory",
    "kops.replication.leading.fetch",
    "kops.replication.leading.fetch_context",
    "kops.replication.leading.fetch_session",
    "kops.replication.leading.partition",
    "kops.replication.leading.partition_reads",
    "kops.replication.leading.replica",
    "kops.replication.following.fetch_session_handler",
    "kops.replication.following.fetcher",
    "kops.replication.following.followers",
    "kops.replication.following.leader_endpoint",
    "kops.client.connection",
    "kops.client.metadata",
    "kops.client.network",
    "kops.client.producer.core.accumulator",
    "kops.client.producer.core.batches",
    "kops.client.producer.core.identity",
    "kops.client.producer.core.producer",
    "kops.client.producer.core.sender",
    "kops.client.producer.partitioners",
    "kops.client.producer.pool",
    "kops.broker.apis.data.produce_records",
    "kops.broker.life.rates",
    "kops.broker.apis.groups.classic",
    "kops.broker.apis.groups.consumer",
    "kops.broker.replicas.fetcher",
    "kops.broker.replicas.topic_stats",
    "kops.metadata.image.metadata_cache",
    "kops.protocol.connections.node_versions",
    "kops.protocol.record_values",
    "kops.replication.following.fetch_state",
    "kops.replication.leading.isr",
    "kops.replication.quota",
)
COORDINATORS = (
    "kops.broker.coordinators.errors",
    "kops.broker.coordinators.heartbeat_checks",
    "kops.broker.coordinators.heartbeats",
    "kops.broker.coordinators.writer",
    "kops.broker.transactions.added_partitions",
    "kops.broker.transactions.end_waits",
    "kops.broker.transactions.marker_writer",
    "kops.coordinators.groups.classic.group",
    "kops.coordinators.groups.classic.manager",
    "kops.coordinators.groups.classic.member",
    "kops.coordinators.groups.classic.rebalance",
    "kops.coordinators.groups.classic.sync",
    "kops.coordinators.groups.consumer.checks",
    "kops.coordinators.groups.consumer.heartbeat",
    "kops.coordinators.groups.consumer.lookup",
    "kops.coordinators.groups.consumer.manager",
    "kops.coordinators.groups.consumer.reconcile",
    "kops.coordinators.groups.consumer.state.group",
    "kops.coordinators.groups.consumer.state.member",
    "kops.coordinators.groups.consumer.subscription",
    "kops.coordinators.groups.consumer.timers",
    "kops.coordinators.groups.group",
    "kops.coordinators.groups.modern.assigned_group",
    "kops.coordinators.groups.modern.group",
    "kops.coordinators.groups.offsets.manager",
    "kops.coordinators.groups.offsets.table",
    "kops.coordinators.groups.shard.shard",
    "kops.coordinators.groups.share.group",
    "kops.coordinators.groups.store",
    "kops.coordinators.groups.streams.state.group",
    "kops.coordinators.groups.surroundings",
    "kops.coordinators.runtime.context",
    "kops.coordinators.runtime.events",
    "kops.coordinators.runtime.playback",
    "kops.coordinators.runtime.records",
    "kops.coordinators.runtime.result",
    "kops.coordinators.runtime.runtime",
    "kops.coordinators.runtime.shard_timer",
    "kops.coordinators.transactions.ending",
    "kops.coordinators.transactions.markers",
    "kops.coordinators.transactions.metadata",
    "kops.coordinators.transactions.partitions",
    "kops.coordinators.transactions.state_manager",
    "kops.coordinators.transactions.transaction_log",
    "kops.coordinators.transactions.verification",
)
HOT_MODULES = (*LOOPS, *CALLS, *COORDINATORS)
# mypyc puts the code of a group into the extension GROUP__mypyc next to the package. The loops are optimized as far as the C compiler can.
# The calls are mostly calls of Python's own functions, where that takes a minute and gains nothing. The coordinators are an extension of
# their own, because a node loads them with its first group.
GROUPS = {"kops_loops": LOOPS, "kops_calls": CALLS, "kops_coordinators": COORDINATORS}
OPTIMIZED = {"kops_loops": "-O3", "kops_calls": "-O1", "kops_coordinators": "-O1"}
OLDER_BY_S = 2.0  # the files of one install are written within this time; an edit after a build is later


class HotStatus:
    """The variant of one hot module: `compiled`, `interpreted` (there is no extension at all), `pure` (KOPS_PURE), `stale` (an extension is
    missing, or older than its source or than the list of the modules)."""

    __slots__ = ("name", "path", "state")

    def __init__(self, name: str, state: str, path: str) -> None:
        self.name = name
        self.state = state
        self.path = path


def source_of(name: str) -> str:
    """Return the path of a hot module's source file."""
    return os.path.join(os.path.dirname(os.path.abspath(__file__)), *name.split(".")[1:]) + ".py"


def status(name: str) -> HotStatus:
    """Return the variant that an import of a hot module uses. Raises ModuleNotFoundError if there is no such source.

    The modules are compiled together, and compiled code accesses the fields of the others' classes by position. So either all are compiled
    or none.
    """
    source = source_of(name)
    if name in HOT_MODULES and _is_zipped():
        return HotStatus(name, "interpreted", source)
    if not os.path.exists(source):
        raise ModuleNotFoundError(f"No module named {name!r}", name=name)
    extensions = [_extension_of(each) for each in HOT_MODULES]
    if name not in HOT_MODULES or not any(extensions):
        return HotStatus(name, "interpreted", source)
    if os.environ.get("KOPS_PURE"):
        return HotStatus(name, "pure", source)
    listed = os.stat(os.path.abspath(__file__)).st_mtime
    for each, extension in zip(HOT_MODULES, extensions, strict=True):
        if extension is None or os.stat(extension).st_mtime + OLDER_BY_S < max(os.stat(source_of(each)).st_mtime, listed):
            return HotStatus(name, "stale", source)
    return HotStatus(name, "compiled", extensions[HOT_MODULES.index(name)] or source)


def _is_zipped() -> bool:
    """Whether kops is imported from a zip, as a task of Spark's may do: Python loads no extension from there."""
    return not os.path.isdir(os.path.dirname(os.path.abspath(__file__)))


def _extension_of(name: str) -> str | None:
    """Return the path of a module's extension, or None if there is none."""
    from importlib.machinery import EXTENSION_SUFFIXES

    beside = source_of(name)[: -len(".py")]
    return next((beside + suffix for suffix in EXTENSION_SUFFIXES if os.path.exists(beside + suffix)), None)


def leftovers(folder: str) -> list[str]:
    """Return the paths of extensions in a checkout that an earlier build made of modules that are no longer hot.

    Their code is no longer in the extension of their group, so the next build removes them.
    """
    from importlib.machinery import EXTENSION_SUFFIXES

    found = []
    for place, _, files in os.walk(os.path.join(folder, "kops")):
        package = os.path.relpath(place, folder).replace(os.sep, ".")
        for file in files:
            name = next((file[: -len(suffix)] for suffix in EXTENSION_SUFFIXES if file.endswith(suffix)), None)
            if name is not None and f"{package}.{name}" not in HOT_MODULES:
                found.append(os.path.join(place, file))
    return found


def load_hot(name: str, *, pure: bool = False) -> ModuleType:
    """Return the active hot module of this name. With `pure`, load a new interpreted one, which no `import` finds."""
    from importlib import import_module
    from importlib.util import module_from_spec, spec_from_file_location

    if not pure:
        return import_module(name)
    spec = spec_from_file_location(name, source_of(name))
    assert spec is not None and spec.loader is not None
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def document(cls: type) -> None:
    """Give a class of a hot module the docstring of its source for `help()`, because compiled classes lose it."""
    if cls.__doc__ or cls.__module__ not in HOT_MODULES:
        return
    with open(source_of(cls.__module__), encoding="utf-8") as file:
        source = file.read()
    begin = source.index('\n    """', source.index(f"\nclass {cls.__name__}"))
    cls.__doc__ = source[begin:].split('"""', 2)[1]


class HotFinder:
    """Finds the source of a hot module if its extension must not be used. Also finds the extension next to the package, which is on no path
    in an editable install. Leaves everything else to Python."""

    _decision: bool | None = None

    @classmethod
    def find_spec(cls, name: str, path: Sequence[str] | None = None, target: ModuleType | None = None) -> ModuleSpec | None:
        """Return the spec of one of these, or None to continue the search."""
        if name.endswith("__mypyc") and name.removesuffix("__mypyc") in GROUPS:
            from importlib.machinery import EXTENSION_SUFFIXES

            beside = os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), name)
            found = next((beside + suffix for suffix in EXTENSION_SUFFIXES if os.path.exists(beside + suffix)), None)
        elif name.startswith("kops.") and cls._takes_source() and (name in HOT_MODULES or _extension_of(name) is not None):
            found = source_of(name)
        else:
            return None
        from importlib.util import spec_from_file_location

        return None if found is None else spec_from_file_location(name, found)

    @classmethod
    def _takes_source(cls) -> bool:
        """Whether this process uses the sources. That is decided once: each decision looks at the files of all hot modules."""
        if cls._decision is None:
            cls._decision = not _is_zipped() and status(HOT_MODULES[0]).state != "compiled"
        return cls._decision


def install() -> None:
    """Put the finder before Python's own, once."""
    if HotFinder not in sys.meta_path:
        sys.meta_path.insert(0, HotFinder)
