"""Cluster time counts in the unit that the log names, so that a log that Aeron began goes on in its own."""

from __future__ import annotations

import pytest

from tests.unit.cluster.core.node import MS
from tests.unit.cluster.core.solo import Solo
from tests.unit.cluster.core.vocabulary.test_terms import START, appended
from trimaran.cluster.core import events as ev
from trimaran.service_api.types import TICKS_PER_MS, MemberId, TermId, TimeUnit
from trimaran.service_api.wire.log.code_digest import UNKNOWN_CODE
from trimaran.service_api.wire.log.messages import NewLeadershipTermEvent, TimerEvent


def term_event(time_unit: TimeUnit | None) -> NewLeadershipTermEvent:
    return NewLeadershipTermEvent(
        leadership_term_id=TermId(0),
        log_position=96,
        timestamp=5,
        term_base_log_position=0,
        leader_member_id=MemberId(2),
        log_session_id=1,
        time_unit=time_unit,
        app_version=1,
    )


def leader_of(time_unit: TimeUnit | None) -> Solo:
    """A leader whose log began in this unit: it has delivered the entry before it appends its own."""
    solo = Solo(terms=START).reach_leader_log_replication()
    solo.feed(solo.append_position(1, 640))
    solo.module.on_replay_new_leadership_term(term_event(time_unit), UNKNOWN_CODE)
    solo.feed(ev.ReplayDone(640, 5))
    return solo


@pytest.mark.parametrize("time_unit", [*TimeUnit, None])
def test_leader_goes_on_in_the_unit_of_the_log(time_unit: TimeUnit | None) -> None:
    """A log from before Aeron named the unit counts in milliseconds. Source: aeron.md §4.5."""
    solo = leader_of(time_unit)

    (event,) = appended(solo)

    unit = TimeUnit.MILLIS if time_unit is None else time_unit
    assert isinstance(event, NewLeadershipTermEvent)
    assert (event.time_unit, event.timestamp) == (unit, solo.timestamp * TICKS_PER_MS[unit])


@pytest.mark.parametrize("time_unit", [*TimeUnit])
def test_timer_fires_at_its_deadline_in_the_unit_of_the_log(time_unit: TimeUnit) -> None:
    solo, ticks = leader_of(time_unit), TICKS_PER_MS[time_unit]
    appended(solo)
    deadline = (solo.timestamp + 30) * ticks
    solo.module.timers.schedule(1, deadline)

    solo.wait(29 * MS)
    early = appended(solo)
    solo.wait(2 * MS)

    (event,) = [found for found in appended(solo) if isinstance(found, TimerEvent)]
    assert early == []
    assert deadline <= event.timestamp <= deadline + ticks
