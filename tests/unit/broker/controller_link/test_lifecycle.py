"""A broker's life as the controller sees it: what it sends when, and how it reacts to the answers."""

from __future__ import annotations

from kops.broker.controller_link.lifecycle import BrokerLifecycle, LifecycleSettings, Registration
from kops.broker.controller_link.status import BrokerState
from kops.errors import ApiError
from kops.protocol.errors import by_name
from kops.protocol.messages import (
    BrokerHeartbeatRequest,
    BrokerHeartbeatResponse,
    BrokerRegistrationRequest,
    BrokerRegistrationResponse,
)
from kops.protocol.messages.broker_registration_request import Feature, Listener
from tests.support.parts.controller_stub import StubChannel
from tests.support.parts.manual_loop import ManualLoop

DIR_A, DIR_B = b"\x80" + bytes(15), b"\x01" + bytes(15)
REGISTRATION = Registration(
    3, "cluster", bytes(range(16)), [Listener("PLAINTEXT", "h", 9092)], [Feature("metadata.version", 7, 30)], "rack", [DIR_B, DIR_A], 42
)
TIMED_OUT = ApiError("REQUEST_TIMED_OUT")


class World:
    """A broker's life, its clock, its controller, and the events that its owner got."""

    def __init__(self, *, cordoned: bool = False) -> None:
        self.loop = ManualLoop()
        self.channel = StubChannel()
        self.told: list[str] = []
        self.offset = 7
        self.life = BrokerLifecycle(self.loop, self, LifecycleSettings(2000, 60_000), supports_cordoned_dirs=lambda: cordoned)

    def state_changed(self, state: BrokerState) -> None:
        self.told.append(state.name)

    def caught_up(self) -> None:
        self.told.append("caught up")

    def unfenced(self) -> None:
        self.told.append("unfenced")

    def controlled_shutdown_over(self) -> None:
        self.told.append("may go")

    def must_shut_down(self, reason: str) -> None:
        self.told.append(reason)

    def start(self) -> None:
        self.life.start(self.channel, REGISTRATION, lambda: self.offset, [DIR_A])

    def beat(self, **answer: bool) -> BrokerHeartbeatRequest:
        """Answer the heartbeat in flight, and return it."""
        request = self.channel.answer(BrokerHeartbeatResponse(**answer))
        assert isinstance(request, BrokerHeartbeatRequest)
        return request

    def run(self) -> None:
        """Go on until the broker runs."""
        self.start()
        self.channel.answer(BrokerRegistrationResponse(broker_epoch=11))
        self.loop.advance()
        self.beat(is_caught_up=True)
        self.life.set_ready_to_unfence()
        self.loop.advance()
        self.beat(is_fenced=False)


def test_a_whole_life() -> None:
    world = World()
    life, loop, channel = world.life, world.loop, world.channel
    world.start()
    assert life.broker_epoch == -1
    registration = channel.answer(BrokerRegistrationResponse(broker_epoch=11))
    assert isinstance(registration, BrokerRegistrationRequest)
    assert (registration.broker_id, registration.cluster_id, registration.previous_broker_epoch) == (3, "cluster", 42)
    # Kafka compares Uuids as signed numbers.
    assert registration.log_dirs == [DIR_A, DIR_B]
    assert life.broker_epoch == 11
    loop.advance()
    first = world.beat(is_caught_up=False)
    assert (first.broker_epoch, first.current_metadata_offset, first.want_fence, first.want_shut_down) == (11, 7, True, False)
    # While the broker lags behind, it asks every 10 ms.
    loop.advance(9)
    assert channel.sent == []
    loop.advance(1)
    world.beat(is_caught_up=True)
    loop.advance(10)
    world.beat(is_caught_up=True, is_fenced=True)
    loop.advance(1999)
    assert channel.sent == []
    life.set_ready_to_unfence()
    loop.advance()
    assert world.beat(is_caught_up=True, is_fenced=False).want_fence is False
    loop.advance(2000)
    world.beat(is_fenced=False)
    life.begin_controlled_shutdown()
    loop.advance()
    assert world.beat(is_fenced=False).want_shut_down is True
    # The broker asks less and less often, and finally at the usual interval.
    for pause_ms in (50, 100, 200, 400, 800, 1600, 2000):
        loop.advance(pause_ms - 1)
        assert channel.sent == []
        loop.advance(1)
        if pause_ms < 2000:
            world.beat(is_fenced=False)
    world.beat(should_shut_down=True)
    assert world.told == [
        "STARTING",
        "RECOVERY",
        "caught up",
        "RUNNING",
        "unfenced",
        "PENDING_CONTROLLED_SHUTDOWN",
        "SHUTTING_DOWN",
        "may go",
    ]
    loop.advance(100_000)
    assert channel.sent == []
    assert loop.timer_count == 0
    assert set(channel.timeouts_ms) == {2000}


