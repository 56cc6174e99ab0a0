"""Certificates for a cluster that is measured with TLS: made once, beside the members' directories."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from ...cluster.cli.certs.development import CERTIFICATES_NAME, Certificates

_MEMBERS: Final = 9
"""For how many members there are certificates: the most that a benchmark starts."""


def certificates_in(data_dir: Path) -> Certificates:
    """Return those of a directory, and make them if it has none."""
    certificates = Certificates(data_dir / CERTIFICATES_NAME)
    if not certificates.exist:
        certificates.make(_MEMBERS)
    return certificates
