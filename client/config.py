"""The settings of a client, checked once, when it is made."""

from __future__ import annotations

import inspect
import secrets
from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields
from functools import lru_cache
from typing import Any, Final, TypedDict, TypeVar

from ..service_api.access.credentials import CredentialsSupplier, expect_credentials
from ..service_api.addresses.name_pattern import expand_endpoints
from ..service_api.cluster_id import ClusterId, parse_cluster_id
from ..service_api.endpoint import Endpoint
from ..service_api.errors import ClusterError, ConfigurationError
from ..service_api.groups.group import Group
from ..service_api.member_id import parse_member_id
from ..service_api.net.transport import SOCKETS, NetworkStack
from ..service_api.tls import TlsSettings, client_network
from ..service_api.types import MemberId
from ..service_api.wire.request import REQUEST_HEADER_LENGTH, REQUEST_LIMIT
from ..service_api.wire.session import SESSION_HEADER_LENGTH

MIB: Final = 1 << 20
FOR_EVER_S: Final = 1e9
"""What `math.inf` comes to: 31 years."""


def to_ns(seconds: float) -> int:
    """Convert a time of a setting, which may be without end."""
    return int(min(seconds, FOR_EVER_S) * 1e9)


def back_off_s(
    failure_count: int, *, first_s: float, limit_s: float, random: Callable[[], float], least_s: float = 0.0
) -> float:
    """Return how long to wait: doubled with each failure, less a random half, so that members see no thundering herd.

    At least `least_s`, less that half, too.
    """
    wait_s = min(first_s * 2.0 ** min(failure_count, 32), limit_s)
    return max(wait_s, least_s) * (1 - random() / 2)


def fresh_secret() -> bytes:
    """Draw a session's secret from the operating system: 32 bytes that nobody guesses."""
    return secrets.token_bytes(32)


