"""Changes of the voters, one at a time: adding, removing or updating a voter (KIP-853).

A change waits until the previous one and this epoch's first record are committed, so any two majorities overlap. Source: Kafka's
AddVoterHandler, RemoveVoterHandler, UpdateVoterHandler and their callers in KafkaRaftClient.
"""

from __future__ import annotations

from kops.metadata.raft.node import messages, outgoing
from kops.metadata.raft.node.actions import Message, Request
from kops.metadata.raft.node.core import RaftCore
from kops.metadata.raft.roles.leader import AddedVoter, RemovedVoter, VoterChangeReply
from kops.metadata.raft.voters.replica import Endpoints, Node, ReplicaKey
from kops.metadata.raft.voters.voter_set import VoterNode, VoterSet

_BUSY = "Request timed out waiting for leader to handle previous voter change request"
_NO_HIGH_WATERMARK = "Request timed out waiting for leader to establish HWM and fence previous voter changes"


def _refusal(core: RaftCore, what: str, now_ms: int) -> tuple[str, str] | VoterSet:
    """Return why no voter can be added or removed now (an error and a message), or the voters if a change is possible."""
    state = core.leader_state
    if state.is_voter_change_pending(now_ms):
        return "REQUEST_TIMED_OUT", _BUSY
    if state.high_watermark is None:
        return "REQUEST_TIMED_OUT", _NO_HIGH_WATERMARK
    version = core.control.kraft_version
    if version == 0:
        return "UNSUPPORTED_VERSION", f"Cluster doesn't support {what} voter because the kraft.version feature is {version}"
    offset = core.control.last_voters_offset
    if offset is None or offset >= state.high_watermark:
        shown = "Optional.empty" if offset is None else f"Optional[{offset}]"
        reason = f"Request timed out waiting for voters to commit the latest voter change at {shown} with HWM {state.high_watermark}"
        return "REQUEST_TIMED_OUT", reason
    return core.control.last_voters


def handle_add_voter(core: RaftCore, request: Request, now_ms: int) -> Message | None:
    """Add a voter. Returns None if the response comes later."""
    message = request.message
    error = messages.refuse_voter_request(core, message)
    if error is not None:
        return messages.add_voter_response(*error)
    if message.voter_id < 0 or not any(message.voter_directory_id):
        return messages.add_voter_response("INVALID_REQUEST", "Add voter request didn't include a valid voter")
    key = ReplicaKey.read(message.voter_id, message.voter_directory_id)
    endpoints = Endpoints.read(message.listeners)
    address = endpoints.address(core.identity.listener)
    if address is None:
        reason = f"Add voter request didn't include the endpoint ({endpoints}) for the default listener {core.identity.listener}"
        return messages.add_voter_response("INVALID_REQUEST", reason)
    voters = _refusal(core, "adding", now_ms)
    if not isinstance(voters, VoterSet):
        return messages.add_voter_response(*voters)
    if key.id in voters.ids:
        return messages.add_voter_response("DUPLICATE_VOTER", f"The voter id for {key} is already part of the set of voters {voters}.")
    sent, wait_ms = core.send(Node(key.id, *address), outgoing.api_versions, now_ms)
    if not sent:
        return messages.add_voter_response("REQUEST_TIMED_OUT", f"New voter {key} is not ready to receive requests")

    def reply(error: str, reason: str | None) -> None:
        core.respond(request, messages.add_voter_response(error, reason))

    core.leader_state.added_voter = AddedVoter(key, endpoints, message.ack_when_committed, now_ms + wait_ms, reply)
    return None


