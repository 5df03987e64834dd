"""The admin client for asyncio. It has no thread: the event loop watches the client's connections.

Source: Kafka's Admin and KafkaAdminClient. As in the blocking client, resolving the name of a broker blocks.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Mapping
from typing import TYPE_CHECKING, Any, Concatenate, ParamSpec, TypeVar

from kops.client.admin.core.operation import Operation, Steps
from kops.client.admin.faces.driving import IDLE_MS, as_method, new_running
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
from kops.client.faces.telemetry_calls import AsyncTelemetryCalls
from kops.client.faces.waking import Turns
from kops.client.settings import check_timeout, read_config

if TYPE_CHECKING:
    from types import TracebackType
    from typing import Self

    from kops.client.client import Client
    from kops.client.faces.pushing import Pusher
    from kops.client.metrics.sensors import MetricName

P = ParamSpec("P")
R = TypeVar("R")
_LONGEST_WAIT_MS = 60_000.0


def _awaiting(function: Callable[Concatenate[Client, P], Steps[R]]) -> Callable[Concatenate[Admin, P], Coroutine[Any, Any, R]]:
    """Return the coroutine function that runs an operation to its end."""

    async def method(self: Admin, /, *args: P.args, **kwargs: P.kwargs) -> R:
        return await self._run(lambda client: function(client, *args, **kwargs))

    as_method(method, function, is_async=True)
    return method


class Admin(AsyncTelemetryCalls):
    """Administers a cluster: `async with kops.aio.Admin({"bootstrap.servers": "host:9092"}) as admin`.

    The methods are those of `kops.Admin`, as coroutines. Any number of tasks may use one client. It belongs to the event loop in which it
    is first used. A cancelled call is given up; a request that was sent may still have its effect.
    """

    def __init__(self, config: Mapping[str, object] | None = None, /, **settings: object) -> None:
        self._running, self._metrics = new_running(read_config(config, settings))
        self._client = self._running.client
        self._turns = Turns(self._client.network, self._turn, "admin client")
        self._is_closed = False

    def __repr__(self) -> str:
        return client_text("kops.aio.Admin", self._client.network, is_closed=self._is_closed)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        await self.close(None if kind is None else 0)

    create_topics = _awaiting(topics.create_topics)
    delete_topics = _awaiting(topics.delete_topics)
    list_topics = _awaiting(topics.list_topics)
    describe_topics = _awaiting(topics.describe_topics)
    create_partitions = _awaiting(topics.create_partitions)
    describe_cluster = _awaiting(cluster.describe_cluster)
    unregister_broker = _awaiting(cluster.unregister_broker)
    describe_features = _awaiting(cluster.describe_features)
    update_features = _awaiting(cluster.update_features)
    describe_configs = _awaiting(configs.describe_configs)
    incremental_alter_configs = _awaiting(configs.incremental_alter_configs)
    list_config_resources = _awaiting(configs.list_config_resources)
    elect_leaders = _awaiting(partitions.elect_leaders)
    alter_partition_reassignments = _awaiting(partitions.alter_partition_reassignments)
    list_partition_reassignments = _awaiting(partitions.list_partition_reassignments)
    alter_replica_log_dirs = _awaiting(partitions.alter_replica_log_dirs)
    describe_log_dirs = _awaiting(partitions.describe_log_dirs)
    describe_replica_log_dirs = _awaiting(partitions.describe_replica_log_dirs)
    list_offsets = _awaiting(offsets.list_offsets)
    delete_records = _awaiting(offsets.delete_records)
    list_groups = _awaiting(groups.list_groups)
    describe_consumer_groups = _awaiting(groups.describe_consumer_groups)
    describe_classic_groups = _awaiting(groups.describe_classic_groups)
    describe_share_groups = _awaiting(groups.describe_share_groups)
    describe_streams_groups = _awaiting(groups.describe_streams_groups)
    delete_consumer_groups = _awaiting(groups.delete_consumer_groups)
    delete_share_groups = _awaiting(groups.delete_share_groups)
    delete_streams_groups = _awaiting(groups.delete_streams_groups)
    remove_members_from_consumer_group = _awaiting(groups.remove_members_from_consumer_group)
    list_consumer_group_offsets = _awaiting(group_offsets.list_consumer_group_offsets)
    alter_consumer_group_offsets = _awaiting(group_offsets.alter_consumer_group_offsets)
    delete_consumer_group_offsets = _awaiting(group_offsets.delete_consumer_group_offsets)
    list_share_group_offsets = _awaiting(group_offsets.list_share_group_offsets)
    alter_share_group_offsets = _awaiting(group_offsets.alter_share_group_offsets)
    delete_share_group_offsets = _awaiting(group_offsets.delete_share_group_offsets)
    list_streams_group_offsets = _awaiting(group_offsets.list_streams_group_offsets)
    alter_streams_group_offsets = _awaiting(group_offsets.alter_streams_group_offsets)
    delete_streams_group_offsets = _awaiting(group_offsets.delete_streams_group_offsets)
    list_transactions = _awaiting(transactions.list_transactions)
    describe_transactions = _awaiting(transactions.describe_transactions)
    describe_producers = _awaiting(transactions.describe_producers)
    abort_transaction = _awaiting(transactions.abort_transaction)
    fence_producers = _awaiting(transactions.fence_producers)
    force_terminate_transaction = _awaiting(transactions.force_terminate_transaction)
    describe_metadata_quorum = _awaiting(quorum.describe_metadata_quorum)
    add_raft_voter = _awaiting(quorum.add_raft_voter)
    remove_raft_voter = _awaiting(quorum.remove_raft_voter)
    create_acls = _awaiting(acls.create_acls)
    describe_acls = _awaiting(acls.describe_acls)
    delete_acls = _awaiting(acls.delete_acls)
    describe_user_scram_credentials = _awaiting(principals.describe_user_scram_credentials)
    alter_user_scram_credentials = _awaiting(principals.alter_user_scram_credentials)
    create_delegation_token = _awaiting(principals.create_delegation_token)
    renew_delegation_token = _awaiting(principals.renew_delegation_token)
    expire_delegation_token = _awaiting(principals.expire_delegation_token)
    describe_delegation_token = _awaiting(principals.describe_delegation_token)
    describe_client_quotas = _awaiting(principals.describe_client_quotas)
    alter_client_quotas = _awaiting(principals.alter_client_quotas)

    def _find_pusher(self) -> Pusher | None:
        return self._running.pusher

    def _begin_turns(self) -> None:
        if self._is_closed:
            raise AdminClosedError("the admin client is closed")
        self._turns.start()
        self._turns.soon()

    def metrics(self) -> dict[MetricName, float]:
        """Return the values of all metrics, by Kafka's groups, names and tags. An average of nothing is not a number."""
        return self._metrics.values(self._client.now_ms())

    # the loop

    async def _run(self, begin: Callable[[Client], Steps[R]]) -> R:
        if self._is_closed:
            raise AdminClosedError("the admin client is closed")
        loop = self._turns.start()
        operation = Operation(begin(self._client))
        waiter: asyncio.Future[None] = loop.create_future()
        operation.when_done = lambda _: None if waiter.done() else waiter.set_result(None)
        self._running.add(operation)
        self._turn()
        try:
            await waiter
        except BaseException:  # cancelled
            operation.fail(self._client, AdminClosedError("cancelled"))
            raise
        return operation.value

    def _turn(self) -> None:
        """Receive, continue the operations, and send."""
        network = self._client.network
        if self._is_closed:
            return
        network.poll(0)
        wait_ms = self._running.turn()
        network.poll(0)
        while self._running.has_news():
            wait_ms = self._running.turn()
            network.poll(0)
        wait_ms = min(wait_ms, network.next_event_ms() - network.now_ms())
        if wait_ms == IDLE_MS:
            self._turns.rest()
        else:
            self._turns.at(min(wait_ms, _LONGEST_WAIT_MS))

    # the end

    async def close(self, timeout: float | None = None) -> None:
        """Wait for the operations of other tasks, and release all connections. After `timeout` seconds, what is left fails with
        AdminClosedError."""
        check_timeout(timeout)
        if self._is_closed:
            return
        try:
            if self._running.operations:
                await asyncio.wait([self._finished(operation) for operation in self._running.operations], timeout=timeout)
        finally:
            self._end()

    def _finished(self, operation: Operation[Any]) -> asyncio.Future[None]:
        waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        before = operation.when_done

        def done(one: Operation[Any]) -> None:
            before(one)
            if not waiter.done():
                waiter.set_result(None)

        operation.when_done = done
        return waiter

    def _end(self) -> None:
        self._is_closed = True
        self._running.end()
        self._turns.end()
        self._client.close()
