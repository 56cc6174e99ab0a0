"""`simulate`: many seeds of a service under faults, with the clients and the rules of its author, from a test.

It is the campaign of `trimaran sim`: the same members, faults, rules and shrinking. What is added are a workload that
knows what the service means, and rules over the service's own state.
"""

from __future__ import annotations

import argparse
import os
import shlex
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from random import Random
from typing import Any, Final, NoReturn

from ...client import (
    ClusterClient,
    ConnectRejectedError,
    QueryRefusedError,
    RejectedError,
    RequestIndeterminateError,
)
from ...service_api import ClusteredService, ConfigurationError, SessionClosedError
from ..service.agent import ClusteredServiceAgent
from ..service.double_execution import DoubledService
from ..settings.variables import REPLAY_VARIABLE
from .check import StrictGuard
from .harness import Code, MakeService, makers_of
from .simulation.campaign import Totals, kinds_left_out, replay_arguments
from .simulation.clients.service_work import RoundsWork
from .simulation.faults.nemesis import KIND_NAMES
from .simulation.run import Options, RunOutcome, run_seed
from .simulation.shrink import shrink
from .simulation.world.expect import ServiceChecks

SEED_COUNT: Final = 20
MEMBER_CHANGES: Final = ("add_member", "remove_member", "replace_member", "move_member")
"""Kinds of faults that are left out unless one asks for them: services cannot tell them from the others."""
SHRINK_LIMIT: Final = 40

_WEATHER: Final = (
    TimeoutError,
    SessionClosedError,
    ConnectRejectedError,
    QueryRefusedError,
    RejectedError,
    RequestIndeterminateError,
)
"""What faults do to a client: its session ends, and the next round begins in another one."""


class ClientWorkload:
    """What clients of a simulation do, and what must hold. One object is made for each seed; its clients share it.

    class Additions(ClientWorkload):
        def __init__(self):
            self.acknowledged = 0

        async def use(self, client, random):
            await client.request(b"1")
            self.acknowledged += 1

        def invariant(self, service):
            assert service.total >= 0

        def at_rest(self, services):
            assert all(service.total >= self.acknowledged for service in services)

    def test_counter_under_faults():
        simulate(Counter, Additions, seeds=20)
    """

    async def use(self, client: ClusterClient, random: Random) -> None:
        """One round of one client: it is called again and again, and sends at least one message or request.

        A session that is lost, a timeout, and a request whose fate is unknown end the round and are no failure. Any
        other exception is one. Draw from `random` only, so that a seed can be repeated.
        """
        raise NotImplementedError(f"{type(self).__qualname__} has no `async def use(self, client, random)`")

    def invariant(self, service: Any) -> None:
        """Raise if what holds after every entry does not. Called for each member's service; it changes nothing.

        Where members run several services, it is called with each of them.
        """

    def at_rest(self, services: Sequence[Any]) -> None:
        """Raise if what must hold in the end does not: faults are over, and the services are at one position.

        Where members run several services, there is a tuple of services for each member.
        """


def simulate(
    service: Code,
    workload: type[ClientWorkload],
    *,
    seeds: int | Iterable[int] = SEED_COUNT,
    members: int | None = None,
    clients: int = 3,
    length: float = 20.0,
    without: Iterable[str] = MEMBER_CHANGES,
    shrink_runs: int = SHRINK_LIMIT,
    strict: bool = True,
    double_execution: bool = False,
) -> Totals:
    """Run seeds of a service under faults, and return counts of what they met; the first failure is made smaller.

    A seed takes one to two seconds of one core with the defaults. What it does is told in docs/simulation.md.

    Args:
        service: The class, or a function that makes the service; a list where a member runs several.
        workload: What clients do, and what must hold.
        seeds: How many, from 0 on, or which.
        members: How many members; None: drawn per seed, mostly 3.
        clients: How many clients use the cluster at the same time.
        length: How long faults strike, in heartbeat timeouts of 0.2 to 2 s.
        without: Kinds of faults that are left out, by the names of docs/simulation.md.
        shrink_runs: The most runs that making the failure smaller may take.
        strict: Whether a seed fails where a callback reads a clock, random numbers, the environment or a file, or uses
            the network, processes or threads; see docs/determinism.md.
        double_execution: Whether each member runs two instances of the service, and a seed fails where they differ.

    Raises:
        AssertionError: a seed broke a rule: which, when, and the line that runs it again.
        ConfigurationError: an argument that cannot work.
    """
    __tracebackhide__ = True
    makers = makers_of(service)
    given: Any = workload  # a caller may not check types
    if not (isinstance(given, type) and issubclass(given, ClientWorkload)):
        raise ConfigurationError(f"workload={workload!r} expected a subclass of ClientWorkload, not an object of it")
    left_out = frozenset(without)
    if unknown := sorted(left_out - set(KIND_NAMES)):
        raise ConfigurationError(f"without={unknown} expected kinds of faults: {','.join(KIND_NAMES)}")
    options = Options(
        member_count=members, client_count=clients, requester_count=0, without=left_out, safety_timeouts=length
    )
    text = os.environ.get(REPLAY_VARIABLE, "")
    if text:
        numbers, options = parse_replay(text)
    else:
        numbers = [*range(seeds)] if isinstance(seeds, int) else [*seeds]
    if not numbers:
        raise ConfigurationError(f"seeds={seeds!r} expected at least one")
    totals, watches = Totals(), _Watches(is_strict=strict, is_doubled=double_execution)
    for seed in numbers:
        run = partial(_run, makers, workload, watches, seed)
        outcome = run(options)
        totals.add(outcome)
        if outcome.failure is not None:
            _fail(outcome, run, 0 if text else shrink_runs)
    return totals


