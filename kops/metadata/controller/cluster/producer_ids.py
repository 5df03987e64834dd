"""Producer ids, which brokers get in blocks (Kafka ProducerIdControlManager, ProducerIdsBlock)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from kops.errors import ApiError
from kops.protocol.messages import AllocateProducerIdsResponse, ProducerIdsRecord
from kops.timeline import Timeline, TimelineDict

if TYPE_CHECKING:
    from kops.metadata.controller.base.result import Record
    from kops.metadata.controller.cluster.cluster_control import ClusterControl
    from kops.protocol.messages import AllocateProducerIdsRequest

BLOCK_SIZE: Final = 1000
_MAX_PRODUCER_ID: Final = 2**63 - 1


class ProducerIdControl:
    """The next block's first producer id."""

    def __init__(self, timeline: Timeline, cluster: ClusterControl) -> None:
        self._cluster = cluster
        self._next: TimelineDict[None, int] = TimelineDict(timeline)

    @property
    def next_producer_id(self) -> int:
        """The first producer id that is in no block yet."""
        return self._next.get(None, 0)

    def allocate(self, request: AllocateProducerIdsRequest) -> tuple[list[Record], AllocateProducerIdsResponse]:
        """Return the next block for a broker. Raises ApiError: STALE_BROKER_EPOCH, or UNKNOWN_SERVER_ERROR if no ids are left."""
        self._cluster.check_broker_epoch(request.broker_id, request.broker_epoch)
        first = self.next_producer_id
        if first > _MAX_PRODUCER_ID - BLOCK_SIZE:
            reason = "Exhausted all producerIds as the next block's end producerId has exceeded the int64 type limit"
            raise ApiError("UNKNOWN_SERVER_ERROR", reason)
        record = ProducerIdsRecord(broker_id=request.broker_id, broker_epoch=request.broker_epoch, next_producer_id=first + BLOCK_SIZE)
        return [(record, 0)], AllocateProducerIdsResponse(producer_id_start=first, producer_id_len=BLOCK_SIZE)

    def replay(self, record: ProducerIdsRecord) -> None:
        """Replay a ProducerIdsRecord. Raises ValueError if ids would be given out twice."""
        if None in self._next and record.next_producer_id <= self.next_producer_id:
            raise ValueError(f"the next producer id {record.next_producer_id} is not above {self.next_producer_id}")
        self._next[None] = record.next_producer_id
