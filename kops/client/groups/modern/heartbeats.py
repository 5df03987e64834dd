"""The heartbeats of a member: when one is sent, and what each answer means.

    while (event := member.next_event(now_ms)) is not None:  # in the thread of the network, until there is nothing to do
        ...  # carry it out; Send -> later receive(sent, answer, now_ms); FindCoordinator -> coordinator_found() or coordinator_not_found()
    wait(until=member.wake_ms())

Every poll of the application begins with `polled(now_ms)`. Only there may a reconciliation revoke partitions or commit. If the application
does not poll for `max_poll_interval_ms`, the member leaves the group, and joins again with the next poll.

Source: Kafka's AbstractHeartbeatRequestManager and CoordinatorRequestManager; ConsumerNetworkThread.runOnce for the order. One difference
is intended: after a request that timed out, the coordinator is looked up again, as after a lost connection.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from kops.client.groups.membership import FindCoordinator, Send
from kops.client.groups.modern.beats import BeatState, RequestState, Timer
from kops.client.groups.modern.events import Event, Failed
from kops.client.groups.modern.reconciling import Reconciling
from kops.client.groups.modern.states import BEATS_NOW, MemberState
from kops.errors import ApiError
from kops.protocol.errors import by_code, by_name

if TYPE_CHECKING:
    from kops.protocol.declaration import Message
    from kops.protocol.messages import ConsumerGroupHeartbeatResponse, ShareGroupHeartbeatResponse

    HeartbeatResponse = ConsumerGroupHeartbeatResponse | ShareGroupHeartbeatResponse

_SKIPPED: Final = frozenset((MemberState.UNSUBSCRIBED, MemberState.FATAL, MemberState.STALE, MemberState.FENCED))
_COORDINATOR_LOST: Final = ("NETWORK_EXCEPTION", "REQUEST_TIMED_OUT")


@dataclass(frozen=True, slots=True)
class ModernSettings:
    """A member's settings. Times are ms. `rack` is None or a name."""

    group_id: str
    max_poll_interval_ms: int = 300_000
    instance_id: str | None = None
    rack: str | None = None
    server_assignor: str | None = None
    auto_commits: bool = True


