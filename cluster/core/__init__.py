"""The consensus module as a pure state machine: no clock, no file, no socket, no await.

Read `effects` and `events` (out and in), `election_state` (the table), `election`, then `consensus_module` (the
contract). The log's bytes: `log_buffer` (window), `log_publisher` (leader), `log_receiver` (follower).
"""
