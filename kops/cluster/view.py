"""The current state of a cluster as values, for `kops cluster status`, `ls` and `env`."""

from __future__ import annotations

from typing import Any, Final

from kops.cluster.launch import orphans, supervision
from kops.cluster.layout import settings
from kops.cluster.layout.directory import ClusterDirectory
from kops.cluster.questions import active_controller
from kops.errors import KopsError

_ENDS_WITHIN_S: Final = 5.0


def describe(directory: ClusterDirectory, *, ask_controller: bool = True) -> dict[str, Any]:
    """Describe a cluster. Raises NotFoundError.

    `state` is up (all brokers run), partly, down, or orphaned (brokers run, but their supervisor was killed).
    """
    directory.require()
    running = supervision(directory)
    processes: dict[int, dict[str, Any]] = {}
    state = "up"
    if running is not None:
        try:
            processes = {broker["id"]: broker for broker in running.ask("status")}
        except KopsError:
            # A killed supervisor exists slightly longer than its socket.
            if not running.identity.wait(_ENDS_WITHIN_S):
                raise
            running = None
    if running is None:
        left = orphans(directory)
        processes = {node_id: {"state": "orphaned", "pid": identity.pid} for node_id, identity in left.items()}
        state = "orphaned" if left else "down"
    brokers = [_broker(directory, node_id, processes.get(node_id, {})) for node_id in directory.node_ids()]
    if state == "up" and any(broker["state"] != "running" for broker in brokers):
        state = "partly"
    answering = [broker["address"] for broker in brokers if broker["state"] in ("running", "orphaned") and "broker" in broker["roles"]]
    controller = active_controller(",".join(answering)) if ask_controller and answering else None
    for broker in brokers:
        broker["controller"] = controller is not None and broker["id"] == controller
    return {
        "data_dir": directory.path,
        "state": state,
        "cluster_id": next((broker["cluster_id"] for broker in brokers if broker["cluster_id"]), None),
        "bootstrap_servers": directory.bootstrap_servers(),
        "controller": controller,
        "supervisor": None if running is None else running.identity.pid,
        "ephemeral": running is not None and running.ephemeral,
        "brokers": brokers,
    }


def _broker(directory: ClusterDirectory, node_id: int, process: dict[str, Any]) -> dict[str, Any]:
    properties = directory.properties(node_id)
    tells = directory.read_state(directory.status_path(node_id))
    state = process.get("state", "stopped")
    if state == "starting" and tells.get("state") == "RECOVERY":
        state = "recovery"
    host, port = settings.node_address(properties)
    return {
        "id": node_id,
        "pid": process.get("pid"),
        "address": f"{host}:{port}",
        "state": state,
        "controller": False,
        "roles": properties.get("process.roles", "").split(","),
        "exit_code": process.get("exit_code"),
        "log_dirs": directory.log_dirs(node_id),
        "cluster_id": tells.get("cluster_id") or _formatted_cluster_id(directory, node_id),
        "recovery": tells.get("recovery") or {},
        "error": tells.get("error"),
    }


def _formatted_cluster_id(directory: ClusterDirectory, node_id: int) -> str | None:
    from kops.storage.formats.meta_properties import read_meta_properties

    for log_dir in directory.log_dirs(node_id):
        try:
            return read_meta_properties(directory.files.read_all(f"{log_dir}/meta.properties")).cluster_id
        except (OSError, KopsError):
            continue
    return None


def summary(directory: ClusterDirectory) -> dict[str, Any]:
    """Return the cluster's row of `ls`."""
    found = describe(directory, ask_controller=False)
    brokers = found["brokers"]
    running = [broker for broker in brokers if broker["pid"] is not None]
    return {**{key: found[key] for key in ("data_dir", "state", "bootstrap_servers")}, "brokers": len(brokers), "running": len(running)}