def on_api_versions(core: RaftCore, source: Node, message: Message, now_ms: int) -> bool:
    """Handle the versions of the voter to be added. If they fit and it has caught up, write its record. Returns whether the request
    succeeded."""
    if not core.is_leader:
        return True
    error, versions = messages.error_name(message.error_code), messages.supported_kraft_versions(message)
    state = core.leader_state
    change = state.added_voter
    if change is None or change.last_offset is not None or change.key.id != source.id:
        return True
    if error != "NONE":
        state.finish_added("REQUEST_TIMED_OUT", f"Aborted add voter operation for since API_VERSIONS returned an error {error}")
        return False
    version = core.control.kraft_version
    if versions is None or not versions[0] <= version <= versions[1]:
        least, most = versions or (0, 0)
        reason = f"(min: {least}, max: {most}) doesn't support the finalized version {version}"
        state.finish_added("INVALID_REQUEST", f"Aborted add voter operation for {change.key} since the kraft.version range {reason}")
        return True
    if not state.is_caught_up(change.key, now_ms):
        state.finish_added("REQUEST_TIMED_OUT", f"Aborted add voter operation for {change.key} since it is lagging behind")
        return True
    voters = core.control.last_voters.add(VoterNode(change.key, change.endpoints, *versions))
    assert voters is not None, f"{change.key} is already among {core.control.last_voters}"
    change.last_offset = state.append_voters(voters, now_ms)
    if not change.ack_when_committed:
        change.answer("NONE")
    return True


def handle_remove_voter(core: RaftCore, request: Request, now_ms: int) -> Message | None:
    """Remove a voter. Returns None if the response comes later. A leader that removes itself leads until this is committed."""
    message = request.message
    error = messages.refuse_voter_request(core, message)
    if error is not None:
        return messages.remove_voter_response(*error)
    if message.voter_id < 0 or not any(message.voter_directory_id):
        return messages.remove_voter_response("INVALID_REQUEST", "Remove voter request didn't include a valid voter")
    key = ReplicaKey.read(message.voter_id, message.voter_directory_id)
    voters = _refusal(core, "removing", now_ms)
    if not isinstance(voters, VoterSet):
        return messages.remove_voter_response(*voters)
    left = voters.remove(key)
    if left is None:
        return messages.remove_voter_response("VOTER_NOT_FOUND", f"Cannot remove voter {key} from the set of voters {voters}")

    def reply(error: str, reason: str | None) -> None:
        core.respond(request, messages.remove_voter_response(error, reason))

    answer: VoterChangeReply = reply
    offset = core.leader_state.append_voters(left, now_ms)
    core.leader_state.removed_voter = RemovedVoter(offset, now_ms + core.settings.request_timeout_ms, answer)
    return None


def handle_update_voter(core: RaftCore, request: Request, now_ms: int) -> Message:
    """Handle a voter's report of its listeners, versions and directory. With kraft.version 0 this is only remembered for the upgrade."""
    message = request.message
    error = messages.cluster_error(core, message)
    if error == "NONE":
        error = core.check_leader_request(message.current_leader_epoch)
    endpoints = Endpoints.read(message.listeners)
    least, most = message.k_raft_version_feature.min_supported_version, message.k_raft_version_feature.max_supported_version
    if error == "NONE":
        is_wrong = message.voter_id < 0 or not any(message.voter_directory_id) or endpoints.address(core.identity.listener) is None
        error = "INVALID_REQUEST" if is_wrong or not 0 <= least <= most else "NONE"
    if error == "NONE":
        key = ReplicaKey.read(message.voter_id, message.voter_directory_id)
        error = _update_voter(core, VoterNode(key, endpoints, least, most), now_ms)
    return messages.update_voter_response(core, request, error)


def _update_voter(core: RaftCore, voter: VoterNode, now_ms: int) -> str:
    state, control = core.leader_state, core.control
    version = control.kraft_version
    if state.is_voter_change_pending(now_ms) or state.high_watermark is None:
        return "REQUEST_TIMED_OUT"
    offset = control.last_voters_offset
    if version == 0:
        voters = state.volatile_voters
    else:
        voters = None if offset is None or offset >= state.high_watermark else control.last_voters
    if voters is None:
        return "REQUEST_TIMED_OUT"
    if not voter.supports(version):
        return "INVALID_REQUEST"
    updated = voters.update_any_directory(voter) if version == 0 else voters.update(voter)
    if updated is None:
        return "VOTER_NOT_FOUND"
    if version == 0:
        state.volatile_voters = updated
    else:
        state.append_voters(updated, now_ms)
    state.on_voter_fetched(voter.key, now_ms)
    return "NONE"
