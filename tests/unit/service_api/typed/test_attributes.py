"""A typed service owns all of its state: what nothing would keep is refused, as early as it can be seen."""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable
from dataclasses import dataclass, field
from random import Random
from typing import Any, ClassVar, Final

import pytest

from trimaran import Command, Context, Query, TypedService, answers, derived, handles, state
from trimaran.cluster.testing import TypedHarness
from trimaran.service_api.cluster import Cluster, SnapshotImage, SnapshotPublication
from trimaran.service_api.errors import ConfigurationError, LocalProtocolError, RemoteProtocolError


class Add(Command[int]):
    name: str
    amount: int = 1


class Total(Query[int]):
    name: str


@dataclass
class Page:
    """A record whose fields can be set, with a list in it."""

    lines: list[int] = field(default_factory=list)


# --- refused when the class is defined


def a_value_on_the_class() -> None:
    class Undeclared(TypedService):
        total: float = 0.0


def an_annotation_alone() -> None:
    class Undeclared(TypedService):
        total: float


def of_a_mixin() -> None:
    class Counting:
        total: int = 0

    class Undeclared(Counting, TypedService):
        pass


def of_a_base() -> None:
    class Base(TypedService):
        total: int = state()

    class Undeclared(Base):
        total: int = 0


def a_dict_without_annotation() -> None:
    class Undeclared(TypedService):
        total = {"a": 1}  # noqa: RUF012 - the mistake of this test


def a_class_variable_that_changes() -> None:
    class Undeclared(TypedService):
        total: ClassVar[list[int]] = []


def a_constant_that_changes() -> None:
    class Undeclared(TypedService):
        total: Final = (1, [2])


def a_record_that_changes() -> None:
    class Undeclared(TypedService):
        total: ClassVar[Page] = Page()


def a_counter() -> None:
    class Undeclared(TypedService):
        total: ClassVar[Any] = itertools.count()


def a_generator_of_chance() -> None:
    class Undeclared(TypedService):
        total: ClassVar[Random] = Random(1)


def a_cached_property() -> None:
    class Undeclared(TypedService):
        @functools.cached_property
        def total(self) -> int:
            return 1


def a_cache() -> None:
    class Undeclared(TypedService):
        @functools.lru_cache  # noqa: B019 - the mistake of this test
        def total(self) -> int:
            return 1


def a_slot() -> None:
    class Undeclared(TypedService):
        __slots__ = ("total",)


def derived_without_its_type() -> None:
    class Undeclared(TypedService):
        total = derived(lambda service: 1)


def derived_of_nothing() -> None:
    class Undeclared(TypedService):
        total: int = derived(5)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "define",
    [
        a_value_on_the_class,
        an_annotation_alone,
        of_a_mixin,
        of_a_base,
        a_dict_without_annotation,
        a_class_variable_that_changes,
        a_constant_that_changes,
        a_record_that_changes,
        a_counter,
        a_generator_of_chance,
        a_cached_property,
        a_cache,
        a_slot,
        derived_without_its_type,
    ],
)
def test_what_nothing_keeps_is_refused_when_the_class_is_defined(define: Callable[[], None]) -> None:
    """It works until a member starts again, and then that member is another one than the others."""
    with pytest.raises(ConfigurationError, match=r"\.total: .*(state\(\)|derived\()"):
        define()


def test_a_derived_value_is_made_by_a_function() -> None:
    """Not the value itself."""
    with pytest.raises(ConfigurationError, match=r"derived\(5\).*function"):
        derived_of_nothing()


def test_constants_are_allowed() -> None:
    """What cannot change in place needs no word."""

    class Allowed(TypedService):
        limit: ClassVar[int] = 5
        names: Final = ("a", "b")
        pattern = "x"

        @staticmethod
        def helper() -> int:
            return 1

        @property
        def twice(self) -> int:
            return 2 * self.limit

    TypedHarness(Allowed)


# --- refused at the start


class OfConstructor(TypedService):
    """The likeliest one: a cache that a handler only changes in place."""

    count: int = state()

    def __init__(self) -> None:
        super().__init__()
        self.cache: dict[str, int] = {}

    @handles(Add)
    def add(self, ctx: Context, message: Add) -> int:
        self.cache[message.name] = self.cache.get(message.name, 0) + 1
        return self.cache[message.name]


class OfStart(TypedService):
    """Set behind what loads the state."""

    async def on_start(self, cluster: Cluster, snapshot: SnapshotImage | None) -> None:
        await super().on_start(cluster, snapshot)
        self.cache = 5


class OfMixedStart:
    """A mixin that is no service."""

    async def on_start(self, cluster: Cluster, snapshot: SnapshotImage | None) -> None:
        await super().on_start(cluster, snapshot)  # type: ignore[misc]
        vars(self)["cache"] = 5


class Mixed(OfMixedStart, TypedService):
    """Gets it from the mixin."""


class OfConstant(TypedService):
    """A constant of the instance that can change in place."""

    cache: Final[list[int]]

    def __init__(self) -> None:
        self.cache = []


