"""What a service logs stands in the logs of a cluster once."""

from __future__ import annotations

import pytest
from structlog.testing import capture_logs

from trimaran.cluster.service.service_logger import OnceLogger
from trimaran.service_api import Role


class Member:
    def __init__(self, role: Role, *, is_replaying: bool) -> None:
        self.role, self.is_replaying, self.log_position = role, is_replaying, 4_064


def test_the_leader_writes_the_line_with_its_position_and_what_was_bound() -> None:
    logger = OnceLogger(Member(Role.LEADER, is_replaying=False), 2)

    with capture_logs() as lines:
        logger.bind(account="a").warning("account.overdrawn", amount=5)

    assert lines == [
        {
            "event": "account.overdrawn",
            "log_level": "warning",
            "service_id": 2,
            "log_position": 4_064,
            "account": "a",
            "amount": 5,
        }
    ]


@pytest.mark.parametrize(("role", "is_replaying"), [(Role.FOLLOWER, False), (Role.LEADER, True), (Role.FOLLOWER, True)])
def test_others_and_replays_write_nothing(role: Role, is_replaying: bool) -> None:
    logger = OnceLogger(Member(role, is_replaying=is_replaying), 0)

    with capture_logs() as lines:
        for write in (logger.debug, logger.info, logger.warning, logger.error):
            write("order.filled")

    assert lines == []
