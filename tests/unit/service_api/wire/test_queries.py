"""Queries and answers without models: the bytes are those of the models, and each reads the other's."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trimaran.service_api.errors import RemoteProtocolError
from trimaran.service_api.types import ClusterSessionId, CorrelationId, MemberId, TermId
from trimaran.service_api.wire.queries import (
    ANSWER_HEADER,
    AskedQuery,
    QueryCode,
    QueryRequest,
    QueryResponse,
    read_query,
    write_answer,
    write_query,
)

INT64 = st.integers(-(1 << 63), (1 << 63) - 1)
INT32 = st.integers(-(1 << 31), (1 << 31) - 1)
ASKED = (5, 7, 3, -1, None, 640, 1_000, b"key")
"""Correlation, session and term id, service, staleness, position, limit of time, payload."""


def model(asked: tuple[int, int, int, int, int | None, int, int, bytes] = ASKED) -> QueryRequest:
    return QueryRequest(
        correlation_id=CorrelationId(asked[0]),
        cluster_session_id=ClusterSessionId(asked[1]),
        leadership_term_id=TermId(asked[2]),
        service_id=asked[3],
        max_staleness_ns=asked[4],
        min_log_position=asked[5],
        timeout_ns=asked[6],
        payload=asked[7],
    )


@given(st.tuples(INT64, INT64, INT64, INT32, st.none() | st.integers(0, 1 << 62), INT64, INT64, st.binary(max_size=99)))
def test_a_query_is_the_one_of_the_model(asked: tuple[int, int, int, int, int | None, int, int, bytes]) -> None:
    message = write_query(*asked)

    assert message == model(asked).encode()
    correlation_id, session_id, _, *rest = asked
    assert read_query(message) == AskedQuery(CorrelationId(correlation_id), ClusterSessionId(session_id), *rest)  # type: ignore[arg-type]  # the rest of the tuple


def test_a_query_with_a_longer_block_or_more_behind_it_is_read_as_by_the_model() -> None:
    """As a later version writes it."""
    message = model().encode()
    block_length = int.from_bytes(message[:2], "little")
    longer = (
        (block_length + 4).to_bytes(2, "little")
        + message[2 : 8 + block_length]
        + bytes(4)
        + message[8 + block_length :]
    )

    for later in (longer, message + b"more"):
        assert read_query(later) == AskedQuery(CorrelationId(5), ClusterSessionId(7), -1, None, 640, 1_000, b"key")


@pytest.mark.parametrize("length", [0, 7, 8, 40, 59, 62])
def test_a_query_that_is_cut_short_is_refused(length: int) -> None:
    with pytest.raises(RemoteProtocolError):
        read_query(model().encode()[:length])


@given(INT64, INT64, INT32, INT64, INT64, st.binary(max_size=99))
def test_an_answer_is_the_one_of_the_model(
    correlation_id: int, session_id: int, member_id: int, position: int, staleness_ns: int, payload: bytes
) -> None:
    question = AskedQuery(CorrelationId(correlation_id), ClusterSessionId(session_id), 0, None, 0, 0, b"")

    message = write_answer(question, member_id, position, staleness_ns, payload)

    assert (
        message
        == QueryResponse(
            correlation_id=CorrelationId(correlation_id),
            cluster_session_id=ClusterSessionId(session_id),
            member_id=MemberId(member_id),
            code=QueryCode.OK,
            log_position=position,
            staleness_ns=staleness_ns,
            payload=payload,
        ).encode()
    )
    assert int.from_bytes(message[:8], "little", signed=True) == ANSWER_HEADER
