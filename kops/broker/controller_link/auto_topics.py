"""Creates topics on first use: for clients with `auto.create.topics.enable`, internal topics, and those that Streams applications need.

Source: Kafka's DefaultAutoTopicCreationManager, ExpiringErrorCache and KRaftTopicCreator; the settings of the internal topics are those of
GroupCoordinatorService, TransactionStateManager and ShareCoordinatorService.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Final

from kops.config.values.topic_names import INTERNAL_TOPICS, check_topic_name
from kops.errors import ApiError
from kops.metadata.image.metadata_cache import error_code
from kops.protocol.errors import by_code
from kops.protocol.messages import CreateTopicsRequest, CreateTopicsResponse
from kops.protocol.messages.create_topics_request import CreatableTopic, CreatableTopicConfig
from kops.protocol.messages.metadata_response import MetadataResponseTopic

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from kops.broker.controller_link.forwarding import Forwarding
    from kops.broker.network.socket_server import RequestContext
    from kops.config import BrokerConfig
    from kops.protocol.declaration import Message

log = logging.getLogger(__name__)

_CONTROLLER_DECIDES: Final = -1
_NUM_PARTITIONS: Final = "num.partitions"
_REPLICATION_FACTOR: Final = "default.replication.factor"
_KEPT_ERROR_COUNT: Final = 1000


class ExpiringErrors:
    """The errors of topics that could not be created, for a limited time. If there are too many, those that expire first are dropped."""

    def __init__(self, now_ms: Callable[[], int], max_count: int = _KEPT_ERROR_COUNT) -> None:
        self._now_ms = now_ms
        self._max_count = max_count
        self._by_topic: dict[str, tuple[int, str]] = {}

    def put(self, topic: str, text: str, kept_ms: int) -> None:
        """Keep an error for `kept_ms`."""
        now_ms, errors = self._now_ms(), self._by_topic
        errors[topic] = (now_ms + kept_ms, text)
        for name in [name for name, (expires_ms, _) in errors.items() if expires_ms <= now_ms]:
            del errors[name]
        while len(errors) > self._max_count:
            del errors[min(errors, key=lambda name: errors[name][0])]

    def get(self, topic: str) -> str | None:
        """The error of a topic, if it is still kept."""
        expires_ms, text = self._by_topic.get(topic, (0, ""))
        return text if expires_ms > self._now_ms() else None


class AutoTopics:
    """Asks the controller to create topics, with at most one request at a time for each topic. `config()` returns the broker's present
    configuration."""

    def __init__(self, forwarding: Forwarding, config: Callable[[], BrokerConfig], now_ms: Callable[[], int]) -> None:
        self._forwarding = forwarding
        self._config = config
        self._in_flight: set[str] = set()
        self._errors = ExpiringErrors(now_ms)

    def create(self, names: Sequence[str], context: RequestContext) -> list[MetadataResponseTopic]:
        """Start to create topics for the client of `context`. Returns the entries of Metadata until they exist."""
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
            log.info("Requesting topics %s from the active controller", creatable)
        return refused + [_told(name, "UNKNOWN_TOPIC_OR_PARTITION") for name in creatable]

    def create_for_streams(self, topics: Mapping[str, CreatableTopic], context: RequestContext, error_kept_ms: int) -> None:
        """Start to create the internal topics of an application, except those that failed less than `error_kept_ms` ago."""
        wanted = {name: topic for name, topic in topics.items() if name not in self._in_flight and self._errors.get(name) is None}
        if not wanted:
            return
        self._in_flight.update(wanted)

        def created(result: Message | ApiError) -> None:
            self._created(list(wanted), result)
            for name, text in _failures(wanted, result).items():
                self._errors.put(name, text, error_kept_ms)

        request = CreateTopicsRequest(list(wanted.values()), self._config()["request.timeout.ms"])
        self._forwarding.create_topics(context, request, created)

    def streams_errors(self, names: Iterable[str]) -> dict[str, str]:
        """Return why internal topics of applications could not be created, as far as the errors are kept."""
        found = {name: self._errors.get(name) for name in names}
        return {name: text for name, text in found.items() if text is not None}

    def _refusal(self, name: str) -> str | None:
        try:
            check_topic_name(name)
        except ApiError as error:
            return error.name
        return "UNKNOWN_TOPIC_OR_PARTITION" if name in self._in_flight else None

    def _created(self, names: Sequence[str], result: Message | ApiError) -> None:
        self._in_flight.difference_update(names)
        if isinstance(result, ApiError):
            log.warning("Topics %s could not be created: %s", names, result)
            return
        assert isinstance(result, CreateTopicsResponse)
        for topic in result.topics:
            name = by_code(topic.error_code).name
            if name == "TOPIC_ALREADY_EXISTS":  # another request was faster, and this broker has not seen its topic yet
                log.debug("Topic %s exists already", topic.name)
            elif topic.error_code:
                log.warning("Topic %s could not be created: %s: %s", topic.name, name, topic.error_message)


def _failures(topics: Iterable[str], result: Message | ApiError) -> dict[str, str]:
    """The errors of topics."""
    if isinstance(result, ApiError):
        text = "CreateTopicsRequest to controller timed out" if result.name == "REQUEST_TIMED_OUT" else str(result)
        return dict.fromkeys(topics, text)
    assert isinstance(result, CreateTopicsResponse)
    failed = (topic for topic in result.topics if topic.error_code)
    return {topic.name: topic.error_message or by_code(topic.error_code).words for topic in failed}


def creatable_topic(name: str, config: BrokerConfig) -> CreatableTopic:
    """Return the request for a topic. If this broker has no setting for a number, the controller decides it."""
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