@dataclass(slots=True, frozen=True)
class _Watches:
    """What is looked at while services run, besides what they answer."""

    is_strict: bool
    is_doubled: bool

    def make(self, service: MakeService) -> ClusteredService:
        """Make a service of a member."""
        return DoubledService(service(), service) if self.is_doubled else service()

    def own(self, service: Any) -> Any:  # Any: of the user's class
        """Return the user's object, or a tuple of them."""
        if isinstance(service, tuple):
            return tuple(map(self.own, service))
        return service.service if self.is_doubled else service

    def equip(self, agent: ClusteredServiceAgent, report: Callable[[str], None]) -> None:
        """Put the watches into a node."""
        if self.is_strict:
            agent.guard = StrictGuard(lambda finding: report(str(finding)))
        if self.is_doubled:
            observed: Any = agent.services  # Any: behind the simulator's observer
            inner = [one.service for one in observed]
            agent.doubles = {number: one for number, one in enumerate(inner) if isinstance(one, DoubledService)}


def _run(
    code: Sequence[MakeService],
    workload: type[ClientWorkload],
    watches: _Watches,
    seed: int,
    options: Options,
) -> RunOutcome:
    shared = workload()
    makers = [partial(watches.make, make) for make in code]
    return run_seed(
        seed,
        options,
        make_service=makers[0],
        make_further=makers[1:],
        make_work=partial(RoundsWork, use=shared.use, weather=_WEATHER),
        checks=ServiceChecks(
            lambda one: shared.invariant(watches.own(one)),
            lambda every: shared.at_rest([*map(watches.own, every)]),
            watches.equip,
        ),
    )


def _fail(failed: RunOutcome, run: Callable[[Options], RunOutcome], shrink_runs: int) -> NoReturn:
    """Make the failure smaller, and raise what is to be said of it."""
    __tracebackhide__ = True  # pytest shows the test and the message, nothing between
    shrunk = shrink(failed, run, attempt_limit=shrink_runs)
    outcome = shrunk.outcome
    failure = outcome.failure
    assert failure is not None
    changes = "; ".join(attempt.change for attempt in shrunk.attempts if attempt.is_kept)
    strikes = ", ".join(f"{name} {count}" for name, count in outcome.fired.items() if count)
    lines = [
        f"seed {failed.seed} broke a rule {failure.at_s:.3f} virtual seconds after its start: {failure.message}",
        f"  shrunk in {len(shrunk.attempts)} runs: {changes or 'nothing could be left out'}",
        f"  faults that are left: {strikes or 'none'}",
        f"  replay: {replay_line(outcome)}",
    ]
    raise AssertionError("\n".join(lines))


def replay_line(outcome: RunOutcome) -> str:
    """Return the line for a shell that runs a seed again."""
    words = shlex.join([str(outcome.seed), *replay_arguments(outcome.seed, outcome.options)[4:]])
    test = os.environ.get("PYTEST_CURRENT_TEST", "").rpartition(" ")[0]
    command = f"pytest {shlex.quote(test)}" if test else "python ..."
    return f"{REPLAY_VARIABLE}={shlex.quote(words)} {command}"


def parse_replay(text: str) -> tuple[list[int], Options]:
    """Read what a failure printed: a seed, and flags as `trimaran sim` has them.

    Raises:
        ConfigurationError: it is not of that form.
    """
    parser = argparse.ArgumentParser(exit_on_error=False, add_help=False, allow_abbrev=False)
    parser.add_argument("seed", type=int)
    parser.add_argument("--members", type=int)
    parser.add_argument("--witnesses", type=int, default=Options().witness_count)
    parser.add_argument("--clients", type=int, default=Options().client_count)
    parser.add_argument("--requesters", type=int, default=Options().requester_count)
    parser.add_argument("--requester-sessions", type=int, default=Options().requester_session_count)
    parser.add_argument("--length", type=float, default=Options().safety_timeouts)
    parser.add_argument("--operations", type=int)
    parser.add_argument("--without", default="")
    parser.add_argument("--only", default="")
    try:
        read, rest = parser.parse_known_args(shlex.split(text))
    except (argparse.ArgumentError, SystemExit, ValueError) as error:
        raise ConfigurationError(f"{REPLAY_VARIABLE}={text!r} expected what a failure printed: {error}") from error
    if rest:
        raise ConfigurationError(f"{REPLAY_VARIABLE}={text!r} expected what a failure printed: unknown {rest}")
    options = Options(
        member_count=read.members,
        witness_count=read.witnesses,
        client_count=read.clients,
        requester_count=read.requesters,
        requester_session_count=read.requester_sessions,
        safety_timeouts=read.length,
        operation_limit=read.operations,
    )
    return [read.seed], replace(options, without=kinds_left_out(read.without, read.only))
