"""What can go wrong with a client alone; `service_api.errors` has the rest.

ClusterError
├── ClusterTimeoutError
│   └── ConnectTimeoutError      no member opened a session in time: says what each endpoint answered
├── ConnectRejectedError         the leader answered, and said no
├── IndeterminateError           what became of something is unknown
└── QueryRefusedError            a member answered a query, and said no
"""

from __future__ import annotations

from collections.abc import Mapping

from service_api.errors import ClusterError, ClusterTimeoutError
from service_api.types import MemberId


class ConnectTimeoutError(ClusterTimeoutError):
    """No member opened a session before the connect timeout.

    `tried` maps each endpoint to the last thing that happened there, as {"10.0.0.1:9000": "connection refused"}.
    """

    def __init__(self, timeout_s: float, tried: Mapping[str, str]) -> None:
        outcomes = "; ".join(f"{endpoint}: {outcome}" for endpoint, outcome in tried.items())
        super().__init__(f"no cluster session opened: connect_timeout_s={timeout_s:g} tried {outcomes}")
        self.tried = dict(tried)


class ConnectRejectedError(ClusterError):
    """The leader refused to open a session; `code` and `detail` are its answer."""

    def __init__(self, code: str, detail: str) -> None:
        super().__init__(f"cluster session refused: code={code} detail={detail!r}")
        self.code = code
        self.detail = detail


class IndeterminateError(ClusterError):
    """Nobody can tell what became of messages: they may be lost, or handled, or yet to be handled.

        except IndeterminateError as error:
            print("asking the service what it has got, because", error.reason)

    Only the application can find out, with its own numbers or by asking the service.
    """

    def __init__(self, reason: str) -> None:
        super().__init__(f"outcome unknown: reason={reason}")
        self.reason = reason


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
