"""The APIs of the share coordinator, between brokers (Kafka's KafkaApis; KIP-932). They do not depend on the cluster's `share.version`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kops.broker.apis.groups.common import respond_with

if TYPE_CHECKING:
    from kops.broker.network.channel import RequestContext
    from kops.broker.parts.parts import BrokerParts


def handle_share_group_state(parts: BrokerParts, context: RequestContext) -> None:
    """Answer InitializeShareGroupState, Read…, Write…, Delete… or ReadShareGroupStateSummary when it is written."""
    respond_with(context, parts.share_state.coordinator.answer(context.request.message))
