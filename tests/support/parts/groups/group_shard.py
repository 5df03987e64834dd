"""The GroupCoordinatorShard of kops with a clock, and the few parts of a runtime that unit tests need."""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from typing import Any

from kops.coordinators.groups.config import GroupCoordinatorConfig
from kops.coordinators.groups.context import RequestContext
from kops.coordinators.groups.shard.shard import GroupCoordinatorShard
from kops.coordinators.runtime.promise import Promise
from kops.coordinators.runtime.records import CoordinatorRecord
from kops.coordinators.runtime.result import CoordinatorResult
from kops.errors import ApiError
from kops.protocol.messages.join_group_request import JoinGroupRequest, JoinGroupRequestProtocol
from kops.protocol.messages.join_group_response import JoinGroupResponse
from kops.protocol.messages.sync_group_request import SyncGroupRequest, SyncGroupRequestAssignment
from kops.protocol.messages.sync_group_response import SyncGroupResponse
from kops.timeline import Timeline
from tests.support.parts.groups.coordinator_images import Image
from tests.support.parts.manual_timer import ManualTimer


class GroupShard:
    """A shard with a clock, and the few parts of a runtime that it needs."""

    def __init__(self, log: list[CoordinatorRecord] | None = None, **settings: Any) -> None:
        self.now_ms = 1000
        self.settings: Mapping[str, Any] | None = None
        """The settings of every group, if groups have settings."""
        self.timer = ManualTimer(lambda: self.now_ms)
        ids = itertools.count(1)
        self.timeline = Timeline()
        config = GroupCoordinatorConfig(**settings)
        self.shard = GroupCoordinatorShard(
            self.timeline,
            self.timer,
            None,  # type: ignore[arg-type]  # classic groups have no work aside
            lambda: self.now_ms,
            lambda: f"id{next(ids)}",
            config,
            lambda _group_id: self.settings,
        )
        self.log: list[CoordinatorRecord] = []
        for record in log or ():
            self.shard.replay(len(self.log), -1, -1, record)
            self.log.append(record)
        self.shard.on_loaded(Image({}))
        self.commit()

    def commit(self) -> None:
        """Commit all records."""
        self.timeline.offset = len(self.log)
        self.timeline.forget_up_to(len(self.log) - 1)

    def write(self, result: CoordinatorResult[Any], error: ApiError | None = None) -> Any:
        """Handle a result as the runtime does. Here it is committed at once, or fails with `error`."""
        if error is None:
            for record in result.records:
                if result.replay_records:
                    self.shard.replay(len(self.log), -1, -1, record)
                self.log.append(record)
            self.commit()
            if result.append_promise is not None:
                result.append_promise.complete(None)
        else:
            self.timeline.revert_to(len(self.log) - 1)
            assert result.append_promise is not None
            result.append_promise.fail(error)
        return result.response

    def advance(self, delta_ms: int) -> None:
        """Let time pass and timers expire."""
        end_ms = self.now_ms + delta_ms
        while (due := self.timer.next_due()) is not None and due[0] <= end_ms:
            self.now_ms = due[0]
            self.write(self.timer.pop(due[1])())
        self.now_ms = end_ms

    def join(
        self, member_id: str = "", *, version: int = 3, instance: str | None = None, error: ApiError | None = None
    ) -> Promise[JoinGroupResponse]:
        """Let a consumer join the group `g`. With `error` the write fails."""
        promise: Promise[JoinGroupResponse] = Promise()
        request = JoinGroupRequest("g", 30_000, 20_000, member_id, instance, "consumer", [JoinGroupRequestProtocol("range", b"")])
        self.write(self.shard.classic_group_join(RequestContext(version, "c", "/h", 11), request, promise), error)
        return promise

    def sync(self, joined: JoinGroupResponse, *members: str, error: ApiError | None = None) -> Promise[SyncGroupResponse]:
        """Let a member sync, as the leader with an assignment for `members`."""
        promise: Promise[SyncGroupResponse] = Promise()
        given = [SyncGroupRequestAssignment(member, member.encode()) for member in members]
        request = SyncGroupRequest("g", joined.generation_id, joined.member_id, assignments=given)
        self.write(self.shard.classic_group_sync(RequestContext(5, "c", "/h", 14), request, promise), error)
        return promise

    def state(self) -> str:
        """Return the committed state of the group."""
        return self.shard.describe_groups(RequestContext(6, "c", "/h", 15), ["g"])[0].group_state
