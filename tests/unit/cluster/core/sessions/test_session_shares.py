"""Shares of the sessions: one principal, or one address, leaves sessions to the others."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from random import Random
from typing import Final

import pytest

from tests.facts import has_facts
from tests.unit.cluster.core.node import MS
from tests.unit.cluster.core.sessions.test_pending_sessions import Doorman, admit, answer_of, ask, connect, pending
from tests.unit.cluster.core.sessions.test_sessions import appended, codes, deliver, lose_leadership
from tests.unit.cluster.core.solo import Solo
from trimaran.cluster.core import effects as fx
from trimaran.cluster.core import events as ev
from trimaran.cluster.core.sessions.pending_sessions import NO_ADDRESS, holder_of
from trimaran.cluster.runtime.ground.authenticator import GuardedAuthenticator
from trimaran.service_api.authenticator import SessionProxy
from trimaran.service_api.wire.session import EventCode

SHARE: Final = 2


def admit_nobody_in_particular(proxy: SessionProxy) -> None:
    proxy.authenticate(b"")


def leader(doorman: Doorman) -> Solo:
    solo = Solo(leader_heartbeat_timeout_ns=60_000 * MS, session_limit=8, client_session_limit=SHARE).lead()
    solo.ctx.authenticator = GuardedAuthenticator(doorman)
    return solo


def connect_from(address: str, connection_id: int) -> ev.ClientConnect:
    return replace(connect(connection_id, correlation_id=connection_id), address=address)


def is_refused(effects: list[fx.Effect]) -> bool:
    return EventCode.ERROR in codes(effects)


def test_an_address_of_clients_without_a_principal_has_a_share() -> None:
    solo = leader(Doorman(admit_nobody_in_particular))
    for connection_id in range(SHARE):
        assert not is_refused(solo.feed(connect_from("10.0.0.1", connection_id)))

    refusal = answer_of(solo.feed(connect_from("10.0.0.1", 7)))

    assert refusal.code is EventCode.ERROR
    assert has_facts(
        refusal.detail, "address='10.0.0.1'", f"sessions={SHARE}", f"limit={SHARE}", "client_session_limit"
    )
    assert not is_refused(solo.feed(connect_from("10.0.0.2", 8)))


def test_a_principal_has_one_share_at_all_addresses_and_others_at_its_address_have_theirs() -> None:
    doorman = Doorman(admit)
    solo = leader(doorman)
    for connection_id in range(SHARE):
        solo.feed(connect_from(f"10.0.0.{connection_id}", connection_id))

    refusal = answer_of(solo.feed(connect_from("10.0.0.9", 7)))
    doorman.at_first = lambda proxy: proxy.authenticate(b"bob")

    assert has_facts(refusal.detail, "principal=b'alice'", f"sessions={SHARE}", f"limit={SHARE}")
    assert not is_refused(solo.feed(connect_from("10.0.0.0", 8)))


def test_a_certificate_has_a_share_too() -> None:
    solo = leader(Doorman(admit))
    for connection_id in range(SHARE):
        assert not is_refused(solo.feed(replace(connect(connection_id), certified_principal=b"app")))

    assert is_refused(solo.feed(replace(connect(7), certified_principal=b"app")))


def test_pending_sessions_of_one_address_leave_room_for_others() -> None:
    solo = leader(Doorman(ask))
    for connection_id in range(SHARE):
        solo.feed(connect_from("10.0.0.1", connection_id))

    refusal = answer_of(solo.feed(connect_from("10.0.0.1", 7)))
    solo.feed(connect_from("10.0.0.2", 8))

    assert has_facts(refusal.detail, "address='10.0.0.1'", f"sessions={SHARE}", f"limit={SHARE}")
    assert pending(solo) == SHARE + 1
    solo.feed(ev.ClientDisconnected(0))
    assert not is_refused(solo.feed(connect_from("10.0.0.1", 9)))


def test_clients_of_no_known_address_have_no_share() -> None:
    solo = leader(Doorman(admit_nobody_in_particular))

    refused = [is_refused(solo.feed(connect_from(NO_ADDRESS, number))) for number in range(9)]

    assert refused == [False] * 8 + [True]


def test_a_new_leader_knows_the_shares_of_principals() -> None:
    """The log holds principals, not addresses."""
    solo = leader(Doorman(admit))
    for connection_id in range(SHARE):
        solo.feed(connect_from("10.0.0.1", connection_id))
        deliver(solo, *appended(solo))
    sessions = [replace(one, address=NO_ADDRESS) for one in solo.module.sessions.sessions.values()]
    other = leader(Doorman(admit))
    other.module.sessions.restore(sessions, next_session_id=SHARE + 1)

    assert is_refused(other.feed(connect_from("10.0.0.2", 7)))


def test_what_never_committed_gives_its_share_back() -> None:
    solo = leader(Doorman(admit))
    for connection_id in range(SHARE):
        solo.feed(connect_from("10.0.0.1", connection_id))

    lose_leadership(solo)

    assert not solo.module.sessions._client_counts


@pytest.mark.parametrize("seed", range(4))
def test_shares_are_the_sessions_that_there_are_in_any_order(seed: int) -> None:
    random, doorman = Random(seed), Doorman()
    solo = leader(doorman)
    sessions = solo.module.sessions
    for connection_id in range(60):
        principal = random.choice((b"", b"alice", b"bob"))
        doorman.at_first = lambda proxy, principal=principal: proxy.authenticate(principal)
        solo.feed(connect_from(random.choice(("10.0.0.1", "10.0.0.2")), connection_id))
        deliver(solo, *appended(solo))
        if random.random() < 0.5 and sessions.sessions:
            sessions.on_service_close(random.choice([*sessions.sessions]))
            solo.wait(20 * MS)
        counts = Counter(holder_of(one.encoded_principal, one.address) for one in sessions.sessions.values())
        assert counts == sessions._client_counts
        assert max(counts.values(), default=0) <= SHARE
