"""Messages, replies, timers and state that an earlier version of the code wrote."""

from __future__ import annotations

from typing import Any, ClassVar

import pytest

from trimaran.client.typed.exchange import Exchange, run_steps
from trimaran.cluster.testing import ServiceHarness, TypedHarness
from trimaran.service_api.errors import ConfigurationError, LocalProtocolError, RemoteProtocolError
from trimaran.service_api.typed import Command, Context, TimerMessage, TypedService, handles, on_timer, state, upcasts


class PayOfMay(Command[int], name="Pay"):
    account: int
    cents: int


class PayOfJune(Command[int], name="Pay"):
    account: str
    amount: int
    memo: str


class Pay(Command[float], name="Pay"):
    account: str
    amount: float
    currency: str = "EUR"


class Wake(TimerMessage):
    name: str


class May(TypedService):
    total: int = state()
    names: dict[str, int] = state()
    old: list[int] = state()

    @handles(PayOfMay)
    def pay(self, ctx: Context, message: PayOfMay) -> int:
        self.total += message.cents
        self.names[str(message.account)] = message.cents
        self.old.append(message.cents)
        ctx.schedule(Wake("x"), after=60)
        return self.total

    @on_timer(Wake)
    def wake(self, ctx: Context, message: Wake) -> None:
        self.total += 1


class Today(TypedService):
    removed: ClassVar[tuple[str, ...]] = ("old",)

    total: float = state()
    names: dict[str, float] = state()
    added: list[str] = state()

    @handles(Pay)
    def pay(self, ctx: Context, message: Pay) -> float:
        self.total += message.amount
        self.names[message.account] = message.amount
        self.added.append(message.currency)
        return self.total

    @upcasts(PayOfMay)
    @staticmethod
    def from_may(old: PayOfMay) -> Pay:
        return Pay(str(old.account), old.cents / 100, "DM")

    @on_timer(Wake)
    def wake(self, ctx: Context, message: Wake) -> None:
        self.total += 1000


def announced(harness: ServiceHarness[Any], message: type) -> Any:
    """What a client of an older program sends: it announced its class when the service had it, too."""

    class Older(TypedService):
        @handles(message)
        def pay(self, ctx: Context, message: Any) -> Any:
            return 0

    older = Older()
    return run_steps(
        Exchange().prepare(message),
        lambda question: older.on_query(memoryview(question.payload)),
        lambda announcement: harness.request(announcement.payload),
    )


def test_an_older_message_is_read_by_the_names_of_its_fields() -> None:
    harness = ServiceHarness(Today)
    route = announced(harness, PayOfJune)

    reply = harness.request(route.payload(PayOfJune("a", 5, "gone by now")))

    assert harness.service.names == {"a": 5.0}
    assert harness.service.added == ["EUR"]
    assert TypedHarness(Today).route(Pay).read(reply) == 5.0


def test_an_older_message_that_cannot_be_read_so_goes_through_its_upcast() -> None:
    harness = ServiceHarness(Today)
    route = announced(harness, PayOfMay)

    harness.request(route.payload(PayOfMay(17, 250)))

    assert harness.service.names == {"17": 2.5}
    assert harness.service.added == ["DM"]


def test_an_older_message_that_nothing_reads_is_refused_with_the_field() -> None:
    class NoUpcast(TypedService):
        @handles(Pay)
        def pay(self, ctx: Context, message: Pay) -> float:
            return 0.0

    harness = ServiceHarness(NoUpcast)
    route = announced(harness, PayOfMay)

    with pytest.raises(RemoteProtocolError, match=r"Pay\.account.*int.*str.*@up"):
        harness.request(route.payload(PayOfMay(17, 250)))


def test_a_client_is_told_before_it_sends_that_the_service_has_another_class() -> None:
    may = TypedHarness(May)

    with pytest.raises(LocalProtocolError, match=r"Pay\.account.*str.*int"):
        may.route(Pay)

    class Unknown(Command[int]):
        pass

    with pytest.raises(LocalProtocolError, match=r"Unknown.*May.*Pay, Wake"):
        may.route(Unknown)


def test_the_state_of_an_older_version_is_taken_over() -> None:
    harness: Any = TypedHarness(May)
    harness.call(PayOfMay(17, 250))

    harness.restart(Today)

    service = harness.service
    assert (service.total, service.names, service.added) == (250, {"17": 250.0}, [])
    harness.advance(61)
    assert service.total == 1250


def test_a_field_of_the_state_that_is_gone_or_another_is_refused_by_name() -> None:
    class Gone(TypedService):
        total: int = state()
        names: dict[str, int] = state()

    class Other(TypedService):
        total: str = state()
        names: dict[str, int] = state()
        old: list[int] = state()

    for service, message in (
        (Gone, r"Gone .*old: list\[int\].*removed = \('old',\)"),
        (Other, r"Other.total .*int.*str.*migrate_total\(old\)"),
    ):
        may = TypedHarness(May)
        may.call(PayOfMay(17, 250))
        with pytest.raises(ConfigurationError, match=message):
            may.restart(service)


def test_a_migration_makes_the_new_value_of_the_old() -> None:
    class Migrated(TypedService):
        total: str = state()
        names: list[str] = state()
        old: list[int] = state()

        @staticmethod
        def migrate_total(old: int) -> str:
            return f"{old} cents"

        @staticmethod
        def migrate_names(old: dict[str, int]) -> list[str]:
            return sorted(old)

        @on_timer(Wake)
        def wake(self, ctx: Context, message: Wake) -> None:
            return None

    may: Any = TypedHarness(May)
    may.call(PayOfMay(17, 250))

    may.restart(Migrated)

    assert (may.service.total, may.service.names, may.service.old) == ("250 cents", ["17"], [250])
