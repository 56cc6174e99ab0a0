"""`trimaran certs show`: what a certificate says, and what it may be used for."""

from __future__ import annotations

from datetime import datetime
from pathlib import Path
from typing import Annotated, Any, Final

import typer

from ....archive.tool.output import OutputFormat, OutputOption, print_rows
from ....service_api.access.identity import CallerRole, Identity, spiffe_prefix_of
from ....service_api.errors import ConfigurationError
from ....service_api.tls.certificates import CLIENT_USAGE, SERVER_USAGE, Certificate, read_certificates, utc_now

FileArgument = Annotated[Path, typer.Argument(metavar="FILE", help="A file of certificates in PEM format.")]

_USES: Final = {
    CallerRole.MEMBER: "to run that member of the cluster",
    CallerRole.CLIENT: "to open sessions, with its name as the principal",
    CallerRole.OBSERVER: "to read: status, inspections, the archive, metrics",
    CallerRole.OPERATOR: "to read, and to operate the cluster",
}


def show(file: FileArgument, output: OutputOption = OutputFormat.TABLE) -> None:
    """Explain each certificate of a file: whose it is, how long it is valid, and what it may be used for."""
    now = utc_now()
    rows = [explain(certificate, now) for certificate in read_certificates(file, "certificate")]
    if output is OutputFormat.TABLE:
        for row in rows:
            typer.echo(_as_text(row))
    else:
        print_rows(rows, output)


def explain(certificate: Certificate, now: datetime) -> dict[str, Any]:  # as JSON has it
    """Say what a certificate is, as a row."""
    problem: str | None = None
    identities: list[Identity] = []
    try:
        identities = certificate.identities()
        identities += [Identity.parse(uri) for uri in certificate.uris if spiffe_prefix_of(uri)]
        certificate.expect_valid(now)
    except ConfigurationError as error:
        problem = str(error)
    return {
        "subject": certificate.subject,
        "issuer": certificate.issuer,
        "identities": [str(identity) for identity in identities],
        "names": list(certificate.names),
        "not_before": certificate.not_before.isoformat(),
        "not_after": certificate.not_after.isoformat(),
        "days_left": (certificate.not_after - now).days,
        "uses": _uses(certificate, identities),
        "fingerprint": certificate.fingerprint,
        "problem": problem,
    }


def _uses(certificate: Certificate, identities: list[Identity]) -> list[str]:
    if certificate.is_authority:
        return ["to verify and to sign other certificates (tls authorities)"]
    usages = certificate.usages or (SERVER_USAGE, CLIENT_USAGE)
    uses = [f"{_USES[identity.role]}: {identity}" for identity in identities if CLIENT_USAGE in usages]
    if prefixes := sorted({prefix for uri in certificate.uris if (prefix := spiffe_prefix_of(uri))}):
        uses.append(f"of these, URIs of SPIFFE where the setting tls_spiffe_prefix is {' or '.join(prefixes)}")
    if SERVER_USAGE in usages:
        uses += [f"to listen as {name}" for name in certificate.names]
    elif any(identity.role is CallerRole.MEMBER for identity in identities):
        uses = ["nothing: a member's certificate needs the extended key usages serverAuth and clientAuth"]
    return uses or ["nothing here: it names no identity of a cluster and no host"]


def _as_text(row: dict[str, Any]) -> str:  # a row of `explain`
    lines = []
    for name, value in row.items():
        texts = value if isinstance(value, list) else [value]
        lines += [f"{name if i == 0 else '':<12} {text}" for i, text in enumerate(texts) if text is not None]
    return "\n".join(lines) + "\n"
