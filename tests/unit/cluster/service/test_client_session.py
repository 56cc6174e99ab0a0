"""Egress: the bytes that go out for what a service offers, and when nothing does."""

from __future__ import annotations

from random import Random

import pytest

from trimaran.cluster.service.client_session import ContainerClientSession, EgressContainer
from trimaran.service_api import LocalProtocolError
from trimaran.service_api.types import EGRESS_STREAM_ID, ClusterSessionId, TermId
from trimaran.service_api.wire.frame import encode_message
from trimaran.service_api.wire.session import SessionMessageHeader

TERM, SESSION = 3, ClusterSessionId(11)


class FakeOutlet:
    """Implements `EgressOutlet`: remembers each write."""

    def __init__(self) -> None:
        self.writes: list[bytes] = []

    def write(self, data: bytes | bytearray) -> None:
        self.writes.append(bytes(data))


class Rig:
    def __init__(self, *, max_payload_length: int = 1 << 20) -> None:
        self.closed: list[ClusterSessionId] = []
        self.container = EgressContainer(self.closed.append)
        self.container.time = 42
        self.container.open()
        self.session = ContainerClientSession(
            SESSION, b"principal", self.container, max_payload_length=max_payload_length
        )
        self.outlet = FakeOutlet()


@pytest.fixture
def rig() -> Rig:
    rig = Rig()
    rig.session.connect(rig.outlet, TERM)
    return rig


def expected(payload: bytes, *, term: int = TERM, time: int = 42) -> bytes:
    """The frames by the general encoders."""
    header = SessionMessageHeader(leadership_term_id=TermId(term), cluster_session_id=SESSION, timestamp=time)
    return encode_message(header.encode() + payload, stream_id=EGRESS_STREAM_ID, mtu_length=65504)


@pytest.mark.parametrize("length", [0, 1, 31, 32, 33, 65440, 65441, 200_000])
@pytest.mark.parametrize("is_digested", [False, True])
def test_offer_goes_out_as_the_frames_of_one_session_message(rig: Rig, length: int, is_digested: bool) -> None:
    """A message within the mtu is one frame, packed by hand; a longer one, or a digested one, takes the other way."""
    payload = Random(length).randbytes(length)
    if is_digested:
        rig.container.begin_digest()

    assert rig.session.offer(payload)
    rig.container.close()

    assert rig.outlet.writes == [expected(payload)]


@pytest.mark.parametrize("kind", [bytes, bytearray, memoryview])
def test_any_bytes_may_be_offered_and_belong_to_the_service_again_afterwards(rig: Rig, kind: type) -> None:
    source = bytearray(b"payload")

    rig.session.offer(kind(source))
    source[:] = b"changed"
    rig.container.close()

    assert rig.outlet.writes == [expected(b"payload")]


def test_everything_offered_in_a_batch_goes_out_in_one_write(rig: Rig) -> None:
    rig.session.offer(b"first")
    rig.container.time = 43
    rig.session.offer(b"x" * 100_000)
    rig.session.offer(b"last")
    assert rig.outlet.writes == []
    rig.container.close()
    rig.container.close()

    assert rig.outlet.writes == [expected(b"first") + expected(b"x" * 100_000, time=43) + expected(b"last", time=43)]


def test_each_batch_has_a_buffer_of_its_own(rig: Rig) -> None:
    """The buffer is given away with the write."""
    rig.session.offer(b"one")
    rig.container.close()
    rig.container.open()
    rig.session.offer(b"two")
    rig.container.close()

    assert rig.outlet.writes == [expected(b"one"), expected(b"two")]


@pytest.mark.parametrize("length", [5, 100_000])
def test_member_that_does_not_lead_counts_egress_and_discards_it(length: int) -> None:
    """So user code needs no role checks. Source: DESIGN §4."""
    rig = Rig()

    assert rig.session.offer(bytes(length))
    rig.container.close()

    assert rig.container.discarded_egress_count == 1
    assert rig.outlet.writes == []


def test_egress_of_a_deposed_leader_does_not_go_out(rig: Rig) -> None:
    rig.session.offer(b"uncommitted? never: but late")

    rig.session.disconnect()
    rig.container.close()

    assert rig.outlet.writes == []


def test_egress_after_a_new_connect_carries_the_new_term(rig: Rig) -> None:
    """A client drops egress of a lower term than it knows. Source: peers.md C4 class 26."""
    other = FakeOutlet()

    rig.session.connect(other, TERM + 1)
    rig.session.offer(b"reply")
    rig.container.close()

    assert rig.outlet.writes == []
    assert other.writes == [expected(b"reply", term=TERM + 1)]


@pytest.mark.parametrize("is_leading", [False, True])
def test_payload_longer_than_the_limit_is_refused_on_every_member_alike(is_leading: bool) -> None:
    """Or a service would see an error on the leader only, and its replicas drift apart."""
    rig = Rig(max_payload_length=100_000)
    if is_leading:
        rig.session.connect(rig.outlet, TERM)

    with pytest.raises(LocalProtocolError, match="length=100001 limit=100000"):
        rig.session.offer(bytes(100_001))


def test_closed_session_takes_no_more_egress_and_is_closed_once(rig: Rig) -> None:
    rig.session.close()
    rig.session.close()

    assert not rig.session.offer(b"late")
    assert rig.session.is_closing
    assert rig.closed == [SESSION]


@pytest.mark.parametrize("is_leading", [False, True])
@pytest.mark.parametrize("length", [5, 100_000])
def test_egress_offered_where_it_is_not_legal_is_refused_on_every_member_alike(is_leading: bool, length: int) -> None:
    """Not only on the leader, where the list of sessions with egress refuses it. Source: aeron.md §4.2."""
    rig = Rig()
    if is_leading:
        rig.session.connect(rig.outlet, TERM)
    rig.session.offer(b"legal")
    rig.container.close()

    with pytest.raises(LocalProtocolError, match=r"session\.offer.*log-ordered"):
        rig.session.offer(bytes(length))
    with pytest.raises(LocalProtocolError, match=r"session\.close.*log-ordered"):
        rig.session.close()
    rig.container.open()
    rig.session.offer(b"legal again")
    rig.container.close()

    assert rig.outlet.writes == ([expected(b"legal"), expected(b"legal again")] if is_leading else [])
    assert (rig.closed, rig.session.is_closing) == ([], False)
