"""What can go wrong with a client alone; `trimaran.service_api.errors` has the rest.

ClusterError
├── ClusterTimeoutError
│   └── ConnectTimeoutError      no member opened a session in time: says what each endpoint answered
├── ConnectRejectedError         the leader answered, and said no
├── IndeterminateError           what became of something is unknown
│   └── RequestIndeterminateError   of a request: `resolve` may tell later
├── QueryRefusedError            a member answered a query, and said no
├── RejectedError                a request was certainly not applied, and never will be
└── RequestFailedError           the service ran a request, and raised
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Self, cast

from ..service_api.errors import ClusterError, ClusterTimeoutError, LocalProtocolError
from ..service_api.types import MemberId


class ConnectTimeoutError(ClusterTimeoutError):
    """No member opened a session before the connect timeout.

    `tried` maps each endpoint to the last thing that happened there, as {"10.0.0.1:9000": "connection refused"}.
    """

    def __init__(self, timeout_s: float, tried: Mapping[str, str]) -> None:
        outcomes = "; ".join(f"{endpoint}: {outcome}" for endpoint, outcome in tried.items())
        super().__init__(f"no cluster session opened: connect_timeout_s={timeout_s:g} tried {outcomes}")
        self.tried = dict(tried)


class ConnectRejectedError(ClusterError):
    """The leader refused to open a session; `code` and `detail` are its answer, `advice` what to do, if that is known.

    AUTHENTICATION_REJECTED: not with these credentials. CHALLENGE: the credentials cannot answer what it asks.
    WRONG_PORT: no endpoint is an ingress; `detail` says what each one is, and where the ingress is.
    """

    def __init__(self, code: str, detail: str, advice: str = "") -> None:
        super().__init__(f"cluster session refused: code={code} detail={detail!r}{advice and f': {advice}'}")
        self.code = code
        self.detail = detail
        self.advice = advice


class IndeterminateError(ClusterError):
    """The outcome of messages is not known: they may be lost, or handled, or yet to be handled.

        except IndeterminateError as error:
            print("asking the service what it has got, because", error.reason)

    Only the application can find out, with its own numbers or by asking the service.
    """

    def __init__(self, reason: str) -> None:
        super().__init__(f"outcome unknown: reason={reason}")
        self.reason = reason


class AdminRefusedError(ClusterError):
    """The cluster did not do what it was asked for; `code` and `detail` are the leader's answer.

        except AdminRefusedError as error:
            print(error.code, error.detail)

    UNAUTHORISED_ACCESS: this client may not ask. ERROR: refused as things are, or tried and failed; `detail` says.
    """

    def __init__(self, code: str, detail: str) -> None:
        super().__init__(f"admin request refused: code={code} detail={detail!r}")
        self.code = code
        self.detail = detail


class QueryRefusedError(ClusterError):
    """A member refused a query for good; `code` and `detail` are its answer.

        except QueryRefusedError as error:
            print(error.code, error.detail)

    SERVICE_FAILED: the service takes no queries, or raised; `detail` is what it said. NOT_AUTHORISED: not this client.
    """

    def __init__(self, code: str, detail: str, member_id: MemberId) -> None:
        super().__init__(f"query refused: code={code} detail={detail!r} member_id={member_id}")
        self.code = code
        self.detail = detail
        self.member_id = member_id


class RequestIndeterminateError(IndeterminateError):
    """A request was sent, and no reply came: it was applied, or not, or is yet to be. It is never applied twice.

        except RequestIndeterminateError as error:
            reply = await error.resolve()  # once the session has a leader again

    The client goes on asking for the outcome, under every new leader, for as long as the session lasts.
    """

    def __init__(self, reason: str, outcome: asyncio.Future[bytes] | None) -> None:
        super().__init__(reason)
        self._outcome = outcome

    def __copy__(self) -> Self:
        return self

    def __deepcopy__(self, memo: object) -> Self:
        return self

    def __reduce__(self) -> tuple[object, ...]:
        # Another process has no session in which the outcome could come.
        make, arguments, facts = super().__reduce__()
        return make, arguments, {**cast("dict[str, object]", facts), "_outcome": None}

    @property
    def is_final(self) -> bool:
        """True if the outcome will never be known: the session has ended, or the error comes from another process."""
        return self._outcome is None

    async def resolve(self) -> bytes:
        """Wait until the outcome is known, and give the reply. It may be called at any time, more than once.

            async with asyncio.timeout(30):
                reply = await error.resolve()

        Raises:
            RequestFailedError: the service ran it, and raised.
            RejectedError: it was not applied.
            RequestIndeterminateError: nobody will ever know, because the session has ended; `is_final`.
            LocalProtocolError: this is not the client's event loop.
        """
        outcome = self._outcome
        if outcome is None:
            raise self
        if asyncio.get_running_loop() is not outcome.get_loop():
            raise LocalProtocolError("this request belongs to another event loop: resolve it there")
        return await asyncio.shield(outcome)


class RejectedError(ClusterError):
    """A request was not applied, and never will be: it was sent to no leader, or the cluster takes none.

    Also of a message, where the service takes none.
    """

    def __init__(self, reason: str) -> None:
        super().__init__(f"rejected: reason={reason}")
        self.reason = reason


class RequestFailedError(ClusterError):
    """The service ran a request, once, and raised; `text` is the error as the members met it."""

    def __init__(self, text: str) -> None:
        super().__init__(f"request failed in the service: {text}")
        self.text = text
