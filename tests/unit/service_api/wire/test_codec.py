"""The models as a source of code: refused at import, surviving a round trip, refused from a bad peer."""

from __future__ import annotations

import linecache
import struct
import types
from enum import IntEnum
from typing import Annotated, Any, ClassVar

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel, ValidationError

import trimaran.archive.format.messages
import trimaran.cluster.messages
from trimaran.cluster.messages import AppendPosition, BackupResponse, CanvassPosition, SnapshotRecording, Vote
from trimaran.service_api.errors import LocalProtocolError, RemoteProtocolError
from trimaran.service_api.types import CorrelationId, MemberId, RecordingId, TermId
from trimaran.service_api.wire.fields import (
    At,
    BlockField,
    Data,
    GroupField,
    Int64,
    MessageLayout,
    Since,
    Text,
    Wire,
)
from trimaran.service_api.wire.message import (
    MESSAGES,
    ClusterMessage,
    GroupElement,
    PassedOverMessage,
    decode_message,
    registry_of,
)
from trimaran.service_api.wire.session import (
    EventCode,
    SessionConnectRequest,
    SessionEvent,
    SessionKeepAlive,
    SessionMessageHeader,
)
from trimaran.service_api.wire.versioned import build

ALL = sorted(
    (model for model in MESSAGES.values() if model.__module__.startswith("trimaran.")),
    key=lambda model: (model.SCHEMA_ID, model.TEMPLATE_ID),
)
MODULES = (trimaran.archive.format.messages, trimaran.cluster.messages)

NUMBERS = {
    "q": (-(1 << 63), (1 << 63) - 1),
    "i": (-(1 << 31), (1 << 31) - 1),
    "b": (-128, 127),
    "B": (0, 254),
}
ASCII = st.text(st.characters(max_codepoint=127), max_size=40)


def a_connect_request() -> SessionConnectRequest:
    return SessionConnectRequest(
        correlation_id=CorrelationId(7),
        response_stream_id=102,
        response_channel="abc",
        encoded_credentials=b"xy",
    )


def values_of(field: BlockField) -> st.SearchStrategy[Any]:
    if field.values is not None:
        return st.sampled_from([None, *(meaning for _, meaning in field.values)])
    low, high = NUMBERS[field.format]
    if field.null == 0:
        low = 0
    if field.optional:
        return st.none() | st.integers(low, high).filter(lambda value: value != field.null)
    return st.integers(low, high)


def models(model: type[BaseModel], layout: MessageLayout) -> st.SearchStrategy[Any]:
    fields: dict[str, st.SearchStrategy[Any]] = {field.name: values_of(field) for field in layout.block}
    fields |= {group.name: elements_of(group) for group in layout.groups}
    fields |= {var.name: ASCII if var.is_text else st.binary(max_size=40) for var in layout.var_data}
    return st.builds(model, **fields)


def elements_of(group: GroupField) -> st.SearchStrategy[tuple[Any, ...]]:
    return st.lists(models(group.element, group.layout), max_size=3).map(tuple)


@given(st.data())
def test_decode_gives_back_what_was_encoded(data: st.DataObject) -> None:
    model = data.draw(st.sampled_from(ALL))
    message = data.draw(models(model, model.LAYOUT))

    decoded = decode_message(message.encode())

    assert decoded == message
    assert type(decoded) is model
    assert model.model_validate(decoded.model_dump()) == message
    assert decoded.encode() == message.encode()
    assert hash(decoded) == hash(message)
    assert repr(decoded) == repr(message)
    assert decoded.model_fields_set == set(model.model_fields)


@given(st.data())
def test_random_bytes_are_decoded_or_refused(data: st.DataObject) -> None:
    model = data.draw(st.sampled_from(ALL))
    header = struct.pack("<HHHH", model.LAYOUT.block_length, model.TEMPLATE_ID, model.SCHEMA_ID, model.SCHEMA_VERSION)
    body = data.draw(st.binary(max_size=200))

    try:
        message = decode_message(header + body)
    except RemoteProtocolError:
        return
    assert type(message) is model


def test_messages_are_frozen_strict_and_without_surprises() -> None:
    vote = Vote(
        candidate_term_id=TermId(1),
        log_leadership_term_id=TermId(0),
        log_position=64,
        candidate_member_id=MemberId(0),
        follower_member_id=MemberId(1),
        vote=True,
    )

    with pytest.raises(ValidationError, match="frozen"):
        vote.vote = False  # type: ignore[misc] # a frozen field is what this tests
    with pytest.raises(ValidationError, match="frozen"):
        Vote.decode(vote.encode()).vote = False  # type: ignore[misc] # likewise, on a decoded one
    fields = vote.model_dump()
    for name, value in (("log_position", "64"), ("log_position", 1 << 63), ("vote", 1), ("surprise", 1)):
        with pytest.raises(ValidationError):
            Vote.model_validate(fields | {name: value})


