"""The session's state machine without I/O: bytes in, effects out.

`protocol` is the machine, `effects` what it asks for. Its parts: `leader_search`, `member_link`, `drain`, `queries`,
`admin`, `session_identity`, `requests` (each run once), `ingress_publisher` (bytes out), `egress_adapter` (bytes in).
"""
