"""Adding brokers to a running cluster, and removing them. They do not vote: the quorum of a cluster never changes."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kops.cluster.launch import STOP_TIMEOUT_S, exclusive, format_nodes, remove_node, start_brokers
from kops.cluster.layout import ports, settings
from kops.cluster.layout.directory import Undo, check_nodes
from kops.cluster.questions import partitions_on, unregister_broker
from kops.errors import KopsError, UsageError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from kops.cluster.launch import Supervision

_NAMED = 5


def add_broker(running: Supervision, own_settings: Mapping[str, str], *, timeout_s: float) -> int:
    """Add a broker with the settings of the first one and its own, and return its id. A failure leaves nothing behind. Raises KopsError,
    OSError.
    """
    directory = running.directory
    with exclusive(directory), Undo() as undo:
        node_ids = directory.node_ids()
        first = directory.properties(node_ids[0])
        voters = [settings.Voter(node_id, port) for node_id, (_, port) in settings.quorum_voters(first).items()]
        if not voters:
            raise UsageError(
                f"{directory.properties_path(node_ids[0])} has no controller.quorum.voters: a broker is added to a static quorum only"
            )
        node_id = max(node_ids) + 1
        port = _free_port(max(settings.listener_address(directory.properties(one))[1] for one in directory.broker_ids()) + 1, voters)
        properties = settings.node_properties(
            node_id,
            voters,
            port=port,
            log_dir=directory.log_dir(node_id),
            broker_count=len(node_ids),
            settings=_shared(first),
        )
        path = directory.properties_path(node_id)
        first_path = directory.properties_path(node_ids[0])
        properties = settings.changed_properties(properties, own_settings, file=first_path, source="--config")
        undo.making([path, f"{path}.tmp", directory.log_dir(node_id)])
        cluster_id = check_nodes(directory)
        directory.write_properties(node_id, properties)
        format_nodes(directory, cluster_id, undo)
        try:
            start_brokers(running, [node_id], timeout_s=timeout_s)
        except BaseException:
            running.ask("stop", ids=[node_id], kill=True, timeout_s=STOP_TIMEOUT_S)
            raise
        undo.keep()
    return node_id


def _shared(first: Mapping[str, str]) -> dict[str, str]:
    """Return the settings of the first node without those that belong only to it."""
    return {key: value for key, value in first.items() if key != "controller.quorum.election.timeout.ms"}


def _free_port(port: int, voters: list[settings.Voter]) -> int:
    taken = {voter.port for voter in voters}
    while port in taken or not ports.is_free(port):
        port += 1
        if port > ports.MAX_PORT:
            raise KopsError("no free port above those of the cluster")
    return port


def remove_broker(running: Supervision, node_id: int, *, force: bool = False) -> None:
    """Stop a broker, unregister it and remove its files. Raises UsageError for a voter, and KopsError if it has replicas."""
    directory = running.directory
    if node_id in directory.voter_ids():
        raise UsageError(f"broker {node_id} votes in the quorum: only a broker that was added can be removed")
    with exclusive(directory):
        others = ",".join(
            "{}:{}".format(*settings.listener_address(directory.properties(one))) for one in directory.broker_ids() if one != node_id
        )
        standing = partitions_on(others, node_id)
        if standing and not force:
            more = f" and {len(standing) - _NAMED} more" if len(standing) > _NAMED else ""
            raise KopsError(
                f"broker {node_id} has replicas of {', '.join(standing[:_NAMED])}{more}: move them (kops partition reassign), or --force"
            )
        running.ask("stop", ids=[node_id], timeout_s=STOP_TIMEOUT_S)
        unregister_broker(others, node_id)
        remove_node(directory, node_id)
        running.ask("forget", ids=[node_id])