@dataclass(slots=True, frozen=True, kw_only=True)
class ClientConfig:
    """Everything a client can be told. Times are in seconds, lengths in bytes.

        config = ClientConfig(endpoints=("10.0.0.1:9000", "10.0.0.2:9000"), new_leader_timeout_s=math.inf)
        ClusterClient.connect(config=config)

    Raises:
        ConfigurationError: a value that cannot work, naming it and what was expected.
    """

    endpoints: tuple[str, ...]
    """Ingress endpoints, "host:port", of any members: one that answers is enough. A name is resolved at each dial.
    `dns://trimaran-{member_id}.trimaran:9000?size=3` stands for the names of members 0 to 2."""

    cluster_id: str = ""
    """The cluster to connect to, as `trimaran status` shows it; another one refuses. Empty: whichever answers."""

    group: Group | None = None
    """The group of the cluster to connect to, by its endpoints; another one refuses. None: whichever answers.
    `GroupedClient` connects to all."""

    connect_timeout_s: float = 5.0
    """How long to look for a leader that opens a session."""

    dial_timeout_s: float = 2.0
    """How long one TCP connect may take before it is begun again, never longer than `connect_timeout_s`: TCP itself
    tries again ever more seldom, so a dial that began in an outage goes on for as long again after it."""

    attempt_timeout_s: float = 1.0
    """How long one member may take to answer a connect request before another is asked as well."""

    new_leader_timeout_s: float | None = None
    """How long a session waits for a new leader; None: 2 x the leader's heartbeat timeout + 5 s.

    A client that is to sit out the stop of the whole cluster is given more, `math.inf` at the most. The cluster's time
    does not go on while it is stopped: the session is still there afterwards."""

    call_timeout_s: float = 30.0
    """How long a request, a query or a command of a typed client may take that is given no `timeout_s`; `math.inf`: for
    as long as the session lasts. A limit is that of the whole call, with everything that is done before it is sent."""

    reopen: bool = False
    """Whether another session is opened by itself where one has ended otherwise than by `aclose`. Requests run exactly
    once within a session; see docs/sessions.md for what ends with it."""

    on_reopen: Callable[[ClusterError], None] | None = None
    """Called on the event loop once another session is open, before calls that wait for it go on, with the error with
    which the one before has ended."""

    close_timeout_s: float = 1.0
    """How long `aclose` waits for the leader to confirm; 0: it tells the cluster, and does not wait."""

    keep_alive_interval_s: float | None = None
    """How often the leader hears from the session; None: a quarter of the cluster's session timeout, 2.5 s as a rule.
    The cluster forgets a session that is silent for all of that timeout."""

    reconnect_min_s: float = 0.02
    reconnect_max_s: float = 1.0
    """Bounds of the jittered back-off, doubled at each failure, between two dials of one endpoint."""

    outgoing_window_bytes: int = MIB
    """Bytes accepted and not sent. At the bound `try_offer` says False; one message may overshoot."""

    request_window_count: int = REQUEST_LIMIT
    """Requests sent and unanswered; the cluster keeps their replies. At the bound a request waits for an answer to
    others. At most 4096."""

    request_window_bytes: int = 16 * MIB
    """Bytes of requests sent and unanswered, kept to be sent again. At the bound a request waits; one may overshoot."""

    egress_queue_limit: int = 65536
    """Messages waiting for the egress iterator. At the bound sockets are not read: the leader feels it."""

    connection_event_limit: int = 256
    """Events kept for `connection_events`. At the bound the oldest goes, and a reader that had not read it is told."""

    receive_buffer_bytes: int = 256 << 10
    """Bytes read from one connection at once. All clients of an event loop with this value share one buffer."""

    mtu_length_bytes: int = 65504
    """The longest frame, either way; longer messages are cut into fragments."""

    max_message_length_bytes: int = 8 * MIB
    """The longest message, either way, with its session header. The cluster says what its log takes, which is an eighth
    of a term and 16 MiB at most; the smaller of the two counts."""

    credentials: bytes | CredentialsSupplier = b""
    """Handed to the cluster's authenticator with the connect request, such as `PasswordCredentials("ops", secret)`."""

    on_challenge: Callable[[bytes], bytes] | None = None
    """Answers the authenticator's challenge with new credentials, where `credentials` are bytes; None: a challenge is
    a refusal."""

    make_secret: Callable[[], bytes] = fresh_secret
    """Draws the secret that shows on every connection whose the session is; the cluster keeps its SHA-256 alone."""

    client_info: str = ""
    """A name that the cluster shows for this session."""

    tls: TlsSettings | None = None
    """Files of certificates for TLS, such as `TlsSettings(authorities="authorities.pem", certificate=..., key=...)`;
    None: plain text. `TlsSettings.of_environment()` reads them from `TRIMARAN_TLS_AUTHORITIES` and so on."""

    network: NetworkStack = SOCKETS
    """What dials the members: TCP sockets, with TLS where that is set, unless a simulation brings another network."""

    random: Callable[[], float] | None = None
    """Uniform in [0, 1), for back-off and correlation ids; None: a generator of the client's own. A seeded one makes
    everything the client does a function of what it receives and when, if `make_secret` is seeded too."""

    @property
    def known_cluster_id(self) -> ClusterId:
        """The cluster that is demanded, or that the own certificate names; `NULL_CLUSTER_ID` where neither says."""
        return parse_cluster_id(self.cluster_id) or self.network.cluster_id

    def __post_init__(self) -> None:
        if not self.endpoints:
            raise ConfigurationError("endpoints=[] expected at least one 'host:port'")
        object.__setattr__(self, "endpoints", expand_endpoints(self.endpoints))
        for endpoint in self.endpoints:
            Endpoint.parse(endpoint)
        network = client_network(self.tls, cluster_id=parse_cluster_id(self.cluster_id), network=self.network)
        object.__setattr__(self, "network", network)  # made here, once: it reads files
        for name in (
            "connect_timeout_s",
            "dial_timeout_s",
            "attempt_timeout_s",
            "call_timeout_s",
            "reconnect_min_s",
        ):
            _require(name, getattr(self, name), minimum=0.001)
        _require("close_timeout_s", self.close_timeout_s, minimum=0)
        for name in ("new_leader_timeout_s", "keep_alive_interval_s"):
            if getattr(self, name) is not None:
                _require(name, getattr(self, name), minimum=0.001)
        _require("reconnect_max_s", self.reconnect_max_s, minimum=self.reconnect_min_s)
        _require("outgoing_window_bytes", self.outgoing_window_bytes, minimum=1)
        _require("request_window_bytes", self.request_window_bytes, minimum=1)
        if not 1 <= self.request_window_count <= REQUEST_LIMIT:
            raise ConfigurationError(f"request_window_count={self.request_window_count} expected 1..{REQUEST_LIMIT}")
        _require("egress_queue_limit", self.egress_queue_limit, minimum=1)
        _require("connection_event_limit", self.connection_event_limit, minimum=1)
        expect_credentials(self.credentials, self.on_challenge)
        if self.on_reopen is not None and not self.reopen:
            raise ConfigurationError("on_reopen is given, expected reopen=True with it")
        if not 128 <= self.mtu_length_bytes <= 65504 or self.mtu_length_bytes % 32:
            raise ConfigurationError(
                f"mtu_length_bytes={self.mtu_length_bytes} expected a multiple of 32 from 128 to 65504"
            )
        _require("receive_buffer_bytes", self.receive_buffer_bytes, minimum=2 * self.mtu_length_bytes)
        if not REQUEST_HEADER_LENGTH < self.max_message_length_bytes <= 16 * MIB:
            raise ConfigurationError(
                f"max_message_length_bytes={self.max_message_length_bytes} expected 49..{16 * MIB}"
            )

    @property
    def max_payload_length_bytes(self) -> int:
        """The longest payload that `offer` takes."""
        return self.max_message_length_bytes - SESSION_HEADER_LENGTH

    @property
    def max_request_length_bytes(self) -> int:
        """The longest payload that `request` takes."""
        return self.max_message_length_bytes - REQUEST_HEADER_LENGTH


