"""Certificates as files hold them: read, and the identities in them."""

from __future__ import annotations

import base64
import warnings
from collections.abc import Iterator

from tests.fuzz.target import expect, target
from tests.fuzz.targets.settings import scratch_file
from trimaran.service_api.errors import ConfigurationError
from trimaran.service_api.tls.certificates import read_certificates

_BEGIN, _END = "-----BEGIN CERTIFICATE-----", "-----END CERTIFICATE-----"


_MEMBER = (
    "MIICAzCCAamgAwIBAgIUKHcBBUfc3UVHXvp30+5gTmVSKMIwCgYIKoZIzj0EAwIwGTEXMBUGA1UEAwwOdGVzdCBhdXRob3JpdHkwHhcNMjYx"
    "MTI1MTA0MzQwWhcNMjYxMjE1MTA0ODQwWjATMREwDwYDVQQDDAhtZW1iZXItMzBZMBMGByqGSM49AgEGCCqGSM49AwEHA0IABJDjXVaBNAoi"
    "lmqguW6llcJC5x0iQ3kQrqxYK36zul6ScqOGJkYiVgysPmLJOAcZea0nhNKszd0w7GB/K8fSef2jgdQwgdEwHQYDVR0OBBYEFKAZ+2q2L7uk"
    "/IJdRU518xdmdqGuMFIGA1UdEQRLMEmGJHRyaW1hcmFuOi8vM2Y5YTBjMTJkNDVlNzdiMS9tZW1iZXIvM4IJbG9jYWxob3N0hwR/AAABhxAA"
    "AAAAAAAAAAAAAAAAAAABMAwGA1UdEwEB/wQCMAAwDgYDVR0PAQH/BAQDAgeAMB0GA1UdJQQWMBQGCCsGAQUFBwMCBggrBgEFBQcDATAfBgNV"
    "HSMEGDAWgBSRdGumtrb0BBL36pEFQ5MTA9zM0DAKBggqhkjOPQQDAgNIADBFAiEAjaddPJnrxr4pSpJVpSUdXyHNW1isGijGjo6lCauNnrgC"
    "IHTaObSPIksqcC4yBLsaGLftJB7w1F6+JHTf/9y40aA+"
)
"""A member's certificate of an authority of the tests, expired by the time that you read this."""


def _seeds() -> Iterator[bytes]:
    yield base64.b64decode(_MEMBER)


@target(_seeds)
def certificates(data: bytes) -> None:
    """A certificate file of TLS, and who its holder is."""
    path = scratch_file("certificate.pem")
    path.write_text(f"{_BEGIN}\n{base64.encodebytes(data).decode()}{_END}\n")
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of what a certificate should not say, and may
            found = read_certificates(path, "certificate")
    except ConfigurationError:
        return
    for certificate in found:
        try:
            identities = certificate.identities()
        except ConfigurationError:
            continue
        expect(all(str(identity) for identity in identities), "an identity has a name")
