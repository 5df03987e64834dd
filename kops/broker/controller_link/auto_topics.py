"""Creates topics on first use: for clients with `auto.create.topics.enable`, and internal topics.

Source: Kafka's DefaultAutoTopicCreationManager and KRaftTopicCreator; the settings of the internal topics are those of
GroupCoordinatorService, TransactionStateManager and ShareCoordinatorService.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Final

from kops.config.values.topic_names import check_topic_name
from kops.errors import ApiError
from kops.metadata.image.metadata_cache import INTERNAL_TOPICS, error_code
from kops.protocol.errors import by_code
from kops.protocol.messages import CreateTopicsRequest, CreateTopicsResponse
from kops.protocol.messages.create_topics_request import CreatableTopic, CreatableTopicConfig
from kops.protocol.messages.metadata_response import MetadataResponseTopic

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from kops.broker.controller_link.forwarding import Forwarding
    from kops.broker.network.socket_server import RequestContext
    from kops.config import BrokerConfig
    from kops.protocol.declaration import Message

log = logging.getLogger(__name__)

_CONTROLLER_DECIDES: Final = -1
_NUM_PARTITIONS: Final = "num.partitions"
_REPLICATION_FACTOR: Final = "default.replication.factor"


class AutoTopics:
    """Asks the controller to create topics, once at a time for each topic. `config()` returns the broker's present configuration."""

    def __init__(self, forwarding: Forwarding, config: Callable[[], BrokerConfig]) -> None:
        self._forwarding = forwarding
        self._config = config
        self._in_flight: set[str] = set()

    def create(self, names: Sequence[str], context: RequestContext) -> list[MetadataResponseTopic]:
        """Start to create topics for the client of `context` -> what Metadata answers about them until they exist."""
        creatable = []
        refused = []
        for name in names:
            error = self._refusal(name)
            if error is None:
                self._in_flight.add(name)
                creatable.append(name)
            else:
                refused.append(_told(name, error))
        if creatable:
            request = CreateTopicsRequest(
                [creatable_topic(name, self._config()) for name in creatable], self._config()["request.timeout.ms"]
            )
            self._forwarding.create_topics(context, request, lambda result: self._created(creatable, result))
            log.info("Topics %s are asked for at the active controller", creatable)
        return refused + [_told(name, "UNKNOWN_TOPIC_OR_PARTITION") for name in creatable]

    def _refusal(self, name: str) -> str | None:
        try:
            check_topic_name(name)
        except ApiError as error:
            return error.name
        return "UNKNOWN_TOPIC_OR_PARTITION" if name in self._in_flight else None

    def _created(self, names: Sequence[str], result: Message | ApiError) -> None:
        self._in_flight.difference_update(names)
        if isinstance(result, ApiError):
            log.warning("Topics %s could not be made: %s", names, result)
            return
        assert isinstance(result, CreateTopicsResponse)
        for topic in result.topics:
            if topic.error_code:
                log.warning("Topic %s could not be made: %s: %s", topic.name, by_code(topic.error_code).name, topic.error_message)


def creatable_topic(name: str, config: BrokerConfig) -> CreatableTopic:
    """The request for a topic. If this broker has no setting for a number, the controller decides it."""
    numbers = _INTERNAL.get(name)
    if numbers is None:
        partitions = config[_NUM_PARTITIONS] if _NUM_PARTITIONS in config.properties else _CONTROLLER_DECIDES
        replicas = config[_REPLICATION_FACTOR] if _REPLICATION_FACTOR in config.properties else _CONTROLLER_DECIDES
        return CreatableTopic(name, partitions, replicas)
    settings = [CreatableTopicConfig(key, value) for key, value in _internal_settings(name, config).items()]
    return CreatableTopic(name, config[numbers[0]], config[numbers[1]], configs=settings)


_INTERNAL: Final = {
    "__consumer_offsets": ("offsets.topic.num.partitions", "offsets.topic.replication.factor"),
    "__transaction_state": ("transaction.state.log.num.partitions", "transaction.state.log.replication.factor"),
    "__share_group_state": ("share.coordinator.state.topic.num.partitions", "share.coordinator.state.topic.replication.factor"),
}


def _internal_settings(name: str, config: BrokerConfig) -> dict[str, str]:
    if name == "__consumer_offsets":
        return {
            "cleanup.policy": "compact",
            "compression.type": "producer",
            "segment.bytes": str(config["offsets.topic.segment.bytes"]),
        }
    if name == "__transaction_state":
        return {
            "cleanup.policy": "compact",
            "compression.type": "uncompressed",
            "min.insync.replicas": str(config["transaction.state.log.min.isr"]),
            "segment.bytes": str(config["transaction.state.log.segment.bytes"]),
            "unclean.leader.election.enable": "false",
        }
    return {
        "cleanup.policy": "delete",
        "compression.type": "producer",
        "min.insync.replicas": str(config["share.coordinator.state.topic.min.isr"]),
        "retention.ms": "-1",
        "segment.bytes": str(config["share.coordinator.state.topic.segment.bytes"]),
    }


def _told(name: str, error: str) -> MetadataResponseTopic:
    return MetadataResponseTopic(error_code=error_code(error), name=name, is_internal=name in INTERNAL_TOPICS)
