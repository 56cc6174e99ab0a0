"""How often a secret may be guessed: by address, by principal, and never to the harm of somebody who is known."""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from unittest import mock

import pytest
from hypothesis import given
from hypothesis import strategies as st
from structlog.testing import capture_logs

from trimaran.cluster.auth import attempt_limits
from trimaran.cluster.auth.attempt_limits import AttemptLimits
from trimaran.cluster.auth.password_authenticator import PasswordAuthenticator
from trimaran.cluster.auth.secrets_file import SecretsFile
from trimaran.service_api.access.credentials import PasswordCredentials
from trimaran.service_api.access.password_proof import ITERATIONS_MIN, PRINCIPAL_LIMIT_BYTES

from .test_secrets_file import Proxy

SECOND = 1_000


def failures_until_limited(limits: AttemptLimits, address: Callable[[int], str], principal: bytes) -> int:
    for number in range(1_000):
        if limits.find_limit(address(number), principal, 0) is not None:
            return number
        limits.on_failed(address(number), principal, 0)
    raise AssertionError("no limit")


def test_one_address_that_tries_one_name_is_limited_first_and_another_name_later() -> None:
    limits = AttemptLimits()

    assert failures_until_limited(limits, lambda number: "a", b"ops") == 10
    assert failures_until_limited(limits, lambda number: "a", b"web") == 10
    assert failures_until_limited(limits, lambda number: "a", b"dev") == 10
    assert limits.find_limit("a", b"new", 0) == "address"
    assert limits.find_limit("b", b"ops", 0) is None


def test_many_addresses_that_try_one_name_are_limited_together() -> None:
    limits = AttemptLimits()

    assert failures_until_limited(limits, str, b"ops") == 100
    assert limits.find_limit("new", b"ops", 0) == "principal"
    assert limits.find_limit("new", b"web", 0) is None


def test_nobody_can_lock_a_principal_out_of_an_address_that_it_came_in_from() -> None:
    limits = AttemptLimits()
    limits.on_succeeded("home", b"ops")

    failures_until_limited(limits, str, b"ops")

    assert limits.find_limit("home", b"ops", 0) is None


def test_nobody_who_tries_other_names_locks_a_principal_out_of_an_address_that_both_share() -> None:
    limits = AttemptLimits()
    limits.on_succeeded("office", b"ops")
    for number in range(1_000):
        limits.on_failed("office", b"%d" % number, 0)

    assert limits.find_limit("office", b"web", 0) == "address"
    assert limits.find_limit("office", b"ops", 0) is None
    assert failures_until_limited(limits, lambda number: "office", b"ops") == 10


def test_failures_are_forgotten_with_time() -> None:
    limits = AttemptLimits()
    failures_until_limited(limits, lambda number: "a", b"ops")

    assert limits.find_limit("a", b"ops", 5 * SECOND) == "address and principal"
    assert limits.find_limit("a", b"ops", 6 * SECOND) is None


def test_a_clock_that_is_set_back_keeps_nobody_out_for_longer() -> None:
    limits = AttemptLimits()
    for _ in range(10):
        limits.on_failed("a", b"ops", 3_600 * SECOND)

    assert limits.find_limit("a", b"ops", 0) == "address and principal"
    assert limits.find_limit("a", b"ops", 6 * SECOND) is None


def test_memory_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(attempt_limits, "KEY_LIMIT", 20)
    limits = AttemptLimits()
    for number in range(100):
        limits.on_failed(str(number), b"%d" % number, 0)
        limits.on_succeeded("a", b"%d" % number)
        limits.on_succeeded(str(number), b"ops")

    assert {len(limits._by_address), len(limits._by_both), len(limits._by_principal)} == {20}
    assert len(limits._known_addresses) == 20
    assert max(map(len, limits._known_addresses.values())) == 8


@given(st.lists(st.tuples(st.sampled_from("ab"), st.sampled_from([b"x", b"y"]), st.integers(0, 5_000)), max_size=200))
def test_no_address_fails_more_often_than_the_limit_says(attempts: list[tuple[str, bytes, int]]) -> None:
    limits, now_ms = AttemptLimits(), 0
    failed: dict[str, list[int]] = {"a": [], "b": []}
    for address, principal, pause_ms in attempts:
        now_ms += pause_ms
        if limits.find_limit(address, principal, now_ms) is None:
            limits.on_failed(address, principal, now_ms)
            failed[address].append(now_ms)

    for times in failed.values():
        for begin, first_ms in enumerate(times):
            for end in range(begin, len(times)):
                assert end - begin + 1 <= 30 + (times[end] - first_ms) / 2_000 + 1e-6


