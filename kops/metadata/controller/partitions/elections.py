"""Elects leaders on request, because the preferred leaders are back, or because a partition has no leader.

Source: Kafka's ReplicationControlManager (electLeaders, maybeBalancePartitionLeaders, maybeElectUncleanLeaders).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from kops.errors import ApiError
from kops.metadata.controller.base.result import ControllerResult, check_record_count, code, text
from kops.metadata.controller.partitions.partition_change import Election, PartitionTarget
from kops.protocol.messages import ElectLeadersResponse
from kops.protocol.messages.elect_leaders_response import PartitionResult, ReplicaElectionResult

if TYPE_CHECKING:
    from kops.metadata.controller.base.result import Record
    from kops.metadata.controller.partitions.partition_changes import PartitionChanges
    from kops.protocol.messages import ElectLeadersRequest

_ELECTIONS: Final = {0: Election.PREFERRED, 1: Election.UNCLEAN}
_NOT_NEEDED: Final = "ELECTION_NOT_NEEDED"
_TEXTS: Final = {
    _NOT_NEEDED: "Leader election not needed for topic partition.",
    "PREFERRED_LEADER_NOT_AVAILABLE": "The preferred leader was not available.",
    "ELIGIBLE_LEADERS_NOT_AVAILABLE": "Eligible topic partition leaders are not available.",
}


class Elections:
    """Elections on request and periodic elections, at most `max_elections` at once."""

    def __init__(self, changes: PartitionChanges, max_elections: int) -> None:
        self._changes = changes
        self._state = changes.state
        self._max_elections = max_elections

    def elect(self, request: ElectLeadersRequest) -> ControllerResult:
        """Handle an ElectLeaders request. Raises ApiError INVALID_REQUEST for an unknown kind of election."""
        election = _ELECTIONS.get(request.election_type)
        if election is None:
            raise ApiError("INVALID_REQUEST", f"Unknown election type {request.election_type}")
        records: list[Record] = []
        response = ElectLeadersResponse()
        if request.topic_partitions is None:
            for topic in self._state.topics.values():
                results = [self._elect(topic.name, number, election, records) for number in topic.partitions]
                needed = [result for result in results if result.error_message != _TEXTS[_NOT_NEEDED]]
                response.replica_election_results.append(ReplicaElectionResult(topic.name, needed))
        else:
            for named in request.topic_partitions:
                results = [self._elect(named.topic, number, election, records) for number in named.partitions]
                response.replica_election_results.append(ReplicaElectionResult(named.topic, results))
        check_record_count(records)
        return ControllerResult(records, response)

    def _elect(self, topic: str, number: int, election: Election, records: list[Record]) -> PartitionResult:
        try:
            records.append(self._elect_one(topic, number, election))
        except ApiError as error:
            return PartitionResult(number, code(error), text(error))
        return PartitionResult(number, 0, None)

    def _elect_one(self, name: str, number: int, election: Election) -> Record:
        topic = self._state.named(name)
        if topic is None:
            raise ApiError("UNKNOWN_TOPIC_OR_PARTITION", f"No such topic as {name}")
        partition = topic.partitions.get(number)
        if partition is None:
            raise ApiError("UNKNOWN_TOPIC_OR_PARTITION", f"No such partition as {name}-{number}")
        is_preferred = election is Election.PREFERRED
        if partition.has_preferred_leader if is_preferred else partition.has_leader:
            raise _failure(_NOT_NEEDED)
        record = self._changes.change(topic, number, PartitionTarget(election=election))
        if record is None:
            raise _failure("PREFERRED_LEADER_NOT_AVAILABLE" if is_preferred else "ELIGIBLE_LEADERS_NOT_AVAILABLE")
        return record

    def balance(self) -> tuple[list[Record], bool]:
        """Elect preferred leaders for partitions that other replicas lead. Returns whether there may be more to do."""
        records: list[Record] = []
        for topic_id, number in list(self._state.imbalanced):
            if len(records) >= self._max_elections:
                break
            target = PartitionTarget(election=Election.PREFERRED)
            record = self._changes.change(self._state.topics[topic_id], number, target)
            if record is not None:
                records.append(record)
        return records, len(records) >= self._max_elections

    def elect_unclean(self) -> tuple[list[Record], bool]:
        """Elect any leaders for partitions without one, where the topic allows it. Returns whether there may be more to do."""
        records: list[Record] = []
        for topic_id, number in self._state.index.without_leader():
            if len(records) >= self._max_elections:
                break
            topic = self._state.topics[topic_id]
            if self._changes.configs.is_unclean_election_enabled(topic.name):
                record = self._changes.change(topic, number, PartitionTarget(election=Election.UNCLEAN))
                if record is not None:
                    records.append(record)
        return records, len(records) >= self._max_elections


def _failure(name: str) -> ApiError:
    return ApiError(name, _TEXTS[name])