class ConnectSettings(TypedDict, total=False):
    """The keywords of every `connect`. Each but `config` is the field of `ClientConfig` of that name.

    A client that takes them has `**settings: Unpack[ConnectSettings]`, and `with_connect_settings` writes them out.
    """

    credentials: bytes | CredentialsSupplier
    on_challenge: Callable[[bytes], bytes] | None
    client_info: str
    tls: TlsSettings | None
    cluster_id: str
    connect_timeout_s: float
    dial_timeout_s: float
    attempt_timeout_s: float
    new_leader_timeout_s: float | None
    call_timeout_s: float
    close_timeout_s: float
    reconnect_min_s: float
    reconnect_max_s: float
    reopen: bool
    on_reopen: Callable[[ClusterError], None] | None
    config: ClientConfig | None
    """Every setting, in the place of the endpoints and of all other keywords here."""


F = TypeVar("F", bound=Callable[..., Any])
"""A function with `**settings: Unpack[ConnectSettings]`; `Any`, since each returns a connect to its own client."""


def with_connect_settings(connect: F) -> F:
    """Write the keywords of `ConnectSettings` in the signature of a function that takes them, for `help`."""
    signature = inspect.signature(connect)
    known = {**inspect.signature(ClientConfig).parameters, "config": _CONFIG_PARAMETER}
    own = [each for each in signature.parameters.values() if each.kind is not each.VAR_KEYWORD]
    keywords = [known[name] for name in ConnectSettings.__annotations__]
    connect.__signature__ = signature.replace(parameters=own + keywords)  # type: ignore[attr-defined]
    return connect


_CONFIG_PARAMETER: Final = inspect.Parameter(
    "config", inspect.Parameter.KEYWORD_ONLY, default=None, annotation="ClientConfig | None"
)


def client_config(endpoints: str | Sequence[str], settings: ConnectSettings) -> ClientConfig:
    """Make a configuration of the arguments of a connect, or take the one that is among them.

    Raises:
        ConfigurationError: a value that cannot work, or a configuration as well as other arguments: which one would
            count?
        TypeError: no connect has such a keyword.
    """
    unknown = settings.keys() - ConnectSettings.__annotations__.keys()
    if unknown:
        keywords = ", ".join(ConnectSettings.__annotations__)
        raise TypeError(f"connect() got unexpected keywords: {', '.join(sorted(unknown))}; expected of: {keywords}")
    fields_given: dict[str, Any] = {name: value for name, value in settings.items() if name != "config"}
    config = settings.get("config")
    if config is None:
        return ClientConfig(endpoints=(endpoints,) if isinstance(endpoints, str) else tuple(endpoints), **fields_given)
    defaults = {field.name: field.default for field in fields(ClientConfig)}
    given = [name for name, value in fields_given.items() if value != defaults[name]]
    if endpoints:
        given.insert(0, "endpoints")
    if given:
        raise ConfigurationError(f"arguments={','.join(given)} expected in config, which was given too")
    return config


def parse_ingress_endpoints(text: str) -> dict[MemberId, str]:
    """Read "0=host:port,1=host:port": member id to ingress endpoint, as members send it.

    Raises:
        ConfigurationError: it is not of that form; the caller knows whose fault that is.
    """
    return dict(_ingress_endpoints(text))


@lru_cache(maxsize=16)
def _ingress_endpoints(text: str) -> dict[MemberId, str]:
    """Read the text, which all sessions of a process are told, once."""
    endpoints: dict[MemberId, str] = {}
    for entry in filter(None, text.split(",")):
        member_text, separator, endpoint = entry.strip().partition("=")
        if not separator:
            raise ConfigurationError(f"ingress endpoints: entry={entry!r} expected 'member_id=host:port'")
        Endpoint.parse(endpoint)
        endpoints[parse_member_id(member_text)] = endpoint
    return endpoints


def _require(name: str, value: float, *, minimum: float) -> None:
    if not value >= minimum:
        raise ConfigurationError(f"{name}={value} expected at least {minimum}")