@pytest.mark.parametrize("service", [OfConstructor, OfStart, Mixed, OfConstant])
def test_an_attribute_that_nothing_keeps_is_refused_at_the_start(service: type[TypedService]) -> None:
    """Before any entry, with its name."""
    with pytest.raises(ConfigurationError, match=rf"{service.__name__}\.cache: "):
        TypedHarness(service)


def test_a_start_that_does_not_load_the_state_is_refused() -> None:
    """Nothing would have been loaded."""

    class Forgetful(TypedService):
        async def on_start(self, cluster: Cluster, snapshot: SnapshotImage | None) -> None:
            """Forget the base class."""

    with pytest.raises(ConfigurationError, match=r"Forgetful\.on_start .*super\(\)\.on_start"):
        TypedHarness(Forgetful)


def test_a_constructor_sets_no_state() -> None:
    """A snapshot would take its place, so a member that starts from one would differ."""

    class Eager(TypedService):
        total: int = state()

        def __init__(self) -> None:
            self.total = 5

    with pytest.raises(ConfigurationError, match=r"Eager\.total: .*state\("):
        TypedHarness(Eager)


def test_a_constant_may_be_a_parameter_of_the_service() -> None:
    """It is the same after each start."""

    class Limited(TypedService):
        limit: Final[int]

        def __init__(self, limit: int = 7) -> None:
            self.limit = limit

        @handles(Add)
        def add(self, ctx: Context, message: Add) -> int:
            return self.limit

    assert TypedHarness(Limited).call(Add("a")) == 7
    assert TypedHarness(lambda: Limited(9)).call(Add("a")) == 9


def test_state_that_the_author_writes_to_snapshots_may_be_any_attribute() -> None:
    """The page says how: `super()` first, then more."""

    class WritesMore(TypedService):
        def __init__(self) -> None:
            self.names: list[str] = []

        async def on_start(self, cluster: Cluster, snapshot: SnapshotImage | None) -> None:
            await super().on_start(cluster, snapshot)
            if snapshot is not None:
                self.names = [bytes(message).decode() async for message in snapshot]

        async def on_take_snapshot(self, snapshot: SnapshotPublication) -> None:
            await super().on_take_snapshot(snapshot)
            for name in self.names:
                await snapshot.offer(name.encode())

        def state_hash(self) -> object:
            return super().state_hash(), tuple(self.names)

        @handles(Add)
        def add(self, ctx: Context, message: Add) -> int:
            self.names.append(message.name)
            return len(self.names)

    harness = TypedHarness(WritesMore)
    harness.call(Add("a"))
    harness.restart()
    assert harness.call(Add("b")) == 2


# --- refused at its command


class Handlers(TypedService):
    """Handlers that make, delete and replace attributes."""

    total: int = state()
    totals: dict[str, int] = state()
    pages: dict[str, Page] = state()
    lines: list[int] = state()

    @handles(Add)
    def add(self, ctx: Context, message: Add) -> int:
        self.total += message.amount
        self.totals[message.name] = message.amount
        match message.name:
            case "makes":
                self.cache = 1
            case "writes":
                self.__dict__["cache"] = 1
            case "deletes":
                del self.totals
            case "exchanges":
                del self.total
                self.cache = 1
                return 1
            case "replaces":
                self.totals = {"b": 2}
                self.totals["c"] = 3
            case "record":
                self.pages.setdefault("a", Page()).lines.append("x")  # type: ignore[arg-type]
            case "list":
                self.lines.append(1.5)  # type: ignore[arg-type]
            case "list again":
                self.lines = [*self.lines, "x"]  # type: ignore[list-item]
        return self.total

    @answers(Total)
    def ask(self, ctx: Context, message: Total) -> int:
        match message.name:
            case "scalar":
                self.total += 1
            case "dict":
                self.totals["a"] = 1
            case "whole":
                self.totals = {}
            case "list":
                self.lines.append(1)
            case "makes":
                self.cache = 1
        return self.total


@pytest.mark.parametrize(
    ("name", "told"),
    [
        ("makes", r"Handlers\.cache: "),
        ("writes", r"Handlers\.cache: "),
        ("deletes", r"Handlers\.totals: .*deleted"),
        ("exchanges", r"Handlers\.cache: "),
        ("record", r"Handlers\.pages\['a'\]: .*expected Page"),
        ("list", r"Handlers\.lines: .*list\[int\]"),
        ("list again", r"Handlers\.lines: .*list\[int\]"),
    ],
)
def test_what_a_handler_may_not_leave_behind_is_refused_and_undone(name: str, told: str) -> None:
    """The command fails for its client, and every member is as before."""
    harness = TypedHarness(Handlers)
    harness.call(Add("before", 3))

    with pytest.raises(LocalProtocolError, match=told):
        harness.call(Add(name))

    service = harness.service
    assert (service.total, service.totals, service.pages, service.lines) == (3, {"before": 3}, {}, [])
    assert not hasattr(service, "cache")
    assert harness.call(Add("after")) == 4


