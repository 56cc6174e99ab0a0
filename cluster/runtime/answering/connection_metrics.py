"""The metrics of what the gate counts: connections by endpoint, refusals, descriptors."""

from __future__ import annotations

from typing import Final

from trimaran.cluster.runtime.answering.metric_row import MetricRow
from trimaran.service_api.net.connection_gate import REFUSAL_KINDS

CONNECTION_METRICS: Final = (
    MetricRow(
        "trimaran_connections",
        "gauge",
        "accepted connections by endpoint",
        lambda v: [((purpose.value,), v.gate.count(purpose)) for purpose in v.gate.purposes],
        ("endpoint",),
    ),
    MetricRow(
        "trimaran_connections_pending",
        "gauge",
        "of these, connections that no session or member has been found for yet",
        lambda v: [((purpose.value,), v.gate.pending_count(purpose)) for purpose in v.gate.purposes],
        ("endpoint",),
    ),
    MetricRow(
        "trimaran_connection_limit",
        "gauge",
        "the limit of connections by endpoint",
        lambda v: [((purpose.value,), v.gate.limits(purpose).connection_limit) for purpose in v.gate.purposes],
        ("endpoint",),
    ),
    MetricRow(
        "trimaran_connections_refused_total",
        "counter",
        "connections that were refused or ended before they were anybody's: at the `limit` or `address_limit`, "
        "`evicted` for newer ones, past a `deadline`, for want of `descriptors`, `superseded` by newer links of a "
        "member, without agreement on encryption (`handshake`), of a `foreign_user` at a control socket, meant for an "
        "`other_cluster`, or with an identity that has `no_right` any more",
        lambda v: [
            ((purpose.value, kind), v.gate.refused_counts[purpose.value, kind])
            for purpose in v.gate.purposes
            for kind in REFUSAL_KINDS
        ],
        ("endpoint", "kind"),
    ),
    MetricRow(
        "trimaran_certificate_expires_seconds",
        "gauge",
        "seconds until the first certificate of those that it works with expires; none without TLS",
        lambda v: (
            None
            if (certificate := v.certificate()) is None
            else (certificate.expires_at_ms - v.clock.epoch_time()) / 1_000
        ),
    ),
    MetricRow(
        "trimaran_unfinished_bytes",
        "gauge",
        "bytes of clients' messages that have begun and not ended",
        lambda v: v.ingress.unfinished_bytes,
    ),
    MetricRow(
        "trimaran_open_descriptors",
        "gauge",
        "files and connections that the process has open; 0 if that is not known",
        lambda v: 0 if v.gate.descriptors is None else v.gate.descriptors.used_count,
    ),
    MetricRow(
        "trimaran_descriptor_limit",
        "gauge",
        "how many it may have open; 0 if that is not limited",
        lambda v: 0 if v.gate.descriptors is None else v.gate.descriptors.limit,
    ),
)
"""Rows of `METRICS`."""
