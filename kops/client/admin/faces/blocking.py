"""The admin client for programs with threads. A method returns when its answer has come. Any number of threads may use one client.

Source: Kafka's Admin and KafkaAdminClient, whose methods return futures.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from typing import TYPE_CHECKING, Any, Concatenate, ParamSpec, TypeVar

from kops.client.admin.core.operation import Operation, Steps
from kops.client.admin.faces.driving import as_method, new_running
from kops.client.admin.operations import (
    acls,
    cluster,
    configs,
    group_offsets,
    groups,
    offsets,
    partitions,
    principals,
    quorum,
    topics,
    transactions,
)
from kops.client.errors import AdminClosedError
from kops.client.faces.driving import client_text
from kops.client.faces.telemetry_calls import LAST_PUSH_MS, BlockingTelemetryCalls
from kops.client.faces.waking import WakePipe, refuse_in_forks, start_thread
from kops.client.settings import check_timeout, read_config
from kops.errors import UsageError

if TYPE_CHECKING:
    from types import TracebackType
    from typing import Self

    from kops.client.client import Client
    from kops.client.faces.pushing import Pusher
    from kops.client.metrics.sensors import MetricName

P = ParamSpec("P")
R = TypeVar("R")
_LONGEST_WAIT_MS = 60_000.0


def _blocking(function: Callable[Concatenate[Client, P], Steps[R]]) -> Callable[Concatenate[Admin, P], R]:
    """Return the method that runs an operation to its end."""

    def method(self: Admin, /, *args: P.args, **kwargs: P.kwargs) -> R:
        return self._run(lambda client: function(client, *args, **kwargs))

    as_method(method, function, is_async=False)
    return method


class Admin(BlockingTelemetryCalls):
    """Administers a cluster: `with kops.Admin({"bootstrap.servers": "host:9092"}) as admin`.

    Methods raise KafkaError if the whole request fails. Methods with an outcome for each key return it, and reading a key raises its error.
    `timeout` is in seconds and replaces `default.api.timeout.ms`. A `with` block closes the client at the end.
    """

    def __init__(self, config: Mapping[str, object] | None = None, /, **settings: object) -> None:
        self._running, self._metrics = new_running(read_config(config, settings))
        self._client = self._running.client
        self._lock = threading.Lock()
        self._fresh: list[Operation[Any]] = []
        self._given_up: list[Operation[Any]] = []
        self._is_closing = False
        self._is_forced = False
        self._thread: threading.Thread | None = None
        self._wakes: WakePipe | None = None  # with the thread
        refuse_in_forks(self)

    def __repr__(self) -> str:
        return client_text("kops.Admin", self._client.network, is_closed=self._is_closing)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close(None if kind is None else 0)

    create_topics = _blocking(topics.create_topics)
    delete_topics = _blocking(topics.delete_topics)
    list_topics = _blocking(topics.list_topics)
    describe_topics = _blocking(topics.describe_topics)
    create_partitions = _blocking(topics.create_partitions)
    describe_cluster = _blocking(cluster.describe_cluster)
    unregister_broker = _blocking(cluster.unregister_broker)
    describe_features = _blocking(cluster.describe_features)
    update_features = _blocking(cluster.update_features)
    describe_configs = _blocking(configs.describe_configs)
    incremental_alter_configs = _blocking(configs.incremental_alter_configs)
    list_config_resources = _blocking(configs.list_config_resources)
    elect_leaders = _blocking(partitions.elect_leaders)
    alter_partition_reassignments = _blocking(partitions.alter_partition_reassignments)
    list_partition_reassignments = _blocking(partitions.list_partition_reassignments)
    alter_replica_log_dirs = _blocking(partitions.alter_replica_log_dirs)
    describe_log_dirs = _blocking(partitions.describe_log_dirs)
    describe_replica_log_dirs = _blocking(partitions.describe_replica_log_dirs)
    list_offsets = _blocking(offsets.list_offsets)
    delete_records = _blocking(offsets.delete_records)
    list_groups = _blocking(groups.list_groups)
    describe_consumer_groups = _blocking(groups.describe_consumer_groups)
    describe_classic_groups = _blocking(groups.describe_classic_groups)
    describe_share_groups = _blocking(groups.describe_share_groups)
    describe_streams_groups = _blocking(groups.describe_streams_groups)
    delete_consumer_groups = _blocking(groups.delete_consumer_groups)
    delete_share_groups = _blocking(groups.delete_share_groups)
    delete_streams_groups = _blocking(groups.delete_streams_groups)
    remove_members_from_consumer_group = _blocking(groups.remove_members_from_consumer_group)
    list_consumer_group_offsets = _blocking(group_offsets.list_consumer_group_offsets)
    alter_consumer_group_offsets = _blocking(group_offsets.alter_consumer_group_offsets)
    delete_consumer_group_offsets = _blocking(group_offsets.delete_consumer_group_offsets)
    list_share_group_offsets = _blocking(group_offsets.list_share_group_offsets)
    alter_share_group_offsets = _blocking(group_offsets.alter_share_group_offsets)
    delete_share_group_offsets = _blocking(group_offsets.delete_share_group_offsets)
    list_streams_group_offsets = _blocking(group_offsets.list_streams_group_offsets)
    alter_streams_group_offsets = _blocking(group_offsets.alter_streams_group_offsets)
    delete_streams_group_offsets = _blocking(group_offsets.delete_streams_group_offsets)
    list_transactions = _blocking(transactions.list_transactions)
    describe_transactions = _blocking(transactions.describe_transactions)
    describe_producers = _blocking(transactions.describe_producers)
    abort_transaction = _blocking(transactions.abort_transaction)
    fence_producers = _blocking(transactions.fence_producers)
    force_terminate_transaction = _blocking(transactions.force_terminate_transaction)
    describe_metadata_quorum = _blocking(quorum.describe_metadata_quorum)
    add_raft_voter = _blocking(quorum.add_raft_voter)
    remove_raft_voter = _blocking(quorum.remove_raft_voter)
    create_acls = _blocking(acls.create_acls)
    describe_acls = _blocking(acls.describe_acls)
    delete_acls = _blocking(acls.delete_acls)
    describe_user_scram_credentials = _blocking(principals.describe_user_scram_credentials)
    alter_user_scram_credentials = _blocking(principals.alter_user_scram_credentials)
    create_delegation_token = _blocking(principals.create_delegation_token)
    renew_delegation_token = _blocking(principals.renew_delegation_token)
    expire_delegation_token = _blocking(principals.expire_delegation_token)
    describe_delegation_token = _blocking(principals.describe_delegation_token)
    describe_client_quotas = _blocking(principals.describe_client_quotas)
    alter_client_quotas = _blocking(principals.alter_client_quotas)

    def _find_pusher(self) -> Pusher | None:
        return self._running.pusher

    def _await_pusher(self, is_known: Callable[[], bool], wait: Callable[[float], object], timeout: float) -> None:
        with self._lock:
            if self._is_closing:
                raise AdminClosedError("the admin client is closed")
            self._start().wake()
        wait(timeout)

    def metrics(self) -> dict[MetricName, float]:
        """Return the values of all metrics, by Kafka's groups, names and tags. An average of nothing is not a number."""
        return self._metrics.values(self._client.now_ms())

    # the thread

    def _run(self, begin: Callable[[Client], Steps[R]]) -> R:
        if threading.current_thread() is self._thread:
            raise UsageError("not in the admin client's own thread, because it would wait for itself")
        operation = Operation(begin(self._client))
        future: Future[None] = Future()
        operation.when_done = lambda _: future.set_result(None)
        with self._lock:
            if self._is_closing:
                raise AdminClosedError("the admin client is closed")
            self._fresh.append(operation)
            self._start().wake()
        try:
            future.result()
        except BaseException:  # Ctrl-C: nobody waits for the operation any more
            with self._lock:
                self._given_up.append(operation)
                self._start().wake()
            raise
        return operation.value

    def _start(self) -> WakePipe:
        """Start the thread if it does not run yet."""
        if self._wakes is None:
            wakes = WakePipe(self._client.network)
            self._thread = start_thread(self._work, self._client.settings.client_id, wakes)
            self._wakes = wakes
        return self._wakes

    def _work(self) -> None:
        running, network = self._running, self._client.network
        try:
            while self._take():
                network.poll(min(running.turn(), _LONGEST_WAIT_MS))
        finally:
            with self._lock:
                self._is_closing = True
                left, self._fresh = self._fresh, []
                if self._wakes is not None:
                    self._wakes.close()
            for operation in left:
                running.add(operation)
            running.end(0 if self._is_forced else LAST_PUSH_MS)
            network.close()

    def _take(self) -> bool:
        """Take what other threads want. Returns whether there is more to do."""
        with self._lock:
            fresh, self._fresh = self._fresh, []
            given_up, self._given_up = self._given_up, []
            is_closing, is_forced = self._is_closing, self._is_forced
        for operation in fresh:
            self._running.add(operation)
        for operation in given_up:
            operation.fail(self._client, AdminClosedError("interrupted"))
        return not (is_forced or (is_closing and not self._running.operations))

    # the end

    def close(self, timeout: float | None = None) -> None:
        """Wait for the operations of other threads, and release all connections. After `timeout` seconds, what is left fails with
        AdminClosedError."""
        check_timeout(timeout)
        with self._lock:
            self._is_closing = True
            self._is_forced = self._is_forced or timeout == 0
            thread, wakes = self._thread, self._wakes
            if wakes is not None:
                wakes.wake()
        if thread is None or wakes is None:
            self._client.close()
            return
        thread.join(timeout)
        if thread.is_alive():
            with self._lock:
                self._is_forced = True
                wakes.wake()
            thread.join()