def test_a_dict_that_a_handler_replaces_is_state_again() -> None:
    """It was a plain dict until the handler returned."""
    harness = TypedHarness(Handlers)
    harness.call(Add("replaces"))
    assert harness.service.totals == {"b": 2, "c": 3}

    with pytest.raises(LocalProtocolError):
        harness.call(Add("makes"))

    assert harness.service.totals == {"b": 2, "c": 3}
    harness.restart()
    assert harness.service.totals == {"b": 2, "c": 3}


@pytest.mark.parametrize("name", ["scalar", "dict", "whole", "list", "makes"])
def test_a_query_changes_nothing(name: str) -> None:
    """Not in place, and not by another value."""
    harness = TypedHarness(Handlers)
    harness.call(Add("before", 3))
    before = harness.service.state_hash()

    with pytest.raises(LocalProtocolError, match=r"query.*change"):
        harness.ask(Total(name))

    assert harness.service.state_hash() == before
    assert not hasattr(harness.service, "cache")


# --- derived


class Shop(TypedService):
    """Three kinds of what is derived: of dicts, of what cannot change, of anything else."""

    prices: dict[str, int] = state()
    names: dict[int, str] = derived(lambda shop: {price: name for name, price in shop.prices.items()})
    dearest: int = derived(lambda shop: max(shop.prices.values(), default=0))
    in_order: list[str] = derived(lambda shop: sorted(shop.prices))

    @handles(Add)
    def add(self, ctx: Context, message: Add) -> int:
        self.prices[message.name] = message.amount
        self.names[message.amount] = message.name
        self.dearest = max(self.dearest, message.amount)
        self.in_order.append(message.name)
        self.in_order.sort()
        if message.amount > 100:
            raise ValueError("too dear")
        return self.dearest


def seen_of(shop: Shop) -> object:
    return dict(shop.prices), dict(shop.names), shop.dearest, shop.in_order


def test_what_is_derived_is_undone_with_its_command_and_made_again_at_a_start() -> None:
    """It is in no snapshot, and the same after it."""
    harness = TypedHarness(Shop)
    harness.call(Add("tea", 5))
    harness.call(Add("cup", 3))
    expected = ({"tea": 5, "cup": 3}, {5: "tea", 3: "cup"}, 5, ["cup", "tea"])
    assert seen_of(harness.service) == expected

    with pytest.raises(ValueError, match="too dear"):
        harness.call(Add("ring", 500))

    assert seen_of(harness.service) == expected
    assert harness.service.find_drift() is None
    assert b"dearest" not in b"".join(harness.service.snapshot_messages())
    harness.restart()
    assert seen_of(harness.service) == expected
    assert harness.call(Add("pot", 9)) == 9


def test_what_is_derived_can_be_read_while_the_service_starts() -> None:
    """From the state that is loaded; what `on_start` changes afterwards counts, too."""
    seen: list[int] = []

    class Started(Shop):
        async def on_start(self, cluster: Cluster, snapshot: SnapshotImage | None) -> None:
            await super().on_start(cluster, snapshot)
            seen.append(self.dearest)
            self.prices["gift"] = 50

    harness = TypedHarness(Started)
    harness.call(Add("tea", 5))
    harness.restart()

    assert seen == [0, 50]
    assert (harness.service.dearest, harness.service.in_order) == (50, ["gift", "tea"])


def test_a_derived_value_that_has_drifted_is_named() -> None:
    """A start would make another one."""

    class Drifting(Shop):
        @handles(Add)
        def add(self, ctx: Context, message: Add) -> int:
            self.prices[message.name] = message.amount
            return self.dearest

    harness = TypedHarness(Drifting)
    harness.call(Add("tea", 5))

    assert "Drifting.names" in str(harness.service.find_drift())


# --- what would be read again


class Numbers(TypedService):
    """A dict of numbers."""

    numbers: dict[str, int] = state()


def test_a_snapshot_that_could_not_be_read_back_fails_when_it_is_taken() -> None:
    """Whatever put a value there that its field cannot have: no member would start from it."""
    harness = TypedHarness(Numbers)
    dict.__setitem__(harness.service.numbers, "a", 1.5)  # type: ignore[misc]

    with pytest.raises(LocalProtocolError, match=r"Numbers\.numbers: .*dict\[str, int\]"):
        harness.snapshot()


def test_an_error_of_a_start_names_service_field_type_and_what_to_do() -> None:
    """The bytes of the snapshot are those of another value."""
    harness = TypedHarness(Numbers)
    harness.service.numbers["a"] = 1
    messages = [
        message.replace(b"\xa1a\x01", b"\xa1a\xc0") for message in harness.service.snapshot_messages()
    ]  # None instead of 1

    with pytest.raises(RemoteProtocolError, match=r"Numbers\.numbers: .*dict\[str, int\].*migrate_numbers"):
        TypedHarness(Numbers, snapshot=messages)
