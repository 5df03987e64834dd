"""`quorum-state` of the metadata log: the node's vote and the leader that it knows.

The file is one line of JSON. Its `data_version` is 0 (static quorum: clusterId, appliedOffset, currentVoters) or 1 (dynamic quorum:
votedDirectoryId). Sources: Kafka's FileQuorumStateStore, QuorumStateData.json.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Final

from kops.config.values.java import LONG_MAX, LONG_MIN, parse_int, read_lines
from kops.errors import DecodeError
from kops.storage.formats.json_text import read_json, write_json
from kops.storage.formats.kafka_uuid import ZERO_UUID, parse_uuid

_CODE: Final = "quorum-state"


@dataclass(slots=True)
class QuorumState:
    """The file's fields. -1 stands for no leader or no vote. `current_voters` None is JSON's null."""

    data_version: int = 0
    cluster_id: str = ""
    leader_id: int = -1
    leader_epoch: int = -1
    voted_id: int = -1
    voted_directory_id: str = ZERO_UUID
    applied_offset: int = 0
    current_voters: list[int] | None = field(default_factory=list)


def read_quorum_state(data: bytes, *, file: str | None = None) -> QuorumState:
    """Return the fields of the first line. Raises DecodeError (`quorum-state`) where Kafka throws, which prevents the node from
    starting."""
    try:
        return _read(data)
    except ValueError as error:
        reason = "not UTF-8 text" if isinstance(error, UnicodeDecodeError) else str(error)
        raise DecodeError(f"quorum state: {reason}", code=_CODE, file=file) from error


def write_quorum_state(state: QuorumState) -> bytes:
    """Return the file's bytes: one line without a line end. Raises ValueError for a field that the version does not have."""
    if state.data_version not in (0, 1):
        raise ValueError(f"data_version {state.data_version} is unknown")
    dynamic = state.data_version >= 1
    if dynamic and (state.cluster_id or state.applied_offset or state.current_voters or state.current_voters is None):
        raise ValueError("data_version 1 has no clusterId, appliedOffset and currentVoters")
    if not dynamic and state.voted_directory_id != ZERO_UUID:
        raise ValueError("data_version 0 has no votedDirectoryId")
    fields: dict[str, Any] = {} if dynamic else {"clusterId": state.cluster_id}
    fields |= {"leaderId": state.leader_id, "leaderEpoch": state.leader_epoch, "votedId": state.voted_id}
    if dynamic:
        fields["votedDirectoryId"] = state.voted_directory_id
    else:
        fields["appliedOffset"] = state.applied_offset
        voters = state.current_voters
        fields["currentVoters"] = None if voters is None else [{"voterId": voter} for voter in voters]
    fields["data_version"] = state.data_version
    return write_json(fields).encode()


def _read(data: bytes) -> QuorumState:
    line = next(read_lines(data), None)
    if line is None:
        raise ValueError("the file is empty")
    node = read_json(line)
    if not isinstance(node, dict):
        raise ValueError("the first line is not a JSON object")
    if "data_version" not in node:
        raise ValueError("data_version is missing")
    version = _short(node["data_version"])
    if version not in (0, 1):
        raise ValueError(f"data_version {version} is unknown; known: 0 and 1")
    state = QuorumState(version)
    state.cluster_id = _text(node, "clusterId", "", mandatory=version == 0)
    state.leader_id = _integer(node, "leaderId")
    state.leader_epoch = _integer(node, "leaderEpoch")
    state.voted_id = _integer(node, "votedId")
    state.voted_directory_id = parse_uuid(_text(node, "votedDirectoryId", ZERO_UUID, mandatory=version == 1))
    if version == 0 or "appliedOffset" in node:
        state.applied_offset = _integer(node, "appliedOffset", LONG_MIN, LONG_MAX)
    if version == 0 or "currentVoters" in node:
        state.current_voters = _voters(_get(node, "currentVoters"), version)
    return state


def _short(value: Any) -> int:
    """Return what JsonNode.shortValue does: a number reduced to 16 bits, 0 for any other value."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return 0
    if isinstance(value, float):
        # Java converts double to short through int, which saturates at its limits.
        value = 0 if value != value else int(max(min(value, 2.0**31 - 1), -(2.0**31)))
    return (int(value) + 0x8000 & 0xFFFF) - 0x8000


def _get(node: dict[str, Any], name: str) -> Any:
    if name not in node:
        raise ValueError(f"{name} is missing")
    return node[name]


def _text(node: dict[str, Any], name: str, default: str, *, mandatory: bool) -> str:
    value = _get(node, name) if mandatory else node.get(name, default)
    if not isinstance(value, str):
        raise ValueError(f"{name} is not a string")
    return value


def _integer(node: dict[str, Any], name: str, *limits: int) -> int:
    value = _get(node, name)
    if isinstance(value, bool) or not isinstance(value, int):
        raise ValueError(f"{name} is not an integer")
    return parse_int(str(value), *limits)


def _voters(value: Any, version: int) -> list[int] | None:
    if value is None:
        return None
    if not isinstance(value, list):
        raise ValueError("currentVoters is not an array")
    if value and version > 0:
        raise ValueError(f"data_version {version} has no voters")
    voters = []
    for voter in value:
        if not isinstance(voter, dict):
            raise ValueError("a voter is not a JSON object")
        voters.append(_integer(voter, "voterId"))
    return voters
