"""Reads the log directories of a node before it starts: their owner, and the first records of a new cluster.

Source: Kafka's KafkaRaftServer.initializeLogDirs, MetaPropertiesEnsemble, BootstrapDirectory.
"""

from __future__ import annotations

import logging
import posixpath
from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple

from kops.broker.quorum.draws import random_uuid
from kops.errors import DecodeError
from kops.metadata.controller.cluster.feature_versions import bootstrap_records
from kops.metadata.metadata_version import FEATURE_NAME, LATEST_PRODUCTION
from kops.metadata.records import read_record
from kops.protocol.messages import FeatureLevelRecord
from kops.records.scanning.damage import Damage
from kops.records.scanning.scanner import scan
from kops.records.scanning.source import BytesSource
from kops.storage.formats.kafka_uuid import uuid_bytes, uuid_text
from kops.storage.formats.meta_properties import write_meta_properties
from kops.storage.formats.names import BOOTSTRAP_CHECKPOINT, META_PROPERTIES
from kops.storage.start.log_dirs import LogDirStart, StartRefusedError, check_meta_properties

if TYPE_CHECKING:
    from collections.abc import Callable

    from kops.config import BrokerConfig
    from kops.files import Files
    from kops.metadata.controller.base.result import Record

log = logging.getLogger(__name__)


class NodeDirectories(NamedTuple):
    """`starts`: the directories in the order of `log.dirs`, then the metadata directory if it is not among them. `bootstrap`: the records
    of bootstrap.checkpoint. `directory_id` is the id of the metadata directory."""

    cluster_id: str
    directory_id: str
    starts: list[LogDirStart]
    bootstrap: tuple[Record, ...]


def open_directories(files: Files, config: BrokerConfig, now_ms: Callable[[], int]) -> NodeDirectories:
    """Check all directories. A directory without an id gets one.

    Raises StartRefusedError if a node must not start on them, DecodeError for a damaged bootstrap.checkpoint, OSError.
    """
    metadata_dir = config.metadata_log_dir
    paths = [*config.log_dirs, *([] if metadata_dir in config.log_dirs else [metadata_dir])]
    starts = check_meta_properties(files, paths, node_id=config.node_id, metadata_log_dir=metadata_dir)
    _give_ids(files, starts, now_ms())
    meta = next(start.meta for start in starts if start.path == metadata_dir)
    assert meta is not None, "the metadata's directory was checked"
    assert meta.cluster_id is not None, "so was its cluster id"
    assert meta.directory_id is not None, "and its id"
    return NodeDirectories(meta.cluster_id, meta.directory_id, starts, read_bootstrap(files, metadata_dir))


def _give_ids(files: Files, starts: list[LogDirStart], now_ms: int) -> None:
    taken = {uuid_bytes(start.meta.directory_id) for start in starts if start.meta is not None and start.meta.directory_id is not None}
    for start in starts:
        if start.meta is None or start.meta.directory_id is not None:
            continue
        uuid = random_uuid(taken)
        taken.add(uuid)
        start.meta = replace(start.meta, directory_id=uuid_text(uuid))
        path = posixpath.join(start.path, META_PROPERTIES)
        log.info("Rewriting %s", path)
        files.write_atomic(path, write_meta_properties(start.meta, date=now_ms))


def read_bootstrap(files: Files, metadata_dir: str) -> tuple[Record, ...]:
    """The records of bootstrap.checkpoint; Kafka's default records if there is no such file.

    As in Kafka, checksums are not checked and an incomplete batch ends the file. Raises StartRefusedError if it has no metadata.version,
    DecodeError, OSError.
    """
    path = posixpath.join(metadata_dir, BOOTSTRAP_CHECKPOINT)
    if not files.exists(path):
        return bootstrap_records(LATEST_PRODUCTION)
    records: list[Record] = []
    for item in scan(BytesSource(files.read_all(path)), check_crc=False, resync=False):
        if isinstance(item, Damage):
            if item.code == "torn-tail":
                break
            raise DecodeError(item.reason, code=item.code, position=item.position, file=path)
        if not item.is_control:
            records += (read_record(record.value or b"") for record in item.iterate())
    if not any(isinstance(message, FeatureLevelRecord) and message.name == FEATURE_NAME for message, _ in records):
        source = f"the binary bootstrap metadata file: {path}"
        raise StartRefusedError(f"No FeatureLevelRecord for metadata.version was found in the bootstrap metadata from {source}")
    return tuple(records)
