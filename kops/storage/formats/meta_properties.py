"""`meta.properties`: the node and the cluster that a log directory belongs to.

Version 0 (ZooKeeper) may have `broker.id` and `cluster.id`. Version 1 (KRaft) always has `node.id` and `cluster.id`. Both may have
`directory.id`. Sources: Kafka's MetaProperties, MetaPropertiesVersion, PropertiesUtils.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from kops.config.values.java import NumberFormatError, parse_int, trim
from kops.config.values.java_hash import store_order
from kops.config.values.properties import java_date, read_properties, write_properties
from kops.errors import DecodeError
from kops.storage.formats.kafka_uuid import parse_uuid

_CODE: Final = "meta-properties"


@dataclass(slots=True)
class MetaProperties:
    """The file's fields. A missing field is None."""

    version: int = 0
    cluster_id: str | None = None
    node_id: int | None = None
    directory_id: str | None = None


def read_meta_properties(data: bytes, *, file: str | None = None) -> MetaProperties:
    """Return the fields.

    Raises DecodeError (`meta-properties`, or `properties` for a bad escape) where Kafka throws and counts the directory as erroneous.
    """
    properties = read_properties(data, file=file)
    text = properties.get("version", "0")
    try:
        version = parse_int(trim(text))
    except NumberFormatError as error:
        raise DecodeError(f"version '{text}' is not a number", code=_CODE, file=file) from error
    if version not in (0, 1):
        raise DecodeError(f"version {version} is unknown; known: 0 and 1", code=_CODE, file=file)
    id_key = "node.id" if version else "broker.id"
    id_text = properties.get(id_key)
    node_id = None
    if id_text is not None:
        try:
            node_id = parse_int(id_text)
        except NumberFormatError as error:
            raise DecodeError(f"{id_key} '{id_text}' is not a 32-bit integer", code=_CODE, file=file) from error
    elif version:
        raise DecodeError("node.id is missing", code=_CODE, file=file)
    directory_id = properties.get("directory.id")
    if directory_id is not None:
        try:
            directory_id = parse_uuid(directory_id)
        except ValueError as error:
            raise DecodeError(f"directory.id: {error}", code=_CODE, file=file) from error
    cluster_id = properties.get("cluster.id")
    if version and cluster_id is None:
        raise DecodeError("cluster.id is missing", code=_CODE, file=file)
    return MetaProperties(version, cluster_id, node_id, directory_id)


def write_meta_properties(meta: MetaProperties, *, date: str | int) -> bytes:
    """Return the file's bytes. `date` is the text of the date line (a broker writes its own time zone), or ms since the epoch for one in
    UTC.
    """
    values = {"version": str(meta.version)}
    if meta.cluster_id is not None:
        values["cluster.id"] = meta.cluster_id
    if meta.node_id is not None:
        values["node.id" if meta.version else "broker.id"] = str(meta.node_id)
    if meta.directory_id is not None:
        values["directory.id"] = meta.directory_id
    ordered = {key: values[key] for key in store_order(values)}
    return write_properties(ordered, comments=("", java_date(date) if isinstance(date, int) else date)).encode()
