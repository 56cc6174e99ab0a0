"""Actions in the core: what is refused, what is appended, what the leader holds back, what is rolled back."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from tests.unit.cluster.core.sessions.test_sessions import connect, lose_leadership
from tests.unit.cluster.core.snapshots.test_snapshot import action, deliver_action, open_event
from tests.unit.cluster.core.solo import Solo, of
from trimaran.cluster.core import effects as fx
from trimaran.cluster.core import events as ev
from trimaran.cluster.core.vocabulary.control_toggle import ActionStep, ControlToggle
from trimaran.cluster.core.vocabulary.held_entry import HeldEntry
from trimaran.cluster.core.vocabulary.module_state import TRANSITIONS, ModuleState
from trimaran.cluster.messages.consensus import APPEND_POSITION_FLAG_HELD
from trimaran.service_api.access.identity import Caller, CallerRole, Proof
from trimaran.service_api.authorisation import AllowAll, AuthorisationService, DefaultAuthorisation, DenyAll
from trimaran.service_api.types import ClusterSessionId, CorrelationId, TermId
from trimaran.service_api.wire.frame import HEADER_LENGTH
from trimaran.service_api.wire.log.messages import LOG_MESSAGES, ClusterAction, ClusterActionRequest, EntrySkip
from trimaran.service_api.wire.message import Message, decode_message
from trimaran.service_api.wire.session import AdminRequest, AdminRequestType, AdminResponse, AdminResponseCode

T, M, A = ControlToggle, ModuleState, ActionStep


def lead() -> Solo:
    """A leader whose first entry is committed, and taken out of the window's pending chunks."""
    solo = Solo().lead()
    commit(solo)
    return solo


def commit(solo: Solo) -> list[fx.Effect]:
    """Let everything that is appended be committed."""
    position = solo.ctx.log_buffer.append_position
    return solo.record() + solo.feed(solo.append_position(1, position))


def appended(solo: Solo) -> list[Message]:
    """Take what was appended to the log since the last look."""
    return [
        decode_message(chunk[HEADER_LENGTH:], registry=LOG_MESSAGES) for chunk in solo.ctx.log_buffer.take_pending()
    ]


def ask(solo: Solo, kind: ControlToggle, asker: int = 1) -> list[tuple[ActionStep, int | None, bool]]:
    return steps(solo.feed(ev.ActionRequested(asker, kind)))


def steps(effects: list[fx.Effect]) -> list[tuple[ActionStep, int | None, bool]]:
    return [(step.step, step.log_position, step.is_final) for step in of(effects, fx.ActionProgressed)]


def details(effects: list[fx.Effect]) -> list[str]:
    return [step.detail for step in of(effects, fx.ActionProgressed)]


def suspended() -> Solo:
    """A leader that has delivered its SUSPEND."""
    solo = lead()
    ask(solo, T.SUSPEND)
    position = solo.ctx.log_buffer.append_position
    commit(solo)
    deliver_action(solo, action(position, kind=ClusterAction.SUSPEND))
    return solo


@pytest.mark.parametrize(
    ("kind", "entry"),
    [
        (T.SUSPEND, (ClusterAction.SUSPEND, 0)),
        (T.SNAPSHOT, (ClusterAction.SNAPSHOT, 0)),
        (T.SHUTDOWN, (ClusterAction.SNAPSHOT, 0)),
    ],
)
def test_action_is_one_entry_that_says_where_it_ends(kind: ControlToggle, entry: tuple[ClusterAction, int]) -> None:
    """Source: aeron.md §3.10-§3.13."""
    solo = lead()

    told = ask(solo, kind)

    (event,) = appended(solo)
    assert isinstance(event, ClusterActionRequest)
    position = solo.ctx.log_buffer.append_position
    assert (event.action, event.flags, event.log_position) == (*entry, position)
    assert told == [(A.APPENDED, position, False)]
    assert solo.module.actions.toggle is kind


def test_abort_has_no_entry_and_stops_where_the_log_ends() -> None:
    """Source: aeron.md §3.11."""
    solo = lead()
    position = solo.ctx.log_buffer.append_position

    told = ask(solo, T.ABORT)

    assert appended(solo) == []
    assert told == [(A.APPENDED, position, False), (A.COMMITTED, position, False)]