def test_a_trusted_message_is_the_one_that_the_constructor_makes() -> None:
    fields = {"leadership_term_id": 1, "log_position": 64, "follower_member_id": 2, "flags": None}

    trusted, checked = build(AppendPosition, dict(fields)), AppendPosition.model_validate(fields)

    assert trusted == checked
    assert (trusted.encode(), repr(trusted), trusted.model_dump()) == (
        checked.encode(),
        repr(checked),
        checked.model_dump(),
    )
    with pytest.raises(ValidationError):
        trusted.log_position = 0  # type: ignore[misc]


def test_copies_of_decoded_messages_work() -> None:
    request = SessionConnectRequest.decode(a_connect_request().encode())

    changed = request.model_copy(update={"client_info": "name=x"})

    assert changed.client_info == "name=x"
    assert SessionConnectRequest.decode(changed.encode()) == changed
    assert request.client_info == ""


def test_a_huge_data_length_is_refused_before_anything_is_stored() -> None:
    data = bytearray(a_connect_request().encode())
    data[24:28] = b"\xff\xff\xff\xff"

    with pytest.raises(
        RemoteProtocolError, match=r"SessionConnectRequest.response_channel: length=4294967295 available="
    ):
        SessionConnectRequest.decode(data)


def test_a_huge_group_count_is_refused_before_anything_is_stored() -> None:
    empty = BackupResponse.decode(
        BackupResponse(
            correlation_id=CorrelationId(1),
            log_recording_id=RecordingId(0),
            log_leadership_term_id=TermId(0),
            log_term_base_log_position=0,
            last_leadership_term_id=TermId(0),
            last_term_base_log_position=0,
            commit_position_counter_id=0,
            leader_member_id=MemberId(0),
        ).encode()
    )
    data = bytearray(empty.encode())
    data[70:72] = b"\xff\xff"
    with pytest.raises(RemoteProtocolError, match="snapshots: length=2883540 available=4"):
        BackupResponse.decode(data)
    data[68:70] = b"\x01\x00"
    with pytest.raises(RemoteProtocolError, match="snapshots: block_length=1 expected=44"):
        BackupResponse.decode(data)


def test_more_elements_than_a_group_can_hold_are_the_callers_fault() -> None:
    element = SnapshotRecording(
        recording_id=RecordingId(1),
        leadership_term_id=TermId(1),
        term_base_log_position=0,
        log_position=0,
        timestamp=0,
        service_id=-1,
    )
    message = trimaran.cluster.messages.SnapshotRecordings(
        correlation_id=CorrelationId(1), snapshots=(element,) * 65535
    )

    with pytest.raises(LocalProtocolError, match="count=65535 limit=65534"):
        message.encode()


def test_newer_group_elements_are_skipped_over() -> None:
    element = SnapshotRecording(
        recording_id=RecordingId(1),
        leadership_term_id=TermId(2),
        term_base_log_position=3,
        log_position=4,
        timestamp=5,
        service_id=-1,
    )
    message = trimaran.cluster.messages.SnapshotRecordings(
        correlation_id=CorrelationId(1), snapshots=(element, element), member_endpoints="abc"
    )
    data = bytearray(message.encode())
    data[16:18] = (52).to_bytes(2, "little")
    for start in (20 + 44, 20 + 52 + 44):
        data[start:start] = bytes(8)

    assert trimaran.cluster.messages.SnapshotRecordings.decode(data) == message


def test_unknown_enum_value_is_named() -> None:
    event = SessionEvent.decode(
        SessionEvent.model_validate(
            {
                "cluster_session_id": 1,
                "correlation_id": 2,
                "leadership_term_id": 3,
                "leader_member_id": 0,
                "code": EventCode.OK,
            }
        ).encode()
    )
    data = bytearray(event.encode())
    data[36:40] = (9).to_bytes(4, "little")

    with pytest.raises(RemoteProtocolError, match=r"SessionEvent.code: value=9 expected.* \[0, 1, 2, 3, 4\]"):
        SessionEvent.decode(data)
    data[6:8] = (17).to_bytes(2, "little")
    with pytest.raises(RemoteProtocolError, match=r"SessionEvent.code: value=9 expected.* \[0, 1, 2, 3, 4\]"):
        SessionEvent.decode(data)


def test_wrong_template_schema_and_offsets_are_named() -> None:
    data = a_connect_request().encode()

    with pytest.raises(RemoteProtocolError, match="CanvassPosition: template_id=3 expected=50"):
        CanvassPosition.decode(data)
    with pytest.raises(RemoteProtocolError, match="CanvassPosition: template_id=3 expected=50"):
        CanvassPosition.unpack(data)
    with pytest.raises(RemoteProtocolError, match="Ping: schema_id=111 expected=101"):
        trimaran.archive.format.messages.Ping.decode(data)
    with pytest.raises(RemoteProtocolError, match="offset=-8"):
        SessionConnectRequest.decode(data, -8)
    with pytest.raises(RemoteProtocolError, match="SessionConnectRequest: length=1000"):
        SessionConnectRequest.decode(data, 0, 1000)
    with pytest.raises(RemoteProtocolError, match="message header: length=8 available=7"):
        decode_message(data[:7])


def test_block_too_short_for_its_version_is_refused() -> None:
    data = bytearray(a_connect_request().encode())
    data[0:2] = (12).to_bytes(2, "little")

    with pytest.raises(RemoteProtocolError, match="block_length=12 version=16 field=version needs=16"):
        SessionConnectRequest.decode(data)


