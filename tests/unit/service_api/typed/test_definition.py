"""What is wrong with a typed service is told when it is defined, with the place."""

from __future__ import annotations

import copy
import pickle
import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import msgspec
import pydantic
import pytest

from trimaran.cluster.testing import TypedHarness
from trimaran.service_api.errors import ConfigurationError
from trimaran.service_api.typed import (
    Command,
    Context,
    Query,
    Reply,
    ServiceError,
    TimerMessage,
    TypedService,
    answers,
    handles,
    on_timer,
    state,
    upcasts,
)

from .bank import Overdrawn

HERE = re.escape(str(Path(__file__)))


class Pay(Command[int]):
    amount: int


class Other(Command[int]):
    amount: int


class Silent(Command[Any]):  # what it is answered with cannot be coded
    amount: int


class Ask(Query[int]):
    amount: int


class Odd(Command[None]):
    value: complex


class Again(TimerMessage):
    pass


def handler_without_a_class() -> None:
    @handles  # type: ignore[arg-type]
    def pay(self: Any, ctx: Context, message: Pay) -> int:
        return 1


def query_as_a_command() -> None:
    @handles(Ask)  # type: ignore[arg-type]
    def pay(self: Any, ctx: Context, message: Ask) -> int:
        return 1


def two_for_one() -> None:
    class Service(TypedService):
        @handles(Pay)
        def pay(self, ctx: Context, message: Pay) -> int:
            return 1

        @handles(Pay)
        def pay_again(self, ctx: Context, message: Pay) -> int:
            return 2


def coroutine() -> None:
    class Service(TypedService):
        @handles(Pay)  # type: ignore[arg-type]
        async def pay(self, ctx: Context, message: Pay) -> int:
            return 1


def generator() -> None:
    class Service(TypedService):
        @handles(Pay)
        def pay(self, ctx: Context, message: Pay) -> Any:
            yield 1


def too_few_parameters() -> None:
    class Service(TypedService):
        @handles(Pay)  # type: ignore[arg-type]
        def pay(self, message: Pay) -> int:
            return 1


def another_class() -> None:
    class Service(TypedService):
        @handles(Pay)
        def pay(self, ctx: Context, message: Other) -> int:
            return 1


def another_reply() -> None:
    class Service(TypedService):
        @handles(Pay)  # type: ignore[arg-type]
        def pay(self, ctx: Context, message: Pay) -> str:
            return ""


def field_that_cannot_be_coded() -> None:
    class Service(TypedService):
        @handles(Odd)
        def odd(self, ctx: Context, message: Odd) -> None:
            return None


def reply_that_cannot_be_coded() -> None:
    class Service(TypedService):
        @handles(Silent)
        def silent(self, ctx: Context, message: Silent) -> Any:
            return None


def state_without_a_type() -> None:
    class Service(TypedService):
        total = state()


def state_that_cannot_be_coded() -> None:
    class Service(TypedService):
        total: dict[str, object] = state()


def state_with_a_default_that_changes() -> None:
    class Service(TypedService):
        names: list[str] = state(default=[])


def state_without_a_beginning() -> None:
    class Service(TypedService):
        kind: Pay = state()


def method_of_a_name_that_is_taken() -> None:
    class Service(TypedService):
        def encode_event(self) -> None:  # type: ignore[override]
            """Not what the base class has by that name."""


def state_of_a_name_that_is_taken() -> None:
    class Service(TypedService):
        timers: dict[str, int] = state()  # type: ignore[assignment]


def upcast_of_nothing() -> None:
    class Service(TypedService):
        @upcasts(Pay)
        @staticmethod
        def from_old(old: Pay) -> Pay:
            return old


def error_of_a_taken_name() -> None:
    class Refused(ServiceError):
        category: str  # type: ignore[assignment,misc]


def name_that_is_none() -> None:
    class Odd(Command[int], name="no name"):
        amount: int