class Heartbeating(Reconciling):
    """A member with its heartbeats. `member_id` is a random UUID as text. `backoff_ms(failures)` is the pause after a failure."""

    def __init__(
        self,
        settings: ModernSettings,
        member_id: str,
        name_of: Callable[[bytes], str | None],
        backoff_ms: Callable[[int], float],
        now_ms: float,
    ) -> None:
        super().__init__(settings.group_id, member_id, name_of)
        self.settings = settings
        self.rebalance_timeout_ms = settings.max_poll_interval_ms
        self.why = ""  # the last reason for a wait
        self._beats = BeatState(backoff_ms, now_ms)
        self._search = RequestState(backoff_ms)
        self._poll_timer = Timer(now_ms, settings.max_poll_interval_ms)
        self._has_coordinator = False
        self._is_closing = False
        self._coordinator_error: ApiError | None = None
        self._unanswered: list[Message] = []  # heartbeats whose answers do not matter

    # what is next

    def next_event(self, now_ms: float) -> Event | None:
        """Return the next step, or None if there is nothing to do before `wake_ms` without news."""
        if not self._events:
            self._look_for_coordinator(now_ms)
            self._beat_if_due(now_ms)
            self._reconcile(now_ms, may_commit=self._reconciles_at_once)
        if not self._events and self.state in BEATS_NOW:
            self._beat_if_due(now_ms)
        return self._events.popleft() if self._events else None

    _reconciles_at_once = False

    def wake_ms(self) -> float:
        """The time at which there may be a step without news."""
        if self._events:
            return 0.0
        if not self._has_coordinator:
            return float("inf") if self._search.is_under_way or self._is_closing else self._search.ready_ms
        if self.state in _SKIPPED:
            return float("inf")
        due_ms = float("inf") if self._is_leaving_group else self._poll_timer.deadline_ms
        if not self._beats.is_under_way:
            due_ms = min(due_ms, 0.0 if self.state in BEATS_NOW else self._beats.due_ms)
        return due_ms

    def polled(self, now_ms: float) -> None:
        """The application polls: join, reconcile, and start the poll interval again."""
        self._reconcile(now_ms, may_commit=True)
        self._polled()
        if self._poll_timer.update(now_ms):
            self._rejoin_if_stale()
        self._poll_timer.reset(self.settings.max_poll_interval_ms)

    def stop_searching(self) -> None:
        """Look for no coordinator any more, because the consumer closes."""
        self._is_closing = True

    def last_words(self) -> Send | None:
        """Return the heartbeat that leaves the group, if it was not sent before the consumer stops. Nobody waits for its answer."""
        return Send(self._make_beat(ignores_answer=True)) if self._is_leaving_group else None

    # the coordinator

    def coordinator_found(self, now_ms: float) -> None:
        """Continue with the coordinator that was found."""
        self._has_coordinator = True
        self._coordinator_error = None
        self._search.succeeded(now_ms)

    def coordinator_not_found(self, error: ApiError, now_ms: float) -> None:
        """Look for the coordinator again later. An error that a retry may not heal is raised from a poll."""
        self._search.failed(now_ms)
        self._has_coordinator = False
        self.why = str(error)
        if error.name == "GROUP_AUTHORIZATION_FAILED":
            error = ApiError(error.name, f"Not authorized to access group: {self.group_id}")
        self._coordinator_error = None if by_name(error.name).retriable else error

    def coordinator_lost(self, why: str) -> None:
        """Look for the coordinator again: it does not answer, or is no longer the coordinator."""
        self._has_coordinator = False
        self.why = why

    def _look_for_coordinator(self, now_ms: float) -> None:
        if not self._is_closing and not self._has_coordinator and self._search.may_send(now_ms):
            self._search.sent()
            self._events.append(FindCoordinator())

    # heartbeats

    @property
    def _is_leaving_group(self) -> bool:
        return self.state in (MemberState.PREPARE_LEAVING, MemberState.LEAVING)

    @property
    def _leaves_at_once(self) -> bool:
        """Whether the heartbeat that leaves is sent although another one is under way."""
        return self.state is MemberState.LEAVING

    def _beat_if_due(self, now_ms: float) -> None:
        if not self._has_coordinator or self.state in _SKIPPED:
            self._beat_skipped()
            if self._coordinator_error is not None:
                self._events.append(Failed(self._coordinator_error))
                self._coordinator_error = None
            return
        if self._poll_timer.update(now_ms) and not self._is_leaving_group and self.state is not MemberState.LEAVING:
            self._send_leave(has_poll_expired=True)
            self._events.append(Send(self._make_beat(ignores_answer=True)))
            self._beats.reset()
            self._forget_sent()
            return
        may_send = self._beats.may_send(now_ms)
        if may_send or self._leaves_at_once or (self.state in BEATS_NOW and not self._beats.is_under_way):
            self._events.append(Send(self._make_beat(ignores_answer=False)))

    def _make_beat(self, *, ignores_answer: bool) -> Message:
        message = self._heartbeat()
        if ignores_answer:
            self._unanswered.append(message)
        self._beats.sent()
        self._beat_sent()
        self._beats.start_interval()
        return message

    @abstractmethod
    def _heartbeat(self) -> Message:
        """Return a heartbeat with the fields that have changed."""

    @abstractmethod
    def _forget_sent(self) -> None:
        """Send all fields with the next heartbeat."""

    # answers

    def receive(self, sent: Message, answer: Message | ApiError, now_ms: float) -> None:
        """Handle the answer to a `Send`, or the error of the network."""
        if any(one is sent for one in self._unanswered):
            self._unanswered = [one for one in self._unanswered if one is not sent]
            return
        if isinstance(answer, ApiError):
            self._on_failure(answer, now_ms)
            return
        response: HeartbeatResponse = answer  # type: ignore[assignment]  # the answer to a heartbeat
        if response.error_code:
            self._on_error(by_code(response.error_code).name, response.error_message, now_ms)
            return
        self._beats.set_interval(response.heartbeat_interval_ms, now_ms)
        self._beats.succeeded(now_ms)
        assignment = response.assignment
        self._beat_succeeded(response.member_epoch, None if assignment is None else assignment.topic_partitions)

    def _on_failure(self, error: ApiError, now_ms: float) -> None:
        self._beats.failed(now_ms)
        self._forget_sent()
        if by_name(error.name).retriable:
            self.why = str(error)
            if error.name in _COORDINATOR_LOST:
                self.coordinator_lost(str(error))
        elif error.name == "UNSUPPORTED_VERSION":
            self._fail(error.name, self._unsupported_request(error))
        else:
            self._fail(error.name, str(error))
        self._beat_failed()

    def _on_error(self, name: str, message: str | None, now_ms: float) -> None:
        self._forget_sent()
        self._beats.failed(now_ms)
        text = message or by_name(name).words
        if name in ("NOT_COORDINATOR", "COORDINATOR_NOT_AVAILABLE"):
            self.coordinator_lost(text)
            self._beats.reset()
        elif name == "COORDINATOR_LOAD_IN_PROGRESS":
            self.why = text
        elif name == "TOPIC_AUTHORIZATION_FAILED":
            self._events.append(Failed(ApiError(name, by_name(name).words)))
        elif name in ("FENCED_MEMBER_EPOCH", "UNKNOWN_MEMBER_ID"):
            if not self._fence():
                return
            self._beats.reset()
        elif name == "GROUP_ID_NOT_FOUND" and self.state is MemberState.UNSUBSCRIBED:
            self._beat_skipped()
        else:
            self._fail(name, self._fatal_text(name, message) or text)
        self._beat_failed()

    def _fatal_text(self, name: str, message: str | None) -> str | None:
        """Return the text of an error, if it is not the coordinator's."""
        if name == "GROUP_AUTHORIZATION_FAILED":
            return f"Not authorized to access group: {self.group_id}"
        if name == "INVALID_REGULAR_EXPRESSION":
            return f"Invalid RE2J SubscriptionPattern provided in the call to subscribe. {message or ''}".rstrip()
        if name == "UNSUPPORTED_VERSION":
            return self._unsupported_answer()
        return None

    @abstractmethod
    def _unsupported_request(self, error: ApiError) -> str:
        """Return the text if the coordinator does not have the request, or not its version."""

    @abstractmethod
    def _unsupported_answer(self) -> str:
        """Return the text if the coordinator does not serve the protocol."""

    def _fail(self, name: str, text: str) -> None:
        self._events.append(Failed(ApiError(name, text)))
        self._die()

    def _beat_failed(self) -> None:
        if self.state is MemberState.UNSUBSCRIBED:
            self._complete_leaving()
