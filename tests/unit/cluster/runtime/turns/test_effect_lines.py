"""Lines about sessions: each has its own, until there are many."""

from __future__ import annotations

from structlog.testing import capture_logs

from tests.waiting import until
from trimaran.cluster.core import effects as fx
from trimaran.cluster.runtime.turns.effect_lines import SESSION_LINE_LIMIT, EffectLines
from trimaran.service_api.types import ClusterSessionId


class Lines:
    """Effect lines on a clock that the test sets."""

    def __init__(self) -> None:
        self.now_ns = 0
        self.lines = EffectLines(lambda: self.now_ns)

    def change(self, event: str, count: int = 1) -> None:
        for number in range(count):
            self.lines.handlers[fx.SessionChanged](fx.SessionChanged(event, ClusterSessionId(number), "why"))


async def test_few_sessions_have_a_line_each() -> None:
    rig = Lines()

    with capture_logs() as logs:
        rig.change("session.opened", SESSION_LINE_LIMIT)
        rig.lines.close()

    assert [line["event"] for line in logs] == ["session.opened"] * SESSION_LINE_LIMIT
    assert logs[3]["cluster_session_id"] == 3


async def test_many_sessions_in_a_second_are_counted_in_one_line_of_their_kind() -> None:
    rig = Lines()

    with capture_logs() as logs:
        rig.change("session.opened", SESSION_LINE_LIMIT + 30)
        rig.change("session.closed", 4)
        rig.lines.close()

    assert len(logs) == SESSION_LINE_LIMIT + 2
    assert [(line["event"], line["count"]) for line in logs[-2:]] == [("sessions.opened", 30), ("sessions.closed", 4)]


async def test_what_was_counted_is_told_after_a_second_by_itself() -> None:
    rig = Lines()

    with capture_logs() as logs:
        rig.change("session.opened", SESSION_LINE_LIMIT + 1)
        await until(lambda: logs[-1]["event"] == "sessions.opened")

    assert logs[-1]["count"] == 1


async def test_the_next_second_has_lines_again() -> None:
    rig = Lines()

    with capture_logs() as logs:
        rig.change("session.opened", SESSION_LINE_LIMIT + 1)
        rig.now_ns += 1_000_000_000
        rig.change("session.opened")
        rig.lines.close()

    assert [line["event"] for line in logs].count("session.opened") == SESSION_LINE_LIMIT + 1


async def test_refused_sessions_are_never_only_counted() -> None:
    rig = Lines()

    with capture_logs() as logs:
        rig.change("session.opened", SESSION_LINE_LIMIT + 1)
        rig.change("session.rejected", 3)
        rig.lines.close()

    assert [line["event"] for line in logs].count("session.rejected") == 3