@pytest.mark.parametrize(
    ("define", "message"),
    [
        (handler_without_a_class, rf"@handles\(pay\) {HERE}:\d+: .*class.*Command"),
        (query_as_a_command, rf"@handles\(Ask\) {HERE}:\d+: .*class.*Command"),
        (two_for_one, rf"Pay: .*pay \({HERE}:\d+\).*pay_again \({HERE}:\d+\)"),
        (coroutine, rf"pay \({HERE}:\d+\): .*plain"),
        (generator, rf"pay \({HERE}:\d+\): .*plain"),
        (too_few_parameters, rf"pay \({HERE}:\d+\): .*2 parameters.*\(self, ctx, message\)"),
        (another_class, rf"pay \({HERE}:\d+\): .*Other.*Pay"),
        (another_reply, rf"pay \({HERE}:\d+\): .*str.*Pay.*int"),
        (
            field_that_cannot_be_coded,
            r"Odd.value: type=complex .*Decimal, ",
        ),
        (reply_that_cannot_be_coded, "Silent: type=Any"),
        (state_without_a_type, "Service.total: .*type"),
        (state_that_cannot_be_coded, r"Service.total: type=object"),
        (state_with_a_default_that_changes, r"Service.names: default=\[\] .*factory"),
        (state_without_a_beginning, "Service.kind: type=<class .*Pay.*> .*default or factory"),
        (state_of_a_name_that_is_taken, "Service.timers: .*TypedService"),
        (method_of_a_name_that_is_taken, "Service.encode_event: .*TypedService"),
        (upcast_of_nothing, rf"from_old \({HERE}:\d+\): .*Pay"),
        (error_of_a_taken_name, "Refused: field='category'"),
        (name_that_is_none, "Odd: name='no name' .*identifier"),
    ],
)
def test_wrong_use_is_told_when_the_class_is_defined(define: Callable[[], None], message: str) -> None:
    with pytest.raises(ConfigurationError, match=message):
        define()


def test_an_override_takes_the_place_of_the_method_that_it_overrides() -> None:
    class Base(TypedService):
        @handles(Pay)
        def pay(self, ctx: Context, message: Pay) -> int:
            return 1

    class Derived(Base):
        @handles(Pay)
        def pay(self, ctx: Context, message: Pay) -> int:
            return 2

        @answers(Ask)
        def ask(self, ctx: Context, message: Ask) -> int:
            return 3

        @on_timer(Again)
        def again(self, ctx: Context, message: Again) -> None:
            return None

    assert [route.codec.name for route in vars(Derived)["_TypedService__table"].names.values()] == [
        "Pay",
        "Ask",
        "Again",
    ]


def test_an_author_may_use_any_private_name() -> None:
    class Service(TypedService):
        def _run(self) -> int:
            return 1

        def _tell(self) -> int:
            return 2

        @handles(Pay)
        def pay(self, ctx: Context, message: Pay) -> int:
            return self._run() + self._tell() + message.amount

    assert TypedHarness(Service).call(Pay(4)) == 7


def test_errors_are_copied_and_pickled_with_their_fields() -> None:
    for made in (copy.copy(Overdrawn(balance=5)), pickle.loads(pickle.dumps(Overdrawn(5)))):
        assert (type(made), made.balance, str(made)) == (Overdrawn, 5, "Overdrawn(balance=5)")


def test_a_message_is_a_frozen_dataclass_a_struct_or_a_pydantic_model() -> None:
    class AsStruct(msgspec.Struct, Command[int]):
        __wire_name__: ClassVar[str] = "Pay"
        amount: int

    class AsModel(pydantic.BaseModel, Command[int], name="Pay"):
        amount: int

    @dataclass
    class Plain(Reply):
        amount: int

    assert (AsStruct(1).amount, AsModel(amount=2).amount, Plain(3).amount) == (1, 2, 3)
    with pytest.raises(AttributeError):
        Pay(1).amount = 2


def test_a_second_method_of_one_name_is_refused_where_it_stands() -> None:
    """Python left the first one out without a word: its command had no method."""
    with pytest.raises(ConfigurationError, match=rf"two methods.*\.run \({HERE}:\d+\).*\.run \({HERE}:\d+\)"):

        class Twice(TypedService):
            @handles(Pay)
            def run(self, ctx: Context, message: Pay) -> int:
                return 1

            @handles(Other)  # type: ignore[no-redef]  # the mistake
            def run(self, ctx: Context, message: Other) -> int:  # noqa: F811
                return 2


def test_one_method_may_take_two_messages_and_override_that_of_a_base() -> None:
    class Base(TypedService):
        @handles(Pay)
        @handles(Other)
        def run(self, ctx: Context, message: Any) -> int:  # Any: it takes both
            return 1

    class Derived(Base):
        @handles(Pay)
        @handles(Other)
        def run(self, ctx: Context, message: Any) -> int:  # Any: it takes both
            return 2

    assert TypedHarness(Derived).call(Pay(1)) == 2


def test_a_default_without_its_name_says_how_to_write_it() -> None:
    with pytest.raises(ConfigurationError, match=r"state\(0\).*state\(default=0\)"):
        state(0)