def test_a_registration_is_tried_again_at_the_pace_of_heartbeats() -> None:
    world = World()
    world.start()
    for answer in (TIMED_OUT, BrokerRegistrationResponse(error_code=by_name("DUPLICATE_BROKER_REGISTRATION").code)):
        world.channel.answer(answer)
        world.loop.advance(1999)
        assert world.channel.sent == []
        world.loop.advance(1)
        assert len(world.channel.sent) == 1
    world.channel.answer(BrokerRegistrationResponse(broker_epoch=5))
    world.loop.advance(60_000)
    assert world.told == ["STARTING"]


def test_a_broker_that_is_not_registered_in_time_has_to_end() -> None:
    world = World()
    world.start()
    world.loop.advance(59_999)
    assert world.told == ["STARTING"]
    world.loop.advance(1)
    assert world.told == ["STARTING", "Shutting down because we were unable to register with the controller quorum."]


def test_heartbeats_that_fail_come_again_and_no_sooner() -> None:
    world = World()
    world.run()
    world.loop.advance(2000)
    # Something urgent waits for the heartbeat in flight, and a failed one is not repeated at once.
    world.life.directory_failed(DIR_A, 30_000)
    world.loop.advance()
    assert world.channel.count == 4
    world.channel.answer(TIMED_OUT)
    world.loop.advance(1999)
    assert world.channel.sent == []
    world.loop.advance(1)
    world.channel.answer(BrokerHeartbeatResponse(error_code=by_name("STALE_BROKER_EPOCH").code))
    world.loop.advance(2000)
    assert world.beat(is_fenced=False).offline_log_dirs == [DIR_A]
    assert world.life.state is BrokerState.RUNNING


def test_what_becomes_urgent_under_way_is_said_right_behind_it() -> None:
    world = World()
    world.run()
    world.loop.advance(2000)
    world.life.directory_failed(DIR_A, 30_000)
    world.loop.advance()
    assert world.beat(is_fenced=False).offline_log_dirs == []
    world.loop.advance()
    assert world.beat(is_fenced=False).offline_log_dirs == [DIR_A]
    world.loop.advance(30_000)
    assert world.told[-1] == "unfenced"


def test_a_failed_directory_that_the_controller_does_not_hear_of_ends_the_broker() -> None:
    world = World()
    world.run()
    world.life.directory_failed(DIR_B, 5000)
    world.loop.advance()
    # The answer to an earlier heartbeat does not confirm it.
    world.channel.answer(TIMED_OUT)
    world.loop.advance(5000)
    assert "offline log directory" in world.told[-1]


def test_cordoned_directories_are_told_once_caught_up_where_the_cluster_knows_them() -> None:
    world = World(cordoned=True)
    world.start()
    world.channel.answer(BrokerRegistrationResponse(broker_epoch=11))
    world.loop.advance()
    assert world.beat(is_caught_up=True).cordoned_log_dirs is None
    world.loop.advance(10)
    assert world.beat(is_fenced=True).cordoned_log_dirs == [DIR_A]
    world.life.directories_cordoned([])
    world.loop.advance()
    assert world.beat(is_fenced=True).cordoned_log_dirs == []
    other = World()
    other.run()
    other.life.directories_cordoned([DIR_B])
    other.loop.advance(1999)
    assert other.channel.sent == []
    other.loop.advance(1)
    assert other.beat().cordoned_log_dirs is None


def test_a_registration_that_has_to_say_more_is_sent_again() -> None:
    world = World()
    world.run()
    world.life.resend_registration()
    world.loop.advance()
    assert isinstance(world.channel.answer(BrokerRegistrationResponse(broker_epoch=12)), BrokerRegistrationRequest)
    world.loop.advance()
    assert world.beat(is_fenced=False).broker_epoch == 12


def test_who_does_not_run_has_nothing_to_hand_over() -> None:
    world = World()
    world.start()
    world.life.begin_controlled_shutdown()
    assert world.told == ["STARTING", "SHUTTING_DOWN", "may go"]
    world.life.begin_shutdown()
    world.channel.answer(BrokerRegistrationResponse(broker_epoch=11))
    world.loop.advance(100_000)
    assert world.told == ["STARTING", "SHUTTING_DOWN", "may go"]
    assert world.life.broker_epoch == -1


def test_who_leaves_does_not_wait_for_a_controller_that_is_gone() -> None:
    world = World()
    world.run()
    world.life.begin_controlled_shutdown()
    world.loop.advance(1000)
    world.beat(is_fenced=False)
    while world.told[-1] != "may go":
        if world.channel.sent:
            world.channel.answer(TIMED_OUT)
        world.loop.advance(100)
    assert world.loop.time_ms == 10_000
    assert world.loop.timer_count == 0