def test_a_registry_accepts_its_own_messages_only() -> None:
    vote = CanvassPosition(
        log_leadership_term_id=TermId(1),
        log_position=0,
        leadership_term_id=TermId(1),
        follower_member_id=MemberId(2),
    ).encode()

    assert type(decode_message(vote)) is CanvassPosition
    with pytest.raises(RemoteProtocolError, match="unknown message: schema_id=111 template_id=50"):
        decode_message(vote, registry=registry_of(SessionConnectRequest, SessionKeepAlive))
    assert decode_message(vote, registry=registry_of(CanvassPosition)).encode() == vote


def test_session_message_header_is_exactly_32_bytes() -> None:
    header = bytes.fromhex("180001006f001000") + struct.pack("<qqq", 3, -5, 9)

    assert len(header) == 32
    assert SessionMessageHeader.unpack(header + b"payload") == (3, -5, 9)
    assert SessionMessageHeader.decode(header + b"payload").encode() == header


def test_generated_code_is_visible_to_tracebacks() -> None:
    source = linecache.getline("<codec trimaran.service_api.wire.session.SessionConnectRequest>", 1)

    assert source == "def encode(self):\n"


def test_a_schema_is_not_a_message() -> None:
    with pytest.raises(LocalProtocolError, match="ClusterMessage"):
        ClusterMessage.decode(b"")
    with pytest.raises(LocalProtocolError, match="ClusterMessage"):
        ClusterMessage.unpack(b"")
    with pytest.raises(LocalProtocolError, match="ClusterMessage"):
        ClusterMessage().encode()


class Colour(IntEnum):
    RED = 1


class Inner(GroupElement):
    number: Int64


class Nested(GroupElement):
    inner: tuple[Inner, ...] = ()


@pytest.mark.parametrize(
    ("annotations", "defaults", "reason"),
    [
        ({"number": int}, {}, "no wire type"),
        ({"number": float}, {}, "no wire type"),
        ({"number": Int64 | str}, {}, "unsupported annotation"),
        ({"colour": Colour}, {}, "must allow None"),
        ({"flag": bool}, {}, "must allow None"),
        ({"colour": Annotated[Colour | None, Wire("text")]}, {}, "a number"),
        ({"text": Text, "number": Int64}, {}, "this order"),
        ({"text": Text, "inner": tuple[Inner, ...]}, {}, "this order"),
        ({"text": Text | None}, {}, "cannot be None"),
        ({"data": Annotated[Data, Since(3)]}, {}, "needs a default"),
        ({"a": Annotated[Int64, Since(3)], "b": Int64}, {"a": 0}, "added before"),
        ({"nested": tuple[Nested, ...]}, {}, "group inside"),
        ({"inner": Annotated[tuple[Inner, ...], Since(3)]}, {"inner": ()}, "not supported"),
        ({"a": Int64, "b": Annotated[Int64, At(4)]}, {}, "offset=4 .* 8"),
        ({"pair": tuple[int, int]}, {}, "no wire type"),
    ],
)
def test_a_model_that_cannot_be_laid_out_fails_at_import(
    annotations: dict[str, Any], defaults: dict[str, Any], reason: str
) -> None:
    namespace = {
        "__module__": __name__,
        "__annotations__": {"TEMPLATE_ID": ClassVar[int], "SCHEMA_ID": ClassVar[int], **annotations},
        "TEMPLATE_ID": 999,
        "SCHEMA_ID": 60_001,
        **defaults,
    }

    with pytest.raises(TypeError, match=reason):
        types.new_class("Broken", (ClusterMessage,), {}, lambda body: body.update(namespace))


def test_a_template_id_used_twice_fails_at_import() -> None:
    with pytest.raises(TypeError, match=r"template_id=50 .*CanvassPosition"):

        class Duplicate(ClusterMessage):
            TEMPLATE_ID: ClassVar[int] = 50


def test_a_message_for_aeron_s_files_with_an_id_that_aeron_may_use_fails_at_import() -> None:
    with pytest.raises(TypeError, match=r"template_id=109 .*range"):

        class Misread(PassedOverMessage):
            TEMPLATE_ID: ClassVar[int] = 109


def test_only_messages_that_aeron_passes_over_are_ours_in_its_schema() -> None:
    """Aeron's schema 111 ends at template id 108, in version 17 too."""
    ours = [model for model in ALL if model.SCHEMA_ID == 111 and issubclass(model, PassedOverMessage)]

    assert {model.TEMPLATE_ID for model in ours} == {8110, 8111, 8120}
    assert all(model.TEMPLATE_ID <= 108 for model in ALL if model.SCHEMA_ID == 111 and model not in ours)


def test_a_block_shorter_than_its_fields_fails_at_import() -> None:
    with pytest.raises(TypeError, match=r"block_length=4.* 8"):

        class Cramped(ClusterMessage):
            TEMPLATE_ID: ClassVar[int] = 998
            BLOCK_LENGTH: ClassVar[int | None] = 4
            number: Int64