def attempt(authenticator: PasswordAuthenticator, principal: str, secret: str, address: str, now_ms: int = 0) -> Proxy:
    proxy, credentials = Proxy(address=address), PasswordCredentials(principal, secret)
    authenticator.on_connect_request(proxy.session_id, principal.encode(), now_ms)
    authenticator.on_connected_session(proxy, now_ms)
    authenticator.on_challenge_response(proxy.session_id, credentials.on_challenge(proxy.challenges[0]), now_ms)
    authenticator.on_challenged_session(proxy, now_ms)
    return proxy


def authenticator_of(**secrets: str) -> PasswordAuthenticator:
    random_bytes = Random(1).randbytes
    file = SecretsFile.empty(random_bytes, iterations=ITERATIONS_MIN)
    for principal, secret in secrets.items():
        file.add(principal, secret, random_bytes)
    return PasswordAuthenticator(lambda: file, random_bytes)


@pytest.mark.parametrize("principal", ["ops", "nobody"])
def test_who_guesses_too_often_is_rejected_even_with_the_right_secret_and_its_proof_is_not_looked_at(
    principal: str,
) -> None:
    authenticator = authenticator_of(ops="right")
    for _ in range(10):
        assert attempt(authenticator, principal, "wrong", "a").outcome is False

    with mock.patch("trimaran.cluster.auth.password_authenticator.is_proof") as looked:
        assert attempt(authenticator, principal, "right", "a").outcome is False

    assert looked.call_count == 0
    assert attempt(authenticator, "ops", "right", "b").outcome == b"ops"
    assert attempt(authenticator, "ops", "right", "a", now_ms=6 * SECOND).outcome == b"ops"


def test_an_unknown_name_and_a_wrong_secret_take_the_same_work_and_get_the_same_answer() -> None:
    """The work is counted, not timed: hashes of the member's side, from the request to the answer."""
    counts, answers = {}, {}
    for principal in ("ops", "nobody"):
        authenticator = authenticator_of(ops="right")
        credentials = PasswordCredentials(principal, "wrong")
        proxy = Proxy()
        with mock.patch("hmac.new", wraps=__import__("hmac").new) as counted:
            authenticator.on_connect_request(proxy.session_id, principal.encode(), 0)
            authenticator.on_connected_session(proxy, 0)
            asked = counted.call_count
        response = credentials.on_challenge(proxy.challenges[0])
        with mock.patch("hmac.new", wraps=__import__("hmac").new) as counted:
            authenticator.on_challenge_response(proxy.session_id, response, 0)
            authenticator.on_challenged_session(proxy, 0)
            counts[principal] = (asked, counted.call_count)
        answers[principal] = (proxy.outcome, len(proxy.challenges[0]))

    assert counts["ops"] == counts["nobody"]
    assert counts["ops"][0] > 0
    assert counts["ops"][1] > 0
    assert answers["ops"] == answers["nobody"]


def test_what_is_limited_is_logged_at_once_and_then_every_ten_seconds_with_its_number() -> None:
    """Two addresses in turn: a line for each attempt would let strangers fill the disk."""
    authenticator = authenticator_of(ops="right")
    for address in "ab" * 10:
        attempt(authenticator, "ops", "wrong", address)

    with capture_logs() as lines:
        for now_ms in (0, 0, 0, 500, 10_000, 10_500):
            for _ in range(20):
                for address in "ab":
                    attempt(authenticator, "ops", "wrong", address, now_ms)

    assert [(line["event"], line["address"]) for line in lines] == [("authentication.limited", "a")] * 2
    assert lines[0]["count"] == 1
    assert lines[1]["count"] > 100


def test_of_a_principal_that_is_too_long_no_more_is_kept_and_nobody_has_it() -> None:
    authenticator, proxy = authenticator_of(ops="right"), Proxy()
    authenticator.on_connect_request(proxy.session_id, b"x" * 4_096, 0)
    kept = authenticator._attempts[proxy.session_id].encoded_principal
    authenticator.on_connected_session(proxy, 0)
    authenticator.on_challenge_response(proxy.session_id, bytes(64), 0)
    authenticator.on_challenged_session(proxy, 0)

    assert kept == b"x" * (PRINCIPAL_LIMIT_BYTES + 1)
    assert (len(proxy.challenges), proxy.outcome) == (1, False)
