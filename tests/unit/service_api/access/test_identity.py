"""Identities: what a certificate's URIs say, and what is refused."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trimaran.service_api.access.identity import Caller, CallerRole, Identity, Proof, identities_of
from trimaran.service_api.cluster_id import ClusterId
from trimaran.service_api.errors import ConfigurationError

CLUSTER = "00000000000000ab"


@given(st.integers(1, (1 << 63) - 1), st.integers(0, (1 << 31) - 1))
def test_a_member_is_written_and_read(cluster_id: int, member_id: int) -> None:
    identity = Identity(ClusterId(cluster_id), CallerRole.MEMBER, str(member_id))

    assert Identity.parse(str(identity)) == identity
    assert identity.member_id == member_id == Caller.of_identity(identity).member_id


@given(
    st.sampled_from([CallerRole.CLIENT, CallerRole.OBSERVER, CallerRole.OPERATOR]),
    st.from_regex(r"\A[A-Za-z0-9][A-Za-z0-9._@+-]{0,127}\Z"),
)
def test_a_name_is_written_and_read(role: CallerRole, name: str) -> None:
    identity = Identity(ClusterId(171), role, name.strip("\n"))

    assert Identity.parse(str(identity)) == identity
    assert identity.member_id is None


@pytest.mark.parametrize(
    "uri", [f"spiffe://prod.example/trimaran/{CLUSTER}/member/2", f"spiffe://a/ns/x/trimaran/{CLUSTER}/member/2"]
)
def test_an_identity_stands_at_the_end_of_a_spiffe_uri(uri: str) -> None:
    assert Identity.parse(uri) == Identity(ClusterId(171), CallerRole.MEMBER, "2")


@pytest.mark.parametrize(
    "uri",
    [
        "",
        f"trimaran://{CLUSTER}/member/01",
        f"trimaran://{CLUSTER}/member/-1",
        f"trimaran://{CLUSTER}/member/2147483648",
        f"trimaran://{CLUSTER}/member/1/client/x",
        f"trimaran://{CLUSTER}/member/1\n",
        f"trimaran://{CLUSTER}/member/١",
        f"trimaran://{CLUSTER}/stranger/x",
        f"trimaran://{CLUSTER}/client/",
        f"trimaran://{CLUSTER}/client/a/b",
        f"trimaran://{CLUSTER}/client/é",
        f"trimaran://{CLUSTER.upper()}/client/x",
        "trimaran://0000000000000000/client/x",
        "trimaran://ab/client/x",
        f"https://trimaran://{CLUSTER}/client/x",
        f"spiffe://trimaran/{CLUSTER}/member/1",
    ],
)
def test_what_is_no_identity_is_refused_with_its_value(uri: str) -> None:
    with pytest.raises(ConfigurationError, match=r"bad (identity|cluster id): "):
        Identity.parse(uri)


OF_SPIFFE = f"trimaran/{CLUSTER}/operator/x"


@pytest.mark.parametrize(
    ("uri", "counts"),
    [
        (f"spiffe://prod.example/ns/trimaran-system/{OF_SPIFFE}", True),
        (f"spiffe://prod.example/{OF_SPIFFE}", False),
        (f"spiffe://prod.example/ns/guest/{OF_SPIFFE}", False),
        (f"spiffe://prod.example/ns/trimaran-system/sa/guest/{OF_SPIFFE}", False),
        (f"spiffe://prod.example/ns/trimaran-system-2/{OF_SPIFFE}", False),
        (f"spiffe://other.example/ns/trimaran-system/{OF_SPIFFE}", False),
    ],
)
def test_a_spiffe_uri_counts_with_the_trust_domain_and_the_path_of_the_setting_alone(uri: str, counts: bool) -> None:
    """Whichever workload could choose its path was an operator."""
    pinned = identities_of([uri], "spiffe://prod.example/ns/trimaran-system")

    assert [identity.role for identity in pinned] == [CallerRole.OPERATOR] * counts
    assert identities_of([uri]) == []


def test_other_uris_of_a_certificate_are_nobody_s_business() -> None:
    uris = ["https://example.org/", "spiffe://prod.example/web", f"trimaran://{CLUSTER}/client/x"]

    assert [str(identity) for identity in identities_of(uris)] == uris[2:]


def test_a_certificate_may_be_of_two_clusters_but_has_one_identity_in_each() -> None:
    assert len(identities_of([f"trimaran://{CLUSTER}/member/1", "trimaran://00000000000000ac/member/1"])) == 2

    with pytest.raises(ConfigurationError, match="several identities"):
        identities_of([f"trimaran://{CLUSTER}/member/1", f"trimaran://{CLUSTER}/operator/x"])


def test_a_caller_says_what_it_is_and_how_that_was_shown() -> None:
    caller = Caller.of_identity(Identity.parse(f"trimaran://{CLUSTER}/operator/anna"))

    assert caller == Caller(CallerRole.OPERATOR, "anna", Proof.CERTIFICATE)
    assert str(caller) == "operator anna (by certificate)"