@pytest.mark.parametrize("kind", [T.SUSPEND, T.SNAPSHOT, T.SHUTDOWN, T.ABORT, T.STANDBY_SNAPSHOT, T.RESUME])
def test_follower_refuses_every_action_and_says_who_leads(kind: ControlToggle) -> None:
    solo = Solo(terms=[(0, 0, 64)]).follow(leader_id=2)

    effects = solo.feed(ev.ActionRequested(7, kind))

    assert effects == [
        fx.ActionProgressed(7, A.REFUSED, None, "not the leader: leader_member_id=2", None, is_final=True)
    ]
    assert solo.module.actions.toggle is T.INACTIVE


@pytest.mark.parametrize("kind", [T.SUSPEND, T.SNAPSHOT, T.SHUTDOWN, T.ABORT])
def test_second_action_is_refused_while_one_is_under_way(kind: ControlToggle) -> None:
    """The toggle is set from NEUTRAL alone. Source: aeron.md §3.13."""
    solo = lead()
    ask(solo, T.SNAPSHOT)
    appended(solo)

    effects = solo.feed(ev.ActionRequested(2, kind))

    assert steps(effects) == [(A.REFUSED, None, True)]
    assert details(effects) == ["another action is pending: toggle=SNAPSHOT: ask again when it is over"]
    assert appended(solo) == []


@pytest.mark.parametrize("kind", [T.SUSPEND, T.SNAPSHOT, T.SHUTDOWN, T.ABORT])
def test_what_an_operator_asks_for_waits_for_the_leaders_own_snapshot(kind: ControlToggle) -> None:
    """Nobody can know when the schedule takes one, so it is no reason to refuse."""
    solo = lead()
    solo.feed(ev.ActionRequested(None, T.SNAPSHOT, reason="scheduled"))
    position = solo.ctx.log_buffer.append_position

    waiting = solo.feed(ev.ActionRequested(2, kind))
    late = solo.feed(ev.ActionRequested(3, T.SUSPEND))
    commit(solo)
    deliver_action(solo, action(position))
    begun = solo.feed(ev.SnapshotTaken(position, (7,), 8))

    assert steps(waiting) == steps(late) == []
    assert solo.module.actions.toggle is kind
    assert [step.step for step in of(begun, fx.ActionProgressed) if step.request_id == 2][:1] == [A.APPENDED]
    assert [step.step for step in of(begun, fx.ActionProgressed) if step.request_id == 3] == [A.REFUSED]


def test_what_waits_for_a_snapshot_is_refused_when_the_leader_loses_its_place() -> None:
    solo = lead()
    solo.feed(ev.ActionRequested(None, T.SNAPSHOT, reason="scheduled"))
    solo.feed(ev.ActionRequested(2, T.SNAPSHOT))

    effects = lose_leadership(solo)

    assert steps(effects) == [(A.REFUSED, None, True)]


@pytest.mark.parametrize(
    ("kind", "detail"),
    [
        (T.SUSPEND, "the cluster is suspended: resume it first"),
        (T.SNAPSHOT, "the cluster is suspended: resume it first"),
        (T.SHUTDOWN, "the cluster is suspended: resume it first"),
    ],
)
def test_suspended_cluster_takes_no_action_but_resume_and_abort(kind: ControlToggle, detail: str) -> None:
    """So no snapshot is taken of a suspended cluster, whose state snapshots do not hold."""
    solo = suspended()

    effects = solo.feed(ev.ActionRequested(2, kind))

    assert details(effects) == [detail]
    assert ask(solo, T.ABORT)[0][0] is A.APPENDED


@pytest.mark.parametrize("leader", [lead, suspended])
def test_a_standby_snapshot_is_refused_without_an_entry(leader: Callable[[], Solo]) -> None:
    """Nobody would take it."""
    solo = leader()
    appended(solo)

    effects = solo.feed(ev.ActionRequested(2, T.STANDBY_SNAPSHOT))

    assert steps(effects) == [(A.REFUSED, None, True)]
    assert details(effects) == [
        "this cluster has no standby: add one with `trimaran member add --standby`, or have every member take a "
        "snapshot with `trimaran snapshot take`"
    ]
    assert appended(solo) == []


