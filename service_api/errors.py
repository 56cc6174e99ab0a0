"""Every error that Trimaran raises, as one tree.

    ClusterError                     category, retriable
    ├── ConfigurationError           what a user wrote is wrong: names the value and what was expected
    │   └── MissingExtraError        also an ImportError: packages are not installed
    ├── ProtocolError
    │   ├── LocalProtocolError       the caller misused us
    │   └── RemoteProtocolError      the peer sent what it must not send
    ├── NotLeaderError               leader_member_id, endpoints
    ├── SessionClosedError           reason
    ├── BackPressureError            no room just now
    ├── ClusterTimeoutError          also a TimeoutError
    ├── NodeTerminatedError          this member stopped itself to stay safe
    └── InvariantViolation           a bug: never caught, stops the node

Messages are lower case; facts are `name=value`, with both the expected and the actual value.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from enum import StrEnum
from typing import ClassVar


class ErrorCategory(StrEnum):
    """How bad an error is for the node that meets it. Source: Aeron `AeronException.Category`."""

    FATAL = "fatal"
    ERROR = "error"
    WARN = "warn"


class ClusterError(Exception):
    """The root of every error that Trimaran raises.

    `category` says whether the node can go on; `retriable` whether the same call may succeed later.
    """

    category: ClassVar[ErrorCategory] = ErrorCategory.ERROR
    retriable: ClassVar[bool] = False

    def __reduce__(self) -> tuple[object, ...]:
        # An exception is copied by a call of its class with its `args`, which are the text and not the parameters.
        return _make_again, (type(self), self.args), self.__dict__


def _make_again(kind: type[BaseException], args: tuple[object, ...]) -> BaseException:
    made = kind.__new__(kind)
    made.args = args
    return made


class ConfigurationError(ClusterError):
    """A setting, argument or file that the user wrote cannot be used."""


class EndpointInUseError(ClusterError):
    """An endpoint cannot be listened on because another process has it: nothing is wrong with the setting."""

    category = ErrorCategory.FATAL
    retriable = True


class MissingExtraError(ConfigurationError, ImportError):
    """What was imported needs packages that are not installed; says which extra of Trimaran has them."""


class ProtocolError(ClusterError):
    """The rules of a protocol were broken; the subclasses say by whom."""


class LocalProtocolError(ProtocolError):
    """The caller misused this library."""


class RemoteProtocolError(ProtocolError):
    """A peer, or a file, held bytes that break the protocol."""


class NotLeaderError(ClusterError):
    """The member asked is not the leader.

    `leader_member_id` is None while the cluster has no leader; `endpoints` are the ingress endpoints to try.
    """

    retriable: ClassVar[bool] = True

    def __init__(self, leader_member_id: int | None, endpoints: Sequence[str] = ()) -> None:
        super().__init__(f"not the leader: leader_member_id={leader_member_id} endpoints={list(endpoints)}")
        self.leader_member_id = leader_member_id
        self.endpoints = tuple(endpoints)


class SessionClosedError(ClusterError):
    """The cluster session is closed; `reason` says by whom or why."""

    def __init__(self, reason: str) -> None:
        super().__init__(f"cluster session closed: reason={reason}")
        self.reason = reason


class BackPressureError(ClusterError):
    """There is no room just now; the same call may succeed later."""

    retriable: ClassVar[bool] = True


class ClusterTimeoutError(ClusterError, TimeoutError):
    """A deadline passed before the cluster answered."""

    retriable: ClassVar[bool] = True


class NodeTerminatedError(ClusterError):
    """This member stopped itself because going on would not have been safe, or not been possible."""

    category: ClassVar[ErrorCategory] = ErrorCategory.FATAL


class ServiceFailedError(NodeTerminatedError):
    """A callback of a service failed for a reason of this member alone, so the member stopped before it answered.

    `log_position` is where the entry ends whose delivery failed, None where the callback belongs to no entry.
    """

    def __init__(self, message: str, *, callback: str = "", failure: str = "", log_position: int | None = None) -> None:
        super().__init__(message)
        self.callback = callback
        self.failure = failure
        self.log_position = log_position


class ServiceDivergedError(NodeTerminatedError):
    """This member's service differs from that of a majority, or from a second instance of it, so the member stopped."""


class InvariantViolation(ClusterError):
    """Something that must always hold did not: a bug in Trimaran. It is never caught; the node stops."""

    category: ClassVar[ErrorCategory] = ErrorCategory.FATAL


def invariant(condition: bool, message: str, **facts: object) -> None:
    """Stop the node unless `condition` holds. Unlike `assert`, it survives `python -O`.

    Raises:
        InvariantViolation: with `facts` rendered as name=value.
    """
    if not condition:
        rendered = " ".join(f"{name}={value!r}" for name, value in facts.items())
        raise InvariantViolation(f"invariant broken: {message} {rendered}".rstrip())


def leaves_of(error: BaseException) -> list[BaseException]:
    """Return the errors that an error consists of: itself, or what is in its groups."""
    if isinstance(error, BaseExceptionGroup):
        return [leaf for inner in error.exceptions for leaf in leaves_of(inner)]
    return [error]


def causes_of(error: BaseException) -> Iterator[BaseException]:
    """Yield an error, and those that it was raised from, each once: nothing keeps a chain from ending in itself."""
    at: BaseException | None = error
    seen = set[int]()
    while at is not None and id(at) not in seen:
        seen.add(id(at))
        yield at
        at = at.__cause__


def first_leaf(error: BaseException) -> BaseException:
    """Return the error that a user can be told about first: itself, or the first one in its groups."""
    return leaves_of(error)[0]
