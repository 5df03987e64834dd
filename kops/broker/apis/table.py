"""What a broker serves: the handler of each API. ApiVersions advertises this table and nothing else.

Source: the match in Kafka's KafkaApis.handle, ApiKeys (who serves what, what is forwarded).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from kops.broker.apis.api_versions import handle_api_versions
from kops.broker.apis.metadata import handle_metadata
from kops.broker.forwarding import handle_forwarded
from kops.protocol.api_keys import BY_NAME, ApiKey

if TYPE_CHECKING:
    from kops.broker.parts import BrokerParts
    from kops.broker.socket_server import RequestContext

Handler = Callable[["BrokerParts", "RequestContext"], None]

_FORWARDED: Final = (
    "AddRaftVoter",
    "AlterPartitionReassignments",
    "CreatePartitions",
    "CreateTopics",
    "DeleteTopics",
    "DescribeQuorum",
    "ElectLeaders",
    "ListPartitionReassignments",
    "RemoveRaftVoter",
    "UnregisterBroker",
    "UpdateFeatures",
)
_ANSWERED_HERE: Final[dict[str, Handler]] = {
    "ApiVersions": handle_api_versions,
    "Metadata": handle_metadata,
}
HANDLERS: Final[dict[int, Handler]] = {
    **{BY_NAME[name].key: handler for name, handler in _ANSWERED_HERE.items()},
    **{BY_NAME[name].key: handle_forwarded for name in _FORWARDED},
}
"""By API key."""


def served_apis() -> list[ApiKey]:
    """The APIs of the table, by key."""
    return [api for api in BY_NAME.values() if api.key in HANDLERS]