def test_resume_is_refused_where_nothing_is_suspended() -> None:
    solo = lead()

    assert ask(solo, T.RESUME) == [(A.REFUSED, None, True)]


def test_suspended_leader_appends_nothing_and_keeps_beating() -> None:
    """Source: aeron.md §3.1."""
    solo = lead()
    solo.module.on_replay_session_open(open_event(1), 64)
    solo.module.timers.schedule(30, 0)
    effects = solo.feed(ev.ActionRequested(1, T.SUSPEND))
    assert of(effects, fx.HoldIngress) == [fx.HoldIngress(is_held=True)]
    commit(solo)

    solo.feed(connect(7))
    for _ in range(200):  # longer than a session lives
        solo.wait(solo.ctx.config.session_timeout_ns // 100)
        solo.feed(solo.append_position(1, solo.ctx.append_position))

    assert appended(solo) == []
    assert solo.module.leader is not None


def test_resume_does_what_was_held_and_gives_sessions_their_time_again() -> None:
    solo = suspended()
    solo.module.on_replay_session_open(open_event(1), 64)
    solo.module.timers.schedule(30, 0)
    solo.feed(connect(7))
    for _ in range(200):
        solo.wait(solo.ctx.config.session_timeout_ns // 100)
        solo.feed(solo.append_position(1, solo.ctx.append_position))

    effects = solo.feed(ev.ActionRequested(2, T.RESUME))
    entries = appended(solo)
    solo.wait(200_000_000)

    assert of(effects, fx.HoldIngress) == [fx.HoldIngress(is_held=False)]
    assert [type(entry).__name__ for entry in entries] == ["ClusterActionRequest", "SessionOpenEvent"]
    assert [type(entry).__name__ for entry in appended(solo)] == ["TimerEvent"]
    assert solo.module.actions.state is M.ACTIVE


# --- rolled back


@pytest.mark.parametrize("kind", [T.SUSPEND, T.SNAPSHOT, T.SHUTDOWN, T.ABORT])
def test_action_that_did_not_commit_is_rolled_back_and_whoever_asked_is_told_that_it_is_open(
    kind: ControlToggle,
) -> None:
    """Source: aeron.md §3.12."""
    solo = Solo().lead()
    ask(solo, kind)

    effects = lose_leadership(solo)

    assert [(step, is_final) for step, _, is_final in steps(effects)] == [(A.UNKNOWN, True)]
    actions = solo.module.actions
    assert (actions.state, actions.toggle, actions.is_holding) == (M.ACTIVE, T.INACTIVE, False)


def test_resume_that_did_not_commit_is_rolled_back_to_suspended() -> None:
    """Source: aeron.md §3.12."""
    solo = suspended()
    ask(solo, T.RESUME)

    lose_leadership(solo)

    assert solo.module.actions.state is M.SUSPENDED


def test_client_that_was_held_is_sent_elsewhere_when_leadership_is_lost() -> None:
    solo = suspended()
    solo.feed(connect(7))

    effects = lose_leadership(solo)

    assert [effect.connection_id for effect in of(effects, fx.SendToClient)] == [7]


def test_action_that_a_deposed_leader_appended_is_done_when_it_is_delivered_after_all() -> None:
    solo = Solo().lead()
    ask(solo, T.SUSPEND)
    position = solo.ctx.log_buffer.append_position
    lose_leadership(solo)

    _, effects = deliver_action(solo, action(position, kind=ClusterAction.SUSPEND))

    assert solo.module.actions.state is M.SUSPENDED
    assert steps(effects) == []


def test_snapshot_that_a_deposed_leader_is_taking_goes_on() -> None:
    solo = lead()
    ask(solo, T.SNAPSHOT)
    position = solo.ctx.log_buffer.append_position
    deliver_action(solo, action(position))
    lose_leadership(solo)

    effects = solo.feed(ev.SnapshotTaken(position, (4,), 5))

    assert steps(effects) == []
    assert solo.module.actions.state is M.ACTIVE


def test_every_state_but_the_last_can_be_left_and_each_can_be_reached() -> None:
    reached = {state for states in TRANSITIONS.values() for state in states}

    assert set(TRANSITIONS) == set(M)
    assert reached == set(M) - {M.INIT}
    assert [state for state, following in TRANSITIONS.items() if not following] == [M.CLOSED]


# --- a client asks


def admin(session_id: int = 1, *, connection_id: int = 7) -> ev.ClientAdmin:
    request = AdminRequest(
        leadership_term_id=TermId(0),
        cluster_session_id=ClusterSessionId(session_id),
        correlation_id=CorrelationId(99),
        request_type=AdminRequestType.SNAPSHOT,
    )
    return ev.ClientAdmin(connection_id, request)


def with_session(solo: Solo) -> Solo:
    solo.module.on_replay_session_open(open_event(1, principal=b"ops"), 64)
    solo.module.sessions.bind(7, ClusterSessionId(1))
    return solo


def answers(effects: list[fx.Effect]) -> list[tuple[int, AdminResponseCode | None, int]]:
    return [
        (effect.connection_id, effect.message.response_code, effect.message.correlation_id)
        for effect in of(effects, fx.SendToClient)
        if isinstance(effect.message, AdminResponse)
    ]


def test_admin_request_is_denied_unless_somebody_allows_it() -> None:
    """Source: aeron.md §3.6, §3.7."""
    solo = with_session(lead())

    effects = solo.feed(admin())

    assert answers(effects) == [(7, AdminResponseCode.UNAUTHORISED_ACCESS, 99)]
    assert appended(solo) == []


@pytest.mark.parametrize("authorisation", [DefaultAuthorisation(), DenyAll()])
def test_admin_request_of_a_caller_whose_role_permits_it_needs_no_authorisation(
    authorisation: AuthorisationService,
) -> None:
    """An operator's certificate was worth nothing over a session: only the principal was looked at."""
    solo = with_session(lead())
    solo.ctx.authorisation = authorisation

    effects = solo.feed(replace(admin(), is_permitted=True))

    assert answers(effects) == []
    assert solo.module.actions.toggle is ControlToggle.SNAPSHOT


@pytest.mark.parametrize(
    ("payload", "said"),
    [
        (b"\x07\x00\x00\x00", "member_id=7 expected one of [1, 2]"),
        (b"", "no other member"),
        (b"1", "admin request"),
    ],
)
def test_client_may_ask_for_a_hand_over_and_hears_why_not(payload: bytes, said: str) -> None:
    solo = with_session(lead())
    request = admin().request.model_copy(update={"request_type": AdminRequestType.TRANSFER, "payload": payload})

    effects = solo.feed(replace(admin(), request=request, is_permitted=True))

    (answer,) = [sent.message for sent in of(effects, fx.SendToClient) if isinstance(sent.message, AdminResponse)]
    assert (answer.response_code, answer.correlation_id) == (AdminResponseCode.ERROR, 99)
    assert answer.request_type is AdminRequestType.TRANSFER
    assert said in answer.message


def test_admin_requests_are_told_to_the_audit_trail_with_who_asked_and_what_came_of_it() -> None:
    solo, caller = with_session(lead()), Caller(CallerRole.OPERATOR, "olga", Proof.CERTIFICATE)
    asker = ev.AdminAsker(ClusterSessionId(1), CorrelationId(99), b"ops", caller, "10.0.0.9")
    asked = replace(admin(), caller=caller, address="10.0.0.9")

    refused = of(solo.feed(asked), fx.AdminProgressed)
    begun = of(solo.feed(replace(asked, is_permitted=True)), fx.AdminProgressed)
    busy = of(solo.feed(replace(asked, is_permitted=True)), fx.AdminProgressed)
    position = solo.ctx.log_buffer.append_position
    commit(solo)
    deliver_action(solo, action(position))
    ended = of(solo.feed(ev.SnapshotTaken(position, (4,), 5)), fx.AdminProgressed)

    assert [(step.asker, step.step) for step in refused] == [(asker, A.REFUSED)]
    assert [(step.asker, step.step) for step in begun] == [(asker, None)]
    assert [step.step for step in busy] == [A.REFUSED], "one line, which is limited: a client may ask without end"
    assert [(step.asker, step.step, step.log_position) for step in ended] == [(asker, A.DONE, position)]


def test_admin_request_is_answered_with_an_error_when_another_action_is_under_way() -> None:
    solo = with_session(lead())
    solo.ctx.authorisation = AllowAll()
    ask(solo, T.SNAPSHOT)

    assert answers(solo.feed(admin())) == [(7, AdminResponseCode.ERROR, 99)]


def test_admin_request_of_an_unknown_type_is_answered_with_an_error() -> None:
    """ClusterTest.shouldRejectAnInvalidAdminRequest."""
    solo = with_session(lead())
    solo.ctx.authorisation = AllowAll()
    known = admin()
    unknown = ev.ClientAdmin(known.connection_id, known.request.model_copy(update={"request_type": None}))

    effects = solo.feed(unknown)

    assert answers(effects) == [(7, AdminResponseCode.ERROR, 99)]
    assert appended(solo) == []
    assert solo.module.actions.toggle is ControlToggle.NEUTRAL


def test_admin_request_on_another_sessions_connection_is_not_taken() -> None:
    solo = with_session(lead())
    solo.ctx.authorisation = AllowAll()

    effects = solo.feed(admin(connection_id=8))

    assert answers(effects) == []
    assert appended(solo) == []


# --- an entry is skipped


def held_leader() -> Solo:
    """A leader whose service stands before the entry that ends at 64."""
    solo = Solo()
    solo.ctx.held = HeldEntry(64, "on_request", "MemoryError()")
    solo.lead()
    commit_held(solo)
    solo.ctx.log_buffer.take_pending()
    return solo


def commit_held(solo: Solo) -> list[fx.Effect]:
    """Let everything be committed by followers that hold, too."""
    report = solo.append_position(1, solo.ctx.log_buffer.append_position)
    return solo.record() + solo.feed(report.model_copy(update={"flags": APPEND_POSITION_FLAG_HELD}))


def skip(solo: Solo, position: int) -> list[fx.Effect]:
    return solo.feed(ev.ActionRequested(1, T.SKIP_ENTRY, position))


def test_a_leader_that_holds_appends_the_skip_and_is_done_when_it_is_committed() -> None:
    solo = held_leader()

    told = steps(skip(solo, 64))

    (chunk,) = solo.ctx.log_buffer.take_pending()
    event = EntrySkip.decode(chunk[HEADER_LENGTH:])
    position = solo.ctx.log_buffer.append_position
    assert (event.skipped_log_position, event.log_position, event.action) == (64, position, None)
    assert told == [(A.APPENDED, position, False)]
    assert steps(commit_held(solo)) == [(A.COMMITTED, position, False), (A.DONE, position, True)]


def test_a_leader_that_holds_takes_no_clients_and_no_other_action_but_an_abort() -> None:
    solo = held_leader()

    assert solo.module.actions.is_holding
    for kind in (T.SNAPSHOT, T.SUSPEND, T.SHUTDOWN):
        assert ask(solo, kind) == [(A.REFUSED, None, True)]
    assert ask(solo, T.ABORT)[0][0] is A.APPENDED


def test_only_the_entry_before_which_the_leader_holds_can_be_skipped() -> None:
    assert "expected=64" in details(skip(held_leader(), 96))[0]
    assert "the leader has delivered the log" in details(skip(lead(), 64))[0]
    assert "not the leader" in details(skip(Solo(terms=[(0, 0, 64)]).follow(leader_id=2), 64))[0]


@pytest.mark.parametrize(("flags", "is_led_on"), [(0, False), (2, True), (1, True), (3, True)])
def test_a_leader_that_holds_gives_way_to_a_follower_that_delivers(flags: int, is_led_on: bool) -> None:
    solo = held_leader()
    report = solo.append_position(1, solo.ctx.log_buffer.append_position)

    solo.feed(report.model_copy(update={"flags": flags}))

    assert (solo.module.leader is not None) is is_led_on


def test_no_snapshot_is_taken_between_a_skipped_entry_and_the_skip() -> None:
    """One that is there is of a member that did not know of the skip, and is not used."""
    solo = lead()
    solo.ctx.skipped_entries = {64: 4096}

    stands_still, _ = deliver_action(solo, action(1024))

    assert not stands_still
